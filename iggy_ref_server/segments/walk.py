"""Scans a log message by message: each must fit, have the next offset and match its checksum.

Reads in pieces of bounded size, so that a log of any length can be scanned.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import (
    PAYLOAD_BYTES_MAX,
    USER_HEADERS_BYTES_MAX,
    InvalidField,
    MessageBatch,
    checksum,
)

if TYPE_CHECKING:
    from iggy_protocol import Buffer
    from iggy_ref_server.storage.interface import File

__all__ = [
    "HEADER_BYTES",
    "MESSAGE_BYTES_MAX",
    "OFFSET_MAX",
    "LogWalk",
    "Stretch",
    "is_message",
]

HEADER_BYTES = 64
CHECKSUM = Struct("<Q")
AT_OFFSET = 24
# Offset, timestamp, the producer's timestamp, length of user headers, length of payload.
FIELDS = Struct("<QQQII")

PIECE_BYTES = 1 << 20
OFFSET_MAX = 2**64

# The limits of a message on the wire, and what sealing adds to its two parts.
SEAL_BYTES = 28
MESSAGE_BYTES_MAX = HEADER_BYTES + PAYLOAD_BYTES_MAX + USER_HEADERS_BYTES_MAX + 2 * SEAL_BYTES


class Stretch(NamedTuple):
    """Messages back to back, all of them good.

    Attributes:
        messages: their bytes.
        messages_count: how many they are.
        position: byte of the log at which the first one starts.
    """

    messages: memoryview
    messages_count: int
    position: int


class LogWalk:
    """A walk over a log, up to the first message that is not good.

    Args:
        log: the open log.
        position: byte at which a message starts.
        next_offset: its offset.
        end: byte at which to stop.
        end_offset: offset at which to stop, None for any.

    Attributes:
        position: byte behind the last good message.
        next_offset: the offset that should follow there.
    """

    def __init__(
        self,
        log: File,
        position: int,
        next_offset: int,
        end: int,
        *,
        end_offset: int | None = None,
    ) -> None:
        self.position = position
        self.next_offset = next_offset
        self._log = log
        self._end = end
        self._end_offset = OFFSET_MAX if end_offset is None else end_offset
        self._piece_bytes = PIECE_BYTES

    async def next(self) -> Stretch | None:
        """Read on; None when nothing good follows.

        Raises:
            StorageError: the log cannot be read.
        """
        while self.position < self._end:
            size = min(self._piece_bytes, self._end - self.position)
            piece = await self._log.read(size, self.position)
            count, good, needed = measure_good(piece, self.next_offset, self._end_offset)
            if count:
                self._piece_bytes = PIECE_BYTES
                stretch = Stretch(memoryview(piece)[:good], count, self.position)
                self.position += good
                self.next_offset += count
                return stretch
            if needed <= len(piece) or needed > self._end - self.position:
                return None
            self._piece_bytes = needed  # a message larger than a piece
        return None

    async def finish(self) -> None:
        """Walk on to the last good message.

        Raises:
            StorageError: the log cannot be read.
        """
        while await self.next() is not None:
            pass


def measure_good(piece: Buffer, next_offset: int, end_offset: int) -> tuple[int, int, int]:
    """Measure the good messages at the start of a piece.

    Returns:
        How many they are, how many bytes they take, and how many bytes the message behind them
        takes: more than are left if the piece cuts it.
    """
    count, at, needed = count_consecutive(piece, next_offset, end_offset)
    memory = memoryview(piece)
    try:
        MessageBatch(memory[:at]).verify()
    except InvalidField as damaged:
        at, needed = damaged.offset, 0
        count = count_consecutive(memory[:at], next_offset, end_offset)[0]
    return count, at, needed


def count_consecutive(piece: Buffer, next_offset: int, end_offset: int) -> tuple[int, int, int]:
    """Step over messages as long as their offsets follow one another, up to an end."""
    at, end, count = 0, len(piece), 0
    while end - at >= HEADER_BYTES:
        offset, _, _, user_headers_length, payload_length = FIELDS.unpack_from(
            piece, at + AT_OFFSET
        )
        size = HEADER_BYTES + user_headers_length + payload_length
        if offset != next_offset + count or offset >= end_offset or size > MESSAGE_BYTES_MAX:
            return count, at, 0
        if size > end - at:
            return count, at, size
        at += size
        count += 1
    return count, at, HEADER_BYTES


def is_message(data: bytes, *, offset: int, timestamp_us: int) -> bool:
    """Tell whether these bytes are exactly one intact message of this offset and time."""
    if len(data) < HEADER_BYTES:
        return False
    found_offset, found_us, _, user_headers_length, payload_length = FIELDS.unpack_from(
        data, AT_OFFSET
    )
    return (
        (found_offset, found_us) == (offset, timestamp_us)
        and len(data) == HEADER_BYTES + user_headers_length + payload_length
        and CHECKSUM.unpack_from(data)[0] == checksum(memoryview(data)[CHECKSUM.size :])
    )
