"""The minimum progress of an incomplete request.

An incomplete request occupies memory. Within ``limits.stall_timeout`` it must be complete or have
grown by a minimum; otherwise the transport closes the connection.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PROGRESS_BYTES_MIN", "RequestPace"]

# With the default of 30 s this is 2 KiB/s, which the slowest mobile networks exceed.
PROGRESS_BYTES_MIN: Final = 1 << 16
NEVER: Final = float("inf")


class RequestPace:
    """Tracks the progress of the requests of one connection.

    Args:
        stalled_s: how long a request may take to be complete or to grow by the minimum.

    Attributes:
        due_at: the deadline; infinite while no request is incomplete.
    """

    __slots__ = ("_received_bytes", "_request", "_stalled_s", "due_at")

    def __init__(self, stalled_s: float) -> None:
        self._stalled_s = stalled_s
        self._request = 0
        self._received_bytes = 0
        self.due_at = NEVER

    def rest(self) -> None:
        """Clear the deadline: no request is incomplete, or the server itself delays it."""
        self.due_at = NEVER

    def note(self, now: float, request: int, received_bytes: int) -> None:
        """Record that a request is incomplete.

        Args:
            now: the time.
            request: identifies the request, such as the number of complete ones before it.
            received_bytes: the total that the connection has received.
        """
        if (
            self.due_at == NEVER
            or request != self._request
            or received_bytes - self._received_bytes >= PROGRESS_BYTES_MIN
        ):
            self._request, self._received_bytes = request, received_bytes
            self.due_at = now + self._stalled_s
