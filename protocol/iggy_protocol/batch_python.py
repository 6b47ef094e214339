"""Message batches in pure Python: the same functions and results as the C extension ``_batch``.

It is used where the C extension is missing or switched off, and it documents what the extension
does. Errors in a peer's bytes are returned as numbers; errors of the caller raise TypeError,
OverflowError, ValueError or BufferError. ``batch`` turns both into typed errors.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from xxhash import xxh3_64_intdigest

from iggy_protocol.codes import CommandCode
from iggy_protocol.layout import Buffer, derive_struct
from iggy_protocol.message_columns import columns, header_pairs
from iggy_protocol.message_view import (
    HEADER,
    INDEX_ENTRY,
    PAYLOAD_BYTES_MAX,
    USER_HEADERS_BYTES_MAX,
    Header,
    MessageRecord,
    MessageView,
    NewMessage,
    as_bytes_view,
    extent_at,
    extents_of,
    header_at,
    message_checksum,
    reading,
    walk,
)
from iggy_protocol.status_table import StatusCode

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = [
    "MessageRecord",
    "MessageView",
    "allocate",
    "checksum",
    "columns",
    "encode",
    "gather",
    "header_pairs",
    "index_entries",
    "inspect",
    "measure",
    "payloads",
    "reading",
    "stamp",
    "verify",
    "walk",
]

_ENTRY, _ = derive_struct(INDEX_ENTRY)
_FRAME = struct.Struct("<II")
_SEND_MESSAGES = int(CommandCode.SEND_MESSAGES)
_GATHERED_BYTES_MAX = 1 << 14  # moving a larger frame costs more than it saves
_ID_BYTES = 16
_NO_ID = bytes(_ID_BYTES)

# Where ``stamp`` writes: the checksum comes first, then the id, then offset and timestamp.
_CHECKSUM, _ID, _OFFSET_AND_TIMESTAMP = slice(0, 8), slice(8, 24), slice(24, 40)
_U64_PAIR = struct.Struct("<QQ")

_HEADROOM_BYTES_MAX = 4096
# The frame's length field is a u32 and counts the four bytes of the command code as well.
_BODY_BYTES_MAX = 2**32 - 1 - 4


# ---- arguments


def _integer(value: object, name: str) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    return value


def _unsigned(value: object, name: str, size: int) -> int:
    number = _integer(value, name)
    if not 0 <= number < 1 << 8 * size:
        raise OverflowError(f"{name} does not fit into {8 * size} bits")
    return number


def checksum(data: Buffer, /) -> int:
    """XXH3-64 with seed 0 and the default secret."""
    return xxh3_64_intdigest(as_bytes_view(data))


def allocate(size: int, /) -> bytearray:
    """Make a bytearray whose content does not matter; the extension leaves it unset."""
    return bytearray(_integer(size, "size"))


# ---- encoding


def encode(
    metadata: bytes,
    messages: Sequence[Buffer | NewMessage],
    origin_timestamp_us: int,
    headroom: int,
    /,
) -> bytearray:
    """Build a request body: headroom, metadata, index entries, messages."""
    batch_origin_us = _unsigned(origin_timestamp_us, "origin timestamp", 8)
    if not 0 <= _integer(headroom, "headroom") <= _HEADROOM_BYTES_MAX:
        raise ValueError(f"headroom must be between 0 and {_HEADROOM_BYTES_MAX} bytes")
    prefix = as_bytes_view(metadata)
    entries: list[bytes] = []
    parts: list[bytes | memoryview] = []
    room = _BODY_BYTES_MAX - len(prefix)
    position = 0
    for index, item in enumerate(messages):
        payload, id_bytes, user_headers, origin_us = _message_parts(index, item, batch_origin_us)
        payload_length, user_headers_length = len(payload), len(user_headers)
        _check_limits(index, payload_length, user_headers_length)
        position += HEADER.size + payload_length + user_headers_length
        if position + _ENTRY.size * (index + 1) > room:
            raise ValueError(f"the batch is above the limit of {_BODY_BYTES_MAX} bytes")
        entries.append(_ENTRY.pack(0, position, 0))
        parts += (
            HEADER.pack(0, id_bytes, 0, 0, origin_us, user_headers_length, payload_length, 0),
            payload,
            user_headers,
        )
    return bytearray().join([bytes(headroom), prefix, *entries, *parts])


def _message_parts(
    index: int, item: Any, batch_origin_us: int
) -> tuple[bytes | memoryview, bytes, bytes | memoryview, int]:
    """Take one item apart into payload, id, user headers and origin timestamp."""
    if not isinstance(item, tuple):
        return _as_buffer(index, item, "payload"), _NO_ID, b"", batch_origin_us
    if len(item) != 4:
        raise TypeError(
            f"message {index}: a message must be a payload or a tuple of payload, id, "
            "user headers and origin timestamp"
        )
    payload = _as_buffer(index, item[0], "payload")
    id_number = _unsigned(item[1], f"message {index}: id", _ID_BYTES)
    user_headers = _as_buffer(index, item[2], "user headers")
    origin_us = batch_origin_us
    if item[3] is not None:
        origin_us = _unsigned(item[3], f"message {index}: origin timestamp", 8)
    return payload, id_number.to_bytes(_ID_BYTES, "little"), user_headers, origin_us


def _as_buffer(index: int, value: Any, name: str) -> bytes | memoryview:
    if type(value) is bytes:
        return value
    try:
        return as_bytes_view(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"message {index}: {name} must be bytes-like, not {kind}") from None


def _check_limits(index: int, payload_bytes: int, user_headers_bytes: int) -> None:
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


class _InvalidBody(Exception):
    """A body that must not be stored, with the message or byte at fault."""

    def __init__(self, status: StatusCode, where: int) -> None:
        super().__init__(status, where)
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
    except _InvalidBody as refused:
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
        if body is None or not _begins_with(body, wanted):
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
    if code != _SEND_MESSAGES or not _FRAME.size <= size <= min(len(memory), _GATHERED_BYTES_MAX):
        return None
    return memory[_FRAME.size : size]


def _begins_with(body: memoryview, metadata: bytes) -> bool:
    """Tell whether a body begins with these metadata, up to the count of messages."""
    size = len(metadata)
    announced = int.from_bytes(body[:4], "little")
    return len(body) >= size + 8 and announced == size + 4 and body[4 : 4 + size] == metadata


def _inspect_metadata(memory: memoryview) -> _Metadata:
    """Read everything before the index table."""
    if len(memory) < 4:
        raise _InvalidBody(StatusCode.INVALID_COMMAND, 0)
    end = 4 + int.from_bytes(memory[:4], "little")
    if end > len(memory):
        raise _InvalidBody(StatusCode.INVALID_COMMAND, 0)
    topic_at = _skip_identifier(memory, 4, end)
    partitioning_at = _skip_identifier(memory, topic_at, end)
    count_at = _skip_partitioning(memory, partitioning_at, end)
    if end - count_at < 4:
        raise _InvalidBody(StatusCode.INVALID_COMMAND, count_at)
    count = int.from_bytes(memory[count_at : count_at + 4], "little")
    messages_at = end + _ENTRY.size * count
    if messages_at > len(memory):
        raise _InvalidBody(StatusCode.INVALID_COMMAND, count_at)
    if count == 0:
        raise _InvalidBody(StatusCode.INVALID_MESSAGES_COUNT, count_at)
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
        raise _InvalidBody(StatusCode.INVALID_IDENTIFIER, at)
    return after


def _skip_partitioning(memory: memoryview, at: int, end: int) -> int:
    kind, length, after = _skip_tagged(memory, at, end)
    if after > end or not ((kind, length) in ((1, 0), (2, 4)) or kind == 3):
        raise _InvalidBody(StatusCode.INVALID_COMMAND, at)
    return after


def _inspect_messages(indexes: memoryview, messages: memoryview) -> int:
    """Walk index entries and messages side by side; return how many ids are missing."""
    start = last_position = last_offset = missing_ids = 0
    first_oversized: int | None = None
    last = len(indexes) // _ENTRY.size - 1
    for index, (offset, position, timestamp_us) in enumerate(_ENTRY.iter_unpack(indexes)):
        if offset:
            raise _InvalidBody(StatusCode.NON_ZERO_OFFSET, index)
        if timestamp_us:
            raise _InvalidBody(StatusCode.NON_ZERO_TIMESTAMP, index)
        # As in Apache Iggy 0.8, the last message ends with the body, whatever its index entry says.
        end = len(messages) if index == last else position
        header, message_end = _inspect_message(index, messages, start, end)
        if header.offset < last_offset:
            raise _InvalidBody(StatusCode.INVALID_OFFSET, index)
        if position < last_position:
            raise _InvalidBody(StatusCode.CANNOT_READ_INDEX_POSITION, index)
        if message_end != end and first_oversized is None:
            first_oversized = index
        missing_ids += header.id == _NO_ID
        start, last_position, last_offset = position, position, header.offset
    # The spans are contiguous, so the sizes add up exactly when no span is longer than its message.
    if first_oversized is not None:
        raise _InvalidBody(StatusCode.INVALID_MESSAGES_SIZE, first_oversized)
    return missing_ids


def _inspect_message(index: int, messages: memoryview, start: int, end: int) -> tuple[Header, int]:
    """Check one message by itself; return its header and its actual end."""
    extent = extent_at(messages, start, end) if end <= len(messages) else None
    if extent is None:
        raise _InvalidBody(StatusCode.MISSING_INDEX, index)
    header = header_at(messages, start)
    if header.payload_length > PAYLOAD_BYTES_MAX:
        raise _InvalidBody(StatusCode.TOO_BIG_MESSAGE_PAYLOAD, index)
    if header.user_headers_length > USER_HEADERS_BYTES_MAX:
        raise _InvalidBody(StatusCode.TOO_BIG_USER_HEADERS, index)
    return header, start + extent[1]


# ---- stamping and storing


def stamp(
    messages: bytearray | memoryview,
    base_offset: int,
    timestamp_us: int,
    random: Buffer,
    /,
) -> int:
    """Write offsets, timestamp, missing ids and checksums in place; return the count.

    On ValueError the messages before the one at fault are already stamped.
    """
    first_offset = _unsigned(base_offset, "base offset", 8)
    timestamp = _unsigned(timestamp_us, "timestamp", 8)
    entropy = as_bytes_view(random)
    memory = as_bytes_view(messages)
    if memory.readonly:
        raise BufferError("the messages are read-only")
    at, end, count = 0, len(memory), 0
    while at < end:
        extent = extent_at(memory, at, end)
        if extent is None:
            raise ValueError(f"message {count} does not fit into the bytes given")
        if first_offset + count >= 1 << 64:
            raise ValueError(f"message {count}: offset does not fit into 64 bits")
        message = memory[at : at + extent[1]]
        if message[_ID] == _NO_ID:
            if len(entropy) < _ID_BYTES:
                raise ValueError(f"message {count} needs an id, but no random bytes are left")
            message[_ID] = _random_id(entropy)
            entropy = entropy[_ID_BYTES:]
        message[_OFFSET_AND_TIMESTAMP] = _U64_PAIR.pack(first_offset + count, timestamp)
        message[_CHECKSUM] = message_checksum(message).to_bytes(8, "little")
        at += len(message)
        count += 1
    return count


def _random_id(entropy: memoryview) -> bytes:
    """Turn 16 random bytes into a UUID of version 4, in text order."""
    made = bytearray(entropy[:_ID_BYTES])
    made[6] = made[6] & 0x0F | 0x40
    made[8] = made[8] & 0x3F | 0x80
    return bytes(made)


def index_entries(messages: Buffer, relative_offset: int, position: int, /) -> bytearray:
    """Make the stored index entries of messages that are appended at a position of a log."""
    first_offset = _unsigned(relative_offset, "relative offset", 8)
    start = _unsigned(position, "position", 8)
    memory = as_bytes_view(messages)
    extents = list(extents_of(memory))
    last_offset = first_offset + max(len(extents) - 1, 0)
    if last_offset >= 1 << 32 or start + len(memory) >= 1 << 32:
        raise ValueError("an offset or position does not fit into 32 bits")
    entries = bytearray()
    for index, (at, _, size) in enumerate(extents):
        timestamp_us = header_at(memory, at).timestamp_us
        entries += _ENTRY.pack(first_offset + index, start + at + size, timestamp_us)
    return entries


# ---- reading


def measure(messages: Buffer, /) -> tuple[int, int, int]:
    """Return the number of whole messages, their size, and the start of the last one."""
    memory = as_bytes_view(messages)
    whole, end, count, last_at = 0, len(memory), 0, 0
    while (extent := extent_at(memory, whole, end)) is not None:
        count += 1
        last_at = whole
        whole += extent[1]
    return count, whole, last_at


def verify(messages: Buffer, /) -> int:
    """Return the first message with a wrong checksum or a truncated end; -1 if there is none."""
    memory = as_bytes_view(messages)
    at, end, count = 0, len(memory), 0
    while at < end:
        extent = extent_at(memory, at, end)
        if extent is None:
            return count
        message = memory[at : at + extent[1]]
        if message[_CHECKSUM] != message_checksum(message).to_bytes(8, "little"):
            return count
        at += len(message)
        count += 1
    return -1


def payloads(messages: Buffer, /) -> list[bytes]:
    """Copy all payloads; ValueError at a cut tail."""
    return [bytes(view.payload) for view in walk(messages)]
