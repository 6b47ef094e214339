"""Writes the replies of one QUIC connection into its streams.

A short reply is written as soon as it is known. Long replies share the send window, the oldest
first. Pieces of files are read one at a time, while the piece before is being sent.
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

# Replies up to this size ignore the send window; the limit of streams bounds their number.
SHORT_BYTES_MAX: Final = 16 << 10
LOAD_BYTES_MAX: Final = 256 << 10
NO_ERROR: Final = 0
INTERNAL_ERROR: Final = 1


class Replies:
    """The replies of one connection that are not written.

    Args:
        core: the connection.
        window_bytes: the limit of unacknowledged bytes of long replies.
        ring: called with a stream when a piece of its reply has been read.
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
        """The bytes of long replies that are not written."""
        return sum(exchange.owed_bytes for exchange in self._long)

    @property
    def has_unread(self) -> bool:
        """Whether pieces of files must be read."""
        return bool(self._unread)

    def take_finished(self) -> list[Exchange]:
        """Return the streams that have finished since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def offer(self, exchange: Exchange) -> bool:
        """Write a reply if it is known and short; return whether anything was written."""
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
        """Drop a reply and reset its stream."""
        exchange.link.outbox.clear()
        exchange.loaded = b""
        self._long.pop(exchange, None)
        self._core.reset_stream(exchange.stream_id, error_code)
        self._finished.append(exchange)

    def go_on(self) -> bool:
        """Write long replies up to the send window; return whether anything was written."""
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
        """Take the next bytes of a reply; None if they must be read from a file first."""
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
        """Start the reads of pieces of files that are sent next."""
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
            LOGGER.error("reset a QUIC stream within its reply: %s", error)
            exchange.is_unwanted = True
        exchange.is_loading = False
        self._ring(exchange)


def _check_whole(piece: FileSlice, content: bytes) -> None:
    if not content:
        text = "the segment is shorter than its index says"
        raise StorageError("read", piece.file.path, text)
