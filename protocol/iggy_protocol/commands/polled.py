"""The replies to polls: a head, then the messages as the dialect writes them.

A classic reply has a head of 16 bytes and the messages as they are stored. From 0.9 on the messages
come in batches, and from 0.10 on the head has 40 bytes, because it tells the state of the partition
that later requests refer to.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from construct import Struct

from iggy_protocol import batch
from iggy_protocol.batch import MessageBatch, PolledMessages
from iggy_protocol.batch_vsr import UNLIMITED_BYTES, VsrBatches, classic_records, vsr_batches
from iggy_protocol.dialect import CLASSIC, V0_11, V0_12_0, V0_12_2, ByDialect, Dialect
from iggy_protocol.errors import (
    InvalidField,
    LocalProtocolError,
    NotInDialect,
    TruncatedField,
)
from iggy_protocol.fields import RecordStruct
from iggy_protocol.layout import Buffer, Layout, derive_struct
from iggy_protocol.message_view import as_bytes_view, extent_at
from iggy_protocol.model.stream import PartitionContext
from iggy_protocol.primitives import U32, U64
from iggy_protocol.registry import Codec

if TYPE_CHECKING:
    from collections.abc import Sequence


NO_CONTEXT: Final = PartitionContext()
CONTEXT_FIELDS = ("incarnation" / U64, "owner_generation" / U64, "metadata_position" / U64)
CONTEXT = RecordStruct(PartitionContext, *CONTEXT_FIELDS)


class PolledHead(NamedTuple):
    """The head of a poll reply."""

    partition_id: int
    current_offset: int
    messages_count: int


class PolledHeadV012(NamedTuple):
    """The head of a poll reply from 0.10 on."""

    partition_id: int
    current_offset: int
    messages_count: int
    context: PartitionContext


POLLED_HEAD_FIELDS = ("partition_id" / U32, "current_offset" / U64, "messages_count" / U32)
POLLED_HEAD: Layout[PolledHead] = Layout(
    "PolledMessages", RecordStruct(PolledHead, *POLLED_HEAD_FIELDS)
)
POLLED_HEAD_V0_12: Layout[PolledHeadV012] = Layout(
    "PolledMessages", RecordStruct(PolledHeadV012, *POLLED_HEAD_FIELDS, "context" / CONTEXT)
)
_POLLED_HEAD, _ = derive_struct(Struct(*POLLED_HEAD_FIELDS))
_POLLED_HEAD_V0_12, _ = derive_struct(Struct(*POLLED_HEAD_FIELDS, *CONTEXT_FIELDS))
POLLED_HEAD_SIZE = _POLLED_HEAD.size
POLLED_HEAD_V0_12_SIZE = _POLLED_HEAD_V0_12.size


def _expect_polled(value: object) -> PolledMessages:
    if not isinstance(value, PolledMessages):
        raise LocalProtocolError(f"the reply to a poll is PolledMessages, not {value!r}")
    return value


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
        head = _read_classic_head(body)
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
        polled = _expect_polled(value)
        head = _write_head(
            CLASSIC,
            polled.partition_id,
            polled.current_offset,
            polled.messages_count,
            polled.context,
        )
        return [head, polled.messages.buffer]


class VsrPolledMessagesCodec:
    """A head, then batches to the end, from 0.9 on.

    Args:
        dialect: which head there is, and whether batches may name producers.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def decode(self, payload: Buffer) -> PolledMessages:
        """Decode the head, and convert the messages to the classic form.

        Where a batch cannot be read, return the messages before it, with the fault.

        Raises:
            RemoteProtocolError: no intact message precedes the fault, or there is no head.
        """
        body = memoryview(payload)
        head, context = _read_head(body, self.dialect)
        size = polled_head_size(self.dialect)
        messages, fault = decode_batches(body[size:], self.dialect, size)
        if fault is not None and not len(messages):
            raise fault
        return PolledMessages(*head, messages, fault, context)

    def encode(self, value: object) -> list[Buffer]:
        """Encode the head, and convert the messages to batches.

        Raises:
            LocalProtocolError: a message does not match its checksum; a server that may have
                damaged messages uses ``encode_polled``.
        """
        polled = _expect_polled(value)
        head = _write_head(
            self.dialect,
            polled.partition_id,
            polled.current_offset,
            polled.messages_count,
            polled.context,
        )
        return [head, encode_batches(polled.messages, polled.partition_id)]


