"""Stop signals: the first SIGINT or SIGTERM requests a clean stop, the second interrupts."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.jobs.terminal import print_status

if TYPE_CHECKING:
    from types import FrameType, TracebackType

__all__ = ["StopSignal"]

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """Handles SIGINT and SIGTERM while it is entered."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignal:
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
        """Whether a stop is requested."""
        return self._requested.is_set()

    def request(self) -> None:
        """Request a stop, as a signal does."""
        self._requested.set()

    def listen(self) -> None:
        """Install the handlers; again after Spark has started, which replaces that of SIGINT."""
        for number in self._before:
            signal.signal(number, self._on_signal)

    def wait(self, seconds: float) -> bool:
        """Wait for a request, at most so long; return whether there is one."""
        return self._requested.wait(seconds)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.request()
        print_status(
            f"{signal.Signals(number).name}: stopping after this micro-batch; again to stop at once"
        )
