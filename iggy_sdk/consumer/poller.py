"""One poll at a time: which partition, from where, and what of the reply is new.

There are three ways to choose the partition. A *rotation* polls named partitions one after the
other; standalone consumers use it, and groups that read named partitions. Members of a group poll
the partitions that they are *assigned*, where the server tells them (``assignment``). A server of
0.8 does not, but chooses the next partition of the member. Only that respects a rebalance there,
because the server skips a partition that it has assigned to another member:

- When all that was polled is stored, one poll without a partition continues at the stored offset.
- Otherwise a poll of 0 messages returns the next partition, and a second one reads from the cursor.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import anyio

from iggy_protocol import GetTopic, PartitionContext, PolledMessages, PollingKind, PollingStrategy
from iggy_sdk.consumer.assignment import (
    NO_PARTITION,
    NO_PARTITIONS,
    AssignedPartitions,
    PartitionRotation,
)
from iggy_sdk.consumer.cursor import PartitionCursors, PollDecision, ReplyOffsets
from iggy_sdk.consumer.handover import ObservedPartitions
from iggy_sdk.consumer.latency import LatencyHistogram
from iggy_sdk.errors import PartitionNotOwnedError, PartitionRestartedError
from iggy_sdk.message import ReceivedBatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from iggy_protocol import Command
    from iggy_sdk.consumer.membership import ConsumerMembership
    from iggy_sdk.consumer.options import ConsumerOptions
    from iggy_sdk.consumer.subscription import Subscription
    from iggy_sdk.consumer.tracker import OffsetTrackers


R = TypeVar("R")

logger: logging.Logger = logging.getLogger("iggy_sdk.consumer")

NEXT = PollingStrategy.next()

REFRESH_SECONDS: Final = 1.0
"""How long new partitions of a topic may stay unread by a consumer that reads all of them."""


class FetchedMessages(NamedTuple):
    """The result of one poll.

    Attributes:
        partition_id: the partition that was polled.
        batch: the messages, or None when nothing is new.
        skip_before: the first offset that is new.
        at_end: whether the partition has no further messages at the moment.
    """

    partition_id: int
    batch: ReceivedBatch[Any] | None = None
    skip_before: int = 0
    at_end: bool = True


class Poller:
    """Polls for one consumer; without a rotation the server chooses the partition."""

    def __init__(
        self,
        *,
        membership: ConsumerMembership,
        subscription: Subscription,
        options: ConsumerOptions,
        cursors: PartitionCursors,
        trackers: OffsetTrackers,
        rotation: PartitionRotation | None,
        make_batch: Callable[[PolledMessages], ReceivedBatch[Any]],
    ) -> None:
        self.on_gained: Callable[[frozenset[int]], Awaitable[None]] = _do_nothing
        """Called with partitions that the member did not read before."""
        self.on_assignment: Callable[[frozenset[int]], Awaitable[None]] = _do_nothing
        """Called with the partitions of the consumer, now and then and when they have changed."""
        self.before_poll: Callable[[], Awaitable[None]] = _do_nothing_before
        """Called before each poll."""
        self.before_first: Callable[[], Awaitable[None]] = _do_nothing_before
        """Called before the first poll."""
        self.assigned: AssignedPartitions = AssignedPartitions(membership)
        self.polls_count: int = 0
        self.latency: LatencyHistogram = LatencyHistogram()
        """How long polls took that brought messages."""
        self.paused: frozenset[int] = frozenset()
        """Partitions that the user has paused."""
        self.held: frozenset[int] = frozenset()
        """Partitions with enough messages waiting for handlers; their end is not reached."""
        self._membership = membership
        self._subscription = subscription
        self._options = options
        self._cursors = cursors
        self._trackers = trackers
        self._rotation = rotation
        self._make_batch = make_batch
        self._by_server = options.commit.by_server
        self._refresh_at = -math.inf
        self._has_begun = False
        self._observed = ObservedPartitions()
        # The state of each partition as the last reply told it, from 0.10 on.
        self._contexts: dict[int, PartitionContext] = {}

    @property
    def reads_all(self) -> bool:
        """Whether new partitions of the topic are read as well."""
        return self._rotation is not None and self._options.partition_id == "all"

    @property
    def rotation(self) -> PartitionRotation | None:
        """The partitions that are polled in turn; None where the server chooses."""
        if self._rotation is None and self._membership.dialect.is_vsr:
            return self.assigned.rotation
        return self._rotation

    @property
    def assignment(self) -> frozenset[int]:
        """The partitions that are read, as far as they are known."""
        rotation = self.rotation
        return self._observed.partitions if rotation is None else rotation.as_set

    @property
    def excluded(self) -> frozenset[int]:
        """The partitions that are not polled at the moment."""
        return self.paused | self.held

    def round_of(self, excluded: frozenset[int]) -> frozenset[int] | None:
        """Return the partitions that make a round without these, if they are known."""
        rotation = self.rotation
        return None if rotation is None else (rotation.as_set - excluded or NO_PARTITIONS)

    async def poll(self, count: int | None = None) -> FetchedMessages | None:
        """Poll once; None when all partitions are paused or held.

        Args:
            count: how many messages to ask for; None takes ``batch_length``.

        Raises:
            IggyError: the poll failed; nothing has changed.
        """
        rotation = self.rotation
        count = count or self._options.batch_length
        if rotation is None:
            return await self._poll_in_turn(count)
        if not rotation.partitions:
            return FetchedMessages(NO_PARTITION)
        partition_id = rotation.take(self.excluded)
        return None if partition_id is None else await self._poll_partition(partition_id, count)

    def context(self, partition_id: int) -> PartitionContext | None:
        """Return the state of a partition that the position of this consumer belongs to."""
        return self._contexts.get(partition_id)

    def forget_context(self, partition_id: int) -> None:
        """Go on in whatever state the partition is."""
        self._contexts.pop(partition_id, None)

    @property
    def upkeep_at(self) -> float:
        """When the partitions are to be asked for again, on the clock of the event loop."""
        if self.reads_all:
            return self._refresh_at
        return self.assigned.due_at if self.rotation is self.assigned.rotation else math.inf

    async def upkeep(self) -> bool:
        """Ask for the partitions again if that is due; say whether they have changed.

        Raises:
            IggyError: the server refuses, or cannot be reached.
        """
        await self.before_poll()
        if not self._has_begun:
            await self.before_first()
            self._has_begun = True
            if self.rotation is not None:
                await self.on_assignment(self.assignment)
        if anyio.current_time() < self.upkeep_at:
            return False
        rotation = self.rotation
        assert rotation is not None, "only partitions that are known by number change"
        before = rotation.partitions
        if self.reads_all:
            await self._refresh_partitions(rotation)
        else:
            gained = await self.assigned.refresh()
            # Whatever happens to a partition elsewhere: it has had its start here.
            self._cursors.begin(frozenset(before) - rotation.as_set)
            if gained:
                await self.on_gained(gained)
        await self.on_assignment(rotation.as_set)
        return rotation.partitions != before

    async def find_assigned(self) -> frozenset[int]:
        """Ask which partitions this consumer has, without reading any.

        Raises:
            IggyError: the server refuses, or cannot be reached.
        """
        rotation = self.rotation
        if rotation is not None:
            if rotation is self.assigned.rotation:
                await self.assigned.refresh()
            return rotation.as_set
        found: set[int] = set()
        while True:
            probe = await self._request(None, NEXT, 0)
            if probe.partition_id in found:
                return frozenset(found)
            found.add(probe.partition_id)

    async def _refresh_partitions(self, rotation: PartitionRotation) -> None:
        """Request the partitions of the topic, to read new ones as well."""
        topic = await self._membership.request(
            GetTopic(self._subscription.stream, self._subscription.topic)
        )
        if topic is not None:
            rotation.replace(range(topic.partitions_count))
        self._refresh_at = anyio.current_time() + REFRESH_SECONDS

    def prefer(self, partitions: Sequence[int]) -> None:
        """Poll these partitions first, because they have messages."""
        rotation = self.rotation
        if rotation is not None:
            rotation.prefer(partitions)

    def plain_context(self, partition_id: int) -> PartitionContext | None:
        """Return the history of a partition; whose the partition is, the server knows."""
        context = self.context(partition_id)
        return None if context is None else replace(context, owner_generation=0)

    async def _poll_in_turn(self, count: int) -> FetchedMessages:
        if self._can_poll_stored_offset():
            moves = self._cursors.all_moves
            batch = await self._request(None, NEXT, count)
            seen, partition_id = _reply_offsets(batch), batch.partition_id
            await self._observe(batch)
            if self._cursors.all_moves != moves and not self._by_server:
                return FetchedMessages(partition_id, at_end=False)
            decision = self._cursors.decide_next(partition_id, seen)
            if decision is PollDecision.TAKE:
                return self._take(partition_id, batch, seen)
            if decision is PollDecision.EMPTY:
                return FetchedMessages(partition_id)
            if decision is PollDecision.LOST:
                self._reset_partition(partition_id, seen)
        else:
            probe = await self._request(None, NEXT, 0)
            partition_id = probe.partition_id
            await self._observe(probe)
        if partition_id in self.paused or partition_id in self.held:
            return FetchedMessages(partition_id, at_end=partition_id not in self.held)
        return await self._poll_partition(partition_id, count)

    async def _observe(self, batch: ReceivedBatch[Any]) -> None:
        """Learn from the poll of a partition that the server has chosen."""
        # A member without partitions gets zeros as well.
        if batch.partition_id or len(batch) or batch.current_offset:
            self._observed.observe(batch.partition_id)
        await self.on_assignment(self._observed.partitions)

    def forget_assignment(self) -> None:
        """Begin anew, because the group was joined again."""
        self.assigned.forget()
        self._observed.forget()

    def _can_poll_stored_offset(self) -> bool:
        """Tell whether this consumer continues exactly at the stored offsets."""
        if self.paused or self.held or self._cursors.has_pending_seek:
            return False
        if self._by_server:
            # The server commits a reply even if it is not used.
            return self._cursors.starts_at_stored
        return self._trackers.is_fully_stored

    def strategy(self, partition_id: int) -> PollingStrategy:
        """Return where the next poll of a partition starts."""
        return NEXT if self._replays(partition_id) else self._cursors.strategy(partition_id)

    def moves(self, partition_id: int) -> tuple[int, int]:
        """Return another value after each move that makes a reply which is under way useless."""
        return self._cursors.moves(partition_id)

    def _replays(self, partition_id: int) -> bool:
        """Tell whether a member goes by the stored offset, because it may have been moved back."""
        if not self._options.allow_replay or self.rotation is not self.assigned.rotation:
            return False
        if self._cursors.position(partition_id) is None or self._cursors.has_pending_seek:
            return False
        tracker = self._trackers.find(partition_id)
        return tracker is None or tracker.is_fully_stored

    async def _poll_partition(self, partition_id: int, count: int) -> FetchedMessages:
        moves = self.moves(partition_id)
        try:
            if self._cursors.needs_floor(partition_id):
                await self._find_floor(partition_id)
            strategy = self.strategy(partition_id)
            batch = await self._request(partition_id, strategy, count)
        except PartitionNotOwnedError:
            return self.refused(partition_id)
        except PartitionRestartedError:
            return self.restarted(partition_id)
        if self.moves(partition_id) != moves and not self._by_server:
            # It was moved while the request was under way: the reply is from somewhere else.
            return FetchedMessages(partition_id, at_end=False)
        if self._by_server and batch.partition_id == partition_id and len(batch):
            await self._pass_floor(partition_id, batch[-1].offset)
        return self.take_reply(partition_id, batch)

    async def _find_floor(self, partition_id: int) -> None:
        """Ask what is stored, because the partition is read again from before it."""
        stored = await self._membership.request(self._subscription.get_offset_command(partition_id))
        self._cursors.set_floor(partition_id, None if stored is None else stored.stored_offset)

    async def _pass_floor(self, partition_id: int, last: int) -> None:
        """Store the end of a poll that the server did not commit, once it is not held back."""
        floor = self._cursors.floor(partition_id)
        if floor is not None and last >= floor:
            store = self._subscription.store_command(partition_id, last)
            await self._membership.request(store)
            self._cursors.lift_floor(partition_id)

    def take_reply(self, partition_id: int, batch: ReceivedBatch[Any]) -> FetchedMessages:
        """Decide what of a reply to a poll of this partition is new."""
        if batch.partition_id != partition_id:
            # The server replies for another partition if the member does not own this one.
            return self.refused(partition_id)
        seen = _reply_offsets(batch)
        is_told = self._membership.dialect.is_vsr
        certain = is_told or not self._subscription.is_group or partition_id != 0
        if self._replays(partition_id):
            decision = self._cursors.decide_next(partition_id, seen)
        else:
            decision = self._cursors.decide(partition_id, seen, certain=certain)
        if decision is PollDecision.TAKE:
            return self._take(partition_id, batch, seen)
        if decision is PollDecision.LOST:
            self._reset_partition(partition_id, seen)
            return FetchedMessages(partition_id, at_end=False)
        if certain and self.strategy(partition_id).kind is PollingKind.FIRST:
            # Its oldest message is the next one, whoever reads the partition meanwhile.
            self._cursors.begin((partition_id,))
        return FetchedMessages(partition_id)

    def refused(self, partition_id: int) -> FetchedMessages:
        """Ask for the assignment again, because the member does not own this partition."""
        self.forget_context(partition_id)
        self.assigned.expire()
        self._observed.forget(partition_id)
        return FetchedMessages(partition_id)

    def restarted(self, partition_id: int) -> FetchedMessages:
        """Begin again with a partition that was purged or made anew."""
        logger.warning(
            "%s: partition %d has started over; continuing from the stored offset",
            *(self._subscription, partition_id),
        )
        self.forget_context(partition_id)
        self._cursors.reset_to_stored(partition_id)
        self._trackers.forget(partition_id)
        return FetchedMessages(partition_id, at_end=False)

    def _take(
        self, partition_id: int, batch: ReceivedBatch[Any], seen: ReplyOffsets
    ) -> FetchedMessages:
        assert seen.first is not None
        assert seen.last is not None
        skip_before = self._cursors.skip_before(partition_id)
        position = self._cursors.position(partition_id)
        if position is not None and skip_before == 0 and seen.first < position:
            # Going back: offsets of the later position must not be stored any more.
            self._trackers.forget(partition_id)
        if position is not None and skip_before > 0 and seen.first > position:
            logger.info(
                "%s: partition %d continues at offset %d instead of %d",
                *(self._subscription, partition_id, seen.first, position),
            )
        self._cursors.take(partition_id, seen.last)
        tracker = self._trackers.get(partition_id)
        tracker.context = self.context(partition_id)
        if not self._by_server:
            tracker.poll(seen.last)
        return FetchedMessages(
            partition_id, batch, skip_before, at_end=seen.last >= seen.current_offset
        )

    def _reset_partition(self, partition_id: int, seen: ReplyOffsets) -> None:
        logger.warning(
            "%s: partition %d ends at offset %d, before the position of this consumer; "
            "continuing from the stored offset",
            *(self._subscription, partition_id, seen.current_offset),
        )
        self._cursors.reset_to_stored(partition_id)
        self._trackers.forget(partition_id)

    async def _request(
        self, partition_id: int | None, strategy: PollingStrategy, count: int
    ) -> ReceivedBatch[Any]:
        is_replay = partition_id is not None and self._cursors.floor(partition_id) is not None
        commits = self._by_server and count > 0 and not is_replay
        command = self._subscription.poll_command(
            partition_id, strategy, count, auto_commit=commits
        )
        context = None if partition_id is None else self.plain_context(partition_id)
        began = time.perf_counter()
        batch = self.read(await self.send(command, context=context))
        if len(batch):
            self.latency.add(time.perf_counter() - began)
        return batch

    async def send(
        self,
        command: Command[R],
        *,
        context: PartitionContext | None,
        timeout: float | None = None,
    ) -> R:
        """Send a poll of any kind, and count it."""
        self.polls_count += 1
        return await self._membership.request(command, context=context, timeout=timeout)

    def read(self, polled: PolledMessages) -> ReceivedBatch[Any]:
        """Make a batch of a reply, and note the state of its partition."""
        if polled.context.incarnation:
            self._contexts[polled.partition_id] = polled.context
        return self._make_batch(polled)


async def _do_nothing(partitions: frozenset[int]) -> None:
    """Do nothing with new partitions."""


async def _do_nothing_before() -> None:
    """Do nothing before a poll."""


def _reply_offsets(batch: ReceivedBatch[Any]) -> ReplyOffsets:
    """Return the offsets of a reply."""
    return ReplyOffsets(batch.current_offset, batch.first_offset, batch.last_offset)
