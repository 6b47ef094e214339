"""Where the next poll of each partition starts, and what its reply means.

Each partition has a cursor. Its first poll uses the start strategy; after that the cursor follows
the last message. A cursor is reset when the group assigned the partition to another member, or when
the log was truncated below it; the stored offset counts then. No I/O: the poller sends requests.

A partition that is read again has a *floor*: the offset that was stored when that began. Commits
below it are held back, because the server would accept them and forget how far the group had got.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from iggy_protocol import PollingKind, PollingStrategy, record
from iggy_sdk.consumer.start import StartPlan

if TYPE_CHECKING:
    from collections.abc import Iterable


class PollDecision(Enum):
    """What to do with a reply."""

    TAKE = "deliver its messages, without those before the cursor"
    EMPTY = "there is nothing new"
    ASK = "it did not start at this cursor: poll the partition by its number"
    LOST = "the log ends before the cursor: start again from the stored offset"


@record
class ReplyOffsets:
    """The numbers of a reply.

    Attributes:
        current_offset: the highest offset of the partition; 0 also when it is empty.
        first: offset of the first message, or None when there is none.
        last: offset of the last message.
    """

    current_offset: int
    first: int | None = None
    last: int | None = None


EMPTY_REPLY = ReplyOffsets(0)
"""The reply of an empty partition, and of a partition that the member does not own."""


class PartitionCursor:
    """One partition."""

    __slots__ = ("floor", "has_started", "is_guarded", "moves", "position", "seek_target")

    def __init__(self) -> None:
        self.position: int | None = None
        """The offset that is polled next, once it is known."""
        self.has_started: bool = False
        """Whether the start strategy was used."""
        self.seek_target: PollingStrategy | None = None
        """The target of a seek; the next poll starts there."""
        self.is_guarded: bool = False
        """Whether the floor has to be found out before the next poll."""
        self.floor: int | None = None
        """The stored offset that commits may not fall below, or None."""
        self.moves: int = 0
        """How often it was moved by something else than a reply."""


class PartitionCursors:
    """The cursors of a consumer.

    Args:
        start: where the first poll of each partition starts.
        allow_replay: whether messages that were seen are taken when the server sends them again.
    """

    def __init__(self, start: StartPlan, *, allow_replay: bool = False) -> None:
        self._start = start
        self._allow_replay = allow_replay
        self._cursors: dict[int, PartitionCursor] = {}
        self._seeks_count = 0

    @property
    def starts_at_stored(self) -> bool:
        """Whether all partitions start at the stored offset."""
        return self._start.strategy.kind is PollingKind.NEXT and self._start.replay is None

    @property
    def has_pending_seek(self) -> bool:
        """Whether a seek is pending."""
        return any(cursor.seek_target is not None for cursor in self._cursors.values())

    def positions(self) -> dict[int, int]:
        """Tell the offset that is polled next, for each partition where it is known."""
        known = sorted(self._cursors.items())
        return {key: cursor.position for key, cursor in known if cursor.position is not None}

    def position(self, partition_id: int) -> int | None:
        """Tell the offset of a partition that is polled next, if it is known."""
        cursor = self._cursors.get(partition_id)
        return None if cursor is None else cursor.position

    def strategy(self, partition_id: int) -> PollingStrategy:
        """Return the strategy for a poll of this partition."""
        cursor = self._cursors.get(partition_id)
        if cursor is None:
            return self._start.strategy_of(partition_id)
        if cursor.seek_target is not None:
            return cursor.seek_target
        if cursor.position is not None:
            return PollingStrategy.offset(cursor.position)
        if cursor.has_started:
            return PollingStrategy.next()
        return self._start.strategy_of(partition_id)

    def decide_next(self, partition_id: int, seen: ReplyOffsets) -> PollDecision:
        """Decide on a reply that started at the stored offset, in the partition that was next."""
        cursor = self._cursors.get(partition_id)
        fresh = cursor is None or not cursor.has_started
        starts_elsewhere = self._start.strategy_of(partition_id).kind is not PollingKind.NEXT
        if (fresh and starts_elsewhere) or (cursor is not None and cursor.seek_target):
            # Even an empty reply says nothing: the start may be before the stored offset.
            return PollDecision.ASK
        if seen.last is None:
            return PollDecision.EMPTY
        if cursor is None or cursor.position is None or self._allow_replay:
            return PollDecision.TAKE
        if seen.current_offset + 1 < cursor.position:
            return PollDecision.LOST
        return PollDecision.TAKE if seen.last >= cursor.position else PollDecision.ASK

    def decide(
        self, partition_id: int, seen: ReplyOffsets, *, certain: bool = True
    ) -> PollDecision:
        """Decide on a reply to ``strategy``.

        Args:
            partition_id: the partition that was polled.
            seen: the offsets of the reply.
            certain: whether a reply of zeros surely comes from this partition; the server also
                replies zeros to a member that does not own the partition.
        """
        cursor = self._cursors.get(partition_id)
        position = None if cursor is None or cursor.seek_target else cursor.position
        speaks = certain or seen != EMPTY_REPLY
        if position is not None and speaks and seen.current_offset + 1 < position:
            return PollDecision.LOST
        if seen.last is None or (position is not None and seen.last < position):
            return PollDecision.EMPTY
        return PollDecision.TAKE

    def skip_before(self, partition_id: int) -> int:
        """Return the first new offset of a reply."""
        cursor = self._cursors.get(partition_id)
        if cursor is None or cursor.position is None or cursor.seek_target or self._allow_replay:
            return 0
        return cursor.position

    def take(self, partition_id: int, last_offset: int) -> None:
        """Continue after the last message of a reply."""
        cursor = self._get(partition_id)
        cursor.position, cursor.has_started, cursor.seek_target = last_offset + 1, True, None

    def rewind(self, partition_id: int, offset: int) -> None:
        """Go back to a message that was polled and not delivered."""
        cursor = self._get(partition_id)
        cursor.position = offset
        cursor.moves += 1

    def reset_to_stored(self, partition_id: int) -> None:
        """Continue this partition at the stored offset."""
        cursor = self._get(partition_id)
        cursor.position, cursor.has_started, cursor.floor = None, True, None
        cursor.moves += 1

    def begin(self, partition_ids: Iterable[int]) -> None:
        """Note that partitions have had their start, which they do not get a second time."""
        for partition_id in partition_ids:
            self._get(partition_id).has_started = True

    def seek(
        self,
        strategy: PollingStrategy,
        partition_id: int | None = None,
        *,
        guards: bool | None = None,
    ) -> None:
        """Start the next poll elsewhere; without a partition, in all of them.

        Args:
            strategy: where.
            partition_id: the partition.
            guards: whether commits are held back until what is stored is reached; None leaves
                that as it is.
        """
        if partition_id is None:
            self._start = StartPlan.seek(strategy, guards=bool(guards))
            self._seeks_count = self.all_moves + 1
            self._cursors.clear()
            return
        cursor = self._get(partition_id)
        cursor.seek_target = strategy
        cursor.moves += 1
        if guards is not None:
            cursor.is_guarded, cursor.floor = guards, None

    def moves(self, partition_id: int) -> tuple[int, int]:
        """Return another value after each move of a partition by something else than a reply."""
        cursor = self._cursors.get(partition_id)
        return self._seeks_count, 0 if cursor is None else cursor.moves

    @property
    def all_moves(self) -> int:
        """How often any partition was moved by something else than a reply."""
        return self._seeks_count + sum(cursor.moves for cursor in self._cursors.values())

    def disregard_reply(self, partition_id: int | None) -> None:
        """Note that a reply which is under way comes too late; without a partition, any."""
        if partition_id is None:
            self._seeks_count += 1
        else:
            self._get(partition_id).moves += 1

    # Floors

    def needs_floor(self, partition_id: int) -> bool:
        """Tell whether the floor of a partition has to be found out before its next poll."""
        cursor = self._cursors.get(partition_id)
        return self._start.is_guarded(partition_id) if cursor is None else cursor.is_guarded

    def set_floor(self, partition_id: int, floor: int | None) -> None:
        """Hold back commits below the stored offset, if there is one."""
        cursor = self._get(partition_id)
        cursor.floor, cursor.is_guarded = floor, False

    def floor(self, partition_id: int) -> int | None:
        """Return the stored offset that commits may not fall below, or None."""
        cursor = self._cursors.get(partition_id)
        return None if cursor is None else cursor.floor

    def is_below_floor(self, partition_id: int, offset: int) -> bool:
        """Tell whether the commit of an offset is held back."""
        floor = self.floor(partition_id)
        return floor is not None and offset < floor

    def lift_floor(self, partition_id: int) -> None:
        """Hold back nothing any more, because what was stored is reached."""
        cursor = self._cursors.get(partition_id)
        if cursor is not None:
            cursor.floor = None

    def _get(self, partition_id: int) -> PartitionCursor:
        cursor = self._cursors.get(partition_id)
        if cursor is None:
            cursor = self._cursors[partition_id] = PartitionCursor()
            cursor.is_guarded = self._start.is_guarded(partition_id)
        return cursor
