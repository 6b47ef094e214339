"""The WebSocket codec of a connection in the socket server.

``FramedOutbox`` encodes replies as frames when they are put in; pieces of files stay pieces.
``WebSocketEnvelope`` decodes received frames and replies to pings.

Replies are put in as wholes, so a pong is always between two of them, and the close frame after the
last. Has no socket and handles no requests.
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

# The size of a receive call while no large payload is incomplete.
RECEIVE_BYTES: Final = 64 << 10
# Up to this size a part of a reply is joined with its frame head: one buffer instead of two.
JOINED_BYTES_MAX: Final = 1 << 10


class FramedOutbox(Outbox):
    """The output buffer of one client, in frames."""

    __slots__ = ("_framer", "_pong", "_pong_end", "_put_bytes")

    def __init__(self) -> None:
        super().__init__()
        self._framer = ReplyFramer()
        self._put_bytes = 0
        self._pong = b""
        self._pong_end = 0

    def put(self, item: Buffer | FileSlice) -> None:
        """Append a part of a reply; the reply's head must be in buffers, split anywhere."""
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
        """Drop the first ``size`` bytes."""
        super().sent(size)
        if self._pong:
            self._put_pong()

    def answer(self, pong: bytes) -> None:
        """Append a pong as soon as the one before it is sent.

        Of several waiting pongs only the last is sent (RFC 6455, section 5.5.3), so a client that
        reads none of them uses no memory.
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
        reader: decodes received bytes.
        limits: the limits of the connection.
        receive_bytes: how much to receive per call.

    Attributes:
        outbox: encodes replies as frames.
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
        """How much to receive per call: more while a large payload is incomplete."""
        return min(self._receive_bytes, max(self._reader.left, RECEIVE_BYTES))

    @property
    def missing_bytes(self) -> int:
        """The missing bytes of the current payload."""
        return min(self._reader.left, self._receive_bytes)

    @property
    def is_mid_frame(self) -> bool:
        """Whether a frame is incomplete."""
        return self._reader.is_mid_frame

    @property
    def is_ended(self) -> bool:
        """Whether the client has sent a close frame or violated the protocol."""
        return self._reader.is_ended

    def unwrap(self, data: bytes) -> bytes:
        """Decode frames, split at any position; return the payloads and reply to pings."""
        reader = self._reader
        content = b"".join(reader.feed(data))
        if reader.pong is not None:
            pong, reader.pong = reader.pong, None
            self.outbox.answer(pong)
        return content

    def seal(self) -> None:
        """Append the close frame: the reply to the client's, or one with GOING_AWAY."""
        if not self._is_sealed:
            self._is_sealed = True
            self._reader.close()
            self.outbox.end_with(self._reader.farewell)
