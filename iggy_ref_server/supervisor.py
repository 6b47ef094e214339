"""The supervisor: starts one process per shard, watches them, and stops them in sequence.

It locks the data directory and binds the ports before it forks, so that two servers never share
either by accident. It lets the shards accept connections when all of them have opened their
partitions, and announces the server when all of them accept. When a shard ends unexpectedly, it
stops the others and exits with an error. It serves no requests itself.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import select
import shutil
import signal
import socket
import stat
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iggy_ref_server.banner import Door, Started, root_password_line, start_lines
from iggy_ref_server.boot import note_boot, writes_survived
from iggy_ref_server.certificates import tls_context
from iggy_ref_server.cli import package_version
from iggy_ref_server.config import (
    Address,
    RootCredentials,
    choose_root_credentials,
    dump_config,
    parse_address,
)
from iggy_ref_server.data_plane.lingering import STOP_CLIENTS_S
from iggy_ref_server.descriptor_limit import raise_descriptor_limit
from iggy_ref_server.guards import bind_shared_port, lock_data_directory
from iggy_ref_server.host import Ports
from iggy_ref_server.logs import start_logging
from iggy_ref_server.runtime_directory import clear_runtime, space_lines, write_runtime_file
from iggy_ref_server.shard.entrances import DOORS, Entrance
from iggy_ref_server.shard.machine import read_machine
from iggy_ref_server.shard.topology import place_shards
from iggy_ref_server.shard.turns import share_turns
from iggy_ref_server.shard_process import (
    CLOSE,
    DRAIN,
    SERVE,
    UNSAVED,
    Pipes,
    ShardJob,
    run_shard_process,
)
from iggy_ref_server.stop_signals import WATCHED_SIGNALS, read_stop_signal, watch_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from iggy_ref_server.certificates import CertificateFiles
    from iggy_ref_server.config import LoadedConfig, ServerConfig
    from iggy_ref_server.shard.topology import ShardPlacement

__all__ = ["run_server"]

LOGGER = logging.getLogger(__name__)

# How long shards have to see their clients off, which they bound themselves, and then to close
# their files, which a disk may make slow.
DRAIN_S = STOP_CLIENTS_S + 0.5
STOP_S = 10.0
# A start that takes longer prints a line, once in each such period.
OPENING_LINE_S = 5.0
OTHERS = 0o077
RUNTIME_FILE = "current_config.toml"


@dataclass(slots=True)
class _Child:
    """A shard process, with the supervisor's end of its pipes."""

    shard_id: int
    process_id: int
    orders: int
    reports: int
    unread: bytes = b""
    words: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None

    def heard(self, word: str) -> dict[str, Any] | None:
        """Return the facts of a report; None while it has not come."""
        return next((facts for facts in self.words if facts["word"] == word), None)

    def tell(self, order: bytes) -> None:
        """Send a command; a process that has ended is ignored."""
        with contextlib.suppress(OSError):
            os.write(self.orders, order)


def run_server(
    loaded: LoadedConfig,
    say: Callable[[str], None],
    find_certificates: Callable[[], Mapping[str, CertificateFiles]],
) -> int:
    """Run a server until it is stopped; return the exit code of the process.

    Args:
        loaded: the configuration.
        say: prints a line on the terminal.
        find_certificates: returns the certificates of listeners with TLS, by their names; called
            after the data directory is locked.

    Raises:
        AlreadyRunning: another server uses the data directory.
        PortTaken: another program listens on the address.
        TooFewDescriptors: the limit of open files is too low.
        TopologyError: the machine does not have the configured cores.
    """
    config = loaded.config
    directory = Path(config.system.path)
    raise_descriptor_limit()
    placements = place_shards(config.system.sharding.cpu_allocation, read_machine())
    lock_data_directory(directory)
    if loaded.flags.fresh:
        _empty(directory)
    certificates = find_certificates()
    runtime = directory / config.system.runtime.path
    clear_runtime(runtime)
    bound = _bind(config, len(placements))
    jobs = _jobs(loaded, placements, bound, certificates, survived=writes_survived(directory))
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED_SIGNALS)
    children = [_start(job) for job in jobs]
    for job in jobs:
        for entrance in job.entrances.values():
            for ours in entrance.sockets:
                ours.close()
        for ours in (*job.neighbours.values(), *job.passages.values()):
            ours.close()
    # Logging starts a thread, and a process with threads must not fork.
    with start_logging(config.system.logging, directory, loaded.environment, process="supervisor"):
        full = space_lines(directory)
        for warning in (*loaded.warnings, *_open_to_others(directory), *full):
            LOGGER.warning("%s", warning)
        # Shards are opening their partitions, so this is the time for a slow look-up.
        version = package_version()
        with watch_signals() as signals:
            return _Watch(children, say, signals).run(
                lambda watch: _announce(watch, loaded, version, placements, jobs, runtime)
            )


