"""Finds the intact messages of a log, also behind damage.

Every checksum is verified. Behind a damaged message the search goes on, because one bad message
must not hide a million good ones. ``iggy-server check`` reads whole logs this way, and a start
reads what is behind the last readable message, so both find the same.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from iggy_ref_server.segments.walk import (
    AT_OFFSET,
    HEADER_BYTES,
    MESSAGE_BYTES_MAX,
    PIECE_BYTES,
    LogWalk,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from iggy_ref_server.segments.walk import Stretch
    from iggy_ref_server.storage.interface import File

__all__ = ["Run", "count_claimed", "find_next", "find_runs", "find_stranger"]

OFFSET = Struct("<Q")
# Offset, timestamp, the producer's timestamp, length of user headers and payload, reserved.
HEADER = Struct("<QQQIIQ")
OFFSET_MAX = 2**64 - 1
# So many damaged messages are counted one by one; beyond that the bytes have to do.
CLAIMED_MAX = 1024


class Run(NamedTuple):
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


async def find_runs(
    log: File,
    start_offset: int,
    end: int,
    visit: Callable[[Stretch], Awaitable[None]] | None = None,
    *,
    position: int = 0,
) -> list[Run]:
    """Find all runs of a log; none of them in one that belongs elsewhere (``find_stranger``).

    Args:
        log: the open log.
        start_offset: what the message at the position should have.
        end: how long it is.
        visit: is shown every stretch of intact messages.
        position: where to begin.

    Raises:
        StorageError: the log cannot be read.
    """
    runs: list[Run] = []
    place: tuple[int, int] | None = (position, start_offset)
    if not position and await find_stranger(log, start_offset, end) is not None:
        return runs
    while place is not None:
        position, offset = place
        walk = LogWalk(log, position, offset, end)
        while (stretch := await walk.next()) is not None:
            if visit is not None:
                await visit(stretch)
        if walk.position > position:
            runs.append(Run(position, walk.position, offset, walk.next_offset))
        place = await find_next(log, walk.position, walk.next_offset, end)
    return runs


async def find_next(log: File, position: int, next_offset: int, end: int) -> tuple[int, int] | None:
    """Find the next intact message behind damage: where it is, and its offset.

    Args:
        log: the open log.
        position: where the damage begins.
        next_offset: the offset that should follow there.
        end: how long the log is.

    Raises:
        StorageError: the log cannot be read.
    """
    behind = await _behind(log, position, next_offset)
    if behind is not None and await _is_intact(log, *behind, end):
        return behind
    while position + HEADER_BYTES <= end:
        piece = await log.read(PIECE_BYTES, position)
        highest = next_offset + (end - position) // HEADER_BYTES
        for at, offset in _candidates(piece, next_offset, highest):
            if await _is_intact(log, position + at, offset, end):
                return position + at, offset
        # The next piece begins with what could be a header that this one cut.
        position += max(len(piece) - HEADER_BYTES + 1, 1)
    return None


async def find_stranger(log: File, start_offset: int, end: int) -> int | None:
    """Return the offset of an intact message at the very beginning that does not belong there.

    A log begins with the offset in its name. No crash and no loss of power leaves a whole message
    with another offset in that place, so such a log was meant for another name.

    Raises:
        StorageError: the log cannot be read.
    """
    head = await log.read(HEADER_BYTES, 0)
    if len(head) < HEADER_BYTES:
        return None
    offset: int = OFFSET.unpack_from(head, AT_OFFSET)[0]
    return offset if offset != start_offset and await _is_intact(log, 0, offset, end) else None


async def count_claimed(log: File, position: int, next_offset: int, end: int) -> int:
    """Count the messages that stood whole where a log cannot be read any more.

    Whoever dies in a write leaves the beginning of a message: less than a header, or a header that
    promises more bytes than there are. That counts as none, and so does what has no resemblance to
    a message. A header with the right offset and all its bytes, or with another offset and exactly
    the bytes up to the end, is a message that something happened to.

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
            head, AT_OFFSET
        )
        size = HEADER_BYTES + user_headers_length + payload_length
        is_alike = offset == next_offset + count or (position + size == end and not reserved)
        if not (is_alike and time_us) or position + size > end:
            break
        position, count = position + size, count + 1
    # Behind one message that was whole there may have been others that look like nothing now.
    return count + (end - position) // HEADER_BYTES if count else 0


async def _behind(log: File, position: int, offset: int) -> tuple[int, int] | None:
    """Step over one message whose header can be believed although its checksum cannot."""
    head = await log.read(HEADER_BYTES, position)
    if len(head) < HEADER_BYTES:
        return None
    found, _, _, user_headers_length, payload_length, reserved = HEADER.unpack_from(head, AT_OFFSET)
    size = HEADER_BYTES + user_headers_length + payload_length
    if found != offset or reserved or size > MESSAGE_BYTES_MAX:
        return None
    return position + size, offset + 1


async def _is_intact(log: File, position: int, offset: int, end: int) -> bool:
    return await LogWalk(log, position, offset, end).next() is not None


def _candidates(piece: bytes, lowest: int, highest: int) -> Iterator[tuple[int, int]]:
    """Find what could be headers with an offset in a range: where, and the offset."""
    for match in _pattern(lowest, min(highest, OFFSET_MAX)).finditer(piece):
        at = match.start() - AT_OFFSET
        offset = OFFSET.unpack_from(piece, match.start())[0]
        if at >= 0 and lowest <= offset <= highest:
            yield at, offset


def _pattern(lowest: int, highest: int) -> re.Pattern[bytes]:
    """Describe the header of a message from its offset on.

    The upper bytes of all offsets in question are the same, the time is not zero, the reserved
    bytes are. So long stretches of zeros, and of most other things, are passed over quickly.
    """
    varying_bytes = ((lowest ^ highest).bit_length() + 7) // 8
    same = re.escape(OFFSET.pack(highest)[varying_bytes:])
    return re.compile(b"(?s)(?=.{%d}%b(?!\\0{8}).{8}.{16}\\0{8})" % (varying_bytes, same))