def decode_batches(
    batches: memoryview, dialect: Dialect, offset: int
) -> tuple[MessageBatch, InvalidField | TruncatedField | None]:
    """Read polled batches that stand at ``offset`` of a reply.

    Returns:
        The messages up to the first that cannot be read, and why it cannot.
    """
    made = classic_records(batches, producers_allowed=HAS_PRODUCERS[dialect])
    if made.fault is None:
        return MessageBatch(made.records), None
    made.fault.offset += offset
    return MessageBatch(batch.intact_prefix(made.records)), made.fault


def encode_batches(messages: MessageBatch, partition_id: int) -> bytearray:
    """Write intact messages as batches.

    Raises:
        LocalProtocolError: a message does not match its checksum.
    """
    made = vsr_batches(messages.buffer, partition_id=partition_id)
    if made.is_damaged:
        raise LocalProtocolError(f"message {made.messages_count} does not match its checksum")
    return made.buffer


HAS_PRODUCERS: Final = ByDialect(first=False, changes={V0_12_2: True})
"""Whether batches may name producers."""

_EXCEEDS_LIMIT_ALONE: Final = ByDialect(first=False, changes={V0_12_2: True})
"""Whether the first message of a reply may be larger than the client's limit."""

POLLED_CODECS: Final = ByDialect[Codec](
    PolledMessagesCodec(),
    {dialect: VsrPolledMessagesCodec(dialect) for dialect in (V0_11, V0_12_0, V0_12_2)},
)


def polled_head_size(dialect: Dialect) -> int:
    """Return the size of the head of a poll reply."""
    return POLLED_HEAD_V0_12_SIZE if dialect.binds_sessions else POLLED_HEAD_SIZE


def _read_head(body: memoryview, dialect: Dialect) -> tuple[PolledHead, PartitionContext]:
    """Read the head; a body that is too short goes through the layout, which names the field."""
    if not dialect.binds_sessions:
        return _read_classic_head(body), NO_CONTEXT
    if len(body) < POLLED_HEAD_V0_12_SIZE:
        POLLED_HEAD_V0_12.decode(body)
    partition_id, current_offset, count, *context = _POLLED_HEAD_V0_12.unpack_from(body)
    return PolledHead(partition_id, current_offset, count), PartitionContext(*context)


def _read_classic_head(body: memoryview) -> PolledHead:
    if len(body) < POLLED_HEAD_SIZE:
        POLLED_HEAD.decode(body)
    return PolledHead(*_POLLED_HEAD.unpack_from(body))


def _write_head(
    dialect: Dialect,
    partition_id: int,
    current_offset: int,
    messages_count: int,
    context: PartitionContext,
) -> bytes:
    if not dialect.binds_sessions:
        head = PolledHead(partition_id, current_offset, messages_count)
        try:
            return _POLLED_HEAD.pack(*head)
        except struct.error:
            return POLLED_HEAD.encode(head)  # raises the error that names the field
    try:
        return _POLLED_HEAD_V0_12.pack(
            partition_id,
            current_offset,
            messages_count,
            context.incarnation,
            context.owner_generation,
            context.metadata_position,
        )
    except struct.error:
        whole = PolledHeadV012(partition_id, current_offset, messages_count, context)
        return POLLED_HEAD_V0_12.encode(whole)


def encode_polled(
    partition_id: int, current_offset: int, messages_count: int, buffers: Sequence[Buffer]
) -> list[Buffer]:
    """Write a classic poll reply whose messages lie in several buffers, without joining them."""
    head = _write_head(CLASSIC, partition_id, current_offset, messages_count, NO_CONTEXT)
    return [head, *buffers]


class PolledBatches(NamedTuple):
    """A poll reply of a dialect with batches.

    Attributes:
        buffers: the reply.
        messages_count: how many messages are in it, from the first one on.
        is_damaged: whether the next message is damaged.
        is_too_small: whether the limit has no room for the first message; the reply is then empty,
            and a server answers with a status instead.
        last_offset: that of the last message in it; None if there is none.
    """

    buffers: list[Buffer]
    messages_count: int
    is_damaged: bool
    is_too_small: bool
    last_offset: int | None


