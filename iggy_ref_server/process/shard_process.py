"""A shard as a process: pinned to a CPU core, controlled by the supervisor through two pipes.

    supervisor → shard     ``serve``, ``drain``, ``close``; end of file means: exit at once
    shard → supervisor     ``open`` with some facts, ``ready``, ``drained``,
                           ``closing`` twice in a second, maybe ``unsaved``

No shard accepts a connection before all shards are open. Otherwise a client could be told that a
partition does not exist, only because its shard is still reading files. Until then connections
wait in the kernel, in the accept queues of sockets that are bound already.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import logging
import mmap
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import trio

from iggy_protocol import record
from iggy_ref_server.clock import SystemClock
from iggy_ref_server.config import ConfigError, RootCredentials, ServerConfig
from iggy_ref_server.descriptor_limit import files_max
from iggy_ref_server.host import Ports
from iggy_ref_server.logs import start_logging
from iggy_ref_server.metadata.errors import MetadataError
from iggy_ref_server.process.watchdog import watch_loop
from iggy_ref_server.shard.assembly import Shard, ShardSpec, open_shard
from iggy_ref_server.shard.listener_table import BoundSockets
from iggy_ref_server.storage.engines import open_storage
from iggy_ref_server.storage.interface import Storage, StorageError

LOGGER = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
EXIT_FAILED = 1
# A regular exit, but some acknowledged messages could not be written or synced.
EXIT_UNSAVED = 3

CLOSING_REPORT_S = 0.5

# Commands of the supervisor, one byte each.
SERVE, DRAIN, CLOSE = b"s", b"d", b"c"


@record
class SupervisorPipes:
    """This end of the two pipes to the supervisor."""

    command_pipe: int
    report_pipe: int


@record(kw_only=True)
class ShardProcessSpec:
    """Everything that a shard process is given before it starts.

    Attributes:
        core: the CPU core to run on, or None to leave that to the kernel.
        bound_by_listener: its bound sockets, by the name of the listener.
        peer_sockets: sockets of the channels to the other shards.
        migration_sockets: sockets over which connections migrate to the other shards.
        root: chooses the root user of a new data directory.
        environment: may hold ``RUST_LOG``.
        round_robin_memory: the shared counters of balanced sends.
        writes_survived: whether the machine has not rebooted since a server last used the data.
    """

    shard_id: int
    core: int | None
    config: ServerConfig
    bound_by_listener: Mapping[str, BoundSockets]
    peer_sockets: Mapping[int, socket.socket]
    migration_sockets: Mapping[int, socket.socket]
    root: Callable[[], RootCredentials]
    environment: Mapping[str, str]
    round_robin_memory: mmap.mmap
    ports: Ports
    ip: str
    is_follower: bool
    writes_survived: bool = False


def run_shard_process(spec: ShardProcessSpec, pipes: SupervisorPipes, parent: int) -> int:
    """Run a shard until the supervisor closes it; return the exit code of the process."""
    _exit_with_parent(parent)
    if spec.core is not None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {spec.core})
    # Ctrl-C in a terminal signals the whole process group; the supervisor alone stops shards.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    gc.freeze()
    system = spec.config.system
    with start_logging(
        system.logging, Path(system.path), spec.environment, process=f"shard-{spec.shard_id}"
    ):
        return _run_with_logging(spec, pipes)


def _run_with_logging(spec: ShardProcessSpec, pipes: SupervisorPipes) -> int:
    exit_code = EXIT_FAILED
    try:
        exit_code = trio.run(_run, spec, pipes)
    except* (StorageError, MetadataError, ConfigError) as group:
        for error in _leaf_errors(group):
            LOGGER.error("shard %d stops: %s", spec.shard_id, error)
    except* Exception:
        LOGGER.exception("shard %d ended by an unexpected error", spec.shard_id)
    return exit_code


def _leaf_errors(group: BaseExceptionGroup) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaf_errors(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def _exit_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however the parent ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before prctl() was called; then no signal comes.
    if os.getppid() != parent:
        os._exit(EXIT_FAILED)


async def _run(spec: ShardProcessSpec, pipes: SupervisorPipes) -> int:
    with watch_loop():
        return await _serve(spec, pipes)


async def _serve(spec: ShardProcessSpec, pipes: SupervisorPipes) -> int:
    storage = await open_storage(spec.config.system.path, spec.config.system.storage.engine)
    storage.open_files.descriptors_max = files_max()
    facts: dict[str, object] = {"engine": storage.engine}

    def root() -> RootCredentials:
        chosen = spec.root()
        if chosen.is_generated:
            facts["root"] = {"username": chosen.username, "password": chosen.password}
        return chosen

    shard_spec = ShardSpec(
        shard_id=spec.shard_id,
        config=spec.config,
        storage=storage,
        clock=SystemClock(),
        root=root,
        peer_sockets={
            shard_id: trio.socket.from_stdlib_socket(peer_socket)
            for shard_id, peer_socket in spec.peer_sockets.items()
        },
        migration_sockets=spec.migration_sockets,
        bound_by_listener=spec.bound_by_listener,
        round_robin_memory=spec.round_robin_memory,
        ports=spec.ports,
        ip=spec.ip,
        is_follower=spec.is_follower,
        writes_survived=spec.writes_survived,
    )
    async with trio.open_nursery() as reporting:
        async with open_shard(shard_spec) as shard:
            facts["damaged"] = len(shard.directory.damaged)
            facts["waiting"] = shard.directory.waiting_count
            _report(pipes, "open", facts)
            # A server that is stopped while it starts goes from "open" to "drained".
            if await _wait_for_command(pipes, SERVE, DRAIN) == SERVE:
                await _serve_until_drained(shard, pipes)
            _report(pipes, "drained", {})
            # Other shards may still have clients that send to partitions of this shard.
            await _wait_for_command(pipes, CLOSE)
            reporting.start_soon(_report_closing, shard, storage, pipes)
        reporting.cancel_scope.cancel()
    return _report_unsaved(shard, pipes)


async def _serve_until_drained(shard: Shard, pipes: SupervisorPipes) -> None:
    """Serve clients until the supervisor says drain, and send the last replies."""
    # All listeners drain at the same time, not one after another: the outer nursery waits.
    async with trio.open_nursery() as stopping, trio.open_nursery() as nursery:
        await nursery.start(shard.listen)
        _report(pipes, "ready", {})
        await _wait_for_command(pipes, DRAIN)
        nursery.cancel_scope.cancel()
        stopping.start_soon(shard.drain)


async def _report_closing(shard: Shard, storage: Storage, pipes: SupervisorPipes) -> None:
    """Report the progress of closing until cancelled; the supervisor kills a shard without any."""
    while True:
        facts = {"left": shard.directory.open_count, "operations": storage.ended_count}
        _report(pipes, "closing", facts)
        await trio.sleep(CLOSING_REPORT_S)


def _report_unsaved(shard: Shard, pipes: SupervisorPipes) -> int:
    """Report which messages a closed shard could not save; return the exit code."""
    unsaved = shard.unsaved.values()
    if not unsaved:
        return 0
    lost = sum(len(one.lost) for one in unsaved)
    unsynced = sum(len(one.unsynced) for one in unsaved)
    _report(pipes, "unsaved", {"lost": lost, "unsynced": unsynced, "partitions": len(unsaved)})
    return EXIT_UNSAVED


def _report(pipes: SupervisorPipes, report: str, facts: Mapping[str, object]) -> None:
    os.write(pipes.report_pipe, json.dumps({"word": report, **facts}).encode() + b"\n")


async def _wait_for_command(pipes: SupervisorPipes, *expected: bytes) -> bytes:
    """Wait for the next command; exit at once when the supervisor is gone."""
    await trio.lowlevel.wait_readable(pipes.command_pipe)
    command = os.read(pipes.command_pipe, 1)
    if command not in expected:
        os._exit(EXIT_FAILED)
    return command
