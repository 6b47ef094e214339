"""The replies of one QUIC connection on their way into its streams.

A short reply is written as soon as it is known. Long ones take turns at the send window, the oldest
first, and what lies in files is read piece by piece while the piece before it is being sent.

Owns the order and the amount. Which datagrams leave when is the core's affair.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from iggy_ref_server.listeners.quic_core import ServerCore
    from iggy_ref_server.listeners.quic_exchange import Exchange
    from iggy_ref_server.storage.interface import FileSlice

__all__ = ["Replies"]

LOGGER = logging.getLogger(__name__)

# What is written at once, whatever the window says; as many as there may be streams.
SHORT_BYTES_MAX: Final = 16 << 10
LOAD_BYTES_MAX: Final = 256 << 10
NO_ERROR: Final = 0
INTERNAL_ERROR: Final = 1


class Replies:
    """What one client is owed.

    Args:
        core: the connection.
        window_bytes: how much of long replies may be unacknowledged.
        ring: told of an exchange when a piece of its reply has been read.
    """

    def __init__(
        self, core: ServerCore, window_bytes: int, ring: Callable[[Exchange], None]
    ) -> None:
        self._core = core
        self._window_bytes = window_bytes
        self._ring = ring
        self._long: dict[Exchange, None] = {}
        self._unread: list[Exchange] = []
        self._finished: list[Exchange] = []

    @property
    def owed_bytes(self) -> int:
        """How much of long replies waits to be written."""
        return sum(exchange.owed_bytes for exchange in self._long)

    @property
    def has_unread(self) -> bool:
        """Whether something is to be read from files."""
        return bool(self._unread)

    def take_finished(self) -> list[Exchange]:
        """Return the exchanges that are over since the last time."""
        finished, self._finished = self._finished, []
        return finished

    def offer(self, exchange: Exchange) -> bool:
        """Write a reply if it is known and short; tell whether anything was written."""
        if not exchange.is_ready or exchange.is_loading:
            return False
        if exchange.is_unwanted:
            self._drop(exchange, NO_ERROR)
        elif exchange.is_void:
            self._core.send_stream_data(exchange.stream_id, b"", end_stream=True)
            self._finished.append(exchange)
        elif exchange not in self._long:
            outbox = exchange.link.outbox
            outbox.load_small(SHORT_BYTES_MAX)
            buffers = outbox.head_buffers()
            if outbox.size_bytes > SHORT_BYTES_MAX or sum(map(len, buffers)) < outbox.size_bytes:
                self._long[exchange] = None
                return False
            self._core.send_stream_data(exchange.stream_id, b"".join(buffers), end_stream=True)
            outbox.clear()
            self._finished.append(exchange)
        else:
            return False
        return True

    def _drop(self, exchange: Exchange, error_code: int) -> None:
        """Leave a reply unwritten, and tell the client where it ends."""
        exchange.link.outbox.clear()
        exchange.loaded = b""
        self._long.pop(exchange, None)
        self._core.reset_stream(exchange.stream_id, error_code)
        self._finished.append(exchange)

    def go_on(self) -> bool:
        """Write as much of long replies as the window takes; tell whether anything was written."""
        if not self._long:
            return False
        unacknowledged = sum(self._core.undelivered_bytes(one.stream_id) for one in self._long)
        budget = self._window_bytes - unacknowledged
        has_written = False
        for exchange in list(self._long):
            while budget > 0 and not exchange.is_loading:
                piece = self._next_piece(exchange, budget)
                if piece is None:
                    break
                budget -= len(piece)
                has_written = True
                self._write(exchange, piece)
        return has_written

    def _write(self, exchange: Exchange, piece: bytes | memoryview) -> None:
        is_last = not exchange.owed_bytes
        self._core.send_stream_data(exchange.stream_id, bytes(piece), end_stream=is_last)
        if is_last:
            del self._long[exchange]
            self._finished.append(exchange)

    def _next_piece(self, exchange: Exchange, size_max: int) -> bytes | memoryview | None:
        """Take the next bytes of a reply; None where they have to be read first."""
        if exchange.loaded:
            loaded = exchange.loaded
            exchange.loaded = loaded[size_max:]
            return loaded[:size_max]
        outbox = exchange.link.outbox
        if not outbox:
            return None
        if outbox.head_slice() is not None:
            exchange.is_loading = True
            self._unread.append(exchange)
            return None
        piece = outbox.head_buffers()[0][:size_max]
        outbox.sent(len(piece))
        return piece

    def load(self, nursery: trio.Nursery) -> None:
        """Have read what lies in files and is to be sent next."""
        unread, self._unread = self._unread, []
        for exchange in unread:
            nursery.start_soon(self._load, exchange)

    async def _load(self, exchange: Exchange) -> None:
        outbox = exchange.link.outbox
        piece = outbox.head_slice()
        try:
            if piece is not None:
                size = min(piece.size, LOAD_BYTES_MAX)
                content = await piece.file.read(size, piece.position)
                # The client may have gone meanwhile, and its outbox been emptied.
                if outbox.head_slice() is piece:
                    _check_whole(piece, content)
                    exchange.loaded = bytes(content)
                    outbox.sent(len(content))
        except StorageError as error:
            LOGGER.error("a reply was cut off: %s", error)
            exchange.is_unwanted = True
        exchange.is_loading = False
        self._ring(exchange)


def _check_whole(piece: FileSlice, content: bytes) -> None:
    if not content:
        text = "the segment is shorter than its index says"
        raise StorageError("read", piece.file.path, text)
