"""Stored offsets of consumers and groups."""

from __future__ import annotations

from iggy_protocol.codes import CommandCode
from iggy_protocol.fields import Record
from iggy_protocol.model.consumer_group import ConsumerOffset
from iggy_protocol.model.identifier import Consumer, Identifier
from iggy_protocol.primitives import CONSUMER, IDENTIFIER, OPTIONAL_PARTITION, U32, U64
from iggy_protocol.records import record
from iggy_protocol.registry import EMPTY, Command, command, maybe

__all__ = ["DeleteConsumerOffset", "GetConsumerOffset", "StoreConsumerOffset"]

PLACE_FIELDS = (
    "consumer" / CONSUMER,
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    "partition_id" / OPTIONAL_PARTITION,
)

CONSUMER_OFFSET = Record(
    ConsumerOffset, "partition_id" / U32, "current_offset" / U64, "stored_offset" / U64
)


@command(
    CommandCode.GET_CONSUMER_OFFSET,
    *PLACE_FIELDS,
    reply=maybe(CONSUMER_OFFSET, "ConsumerOffset"),
)
@record
class GetConsumerOffset(Command[ConsumerOffset | None]):
    """Ask for a stored offset; without a partition, for that of partition 0."""

    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None = None


@command(CommandCode.STORE_CONSUMER_OFFSET, *PLACE_FIELDS, "offset" / U64, reply=EMPTY)
@record
class StoreConsumerOffset(Command[None]):
    """Store the last offset that was processed; the next poll goes on behind it."""

    consumer: Consumer
    stream: Identifier
    topic: Identifier
    offset: int
    partition_id: int | None = None


@command(CommandCode.DELETE_CONSUMER_OFFSET, *PLACE_FIELDS, reply=EMPTY)
@record
class DeleteConsumerOffset(Command[None]):
    """Forget a stored offset."""

    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None = None
