"""Consumer offsets: the stored offsets of consumers and groups in a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import (
    ConsumerKind,
    ConsumerOffset,
    DeleteConsumerOffset,
    GetConsumerOffset,
    StoreConsumerOffset,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.handlers.messages import group_of, offset_key, stale_if_evicted
from iggy_ref_server.handlers.table import handles
from iggy_ref_server.partitions import OffsetKey

if TYPE_CHECKING:
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.metadata.records import TopicRecord
    from iggy_ref_server.session import Session


@handles(GetConsumerOffset)
async def get_consumer_offset(
    office: Office, session: Session, command: GetConsumerOffset
) -> ConsumerOffset | None:
    """Return a stored offset; None if the offset, the partition or the group does not exist."""
    topic = office.metadata().find_topic(command.stream, command.topic)
    if topic is None:
        return None
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    partition_id = command.partition_id or 0
    try:
        key = _read_key(topic, command)
        progress = await office.door(topic, partition_id).progress(key)
    except ServerFault:
        return None
    if progress.stored_offset is None:
        return None
    return ConsumerOffset(partition_id, progress.current_offset, progress.stored_offset)


def _read_key(topic: TopicRecord, command: GetConsumerOffset) -> OffsetKey:
    if command.consumer.kind is ConsumerKind.GROUP:
        return OffsetKey(ConsumerKind.GROUP, topic.require_group(command.consumer.id).id)
    return offset_key(command.consumer)


@handles(StoreConsumerOffset)
async def store_consumer_offset(
    office: Office, session: Session, command: StoreConsumerOffset
) -> None:
    """Store an offset; for a group only a member may."""
    topic = office.metadata().require_topic(command.stream, command.topic)
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    if command.consumer.kind is ConsumerKind.SINGLE:
        door = office.door(topic, command.partition_id or 0)
        await door.store_offset(offset_key(command.consumer), command.offset)
        return
    stale_if_evicted(session)
    group = group_of(topic, command.consumer)
    chosen = await office.groups.resolve_commit(group, session.client_id, command.partition_id)
    key = OffsetKey(ConsumerKind.GROUP, group.group_id)
    await office.door(topic, chosen).store_offset(key, command.offset)
    await office.groups.committed(group, chosen, command.offset)


@handles(DeleteConsumerOffset)
async def delete_consumer_offset(
    office: Office, session: Session, command: DeleteConsumerOffset
) -> None:
    """Delete an offset; for a group only a member may."""
    topic = office.metadata().require_topic(command.stream, command.topic)
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    if command.consumer.kind is ConsumerKind.SINGLE:
        door = office.door(topic, command.partition_id or 0)
        await door.delete_offset(offset_key(command.consumer))
        return
    stale_if_evicted(session)
    group = group_of(topic, command.consumer)
    chosen = await office.groups.resolve_commit(group, session.client_id, command.partition_id)
    await office.door(topic, chosen).delete_offset(OffsetKey(ConsumerKind.GROUP, group.group_id))
    await office.groups.committed(group, chosen, None)
