"""WebSocket frames in and out, without a socket: the bytes of the classic protocol pass through.

``FrameReader`` turns what a client sent into the bytes that its binary messages carry. Payloads are
unmasked piece by piece as they come, so a frame of many megabytes is never held as a whole. Whether
frames follow each other as they may is decided by ``websockets``: it sees the head of every frame
but the plainest one, a whole binary message in one frame, which cannot be wrong.

``ReplyFramer`` puts the head of a frame before each reply. A reply is one binary message.

Owns the cutting. What the bytes mean, and how they are sent, is the affair of others.
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
# A length up to the first is written in the head's second byte; these two say what follows it.
SHORT_MAX, TWO_BYTES, EIGHT_BYTES = 125, 126, 127
NO_MASK: Final = bytes(4)

# What official clients take in one frame. A longer reply is cut into frames of one message, which
# they take up to four times as long.
FRAME_BYTES_MAX: Final = 16 << 20
REPLY_HEAD: Final = struct.Struct("<II")
ACKNOWLEDGEMENT: Final = bytes([WHOLE_BINARY, REPLY_HEAD.size]) + bytes(REPLY_HEAD.size)
FOREIGN: Final = VSR_HEAD_BYTES
REFUSAL_HEAD: Final = bytes([WHOLE_BINARY, TWO_BYTES]) + FOREIGN.to_bytes(2, "big")


class FrameReader:
    """Takes what a client sends after the handshake.

    Args:
        protocol: decides on all but the payloads of messages; its handshake is done.
        frame_bytes_max: the longest frame.
        message_bytes_max: the longest message.
        accepts_unmasked: whether a frame may come without a mask.

    Attributes:
        left: how much of a payload has not come yet.
        pong: the answer to the last ping, until somebody takes it.
        farewell: the close frame to end with, if one has been decided on.
        is_ended: whether nothing that follows will be looked at.
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
        self._begun = b""
        self.left = 0
        self._mask = NO_MASK
        self._message_bytes = 0
        self._is_within_message = False
        self._is_text = False
        self.pong: bytes | None = None
        self.farewell = b""
        self.is_ended = False

    @property
    def is_mid_frame(self) -> bool:
        """Whether the rest of a frame is still to come."""
        return bool(self.left or self._begun)

    def feed(self, data: bytes) -> list[bytes]:
        """Take what was received, cut in any way; return the pieces of payload in it."""
        if self._begun:
            data, self._begun = self._begun + data, b""
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
                self._begun = data[position:]
                break
            position += size
        return pieces

    def fail(self, code: CloseCode, reason: str) -> None:
        """End the connection because of what the client did."""
        self._protocol.fail(code, reason)
        self._note_answers()

    def close(self) -> None:
        """End the connection, unless that has been decided already."""
        if not self.is_ended and self._protocol.state is OPEN:
            self._protocol.send_close(CloseCode.GOING_AWAY)
            self._note_answers()

    def _take(self, piece: memoryview, pieces: list[bytes]) -> None:
        """Unmask a piece of a payload."""
        size = len(piece)
        self.left -= size
        if not self._is_text:
            pieces.append(bytes(piece) if self._mask is NO_MASK else apply_mask(piece, self._mask))
        if self.left and size % 4:
            self._mask = self._mask[size % 4 :] + self._mask[: size % 4]

    def _begin_frame(self, view: memoryview) -> int:
        """Take the head of a frame, or a whole control frame; 0 while it is not complete."""
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
            self._judge(bytes(view[:size]))
        else:
            self._judge(bytes([view[0], MASKED | length]) + NO_MASK + view[2:size])
        return size

    def _begin_data(self, first: int, length: int, is_masked: bool) -> None:
        is_allowed = is_masked or self._accepts_unmasked
        whole_bytes = length + (self._message_bytes if self._is_within_message else 0)
        is_small = length <= self._frame_bytes_max and whole_bytes <= self._message_bytes_max
        if is_allowed and not is_small:
            self.fail(CloseCode.MESSAGE_TOO_BIG, "larger than the server takes")
            return
        if first != WHOLE_BINARY or self._is_within_message or not is_allowed:
            # Whatever else can be wrong is in the head, so the judge is shown no payload.
            self._judge(bytes([first, MASKED]) + NO_MASK if is_allowed else bytes([first, 0]))
            if self.is_ended:
                return
        if first & OPCODE != Opcode.CONT:
            self._is_text = first & OPCODE == Opcode.TEXT
        self._message_bytes = whole_bytes
        self._is_within_message = not first & FIN
        self.left = length

    def _judge(self, frame: bytes) -> None:
        """Have a frame judged, and keep what is to be answered."""
        self._protocol.receive_data(frame)
        self._protocol.events_received()
        self._note_answers()

    def _note_answers(self) -> None:
        answers = [answer for answer in self._protocol.data_to_send() if answer]
        if self._protocol.state is OPEN:
            # Of several pings the last one may be answered alone, so that they do not pile up.
            self.pong = answers[-1] if answers else self.pong
        else:
            self.farewell += b"".join(answers)
            self.is_ended = True


class ReplyFramer:
    """Puts the heads of frames into a stream of replies.

    Attributes:
        is_between: whether the last frame is complete, so that another one may follow.
    """

    def __init__(self) -> None:
        self._begun = b""
        self._opcode = Opcode.BINARY
        self._frame_left = 0
        self._reply_left = 0

    @property
    def is_between(self) -> bool:
        """Whether the last reply is complete."""
        return not self._reply_left and not self._begun

    def frame(self, data: bytes | bytearray | memoryview) -> list[bytes | memoryview]:
        """Return what to write for a part of the replies; payloads are passed on as they are."""
        if self.is_between and not len(data) % REPLY_HEAD.size and data == bytes(len(data)):
            return [ACKNOWLEDGEMENT * (len(data) // REPLY_HEAD.size)]
        if not len(data) % FOREIGN and self.is_between and is_vsr_refusal(data[:FOREIGN]):
            # A client of another protocol takes one frame of its own in each message.
            refusals = [data[at : at + FOREIGN] for at in range(0, len(data), FOREIGN)]
            return [b"".join((REFUSAL_HEAD, refusal)) for refusal in refusals]
        if self._begun:
            data, self._begun = self._begun + bytes(data), b""
        view, written = memoryview(data), list[bytes | memoryview]()
        while view:
            if not self._reply_left:
                if len(view) < REPLY_HEAD.size:
                    self._begun = bytes(view)
                    break
                self._opcode = Opcode.BINARY
                self._reply_left = REPLY_HEAD.size + REPLY_HEAD.unpack_from(view)[1]
            head, size = self._go_on(len(view))
            if head:
                written.append(head)
            written.append(view[:size])
            view = view[size:]
        return written

    def skip(self, size: int) -> list[tuple[bytes, int]]:
        """Go on within a reply by bytes that are not at hand.

        Returns:
            What to write before each run of them, if anything, and how long the run is.
        """
        assert size <= self._reply_left, "the head of a reply must be at hand"
        runs = list[tuple[bytes, int]]()
        while size:
            runs.append(self._go_on(size))
            size -= runs[-1][1]
        return runs

    def _go_on(self, size: int) -> tuple[bytes, int]:
        """Go on up to the end of a frame; return its head, if it begins here, and how far it is."""
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
