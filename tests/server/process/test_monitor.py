"""The stop of a shard: one that makes progress has its time, one that hangs is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from iggy_protocol import CreateStream, CreateTopic, Partitioning, SendMessages
from iggy_ref_server.process import monitor
from iggy_ref_server.process.monitor import (
    CLOSING_BASE_S,
    CLOSING_STALL_S,
    ClosingProgress,
    ProcessMonitor,
    ShardProcess,
    watch_signals,
)
from iggy_ref_server.process.shard_process import CLOSING_REPORT_S, EXIT_UNSAVED
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.simulated.server import open_simulated_server

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTITIONS = 80
STALL_S = 1.0

# A shard whose partitions take a while: it does what the pipes say, and its disk is a timer.
SHARD = """
import json, os, sys, time
orders, reports, count, disk_s, code = int(sys.argv[1]), int(sys.argv[2]), *eval(sys.argv[3])
def report(word, **facts):
    os.write(reports, json.dumps({"word": word, **facts}).encode() + b"\\n")
report("open")
assert os.read(orders, 1) == b"d"
report("drained")
assert os.read(orders, 1) == b"c"
for left in range(count, 0, -1):
    report("closing", left=left, operations=0)
    time.sleep(disk_s)
sys.exit(code)
"""


@contextmanager
def shard_process(shard_id: int, partitions: int, disk_s: float, code: int = 0) -> Iterator:
    """Start a process that acts as a shard; it is gone at the end of the block."""
    orders_read, orders_write = os.pipe()
    reports_read, reports_write = os.pipe()
    arguments = [str(orders_read), str(reports_write), repr((partitions, disk_s, code))]
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", SHARD, *arguments], pass_fds=(orders_read, reports_write)
    )
    os.close(orders_read)
    os.close(reports_write)
    os.set_blocking(reports_read, False)
    try:
        yield ShardProcess(shard_id, child.pid, orders_write, reports_read)
    finally:
        child.kill()
        child.wait()
        os.close(orders_write)
        os.close(reports_read)


def stop(*children: ShardProcess) -> tuple[int, list[str]]:
    """Watch shards that are told to stop; return the exit code and what was printed."""
    printed: list[str] = []
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with watch_signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        code = ProcessMonitor([*children], printed.append, signals).run(lambda watch: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return code, printed


@pytest.fixture
def short_times(monkeypatch):
    """Have a shard hang after a second, and a line printed twice in a second."""
    monkeypatch.setattr(monitor, "CLOSING_STALL_S", STALL_S)
    monkeypatch.setattr(monitor, "CLOSING_NOTICE_S", STALL_S / 2)
    monkeypatch.setattr(monitor, "CLOSING_CHECK_S", STALL_S / 10)


@pytest.mark.parametrize("code", [0, EXIT_UNSAVED])
def test_shard_when_it_closes_slowly_then_is_not_killed_and_the_rest_is_told(short_times, code):
    with shard_process(0, 12, STALL_S / 4, code) as slow:
        assert stop(slow)[0] == code
        assert slow.exit_code == code


def test_lines_when_a_stop_takes_long_then_tell_what_is_left(short_times):
    with shard_process(0, 12, STALL_S / 4) as slow:
        _, printed = stop(slow)

    told = [line for line in printed if "of 12 partitions left to close" in line]
    assert len(told) >= 2
    assert "killed" not in "".join(printed)


def test_shard_when_it_hangs_then_is_killed_in_time_and_the_other_ends_in_order(short_times):
    with shard_process(0, 1, 60) as hanging, shard_process(1, 10, STALL_S / 4) as slow:
        code, printed = stop(hanging, slow)

        assert code == 1
        assert hanging.exit_code == -signal.SIGKILL
        assert slow.exit_code == 0
    [line] = [line for line in printed if "killed" in line]
    assert line.startswith("shard 0 made no progress for 1 s, has 1 of 1 partitions left")


def test_progress_when_each_report_differs_then_the_whole_is_bounded_all_the_same():
    closing, partitions = ClosingProgress(0), 3_000
    last_s = 0
    while not closing.reason_to_kill(last_s):
        last_s += 1
        closing.update({"left": partitions, "operations": last_s}, last_s)

    assert last_s == CLOSING_BASE_S + partitions * monitor.CLOSING_PARTITION_S
    assert "did not stop within 660 s, has 3000 of 3000 partitions left" in (
        closing.reason_to_kill(last_s)
    )


def test_progress_when_the_same_is_reported_then_it_is_none():
    closing = ClosingProgress(0)
    for now_s in range(1, 12):
        closing.update({"left": 5, "operations": 9}, now_s)

    assert not closing.reason_to_kill(CLOSING_STALL_S)
    assert closing.reason_to_kill(1 + CLOSING_STALL_S)


@pytest.mark.trio
@pytest.mark.parametrize("sync_s", [7.0, 9_999.0])
async def test_disk_when_it_is_slow_then_shows_progress_and_when_it_hangs_then_none(
    sync_s, autojump_clock
):
    storage = SimulatedStorage(plan := FaultPlan())
    killed_s: list[float] = []

    async def watch(shard) -> None:
        began_s = trio.current_time()
        closing = ClosingProgress(began_s)
        while not closing.reason_to_kill(trio.current_time()):
            facts = {"left": shard.directory.open_count, "operations": storage.ended_count}
            closing.update(facts, trio.current_time())
            await trio.sleep(CLOSING_REPORT_S)
        killed_s.append(trio.current_time() - began_s)
        plan.heal()
        stopping.cancel_scope.cancel()

    async with trio.open_nursery() as stopping:
        async with open_simulated_server(storage) as world:
            client = await world.log_in()
            await client.ask(CreateStream("s"))
            await client.ask(CreateTopic("s", "t", PARTITIONS))
            for number in range(PARTITIONS):
                where = Partitioning.partition(number)
                await client.ask(SendMessages("s", "t", where, [b"x"]))
            plan.delay("sync", seconds=sync_s)
            began_s = trio.current_time()
            stopping.start_soon(watch, world.shards[0])
        took_s = trio.current_time() - began_s
        stopping.cancel_scope.cancel()

    if sync_s > CLOSING_STALL_S:
        assert killed_s[0] < CLOSING_STALL_S + 5
    else:
        assert not killed_s
        assert took_s > CLOSING_STALL_S
