"""Messages: polls and flushes. The request scheduler handles sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_protocol import (
    Buffer,
    CommandCode,
    ConsumerKind,
    FlushUnsavedBuffer,
    Limits,
    PollMessages,
    StatusCode,
    Transport,
    consumer_id,
    encode_polled,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.registry import GroupKey
from iggy_ref_server.handlers.table import handles
from iggy_ref_server.partitions import OffsetKey, PollRequest
from iggy_ref_server.storage.interface import FileSlice

if TYPE_CHECKING:
    from iggy_protocol import Consumer
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.metadata.records import TopicRecord
    from iggy_ref_server.partitions import Polled
    from iggy_ref_server.session import Session

__all__ = ["RawReply", "group_of", "offset_key", "poll_now", "stale_if_evicted"]


# The kernel sends pieces of files, which cost no memory, so the limit is what clients accept in one
# reply: iggy_sdk ``response_bytes_max``, official clients 64 MiB over WebSocket. Over HTTP a reply
# is read into memory and has the memory limit.
HEAD_BYTES_MAX: Final = 64
REPLY_BYTES_MAX: Final = {
    Transport.TCP: Limits().response_bytes_max - HEAD_BYTES_MAX,
    Transport.QUIC: Limits().response_bytes_max - HEAD_BYTES_MAX,
    Transport.WEBSOCKET: (64 << 20) - HEAD_BYTES_MAX,
}


class RawReply(NamedTuple):
    """An encoded reply; pieces of files in it are not read yet."""

    parts: tuple[Buffer | FileSlice, ...]


def offset_key(consumer: Consumer) -> OffsetKey:
    """Return the key of a single consumer's stored offsets."""
    number = consumer.id if isinstance(consumer.id, int) else consumer_id(consumer.id)
    return OffsetKey(ConsumerKind.SINGLE, number)


def group_of(topic: TopicRecord, consumer: Consumer) -> GroupKey:
    """Return the key of the consumer group that a request names."""
    return GroupKey(topic.stream_id, topic.id, topic.require_group(consumer.id).id)


def stale_if_evicted(session: Session) -> None:
    """Refuse a command of a client that was evicted."""
    if session.is_evicted:
        raise ServerFault(StatusCode.STALE_CLIENT, "the client missed its heartbeats")


def _reply(partition_id: int, polled: Polled) -> RawReply:
    head = encode_polled(partition_id, polled.current_offset, polled.messages_count, [])
    return RawReply((*head, *polled.parts))


NOTHING = RawReply(tuple(encode_polled(0, 0, 0, [])))


def _request(
    office: Office, session: Session, command: PollMessages, key: OffsetKey
) -> PollRequest:
    memory_max_bytes = office.poll_bytes_max(office.config.limits.max_poll_bytes)
    return PollRequest(
        command.strategy,
        command.count,
        key,
        REPLY_BYTES_MAX.get(session.transport, memory_max_bytes),
        memory_max_bytes,
    )


def poll_now(office: Office, session: Session, command: PollMessages) -> RawReply | None:
    """Poll for a single consumer, if its partition is on this shard and needs no waiting."""
    if command.consumer.kind is not ConsumerKind.SINGLE:
        return None
    topic = office.metadata().require_topic(command.stream, command.topic)
    office.authorize(session, CommandCode.POLL_MESSAGES, topic.stream_id, topic.id)
    partition_id = command.partition_id or 0
    request = _request(office, session, command, offset_key(command.consumer))
    polled = office.door(topic, partition_id).poll_now(request, auto_commit=command.auto_commit)
    if polled is None:
        return None
    session.visit(None)
    return _reply(partition_id, polled)


@handles(PollMessages)
async def poll_messages(office: Office, session: Session, command: PollMessages) -> RawReply:
    """Read messages of one partition."""
    topic = office.metadata().require_topic(command.stream, command.topic)
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    if command.consumer.kind is ConsumerKind.GROUP:
        return await _poll_as_member(office, session, command, topic)
    partition_id = command.partition_id or 0
    request = _request(office, session, command, offset_key(command.consumer))
    door = office.door(topic, partition_id)
    session.visit(door.shard_id)
    return _reply(partition_id, await door.poll(request, auto_commit=command.auto_commit))


async def _poll_as_member(
    office: Office, session: Session, command: PollMessages, topic: TopicRecord
) -> RawReply:
    """Poll for a group member; deliver and commit only if it still owns the partition."""
    stale_if_evicted(session)
    group = group_of(topic, command.consumer)
    groups, client_id = office.groups, session.client_id
    grant = await groups.resolve_poll(group, client_id, command.partition_id)
    if grant is None:
        return NOTHING
    key = OffsetKey(ConsumerKind.GROUP, group.group_id)
    door = office.door(topic, grant.partition)
    polled = await door.poll(_request(office, session, command, key), auto_commit=False)
    if polled.last_offset is None:
        return _reply(grant.partition, polled)
    if not await groups.deliver(group, client_id, grant, polled.last_offset):
        return NOTHING
    if command.auto_commit:
        await door.store_offset(key, polled.last_offset)
        await groups.committed(group, grant.partition, polled.last_offset)
    return _reply(grant.partition, polled)


@handles(FlushUnsavedBuffer)
async def flush_unsaved_buffer(
    office: Office, session: Session, command: FlushUnsavedBuffer
) -> None:
    """Write the unsaved messages of a partition."""
    topic = office.metadata().require_topic(command.stream, command.topic)
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    await office.door(topic, command.partition_id).flush(fsync=command.fsync)
