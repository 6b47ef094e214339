"""Messages: sends, polls and flushes, and the stored offsets of consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_protocol import (
    Buffer,
    Consumer,
    ConsumerKind,
    ConsumerOffset,
    DeleteConsumerOffset,
    FlushUnsavedBuffer,
    GetConsumerOffset,
    HeadroomBuffer,
    Limits,
    PollMessages,
    SendMessages,
    StatusCode,
    StoreConsumerOffset,
    Transport,
    consumer_id,
    encode_polled,
    encode_request,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import GroupKey, PollGrant
from iggy_ref_server.partitions.offsets import OffsetKey
from iggy_ref_server.partitions.poll_plan import PollParams, PollResult
from iggy_ref_server.partitions.steps import Await, Steps, run_async, run_if_ready
from iggy_ref_server.storage.interface import FileSlice

if TYPE_CHECKING:
    from iggy_ref_server.dispatch.context import HandlerContext
    from iggy_ref_server.metadata.state import TopicRecord
    from iggy_ref_server.session import ClientSession


# The kernel sends pieces of files, which cost no memory, so the limit is what clients accept in one
# reply: iggy_sdk ``response_bytes_max``, official clients 64 MiB over WebSocket. Over HTTP a reply
# is read into memory and has the memory limit.
HEAD_BYTES_MAX: Final = 64
REPLY_BYTES_MAX: Final = {
    Transport.TCP: Limits().response_bytes_max - HEAD_BYTES_MAX,
    Transport.QUIC: Limits().response_bytes_max - HEAD_BYTES_MAX,
    Transport.WEBSOCKET: (64 << 20) - HEAD_BYTES_MAX,
}


class EncodedReply(NamedTuple):
    """An encoded reply; pieces of files in it are not read yet."""

    parts: tuple[Buffer | FileSlice, ...]


def offset_key(consumer: Consumer) -> OffsetKey:
    """Return the key of a single consumer's stored offsets."""
    number = consumer.id if isinstance(consumer.id, int) else consumer_id(consumer.id)
    return OffsetKey(ConsumerKind.SINGLE, number)


def group_key(topic: TopicRecord, consumer: Consumer) -> GroupKey:
    """Return the key of the consumer group that a request names."""
    return GroupKey(topic.stream_id, topic.id, topic.require_group(consumer.id).id)


def require_not_evicted(session: ClientSession) -> None:
    """Refuse a command of a client that was evicted."""
    if session.is_evicted:
        raise ServerFault(StatusCode.STALE_CLIENT, "the client missed its heartbeats")


def _encode_poll(partition_id: int, polled: PollResult) -> EncodedReply:
    head = encode_polled(partition_id, polled.current_offset, polled.messages_count, [])
    return EncodedReply((*head, *polled.parts))


EMPTY_REPLY = EncodedReply(tuple(encode_polled(0, 0, 0, [])))


def _poll_request(
    context: HandlerContext, session: ClientSession, command: PollMessages, key: OffsetKey
) -> PollParams:
    memory_max_bytes = context.poll_bytes_max(context.config.limits.max_poll_bytes)
    return PollParams(
        command.strategy,
        command.count,
        key,
        REPLY_BYTES_MAX.get(session.transport, memory_max_bytes),
        memory_max_bytes,
    )


def poll_nowait(
    context: HandlerContext, session: ClientSession, command: PollMessages
) -> EncodedReply | None:
    """Poll without waiting; None if that is not possible, and then nothing was changed."""
    if command.consumer.kind is ConsumerKind.GROUP:
        return None  # the group is asked first, which may be on another shard
    return run_if_ready(_poll(context, session, command))


async def poll_messages(
    context: HandlerContext, session: ClientSession, command: PollMessages
) -> EncodedReply:
    """Read messages of one partition."""
    return await run_async(_poll(context, session, command))


def _poll(
    context: HandlerContext, session: ClientSession, command: PollMessages
) -> Steps[EncodedReply]:
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    if command.consumer.kind is ConsumerKind.GROUP:
        return (yield from _poll_as_member(context, session, command, topic))
    partition_id = command.partition_id or 0
    request = _poll_request(context, session, command, offset_key(command.consumer))
    partition_client = context.partition_client(topic, partition_id)
    polled = yield from partition_client.poll(request, auto_commit=command.auto_commit)
    session.count_owner(partition_client.shard_id)
    return _encode_poll(partition_id, polled)


def _poll_as_member(
    context: HandlerContext, session: ClientSession, command: PollMessages, topic: TopicRecord
) -> Steps[EncodedReply]:
    """Poll for a group member; deliver and commit only if it still owns the partition."""
    require_not_evicted(session)
    group = group_key(topic, command.consumer)
    groups, client_id = context.groups, session.client_id
    grant: PollGrant | None = yield Await(
        groups.resolve_poll, group, client_id, command.partition_id
    )
    if grant is None:
        return EMPTY_REPLY
    key = OffsetKey(ConsumerKind.GROUP, group.group_id)
    partition_client = context.partition_client(topic, grant.partition)
    polled = yield from partition_client.poll(
        _poll_request(context, session, command, key), auto_commit=False
    )
    if polled.last_offset is None:
        return _encode_poll(grant.partition, polled)
    if not (yield Await(groups.deliver, group, client_id, grant, polled.last_offset)):
        return EMPTY_REPLY
    if command.auto_commit:
        yield Await(partition_client.store_offset, key, polled.last_offset)
        yield Await(groups.committed, group, grant.partition, polled.last_offset)
    return _encode_poll(grant.partition, polled)


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
    context: HandlerContext, session: ClientSession, command: GetConsumerOffset
) -> ConsumerOffset | None:
    """Return a stored offset; None if the offset, the partition or the group does not exist."""
    topic = context.metadata().find_topic(command.stream, command.topic)
    if topic is None:
        return None
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    partition_id = command.partition_id or 0
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
    context: HandlerContext, session: ClientSession, command: StoreConsumerOffset
) -> None:
    """Store an offset; for a group only a member may."""
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    if command.consumer.kind is ConsumerKind.SINGLE:
        partition_client = context.partition_client(topic, command.partition_id or 0)
        await partition_client.store_offset(offset_key(command.consumer), command.offset)
        return
    require_not_evicted(session)
    group = group_key(topic, command.consumer)
    chosen = await context.groups.resolve_commit(group, session.client_id, command.partition_id)
    key = OffsetKey(ConsumerKind.GROUP, group.group_id)
    await context.partition_client(topic, chosen).store_offset(key, command.offset)
    await context.groups.committed(group, chosen, command.offset)


async def delete_consumer_offset(
    context: HandlerContext, session: ClientSession, command: DeleteConsumerOffset
) -> None:
    """Delete an offset; for a group only a member may."""
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    if command.consumer.kind is ConsumerKind.SINGLE:
        partition_client = context.partition_client(topic, command.partition_id or 0)
        await partition_client.delete_offset(offset_key(command.consumer))
        return
    require_not_evicted(session)
    group = group_key(topic, command.consumer)
    chosen = await context.groups.resolve_commit(group, session.client_id, command.partition_id)
    await context.partition_client(topic, chosen).delete_offset(
        OffsetKey(ConsumerKind.GROUP, group.group_id)
    )
    await context.groups.committed(group, chosen, None)
