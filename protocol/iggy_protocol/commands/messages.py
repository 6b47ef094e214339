"""Messages: sending a batch, polling, flushing.

The bodies of SendMessages and PolledMessages are whole batches. Only their head fields use a
layout; the messages stay bytes, which ``batch`` checks and iterates.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from construct import Struct

from iggy_protocol import batch
from iggy_protocol.batch import MessageBatch, PolledMessages
from iggy_protocol.codes import CommandCode
from iggy_protocol.errors import (
    INVALID_COMMAND,
    INVALID_IDENTIFIER,
    InvalidBatch,
    LocalProtocolError,
    RemoteProtocolError,
    TruncatedField,
)
from iggy_protocol.fields import RecordStruct
from iggy_protocol.framing import HeadroomBuffer
from iggy_protocol.framing.classic import REQUEST_HEADROOM
from iggy_protocol.layout import Buffer, Layout, derive_struct
from iggy_protocol.message_view import INDEX_ENTRY, NewMessage
from iggy_protocol.model.identifier import (
    Consumer,
    ConsumerKind,
    Identifier,
    Partitioning,
    PartitioningKind,
    PollingKind,
    PollingStrategy,
)
from iggy_protocol.primitives import (
    BOOL,
    CONSUMER,
    IDENTIFIER,
    IDENTIFIER_ESCAPED,
    OPTIONAL_PARTITION,
    PARTITIONING,
    POLLING_STRATEGY,
    U8,
    U32,
    U64,
)
from iggy_protocol.records import record
from iggy_protocol.registry import EMPTY, Command, RecordCodec, command


class SendMetadata(NamedTuple):
    """The head of a SendMessages body, behind its own length."""

    stream: Identifier
    topic: Identifier
    partitioning: Partitioning
    messages_count: int


SEND_METADATA: Layout[SendMetadata] = Layout(
    "SendMessages",
    RecordStruct(
        SendMetadata,
        "stream" / IDENTIFIER_ESCAPED,
        "topic" / IDENTIFIER_ESCAPED,
        "partitioning" / PARTITIONING,
        "messages_count" / U32,
    ),
    surplus_allowed=True,
)
METADATA_AT = 4
"""The size of the length field, and so the offset of the metadata."""
PREFIXES_MAX = 1_024
"""Cached heads of requests. Encoding a head takes longer than encoding a single message."""


class PollTarget(NamedTuple):
    """The destination and consumer of a poll; equal for every poll of a consumer."""

    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None


POLL_TARGET_FIELDS = (
    "consumer" / CONSUMER,
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    "partition_id" / OPTIONAL_PARTITION,
)
POLL_RANGE_FIELDS = (
    "strategy" / POLLING_STRATEGY,
    "count" / U32,
    "auto_commit" / BOOL,
)
_POLL_TARGET: Layout[PollTarget] = Layout(
    "PollMessages", RecordStruct(PollTarget, *POLL_TARGET_FIELDS)
)
# The raw fields of the range, all of fixed size.
_POLL_RANGE, _ = derive_struct(
    Struct("kind" / U8, "value" / U64, "count" / U32, "auto_commit" / U8)
)
_POLLING_KINDS = {int(kind): kind for kind in PollingKind}


class PolledHead(NamedTuple):
    """The head of a poll reply."""

    partition_id: int
    current_offset: int
    messages_count: int


POLLED_HEAD_FIELDS = ("partition_id" / U32, "current_offset" / U64, "messages_count" / U32)
POLLED_HEAD: Layout[PolledHead] = Layout(
    "PolledMessages", RecordStruct(PolledHead, *POLLED_HEAD_FIELDS)
)
_POLLED_HEAD, _ = derive_struct(Struct(*POLLED_HEAD_FIELDS))
POLLED_HEAD_SIZE = _POLLED_HEAD.size


_INDEX_ENTRY, _ = derive_struct(INDEX_ENTRY)


def _client_index(messages: MessageBatch) -> bytes:
    """Write the index table of a batch as a client does: only the ends, counted from 0."""
    ends = accumulate(message.size for message in messages)
    return b"".join(_INDEX_ENTRY.pack(0, end, 0) for end in ends)


def _locate_fault(body: memoryview) -> tuple[str, int, int, int]:
    """Find the invalid field of a body: its name, its offset, bytes needed, bytes present."""
    size = len(body)
    if size < METADATA_AT:
        return "metadata_length", 0, METADATA_AT, size
    metadata_length = int.from_bytes(body[:METADATA_AT], "little")
    indexes_at = METADATA_AT + metadata_length
    if indexes_at > size:
        return "metadata", METADATA_AT, metadata_length, size - METADATA_AT
    try:
        head = SEND_METADATA.decode(body[METADATA_AT:indexes_at])
    except RemoteProtocolError as error:
        return error.field, METADATA_AT + error.offset, error.need, error.have
    return "indexes", indexes_at, _INDEX_ENTRY.size * head.messages_count, size - indexes_at


def decode_send_metadata(body: Buffer) -> SendMetadata:
    """Decode the destination of a SendMessages body, without its messages.

    Args:
        body: a body that ``inspect_send`` has accepted.
    """
    view = memoryview(body)
    indexes_at = METADATA_AT + int.from_bytes(view[:METADATA_AT], "little")
    return SEND_METADATA.decode(view[METADATA_AT:indexes_at])


@lru_cache(maxsize=PREFIXES_MAX)
def _prefix(
    stream: Identifier,
    topic: Identifier,
    partitioning_kind: PartitioningKind,
    partitioning_value: bytes,
    messages_count: int,
) -> bytes:
    """Encode everything before the index table; cached, because producers repeat it."""
    # Takes the parts of a Partitioning: hashing a record would cost as much as all the rest.
    partitioning = Partitioning(partitioning_kind, partitioning_value)
    metadata = SEND_METADATA.encode(SendMetadata(stream, topic, partitioning, messages_count))
    return len(metadata).to_bytes(METADATA_AT, "little") + metadata


class SendMessagesCodec:
    """u32 metadata length, metadata, one index entry per message, messages."""

    def decode(self, payload: Buffer) -> SendMessages:
        """Decode the head; the messages stay in the buffer.

        A readable body that must not be stored decodes with its ``fault`` set.
        """
        body = memoryview(payload)
        fault, messages = None, MessageBatch(b"")
        try:
            messages = MessageBatch(body[batch.inspect_send(body).messages_at :])
        except InvalidBatch as error:
            if error.status in (INVALID_COMMAND, INVALID_IDENTIFIER):
                error.field, error.offset, error.need, error.have = _locate_fault(body)
                raise
            # The frames of its traceback would keep the body and, in a cycle, the fault alive.
            fault = error.with_traceback(None)
        head = decode_send_metadata(body)
        return SendMessages(head.stream, head.topic, head.partitioning, messages, fault=fault)

    def encode(self, value: SendMessages) -> list[Buffer | HeadroomBuffer]:
        """Encode head, index and messages in one buffer with headroom for the frame head."""
        where, count = value.partitioning, len(value.messages)
        prefix = _prefix(value.stream, value.topic, where.kind, where.value, count)
        if isinstance(value.messages, MessageBatch):
            return [prefix, _client_index(value.messages), value.messages.buffer]
        encoded = batch.encode_messages(
            prefix,
            value.messages,
            origin_timestamp_us=value.origin_timestamp_us,
            headroom=REQUEST_HEADROOM,
        )
        return [HeadroomBuffer(encoded, REQUEST_HEADROOM)]


@lru_cache(maxsize=PREFIXES_MAX)
def _read_poll_target(target: bytes) -> PollTarget:
    return _POLL_TARGET.decode(target)


@lru_cache(maxsize=PREFIXES_MAX)
def _write_poll_target(
    consumer_kind: ConsumerKind,
    consumer_id: Identifier,
    stream: Identifier,
    topic: Identifier,
    partition_id: int | None,
) -> bytes:
    consumer = Consumer(consumer_kind, consumer_id)
    return _POLL_TARGET.encode(PollTarget(consumer, stream, topic, partition_id))


class PollMessagesCodec(RecordCodec):
    """The target, which is cached, and the range after it.

    A value that this fast path cannot handle goes through the layout, which raises the right error.
    """

    def decode(self, payload: Buffer) -> PollMessages:
        """Read where to poll, and how much."""
        data = bytes(payload)
        size = _POLL_RANGE.size
        try:
            target = _read_poll_target(data[:-size])
            kind, value, count, auto_commit = _POLL_RANGE.unpack(data[-size:])
            strategy = PollingStrategy(_POLLING_KINDS[kind], value)
        except (RemoteProtocolError, struct.error, KeyError):
            whole: PollMessages = self.layout.decode(data)
            return whole
        consumer, stream, topic, partition_id = target
        return PollMessages(
            consumer, stream, topic, strategy, count, partition_id, auto_commit != 0
        )

    def encode(self, value: PollMessages) -> list[Buffer]:
        """Write where to poll, and how much."""
        consumer, strategy = value.consumer, value.strategy
        try:
            target = _write_poll_target(
                consumer.kind, consumer.id, value.stream, value.topic, value.partition_id
            )
            start = _POLL_RANGE.pack(
                _POLLING_KINDS[strategy.kind],
                strategy.value,
                value.count,
                1 if value.auto_commit else 0,
            )
        except (LocalProtocolError, struct.error, KeyError, TypeError, AttributeError):
            return [self.layout.encode(value)]
        return [target + start]


class PolledMessagesCodec:
    """A head of 16 bytes, then messages to the end; there is no index table."""

    def decode(self, payload: Buffer) -> PolledMessages:
        """Decode the head; the messages stay in the buffer.

        Where a damaged log has a message with a wrong length, return the messages before it, with
        the fault.

        Raises:
            TruncatedField: no intact message precedes the damage, or there is no head.
        """
        body = memoryview(payload)
        try:
            head = PolledHead(*_POLLED_HEAD.unpack_from(body))
        except struct.error:
            head = POLLED_HEAD.decode(body)  # raises the error that names the field
        try:
            messages = MessageBatch(body[POLLED_HEAD_SIZE:])
        except TruncatedField as error:
            error.offset += POLLED_HEAD_SIZE
            intact = batch.intact_prefix(body[POLLED_HEAD_SIZE:])
            if not len(intact):
                raise
            return PolledMessages(*head, MessageBatch(intact), error)
        return PolledMessages(*head, messages)

    def encode(self, value: object) -> list[Buffer]:
        """Encode the head; the messages are not copied."""
        if not isinstance(value, PolledMessages):
            raise LocalProtocolError(f"the reply to a poll is PolledMessages, not {value!r}")
        head = PolledHead(value.partition_id, value.current_offset, value.messages_count)
        return [_write_polled_head(head), value.messages.buffer]


def encode_polled(
    partition_id: int, current_offset: int, messages_count: int, buffers: Sequence[Buffer]
) -> list[Buffer]:
    """Write a poll reply whose messages lie in several buffers, without joining them."""
    return [
        _write_polled_head(PolledHead(partition_id, current_offset, messages_count)),
        *buffers,
    ]


def _write_polled_head(head: PolledHead) -> bytes:
    try:
        return _POLLED_HEAD.pack(*head)
    except struct.error:
        return POLLED_HEAD.encode(head)  # raises the error that names the field


@command(
    CommandCode.POLL_MESSAGES,
    *POLL_TARGET_FIELDS,
    *POLL_RANGE_FIELDS,
    codec=PollMessagesCodec,
    reply=PolledMessagesCodec(),
)
@record
class PollMessages(Command[PolledMessages]):
    """Ask for up to ``count`` messages; the server replies at once with those it has."""

    consumer: Consumer
    stream: Identifier
    topic: Identifier
    strategy: PollingStrategy
    count: int
    partition_id: int | None = None
    auto_commit: bool = False


@command(CommandCode.SEND_MESSAGES, request=SendMessagesCodec(), reply=EMPTY)
@record
class SendMessages(Command[None]):
    """Append a batch to one partition.

    Attributes:
        messages: what to send, as payloads or ``NewMessage``s; in a received command a
            ``MessageBatch`` over the receive buffer.
        origin_timestamp_us: the client's clock, for messages without a time of their own.
        fault: why a received batch must not be stored, if so; ``validate`` raises it.
    """

    stream: Identifier
    topic: Identifier
    partitioning: Partitioning
    messages: Sequence[Buffer | NewMessage] | MessageBatch
    origin_timestamp_us: int = 0
    fault: InvalidBatch | None = field(default=None, compare=False)


@command(
    CommandCode.FLUSH_UNSAVED_BUFFER,
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    "partition_id" / U32,
    "fsync" / BOOL,
    reply=EMPTY,
)
@record
class FlushUnsavedBuffer(Command[None]):
    """Have unsaved messages of a partition written, and synced to the disk if asked."""

    stream: Identifier
    topic: Identifier
    partition_id: int
    fsync: bool = False
