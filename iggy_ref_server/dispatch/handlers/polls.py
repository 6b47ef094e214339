"""Polls: messages of one partition, for a single consumer or for a member of a group.

The classic dialect gets the stored messages as they are, in pieces of files that the kernel sends.
From 0.9 on they are read into memory and written as batches. Such a reply may hold fewer messages
than were read, so what a poll commits is decided behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_protocol import (
    CLASSIC,
    ByDialect,
    ConsumerKind,
    Dialect,
    Limits,
    PartitionContext,
    PolledBatches,
    PolledWriter,
    PollMessages,
    StatusCode,
    Transport,
    encode_polled,
    encode_polled_batches,
)
from iggy_ref_server.dispatch.handlers.messages import (
    EncodedReply,
    group_key,
    offset_key,
    require_not_evicted,
)
from iggy_ref_server.dispatch.partition_context import (
    claim,
    named_ownership,
    not_owned,
    require_incarnation,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import ClaimPurpose, PollGrant
from iggy_ref_server.metadata.state import TopicRecord
from iggy_ref_server.partitions.offsets import OffsetKey
from iggy_ref_server.partitions.partition_client import PartitionClient
from iggy_ref_server.partitions.poll_plan import PollParams
from iggy_ref_server.partitions.steps import Await, Steps, run_async, run_if_ready

if TYPE_CHECKING:
    from iggy_protocol import RequestId
    from iggy_ref_server.dispatch.context import HandlerContext
    from iggy_ref_server.groups.group import GroupKey
    from iggy_ref_server.partitions.poll_plan import PollResult
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


class PollSource(NamedTuple):
    """What is polled.

    Attributes:
        topic: the topic.
        partition_id: the partition.
        client: reads it.
        params: where to begin, and how much.
        owner_generation: the ownership under which a group member polls; 0 for others.
        reply_bytes_max: the limit that the client has set for its reply; None where it has none,
            and one message is delivered however large it is.
    """

    topic: TopicRecord
    partition_id: int
    client: PartitionClient
    params: PollParams
    owner_generation: int = 0
    reply_bytes_max: int | None = None

    @property
    def incarnation(self) -> int:
        """Which partition of this number is polled."""
        return self.topic.require_partition(self.partition_id).incarnation


class PollDelivery(NamedTuple):
    """The reply to a poll, and the offset of the last message in it; None if there is none."""

    reply: EncodedReply
    last_offset: int | None


def _encode_poll(partition_id: int, polled: PollResult) -> EncodedReply:
    head = encode_polled(partition_id, polled.current_offset, polled.messages_count, [])
    return EncodedReply((*head, *polled.parts))


# Tells a member of 0.9 that its assignment is out of date.
STALE_PARTITION: Final = 0xFFFF_FFFF
# The replies to a member that does not own the partition it polls; None where it is an error.
NOT_OWNED_REPLIES: Final[ByDialect[EncodedReply | None]] = ByDialect(
    EncodedReply(tuple(encode_polled(0, 0, 0, []))),
    {
        Dialect.V0_11: EncodedReply(
            tuple(encode_polled_batches(STALE_PARTITION, 0, [], dialect=Dialect.V0_11).buffers)
        ),
        Dialect.V0_12_0: None,
    },
)


def not_owned_reply(request_id: RequestId | None, group: GroupKey) -> EncodedReply:
    """Return the reply to a member that does not own the partition it polls.

    Raises:
        ServerFault: in its dialect that is an error.
    """
    reply = NOT_OWNED_REPLIES[_dialect_of(request_id)]
    if reply is None:
        raise not_owned(group)
    return reply


def _dialect_of(request_id: RequestId | None) -> Dialect:
    return CLASSIC if request_id is None else request_id.dialect


def _poll_params(
    context: HandlerContext,
    session: ClientSession,
    command: PollMessages,
    request_id: RequestId | None,
    key: OffsetKey,
) -> PollParams:
    memory_max_bytes = context.poll_bytes_max(context.config.limits.max_poll_bytes)
    params = PollParams(
        command.strategy,
        command.count,
        key,
        REPLY_BYTES_MAX.get(session.transport, memory_max_bytes),
        memory_max_bytes,
    )
    return params if request_id is None else params.limited_to_memory


def poll_nowait(
    context: HandlerContext,
    session: ClientSession,
    command: PollMessages,
    request_id: RequestId | None = None,
) -> EncodedReply | None:
    """Poll without waiting; None if that is not possible, and then nothing was changed."""
    if command.consumer.kind is ConsumerKind.GROUP:
        return None  # the group is asked first, which may be on another shard
    return run_if_ready(_poll(context, session, command, request_id))


async def poll_messages(
    context: HandlerContext,
    session: ClientSession,
    command: PollMessages,
    request_id: RequestId | None = None,
) -> EncodedReply:
    """Read messages of one partition."""
    return await run_async(_poll(context, session, command, request_id))


def _poll(
    context: HandlerContext,
    session: ClientSession,
    command: PollMessages,
    request_id: RequestId | None,
) -> Steps[EncodedReply]:
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    if command.consumer.kind is ConsumerKind.GROUP:
        return (yield from _poll_as_member(context, session, command, request_id, topic))
    partition_id = command.partition_id or 0
    key = offset_key(command.consumer)
    params = _poll_params(context, session, command, request_id, key)
    partition_client = context.partition_client(topic, partition_id)
    if request_id is None:
        polled = yield from partition_client.poll(params, auto_commit=command.auto_commit)
        session.count_owner(partition_client.shard_id)
        return _encode_poll(partition_id, polled)
    require_incarnation(request_id, topic, partition_id)
    if named_ownership(request_id):
        raise not_owned("no group")
    source = PollSource(topic, partition_id, partition_client, params)
    polled = yield from partition_client.poll(params, auto_commit=False)
    delivery = yield from deliver(context, source, request_id, polled)
    if command.auto_commit and delivery.last_offset is not None:
        yield from partition_client.store_polled(key, delivery.last_offset)
    session.count_owner(partition_client.shard_id)
    return delivery.reply


def _poll_as_member(
    context: HandlerContext,
    session: ClientSession,
    command: PollMessages,
    request_id: RequestId | None,
    topic: TopicRecord,
) -> Steps[EncodedReply]:
    """Poll for a group member; deliver and commit only if it still owns the partition."""
    require_not_evicted(session)
    group = group_key(topic, command.consumer)
    groups, member_id = context.groups, session.member_id
    grant: PollGrant | None
    if request_id is None or command.partition_id is None:
        grant = yield Await(groups.resolve_poll, group, member_id, command.partition_id)
    else:
        require_incarnation(request_id, topic, command.partition_id)
        named = PollGrant(command.partition_id, named_ownership(request_id))
        grant = yield Await(claim, context, session, group, named, ClaimPurpose.POLL)
    if grant is None:
        return not_owned_reply(request_id, group)
    require_incarnation(request_id, topic, grant.partition)
    key = OffsetKey(ConsumerKind.GROUP, group.group_id)
    partition_client = context.partition_client(topic, grant.partition)
    params = _poll_params(context, session, command, request_id, key)
    source = PollSource(topic, grant.partition, partition_client, params, grant.epoch)
    polled = yield from partition_client.poll(params, auto_commit=False)
    delivery = yield from deliver(context, source, request_id, polled)
    if delivery.last_offset is None:
        return delivery.reply
    if not (yield Await(groups.deliver, group, member_id, grant, delivery.last_offset)):
        return not_owned_reply(request_id, group)
    if command.auto_commit:
        yield from partition_client.store_polled(key, delivery.last_offset)
        yield Await(groups.committed, group, grant.partition, delivery.last_offset)
    return delivery.reply


def deliver(
    context: HandlerContext, source: PollSource, request_id: RequestId | None, polled: PollResult
) -> Steps[PollDelivery]:
    """Write what was polled as the reply; the caller stores the offset that it leads to.

    Raises:
        ServerFault: the first message is damaged, or larger than the client's limit.
    """
    if request_id is None:
        return PollDelivery(_encode_poll(source.partition_id, polled), polled.last_offset)
    written = yield from _write_batches(context, source, request_id, polled)
    if written.is_damaged and not written.messages_count:
        raise ServerFault(
            StatusCode.CANNOT_READ_MESSAGE,
            f"the first polled message of partition {source.partition_id} of topic"
            f" {source.topic.id} in stream {source.topic.stream_id} is damaged",
        )
    # While the messages were read, their partition may have been purged.
    topic = context.metadata().require_topic(source.topic.stream_id, source.topic.id)
    require_incarnation(request_id, topic, source.partition_id)
    is_same = source.incarnation == topic.require_partition(source.partition_id).incarnation
    last_offset = written.last_offset if is_same else None
    return PollDelivery(EncodedReply(tuple(written.buffers)), last_offset)


def _write_batches(
    context: HandlerContext, source: PollSource, request_id: RequestId, polled: PollResult
) -> Steps[PolledBatches]:
    """Write stored messages in the form of the client's dialect."""
    limit_bytes = source.reply_bytes_max
    bytes_max = limit_bytes or source.params.size_max_bytes
    writer = PolledWriter(
        source.partition_id,
        polled.current_offset,
        dialect=request_id.dialect,
        context=PartitionContext(
            source.incarnation, source.owner_generation, context.position.current
        ),
        bytes_max=bytes_max,
        # Without a limit of the client one message is delivered however large it is.
        first_alone=None if limit_bytes else True,
    )
    written = yield from context.conversions.write(writer, polled.parts, bytes_max)
    if written.is_too_small:
        raise ServerFault(
            StatusCode.INVALID_SIZE_BYTES,
            f"the first message does not fit into a reply of {limit_bytes} bytes",
        )
    return written
