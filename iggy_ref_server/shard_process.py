"""A shard as a process: pinned to a CPU core, controlled by the supervisor through two pipes.

    supervisor → shard     ``serve``, ``drain``, ``close``; end of file means: exit at once
    shard → supervisor     ``open`` with some facts, ``ready``, ``drained``, maybe ``unsaved``

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
from iggy_ref_server.metadata.damage import MetadataError
from iggy_ref_server.shard.entrances import Entrance
from iggy_ref_server.shard.loop import Shard, ShardPlan, open_shard
from iggy_ref_server.storage.engines import open_storage
from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.watchdog import watch_loop

__all__ = ["CLOSE", "DRAIN", "SERVE", "UNSAVED", "Pipes", "ShardJob", "run_shard_process"]

LOGGER = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
FAILED = 1
# A regular exit, but some acknowledged messages could not be written or synced.
UNSAVED = 3

# Commands of the supervisor, one byte each.
SERVE, DRAIN, CLOSE = b"s", b"d", b"c"


@record
class Pipes:
    """This end of the two pipes to the supervisor."""

    orders: int
    reports: int


@record(kw_only=True)
class ShardJob:
    """Everything that a shard process is given before it starts.

    Attributes:
        core: the CPU core to run on, or None to leave that to the kernel.
        entrances: its bound sockets, by the name of the listener.
        neighbours: sockets of the channels to the other shards.
        passages: sockets over which connections migrate to the other shards.
        root: chooses the root user of a new data directory.
        environment: may hold ``RUST_LOG``.
        turns: the shared counters of balanced sends.
        writes_survived: whether the machine has not rebooted since a server last used the data.
    """

    shard_id: int
    core: int | None
    config: ServerConfig
    entrances: Mapping[str, Entrance]
    neighbours: Mapping[int, socket.socket]
    passages: Mapping[int, socket.socket]
    root: Callable[[], RootCredentials]
    environment: Mapping[str, str]
    turns: mmap.mmap
    ports: Ports
    ip: str
    is_follower: bool
    writes_survived: bool = False


def run_shard_process(job: ShardJob, pipes: Pipes, parent: int) -> int:
    """Run a shard until the supervisor closes it; return the exit code of the process."""
    _die_with(parent)
    if job.core is not None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {job.core})
    # Ctrl-C in a terminal signals the whole process group; the supervisor alone stops shards.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    gc.freeze()
    system = job.config.system
    with start_logging(
        system.logging, Path(system.path), job.environment, process=f"shard-{job.shard_id}"
    ):
        return _run_logged(job, pipes)


def _run_logged(job: ShardJob, pipes: Pipes) -> int:
    exit_code = FAILED
    try:
        exit_code = trio.run(_run, job, pipes)
    except* (StorageError, MetadataError, ConfigError) as group:
        for error in _leaves(group):
            LOGGER.error("shard %d stops: %s", job.shard_id, error)
    except* Exception:
        LOGGER.exception("shard %d ended by an unexpected error", job.shard_id)
    return exit_code


def _leaves(group: BaseExceptionGroup) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however the parent ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before prctl() was called; then no signal comes.
    if os.getppid() != parent:
        os._exit(FAILED)


async def _run(job: ShardJob, pipes: Pipes) -> int:
    with watch_loop():
        return await _serve(job, pipes)


async def _serve(job: ShardJob, pipes: Pipes) -> int:
    storage = await open_storage(job.config.system.path, job.config.system.storage.engine)
    storage.open_files.descriptors_max = files_max()
    facts: dict[str, object] = {"engine": storage.engine}

    def root() -> RootCredentials:
        chosen = job.root()
        if chosen.is_generated:
            facts["root"] = {"username": chosen.username, "password": chosen.password}
        return chosen

    plan = ShardPlan(
        shard_id=job.shard_id,
        config=job.config,
        storage=storage,
        clock=SystemClock(),
        root=root,
        neighbours={
            shard_id: trio.socket.from_stdlib_socket(neighbour)
            for shard_id, neighbour in job.neighbours.items()
        },
        passages=job.passages,
        entrances=job.entrances,
        turns=job.turns,
        ports=job.ports,
        ip=job.ip,
        is_follower=job.is_follower,
        writes_survived=job.writes_survived,
    )
    async with open_shard(plan) as shard:
        facts["damaged"] = len(shard.directory.damaged)
        _report(pipes, "open", facts)
        # A server that is stopped while it starts goes from "open" to "drained".
        if await _order(pipes, SERVE, DRAIN) == SERVE:
            await _serve_until_drained(shard, pipes)
        _report(pipes, "drained", {})
        # Other shards may still have clients that send to partitions of this shard.
        await _order(pipes, CLOSE)
    return _account(shard, pipes)


async def _serve_until_drained(shard: Shard, pipes: Pipes) -> None:
    """Serve clients until the supervisor says drain, and send the last replies."""
    # All listeners drain at the same time, not one after another: the outer nursery waits.
    async with trio.open_nursery() as stopping, trio.open_nursery() as nursery:
        await nursery.start(shard.listen)
        _report(pipes, "ready", {})
        await _order(pipes, DRAIN)
        nursery.cancel_scope.cancel()
        stopping.start_soon(shard.drain)


def _account(shard: Shard, pipes: Pipes) -> int:
    """Report which messages a closed shard could not save; return the exit code."""
    unsaved = shard.unsaved.values()
    if not unsaved:
        return 0
    lost = sum(len(one.lost) for one in unsaved)
    unsynced = sum(len(one.unsynced) for one in unsaved)
    _report(pipes, "unsaved", {"lost": lost, "unsynced": unsynced, "partitions": len(unsaved)})
    return UNSAVED


def _report(pipes: Pipes, word: str, facts: dict[str, object]) -> None:
    os.write(pipes.reports, json.dumps({"word": word, **facts}).encode() + b"\n")


async def _order(pipes: Pipes, *expected: bytes) -> bytes:
    """Wait for the next command; exit at once when the supervisor is gone."""
    await trio.lowlevel.wait_readable(pipes.orders)
    order = os.read(pipes.orders, 1)
    if order not in expected:
        os._exit(FAILED)
    return order
