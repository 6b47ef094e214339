"""One poll at a time: which partition, from where, and what of the reply is new.

There are two ways to choose the partition. A *rotation* polls named partitions one after the
other; standalone consumers use it, and groups that read named partitions. Otherwise the *server*
chooses the next partition of the member. Only that respects a rebalance, because the server skips a
partition that it has assigned to another member:

- When all that was polled is stored, one poll without a partition continues at the stored offset.
- Otherwise a poll of 0 messages returns the next partition, and a second one reads from the cursor.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from iggy_protocol import GetTopic, PolledMessages, PollingStrategy
from iggy_sdk.consumer.cursor import PartitionCursors, PollDecision, ReplyOffsets
from iggy_sdk.message import ReceivedBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iggy_sdk.consumer.membership import ConsumerMembership
    from iggy_sdk.consumer.options import ConsumerOptions
    from iggy_sdk.consumer.subscription import Subscription
    from iggy_sdk.consumer.tracker import OffsetTrackers


logger = logging.getLogger("iggy_sdk.consumer")

NEXT = PollingStrategy.next()


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


class PartitionRotation:
    """Partitions that are polled in turn."""

    def __init__(self, partitions: Sequence[int]) -> None:
        self._partitions = tuple(partitions)
        self._turn = 0

    def count_without(self, excluded: frozenset[int]) -> int:
        """Count the partitions that are not excluded."""
        return sum(partition_id not in excluded for partition_id in self._partitions)

    def replace(self, partitions: Sequence[int]) -> None:
        """Go on with other partitions."""
        self._partitions = tuple(partitions)

    def take(self, excluded: frozenset[int]) -> int | None:
        """Return the next partition, or None when all of them are excluded."""
        for _ in self._partitions:
            self._turn = (self._turn + 1) % len(self._partitions)
            partition_id = self._partitions[self._turn - 1]
            if partition_id not in excluded:
                return partition_id
        return None


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
        self.polls_count = 0
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

    @property
    def reads_all(self) -> bool:
        """Whether new partitions of the topic are read as well."""
        return self._rotation is not None and self._options.partition_id == "all"

    @property
    def round_length(self) -> int | None:
        """How many partitions make a round, if that is known."""
        if self._rotation is None:
            return None
        return max(1, self._rotation.count_without(self.paused | self.held))

    async def poll(self) -> FetchedMessages | None:
        """Poll once; None when all partitions are paused or held.

        Raises:
            IggyError: the poll failed; nothing has changed.
        """
        if self._rotation is None:
            return await self._poll_in_turn()
        partition_id = self._rotation.take(self.paused | self.held)
        return None if partition_id is None else await self._poll_partition(partition_id)

    async def refresh_partitions(self) -> None:
        """Request the partitions of the topic, to read new ones as well."""
        assert self._rotation is not None
        topic = await self._membership.request(
            GetTopic(self._subscription.stream, self._subscription.topic)
        )
        if topic is not None:
            self._rotation.replace(range(topic.partitions_count))

    async def _poll_in_turn(self) -> FetchedMessages:
        if self._can_poll_stored_offset():
            batch = await self._request(None, NEXT, self._options.batch_length)
            seen, partition_id = _reply_offsets(batch), batch.partition_id
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
        if partition_id in self.paused or partition_id in self.held:
            return FetchedMessages(partition_id, at_end=partition_id not in self.held)
        return await self._poll_partition(partition_id)

    def _can_poll_stored_offset(self) -> bool:
        """Tell whether this consumer continues exactly at the stored offsets."""
        if self.paused or self.held or self._cursors.has_pending_seek:
            return False
        if self._by_server:
            # The server commits a reply even if it is not used.
            return self._cursors.starts_at_stored
        return self._trackers.is_fully_stored

    async def _poll_partition(self, partition_id: int) -> FetchedMessages:
        strategy = self._cursors.strategy(partition_id)
        batch = await self._request(partition_id, strategy, self._options.batch_length)
        if batch.partition_id != partition_id:
            # The server replies for another partition if the member does not own this one.
            return FetchedMessages(partition_id)
        seen = _reply_offsets(batch)
        certain = not self._subscription.is_group or partition_id != 0
        decision = self._cursors.decide(partition_id, seen, certain=certain)
        if decision is PollDecision.TAKE:
            return self._take(partition_id, batch, seen)
        if decision is PollDecision.LOST:
            self._reset_partition(partition_id, seen)
            return FetchedMessages(partition_id, at_end=False)
        return FetchedMessages(partition_id)

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
        if not self._by_server:
            self._trackers.get(partition_id).poll(seen.last)
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
        commits = self._by_server and count > 0
        self.polls_count += 1
        command = self._subscription.poll_command(
            partition_id, strategy, count, auto_commit=commits
        )
        return self._make_batch(await self._membership.request(command))


def _reply_offsets(batch: ReceivedBatch[Any]) -> ReplyOffsets:
    """Return the offsets of a reply."""
    if not len(batch):
        return ReplyOffsets(batch.current_offset)
    return ReplyOffsets(batch.current_offset, batch[0].offset, batch[-1].offset)
