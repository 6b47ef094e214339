"""A watchdog: reports an event loop that does not return to the scheduler, while it happens.

One event loop does all work of a shard, so code that blocks the loop blocks every client. A thread
schedules a callback in the loop twice in a second. When the callback does not run, the report names
the duration, the CPU time of the loop's thread meanwhile, and its stack. Two causes are told apart:

    busy       the thread used a second of CPU time: code runs without a checkpoint
    waiting    it used little: the machine is overloaded, or a system call blocks

There is at most one report of each kind for a stall, and one when it is over. The cost is two
wake-ups of the loop in a second; requests cost nothing more. A stalled shard is not stopped.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


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
