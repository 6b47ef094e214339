"""Encodes requests and replies as binary messages.

A reply is one message, of several frames if it is long. A request is one message of one frame, or
several such messages if it is long: servers read messages as one byte stream.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from websockets.frames import Opcode

from iggy_protocol.vsr.heads import VSR_HEAD_BYTES
from iggy_protocol.vsr.recognition import is_vsr_refusal, vsr_frame_size
from iggy_protocol.websocket.header import (
    FIN,
    MASK_BYTES,
    MASKED,
    TWO_BYTES,
    WHOLE_BINARY,
    apply_mask,
    frame_header,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iggy_protocol.layout import Buffer


# The longest frame that official clients and servers accept by default. For messages of several
# frames their limit is four times as high.
FRAME_BYTES_MAX: Final = 16 << 20

REPLY_HEAD: Final = struct.Struct("<II")
ACKNOWLEDGEMENT: Final = bytes([WHOLE_BINARY, REPLY_HEAD.size]) + bytes(REPLY_HEAD.size)
VSR_BYTES: Final = VSR_HEAD_BYTES
REFUSAL_HEAD: Final = bytes([WHOLE_BINARY, TWO_BYTES]) + VSR_BYTES.to_bytes(2, "big")

# Requests up to this size are masked in one call.
JOINED_BYTES_MAX: Final = 16_384
# What is masked at once: it fits into the cache of a core, and is a multiple of the mask.
PIECE_BYTES: Final = 65_536
# What is sent while the rest is still to be masked: enough to be worth a system call.
YIELDED_BYTES: Final = 262_144
# The largest message whose buffer is reused. The messages of a split request are larger, so no two
# of them share the buffer.
SCRATCH_BYTES_MAX: Final = 2 << 20


class ReplyFramer:
    """Encodes a stream of replies as frames.

    Attributes:
        is_vsr: whether replies have heads of 256 bytes, as from 0.9 on; set before the first one.
    """

    def __init__(self, *, is_vsr: bool = False) -> None:
        self.is_vsr = is_vsr
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
        if self.is_vsr:
            return self._frame(data)
        if self.is_at_boundary and not len(data) % REPLY_HEAD.size and data == bytes(len(data)):
            return [ACKNOWLEDGEMENT * (len(data) // REPLY_HEAD.size)]
        if not len(data) % VSR_BYTES and self.is_at_boundary and is_vsr_refusal(data[:VSR_BYTES]):
            # A client with an unsupported protocol expects one of its own frames per message.
            refusals = [data[at : at + VSR_BYTES] for at in range(0, len(data), VSR_BYTES)]
            return [b"".join((REFUSAL_HEAD, refusal)) for refusal in refusals]
        return self._frame(data)

    def _frame(self, data: bytes | bytearray | memoryview) -> list[bytes | memoryview]:
        if self._incomplete:
            data, self._incomplete = self._incomplete + bytes(data), b""
        view, written = memoryview(data), list[bytes | memoryview]()
        while view:
            if not self._reply_left:
                size = self._reply_size(view)
                if size is None:
                    self._incomplete = bytes(view)
                    break
                self._opcode = Opcode.BINARY
                self._reply_left = size
            head, size = self._advance(len(view))
            if head:
                written.append(head)
            written.append(view[:size])
            view = view[size:]
        return written

    def _reply_size(self, head: memoryview) -> int | None:
        """Return the size of a reply with its head; None if the head is cut."""
        if self.is_vsr:
            return vsr_frame_size(head)
        if len(head) < REPLY_HEAD.size:
            return None
        payload_bytes: int = REPLY_HEAD.unpack_from(head)[1]
        return REPLY_HEAD.size + payload_bytes

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
        return frame_header(first, size)


class RequestFramer:
    """Encodes requests as frames; what it yields is valid until the next call.

    Args:
        random_bytes: returns so many bytes that nobody can predict, for the masks.
    """

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._scratch = bytearray()

    def frame(self, buffers: Sequence[Buffer]) -> Iterator[Buffer]:
        """Yield the message of a request in pieces; a long request becomes several messages.

        Each piece is masked on demand, so that the first ones can be sent meanwhile.
        """
        size = sum(map(len, buffers))
        payload: Buffer = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        if size <= JOINED_BYTES_MAX:
            mask = self._random_bytes(MASK_BYTES)
            yield frame_header(WHOLE_BINARY, size, MASKED) + mask + apply_mask(payload, mask)
            return
        whole = memoryview(payload).cast("B")
        for start in range(0, size, FRAME_BYTES_MAX):
            yield from self._mask(whole[start : start + FRAME_BYTES_MAX])

    def _mask(self, payload: memoryview) -> Iterator[memoryview]:
        """Mask one large message into a reused buffer; fresh pages would cost page faults."""
        mask = self._random_bytes(MASK_BYTES)
        head = frame_header(WHOLE_BINARY, len(payload), MASKED) + mask
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
