"""Signals as a descriptor to poll: those that stop the server, and SIGCHLD.

Python writes the number of each signal into a pipe. So a process that polls other descriptors as
well is woken at once, and only by signals. What a signal means is decided by the supervisor.
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
