"""Scans a log message by message: each must fit, have the next offset and match its checksum.

Reads in pieces of bounded size, so that a log of any length can be scanned.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import trio

from iggy_protocol import (
    PAYLOAD_BYTES_MAX,
    USER_HEADERS_BYTES_MAX,
    Buffer,
    InvalidField,
    MessageBatch,
    checksum,
)
from iggy_ref_server.segments.errors import SearchTooLong

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from iggy_ref_server.storage.interface import File


HEADER_BYTES = 64
CHECKSUM = Struct("<Q")
OFFSET_POSITION = 24
# Offset, timestamp, the producer's timestamp, length of user headers, length of payload.
FIELDS = Struct("<QQQII")

PIECE_BYTES = 1 << 20
NO_END_OFFSET = 2**64

# The limits of a message on the wire, and what sealing adds to its two parts.
ENCRYPTION_BYTES = 28
MESSAGE_BYTES_MAX = HEADER_BYTES + PAYLOAD_BYTES_MAX + USER_HEADERS_BYTES_MAX + 2 * ENCRYPTION_BYTES


class LogChunk(NamedTuple):
    """Messages back to back, all of them good.

    Attributes:
        messages: their bytes.
        messages_count: how many they are.
        position: byte of the log at which the first one starts.
    """

    messages: memoryview
    messages_count: int
    position: int


class LogScanner:
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
        self._end_offset = NO_END_OFFSET if end_offset is None else end_offset
        self._piece_bytes = PIECE_BYTES

    async def next(self) -> LogChunk | None:
        """Read on; None when nothing good follows.

        Raises:
            StorageError: the log cannot be read.
        """
        while self.position < self._end:
            size = min(self._piece_bytes, self._end - self.position)
            piece = await self._log.read(size, self.position)
            count, good, needed = measure_intact(piece, self.next_offset, self._end_offset)
            if count:
                self._piece_bytes = PIECE_BYTES
                chunk = LogChunk(memoryview(piece)[:good], count, self.position)
                self.position += good
                self.next_offset += count
                return chunk
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


def measure_intact(piece: Buffer, next_offset: int, end_offset: int) -> tuple[int, int, int]:
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
            piece, at + OFFSET_POSITION
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
        data, OFFSET_POSITION
    )
    return (
        (found_offset, found_us) == (offset, timestamp_us)
        and len(data) == HEADER_BYTES + user_headers_length + payload_length
        and CHECKSUM.unpack_from(data)[0] == checksum(memoryview(data)[CHECKSUM.size :])
    )


# Finds the intact messages of a log, also behind damage.
#
# Every checksum is verified. Behind a damaged message the search goes on, because one bad message
# must not hide a million good ones. ``iggy-server check`` reads whole logs this way, and a start
# reads what is behind the last readable message, so both find the same.


OFFSET = Struct("<Q")
# Offset, timestamp, the producer's timestamp, length of user headers and payload, reserved.
HEADER = Struct("<QQQIIQ")
HIGHEST_OFFSET = 2**64 - 1
# What looks like a message and is none costs its bytes, and this much at least. A payload may be
# made of nothing else, each of them as long as the rest of it: then this is a matter of seconds.
LOOK_BYTES_MIN = 4 << 10
SEARCH_BYTES_MAX = 4 << 30
# So many damaged messages are counted one by one; beyond that the bytes have to do.
CLAIMED_MAX = 1024


class IntactRun(NamedTuple):
    """Intact messages back to back, with offsets that follow one another.

    Attributes:
        start: byte of the log at which the first one begins.
        end: byte behind the last one.
        first_offset: offset of the first one.
        next_offset: offset behind the last one.
    """

    start: int
    end: int
    first_offset: int
    next_offset: int


class Effort:
    """How much is read in vain at most, while others wait for the end of a search.

    Args:
        bytes_max: the bytes of what looked like messages and was none.
    """

    def __init__(self, bytes_max: int | None = None) -> None:
        self._bytes_left = SEARCH_BYTES_MAX if bytes_max is None else bytes_max

    def spend(self, size_bytes: int) -> None:
        """Count one look in vain.

        Raises:
            SearchTooLong: it is enough.
        """
        self._bytes_left -= max(size_bytes, LOOK_BYTES_MIN)
        if self._bytes_left < 0:
            raise SearchTooLong


async def find_intact_runs(
    log: File,
    start_offset: int,
    end: int,
    on_chunk: Callable[[LogChunk], Awaitable[None]] | None = None,
    *,
    position: int = 0,
    effort: Effort | None = None,
) -> list[IntactRun]:
    """Find all runs of a log; none of them in one that belongs elsewhere (``find_foreign_offset``).

    Args:
        log: the open log.
        start_offset: what the message at the position should have.
        end: how long it is.
        on_chunk: is shown every stretch of intact messages.
        position: where to begin.
        effort: bounds the search; None for no bound, where no client waits.

    Raises:
        SearchTooLong: the effort is not worth it.
        StorageError: the log cannot be read.
    """
    runs: list[IntactRun] = []
    place: tuple[int, int] | None = (position, start_offset)
    if not position and await find_foreign_offset(log, start_offset, end) is not None:
        return runs
    while place is not None:
        position, offset = place
        walk = LogScanner(log, position, offset, end)
        while (chunk := await walk.next()) is not None:
            if on_chunk is not None:
                await on_chunk(chunk)
        if walk.position > position:
            runs.append(IntactRun(position, walk.position, offset, walk.next_offset))
        place = await find_next_intact(log, walk.position, walk.next_offset, end, effort)
    return runs


async def find_next_intact(
    log: File, position: int, next_offset: int, end: int, effort: Effort | None = None
) -> tuple[int, int] | None:
    """Find the next intact message behind damage: where it is, and its offset.

    Args:
        log: the open log.
        position: where the damage begins.
        next_offset: the offset that should follow there.
        end: how long the log is.
        effort: bounds the search; None for no bound, where no client waits.

    Raises:
        SearchTooLong: the effort is not worth it.
        StorageError: the log cannot be read.
    """
    behind = await _skip_damaged_message(log, position, next_offset)
    if behind is not None and await _is_intact(log, *behind, end):
        return behind
    while position + HEADER_BYTES <= end:
        piece = await log.read(PIECE_BYTES, position)
        highest = next_offset + (end - position) // HEADER_BYTES
        for at, offset, time_us, size in _header_candidates(piece, next_offset, highest):
            if size > min(MESSAGE_BYTES_MAX, end - position - at):
                continue
            is_here = at + size <= len(piece)
            data = piece[at : at + size] if is_here else await log.read(size, position + at)
            if is_message(data, offset=offset, timestamp_us=time_us):
                return position + at, offset
            if effort is not None:
                effort.spend(size)
            await trio.lowlevel.checkpoint()
        # The next piece begins with what could be a header that this one cut.
        position += max(len(piece) - HEADER_BYTES + 1, 1)
    return None


async def find_foreign_offset(log: File, start_offset: int, end: int) -> int | None:
    """Return the offset of an intact message at the very beginning that does not belong there.

    A log begins with the offset in its name. No crash and no loss of power leaves a whole message
    with another offset in that place, so such a log was meant for another name.

    Raises:
        StorageError: the log cannot be read.
    """
    head = await log.read(HEADER_BYTES, 0)
    if len(head) < HEADER_BYTES:
        return None
    offset: int = OFFSET.unpack_from(head, OFFSET_POSITION)[0]
    return offset if offset != start_offset and await _is_intact(log, 0, offset, end) else None


async def count_claimed(log: File, position: int, next_offset: int, end: int) -> int:
    """Count the messages that stood whole where a log cannot be read any more.

    A process that dies in a write leaves the beginning of a message: less than a header, or a
    header that promises more bytes than there are. That counts as none, and so does what has no
    resemblance to a message. A header with the right offset and all its bytes, or with another
    offset and exactly the bytes up to the end, is a message that something happened to.

    Args:
        log: the open log.
        position: where the damage begins; nothing intact lies behind it.
        next_offset: the offset that should follow there.
        end: how long the log is.

    Raises:
        StorageError: the log cannot be read.
    """
    count = 0
    while end - position >= HEADER_BYTES and count < CLAIMED_MAX:
        head = await log.read(HEADER_BYTES, position)
        offset, time_us, _, user_headers_length, payload_length, reserved = HEADER.unpack_from(
            head, OFFSET_POSITION
        )
        size = HEADER_BYTES + user_headers_length + payload_length
        is_alike = offset == next_offset + count or (position + size == end and not reserved)
        if not (is_alike and time_us) or position + size > end:
            break
        position, count = position + size, count + 1
    # Behind one message that was whole there may have been others that look like nothing now.
    return count + (end - position) // HEADER_BYTES if count else 0


async def is_beginning(log: File, position: int, next_offset: int, end: int) -> bool:
    """Tell whether the last bytes of a log are the beginning of its next message, and no more.

    Raises:
        StorageError: the log cannot be read.
    """
    if end - position < HEADER_BYTES:
        return True
    behind = await _skip_damaged_message(log, position, next_offset)
    return behind is not None and behind[0] > end


async def count_unrecognizable(log: File, position: int, next_offset: int, end: int) -> int:
    """Count the messages, at most, that stood where a log ends in bytes that resemble none.

    A process that dies in a write leaves the beginning of a message. Other bytes are garbage, or
    messages that were overwritten, such as with zeros; which of the two cannot be told.

    Args:
        log: the open log.
        position: where these bytes begin; nothing intact lies behind it.
        next_offset: the offset that should follow there.
        end: how long the log is.

    Raises:
        StorageError: the log cannot be read.
    """
    is_torn = await is_beginning(log, position, next_offset, end)
    return 0 if is_torn else (end - position) // HEADER_BYTES


async def _skip_damaged_message(log: File, position: int, offset: int) -> tuple[int, int] | None:
    """Step over one message whose header can be believed although its checksum cannot."""
    head = await log.read(HEADER_BYTES, position)
    if len(head) < HEADER_BYTES:
        return None
    found, _, _, user_headers_length, payload_length, reserved = HEADER.unpack_from(
        head, OFFSET_POSITION
    )
    size = HEADER_BYTES + user_headers_length + payload_length
    if found != offset or reserved or size > MESSAGE_BYTES_MAX:
        return None
    return position + size, offset + 1


async def _is_intact(log: File, position: int, offset: int, end: int) -> bool:
    return await LogScanner(log, position, offset, end).next() is not None


def _header_candidates(
    piece: bytes, lowest: int, highest: int
) -> Iterator[tuple[int, int, int, int]]:
    """Find what could be headers with an offset in a range: where, offset, time and size."""
    for match in _header_pattern(lowest, min(highest, HIGHEST_OFFSET)).finditer(piece):
        at = match.start() - OFFSET_POSITION
        offset, time_us, _, user_headers_length, payload_length, _ = HEADER.unpack_from(
            piece, match.start()
        )
        if at >= 0 and lowest <= offset <= highest:
            yield at, offset, time_us, HEADER_BYTES + user_headers_length + payload_length


def _header_pattern(lowest: int, highest: int) -> re.Pattern[bytes]:
    """Describe the header of a message from its offset on.

    The upper bytes of all offsets in question are the same, the time is not zero, the reserved
    bytes are. So long stretches of zeros, and of most other things, are passed over quickly.
    """
    varying_bytes = ((lowest ^ highest).bit_length() + 7) // 8
    same = re.escape(OFFSET.pack(highest)[varying_bytes:])
    return re.compile(b"(?s)(?=.{%d}%b(?!\\0{8}).{8}.{16}\\0{8})" % (varying_bytes, same))
