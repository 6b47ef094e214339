"""The WebSocket frame codec, without I/O.

``FrameReader`` decodes the binary messages of a client. It unmasks payloads piece by piece, so a
large frame is never held as a whole. The library ``websockets`` validates the sequence of frames.
It gets the head of each frame, except of a binary message in one frame, which is always valid.

``ReplyFramer`` encodes replies. A reply is one binary message.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from websockets.frames import CloseCode, Opcode
from websockets.protocol import OPEN

from iggy_protocol import VSR_HEAD_BYTES, is_vsr_refusal

try:
    from websockets.speedups import apply_mask
except ImportError:  # the library was built without a compiler
    from websockets.utils import apply_mask

if TYPE_CHECKING:
    from websockets.server import ServerProtocol

__all__ = ["FrameReader", "ReplyFramer"]

FIN: Final = 0x80
MASKED: Final = 0x80
CONTROL: Final = 0x08
OPCODE: Final = 0x0F
WHOLE_BINARY: Final = FIN | Opcode.BINARY
LENGTH: Final = 0x7F
# A length up to SHORT_MAX is in the head's second byte; the two other values announce a long one.
SHORT_MAX, TWO_BYTES, EIGHT_BYTES = 125, 126, 127
NO_MASK: Final = bytes(4)

# The longest frame that official clients accept. A longer reply becomes several frames of one
# message, for which their limit is four times as high.
FRAME_BYTES_MAX: Final = 16 << 20
REPLY_HEAD: Final = struct.Struct("<II")
ACKNOWLEDGEMENT: Final = bytes([WHOLE_BINARY, REPLY_HEAD.size]) + bytes(REPLY_HEAD.size)
VSR_BYTES: Final = VSR_HEAD_BYTES
REFUSAL_HEAD: Final = bytes([WHOLE_BINARY, TWO_BYTES]) + VSR_BYTES.to_bytes(2, "big")


class FrameReader:
    """Decodes what a client sends after the handshake.

    Args:
        protocol: validates frame heads and control frames; its handshake is done.
        frame_bytes_max: the longest frame.
        message_bytes_max: the longest message.
        accepts_unmasked: whether frames without a mask are accepted.

    Attributes:
        left: the missing bytes of the current payload.
        pong: the reply to the last ping, until it is taken.
        close_frame: the close frame, once there is one.
        is_ended: whether further input is ignored.
    """

    def __init__(
        self,
        protocol: ServerProtocol,
        *,
        frame_bytes_max: int,
        message_bytes_max: int,
        accepts_unmasked: bool = False,
    ) -> None:
        self._protocol = protocol
        self._frame_bytes_max = frame_bytes_max
        self._message_bytes_max = message_bytes_max
        self._accepts_unmasked = accepts_unmasked
        self._incomplete = b""
        self.left = 0
        self._mask = NO_MASK
        self._message_bytes = 0
        self._is_within_message = False
        self._is_text = False
        self.pong: bytes | None = None
        self.close_frame = b""
        self.is_ended = False

    @property
    def is_mid_frame(self) -> bool:
        """Whether a frame is incomplete."""
        return bool(self.left or self._incomplete)

    def feed(self, data: bytes) -> list[bytes]:
        """Decode received bytes, split at any position; return the pieces of payloads."""
        if self._incomplete:
            data, self._incomplete = self._incomplete + data, b""
        pieces: list[bytes] = []
        view, position = memoryview(data), 0
        while position < len(data) and not self.is_ended:
            if self.left:
                piece = view[position : position + self.left]
                position += len(piece)
                self._take(piece, pieces)
                continue
            size = self._begin_frame(view[position:])
            if not size:
                self._incomplete = data[position:]
                break
            position += size
        return pieces

    def fail(self, code: CloseCode, reason: str) -> None:
        """End the connection because of a violation by the client."""
        self._protocol.fail(code, reason)
        self._collect_output()

    def close(self) -> None:
        """End the connection with GOING_AWAY, unless it has ended already."""
        if not self.is_ended and self._protocol.state is OPEN:
            self._protocol.send_close(CloseCode.GOING_AWAY)
            self._collect_output()

    def _take(self, piece: memoryview, pieces: list[bytes]) -> None:
        """Unmask a piece of a payload."""
        size = len(piece)
        self.left -= size
        if not self._is_text:
            pieces.append(bytes(piece) if self._mask is NO_MASK else apply_mask(piece, self._mask))
        if self.left and size % 4:
            self._mask = self._mask[size % 4 :] + self._mask[: size % 4]

    def _begin_frame(self, view: memoryview) -> int:
        """Parse the head of a frame, or a whole control frame; return its size, 0 if incomplete."""
        if len(view) < 2:
            return 0
        length, is_masked = view[1] & LENGTH, bool(view[1] & MASKED)
        size = 2 + (2 if length == TWO_BYTES else 8 if length == EIGHT_BYTES else 0)
        key_at, size = size, size + 4 * is_masked
        if view[0] & CONTROL:
            return self._begin_control(view, length, size, is_masked)
        if len(view) < size:
            return 0
        if length > SHORT_MAX:
            length = int.from_bytes(view[2:key_at], "big")
        self._mask = bytes(view[key_at:size]) if is_masked else NO_MASK
        self._begin_data(view[0], length, is_masked)
        return size

    def _begin_control(self, view: memoryview, length: int, size: int, is_masked: bool) -> int:
        if length > SHORT_MAX:
            self.fail(CloseCode.PROTOCOL_ERROR, "control frame too long")
            return size
        size += length
        if len(view) < size:
            return 0
        if is_masked or not self._accepts_unmasked:
            self._validate(bytes(view[:size]))
        else:
            self._validate(bytes([view[0], MASKED | length]) + NO_MASK + view[2:size])
        return size

    def _begin_data(self, first: int, length: int, is_masked: bool) -> None:
        is_allowed = is_masked or self._accepts_unmasked
        whole_bytes = length + (self._message_bytes if self._is_within_message else 0)
        is_small = length <= self._frame_bytes_max and whole_bytes <= self._message_bytes_max
        if is_allowed and not is_small:
            self.fail(CloseCode.MESSAGE_TOO_BIG, "larger than the server takes")
            return
        if first != WHOLE_BINARY or self._is_within_message or not is_allowed:
            # All remaining violations are in the head, so the library gets no payload.
            self._validate(bytes([first, MASKED]) + NO_MASK if is_allowed else bytes([first, 0]))
            if self.is_ended:
                return
        if first & OPCODE != Opcode.CONT:
            self._is_text = first & OPCODE == Opcode.TEXT
        self._message_bytes = whole_bytes
        self._is_within_message = not first & FIN
        self.left = length

    def _validate(self, frame: bytes) -> None:
        """Have the library validate a frame, and keep its output."""
        self._protocol.receive_data(frame)
        self._protocol.events_received()
        self._collect_output()

    def _collect_output(self) -> None:
        answers = [answer for answer in self._protocol.data_to_send() if answer]
        if self._protocol.state is OPEN:
            # RFC 6455, section 5.5.3: only the last of several pings needs a pong.
            self.pong = answers[-1] if answers else self.pong
        else:
            self.close_frame += b"".join(answers)
            self.is_ended = True


class ReplyFramer:
    """Encodes a stream of replies as frames."""

    def __init__(self) -> None:
        self._incomplete = b""
        self._opcode = Opcode.BINARY
        self._frame_left = 0
        self._reply_left = 0

    @property
    def is_at_boundary(self) -> bool:
        """Whether the last reply is complete."""
        return not self._reply_left and not self._incomplete

    def frame(self, data: bytes | bytearray | memoryview) -> list[bytes | memoryview]:
        """Encode a part of the replies; payloads are not copied."""
        if self.is_at_boundary and not len(data) % REPLY_HEAD.size and data == bytes(len(data)):
            return [ACKNOWLEDGEMENT * (len(data) // REPLY_HEAD.size)]
        if not len(data) % VSR_BYTES and self.is_at_boundary and is_vsr_refusal(data[:VSR_BYTES]):
            # A client with an unsupported protocol expects one of its own frames per message.
            refusals = [data[at : at + VSR_BYTES] for at in range(0, len(data), VSR_BYTES)]
            return [b"".join((REFUSAL_HEAD, refusal)) for refusal in refusals]
        if self._incomplete:
            data, self._incomplete = self._incomplete + bytes(data), b""
        view, written = memoryview(data), list[bytes | memoryview]()
        while view:
            if not self._reply_left:
                if len(view) < REPLY_HEAD.size:
                    self._incomplete = bytes(view)
                    break
                self._opcode = Opcode.BINARY
                self._reply_left = REPLY_HEAD.size + REPLY_HEAD.unpack_from(view)[1]
            head, size = self._advance(len(view))
            if head:
                written.append(head)
            written.append(view[:size])
            view = view[size:]
        return written

    def skip(self, size: int) -> list[tuple[bytes, int]]:
        """Advance within a reply by bytes that are sent from a file.

        Returns:
            For each run of these bytes: the frame head before it, if any, and its length.
        """
        assert size <= self._reply_left, "the head of a reply must be at hand"
        runs = list[tuple[bytes, int]]()
        while size:
            runs.append(self._advance(size))
            size -= runs[-1][1]
        return runs

    def _advance(self, size: int) -> tuple[bytes, int]:
        """Advance to the end of a frame; return its head, if it starts here, and the distance."""
        head = b"" if self._frame_left else self._begin_frame()
        size = min(size, self._frame_left)
        self._frame_left -= size
        self._reply_left -= size
        return head, size

    def _begin_frame(self) -> bytes:
        size = self._frame_left = min(self._reply_left, FRAME_BYTES_MAX)
        first = self._opcode | (FIN if size == self._reply_left else 0)
        self._opcode = Opcode.CONT
        if size <= SHORT_MAX:
            return bytes([first, size])
        if size < 1 << 16:
            return struct.pack("!BBH", first, TWO_BYTES, size)
        return struct.pack("!BBQ", first, EIGHT_BYTES, size)
