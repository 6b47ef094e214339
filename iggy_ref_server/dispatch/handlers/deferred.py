"""Polls that wait until there are messages, from 0.10 on.

A deferred poll reads, and if that is not enough, sleeps until its partition holds the message that
makes it enough, and reads again. What the client may do is checked before it sleeps and again
before it is answered: meanwhile the partition may be purged or deleted, a group may give it to
another member, and the session may end. The first of these that happens ends the request.

A wait for messages asks the same of many partitions, and reads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import trio

from iggy_protocol import (
    ConsumerIdentity,
    ConsumerKind,
    PollDeferred,
    PollingKind,
    WaitForMessages,
)
from iggy_ref_server.dispatch.deferred_slots import Sleep
from iggy_ref_server.dispatch.handlers.messages import (
    EncodedReply,
    group_key,
    offset_key,
    require_known_kind,
    require_not_evicted,
)
from iggy_ref_server.dispatch.handlers.polls import PollSource, deliver
from iggy_ref_server.dispatch.partition_context import (
    named_ownership,
    not_owned,
    require_incarnation,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import ClaimPurpose, GroupKey, PollGrant
from iggy_ref_server.partitions.offsets import OffsetKey
from iggy_ref_server.partitions.poll_plan import PollParams
from iggy_ref_server.partitions.steps import run_async

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iggy_protocol import PollingStrategy, RequestId, WaitTarget
    from iggy_ref_server.dispatch.context import HandlerContext
    from iggy_ref_server.metadata.state import TopicRecord
    from iggy_ref_server.partitions.partition_client import PartitionClient
    from iggy_ref_server.partitions.poll_plan import PollResult
    from iggy_ref_server.session import ClientSession


class Reader(NamedTuple):
    """Who reads: a single consumer, or a member of a group.

    Attributes:
        key: whose offsets are stored.
        group: the group; None for a single consumer.
        member_id: the member of the group.
    """

    key: OffsetKey
    group: GroupKey | None = None
    member_id: int = 0


def find_reader(session: ClientSession, topic: TopicRecord, consumer: ConsumerIdentity) -> Reader:
    """Return who reads.

    Raises:
        ServerFault: there is no such group, or the client was evicted.
    """
    require_known_kind(consumer)
    if consumer.kind is ConsumerKind.SINGLE:
        return Reader(offset_key(consumer))
    require_not_evicted(session)
    group = group_key(topic, consumer)
    return Reader(OffsetKey(ConsumerKind.GROUP, group.group_id), group, session.member_id)


async def claim_partitions(
    context: HandlerContext, reader: Reader, named: Sequence[PollGrant]
) -> list[PollGrant | None]:
    """Return under which ownerships partitions are read; None where they may not be.

    Args:
        context: the parts of the shard.
        reader: who reads.
        named: the partitions, each with the ownership that the client knows of, or 0.
    """
    if reader.group is None:
        return [None if grant.epoch else grant for grant in named]
    return await context.groups.claim(reader.group, reader.member_id, named, ClaimPurpose.POLL)


def wait_us_max(context: HandlerContext, wait_us: int) -> int:
    """Return how long a request may wait that asks for so much."""
    return min(wait_us, context.config.limits.max_poll_wait_us)


def deadline_after(context: HandlerContext, wait_us: int) -> float:
    """Return when the wait of a request is over, on the clock of the loop."""
    return trio.current_time() + wait_us_max(context, wait_us) / 1e6


async def commit(
    context: HandlerContext, reader: Reader, client: PartitionClient, partition_id: int, offset: int
) -> None:
    """Store the offset of the last message that is delivered."""
    await run_async(client.store_polled(reader.key, offset))
    if reader.group is not None:
        await context.groups.committed(reader.group, partition_id, offset)


# One partition


async def poll_deferred(
    context: HandlerContext,
    session: ClientSession,
    command: PollDeferred,
    request_id: RequestId | None,
) -> EncodedReply:
    """Read messages of one partition, and wait for them if there are too few."""
    assert request_id is not None, "clients before 0.10 have no such command"
    deadline = deadline_after(context, command.wait_us)
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    partition_id = command.partition_id or 0
    require_incarnation(request_id, topic, partition_id)
    reader = find_reader(session, topic, command.consumer)
    named = PollGrant(partition_id, named_ownership(request_id))
    (grant,) = await claim_partitions(context, reader, [named])
    if grant is None:
        raise not_owned(reader.group)
    source = PollSource(
        topic,
        partition_id,
        context.partition_client(topic, partition_id),
        _poll_params(context, command, reader),
        grant.epoch,
        command.bytes_max,
    )
    with (
        context.deferred.take(request_id.session, 1) as ended,
        Sleep(ended, deadline) as sleep,
    ):
        if reader.group is not None:
            sleep.end_with(context.groups.watch(reader.group, [grant]), not_owned(reader.group))
        polled = await _poll_when_enough(context, command, reader, source, sleep)
        sleep.check()
    # As it is now: while the request slept, the partition may have been made anew.
    source = source._replace(topic=context.metadata().require_topic(topic.stream_id, topic.id))
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    require_incarnation(request_id, source.topic, partition_id)
    delivery = await run_async(deliver(context, source, request_id, polled))
    if delivery.last_offset is None:
        return delivery.reply
    if reader.group is not None and not await context.groups.deliver(
        reader.group, reader.member_id, grant, delivery.last_offset
    ):
        raise not_owned(reader.group)
    if command.auto_commit:
        await commit(context, reader, source.client, partition_id, delivery.last_offset)
    return delivery.reply


def _poll_params(context: HandlerContext, command: PollDeferred, reader: Reader) -> PollParams:
    """Return what is read, with the bounds of this moment."""
    memory_max_bytes = context.poll_bytes_max(context.config.limits.max_poll_bytes)
    return PollParams(
        command.strategy,
        command.count,
        reader.key,
        min(command.bytes_max, memory_max_bytes),
        memory_max_bytes,
    )


async def _poll_when_enough(
    context: HandlerContext,
    command: PollDeferred,
    reader: Reader,
    source: PollSource,
    sleep: Sleep,
) -> PollResult:
    """Poll until there are enough messages, or the time is over."""
    while True:
        # Anew each time: while it slept, others have taken memory, and many wake together.
        params = _poll_params(context, command, reader)
        polled = await run_async(source.client.poll(params, auto_commit=False))
        awaited = awaited_offset(params.strategy, command.messages_min, polled)
        if awaited is None or sleep.is_over:
            return polled
        wait = source.client.wait_for(awaited)
        sleep.add(wait)
        await sleep.until_woken()
        if wait.is_done:
            await wait.wait()  # raises its fault
            sleep.forget(wait)


def awaited_offset(strategy: PollingStrategy, messages_min: int, polled: PollResult) -> int | None:
    """Return the offset of the message that makes a poll enough; None if it is.

    A poll that did not reach the end of the log was cut by a limit, so it is enough.
    """
    missing = messages_min - polled.messages_count
    if missing <= 0:
        return None
    if polled.last_offset is None:
        is_named = strategy.kind is PollingKind.OFFSET
        start = max(strategy.value, polled.next_offset) if is_named else polled.next_offset
        return start + messages_min - 1
    if polled.last_offset + 1 < polled.next_offset:
        return None
    return polled.last_offset + missing


# Many partitions


async def wait_for_messages(
    context: HandlerContext,
    session: ClientSession,
    command: WaitForMessages,
    request_id: RequestId | None,
) -> tuple[int, ...]:
    """Tell which partitions have a message for a consumer, and wait until one has."""
    assert request_id is not None, "clients before 0.10 have no such command"
    deadline = deadline_after(context, command.wait_us)
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    for target in command.targets:
        topic.require_partition(target.partition_id)
    # The request has room for the state of one partition; that of the others is not known.
    require_incarnation(request_id, topic, command.targets[0].partition_id)
    reader = find_reader(session, topic, command.consumer)
    named = [PollGrant(target.partition_id, 0) for target in command.targets]
    grants = [grant for grant in await claim_partitions(context, reader, named) if grant]
    if len(grants) < len(named):
        raise not_owned(reader.group)
    with (
        context.deferred.take(request_id.session, len(named)) as ended,
        Sleep(ended, deadline) as sleep,
    ):
        if reader.group is not None:
            sleep.end_with(context.groups.watch(reader.group, grants), not_owned(reader.group))
        ready = await _find_ready(context, topic, command.targets, reader, sleep)
    # The permission may have been taken while the request slept.
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    return ready


async def _find_ready(
    context: HandlerContext,
    topic: TopicRecord,
    targets: Sequence[WaitTarget],
    reader: Reader,
    sleep: Sleep,
) -> tuple[int, ...]:
    """Return the partitions that have a message at their start; wait until one has."""
    clients = {
        target.partition_id: context.partition_client(topic, target.partition_id)
        for target in targets
    }
    awaited = await _find_awaited(clients, targets, reader)
    ready = [partition_id for partition_id in clients if partition_id not in awaited]
    if ready or sleep.is_over:
        return tuple(ready)
    waits = {
        partition_id: clients[partition_id].wait_for(offset)
        for partition_id, offset in awaited.items()
    }
    for wait in waits.values():
        sleep.add(wait)
    await sleep.until_woken()
    # A partition that was purged or deleted counts, too: its own poll tells the client why.
    return tuple(partition_id for partition_id, wait in waits.items() if wait.is_done)


async def _find_awaited(
    clients: Mapping[int, PartitionClient], targets: Sequence[WaitTarget], reader: Reader
) -> dict[int, int]:
    """Return the offsets at which partitions are read on, of those that have no message there."""
    awaited: dict[int, int] = {}

    async def find(partition_id: int, strategy: PollingStrategy) -> None:
        try:
            progress = await clients[partition_id].progress(reader.key)
        except ServerFault:
            return  # its own poll tells the client why
        start = progress.start_of(strategy)
        if not progress.available(start):
            awaited[partition_id] = start

    async with trio.open_nursery() as nursery:
        for target in targets:
            nursery.start_soon(find, target.partition_id, target.strategy)
    return awaited
