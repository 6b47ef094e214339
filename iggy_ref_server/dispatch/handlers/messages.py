"""Messages: sends, polls and flushes, the routes of partitions, and stored offsets of consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import (
    Buffer,
    ConsumerIdentity,
    ConsumerKind,
    ConsumerOffset,
    DeleteConsumerOffset,
    FlushUnsavedBuffer,
    GetConsumerOffset,
    GetPartitionRoute,
    HeadroomBuffer,
    PartitionRoute,
    SendMessages,
    StatusCode,
    StoreConsumerOffset,
    consumer_id,
    encode_request,
)
from iggy_ref_server.dispatch.partition_context import (
    claim,
    named_ownership,
    not_owned,
    require_incarnation,
    write_id,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import ClaimPurpose, GroupKey, PollGrant
from iggy_ref_server.partitions.offsets import OffsetKey
from iggy_ref_server.partitions.partition_client import PartitionClient
from iggy_ref_server.storage.interface import FileSlice

if TYPE_CHECKING:
    from iggy_protocol import RequestId
    from iggy_ref_server.dispatch.context import HandlerContext
    from iggy_ref_server.metadata.state import TopicRecord
    from iggy_ref_server.session import ClientSession


class EncodedReply(NamedTuple):
    """An encoded reply; pieces of files in it are not read yet."""

    parts: tuple[Buffer | FileSlice, ...]


def offset_key(consumer: ConsumerIdentity) -> OffsetKey:
    """Return the key of a single consumer's stored offsets."""
    number = consumer.id if isinstance(consumer.id, int) else consumer_id(consumer.id)
    return OffsetKey(ConsumerKind.SINGLE, number)


def group_key(topic: TopicRecord, consumer: ConsumerIdentity) -> GroupKey:
    """Return the key of the consumer group that a request names."""
    return GroupKey(topic.stream_id, topic.id, topic.require_group(consumer.id).id)


def require_known_kind(consumer: ConsumerIdentity) -> None:
    """Refuse a group that is managed outside of the server; nothing is known of those here."""
    if consumer.kind is ConsumerKind.EXTERNAL_GROUP:
        raise ServerFault(StatusCode.FEATURE_UNAVAILABLE, "there are no external groups here")


def require_not_evicted(session: ClientSession) -> None:
    """Refuse a command of a client that was evicted."""
    if session.is_evicted:
        raise ServerFault(StatusCode.STALE_CLIENT, "the client missed its heartbeats")


async def get_partition_route(
    context: HandlerContext, session: ClientSession, command: GetPartitionRoute
) -> PartitionRoute:
    """Tell what requests to a partition must name; a single node serves all of them."""
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    partition = topic.require_partition(command.partition_id)
    return PartitionRoute(
        incarnation=partition.incarnation,
        metadata_position=context.position.current,
        view=0,
        partitions_count=len(topic.partitions),
        primary_replica_id=0,
    )


async def send_messages(
    context: HandlerContext, session: ClientSession, command: SendMessages
) -> None:
    """Append a batch, and wait until it is committed.

    Only commands that were not received as bytes come here, as those of the REST API. The request
    scheduler stages the body of a request without decoding it.
    """
    (encoded,) = encode_request(command)
    assert isinstance(encoded, HeadroomBuffer)
    body = memoryview(encoded.buffer)[encoded.headroom :]
    staged = context.appender.stage(session, body)
    context.appender.commit()
    await staged.pending.wait()


async def flush_unsaved_buffer(
    context: HandlerContext, session: ClientSession, command: FlushUnsavedBuffer
) -> None:
    """Write the unsaved messages of a partition."""
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    await context.partition_client(topic, command.partition_id).flush(fsync=command.fsync)


# Consumer offsets: the stored offsets of consumers and groups in a partition.


