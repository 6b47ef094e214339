"""Fetches: messages of many partitions in one reply, since 0.12.2.

The reply has a section for each partition that the client names. What is wrong with one partition
is the status of its section, and the others are read all the same; then the fetch does not wait.
Otherwise it sleeps until all partitions together hold enough messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from iggy_protocol import (
    NO_CONTEXT,
    V0_12_2,
    Buffer,
    Dialect,
    FetchedHead,
    FetchMessages,
    FetchTarget,
    PartitionContext,
    PolledWriter,
    StatusCode,
    encode_fetched,
    encode_polled_batches,
)
from iggy_ref_server.dispatch.deferred_slots import Sleep
from iggy_ref_server.dispatch.handlers.deferred import (
    Reader,
    claim_partitions,
    commit,
    deadline_after,
    find_reader,
)
from iggy_ref_server.dispatch.handlers.messages import EncodedReply
from iggy_ref_server.dispatch.partition_context import not_owned
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import PollGrant
from iggy_ref_server.partitions.partition_client import ConsumerProgress, PartitionClient
from iggy_ref_server.partitions.poll_plan import PollParams
from iggy_ref_server.partitions.steps import run_async

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_protocol import PolledBatches, RequestId
    from iggy_ref_server.completion import Wait
    from iggy_ref_server.dispatch.context import HandlerContext
    from iggy_ref_server.metadata.state import TopicRecord
    from iggy_ref_server.session import ClientSession


READ_MARGIN_US: Final = 400_000
"""Reads end so long before the client gives up, as in Apache Iggy; the rest is for the reply."""
PARTITIONS_PER_TURN: Final = 32
"""Looked at without a checkpoint of the event loop: takes about a millisecond."""
SECTION_HEAD_BYTES: Final = 56
COUNT_BYTES: Final = 4
POLLED_HEAD_BYTES: Final = len(encode_polled_batches(0, 0, [], dialect=V0_12_2).buffers[0])
"""What stands before the batches in the reply to a poll, and not in a section."""


class _Source(NamedTuple):
    """A partition that can be read.

    Attributes:
        target: what the client asks of it.
        client: reads it.
        incarnation: which one it is.
        epoch: the ownership of the member; 0 for a single consumer.
        progress: its messages, and the stored offset, when it was looked at last.
    """

    target: FetchTarget
    client: PartitionClient
    incarnation: int
    epoch: int
    progress: ConsumerProgress

    @property
    def start(self) -> int:
        """Where the consumer goes on."""
        return self.progress.start_of(self.target.strategy)

    @property
    def first(self) -> int:
        """The offset of the next message for the consumer; offsets that are gone are skipped."""
        return max(self.start, self.progress.first_offset)

    @property
    def available(self) -> int:
        """How many messages there are for the consumer."""
        return self.progress.available(self.start)


class _Section(NamedTuple):
    """One partition in the reply."""

    head: FetchedHead
    batches: Sequence[Buffer] = ()


async def fetch_messages(
    context: HandlerContext,
    session: ClientSession,
    command: FetchMessages,
    request_id: RequestId | None,
) -> EncodedReply:
    """Read messages of many partitions, and wait for them if there are too few of all."""
    assert request_id is not None, "clients before 0.12.2 have no such command"
    reads_end = trio.current_time() + (command.timeout_us - READ_MARGIN_US) / 1e6
    deadline = min(deadline_after(context, command.wait_us), reads_end)
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    reader = find_reader(session, topic, command.consumer)
    with (
        context.deferred.take(request_id.session, len(command.targets)) as ended,
        Sleep(ended, deadline) as sleep,
    ):
        found = await _open(context, topic, command.targets, reader)
        sources = [source for source in found.values() if isinstance(source, _Source)]
        if len(sources) == len(found):
            await _sleep_until_enough(context, reader, sources, command.messages_min, sleep)
        sleep.check()
    # As it is now: a partition may have been made anew, or belong to another member.
    topic = context.metadata().require_topic(topic.stream_id, topic.id)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    found = await _open(context, topic, command.targets, reader)
    fetch = _Fetch(context, topic, command, request_id.dialect, reader, reads_end)
    sections: list[_Section] = []
    with ExitStack() as held:
        for number, source in enumerate(found.values(), start=1):
            await _take_turn(context, number)
            sections.append(await fetch.read(source))
            size_bytes = _size_of(sections[-1].batches)
            held.enter_context(context.conversions.holding(size_bytes))
    parts = encode_fetched((section.head, section.batches) for section in sections)
    return EncodedReply(tuple(parts))


async def _open(
    context: HandlerContext, topic: TopicRecord, targets: Iterable[FetchTarget], reader: Reader
) -> dict[int, _Source | _Section]:
    """Return what can be read of the partitions that a client names; else sections that say why."""
    found: dict[int, _Source | _Section] = {}
    named = [PollGrant(target.partition_id, target.owner_generation) for target in targets]
    grants = await claim_partitions(context, reader, named)
    for number, (target, grant) in enumerate(zip(targets, grants, strict=True), start=1):
        await _take_turn(context, number)
        try:
            if grant is None:
                raise not_owned(reader.group)
            found[target.partition_id] = await _find_source(context, topic, target, grant, reader)
        except ServerFault as fault:
            found[target.partition_id] = _refusal(target, fault.status)
    return found


async def _take_turn(context: HandlerContext, number: int) -> None:
    """Let everything else run before some partitions are looked at, but for the first ones."""
    if not number % PARTITIONS_PER_TURN:
        await context.conversions.next_turn()


async def _find_source(
    context: HandlerContext,
    topic: TopicRecord,
    target: FetchTarget,
    grant: PollGrant,
    reader: Reader,
) -> _Source:
    incarnation = topic.require_partition(target.partition_id).incarnation
    if target.incarnation != incarnation:
        raise ServerFault(
            StatusCode.PARTITION_HISTORY_UNAVAILABLE,
            f"partition {target.partition_id} is {incarnation}, and the client means"
            f" {target.incarnation}",
        )
    client = context.partition_client(topic, target.partition_id)
    progress = await client.progress(reader.key)
    return _Source(target, client, incarnation, grant.epoch, progress)


def _refusal(target: FetchTarget, status: int) -> _Section:
    return _Section(FetchedHead(target.partition_id, status, 0, 0, NO_CONTEXT, 0, 0))


async def _sleep_until_enough(
    context: HandlerContext,
    reader: Reader,
    sources: Sequence[_Source],
    messages_min: int,
    sleep: Sleep,
) -> None:
    """Sleep until the partitions hold enough messages together, or one of them is lost."""
    if reader.group is not None:
        grants = [PollGrant(source.target.partition_id, source.epoch) for source in sources]
        lost = context.groups.watch(reader.group, grants)
        sleep.add(lost)
    else:
        lost = None
    waits: dict[Wait, _Source] = {}
    available = {source.target.partition_id: source.available for source in sources}
    woken: Iterable[_Source] = sources
    while sum(available.values()) < messages_min and not sleep.is_over:
        for source in woken:
            wait = source.client.wait_for(max(source.start, source.progress.end_offset))
            waits[wait] = source
            sleep.add(wait)
        await sleep.until_woken()
        if lost is not None and lost.is_done:
            return
        woken = []
        for wait in [wait for wait in waits if wait.is_done]:
            source = waits.pop(wait)
            sleep.forget(wait)
            if wait.fault is not None:
                return  # the section of this partition says why
            progress = await source.client.progress(reader.key)
            woken.append(source._replace(progress=progress))
            available[source.target.partition_id] = woken[-1].available


class _Fetch:
    """The reads of one fetch, within its limits.

    Args:
        context: the parts of the shard.
        topic: the topic.
        command: the limits.
        dialect: what the client speaks.
        reader: who reads.
        reads_end: when to read no more, on the clock of the loop.
    """

    def __init__(
        self,
        context: HandlerContext,
        topic: TopicRecord,
        command: FetchMessages,
        dialect: Dialect,
        reader: Reader,
        reads_end: float,
    ) -> None:
        self._context = context
        self._topic = topic
        self._dialect = dialect
        self._reader = reader
        self._reads_end = reads_end
        self._auto_commit = command.auto_commit
        self._count = command.count
        heads_bytes = COUNT_BYTES + SECTION_HEAD_BYTES * len(command.targets)
        limit_bytes = command.bytes_max - heads_bytes
        self._bytes = min(limit_bytes, context.poll_bytes_max(context.config.limits.max_poll_bytes))
        self._is_empty = True

    async def read(self, source: _Source | _Section) -> _Section:
        """Read one partition, as far as the limits allow."""
        if isinstance(source, _Section):
            return source
        if not self._count or (self._bytes <= 0 and not self._is_empty):
            return self._section(source, source.progress.current_offset, source.first)
        try:
            section = await self._read(source)
        except ServerFault as fault:
            return _refusal(source.target, fault.status)
        self._count -= section.head.messages_count
        self._bytes -= _size_of(section.batches)
        self._is_empty = self._is_empty and not section.batches
        return section

    async def _read(self, source: _Source) -> _Section:
        target = source.target
        room = max(min(self._bytes, target.bytes_max), 0)
        params = PollParams(target.strategy, self._count, self._reader.key, room, room)
        written: PolledBatches | None = None
        with trio.move_on_at(self._reads_end):
            polled = await run_async(source.client.poll(params, auto_commit=False))
            writer = PolledWriter(
                target.partition_id,
                polled.current_offset,
                dialect=self._dialect,
                bytes_max=room + POLLED_HEAD_BYTES,
            )
            written = await run_async(self._context.conversions.write(writer, polled.parts, room))
        if written is None:
            raise ServerFault(StatusCode.TRANSIENT_NOT_ACCEPTED, "there was no time for the read")
        batches, last_offset = written.buffers[1:], written.last_offset
        if last_offset is None and written.is_damaged:
            raise ServerFault(
                StatusCode.CANNOT_READ_MESSAGE,
                f"the next message of partition {target.partition_id} is damaged",
            )
        # The first message of a partition comes alone if it is larger than the limit. Behind those
        # of other partitions it has to wait for the next fetch.
        if last_offset is None or (not self._is_empty and _size_of(batches) > room):
            return self._section(source, polled.current_offset, source.first)
        self._require_incarnation(source)
        await self._deliver(source, last_offset)
        return self._section(
            source, polled.current_offset, last_offset + 1, written.messages_count, batches
        )

    def _require_incarnation(self, source: _Source) -> None:
        """Check that the partition was not purged while its messages were read."""
        topic = self._context.metadata().require_topic(self._topic.stream_id, self._topic.id)
        partition_id = source.target.partition_id
        if topic.require_partition(partition_id).incarnation != source.incarnation:
            raise ServerFault(
                StatusCode.PARTITION_HISTORY_UNAVAILABLE, f"partition {partition_id} was made anew"
            )

    def _section(
        self,
        source: _Source,
        current_offset: int,
        next_offset: int,
        count: int = 0,
        batches: Sequence[Buffer] = (),
    ) -> _Section:
        position = self._context.position.current
        state = PartitionContext(source.incarnation, source.epoch, position)
        head = FetchedHead(
            source.target.partition_id, 0, current_offset, count, state, next_offset, 0
        )
        return _Section(head, batches)

    async def _deliver(self, source: _Source, last_offset: int) -> None:
        """Note what a member gets, and store the offset if the client has asked for that."""
        reader, partition_id = self._reader, source.target.partition_id
        if reader.group is not None and not await self._context.groups.deliver(
            reader.group, reader.member_id, PollGrant(partition_id, source.epoch), last_offset
        ):
            raise not_owned(reader.group)
        if self._auto_commit:
            await commit(self._context, reader, source.client, partition_id, last_offset)


def _size_of(batches: Sequence[Buffer]) -> int:
    return sum(memoryview(part).nbytes for part in batches)
