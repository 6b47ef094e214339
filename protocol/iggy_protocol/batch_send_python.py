"""Bodies of SendMessages requests in pure Python: encoding, checking, gathering.

A part of ``batch_python``; import from there. The names without an underscore serve the batches of
0.9 as well.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from iggy_protocol.codes import CommandCode
from iggy_protocol.layout import Buffer, derive_struct
from iggy_protocol.message_view import (
    HEADER,
    INDEX_ENTRY,
    PAYLOAD_BYTES_MAX,
    USER_HEADERS_BYTES_MAX,
    Header,
    NewMessage,
    as_bytes_view,
    extent_at,
    header_at,
)
from iggy_protocol.status_table import StatusCode

if TYPE_CHECKING:
    from collections.abc import Sequence


ENTRY, _ = derive_struct(INDEX_ENTRY)
ID_BYTES = 16
NO_ID = bytes(ID_BYTES)
_FRAME = struct.Struct("<II")
_SEND_MESSAGES = int(CommandCode.SEND_MESSAGES)
GATHERED_BYTES_MAX = 1 << 14  # moving a larger frame costs more than it saves

_HEADROOM_BYTES_MAX = 4096
# The frame's length field is a u32 and counts the four bytes of the command code as well.
_BODY_BYTES_MAX = 2**32 - 1 - 4


# ---- arguments


def integer(value: object, name: str) -> int:
    """Refuse what is no integer."""
    if not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    return value


def unsigned(value: object, name: str, size: int) -> int:
    """Refuse a number that does not fit into so many bytes."""
    number = integer(value, name)
    if not 0 <= number < 1 << 8 * size:
        raise OverflowError(f"{name} does not fit into {8 * size} bits")
    return number


# ---- encoding


def random_id(entropy: memoryview) -> bytes:
    """Turn 16 random bytes into a UUID of version 4, in text order."""
    made = bytearray(entropy[:ID_BYTES])
    made[6] = made[6] & 0x0F | 0x40
    made[8] = made[8] & 0x3F | 0x80
    return bytes(made)


def encode(
    metadata: bytes,
    messages: Sequence[Buffer | NewMessage],
    origin_timestamp_us: int,
    headroom: int,
    /,
) -> bytearray:
    """Build a request body: headroom, metadata, index entries, messages."""
    batch_origin_us = unsigned(origin_timestamp_us, "origin timestamp", 8)
    check_headroom(headroom)
    prefix = as_bytes_view(metadata)
    entries: list[bytes] = []
    parts: list[bytes | memoryview] = []
    room = _BODY_BYTES_MAX - len(prefix)
    position = 0
    for index, item in enumerate(messages):
        payload, id_bytes, user_headers, origin_us = message_parts(index, item, batch_origin_us)
        payload_length, user_headers_length = len(payload), len(user_headers)
        check_limits(index, payload_length, user_headers_length)
        position += HEADER.size + payload_length + user_headers_length
        if position + ENTRY.size * (index + 1) > room:
            raise ValueError(f"the batch is above the limit of {_BODY_BYTES_MAX} bytes")
        entries.append(ENTRY.pack(0, position, 0))
        parts += (
            HEADER.pack(0, id_bytes, 0, 0, origin_us, user_headers_length, payload_length, 0),
            payload,
            user_headers,
        )
    return bytearray().join([bytes(headroom), prefix, *entries, *parts])


def check_headroom(headroom: int) -> None:
    """Refuse an impossible headroom."""
    if not 0 <= integer(headroom, "headroom") <= _HEADROOM_BYTES_MAX:
        raise ValueError(f"headroom must be between 0 and {_HEADROOM_BYTES_MAX} bytes")


def message_parts(
    index: int, item: Any, batch_origin_us: int
) -> tuple[bytes | memoryview, bytes, bytes | memoryview, int]:
    """Take one item apart into payload, id, user headers and origin timestamp."""
    if not isinstance(item, tuple):
        return _as_buffer(index, item, "payload"), NO_ID, b"", batch_origin_us
    if len(item) != 4:
        raise TypeError(
            f"message {index}: a message must be a payload or a tuple of payload, id, "
            "user headers and origin timestamp"
        )
    payload = _as_buffer(index, item[0], "payload")
    id_number = unsigned(item[1], f"message {index}: id", ID_BYTES)
    user_headers = _as_buffer(index, item[2], "user headers")
    origin_us = batch_origin_us
    if item[3] is not None:
        origin_us = unsigned(item[3], f"message {index}: origin timestamp", 8)
    return payload, id_number.to_bytes(ID_BYTES, "little"), user_headers, origin_us


def _as_buffer(index: int, value: Any, name: str) -> bytes | memoryview:
    if type(value) is bytes:
        return value
    try:
        return as_bytes_view(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"message {index}: {name} must be bytes-like, not {kind}") from None


def check_limits(index: int, payload_bytes: int, user_headers_bytes: int) -> None:
    """Refuse a message that is too large."""
    if payload_bytes > PAYLOAD_BYTES_MAX:
        raise ValueError(
            f"message {index}: payload of {payload_bytes} bytes is above the limit of "
            f"{PAYLOAD_BYTES_MAX}"
        )
    if user_headers_bytes > USER_HEADERS_BYTES_MAX:
        raise ValueError(
            f"message {index}: user headers of {user_headers_bytes} bytes are above the limit of "
            f"{USER_HEADERS_BYTES_MAX}"
        )


# ---- validation of a SendMessages body


class InvalidBody(Exception):
    """A body that must not be stored, with the message or byte at fault."""

    def __init__(self, status: StatusCode, where: int) -> None:
        super().__init__(status, where)
        self.where = where
        self.answer = (int(status), where, 0, 0, 0, 0, 0, 0)


class _Metadata(NamedTuple):
    messages_count: int
    topic_at: int
    partitioning_at: int
    indexes_at: int
    messages_at: int


def inspect(body: Buffer, /) -> tuple[int, int, int, int, int, int, int, int]:
    """Check a SendMessages body in the order in which a server reports problems.

    Returns:
        status, where, count, topic_at, partitioning_at, indexes_at, messages_at, missing_ids.
        A status other than 0 refuses the body; ``where`` is then the byte (3, 6, 4009) or the
        message at fault, and the rest is 0.
    """
    memory = as_bytes_view(body)
    try:
        metadata = _inspect_metadata(memory)
        missing_ids = _inspect_messages(
            memory[metadata.indexes_at : metadata.messages_at], memory[metadata.messages_at :]
        )
    except InvalidBody as refused:
        return refused.answer
    return 0, 0, *metadata, missing_ids


def gather(
    frames: bytearray | memoryview, metadata: Buffer, frames_max: int, /
) -> tuple[int, int, int, int, int]:
    """Move the messages of SendMessages frames with equal metadata together.

    Frames are taken from the front as long as they are complete, small, valid and begin with these
    metadata; their messages are moved to the front, over the heads between them.

    Returns:
        How many frames were taken, their bytes, their messages, how many of those have no id, and
        the bytes of the messages.
    """
    memory, wanted = as_bytes_view(frames), bytes(metadata)
    if memory.readonly:
        raise BufferError("the frames cannot be moved")
    taken = consumed = messages_count = missing = end = 0
    while taken < frames_max:
        body = _next_send(memory[consumed:])
        if body is None or not begins_with(body, wanted):
            break
        status, _, count, _, _, _, messages_at, without_id = inspect(body)
        if status:
            break
        messages = bytes(body[messages_at:])
        memory[end : end + len(messages)] = messages
        taken, consumed, end = taken + 1, consumed + _FRAME.size + len(body), end + len(messages)
        messages_count, missing = messages_count + count, missing + without_id
    return taken, consumed, messages_count, missing, end


def _next_send(memory: memoryview) -> memoryview | None:
    """Return the body of the frame at the front if it is a complete, small SendMessages."""
    if len(memory) < _FRAME.size:
        return None
    length, code = _FRAME.unpack_from(memory)
    size = length + 4  # the length counts the code, but not itself
    if code != _SEND_MESSAGES or not _FRAME.size <= size <= min(len(memory), GATHERED_BYTES_MAX):
        return None
    return memory[_FRAME.size : size]


def begins_with(body: memoryview, metadata: bytes) -> bool:
    """Tell whether a body begins with these metadata, up to the count of messages."""
    size = len(metadata)
    announced = int.from_bytes(body[:4], "little")
    return len(body) >= size + 8 and announced == size + 4 and body[4 : 4 + size] == metadata


def read_metadata(memory: memoryview) -> tuple[int, int, int, int, int]:
    """Read everything before the index table.

    Returns:
        The number of messages, where topic, partitioning and count stand, and the end.
    """
    if len(memory) < 4:
        raise InvalidBody(StatusCode.INVALID_COMMAND, 0)
    end = 4 + int.from_bytes(memory[:4], "little")
    if end > len(memory):
        raise InvalidBody(StatusCode.INVALID_COMMAND, 0)
    topic_at = _skip_identifier(memory, 4, end)
    partitioning_at = _skip_identifier(memory, topic_at, end)
    count_at = _skip_partitioning(memory, partitioning_at, end)
    if end - count_at < 4:
        raise InvalidBody(StatusCode.INVALID_COMMAND, count_at)
    count = int.from_bytes(memory[count_at : count_at + 4], "little")
    return count, topic_at, partitioning_at, count_at, end


def _inspect_metadata(memory: memoryview) -> _Metadata:
    count, topic_at, partitioning_at, count_at, end = read_metadata(memory)
    messages_at = end + ENTRY.size * count
    if messages_at > len(memory):
        raise InvalidBody(StatusCode.INVALID_COMMAND, count_at)
    if count == 0:
        raise InvalidBody(StatusCode.INVALID_MESSAGES_COUNT, count_at)
    return _Metadata(count, topic_at, partitioning_at, end, messages_at)


def _skip_tagged(memory: memoryview, at: int, end: int) -> tuple[int, int, int]:
    """Read a kind, a length and a value; the returned end is above ``end`` if truncated."""
    if end - at < 2:
        return 0, 0, end + 1
    kind, length = memory[at], memory[at + 1]
    return kind, length, at + 2 + length


def _skip_identifier(memory: memoryview, at: int, end: int) -> int:
    kind, length, after = _skip_tagged(memory, at, end)
    is_number, is_name = (kind == 1 and length == 4), (kind == 2 and length > 0)
    if after > end or not (is_number or is_name):
        raise InvalidBody(StatusCode.INVALID_IDENTIFIER, at)
    return after


def _skip_partitioning(memory: memoryview, at: int, end: int) -> int:
    kind, length, after = _skip_tagged(memory, at, end)
    if after > end or not ((kind, length) in ((1, 0), (2, 4)) or kind == 3):
        raise InvalidBody(StatusCode.INVALID_COMMAND, at)
    return after


def _inspect_messages(indexes: memoryview, messages: memoryview) -> int:
    """Walk index entries and messages side by side; return how many ids are missing."""
    start = last_position = last_offset = missing_ids = 0
    first_oversized: int | None = None
    last = len(indexes) // ENTRY.size - 1
    for index, (offset, position, timestamp_us) in enumerate(ENTRY.iter_unpack(indexes)):
        if offset:
            raise InvalidBody(StatusCode.NON_ZERO_OFFSET, index)
        if timestamp_us:
            raise InvalidBody(StatusCode.NON_ZERO_TIMESTAMP, index)
        # As in Apache Iggy 0.8, the last message ends with the body, whatever its index entry says.
        end = len(messages) if index == last else position
        header, message_end = _inspect_message(index, messages, start, end)
        if header.offset < last_offset:
            raise InvalidBody(StatusCode.INVALID_OFFSET, index)
        if position < last_position:
            raise InvalidBody(StatusCode.CANNOT_READ_INDEX_POSITION, index)
        if message_end != end and first_oversized is None:
            first_oversized = index
        missing_ids += header.id == NO_ID
        start, last_position, last_offset = position, position, header.offset
    # The spans are contiguous, so the sizes add up exactly when no span is longer than its message.
    if first_oversized is not None:
        raise InvalidBody(StatusCode.INVALID_MESSAGES_SIZE, first_oversized)
    return missing_ids


def _inspect_message(index: int, messages: memoryview, start: int, end: int) -> tuple[Header, int]:
    """Check one message by itself; return its header and its actual end."""
    extent = extent_at(messages, start, end) if end <= len(messages) else None
    if extent is None:
        raise InvalidBody(StatusCode.MISSING_INDEX, index)
    header = header_at(messages, start)
    if header.payload_length > PAYLOAD_BYTES_MAX:
        raise InvalidBody(StatusCode.TOO_BIG_MESSAGE_PAYLOAD, index)
    if header.user_headers_length > USER_HEADERS_BYTES_MAX:
        raise InvalidBody(StatusCode.TOO_BIG_USER_HEADERS, index)
    return header, start + extent[1]
