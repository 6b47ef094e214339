"""A shard whose loop does not come back to the scheduler, reported while it happens.

Everything that a shard does is done by one loop, so whatever keeps that loop keeps every client.
A thread beside it asks the scheduler for a sign of life now and then, and looks at the clock. When
none comes, the report says for how long, how much processor time the loop's thread had meanwhile,
and where it is. That tells two things apart which look alike from outside:

    busy       the thread had a second of processor time: the code does not come back
    waiting    it had little: the machine has no time for it, or a system call keeps it

There is at most one report of each kind for a stall, and one when it is over. The loop pays for two
wakes in a second and for nothing else: no request costs more because it is watched.

Owns the thread. Decides nothing: a stalled shard is not stopped.
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

__all__ = ["BUSY", "LoopWatch", "watch_loop"]

LOGGER = logging.getLogger(__name__)

# Longer than any step of a sound server, and much shorter than clients wait for an answer.
STALL_S: Final = 1.0
# How often the loop is asked; a stall counts from the question, so it may be longer by this.
LOOK_INTERVAL_S: Final = 0.5
# A thread that had less than this part of the time was waiting, or had to wait.
BUSY_SHARE_MIN: Final = 0.5
# The innermost calls; those around them are the scheduler's, and the same each time.
FRAMES_MAX: Final = 8

BUSY: Final = "the loop of this shard is busy and does not come back to the scheduler"
WAITING: Final = "the loop of this shard is kept waiting"
OVER: Final = "the loop of this shard is back"

ADVICE: Final = {
    BUSY: "all its clients wait; report this line, and restart the server if it stays so",
    WAITING: "the machine is overloaded, or a system call takes long",
}
LEVELS: Final = {BUSY: logging.ERROR, WAITING: logging.WARNING}


class LoopWatch:
    """Asks a loop for signs of life, and says what is to be said; lives on a thread of its own.

    Args:
        ask: has the loop call a function as soon as it comes back to the scheduler.
        processor_s: tells the processor time of the loop's thread.
        frame: returns the innermost call of the loop's thread, if there is one.
        clock: tells the time in seconds.
    """

    def __init__(
        self,
        ask: Callable[[Callable[[], None]], None],
        processor_s: Callable[[], float],
        frame: Callable[[], FrameType | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._processor_s = processor_s
        self._frame = frame
        self._clock = clock
        self._asked_s = 0.0
        self._answered_s: float | None = 0.0
        self._processor_then_s = 0.0
        self._said: set[str] = set()

    def look(self) -> None:
        """Report a stall that has become one, or one that is over; call this now and then."""
        now_s = self._clock()
        processor_s = self._processor_s() - self._processor_then_s
        if self._answered_s is not None:
            if self._said:
                stalled_s = self._answered_s - self._asked_s
                text = "%s after %.1f s, with %.2f s of processor time until now"
                LOGGER.warning(text, OVER, stalled_s, processor_s)
            self._begin(now_s)
        elif now_s - self._asked_s >= STALL_S:
            if processor_s >= STALL_S:
                self._report(BUSY, now_s, processor_s)
            elif processor_s < BUSY_SHARE_MIN * (now_s - self._asked_s):
                self._report(WAITING, now_s, processor_s)

    def _begin(self, now_s: float) -> None:
        self._said.clear()
        self._asked_s, self._answered_s = now_s, None
        self._processor_then_s = self._processor_s()
        self._ask(self._answer)

    def _answer(self) -> None:
        """Note that the loop has come back; called on its thread."""
        self._answered_s = self._clock()

    def _report(self, what: str, now_s: float, processor_s: float) -> None:
        if what in self._said:
            return
        self._said.add(what)
        LOGGER.log(
            LEVELS[what],
            "%s: for %.1f s until now, with %.2f s of processor time; %s; it is in %s",
            what,
            now_s - self._asked_s,
            processor_s,
            ADVICE[what],
            describe_stack(self._frame()),
        )


def describe_stack(frame: FrameType | None) -> str:
    """Name the innermost calls of a thread in one line, the innermost first."""
    calls: list[str] = []
    while frame is not None and len(calls) < FRAMES_MAX:
        code = frame.f_code
        file = "/".join(code.co_filename.split("/")[-2:])
        calls.append(f"{file}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(calls) or "a place that nobody knows"


@contextmanager
def watch_loop() -> Iterator[None]:
    """Watch the loop that runs on this thread, for the time of the block."""
    ends, loop_thread = threading.Event(), threading.get_ident()
    processor_clock = time.pthread_getcpuclockid(loop_thread)
    watch = LoopWatch(
        trio.lowlevel.current_trio_token().run_sync_soon,
        lambda: time.clock_gettime(processor_clock),
        lambda: sys._current_frames().get(loop_thread),
    )

    def run() -> None:
        while not ends.wait(LOOK_INTERVAL_S):
            watch.look()

    watcher = threading.Thread(target=run, name="watchdog", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ends.set()
        watcher.join()
