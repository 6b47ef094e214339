"""A clean stop: the first SIGINT or SIGTERM asks for it, the second does not ask.

Owns the signals while a job runs. Whoever works looks at ``requested``, or waits with ``wait``.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.jobs.terminal import say

if TYPE_CHECKING:
    from types import FrameType, TracebackType

__all__ = ["Stopping"]

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Listens for the wish to stop, from where it is entered to where it is left."""

    def __init__(self) -> None:
        self._wished = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            self.listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def requested(self) -> bool:
        """Whether somebody wishes the job to stop."""
        return self._wished.is_set()

    def request(self) -> None:
        """Wish the job to stop, as a signal does."""
        self._wished.set()

    def listen(self) -> None:
        """Take the signals; again after Spark has started, because it takes SIGINT for itself."""
        for number in self._before:
            signal.signal(number, self._hear)

    def wait(self, seconds: float) -> bool:
        """Wait for the wish, at most so long; return whether it is there."""
        return self._wished.wait(seconds)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.request()
        say(f"{signal.Signals(number).name}: stopping; once more to stop at once")
