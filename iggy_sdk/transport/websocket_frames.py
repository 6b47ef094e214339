"""WebSocket frames of a client, without a socket: a codec for the bytes of the Iggy protocol.

Replies are read into their final memory, and frame headers are removed there in place; only an
incomplete header is buffered. ``websockets`` validates the order of frames: it sees the header of
every frame except a whole binary message in one frame, which is always valid.
"""

from __future__ import annotations

import logging
import secrets
import struct
from typing import TYPE_CHECKING, Final

from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Opcode
from websockets.protocol import OPEN
from websockets.uri import parse_uri

try:
    from websockets.speedups import apply_mask
except ImportError:  # websockets was built without its C extension
    from websockets.utils import apply_mask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iggy_protocol import Buffer

__all__ = ["FrameDecoder", "FrameEncoder", "client_protocol"]

LOGGER = logging.getLogger(__name__)

FIN: Final = 0x80
MASKED: Final = 0x80
CONTROL: Final = 0x08
OPCODE: Final = 0x0F
WHOLE_BINARY: Final = FIN | Opcode.BINARY
LENGTH: Final = 0x7F
# A length up to SHORT_MAX is in the second byte; the other two values announce 2 or 8 bytes.
SHORT_MAX, TWO_BYTES, EIGHT_BYTES = 125, 126, 127

MESSAGE_BYTES_MAX: Final = 16 << 20
"""The longest message to send: what servers take in one frame by default. They read messages as
one byte stream, so a longer request is sent in several messages."""

JOINED_BYTES_MAX: Final = 16_384
"""Requests up to this size are masked in one call."""

PIECE_BYTES: Final = 65_536
"""What is masked at once: it fits into the cache of a core, and is a multiple of the mask."""

YIELDED_BYTES: Final = 262_144
"""What is sent while the rest is still to be masked: enough to be worth a system call."""

SCRATCH_BYTES_MAX: Final = 2 << 20
"""The largest message whose buffer is reused. The messages of a split request are larger, so no
two of them share the buffer."""


def client_protocol(host: str, port: int, *, secure: bool) -> ClientProtocol:
    """Make the protocol object of ``websockets`` for a new connection."""
    scheme = "wss" if secure else "ws"
    where = f"[{host.partition('%')[0]}]" if ":" in host else host
    uri = parse_uri(f"{scheme}://{where}:{port}/")
    return ClientProtocol(uri, max_size=None, logger=LOGGER)


class FrameEncoder:
    """Encodes requests as messages; what it yields is valid until the next call."""

    def __init__(self) -> None:
        self._scratch = bytearray()

    def frame(self, buffers: Sequence[Buffer]) -> Iterator[Buffer]:
        """Yield the message of a request in pieces; a long request becomes several messages.

        Each piece is masked on demand, so that the first ones can be sent meanwhile.
        """
        size = sum(map(len, buffers))
        payload: Buffer = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        if size <= JOINED_BYTES_MAX:
            mask = secrets.token_bytes(4)
            yield _frame_header(size, mask) + apply_mask(payload, mask)
            return
        whole = memoryview(payload).cast("B")
        for start in range(0, size, MESSAGE_BYTES_MAX):
            yield from self._mask(whole[start : start + MESSAGE_BYTES_MAX])

    def _mask(self, payload: memoryview) -> Iterator[memoryview]:
        """Mask one large message into a reused buffer; fresh pages would cost page faults."""
        mask = secrets.token_bytes(4)
        head = _frame_header(len(payload), mask)
        size = len(head) + len(payload)
        scratch = self._scratch
        if len(scratch) < size:
            scratch = bytearray(size)
            if size <= SCRATCH_BYTES_MAX:
                self._scratch = scratch
        message = memoryview(scratch)[:size]
        message[: len(head)] = head
        begun, end = 0, len(head)
        for start in range(0, len(payload), PIECE_BYTES):
            piece = apply_mask(payload[start : start + PIECE_BYTES], mask)
            message[end : end + len(piece)] = piece
            end += len(piece)
            if end - begun >= YIELDED_BYTES or end == size:
                yield message[begun:end]
                begun = end


