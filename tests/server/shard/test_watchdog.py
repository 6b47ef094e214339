"""A loop that does not come back to the scheduler is reported, with what it needs to be found."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

import pytest
import trio

from iggy_ref_server.process.shard_process import (
    BUSY,
    RECOVERED,
    WAITING,
    LoopWatchdog,
    describe_stack,
    watch_loop,
)
from tests.server.running import RunningServer, ServerFailed

if TYPE_CHECKING:
    from collections.abc import Callable

# A loop that nobody stops would otherwise hang the test; the report comes within two seconds.
REPORT_SECONDS_MAX = 15.0


class Bench:
    """A loop that answers when a test says so, on a clock of the test's own."""

    def __init__(self):
        self.now_s = self.cpu_s = 100.0
        self.asked: list[Callable[[], None]] = []
        self.watch = LoopWatchdog(
            self.asked.append,
            lambda: self.cpu_s,
            lambda: sys._getframe(),
            lambda: self.now_s,
        )
        self.watch.check()

    def spend(self, seconds, cpu_s=0.0):
        """Let time pass, and look."""
        self.now_s += seconds
        self.cpu_s += cpu_s
        self.watch.check()

    def answer(self):
        """Come back to the scheduler."""
        self.asked.pop()()


def lines(caplog):
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_watch_when_the_loop_answers_each_time_then_says_nothing(caplog):
    bench = Bench()
    for _ in range(100):
        bench.answer()
        bench.spend(0.5, 0.5)
    assert lines(caplog) == []


def test_watch_when_the_loop_burns_a_second_then_reports_once_where_it_is_and_once_its_end(caplog):
    bench = Bench()
    for _ in range(6):
        bench.spend(0.5, 0.5)
    assert [level for level, _ in lines(caplog)] == [logging.ERROR]
    report = caplog.messages[0]
    assert report.startswith(f"{BUSY}: for 1.0 s until now, with 1.00 s of CPU time")
    assert "test_watchdog.py" in report
    bench.answer()
    bench.spend(0.5)
    assert caplog.messages[1:] == [
        f"{RECOVERED} after 3.0 s, with 3.00 s of CPU time until now",
    ]
    bench.answer()
    bench.spend(0.5)
    assert len(caplog.messages) == 2


def test_watch_when_the_machine_has_no_time_for_the_loop_then_does_not_call_it_busy(caplog):
    bench = Bench()
    for _ in range(3):
        bench.spend(0.5, 0.1)
    assert [level for level, _ in lines(caplog)] == [logging.WARNING]
    assert caplog.messages[0].startswith(WAITING)


def test_watch_when_a_starved_loop_turns_out_to_be_busy_then_says_that_too(caplog):
    bench = Bench()
    for _ in range(20):
        bench.spend(0.5, 0.1)
    assert [level for level, _ in lines(caplog)] == [logging.WARNING, logging.ERROR]


def test_stack_when_deep_then_names_the_innermost_calls_only():
    assert describe_stack(None) == "unknown"
    text = describe_stack(sys._getframe())
    assert text.startswith("shard/test_watchdog.py:")
    assert text.count(" < ") == 7


def test_loop_when_it_spins_then_the_thread_beside_it_reports_meanwhile(caplog):
    async def main():
        with watch_loop():
            until = time.monotonic() + REPORT_SECONDS_MAX
            while BUSY not in caplog.text and time.monotonic() < until:
                continue

    trio.run(main)
    assert BUSY in caplog.text
    assert "shard/test_watchdog.py" in caplog.text


def test_server_when_its_log_has_a_busy_loop_then_the_test_fails_that_ran_it(tmp_path):
    server = RunningServer(tmp_path)
    server.close()
    (tmp_path / "output.txt").write_text(f"now ERROR shard-0 watchdog: {BUSY}: for 9 s\nmore\n")
    with pytest.raises(ServerFailed, match=r"for 9 s$"):
        server.close()
