"""Messages: sending a batch, polling, flushing.

The body of SendMessages is a whole batch. Only its head fields use a layout; the messages stay
bytes, which ``batch`` checks and iterates. From 0.9 on a batch has another form on the wire, which
``batch_vsr`` converts: a received SendMessages has the same messages in every dialect.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, NamedTuple

from construct import Struct

from iggy_protocol import batch
from iggy_protocol.batch import MessageBatch, PolledMessages
from iggy_protocol.batch_vsr import ProducerSequence, classic_send_body, encode_vsr_send
from iggy_protocol.codes import CommandCode
from iggy_protocol.commands.polled import HAS_PRODUCERS, POLLED_CODECS
from iggy_protocol.dialect import V0_11, V0_12_0, V0_12_2, ByDialect, Dialect
from iggy_protocol.errors import (
    INVALID_COMMAND,
    INVALID_IDENTIFIER,
    InvalidBatch,
    LocalProtocolError,
    NotInDialect,
    RemoteProtocolError,
)
from iggy_protocol.fields import CountPrefixedArray, RecordStruct
from iggy_protocol.framing import HeadroomBuffer
from iggy_protocol.framing.classic import REQUEST_HEADROOM
from iggy_protocol.layout import Buffer, Layout, derive_struct
from iggy_protocol.message_rows import MessageRows
from iggy_protocol.message_view import INDEX_ENTRY, NewMessage
from iggy_protocol.model.identifier import (
    ConsumerIdentity,
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
from iggy_protocol.registry import (
    EMPTY,
    Codec,
    Command,
    OptionalRecordCodec,
    RecordCodec,
    command,
)


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
VSR_REQUEST_HEADROOM = 256
"""The size of the head of a frame from 0.9 on."""
PREFIXES_MAX = 1_024
"""Cached heads of requests. Encoding a head takes longer than encoding a single message."""


class PollTarget(NamedTuple):
    """The destination and consumer of a poll; equal for every poll of a consumer."""

    consumer: ConsumerIdentity
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


_INDEX_ENTRY, _ = derive_struct(INDEX_ENTRY)
BEHIND_METADATA = "indexes"
"""The field that follows readable metadata in a classic send."""


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
    return BEHIND_METADATA, indexes_at, _INDEX_ENTRY.size * head.messages_count, size - indexes_at


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


def _prefix_of(command: SendMessages) -> bytes:
    where, count = command.partitioning, len(command.messages)
    return _prefix(command.stream, command.topic, where.kind, where.value, count)


def _refuse_producer(command: SendMessages, dialect: object) -> None:
    if command.producer is not None:
        raise NotInDialect(f"a send names no producer in {dialect}", field="producer")


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
        _refuse_producer(value, "the protocol of Apache Iggy 0.8")
        prefix = _prefix_of(value)
        if isinstance(value.messages, MessageBatch):
            return [prefix, _client_index(value.messages), value.messages.buffer]
        messages, origin_us = value.messages, value.origin_timestamp_us
        if isinstance(messages, MessageRows):
            encoded = messages.encode(
                prefix, origin_timestamp_us=origin_us, headroom=REQUEST_HEADROOM
            )
        else:
            encoded = batch.encode_messages(
                prefix, messages, origin_timestamp_us=origin_us, headroom=REQUEST_HEADROOM
            )
        return [HeadroomBuffer(encoded, REQUEST_HEADROOM)]


class VsrSendMessagesCodec:
    """u32 metadata length, metadata, one batch, from 0.9 on.

    Args:
        dialect: tells whether a batch may name its producer.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def decode(self, payload: Buffer) -> SendMessages:
        """Decode the head, and convert the messages to the classic form.

        A readable body that must not be stored decodes with its ``fault`` set.
        """
        body = memoryview(payload)
        try:
            taken = classic_send_body(body, producers_allowed=HAS_PRODUCERS[self.dialect])
        except InvalidBatch as error:
            place = _locate_fault(body)
            if place[0] != BEHIND_METADATA:
                error.field, error.offset, error.need, error.have = place
                raise
            head = decode_send_metadata(body)
            fault = error.with_traceback(None)  # as in the classic codec
            return SendMessages(*head[:3], MessageBatch(b""), fault=fault)
        messages = memoryview(taken.body)[batch.inspect_send(taken.body).messages_at :]
        head = decode_send_metadata(body)
        return SendMessages(*head[:3], MessageBatch(messages), producer=taken.producer)

    def encode(self, value: SendMessages) -> list[Buffer | HeadroomBuffer]:
        """Encode head and batch in one buffer with headroom for the frame head."""
        if not HAS_PRODUCERS[self.dialect]:
            _refuse_producer(value, self.dialect)
        encode: Callable[..., bytearray]
        if isinstance(value.messages, MessageRows):
            encode = value.messages.encode_vsr
        else:
            encode = partial(encode_vsr_send, messages=_new_messages(value.messages))
        encoded = encode(
            metadata=_prefix_of(value),
            origin_timestamp_us=value.origin_timestamp_us,
            headroom=VSR_REQUEST_HEADROOM,
            random=value.random,
            producer=value.producer,
        )
        return [HeadroomBuffer(encoded, VSR_REQUEST_HEADROOM)]