async def get_consumer_offset(
    context: HandlerContext,
    session: ClientSession,
    command: GetConsumerOffset,
    request_id: RequestId | None,
) -> ConsumerOffset | None:
    """Return a stored offset; None if the offset, the partition or the group does not exist."""
    require_known_kind(command.consumer)
    topic = context.metadata().find_topic(command.stream, command.topic)
    if topic is None:
        return None
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    partition_id = command.partition_id or 0
    if topic.find_partition(partition_id) is not None:
        require_incarnation(request_id, topic, partition_id)
    try:
        key = _stored_offset_key(topic, command)
        progress = await context.partition_client(topic, partition_id).progress(key)
    except ServerFault:
        return None
    if progress.stored_offset is None:
        return None
    return ConsumerOffset(partition_id, progress.current_offset, progress.stored_offset)


def _stored_offset_key(topic: TopicRecord, command: GetConsumerOffset) -> OffsetKey:
    if command.consumer.kind is ConsumerKind.GROUP:
        return OffsetKey(ConsumerKind.GROUP, topic.require_group(command.consumer.id).id)
    return offset_key(command.consumer)


async def store_consumer_offset(
    context: HandlerContext,
    session: ClientSession,
    command: StoreConsumerOffset,
    request_id: RequestId | None,
) -> None:
    """Store an offset; for a group only a member may."""
    require_known_kind(command.consumer)
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    place = await _find_offset(context, session, topic, command, request_id)
    await place.client.store_offset(place.key, command.offset, write_id(request_id))
    if place.group is not None:
        await context.groups.committed(place.group, place.partition_id, command.offset)


async def delete_consumer_offset(
    context: HandlerContext,
    session: ClientSession,
    command: DeleteConsumerOffset,
    request_id: RequestId | None,
) -> None:
    """Delete an offset; for a group only a member may."""
    require_known_kind(command.consumer)
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    place = await _find_offset(context, session, topic, command, request_id)
    await place.client.delete_offset(place.key, write_id(request_id))
    if place.group is not None:
        await context.groups.committed(place.group, place.partition_id, None)


class _OffsetPlace(NamedTuple):
    """Where an offset is stored.

    Attributes:
        partition_id: the partition.
        client: reaches it.
        key: whose offset it is.
        group: the group that has to know of the change; None for a single consumer.
    """

    partition_id: int
    client: PartitionClient
    key: OffsetKey
    group: GroupKey | None = None


async def _find_offset(
    context: HandlerContext,
    session: ClientSession,
    topic: TopicRecord,
    command: StoreConsumerOffset | DeleteConsumerOffset,
    request_id: RequestId | None,
) -> _OffsetPlace:
    """Find the offset that a client may change.

    Raises:
        ServerFault: it may not, or the partition is not the one that it means.
    """
    if command.consumer.kind is ConsumerKind.SINGLE:
        partition_id = command.partition_id or 0
        require_incarnation(request_id, topic, partition_id)
        if named_ownership(request_id):
            raise not_owned("no group")
        client = context.partition_client(topic, partition_id)
        return _OffsetPlace(partition_id, client, offset_key(command.consumer))
    require_not_evicted(session)
    group = group_key(topic, command.consumer)
    partition_id = await _find_member_offset(context, session, group, command, request_id)
    require_incarnation(request_id, topic, partition_id)
    client = context.partition_client(topic, partition_id)
    key = OffsetKey(ConsumerKind.GROUP, group.group_id)
    return _OffsetPlace(partition_id, client, key, group)


async def _find_member_offset(
    context: HandlerContext,
    session: ClientSession,
    group: GroupKey,
    command: StoreConsumerOffset | DeleteConsumerOffset,
    request_id: RequestId | None,
) -> int:
    """Return the partition whose offset a member of a group may change."""
    member_id, partition_id = session.member_id, command.partition_id
    if request_id is None or partition_id is None:
        return await context.groups.resolve_commit(group, member_id, partition_id)
    named = PollGrant(partition_id, named_ownership(request_id))
    grant = await claim(context, session, group, named, ClaimPurpose.COMMIT)
    if grant is None:
        raise not_owned(group)
    return partition_id
