"""Message batches in pure Python: the same functions and results as the C extension ``_batch``.

It is used where the C extension is missing or switched off, and it documents what the extension
does. Errors in a peer's bytes are returned as numbers; errors of the caller raise TypeError,
OverflowError, ValueError or BufferError. ``batch`` turns both into typed errors.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from iggy_protocol.batch_send_python import (
    ENTRY,
    ID_BYTES,
    NO_ID,
    encode,
    gather,
    inspect,
    integer,
    random_id,
    unsigned,
)
from iggy_protocol.batch_vsr_python import classic_records, classic_send, encode_vsr, vsr_batches
from iggy_protocol.batch_vsr_run_python import confirmations, gather_vsr
from iggy_protocol.message_columns import columns, header_pairs
from iggy_protocol.message_rows_python import (
    ContentIds,
    encode_rows,
    encode_rows_vsr,
    group_rows,
    header_blocks,
    message_at,
    row_partitions,
    split_rows,
)
from iggy_protocol.message_view import (
    MessageRecord,
    MessageView,
    as_bytes_view,
    extent_at,
    extents_of,
    header_at,
    message_checksum,
    reading,
    walk,
)

if TYPE_CHECKING:
    from iggy_protocol.layout import Buffer

__all__ = [
    "ContentIds",
    "MessageRecord",
    "MessageView",
    "allocate",
    "checksum",
    "classic_records",
    "classic_send",
    "columns",
    "confirmations",
    "encode",
    "encode_rows",
    "encode_rows_vsr",
    "encode_vsr",
    "gather",
    "gather_vsr",
    "group_rows",
    "header_blocks",
    "header_pairs",
    "index_entries",
    "inspect",
    "measure",
    "message_at",
    "payloads",
    "reading",
    "row_partitions",
    "split_rows",
    "stamp",
    "verify",
    "vsr_batches",
    "walk",
]

# Where ``stamp`` writes: the checksum comes first, then the id, then offset and timestamp.
_CHECKSUM, _ID, _OFFSET_AND_TIMESTAMP = slice(0, 8), slice(8, 24), slice(24, 40)
_U64_PAIR = struct.Struct("<QQ")


def checksum(data: Buffer, /) -> int:
    """XXH3-64 with seed 0 and the default secret."""
    return xxh3_64_intdigest(as_bytes_view(data))


def allocate(size: int, /) -> bytearray:
    """Make a bytearray whose content does not matter; the extension leaves it unset."""
    return bytearray(integer(size, "size"))


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
    first_offset = unsigned(base_offset, "base offset", 8)
    timestamp = unsigned(timestamp_us, "timestamp", 8)
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
        if message[_ID] == NO_ID:
            if len(entropy) < ID_BYTES:
                raise ValueError(f"message {count} needs an id, but no random bytes are left")
            message[_ID] = random_id(entropy)
            entropy = entropy[ID_BYTES:]
        message[_OFFSET_AND_TIMESTAMP] = _U64_PAIR.pack(first_offset + count, timestamp)
        message[_CHECKSUM] = message_checksum(message).to_bytes(8, "little")
        at += len(message)
        count += 1
    return count


def index_entries(messages: Buffer, relative_offset: int, position: int, /) -> bytearray:
    """Make the stored index entries of messages that are appended at a position of a log."""
    first_offset = unsigned(relative_offset, "relative offset", 8)
    start = unsigned(position, "position", 8)
    memory = as_bytes_view(messages)
    extents = list(extents_of(memory))
    last_offset = first_offset + max(len(extents) - 1, 0)
    if last_offset >= 1 << 32 or start + len(memory) >= 1 << 32:
        raise ValueError("an offset or position does not fit into 32 bits")
    entries = bytearray()
    for index, (at, _, size) in enumerate(extents):
        timestamp_us = header_at(memory, at).timestamp_us
        entries += ENTRY.pack(first_offset + index, start + at + size, timestamp_us)
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
