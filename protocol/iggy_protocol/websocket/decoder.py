"""Decodes the frames that one end receives after the handshake.

Parses headers, limits frames and messages, and keeps the pong and the close frame to send. The
library ``websockets`` validates the order of frames, and control frames with their payloads. It is
shown every frame except a binary message in one frame, which is always valid; of data frames it is
shown the header alone, because nothing else of them can be invalid.

Payloads are never held as a whole: the readers hand out what has come. Knows no requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from websockets.frames import CloseCode, Opcode
from websockets.protocol import OPEN

from iggy_protocol.websocket.header import (
    CONTROL,
    FIN,
    HEADER_BYTES,
    HEADER_BYTES_MIN,
    LENGTH,
    MASK_BYTES,
    MASKED,
    NO_MASK,
    OPCODE,
    SHORT_MAX,
    TWO_BYTES,
    WHOLE_BINARY,
    apply_mask,
)

if TYPE_CHECKING:
    from websockets.protocol import Protocol


MASKED_ONLY: Final = (MASKED,)
UNMASKED_ONLY: Final = (0,)
EITHER: Final = (MASKED, 0)


class FrameDecoder:
    """The headers and control frames of one connection; subclasses hand out the payloads.

    Args:
        protocol: the library's end of the connection; its handshake is done.
        frame_bytes_max: the longest frame.
        message_bytes_max: the longest message.

    Attributes:
        left: the missing bytes of the current payload.
        pong: the reply to the last ping, until it is taken.
        close_frame: the close frame to send, once there is one.
        is_ended: whether further input is ignored.
        failure: the violation by the peer, if one has ended the connection.
    """

    # What differs between the two ends.
    _IS_PEER_MASKING: ClassVar[bool]
    _WRONG_MASK: ClassVar[str]
    _TOO_LARGE: ClassVar[tuple[CloseCode, str]]
    _CLOSE_CODE: ClassVar[CloseCode]

    def __init__(
        self, protocol: Protocol, *, frame_bytes_max: float, message_bytes_max: float
    ) -> None:
        self._protocol = protocol
        self._frame_bytes_max = frame_bytes_max
        self._message_bytes_max = message_bytes_max
        self._mask_bits: tuple[int, ...] = MASKED_ONLY if self._IS_PEER_MASKING else UNMASKED_ONLY
        self._incomplete = b""
        self._mask = NO_MASK
        self._message_bytes = 0
        self._is_within_message = False
        self._is_text = False
        self.left: int = 0
        self.pong: bytes | None = None
        self.close_frame: bytes = b""
        self.is_ended: bool = False
        self.failure: str = ""

    @property
    def is_mid_frame(self) -> bool:
        """Whether a frame is incomplete."""
        return bool(self.left or self._incomplete)

    def fail(self, code: CloseCode, reason: str) -> None:
        """End the connection because of a violation by the peer."""
        self._protocol.fail(code, reason)
        self._collect_output()
        self.failure = reason

    def close(self) -> None:
        """End the connection, unless it has ended already."""
        if self._protocol.state is OPEN:
            self._protocol.send_close(self._CLOSE_CODE)
            self._collect_output()

    def _begin_frame(self, data: bytes | memoryview, start: int) -> int:
        """Read the header of a frame, or a whole control frame.

        Returns:
            The position after it; 0 if it is incomplete.
        """
        if len(data) < start + HEADER_BYTES_MIN:
            return 0
        first, second = data[start], data[start + 1]
        mask_bit, length = second & MASKED, second & LENGTH
        end = start + HEADER_BYTES[second]
        if mask_bit not in self._mask_bits:
            self.fail(CloseCode.PROTOCOL_ERROR, self._WRONG_MASK)
            return end
        if first & CONTROL:
            return self._read_control(data, start, end)
        if len(data) < end:
            return 0
        if length > SHORT_MAX:
            behind = start + HEADER_BYTES_MIN + (2 if length == TWO_BYTES else 8)
            length = int.from_bytes(data[start + HEADER_BYTES_MIN : behind], "big")
        self._mask = bytes(data[end - MASK_BYTES : end]) if mask_bit else NO_MASK
        self._begin_data(first, length)
        return end

    def _read_control(self, data: bytes | memoryview, start: int, payload_start: int) -> int:
        length = data[start + 1] & LENGTH
        end = payload_start + length
        if length > SHORT_MAX:
            self.fail(CloseCode.PROTOCOL_ERROR, "control frame too long")
            return end
        if len(data) < end:
            return 0
        mask = bytes(data[start + HEADER_BYTES_MIN : payload_start]) or NO_MASK
        self._validate(data[start], bytes(data[payload_start:end]), mask)
        return end

    def _begin_data(self, first: int, length: int) -> None:
        message_bytes = length + (self._message_bytes if self._is_within_message else 0)
        if length > self._frame_bytes_max or message_bytes > self._message_bytes_max:
            self.fail(*self._TOO_LARGE)
            return
        if first == WHOLE_BINARY and not self._is_within_message:
            self._is_text = False
        else:
            self._validate(first)
            if self.is_ended:
                return
            if first & OPCODE != Opcode.CONT:
                self._is_text = first & OPCODE == Opcode.TEXT
            self._is_within_message = not first & FIN
        self._message_bytes = message_bytes
        self.left = length

    def _validate(self, first: int, payload: bytes = b"", mask: bytes = NO_MASK) -> None:
        """Have the library validate a frame, and keep its output."""
        if self._IS_PEER_MASKING:
            frame = bytes((first, MASKED | len(payload))) + mask + payload
        else:
            frame = bytes((first, len(payload))) + payload
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
            self.failure = str(self._protocol.parser_exc or "")


class FrameReader(FrameDecoder):
    """Decodes what a client sends: the payloads of binary messages; those of text are dropped.

    Args:
        protocol: the server's end of the connection; its handshake is done.
        frame_bytes_max: the longest frame.
        message_bytes_max: the longest message.
        accepts_unmasked: whether frames without a mask are accepted.
    """

    _IS_PEER_MASKING = True
    _WRONG_MASK = "incorrect masking"
    _TOO_LARGE = (CloseCode.MESSAGE_TOO_BIG, "larger than the server takes")
    _CLOSE_CODE = CloseCode.GOING_AWAY

    def __init__(
        self,
        protocol: Protocol,
        *,
        frame_bytes_max: float,
        message_bytes_max: float,
        accepts_unmasked: bool = False,
    ) -> None:
        super().__init__(
            protocol, frame_bytes_max=frame_bytes_max, message_bytes_max=message_bytes_max
        )
        if accepts_unmasked:
            self._mask_bits = EITHER

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
            end = self._begin_frame(data, position)
            if not end:
                self._incomplete = data[position:]
                break
            position = end
        return pieces

    def _take(self, piece: memoryview, pieces: list[bytes]) -> None:
        """Unmask a piece of a payload."""
        size = len(piece)
        self.left -= size
        if not self._is_text:
            pieces.append(bytes(piece) if self._mask is NO_MASK else apply_mask(piece, self._mask))
        if self.left and size % MASK_BYTES:
            self._mask = self._mask[size % MASK_BYTES :] + self._mask[: size % MASK_BYTES]


class InPlaceFrameReader(FrameDecoder):
    """Decodes what a server sends, in the memory where it was received; text counts as binary."""

    _IS_PEER_MASKING = False
    _WRONG_MASK = "a frame of the server is masked"
    _TOO_LARGE = (
        CloseCode.PROTOCOL_ERROR,
        "a message is longer than max_frame_size or max_message_size",
    )
    _CLOSE_CODE = CloseCode.NORMAL_CLOSURE

    def decode_in_place(self, space: memoryview, count: int) -> int:
        """Move payloads together at the beginning of a buffer.

        Args:
            space: the buffer.
            count: how many bytes were received into it, split at any position.

        Returns:
            How many payload bytes there are.
        """
        if self.left >= count:
            self.left -= count
            return count
        source, position, kept = space[:count], 0, 0
        if self._incomplete:
            source, self._incomplete = memoryview(self._incomplete + source), b""
        while position < len(source) and not self.is_ended:
            if self.left:
                piece = source[position : position + self.left]
                space[kept : kept + len(piece)] = piece
                kept += len(piece)
                position += len(piece)
                self.left -= len(piece)
                continue
            end = self._begin_frame(source, position)
            if not end:
                self._incomplete = bytes(source[position:])
                break
            position = end
        return kept

    def take_control_reply(self) -> bytes:
        """Return the control frame to send now, once: the close frame, or else the pong."""
        control_reply = self.close_frame or self.pong or b""
        self.close_frame, self.pong = b"", None
        return control_reply
