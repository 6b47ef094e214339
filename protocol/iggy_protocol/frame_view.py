"""Batches of servers from 0.9 on as they lie in memory: heads, frames, checksums.

A part of ``batch_python``; import from there. A batch is a head of 256 bytes and frames:

    batch  0 partition  8 base offset  16 timestamp  24 origin  32 length  40 checksum   (u64 each)
           48 u32 count | 52 producer section of 20 bytes, or zero | 72 zero | 256 frames
    frame  0 u64 checksum  8 id  24 u32 offset delta  28 u32 origin delta
           32 u32 headers length  36 u32 payload length  40 zero | 48 payload, headers

A frame is 16 bytes shorter than the classic form of its message (``message_view``); what it lacks
stands once in the head of the batch.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import TYPE_CHECKING, NamedTuple

from construct import Bytes, Int8ul, Int16ul, Int32ul, Int64ul, Struct
from xxhash import xxh3_64, xxh3_64_intdigest

from iggy_protocol.layout import derive_struct
from iggy_protocol.message_view import CHECKSUM_BYTES, HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


BATCH_HEAD = Struct(
    "partition_id" / Int64ul,
    "base_offset" / Int64ul,
    "timestamp_us" / Int64ul,
    "origin_timestamp_us" / Int64ul,
    "length" / Int64ul,
    "checksum" / Int64ul,
    "messages_count" / Int32ul,
    "has_producer" / Int8ul,
    "reserved_1" / Bytes(3),
    "producer_id" / Int64ul,
    "epoch" / Int16ul,
    "reserved_2" / Bytes(2),
    "sequence" / Int32ul,
    "reserved_3" / Bytes(184),
)
FRAME_HEADER = Struct(
    "checksum" / Int64ul,  # XXH3-64 over all bytes of the frame after this field
    "id" / Bytes(16),
    "offset_delta" / Int32ul,
    "origin_delta_us" / Int32ul,
    "user_headers_length" / Int32ul,
    "payload_length" / Int32ul,
    "reserved" / Int64ul,
)
_HEAD, _HEAD_FIELDS = derive_struct(BATCH_HEAD)
_FRAME, _FRAME_FIELDS = derive_struct(FRAME_HEADER)
BATCH_HEAD_BYTES = _HEAD.size
FRAME_BYTES = _FRAME.size
RECORD_SURPLUS = HEADER_BYTES - FRAME_BYTES
LIMIT_32 = 2**32
LIMIT_64 = 2**64

# What the checksum of a batch covers of its head.
_SEALED, _ = derive_struct(Struct(*BATCH_HEAD.subcons[:5], "messages_count" / Int32ul))
_SEALED_PRODUCER, _ = derive_struct(
    Struct("present" / Int8ul, "id" / Int64ul, "epoch" / Int16ul, "sequence" / Int32ul)
)


@unique
class VsrFault(IntEnum):
    """Why a batch is refused; the numbers that both implementations return."""

    NONE = 0
    METADATA = 1
    HEAD_CUT = 2
    LENGTH = 3
    RESERVED = 4
    STAMPED = 5
    MESSAGE_CUT = 6
    DELTA = 7
    MESSAGE_RESERVED = 8
    OVERFLOW = 9
    COUNT = 10
    NO_MESSAGES = 11
    PAYLOAD_TOO_LARGE = 12
    HEADERS_TOO_LARGE = 13
    MESSAGE_CHECKSUM = 14
    BATCH_CHECKSUM = 15
    TOO_LARGE = 16
    CHANGED = 17  # only the C extension finds that: it works while other threads run


class RefusedBatch(Exception):
    """A batch that cannot be read, with the message or byte at fault."""

    def __init__(self, fault: VsrFault, where: int) -> None:
        super().__init__(fault, where)
        self.fault = fault
        self.where = where


class BatchHead(NamedTuple):
    """The fields of the head of a batch, in the order of their bytes."""

    partition_id: int
    base_offset: int
    timestamp_us: int
    origin_timestamp_us: int
    length: int
    checksum: int
    messages_count: int
    has_producer: int
    reserved_1: bytes
    producer_id: int
    epoch: int
    reserved_2: bytes
    sequence: int
    reserved_3: bytes

    @property
    def producer(self) -> tuple[int, int, int] | None:
        """Producer id, epoch and sequence, if the batch names them."""
        return (self.producer_id, self.epoch, self.sequence) if self.has_producer else None


class FrameHeader(NamedTuple):
    """The fields in front of a message, in the order of their bytes."""

    checksum: int
    id: bytes
    offset_delta: int
    origin_delta_us: int
    user_headers_length: int
    payload_length: int
    reserved: int

    @property
    def size(self) -> int:
        """Bytes of the whole frame."""
        return FRAME_BYTES + self.user_headers_length + self.payload_length


assert BatchHead._fields == _HEAD_FIELDS
assert FrameHeader._fields == _FRAME_FIELDS


def read_head(batch: memoryview, where: int, *, producers_allowed: bool) -> BatchHead:
    """Read and check the head of a batch that may reach to the end of the bytes."""
    if len(batch) < BATCH_HEAD_BYTES:
        raise RefusedBatch(VsrFault.HEAD_CUT, where)
    head = BatchHead._make(_HEAD.unpack_from(batch))
    if not BATCH_HEAD_BYTES <= head.length <= len(batch):
        raise RefusedBatch(VsrFault.LENGTH, where)
    has_producer = producers_allowed and head.has_producer == 1
    are_reserved_zero = not any((*head.reserved_1, *head.reserved_2, *head.reserved_3))
    is_producer_valid = (
        head.producer_id < 1 << 63 and head.epoch < 1 << 15 and head.sequence < 1 << 31
        if has_producer
        else not (head.has_producer or head.producer_id or head.epoch or head.sequence)
    )
    if not (are_reserved_zero and is_producer_valid):
        raise RefusedBatch(VsrFault.RESERVED, where)
    return head


def batch_checksum(head: BatchHead, frame_checksums: Iterable[int]) -> int:
    """Compute what the checksum of a batch should be."""
    hashed = xxh3_64(_SEALED.pack(*head[:5], head.messages_count))
    if head.producer is not None:
        hashed.update(_SEALED_PRODUCER.pack(1, *head.producer))
    for checksum in frame_checksums:
        hashed.update(checksum.to_bytes(8, "little"))
    return hashed.intdigest()


def frames_of(
    head: BatchHead, batch: memoryview, *, first: int, step: bool
) -> Iterator[tuple[FrameHeader, memoryview]]:
    """Iterate over the frames of a batch, checking that they tile it.

    Args:
        head: the head of the batch.
        batch: the whole batch.
        first: what a fault names: the number of the first message, or the byte where it stands.
        step: whether faults name bytes.
    """
    at, where = BATCH_HEAD_BYTES, first
    while at < len(batch):
        if len(batch) - at < FRAME_BYTES:
            raise RefusedBatch(VsrFault.MESSAGE_CUT, where)
        frame = FrameHeader._make(_FRAME.unpack_from(batch, at))
        if frame.size > len(batch) - at:
            raise RefusedBatch(VsrFault.MESSAGE_CUT, where)
        if frame.reserved:
            raise RefusedBatch(VsrFault.MESSAGE_RESERVED, where)
        if head.origin_timestamp_us + frame.origin_delta_us >= LIMIT_64:
            raise RefusedBatch(VsrFault.OVERFLOW, where)
        yield frame, batch[at : at + frame.size]
        at += frame.size
        where += frame.size if step else 1


def write_frame(
    id_bytes: bytes,
    offset_delta: int,
    origin_delta_us: int,
    payload: bytes | memoryview,
    user_headers: bytes | memoryview,
) -> bytes:
    """Write a frame with its checksum."""
    header = _FRAME.pack(
        0, id_bytes, offset_delta, origin_delta_us, len(user_headers), len(payload), 0
    )
    rest = b"".join([header[CHECKSUM_BYTES:], payload, user_headers])
    return xxh3_64_intdigest(rest).to_bytes(CHECKSUM_BYTES, "little") + rest


def seal_batch(
    frames: list[bytes],
    stamped: tuple[int, int, int],
    origin_us: int,
    producer: tuple[int, int, int] | None,
) -> bytes:
    """Write the head of a batch with its checksum, and the frames behind it."""
    length = BATCH_HEAD_BYTES + sum(map(len, frames))
    producer_id, epoch, sequence = producer or (0, 0, 0)
    head = BatchHead(
        *stamped, origin_us, length, 0, len(frames),
        int(producer is not None), bytes(3), producer_id, epoch, bytes(2), sequence, bytes(184),
    )  # fmt: skip
    checksums = (int.from_bytes(frame[:CHECKSUM_BYTES], "little") for frame in frames)
    head = head._replace(checksum=batch_checksum(head, checksums))
    return b"".join([_HEAD.pack(*head), *frames])
