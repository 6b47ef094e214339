"""How fast a request has to come that a client has begun to send.

Until a request is complete its bytes occupy memory for nobody. A client may be slow, and its
network may pause, but a request that hardly grows is somebody's who means harm: within the time
that ``limits.stall_timeout`` allows it must be complete, or have grown by a minimum.

Owns that rule, for connections of every kind. What follows when it is broken is their affair.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PROGRESS_BYTES_MIN", "RequestPace"]

# With the default of 30 s this is 2 KiB/s, which the slowest mobile networks exceed.
PROGRESS_BYTES_MIN: Final = 1 << 16
NEVER: Final = float("inf")


class RequestPace:
    """Watches the requests of one connection.

    Args:
        stalled_s: how long a request may take to be complete or to grow by the minimum.

    Attributes:
        due_at: when that time is over; infinite while no request has begun.
    """

    __slots__ = ("_received_bytes", "_request", "_stalled_s", "due_at")

    def __init__(self, stalled_s: float) -> None:
        self._stalled_s = stalled_s
        self._request = 0
        self._received_bytes = 0
        self.due_at = NEVER

    def rest(self) -> None:
        """Note that no request has begun, or that it is not the client who makes it wait."""
        self.due_at = NEVER

    def note(self, now: float, request: int, received_bytes: int) -> None:
        """Note that a request has begun and is not complete.

        Args:
            now: the time.
            request: tells one request from the next, such as how many were complete before it.
            received_bytes: how much the connection has received in all.
        """
        if (
            self.due_at == NEVER
            or request != self._request
            or received_bytes - self._received_bytes >= PROGRESS_BYTES_MIN
        ):
            self._request, self._received_bytes = request, received_bytes
            self.due_at = now + self._stalled_s
