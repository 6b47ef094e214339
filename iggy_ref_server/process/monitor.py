"""Watches the processes of the shards: their reports, their exits, and the signals to stop.

A shard that closes its partitions reports twice in a second how many are left, and how many
operations its disk has ended. A slow disk may take as long as it needs. A shard is killed when
neither number changes for a while, and when all of it takes longer than any disk that works.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from iggy_ref_server.net.pipeline import DRAIN_TIMEOUT_S
from iggy_ref_server.process.shard_process import CLOSE, DRAIN, EXIT_UNSAVED, SERVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# How long shards have to see their clients off, which they bound themselves.
DRAIN_S = DRAIN_TIMEOUT_S + 0.5
# A disk that ends no operation for so long hangs.
CLOSING_STALL_S = 10.0
# The longest that closing may take in all. A disk that works ends many partitions in this share.
CLOSING_BASE_S = 60.0
CLOSING_PARTITION_S = 0.2
CLOSING_CHECK_S = 0.5
# A start or a stop that takes longer prints a line, once in each such period.
OPENING_NOTICE_S = 5.0
CLOSING_NOTICE_S = 5.0


@dataclass(slots=True)
class ShardProcess:
    """A shard process, with the supervisor's end of its pipes.

    Attributes:
        closing: the last report of how far it has come with closing its partitions.
    """

    shard_id: int
    process_id: int
    command_pipe: int
    report_pipe: int
    unread: bytes = b""
    received_reports: list[dict[str, Any]] = field(default_factory=list)
    closing: dict[str, Any] | None = None
    exit_code: int | None = None

    def find_report(self, report: str) -> dict[str, Any] | None:
        """Return the facts of a report; None while it has not come."""
        return next((facts for facts in self.received_reports if facts["word"] == report), None)

    def send_command(self, command: bytes) -> None:
        """Send a command; a process that has ended is ignored."""
        with contextlib.suppress(OSError):
            os.write(self.command_pipe, command)


class ClosingProgress:
    """How far a shard has come with closing its partitions.

    Args:
        began_s: when it was told to.
    """

    def __init__(self, began_s: float) -> None:
        self._began_s = self._changed_s = began_s
        self._facts: dict[str, Any] | None = None
        self._partitions_count = 0

    def update(self, facts: dict[str, Any] | None, now_s: float) -> None:
        """Take the last report of the shard; None if there is none."""
        if facts is not None and facts != self._facts:
            self._partitions_count = max(self._partitions_count, facts["left"])
            self._facts, self._changed_s = facts, now_s

    def describe_rest(self) -> str:
        """Say what is left to do."""
        if self._facts is None:
            return "not begun to close its partitions"
        return f"{self._facts['left']} of {self._partitions_count} partitions left to close"

    def reason_to_kill(self, now_s: float) -> str:
        """Say why the shard will not end by itself; empty while it may."""
        if now_s - self._changed_s >= CLOSING_STALL_S:
            return f"made no progress for {CLOSING_STALL_S:.0f} s, has {self.describe_rest()}"
        most_s = CLOSING_BASE_S + CLOSING_PARTITION_S * self._partitions_count
        if now_s - self._began_s >= most_s:
            return f"did not stop within {most_s:.0f} s, has {self.describe_rest()}"
        return ""


class ProcessMonitor:
    """Waits for reports of the shards, their exits, and signals."""

    def __init__(
        self, children: list[ShardProcess], print_line: Callable[[str], None], signals: int
    ) -> None:
        self.children = children
        self.print_line = print_line
        self._signals = signals
        self._stop_signal: int | None = None

    def run(self, announce: Callable[[ProcessMonitor], None]) -> int:
        """Watch the shards until the server has stopped; return the exit code."""
        if self._wait_until_open() and self._wait(lambda: self._all_reported("ready")):
            announce(self)
            self._wait(lambda: False)
        failed = [child for child in self.children if child.exit_code is not None]
        for child in failed:
            self.print_line(
                f"shard {child.shard_id} ended unexpectedly: {_describe_exit(child.exit_code)}"
            )
        if not failed:
            self.print_line("stopping: connections are closed, messages are written")
        return self._stop() or bool(failed)

    def _wait_until_open(self) -> bool:
        """Let the shards accept connections as soon as all of them are open."""
        began = time.monotonic()
        while not self._wait(self._is_open_or_stopped, OPENING_NOTICE_S):
            if any(child.exit_code is not None for child in self.children):
                return False
            missing = [
                child.shard_id for child in self.children if child.find_report("open") is None
            ]
            self.print_line(
                f"starting: after {time.monotonic() - began:.0f} s shards {missing} are still"
                " opening their partitions; clients wait until that is done"
            )
        if self._stop_signal is not None:
            return False
        for child in self.children:
            child.send_command(SERVE)
        return True

    def _is_open_or_stopped(self) -> bool:
        return self._stop_signal is not None or self._all_reported("open")

    def _all_reported(self, report: str) -> bool:
        return all(child.find_report(report) is not None for child in self.children)

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
            self._wait_for_event(left)
        return True

    def _wait_for_event(self, timeout_s: float | None) -> None:
        """Wait for the next report, exit or signal."""
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        for child in self.children:
            if child.exit_code is None:
                poll.register(child.report_pipe, select.POLLIN)
        poll.poll(None if timeout_s is None else max(1, int(timeout_s * 1000)))
        for child in self.children:
            self._read_reports(child)
            self._reap(child)
        self._stop_signal = read_stop_signal(self._signals) or self._stop_signal

    def _read_reports(self, child: ShardProcess) -> None:
        with contextlib.suppress(BlockingIOError):
            child.unread += os.read(child.report_pipe, 65_536)
        *lines, child.unread = child.unread.split(b"\n")
        for report in map(json.loads, lines):
            if report["word"] == "closing":
                child.closing = report
            else:
                child.received_reports.append(report)

    def _reap(self, child: ShardProcess) -> None:
        if child.exit_code is None:
            process_id, status = os.waitpid(child.process_id, os.WNOHANG)
            if process_id:
                child.exit_code = os.waitstatus_to_exitcode(status)

    def _stop(self) -> int:
        """Let all shards drain, then close; return the exit code."""
        alive = [child for child in self.children if child.exit_code is None]
        self.children = alive
        for child in alive:
            child.send_command(DRAIN)
        self._wait(lambda: self._all_reported("drained"), DRAIN_S)
        for child in alive:
            child.send_command(CLOSE)
        is_killed = self._wait_until_closed(alive)
        return self._print_unsaved(alive) or is_killed

    def _wait_until_closed(self, alive: list[ShardProcess]) -> bool:
        """Wait until all shards have ended; return whether one had to be killed."""
        began = noticed = time.monotonic()
        progress = {child.shard_id: ClosingProgress(began) for child in alive}
        is_killed = False
        while running := [child for child in alive if child.exit_code is None]:
            now = time.monotonic()
            is_notice_due = now - noticed >= CLOSING_NOTICE_S
            noticed = now if is_notice_due else noticed
            for child in running:
                closing = progress[child.shard_id]
                closing.update(child.closing, now)
                if is_notice_due:
                    self.print_line(
                        f"stopping: after {now - began:.0f} s shard {child.shard_id} has"
                        f" {closing.describe_rest()}"
                    )
                if reason := closing.reason_to_kill(now):
                    self.print_line(f"shard {child.shard_id} {reason} and is killed")
                    os.kill(child.process_id, signal.SIGKILL)
                    _, status = os.waitpid(child.process_id, 0)
                    child.exit_code = os.waitstatus_to_exitcode(status)
                    is_killed = True
            self._wait_for_event(CLOSING_CHECK_S)
        return is_killed

    def _print_unsaved(self, ended: list[ShardProcess]) -> int:
        """Print which messages could not be saved; return the exit code of the server."""
        for child in ended:
            self._read_reports(child)
            if (facts := child.find_report("unsaved")) is not None:
                self.print_line(
                    f"shard {child.shard_id} could not save {facts['partitions']} partitions: "
                    f"{facts['lost']} acknowledged messages are LOST, {facts['unsynced']} more may "
                    "be lost by a power failure; the log lines above name their offsets"
                )
        codes = {child.exit_code for child in ended}
        return EXIT_UNSAVED if EXIT_UNSAVED in codes else int(any(codes))


def _describe_exit(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}; see the log above for the reason"


# Signals as a descriptor to poll: those that stop the server, and SIGCHLD.
#
# Python writes the number of each signal into a pipe. So a process that polls other descriptors as
# well is woken at once, and only by signals. What a signal means is decided by the supervisor.

STOP_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
WATCHED_SIGNALS: Final = STOP_SIGNALS | {signal.SIGCHLD}
# How many signals are read at once. Those beyond them are read the next time.
READ_SIGNALS_MAX: Final = 64


@contextlib.contextmanager
def watch_signals() -> Iterator[int]:
    """Unblock the signals, and yield the descriptor that reports them.

    They are blocked before the fork, so that none arrives at a process without handlers.
    """
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    # A full pipe is readable all the same, and nothing is counted but that a signal came.
    former = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    handlers = {number: signal.signal(number, lambda *_: None) for number in WATCHED_SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED_SIGNALS)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(former)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(writing)
        os.close(reading)


def read_stop_signal(descriptor: int) -> int | None:
    """Take the signals that have come; returns one that asks for an end, if any did."""
    with contextlib.suppress(BlockingIOError):
        for number in os.read(descriptor, READ_SIGNALS_MAX):
            if number in STOP_SIGNALS:
                return number
    return None
