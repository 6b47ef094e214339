"""Detects stalled requests and replies of a QUIC connection.

The state is sampled twice per timeout. Replies are stalled if no byte was acknowledged between two
samples one timeout apart. A request is stalled if it is older than the timeout and all requests of
the connection together grew by less than the minimum.
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
    """Samples the progress of one connection.

    Args:
        core: the connection.
        stalled_s: the timeout.
        now: the time.

    Attributes:
        due_at: when to sample next.
        heard_bytes: the received bytes of all requests; the connection counts them.
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
        """Sample if it is time; return whether a request or a reply has stalled."""
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
        """Return whether less than the minimum has arrived within the timeout."""
        looks = self._heard
        looks.append((now, self.heard_bytes))
        # Keep the newest sample that is at least one timeout old.
        while len(looks) > 1 and looks[1][0] <= now - self._stalled_s:
            looks.popleft()
        begun_at, heard_bytes = looks[0]
        return begun_at <= now - self._stalled_s and (
            self.heard_bytes - heard_bytes < PROGRESS_BYTES_MIN
        )
