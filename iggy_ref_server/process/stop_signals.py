"""Signals as something to wait for: those that end the server, and the one that a child has ended.

The kernel's numbers of signals arrive through a pipe, so a process that waits for other
descriptors, too, is woken at once, and by nothing else.

Owns the pipe and the handlers. What a signal means is the supervisor's affair.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["WATCHED_SIGNALS", "read_stop_signal", "watch_signals"]

STOP_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
WATCHED_SIGNALS: Final = STOP_SIGNALS | {signal.SIGCHLD}
# How many signals are read at once. Those beyond them are read the next time.
READ_SIGNALS_MAX: Final = 64


@contextlib.contextmanager
def watch_signals() -> Iterator[int]:
    """Let signals in that were blocked so far; yields the descriptor that tells of them.

    Whoever forks blocks them before, so that none comes to a process which does not watch yet.
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
