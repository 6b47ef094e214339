"""Long requests of one QUIC connection: they come in the order in which they were begun.

A client that sends many large batches side by side would have all of them half done. So those that
came first are granted room until together they are as much as may be; the next ones keep the window
that every stream begins with, and wait.

Owns the queue. Knows neither bytes nor datagrams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iggy_ref_server.listeners.quic_core import ServerCore
    from iggy_ref_server.listeners.quic_exchange import Exchange

__all__ = ["LongRequests"]


class LongRequests:
    """Those requests of a client that are longer than a window.

    Args:
        core: the connection, which grants room.
        window_bytes: what every stream may send unasked.
        total_bytes_max: how much they may be together; one is always let in.
    """

    def __init__(self, core: ServerCore, window_bytes: int, total_bytes_max: int) -> None:
        self._core = core
        self._window_bytes = window_bytes
        self._total_bytes_max = total_bytes_max
        self._queue: dict[Exchange, int] = {}

    def begin(self, exchange: Exchange) -> None:
        """Let a request come in full, or have it wait until others have done so."""
        need = exchange.need_bytes
        if need is None or need <= self._window_bytes or exchange.is_heard:
            return
        if exchange not in self._queue:
            self._queue[exchange] = need
            self._core.held_back.add(exchange.stream_id)
            self._let_in()

    def end(self, exchange: Exchange) -> None:
        """Note that nothing more is wanted of a request."""
        if self._queue.pop(exchange, None) is not None:
            self._core.held_back.discard(exchange.stream_id)
            self._let_in()

    def _let_in(self) -> None:
        """Grant room to those who came first, as many as fit together."""
        total = 0
        for exchange, need in self._queue.items():
            if total and total + need > self._total_bytes_max:
                return
            total += need
            self._core.held_back.discard(exchange.stream_id)
