"""A shard as a process: pinned to a CPU core, controlled by the supervisor through two pipes.

    supervisor → shard     ``serve``, ``drain``, ``close``; end of file means: exit at once
    shard → supervisor     ``open`` with some facts, ``ready``, ``drained``,
                           ``closing`` twice in a second, maybe ``unsaved``

No shard accepts a connection before all shards are open. Otherwise a client could be told that a
partition does not exist, only because its shard is still reading files. Until then connections
wait in the kernel, in the accept queues of sockets that are bound already.

A thread watches the event loop of the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import json
import logging
import mmap
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import trio

from iggy_protocol import record
from iggy_ref_server.clock import SystemClock
from iggy_ref_server.config.load import RootCredentials
from iggy_ref_server.config.schema import ServerConfig
from iggy_ref_server.config.tree import ConfigError
from iggy_ref_server.descriptor_limit import files_max
from iggy_ref_server.host import Ports
from iggy_ref_server.logs import start_logging
from iggy_ref_server.metadata.errors import MetadataError
from iggy_ref_server.shard.assembly import Shard, open_shard
from iggy_ref_server.shard.listener_table import BoundSockets
from iggy_ref_server.shard.spec import ShardSpec
from iggy_ref_server.storage.interface import Storage, StorageError
from iggy_ref_server.storage.threads import ThreadStorage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from iggy_ref_server.storage.files import WritebackLimit
    from iggy_ref_server.storage.uring import UringStorage


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
        cores: the cores of all shards, on which password hashes may run.
        bound_by_listener: its bound sockets, by the name of the listener.
        peer_sockets: sockets of the channels to the other shards.
        migration_sockets: sockets over which connections migrate to the other shards.
        root: chooses the root user of a new data directory.
        given_root: the credentials in the environment, if it has both.
        environment: may hold ``RUST_LOG``.
        round_robin_memory: the shared counters of balanced sends.
        position_memory: the shared position of the metadata.
        writes_survived: whether the machine has not rebooted since a server last used the data.
    """

    shard_id: int
    core: int | None
    cores: frozenset[int]
    config: ServerConfig
    bound_by_listener: Mapping[str, BoundSockets]
    peer_sockets: Mapping[int, socket.socket]
    migration_sockets: Mapping[int, socket.socket]
    root: Callable[[], RootCredentials]
    given_root: RootCredentials | None
    environment: Mapping[str, str]
    round_robin_memory: mmap.mmap
    position_memory: mmap.mmap
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
        given_root=spec.given_root,
        cores=spec.cores,
        peer_sockets={
            shard_id: trio.socket.from_stdlib_socket(peer_socket)
            for shard_id, peer_socket in spec.peer_sockets.items()
        },
        migration_sockets=spec.migration_sockets,
        bound_by_listener=spec.bound_by_listener,
        round_robin_memory=spec.round_robin_memory,
        position_memory=spec.position_memory,
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


# A watchdog: reports an event loop that does not return to the scheduler, while it happens.
#
# One event loop does all work of a shard, so code that blocks the loop blocks every client. A
# thread schedules a callback in the loop twice in a second. When the callback does not run, the
# report names the duration, the CPU time of the loop's thread meanwhile, and its stack. Two causes
# are told apart:
#
#     busy       the thread used a second of CPU time: code runs without a checkpoint
#     waiting    it used little: the machine is overloaded, or a system call blocks
#
# There is at most one report of each kind for a stall, and one when it is over. The cost is two
# wake-ups of the loop in a second; requests cost nothing more. A stalled shard is not stopped.

LOGGER = logging.getLogger(__name__)

# Longer than any step of a sound server, and much shorter than timeouts of clients.
STALL_S: Final = 1.0
# A stall counts from the last callback that was scheduled, so it may be longer by this.
CHECK_INTERVAL_S: Final = 0.5
# A thread that used a smaller share of the time was waiting.
BUSY_SHARE_MIN: Final = 0.5
# The innermost frames; the outer ones are those of the scheduler, the same each time.
FRAMES_MAX: Final = 8

BUSY: Final = "the event loop of this shard is busy and does not return to the scheduler"
WAITING: Final = "the event loop of this shard is waiting"
RECOVERED: Final = "the event loop of this shard runs again"

ADVICE: Final = {
    BUSY: "all its clients wait; report this line as a bug, and restart the server if it goes on",
    WAITING: "the machine is overloaded, or a system call blocks; check CPU load and disks",
}
LEVELS: Final = {BUSY: logging.ERROR, WAITING: logging.WARNING}


