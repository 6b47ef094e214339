"""The frames of WebSocket as an envelope: what a plain connection has in the socket room.

    FramedOutbox           replies become frames as they are put in; pieces of files stay in them,
                           unless they are so short that they leave sooner with their heads
    WebSocketEnvelope      frames that came become the bytes they carry; pings are answered

Owns the order of frames: replies are put into the outbox as wholes, so an answer to a ping lies
between two of them, and the close frame behind the last. Has no socket and serves no requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iggy_ref_server.data_plane.outbox import Outbox
from iggy_ref_server.listeners.websocket_frames import ReplyFramer
from iggy_ref_server.storage.interface import FileSlice

if TYPE_CHECKING:
    from iggy_protocol import Buffer
    from iggy_ref_server.data_plane.seat import SocketLimits
    from iggy_ref_server.listeners.websocket_frames import FrameReader

__all__ = ["FramedOutbox", "WebSocketEnvelope"]

# What is received while nothing large is on its way.
RECEIVE_BYTES: Final = 64 << 10
# Shorter parts of a reply are joined with the heads of their frames: one buffer instead of two.
JOINED_BYTES_MAX: Final = 1 << 10


class FramedOutbox(Outbox):
    """Replies on their way to one client, in frames."""

    __slots__ = ("_framer", "_pong", "_pong_end", "_put_bytes")

    def __init__(self) -> None:
        super().__init__()
        self._framer = ReplyFramer()
        self._put_bytes = 0
        self._pong = b""
        self._pong_end = 0

    def put(self, item: Buffer | FileSlice) -> None:
        """Append a part of a reply; its head is a buffer, cut anywhere."""
        if isinstance(item, FileSlice):
            position = item.position
            for head, size in self._framer.skip(item.size):
                self._append(head)
                self._append(FileSlice(item.file, position, size))
                position += size
            return
        parts = self._framer.frame(item)
        if len(parts) > 1 and sum(map(len, parts)) <= JOINED_BYTES_MAX:
            parts = [b"".join(parts)]
        for part in parts:
            self._append(part)

    def sent(self, size: int) -> None:
        """Forget the first ``size`` bytes."""
        super().sent(size)
        if self._pong:
            self._put_pong()

    def answer(self, pong: bytes) -> None:
        """Append the answer to a ping as soon as the one before it is out.

        Of several that wait the last one counts, so a client that reads none of them costs nothing.
        """
        self._pong = pong
        self._put_pong()

    def end_with(self, farewell: bytes) -> None:
        """Append a close frame."""
        assert self._framer.is_between, "a reply was not put in as a whole"
        self._pong = b""
        self._append(farewell)

    def _put_pong(self) -> None:
        sent_bytes = self._put_bytes - self.size_bytes
        if sent_bytes >= self._pong_end:
            assert self._framer.is_between, "a reply was not put in as a whole"
            self._append(self._pong)
            self._pong_end, self._pong = self._put_bytes, b""

    def _append(self, item: Buffer | FileSlice) -> None:
        before = self.size_bytes
        super().put(item)
        self._put_bytes += self.size_bytes - before


class WebSocketEnvelope:
    """The frames of one connection behind its handshake.

    Args:
        reader: takes what comes.
        limits: the bounds of the connection.
        receive_bytes: how much to receive at once.

    Attributes:
        limits: the same.
        outbox: makes frames of replies.
    """

    __slots__ = ("_is_sealed", "_reader", "_receive_bytes", "limits", "outbox")

    def __init__(self, reader: FrameReader, limits: SocketLimits, *, receive_bytes: int) -> None:
        self._reader = reader
        self._receive_bytes = receive_bytes
        self._is_sealed = False
        self.limits = limits
        self.outbox = FramedOutbox()

    @property
    def receive_bytes(self) -> int:
        """How much to receive at once: more while a large payload is on its way."""
        return min(self._receive_bytes, max(self._reader.left, RECEIVE_BYTES))

    @property
    def missing_bytes(self) -> int:
        """How much of a payload is sure to follow."""
        return min(self._reader.left, self._receive_bytes)

    @property
    def is_mid_frame(self) -> bool:
        """Whether the rest of a frame is still to come."""
        return self._reader.is_mid_frame

    @property
    def is_ended(self) -> bool:
        """Whether the client has closed, or has broken the rules."""
        return self._reader.is_ended

    def unwrap(self, data: bytes) -> bytes:
        """Take frames, cut in any way; return the payloads and answer pings."""
        reader = self._reader
        content = b"".join(reader.feed(data))
        if reader.pong is not None:
            pong, reader.pong = reader.pong, None
            self.outbox.answer(pong)
        return content

    def seal(self) -> None:
        """End with a close frame: the client's own, or one that says that the server goes away."""
        if not self._is_sealed:
            self._is_sealed = True
            self._reader.close()
            self.outbox.end_with(self._reader.farewell)
