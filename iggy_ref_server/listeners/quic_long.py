"""The queue of long requests of one QUIC connection.

A client that sends many large batches side by side would have all of them half done. So those that
came first are granted room until together they are as much as may be; the next ones keep the window
that every stream begins with, and wait. The same goes for all clients together: a request is let in
only where all of it fits into the budget of the shard. The first one that does not fit has the
account wait for room; more of them need not, because those before them end some day.

Owns the queue. Knows neither bytes nor datagrams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_ref_server.data_plane.budget import BufferAccount
    from iggy_ref_server.listeners.quic_core import ServerCore
    from iggy_ref_server.listeners.quic_exchange import Exchange

__all__ = ["LongRequests"]


class LongRequests:
    """The requests of a connection that are longer than the initial window.

    Args:
        core: the connection, which grants room.
        window_bytes: what every stream may send unasked.
        total_bytes_max: how much those of one client may be together; one always may.
    """

    def __init__(self, core: ServerCore, window_bytes: int, total_bytes_max: int) -> None:
        self._core = core
        self._window_bytes = window_bytes
        self._total_bytes_max = total_bytes_max
        self._queue: dict[Exchange, int] = {}
        self._admitted: set[Exchange] = set()

    @property
    def wanted_bytes(self) -> int:
        """What is missing of those that were let in; of the first one if none was."""
        among: Iterable[Exchange] = self._admitted or tuple(self._queue)[:1]
        return sum(self._queue[exchange] - exchange.heard_bytes for exchange in among)

    @property
    def waiting_bytes(self) -> int:
        """What came of the first one if none was let in."""
        return 0 if self._admitted else sum(one.heard_bytes for one in tuple(self._queue)[:1])

    def begin(self, exchange: Exchange) -> None:
        """Have a request wait until it is let in."""
        need = exchange.need_bytes
        if need is None or need <= self._window_bytes or exchange.is_heard:
            return
        if exchange not in self._queue:
            self._queue[exchange] = need
            self._core.held_back.add(exchange.stream_id)

    def end(self, exchange: Exchange) -> None:
        """Remove a request that is complete or cancelled."""
        if self._queue.pop(exchange, None) is not None:
            self._admitted.discard(exchange)
            self._core.held_back.discard(exchange.stream_id)

    def let_in(self, account: BufferAccount) -> None:
        """Grant room to those who came first, as many as fit.

        Args:
            account: was told what is wanted just before.
        """
        total = new_bytes = 0
        for exchange, need in self._queue.items():
            if total and total + need > self._total_bytes_max:
                return
            total += need
            if exchange in self._admitted:
                continue
            if self._admitted:
                new_bytes += need - exchange.heard_bytes
                if not account.fits(new_bytes):
                    return
            elif account.is_held_back:
                return
            self._admitted.add(exchange)
            self._core.held_back.discard(exchange.stream_id)