def _frame_header(size: int, mask: bytes) -> bytes:
    if size <= SHORT_MAX:
        return bytes((WHOLE_BINARY, MASKED | size)) + mask
    if size < 1 << 16:
        return struct.pack("!BBH", WHOLE_BINARY, MASKED | TWO_BYTES, size) + mask
    return struct.pack("!BBQ", WHOLE_BINARY, MASKED | EIGHT_BYTES, size) + mask


class FrameDecoder:
    """Removes frame headers from what a server sends.

    Args:
        protocol: validates headers and control frames; its handshake is done.
        frame_bytes_max: the longest frame.
        message_bytes_max: the longest message.

    Attributes:
        control_reply: the control frame to send after the last call: a pong, or a close frame.
        is_ended: whether the WebSocket is closed.
        failure: the protocol error of the server, if that closed it.
    """

    def __init__(
        self, protocol: ClientProtocol, *, frame_bytes_max: float, message_bytes_max: float
    ) -> None:
        self._protocol = protocol
        self._frame_bytes_max = frame_bytes_max
        self._message_bytes_max = message_bytes_max
        self._partial_header = b""
        self._payload_left = 0
        self._message_bytes = 0
        self._is_within_message = False
        self.control_reply = b""
        self.is_ended = False
        self.failure = ""

    def decode_in_place(self, space: memoryview, count: int) -> int:
        """Move payloads together at the beginning of a buffer.

        Returns:
            How many payload bytes there are.
        """
        if self._payload_left >= count:
            self._payload_left -= count
            return count
        source, kept = space[:count], 0
        if self._partial_header:
            source, self._partial_header = memoryview(self._partial_header + bytes(source)), b""
        while len(source) and not self.is_ended:
            if self._payload_left:
                piece = source[: self._payload_left]
                space[kept : kept + len(piece)] = piece
                kept += len(piece)
                self._payload_left -= len(piece)
                source = source[len(piece) :]
                continue
            size = self._begin_frame(source)
            if not size:
                self._partial_header = bytes(source)
                break
            source = source[size:]
        return kept

    def close(self) -> None:
        """Prepare a close frame."""
        if self._protocol.state is OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._collect_control_reply()

    def _begin_frame(self, view: memoryview) -> int:
        """Read the header of a frame, or a whole control frame; 0 while it is incomplete."""
        if len(view) < 2:
            return 0
        length = view[1] & LENGTH
        size = 2 + (2 if length == TWO_BYTES else 8 if length == EIGHT_BYTES else 0)
        if view[1] & MASKED:
            self._fail("a frame of the server is masked")
            return size
        if view[0] & CONTROL:
            return self._begin_control(view, length)
        if len(view) < size:
            return 0
        if length > SHORT_MAX:
            length = int.from_bytes(view[2:size], "big")
        self._begin_data(view[0], length)
        return size

    def _begin_control(self, view: memoryview, length: int) -> int:
        if length > SHORT_MAX:
            self._fail("a control frame is too long")
            return 2
        if len(view) < 2 + length:
            return 0
        self._validate(bytes(view[: 2 + length]))
        return 2 + length

    def _begin_data(self, first: int, length: int) -> None:
        if first != WHOLE_BINARY or self._is_within_message:
            # Only the header of a data frame can be invalid, so it is validated without payload.
            self._validate(bytes((first, 0)))
            if self.is_ended:
                return
        if first & OPCODE != Opcode.CONT:
            self._message_bytes = 0
        self._message_bytes += length
        if length > self._frame_bytes_max or self._message_bytes > self._message_bytes_max:
            self._fail("a message is longer than max_frame_size or max_message_size")
            return
        self._is_within_message = not first & FIN
        self._payload_left = length

    def _validate(self, frame: bytes) -> None:
        self._protocol.receive_data(frame)
        self._protocol.events_received()
        self._collect_control_reply()

    def _fail(self, reason: str) -> None:
        self._protocol.fail(CloseCode.PROTOCOL_ERROR, reason)
        self._collect_control_reply()
        self.failure = reason

    def _collect_control_reply(self) -> None:
        replies = [
            control_reply for control_reply in self._protocol.data_to_send() if control_reply
        ]
        if replies:
            self.control_reply = replies[-1]
        if self._protocol.state is not OPEN:
            self.is_ended = True
            self.failure = str(self._protocol.parser_exc or "")