def _new_messages(
    messages: Sequence[Buffer | NewMessage] | MessageBatch,
) -> Sequence[Buffer | NewMessage]:
    """Return messages to be encoded; those of a batch are taken apart."""
    if not isinstance(messages, MessageBatch):
        return messages
    return [
        NewMessage(view.payload, view.id, bytes(view.user_headers), view.origin_timestamp_us)
        for view in messages
    ]


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
    consumer = ConsumerIdentity(consumer_kind, consumer_id)
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


@command(
    CommandCode.POLL_MESSAGES,
    *POLL_TARGET_FIELDS,
    *POLL_RANGE_FIELDS,
    codec=PollMessagesCodec,
    reply=POLLED_CODECS,
)
@record
class PollMessages(Command[PolledMessages]):
    """Ask for up to ``count`` messages; the server replies at once with those it has."""

    consumer: ConsumerIdentity
    stream: Identifier
    topic: Identifier
    strategy: PollingStrategy
    count: int
    partition_id: int | None = None
    auto_commit: bool = False


@record
class SendConfirmation:
    """Where a server from 0.9 on has appended the messages of a send.

    Attributes:
        base_offset: the offset of the first message; the others follow it.
    """

    stream_id: int
    topic_id: int
    partition_id: int
    base_offset: int


SEND_CONFIRMATION = RecordStruct(
    SendConfirmation,
    "stream_id" / U32,
    "topic_id" / U32,
    "partition_id" / U32,
    "base_offset" / U64,
)


# The count and one confirmation, as the layout of the reply has them.
_ONE_CONFIRMATION = struct.Struct("<4IQ")


def encode_confirmation(
    stream_id: int, topic_id: int, partition_id: int, base_offset: int
) -> bytes:
    """Write the reply to a send with one confirmation; the same as ``encode_reply``, at once."""
    return _ONE_CONFIRMATION.pack(1, stream_id, topic_id, partition_id, base_offset)


class ConfirmationsCodec(OptionalRecordCodec):
    """The reply to a send: confirmations, and nearly always one, which is read at once."""

    def decode(self, payload: Buffer) -> Any:
        """Read the confirmations, or ``None`` from no bytes."""
        if len(payload) == _ONE_CONFIRMATION.size:
            count, *where = _ONE_CONFIRMATION.unpack(payload)
            if count == 1:
                return (SendConfirmation(*where),)
        return super().decode(payload)


_CONFIRMATIONS: Layout[Any] = Layout(
    "SendConfirmations", CountPrefixedArray(SEND_CONFIRMATION, count_size=4)
)


@command(
    CommandCode.SEND_MESSAGES,
    request=SendMessagesCodec(),
    changes={dialect: VsrSendMessagesCodec(dialect) for dialect in (V0_11, V0_12_0, V0_12_2)},
    reply=ByDialect[Codec](EMPTY, {V0_11: ConfirmationsCodec(_CONFIRMATIONS)}),
)
@record
class SendMessages(Command[tuple[SendConfirmation, ...] | None]):
    """Append a batch to one partition; servers from 0.9 on confirm where it went.

    A server that has no offset to report, as for a repeated send, confirms nothing.

    Attributes:
        messages: what to send, as payloads, ``NewMessage``s or ``MessageRows``; in a received
            command a ``MessageBatch`` over the receive buffer, or from 0.9 on over a converted
            copy.
        origin_timestamp_us: the client's clock, for messages without a time of their own.
        fault: why a received batch must not be stored, if so; ``validate`` raises it.
        random: 16 bytes for each message without an id; clients choose ids themselves from 0.9 on.
        producer: the position of the batch in what a producer sends, since 0.12.2.
    """

    stream: Identifier
    topic: Identifier
    partitioning: Partitioning
    messages: Sequence[Buffer | NewMessage] | MessageBatch
    origin_timestamp_us: int = 0
    fault: InvalidBatch | None = field(default=None, compare=False)
    random: Buffer = field(default=b"", compare=False)
    producer: ProducerSequence | None = None


@command(
    CommandCode.FLUSH_UNSAVED_BUFFER,
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    "partition_id" / U32,
    "fsync" / BOOL,
    reply=EMPTY,
    changes={V0_12_0: None},
)
@record
class FlushUnsavedBuffer(Command[None]):
    """Have unsaved messages of a partition written, and synced to the disk if asked."""

    stream: Identifier
    topic: Identifier
    partition_id: int
    fsync: bool = False
