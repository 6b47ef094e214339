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

from iggy_protocol import GetTopic, PollingStrategy
from iggy_sdk.consumer.cursor import Seen, Verdict
from iggy_sdk.message import ReceivedBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iggy_protocol import PolledMessages
    from iggy_sdk.consumer.cursor import Cursors
    from iggy_sdk.consumer.ledger import LedgerBook
    from iggy_sdk.consumer.membership import Seat
    from iggy_sdk.consumer.options import ConsumerOptions
    from iggy_sdk.consumer.place import Place

__all__ = ["Fetched", "Poller", "Rotation"]

logger = logging.getLogger("iggy_sdk.consumer")

NEXT = PollingStrategy.next()


class Fetched(NamedTuple):
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


class Rotation:
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
        seat: Seat,
        place: Place,
        options: ConsumerOptions,
        cursors: Cursors,
        book: LedgerBook,
        rotation: Rotation | None,
        make_batch: Callable[[PolledMessages], ReceivedBatch[Any]],
    ) -> None:
        self.polls_count = 0
        self.paused: frozenset[int] = frozenset()
        """Partitions that the user has paused."""
        self.held: frozenset[int] = frozenset()
        """Partitions with enough messages waiting for handlers; their end is not reached."""
        self._seat = seat
        self._place = place
        self._options = options
        self._cursors = cursors
        self._book = book
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

    async def poll(self) -> Fetched | None:
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
        topic = await self._seat.request(GetTopic(self._place.stream, self._place.topic))
        if topic is not None:
            self._rotation.replace(range(topic.partitions_count))

    async def _poll_in_turn(self) -> Fetched:
        if self._may_trust_server():
            batch = await self._request(None, NEXT, self._options.batch_length)
            seen, partition_id = _look(batch), batch.partition_id
            verdict = self._cursors.judge_next(partition_id, seen)
            if verdict is Verdict.TAKE:
                return self._take(partition_id, batch, seen)
            if verdict is Verdict.EMPTY:
                return Fetched(partition_id)
            if verdict is Verdict.LOST:
                self._lose(partition_id, seen)
        else:
            probe = await self._request(None, NEXT, 0)
            partition_id = probe.partition_id
        if partition_id in self.paused or partition_id in self.held:
            return Fetched(partition_id, at_end=partition_id not in self.held)
        return await self._poll_partition(partition_id)

    def _may_trust_server(self) -> bool:
        """Tell whether this consumer continues exactly at the stored offsets."""
        if self.paused or self.held or self._cursors.has_wanted:
            return False
        if self._by_server:
            # The server commits a reply even if it is not used.
            return self._cursors.starts_at_stored
        return self._book.is_settled

    async def _poll_partition(self, partition_id: int) -> Fetched:
        strategy = self._cursors.strategy(partition_id)
        batch = await self._request(partition_id, strategy, self._options.batch_length)
        if batch.partition_id != partition_id:
            # The server replies for another partition if the member does not own this one.
            return Fetched(partition_id)
        seen = _look(batch)
        certain = not self._place.is_group or partition_id != 0
        verdict = self._cursors.judge(partition_id, seen, certain=certain)
        if verdict is Verdict.TAKE:
            return self._take(partition_id, batch, seen)
        if verdict is Verdict.LOST:
            self._lose(partition_id, seen)
            return Fetched(partition_id, at_end=False)
        return Fetched(partition_id)

    def _take(self, partition_id: int, batch: ReceivedBatch[Any], seen: Seen) -> Fetched:
        assert seen.first is not None
        assert seen.last is not None
        skip_before = self._cursors.skip_before(partition_id)
        position = self._cursors.position(partition_id)
        if position is not None and skip_before == 0 and seen.first < position:
            # Going back: offsets of the later position must not be stored any more.
            self._book.forget(partition_id)
        if position is not None and skip_before > 0 and seen.first > position:
            logger.info(
                "%s: partition %d continues at offset %d instead of %d",
                *(self._place, partition_id, seen.first, position),
            )
        self._cursors.take(partition_id, seen.last)
        if not self._by_server:
            self._book.get(partition_id).poll(seen.last)
        return Fetched(partition_id, batch, skip_before, at_end=seen.last >= seen.current_offset)

    def _lose(self, partition_id: int, seen: Seen) -> None:
        logger.warning(
            "%s: partition %d ends at offset %d, before the position of this consumer; "
            "continuing from the stored offset",
            *(self._place, partition_id, seen.current_offset),
        )
        self._cursors.lose(partition_id)
        self._book.forget(partition_id)

    async def _request(
        self, partition_id: int | None, strategy: PollingStrategy, count: int
    ) -> ReceivedBatch[Any]:
        commits = self._by_server and count > 0
        self.polls_count += 1
        command = self._place.poll_command(partition_id, strategy, count, auto_commit=commits)
        return self._make_batch(await self._seat.request(command))


def _look(batch: ReceivedBatch[Any]) -> Seen:
    """Return the offsets of a reply."""
    if not len(batch):
        return Seen(batch.current_offset)
    return Seen(batch.current_offset, batch[0].offset, batch[-1].offset)