class LoopWatchdog:
    """Measures how long an event loop does not run a callback; used on a thread of its own.

    Args:
        run_in_loop: schedules a function in the loop; thread-safe.
        cpu_s: returns the CPU time of the loop's thread in seconds.
        frame: returns the innermost frame of the loop's thread, if there is one.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        run_in_loop: Callable[[Callable[[], None]], None],
        cpu_s: Callable[[], float],
        frame: Callable[[], FrameType | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_in_loop = run_in_loop
        self._cpu_s = cpu_s
        self._frame = frame
        self._clock = clock
        self._requested_s = 0.0
        self._responded_s: float | None = 0.0
        self._cpu_at_request_s = 0.0
        self._reported: set[str] = set()

    def check(self) -> None:
        """Report a stall, or the end of one; to be called periodically."""
        now_s = self._clock()
        cpu_s = self._cpu_s() - self._cpu_at_request_s
        if self._responded_s is not None:
            if self._reported:
                stall_duration_s = self._responded_s - self._requested_s
                text = "%s after %.1f s, with %.2f s of CPU time until now"
                LOGGER.warning(text, RECOVERED, stall_duration_s, cpu_s)
            self._request_response(now_s)
        elif now_s - self._requested_s >= STALL_S:
            if cpu_s >= STALL_S:
                self._report(BUSY, now_s, cpu_s)
            elif cpu_s < BUSY_SHARE_MIN * (now_s - self._requested_s):
                self._report(WAITING, now_s, cpu_s)

    def _request_response(self, now_s: float) -> None:
        self._reported.clear()
        self._requested_s, self._responded_s = now_s, None
        self._cpu_at_request_s = self._cpu_s()
        self._run_in_loop(self._on_response)

    def _on_response(self) -> None:
        """Record that the loop has run the callback; called on its thread."""
        self._responded_s = self._clock()

    def _report(self, what: str, now_s: float, cpu_s: float) -> None:
        if what in self._reported:
            return
        self._reported.add(what)
        LOGGER.log(
            LEVELS[what],
            "%s: for %.1f s until now, with %.2f s of CPU time; %s; stack: %s",
            what,
            now_s - self._requested_s,
            cpu_s,
            ADVICE[what],
            describe_stack(self._frame()),
        )


def describe_stack(frame: FrameType | None) -> str:
    """Format the innermost frames of a thread in one line, the innermost first."""
    calls: list[str] = []
    while frame is not None and len(calls) < FRAMES_MAX:
        code = frame.f_code
        file = "/".join(code.co_filename.split("/")[-2:])
        calls.append(f"{file}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(calls) or "unknown"


@contextmanager
def watch_loop() -> Iterator[None]:
    """Watch the event loop of this thread during the block."""
    ends, loop_thread = threading.Event(), threading.get_ident()
    cpu_clock = time.pthread_getcpuclockid(loop_thread)
    watch = LoopWatchdog(
        trio.lowlevel.current_trio_token().run_sync_soon,
        lambda: time.clock_gettime(cpu_clock),
        lambda: sys._current_frames().get(loop_thread),
    )

    def run() -> None:
        while not ends.wait(CHECK_INTERVAL_S):
            watch.check()

    thread = threading.Thread(target=run, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


# Chooses the storage engine: io_uring where it is available, worker threads elsewhere.
#
# Only this module handles a missing C extension.

Engine = Literal["auto", "io_uring", "threads"]

LOGGER = logging.getLogger("iggy_ref_server.storage")


class FallbackStorage(ThreadStorage):
    """Worker threads in the place of a ring that could not be had."""

    def __init__(
        self, root: str | os.PathLike[str], reason: str, *, writeback_limit: WritebackLimit | None
    ) -> None:
        super().__init__(root, writeback_limit=writeback_limit)
        self._reason = reason

    @property
    def engine(self) -> str:
        """What serves the files, and why it is not something else."""
        return f"{super().engine} (no io_uring: {self._reason})"


async def open_storage(
    root: str | os.PathLike[str],
    engine: Engine = "auto",
    *,
    writeback_limit: WritebackLimit | None = None,
) -> Storage:
    """Open a data directory, making it where there is none.

    Call it in the trio run that is to use the storage, and in the process: a ring does not survive
    a fork.

    Args:
        root: the data directory.
        engine: ``auto`` takes io_uring, or worker threads if that cannot be had.
        writeback_limit: says when to write inline; one of its own by default.

    Returns:
        A storage whose ``engine`` tells what serves it and, after a fall back, why.

    Raises:
        StorageError: the directory cannot be made, or io_uring was asked for and is not there.
    """
    storage = choose_engine(root, engine, writeback_limit)
    try:
        await storage.make_directories("")
    except BaseException:
        await storage.aclose()
        raise
    return storage


def choose_engine(
    root: str | os.PathLike[str], engine: Engine, writeback_limit: WritebackLimit | None
) -> ThreadStorage | UringStorage:
    """Make a storage of the engine asked for."""
    if engine == "threads":
        return ThreadStorage(root, writeback_limit=writeback_limit)
    try:
        return make_uring_storage(root, writeback_limit)
    except ImportError as error:
        reason = str(error)
    except OSError as error:
        reason = f"cannot {error.filename}: {error.strerror}"
    if engine == "io_uring":
        raise StorageError("open", os.fspath(root), f"no io_uring: {reason}", errno=errno.ENOSYS)
    LOGGER.warning("io_uring is not available, worker threads serve the files: %s", reason)
    return FallbackStorage(root, reason, writeback_limit=writeback_limit)


def make_uring_storage(
    root: str | os.PathLike[str], writeback_limit: WritebackLimit | None
) -> UringStorage:
    """Make a storage on a ring.

    Raises:
        ImportError: the extension was not built, or is switched off.
        OSError: the kernel has no io_uring, or not for us.
    """
    if os.environ.get("IGGY_NO_EXTENSIONS") == "1":
        raise ImportError("IGGY_NO_EXTENSIONS is set")
    from iggy_ref_server.storage.uring import UringStorage

    return UringStorage(root, writeback_limit=writeback_limit)