def _open_to_others(directory: Path) -> list[str]:
    """Return a warning if other users may read the data directory."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    if not mode & OTHERS:
        return []
    return [
        (
            f"other users may enter the data directory {directory} (mode {mode:o}); "
            f"run `chmod -R go= {directory}` to keep messages and metadata private"
        )
    ]


def _empty(directory: Path) -> None:
    """Remove everything but the lock file."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != ".lock":
            path.unlink()


def _bind(config: ServerConfig, count: int) -> dict[str, list[socket.socket]]:
    """Bind the sockets of all enabled listeners, one per shard that accepts."""
    bound: dict[str, list[socket.socket]] = {}
    for door in DOORS:
        section = getattr(config, door.name)
        if door.open is not None and section.enabled:
            host, port = parse_address(section.address)
            shards = count if door.is_everywhere else 1
            bound[door.name], _ = bind_shared_port(
                host, port, shards, setting=f"IGGY_{door.name.upper()}_ADDRESS", kind=door.kind
            )
    return bound


def _addresses(
    config: ServerConfig, bound: Mapping[str, list[socket.socket]]
) -> dict[str, Address]:
    """Return the address of each listener: bound, or as configured where it is not bound."""
    addresses: dict[str, Address] = {}
    for door in DOORS:
        address = parse_address(getattr(config, door.name).address)
        if door.name in bound:
            address = address._replace(port=bound[door.name][0].getsockname()[1])
        addresses[door.name] = address
    return addresses


def _share(
    shard_id: int,
    bound: Mapping[str, list[socket.socket]],
    certificates: Mapping[str, CertificateFiles],
) -> dict[str, Entrance]:
    """Return the sockets and certificates of one shard, by the name of the listener."""
    entrances: dict[str, Entrance] = {}
    for name, sockets in bound.items():
        if shard_id < len(sockets):
            certificate = certificates.get(name)
            entrances[name] = Entrance(
                sockets=(sockets[shard_id],),
                tls=None if certificate is None else tls_context(certificate),
                certificate=certificate,
            )
    return entrances


def _jobs(
    loaded: LoadedConfig,
    placements: Sequence[ShardPlacement],
    bound: Mapping[str, list[socket.socket]],
    certificates: Mapping[str, CertificateFiles],
    *,
    survived: bool,
) -> list[ShardJob]:
    """Return what each shard process gets; each pair of shards is joined by a socket."""
    config = loaded.config
    walls = _join(len(placements), socket.SOCK_STREAM)
    # The TLS state of a connection cannot be moved to another process.
    moves = config.tcp.socket_migration and "tcp" not in certificates
    passages = _join(len(placements) if moves else 0, socket.SOCK_SEQPACKET)
    addresses = _addresses(config, bound)
    ports = Ports(**{name: address.port for name, address in addresses.items()})

    turns = share_turns(len(placements))

    def root() -> RootCredentials:
        return choose_root_credentials(loaded.environment, secrets.choice)

    return [
        ShardJob(
            shard_id=placement.shard_id,
            core=placement.core,
            config=config,
            entrances=_share(placement.shard_id, bound, certificates),
            neighbours=walls[placement.shard_id],
            passages=passages[placement.shard_id] if passages else {},
            root=root,
            environment=loaded.environment,
            turns=turns,
            ports=ports,
            ip=addresses["tcp"].host,
            is_follower=loaded.flags.follower,
            writes_survived=survived,
        )
        for placement in placements
    ]


