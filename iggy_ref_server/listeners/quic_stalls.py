"""Finds QUIC connections on which something stands still.

A request that was begun and does not go on, or replies that the client acknowledges nothing of,
keep memory for nobody. Twice within the time that is allowed somebody looks; a reply of which not a
byte has arrived between two looks apart by that time counts as stuck, and so does a request that is
older than that while all requests of the connection together have hardly grown.

Owns the looks. What follows is the line's affair.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from iggy_ref_server.data_plane.pace import PROGRESS_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_ref_server.listeners.quic_core import ServerCore
    from iggy_ref_server.listeners.quic_exchange import Exchange

__all__ = ["StallWatch"]


class StallWatch:
    """Looks at one connection every now and then.

    Args:
        core: the connection.
        stalled_s: how long something may stand still.
        now: the time.

    Attributes:
        due_at: when to look next.
        heard_bytes: how much of requests has come; counted by its user.
    """

    def __init__(self, core: ServerCore, stalled_s: float, now: float) -> None:
        self._core = core
        self._stalled_s = stalled_s
        self._seen = core.undelivered
        self._seen_at = now
        self.heard_bytes = 0
        self._heard: deque[tuple[float, int]] = deque([(now, 0)])
        self.due_at = now + stalled_s / 2

    def is_stalled(self, exchanges: Iterable[Exchange], now: float) -> bool:
        """Look, if it is time to; tell whether something stands still for too long."""
        if now < self.due_at:
            return False
        self.due_at = now + self._stalled_s / 2
        held_back = self._core.held_back
        is_trickling = self._is_trickling(now)
        for exchange in exchanges:
            if exchange.is_heard or exchange.stream_id in held_back:
                continue
            since = exchange.begun_at if is_trickling else exchange.heard_at
            if now >= since + self._stalled_s:
                return True
        undelivered = self._core.undelivered
        if undelivered != self._seen or not undelivered[0]:
            self._seen, self._seen_at = undelivered, now
        return now >= self._seen_at + self._stalled_s

    def _is_trickling(self, now: float) -> bool:
        """Tell whether less than the least has come within the time that is allowed."""
        looks = self._heard
        looks.append((now, self.heard_bytes))
        # Of the looks that are old enough the last one counts; the time began with the first.
        while len(looks) > 1 and looks[1][0] <= now - self._stalled_s:
            looks.popleft()
        begun_at, heard_bytes = looks[0]
        return begun_at <= now - self._stalled_s and (
            self.heard_bytes - heard_bytes < PROGRESS_BYTES_MIN
        )
