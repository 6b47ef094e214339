"""Batches of servers from 0.9 on in pure Python: to classic messages and back, and encoding.

A part of ``batch_python``; import from there. ``frame_view`` says how a batch lies in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from iggy_protocol.batch_send_python import (
    ENTRY,
    ID_BYTES,
    NO_ID,
    InvalidBody,
    check_headroom,
    check_limits,
    integer,
    message_parts,
    random_id,
    read_metadata,
    unsigned,
)
from iggy_protocol.frame_view import (
    BATCH_HEAD_BYTES,
    FRAME_BYTES,
    LIMIT_32,
    LIMIT_64,
    RECORD_SURPLUS,
    BatchHead,
    FrameHeader,
    RefusedBatch,
    VsrFault,
    batch_checksum,
    frames_of,
    read_head,
    seal_batch,
    write_frame,
)
from iggy_protocol.message_view import (
    CHECKSUM_BYTES,
    HEADER,
    HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    USER_HEADERS_BYTES_MAX,
    Header,
    NewMessage,
    as_bytes_view,
    extent_at,
    header_at,
    message_checksum,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_protocol.layout import Buffer


# A larger body might not fit into the 32 bits of the positions in a classic index.
VSR_SEND_BYTES_MAX = 1 << 30
# The frame's size is a u32 and counts its head of 256 bytes; the batch has one more of them.
_VSR_BODY_BYTES_MAX = 2**32 - 1 - 2 * BATCH_HEAD_BYTES
_PRODUCER_BITS = {"producer id": 63, "producer epoch": 15, "producer sequence": 31}


# ---- from a send of 0.9 to a classic one


def classic_send(
    body: Buffer, producers_allowed: bool, /
) -> tuple[int, int, bytearray | None, tuple[int, int, int] | None]:
    """Check the body of a send of 0.9 and write its classic form.

    Returns:
        A ``VsrFault``, the byte or message at fault, the classic body, and the producer if one is
        named.
    """
    try:
        made, producer = _classic_send(as_bytes_view(body), producers_allowed=producers_allowed)
    except RefusedBatch as refused:
        return int(refused.fault), refused.where, None, None
    return 0, 0, made, producer


def _classic_send(
    memory: memoryview, *, producers_allowed: bool
) -> tuple[bytearray, tuple[int, int, int] | None]:
    if len(memory) > VSR_SEND_BYTES_MAX:
        raise RefusedBatch(VsrFault.TOO_LARGE, 0)
    try:
        announced, _, _, count_at, end = read_metadata(memory)
    except InvalidBody as invalid:
        raise RefusedBatch(VsrFault.METADATA, invalid.where) from None
    if end != count_at + 4:
        raise RefusedBatch(VsrFault.METADATA, count_at)
    batch = memory[end:]
    head = read_head(batch, end, producers_allowed=producers_allowed)
    if head.length != len(batch):
        raise RefusedBatch(VsrFault.LENGTH, end)
    if head.partition_id or head.base_offset or head.timestamp_us:
        raise RefusedBatch(VsrFault.STAMPED, end)
    frames = _inspect_frames(head, batch, announced, end)
    entries, records, position = bytearray(), bytearray(), 0
    for index, (frame, whole) in enumerate(frames):
        if frame.checksum != xxh3_64_intdigest(whole[CHECKSUM_BYTES:]):
            raise RefusedBatch(VsrFault.MESSAGE_CHECKSUM, index)
        origin_us = head.origin_timestamp_us + frame.origin_delta_us
        records += _record_header(frame, 0, 0, 0, origin_us) + whole[FRAME_BYTES:]
        position += frame.size + RECORD_SURPLUS
        entries += ENTRY.pack(0, position, 0)
    if head.checksum != batch_checksum(head, [frame.checksum for frame, _ in frames]):
        raise RefusedBatch(VsrFault.BATCH_CHECKSUM, end)
    return bytearray().join([memory[:end], entries, records]), head.producer


def _inspect_frames(
    head: BatchHead, batch: memoryview, announced: int, batch_at: int
) -> list[tuple[FrameHeader, memoryview]]:
    """Check the frames of a send, sizes after everything else."""
    frames: list[tuple[FrameHeader, memoryview]] = []
    for index, pair in enumerate(frames_of(head, batch, first=0, step=False)):
        if pair[0].offset_delta != index:
            raise RefusedBatch(VsrFault.DELTA, index)
        frames.append(pair)
    if not len(frames) == head.messages_count == announced:
        raise RefusedBatch(VsrFault.COUNT, batch_at)
    if not frames:
        raise RefusedBatch(VsrFault.NO_MESSAGES, batch_at)
    for index, (frame, _) in enumerate(frames):
        if frame.payload_length > PAYLOAD_BYTES_MAX:
            raise RefusedBatch(VsrFault.PAYLOAD_TOO_LARGE, index)
        if frame.user_headers_length > USER_HEADERS_BYTES_MAX:
            raise RefusedBatch(VsrFault.HEADERS_TOO_LARGE, index)
    return frames


def _record_header(
    frame: FrameHeader, checksum: int, offset: int, timestamp_us: int, origin_us: int
) -> bytes:
    lengths = frame.user_headers_length, frame.payload_length
    return HEADER.pack(checksum, frame.id, offset, timestamp_us, origin_us, *lengths, 0)


# ---- from batches to records


def classic_records(
    batches: Buffer, producers_allowed: bool, verify: bool, /
) -> tuple[bytearray, int, int, int]:
    """Write the records of polled batches, up to the first batch that cannot be read.

    A frame whose own checksum is wrong gets a record whose checksum is wrong in the same bits, so
    that the damage is found where records are verified; without ``verify`` all are right.

    Returns:
        The records, how many there are, a ``VsrFault``, and the byte at fault.
    """
    memory = as_bytes_view(batches)
    records, count, at = bytearray(), 0, 0
    while at < len(memory):
        try:
            head = read_head(memory[at:], at, producers_allowed=producers_allowed)
            made = _records_of(head, memory[at : at + head.length], at, verify=verify)
        except RefusedBatch as refused:
            return records, count, int(refused.fault), refused.where
        records += b"".join(made)
        count += len(made)
        at += head.length
    return records, count, 0, 0


def _records_of(head: BatchHead, batch: memoryview, at: int, *, verify: bool) -> list[bytes]:
    """Write the records of one batch, which begins at byte ``at``."""
    made: list[bytes] = []
    where = at + BATCH_HEAD_BYTES
    for frame, whole in frames_of(head, batch, first=where, step=True):
        offset = head.base_offset + frame.offset_delta
        if offset >= LIMIT_64:
            raise RefusedBatch(VsrFault.OVERFLOW, where)
        origin_us = head.origin_timestamp_us + frame.origin_delta_us
        header = _record_header(frame, 0, offset, head.timestamp_us, origin_us)
        rest = header[CHECKSUM_BYTES:] + whole[FRAME_BYTES:]
        checksum = xxh3_64_intdigest(rest)
        if verify:
            checksum ^= xxh3_64_intdigest(whole[CHECKSUM_BYTES:]) ^ frame.checksum
        made.append(checksum.to_bytes(CHECKSUM_BYTES, "little") + rest)
        where += frame.size
    if len(made) != head.messages_count:
        raise RefusedBatch(VsrFault.COUNT, at)
    return made


# ---- from records to batches


class _Run:
    """Records that one batch can hold: of one timestamp, with deltas of 32 bits."""

    def __init__(self, header: Header) -> None:
        self.base_offset = header.offset
        self.timestamp_us = header.timestamp_us
        self.first_origin_us = self.last_origin_us = header.origin_timestamp_us
        self.records: list[tuple[Header, memoryview]] = []

    def may_hold(self, header: Header) -> bool:
        """Tell whether a record fits into this batch."""
        first_us = min(self.first_origin_us, header.origin_timestamp_us)
        last_us = max(self.last_origin_us, header.origin_timestamp_us)
        return (
            header.timestamp_us == self.timestamp_us
            and last_us - first_us < LIMIT_32
            and 0 <= header.offset - self.base_offset < LIMIT_32
        )

    def add(self, header: Header, record: memoryview) -> None:
        """Add a record that fits."""
        self.first_origin_us = min(self.first_origin_us, header.origin_timestamp_us)
        self.last_origin_us = max(self.last_origin_us, header.origin_timestamp_us)
        self.records.append((header, record))


def vsr_batches(
    records: Buffer, partition_id: int, bytes_max: int, verify: bool, /
) -> tuple[bytearray, int, int, bool]:
    """Write stored records as batches, as many as fit.

    Returns:
        The batches, how many records are in them and how many bytes those have, and whether a
        damaged record follows them: one that is cut or, with ``verify``, has a wrong checksum.
    """
    partition = unsigned(partition_id, "partition id", 8)
    room = unsigned(bytes_max, "byte limit", 8)
    memory = as_bytes_view(records)
    runs: list[_Run] = []
    at, count, is_damaged = 0, 0, False
    while at < len(memory):
        extent = extent_at(memory, at, len(memory))
        if extent is None:
            is_damaged = True
            break
        record = memory[at : at + extent[1]]
        header = header_at(record, 0)
        needed = len(record) - RECORD_SURPLUS
        begins = not (runs and runs[-1].may_hold(header))
        needed += BATCH_HEAD_BYTES if begins else 0
        if needed > room:
            break
        if verify and message_checksum(record) != header.checksum:
            is_damaged = True
            break
        if begins:
            runs.append(_Run(header))
        runs[-1].add(header, record)
        room, at, count = room - needed, at + len(record), count + 1
    batches = bytearray().join([_write_batch(run, partition) for run in runs])
    return batches, count, at, is_damaged


def _write_batch(run: _Run, partition_id: int) -> bytes:
    frames = [
        write_frame(
            header.id,
            header.offset - run.base_offset,
            header.origin_timestamp_us - run.first_origin_us,
            record[HEADER_BYTES : HEADER_BYTES + header.payload_length],
            record[HEADER_BYTES + header.payload_length :],
        )
        for header, record in run.records
    ]
    return seal_batch(
        frames, (partition_id, run.base_offset, run.timestamp_us), run.first_origin_us, None
    )


# ---- encoding


def encode_vsr(
    metadata: bytes,
    messages: Sequence[Buffer | NewMessage],
    origin_timestamp_us: int,
    headroom: int,
    random: Buffer,
    producer: tuple[int, int, int] | None,
    /,
) -> bytearray:
    """Build a request body of 0.9: headroom, metadata, one batch."""
    batch_origin_us = unsigned(origin_timestamp_us, "origin timestamp", 8)
    check_headroom(headroom)
    _check_producer(producer)
    entropy = as_bytes_view(random)
    prefix = as_bytes_view(metadata)
    parts = _parts_of(list(messages), batch_origin_us, _VSR_BODY_BYTES_MAX - len(prefix))
    first_us = min(origin_us for _, _, _, origin_us in parts)
    frames: list[bytes] = []
    for index, (payload, id_bytes, user_headers, origin_us) in enumerate(parts):
        if origin_us - first_us >= LIMIT_32:
            raise ValueError(
                f"message {index}: origin timestamp is too long after the earliest of the batch"
            )
        chosen = id_bytes
        if id_bytes == NO_ID:
            if len(entropy) < ID_BYTES:
                raise ValueError(f"message {index} needs an id, but no random bytes are left")
            chosen, entropy = random_id(entropy), entropy[ID_BYTES:]
        frames.append(write_frame(chosen, index, origin_us - first_us, payload, user_headers))
    batch = seal_batch(frames, (0, 0, 0), first_us, producer)
    return bytearray().join([bytes(headroom), prefix, batch])


def _parts_of(
    messages: list[Buffer | NewMessage], batch_origin_us: int, room: int
) -> list[tuple[bytes | memoryview, bytes, bytes | memoryview, int]]:
    """Take all messages apart and check their sizes."""
    if not messages:
        raise ValueError("a batch has at least one message")
    taken = []
    for index, item in enumerate(messages):
        parts = message_parts(index, item, batch_origin_us)
        check_limits(index, len(parts[0]), len(parts[2]))
        room -= FRAME_BYTES + len(parts[0]) + len(parts[2])
        if room < 0:
            raise ValueError(f"the batch is above the limit of {_VSR_BODY_BYTES_MAX} bytes")
        taken.append(parts)
    return taken


def _check_producer(producer: object) -> None:
    if producer is None:
        return
    if not isinstance(producer, tuple) or len(producer) != 3:
        raise TypeError("a producer is its id, its epoch and a sequence")
    for (name, bits), value in zip(_PRODUCER_BITS.items(), producer, strict=True):
        if not 0 <= integer(value, name) < 1 << bits:
            raise OverflowError(f"{name} does not fit into {bits} bits")