def _join(count: int, kind: socket.SocketKind) -> list[dict[int, socket.socket]]:
    """Make a socket pair for each pair of shards; return the sockets of each shard."""
    ends: list[dict[int, socket.socket]] = [{} for _ in range(count)]
    for left in range(count):
        for right in range(left + 1, count):
            ends[left][right], ends[right][left] = socket.socketpair(socket.AF_UNIX, kind)
    return ends


def _start(job: ShardJob) -> _Child:
    orders_read, orders_write = os.pipe()
    reports_read, reports_write = os.pipe()
    parent = os.getpid()
    process_id = os.fork()
    if process_id:
        os.close(orders_read)
        os.close(reports_write)
        os.set_blocking(reports_read, False)
        return _Child(job.shard_id, process_id, orders_write, reports_read)
    exit_code = 1
    try:
        os.close(orders_write)
        os.close(reports_read)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED_SIGNALS)
        exit_code = run_shard_process(job, Pipes(orders_read, reports_write), parent)
    except BaseException:
        LOGGER.exception("shard %d ended by an unexpected error", job.shard_id)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


class _Watch:
    """Waits for reports of the shards, their exits, and signals."""

    def __init__(self, children: list[_Child], say: Callable[[str], None], signals: int) -> None:
        self.children = children
        self.say = say
        self._signals = signals
        self._stop_signal: int | None = None

    def run(self, announce: Callable[[_Watch], None]) -> int:
        """Watch the shards until the server has stopped; return the exit code."""
        if self._wait_until_open() and self._wait(lambda: self._all_said("ready")):
            announce(self)
            self._wait(lambda: False)
        failed = [child for child in self.children if child.exit_code is not None]
        for child in failed:
            self.say(f"shard {child.shard_id} ended unexpectedly: {_meaning(child.exit_code)}")
        if not failed:
            self.say("stopping: connections are closed, messages are written")
        return self._stop() or bool(failed)

    def _wait_until_open(self) -> bool:
        """Let the shards accept connections as soon as all of them are open."""
        began = time.monotonic()
        while not self._wait(self._is_open_or_stopped, OPENING_LINE_S):
            if any(child.exit_code is not None for child in self.children):
                return False
            missing = [child.shard_id for child in self.children if child.heard("open") is None]
            self.say(
                f"starting: after {time.monotonic() - began:.0f} s shards {missing} are still"
                " opening their partitions; clients wait until that is done"
            )
        if self._stop_signal is not None:
            return False
        for child in self.children:
            child.tell(SERVE)
        return True

    def _is_open_or_stopped(self) -> bool:
        return self._stop_signal is not None or self._all_said("open")

    def _all_said(self, word: str) -> bool:
        return all(child.heard(word) is not None for child in self.children)

    def _wait(self, is_done: Callable[[], bool], budget_s: float | None = None) -> bool:
        """Wait for a condition; return False when a shard ended, a signal came, or time is up."""
        deadline = None if budget_s is None else time.monotonic() + budget_s
        while not is_done():
            if any(child.exit_code is not None for child in self.children):
                return False
            if self._stop_signal is not None and deadline is None:
                return False
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._listen(left)
        return True

    def _listen(self, timeout_s: float | None) -> None:
        """Wait for the next report, exit or signal, at most 50 ms."""
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        for child in self.children:
            if child.exit_code is None:
                poll.register(child.reports, select.POLLIN)
        poll.poll(None if timeout_s is None else max(1, int(timeout_s * 1000)))
        for child in self.children:
            self._hear(child)
            self._look_after(child)
        self._stop_signal = read_stop_signal(self._signals) or self._stop_signal

    def _hear(self, child: _Child) -> None:
        with contextlib.suppress(BlockingIOError):
            child.unread += os.read(child.reports, 65_536)
        *lines, child.unread = child.unread.split(b"\n")
        child.words += [json.loads(line) for line in lines]

    def _look_after(self, child: _Child) -> None:
        if child.exit_code is None:
            process_id, status = os.waitpid(child.process_id, os.WNOHANG)
            if process_id:
                child.exit_code = os.waitstatus_to_exitcode(status)

    def _stop(self) -> int:
        """Let all shards drain, then close; kill a shard that does not end in time."""
        alive = [child for child in self.children if child.exit_code is None]
        self.children = alive
        for child in alive:
            child.tell(DRAIN)
        self._wait(lambda: self._all_said("drained"), DRAIN_S)
        for child in alive:
            child.tell(CLOSE)
        deadline = time.monotonic() + STOP_S
        while time.monotonic() < deadline:
            if all(child.exit_code is not None for child in alive):
                break
            self._listen(deadline - time.monotonic())
        for child in alive:
            if child.exit_code is None:
                self.say(f"shard {child.shard_id} did not stop within {STOP_S:.0f} s and is killed")
                os.kill(child.process_id, signal.SIGKILL)
                os.waitpid(child.process_id, 0)
                return 1
        return self._account(alive)

    def _account(self, ended: list[_Child]) -> int:
        """Print which messages could not be saved; return the exit code of the server."""
        for child in ended:
            self._hear(child)
            if (facts := child.heard("unsaved")) is not None:
                self.say(
                    f"shard {child.shard_id} could not save {facts['partitions']} partitions: "
                    f"{facts['lost']} acknowledged messages are LOST, {facts['unsynced']} more may "
                    "be lost by a power failure; the log lines above name their offsets"
                )
        codes = {child.exit_code for child in ended}
        return UNSAVED if UNSAVED in codes else int(any(codes))