class PolledWriter:
    """Writes a poll reply from 0.9 on, some messages at a time.

    Each part of the messages becomes batches of its own. ``encode_polled_batches`` writes a whole
    reply at once.

    Args:
        partition_id: the partition of the messages.
        current_offset: the highest offset of the partition.
        dialect: what the client speaks.
        context: the state of the partition; 0.9 does not tell it.
        bytes_max: how large the whole reply may be.
        first_alone: whether the first message comes alone if it is larger; None if the dialect
            says so, as those from 0.12.2 on do.
        verify: whether stored checksums are compared; False if that was done already.

    Raises:
        NotInDialect: the dialect has no batches.
    """

    def __init__(
        self,
        partition_id: int,
        current_offset: int,
        *,
        dialect: Dialect,
        context: PartitionContext = NO_CONTEXT,
        bytes_max: int = UNLIMITED_BYTES,
        first_alone: bool | None = None,
        verify: bool = True,
    ) -> None:
        if not dialect.is_vsr:
            raise NotInDialect(f"there are no batches in {dialect}")
        self._partition_id = partition_id
        self._current_offset = current_offset
        self._dialect = dialect
        self._context = context
        self._room = max(bytes_max - polled_head_size(dialect), 0)
        self._first_alone = _EXCEEDS_LIMIT_ALONE[dialect] if first_alone is None else first_alone
        self._verify = verify
        self._batches: list[Buffer] = []
        self._count = 0
        self._is_damaged = self._is_too_small = False
        self._last_offset: int | None = None

    def add(self, messages: Buffer) -> bool:
        """Write stored messages, whole ones; return whether all were, so that more may follow."""
        memory = as_bytes_view(messages)
        made = self._write(memory, self._room)
        if made.is_damaged or made.records_bytes < len(memory):
            self._is_damaged = made.is_damaged
            if not self._count and not made.is_damaged:
                self._write_first(memory)
            return False
        return True

    def _write_first(self, memory: memoryview) -> None:
        """Write the first message, which is larger than the limit, if it may come alone."""
        if not self._first_alone:
            self._is_too_small = True
            return
        extent = extent_at(memory, 0, len(memory))
        assert extent is not None, "a message that does not fit into the limit is whole"
        self._is_damaged = self._write(memory[: extent[1]], UNLIMITED_BYTES).is_damaged

    def _write(self, memory: memoryview, room: int) -> VsrBatches:
        made = vsr_batches(
            memory, partition_id=self._partition_id, bytes_max=room, verify=self._verify
        )
        if made.messages_count:
            self._batches.append(made.buffer)
            self._count += made.messages_count
            self._room -= len(made.buffer)
            self._last_offset = MessageBatch(memory[: made.records_bytes]).last_offset
        return made

    def finish(self) -> PolledBatches:
        """Write the head, and return the reply.

        Raises:
            LocalProtocolError: a number does not fit its field.
        """
        head = _write_head(
            self._dialect, self._partition_id, self._current_offset, self._count, self._context
        )
        return PolledBatches(
            [head, *self._batches],
            self._count,
            self._is_damaged,
            self._is_too_small,
            self._last_offset,
        )


def encode_polled_batches(
    partition_id: int,
    current_offset: int,
    buffers: Sequence[Buffer],
    *,
    dialect: Dialect,
    context: PartitionContext = NO_CONTEXT,
    bytes_max: int = UNLIMITED_BYTES,
    verify: bool = True,
) -> PolledBatches:
    """Write a poll reply from 0.9 on.

    Args:
        partition_id: the partition of the messages.
        current_offset: the highest offset of the partition.
        buffers: stored messages, whole ones in each.
        dialect: what the client speaks.
        context: the state of the partition; 0.9 does not tell it.
        bytes_max: how large the whole reply may be. From 0.12.2 on the first message comes alone if
            it is larger.
        verify: whether stored checksums are compared; False if that was done already.

    Raises:
        NotInDialect: the dialect has no batches.
        LocalProtocolError: a number does not fit its field.
    """
    writer = PolledWriter(
        partition_id,
        current_offset,
        dialect=dialect,
        context=context,
        bytes_max=bytes_max,
        verify=verify,
    )
    for buffer in buffers:
        if not writer.add(buffer):
            break
    return writer.finish()
