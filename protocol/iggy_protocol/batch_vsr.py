"""Message batches of servers from 0.9 on: from and to the classic form, whole batches at a time.

Messages have one form in memory and on disk, the classic one; ``MessageBatch``, the views and the
columns know no other. This module converts at the edge of the wire: what a client sends becomes a
classic body, stored messages become the batches of a poll, and those become messages again. It
turns the numbers of the two implementations into the errors of this package.

This module has no commands and no connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_protocol.batch import SendRun, implementation
from iggy_protocol.errors import (
    INVALID_FORMAT,
    InvalidBatch,
    InvalidField,
    LocalProtocolError,
    TruncatedField,
)
from iggy_protocol.frame_view import BATCH_HEAD_BYTES, FRAME_BYTES, VsrFault
from iggy_protocol.message_view import as_bytes_view
from iggy_protocol.status_table import StatusCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iggy_protocol.layout import Buffer
    from iggy_protocol.message_view import NewMessage


SMALLEST_BATCH_BYTES: Final = BATCH_HEAD_BYTES + FRAME_BYTES
"""A batch of one message without content."""

UNLIMITED_BYTES: Final = 2**64 - 1

# Why a batch is refused. The number is a message in those that say so, else a byte.
_REASONS: Mapping[int, str] = {
    VsrFault.METADATA: "the metadata cannot be read from byte {} on",
    VsrFault.HEAD_CUT: "the head of the batch at byte {} is cut",
    VsrFault.LENGTH: "the batch at byte {} has another length than it says",
    VsrFault.RESERVED: "the batch at byte {} has reserved bytes that are not zero",
    VsrFault.STAMPED: "the batch at byte {} has fields that only a server assigns",
    VsrFault.MESSAGE_CUT: "message {} does not end inside its batch",
    VsrFault.DELTA: "message {} has an offset that is not its place in the batch",
    VsrFault.MESSAGE_RESERVED: "message {} has reserved bytes that are not zero",
    VsrFault.OVERFLOW: "message {} has an offset or a time above 64 bits",
    VsrFault.COUNT: "the batch at byte {} has another number of messages than announced",
    VsrFault.NO_MESSAGES: "the batch at byte {} has no messages",
    VsrFault.PAYLOAD_TOO_LARGE: "message {} has too large a payload",
    VsrFault.HEADERS_TOO_LARGE: "message {} has too many bytes of user headers",
    VsrFault.MESSAGE_CHECKSUM: "message {} does not match its checksum",
    VsrFault.BATCH_CHECKSUM: "the batch at byte {} does not match its checksum",
    VsrFault.TOO_LARGE: "the body is too large from byte {} on",
    VsrFault.CHANGED: "the bytes from {} on changed while they were read",
}
_STATUSES: Mapping[int, int] = {
    VsrFault.NO_MESSAGES: StatusCode.INVALID_MESSAGES_COUNT,
    VsrFault.PAYLOAD_TOO_LARGE: StatusCode.TOO_BIG_MESSAGE_PAYLOAD,
    VsrFault.HEADERS_TOO_LARGE: StatusCode.TOO_BIG_USER_HEADERS,
    VsrFault.MESSAGE_CHECKSUM: StatusCode.INVALID_MESSAGE_CHECKSUM,
    VsrFault.BATCH_CHECKSUM: StatusCode.INVALID_BATCH_CHECKSUM,
}


class ProducerSequence(NamedTuple):
    """The position of a batch in what one producer sends to one partition, since 0.10.

    Attributes:
        producer_id: below 2**63.
        epoch: below 2**15; a new one begins when the server has forgotten the producer.
        sequence: number of the first message, below 2**31.
    """

    producer_id: int
    epoch: int
    sequence: int


class ClassicSend(NamedTuple):
    """A send in the classic form.

    Attributes:
        body: metadata, index table and messages, as ``inspect_send`` accepts them.
        producer: the position of the batch, if the client gave one.
    """

    body: bytearray
    producer: ProducerSequence | None


def classic_send_body(body: Buffer, *, producers_allowed: bool = False) -> ClassicSend:
    """Check the body of a send of 0.9 or later and write it in the classic form.

    Ids and times stay as they are. What a server assigns is zero, checksums included, as in the
    sends of classic clients.

    Args:
        body: metadata and one batch.
        producers_allowed: whether the dialect has producer sections; otherwise one is refused.

    Raises:
        InvalidBatch: the batch must not be stored; ``status`` is what the client is told.
    """
    fault, where, made, producer = implementation.classic_send(body, producers_allowed)
    if made is not None:
        return ClassicSend(made, None if producer is None else ProducerSequence._make(producer))
    reason, status = _REASONS[fault].format(where), _STATUSES.get(fault, INVALID_FORMAT)
    if reason.startswith("message"):
        raise InvalidBatch(reason, status=status, message_index=where)
    raise InvalidBatch(reason, status=status, offset=where)


def gather_vsr_sends(
    frames: bytearray | memoryview, head: Buffer, metadata: Buffer, *, frames_max: int
) -> SendRun:
    """Move the messages of small sends of 0.9 or later together, in place and as classic ones.

    Args:
        frames: received frames, one after another.
        head: that of the request before them; all frames must have it, with higher numbers.
        metadata: what all frames must have, from the stream to the message count.
        frames_max: how many to take at most.

    Returns:
        What was taken from the front; no frames if the first one does not match.
    """
    return SendRun._make(implementation.gather_vsr(frames, head, metadata, frames_max))


def confirm_run(first: Buffer, numbers: bytes, counts: bytes) -> bytes:
    """Write the replies to all requests of a run.

    Args:
        first: the reply to the first one that is not answered yet.
        numbers: of those requests, as in a ``SendRun``.
        counts: of the messages in each of them, as in a ``SendRun``.
    """
    return implementation.confirmations(first, numbers, counts)


class VsrBatches(NamedTuple):
    """Stored messages as batches.

    Attributes:
        buffer: the batches, one after another.
        messages_count: how many messages they hold.
        records_bytes: how many bytes of the stored messages were taken.
        is_damaged: whether the next stored message is cut or does not match its checksum.
    """

    buffer: bytearray
    messages_count: int
    records_bytes: int
    is_damaged: bool


def vsr_batches(
    records: Buffer, *, partition_id: int, bytes_max: int = UNLIMITED_BYTES, verify: bool = True
) -> VsrBatches:
    """Write stored messages as the batches of a poll, with their checksums.

    Messages of one append become one batch. A damaged message ends the batches before it, because
    a new checksum would hide the damage.

    Args:
        records: stamped messages, back to back.
        partition_id: the partition, which the batches name.
        bytes_max: how large the batches may be; messages that do not fit are left out.
        verify: whether the stored checksums are compared; False if that was done already.

    Raises:
        LocalProtocolError: a number does not fit its field, or the bytes changed meanwhile.
    """
    try:
        return VsrBatches._make(
            implementation.vsr_batches(records, partition_id, bytes_max, verify)
        )
    except (OverflowError, ValueError) as error:
        raise LocalProtocolError(str(error)) from error


class ClassicRecords(NamedTuple):
    """Polled batches as messages of the classic form.

    Attributes:
        records: the messages, back to back, for a ``MessageBatch``.
        messages_count: how many there are.
        fault: why the batches after them cannot be read; None if all were.
    """

    records: bytearray
    messages_count: int
    fault: InvalidField | TruncatedField | None


def classic_records(
    batches: Buffer, *, producers_allowed: bool = False, verify: bool = True
) -> ClassicRecords:
    """Write the messages of polled batches in the classic form, with checksums of that form.

    The checksum of a message that arrived damaged is wrong as well, so ``MessageBatch.verify``
    names it. The checksums of batches are not compared: a server may send a part of a batch that it
    stored, and clients have never compared them.

    Args:
        batches: what a poll returned behind its head.
        producers_allowed: whether the dialect has producer sections.
        verify: whether the checksums of the messages are compared; otherwise all come out right.
    """
    records, count, fault, where = implementation.classic_records(
        batches, producers_allowed, verify
    )
    error = _poll_fault(as_bytes_view(batches)[where:], fault, count, where) if fault else None
    return ClassicRecords(records, count, error)


def _poll_fault(
    rest: memoryview, fault: int, index: int, where: int
) -> InvalidField | TruncatedField:
    """Say what is wrong with the batch behind the first ``index`` messages."""
    field = f"messages.{index}"
    if fault == VsrFault.HEAD_CUT:
        need = BATCH_HEAD_BYTES
    else:
        need = int.from_bytes(rest[32:40], "little") if fault == VsrFault.LENGTH else 0
    if need > len(rest):
        return TruncatedField(
            _REASONS[fault].format(where), field=field, offset=where, need=need, have=len(rest)
        )
    reason = _REASONS[fault].replace("message {}", "the message at byte {}")
    return InvalidField(reason.format(where), field=field, offset=where, have=len(rest))


def encode_vsr_send(
    metadata: bytes,
    messages: Sequence[Buffer | NewMessage],
    *,
    origin_timestamp_us: int,
    headroom: int = 0,
    random: Buffer = b"",
    producer: ProducerSequence | None = None,
) -> bytearray:
    """Build the body of a send of 0.9 or later in one allocation, with its checksums.

    Args:
        metadata: everything before the batch, its length and the message count included.
        messages: payloads, or ``NewMessage``s where one needs an id, headers or its own time.
        origin_timestamp_us: the producer's clock, for messages without a time of their own.
        headroom: zero bytes to leave free in front, at most 4096.
        random: 16 bytes for each message without an id, from a good source; these servers want an
            id in every message.
        producer: the position of the batch, for dialects that have producer sections.

    Raises:
        LocalProtocolError: a number does not fit its field, a size is above its limit, there are
            no messages or too few random bytes, or the times lie more than 71 minutes apart.
        TypeError: an item is neither bytes-like nor a ``NewMessage``.
    """
    try:
        return implementation.encode_vsr(
            metadata, messages, origin_timestamp_us, headroom, random, producer
        )
    except (OverflowError, ValueError) as error:
        raise LocalProtocolError(str(error)) from error