def _meaning(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}; see the log above for the reason"


def _door(name: str, config: ServerConfig, job: ShardJob) -> Door:
    """Describe a listener for the banner."""
    address = parse_address(getattr(config, name).address)
    entrance = job.entrances.get(name)
    if entrance is None:
        return Door(name=name, address=str(address), is_served=False)
    certificate = entrance.certificate
    return Door(
        name=name,
        address=str(address._replace(port=getattr(job.ports, name))),
        is_served=True,
        is_encrypted=certificate is not None,
        # Clients have to be told to trust a self-signed certificate.
        development_certificate=str(certificate.certificate)
        if certificate and certificate.is_development
        else "",
    )


def _announce(
    watch: _Watch,
    loaded: LoadedConfig,
    version: str,
    placements: Sequence[ShardPlacement],
    jobs: Sequence[ShardJob],
    runtime: Path,
) -> None:
    """Print the banner and write the runtime file: the server is ready."""
    config = loaded.config
    facts = watch.children[0].heard("open")
    assert facts is not None
    note_boot(Path(config.system.path))
    # Shard 0 has sockets of every listener.
    doors = [
        _door(kind.name, config, jobs[0]) for kind in DOORS if getattr(config, kind.name).enabled
    ]
    if "root" in facts:
        watch.say(root_password_line(RootCredentials(**facts["root"], is_generated=True)))
    for line in start_lines(
        Started(
            version=version,
            cores=[placement.core for placement in placements],
            engine=facts["engine"],
            ack=config.system.partition.ack,
            data_directory=str(Path(config.system.path).resolve()),
            source=loaded.source,
            doors=doors,
            is_follower=loaded.flags.follower,
        )
    ):
        watch.say(line)
    for line in space_lines(Path(config.system.path)):
        watch.say(line)
    addresses = {door.name: door.address for door in doors}
    write_runtime_file(runtime / RUNTIME_FILE, dump_config(config, addresses))
