"""Runs of small sends of 0.9 and later in pure Python, and the replies to them.

A part of ``batch_python``; import from there. A client that pipelines single messages fills the
receive buffer with frames that say the same but for their messages:

    head, 256 bytes | u32 M | M bytes of metadata | head of the batch, 256 bytes | frames

Their messages are moved together where they were received, as those of a run of classic sends,
and become classic records on the way. Everything that is unusual ends the run; the server takes it
alone, and finds out what it is.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from iggy_protocol.batch_send_python import (
    GATHERED_BYTES_MAX,
    begins_with,
    inspect,
    integer,
)
from iggy_protocol.batch_vsr_python import classic_send
from iggy_protocol.frame_view import BATCH_HEAD_BYTES, FRAME_BYTES, LIMIT_64, RECORD_SURPLUS
from iggy_protocol.message_view import as_bytes_view

if TYPE_CHECKING:
    from iggy_protocol.layout import Buffer


# Where the fields of a head stand; ``vsr.heads`` declares them all.
_HEAD_BYTES = 256
_SIZE, _IDENTIFIER, _NUMBER = slice(48, 52), slice(144, 160), slice(168, 176)
_SAME = slice(32, 48), slice(52, 144), slice(160, 168), slice(176, 256)
"""What must be as in the request before the run. The rest are the three fields above, and two
checksums that nobody verifies."""
_NO_IDENTIFIER = bytes(16)
_SMALLEST_BYTES = _HEAD_BYTES + 4 + BATCH_HEAD_BYTES + FRAME_BYTES

# In a reply: the number stands in its head. Behind the head there are a count and three ids of 32
# bits, and the offset.
_REPLY_NUMBER, _REPLY_OFFSET = 200, _HEAD_BYTES + 16
_CONFIRMATION_BYTES = _REPLY_OFFSET + 8
_U64, _U32 = struct.Struct("<Q"), struct.Struct("<I")


def gather_vsr(
    frames: bytearray | memoryview, head: Buffer, metadata: Buffer, frames_max: int, /
) -> tuple[int, int, int, int, int, bytes, bytes]:
    """Move the messages of sends together that have equal heads and metadata, as classic ones.

    Frames are taken from the front as long as they are complete, small and valid, begin with this
    head and these metadata, and their numbers rise; their messages are moved to the front.

    Returns:
        How many frames were taken, their bytes, their messages, how many of those have no id, the
        bytes of the records, and the number and the count of messages of each frame, as integers of
        64 and of 32 bits.
    """
    memory = as_bytes_view(frames)
    before, wanted = bytes(as_bytes_view(head)), bytes(as_bytes_view(metadata))
    _check_size(integer(frames_max, "the number of frames"))
    if memory.readonly:
        raise BufferError("the frames cannot be moved")
    if len(before) != _HEAD_BYTES:
        raise ValueError(f"a head has {_HEAD_BYTES} bytes, not {len(before)}")
    numbers: list[int] = []
    counts: list[int] = []
    number, missing, consumed, end = _number_in(before), 0, 0, 0
    while len(numbers) < frames_max:
        frame = _next_frame(memory[consumed:], before, number)
        if frame is None or not begins_with(frame[_HEAD_BYTES:], wanted):
            break
        made = _messages_of(frame[_HEAD_BYTES:], consumed + _HEAD_BYTES - end)
        if made is None:
            break
        number, size = _number_in(frame), len(frame)
        messages, count, without_id = made
        memory[end : end + len(messages)] = messages
        numbers.append(number)
        counts.append(count)
        missing, consumed, end = missing + without_id, consumed + size, end + len(messages)
    return (
        len(numbers), consumed, sum(counts), missing, end,
        b"".join(map(_U64.pack, numbers)), b"".join(map(_U32.pack, counts)),
    )  # fmt: skip


def _check_size(number: int) -> None:
    if not 0 <= number < LIMIT_64:
        raise OverflowError("the number of frames does not fit into 64 bits")


def _number_in(head: bytes | memoryview) -> int:
    return int.from_bytes(head[_NUMBER], "little")


def _next_frame(memory: memoryview, before: bytes, number: int) -> memoryview | None:
    """Return the frame at the front if it is complete and small, and its head continues the run."""
    if len(memory) < _SMALLEST_BYTES:
        return None
    size = int.from_bytes(memory[_SIZE], "little")
    if not _SMALLEST_BYTES <= size <= min(len(memory), GATHERED_BYTES_MAX):
        return None
    frame = memory[:size]
    is_next = _number_in(frame) > number and frame[_IDENTIFIER] == _NO_IDENTIFIER
    return frame if is_next and all(frame[same] == before[same] for same in _SAME) else None


def _messages_of(body: memoryview, room: int) -> tuple[bytearray, int, int] | None:
    """Return the classic messages of a body, their count, and how many have no id.

    Args:
        body: what follows the head of a frame.
        room: how many bytes before it the messages may begin.
    """
    _, _, classic, _ = classic_send(body, False)
    if classic is None:
        return None
    _, _, count, _, _, indexes_at, messages_at, missing_ids = inspect(classic)
    if room + indexes_at + BATCH_HEAD_BYTES < RECORD_SURPLUS * count:
        return None
    return classic[messages_at:], count, missing_ids


def confirmations(first: Buffer, numbers: Buffer, counts: Buffer, /) -> bytes:
    """Write the replies to a run of sends.

    Args:
        first: the reply to the first one, whatever its number is.
        numbers: of the requests, in 64 bits.
        counts: of their messages, in 32 bits.
    """
    reply = bytes(as_bytes_view(first))
    if len(reply) != _CONFIRMATION_BYTES:
        raise ValueError(f"a confirmation has {_CONFIRMATION_BYTES} bytes, not {len(reply)}")
    own_numbers, own_counts = as_bytes_view(numbers), as_bytes_view(counts)
    if len(own_numbers) % 8 or len(own_counts) != len(own_numbers) // 2:
        raise ValueError("a run has one number and one count for each frame")
    (offset,) = _U64.unpack_from(reply, _REPLY_OFFSET)
    made = []
    pairs = zip(_U64.iter_unpack(own_numbers), _U32.iter_unpack(own_counts), strict=True)
    for (number,), (count,) in pairs:
        own = bytearray(reply)
        _U64.pack_into(own, _REPLY_NUMBER, number)
        _U64.pack_into(own, _REPLY_OFFSET, offset)
        made.append(bytes(own))
        offset = (offset + count) % LIMIT_64
    return b"".join(made)
