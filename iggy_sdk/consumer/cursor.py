"""Where the next poll of each partition starts, and what its reply means.

Each partition has a cursor. Its first poll uses the start strategy; after that the cursor follows
the last message. A cursor is reset when the group assigned the partition to another member, or when
the log was truncated below it; the stored offset counts then. No I/O: the poller sends requests.
"""

from __future__ import annotations

from enum import Enum

from iggy_protocol import PollingKind, PollingStrategy, record


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

    __slots__ = ("has_started", "position", "seek_target")

    def __init__(self) -> None:
        self.position: int | None = None
        """The offset that is polled next, once it is known."""
        self.has_started = False
        """Whether the start strategy was used."""
        self.seek_target: PollingStrategy | None = None
        """The target of a seek; the next poll starts there."""


class PartitionCursors:
    """The cursors of a consumer.

    Args:
        start: where the first poll of each partition starts.
        allow_replay: whether messages that were seen are taken when the server sends them again.
    """

    def __init__(self, start: PollingStrategy, *, allow_replay: bool = False) -> None:
        self.start = start
        self._allow_replay = allow_replay
        self._cursors: dict[int, PartitionCursor] = {}

    @property
    def starts_at_stored(self) -> bool:
        """Whether partitions start at the stored offset."""
        return self.start.kind is PollingKind.NEXT

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
            return self.start
        if cursor.seek_target is not None:
            return cursor.seek_target
        if cursor.position is not None:
            return PollingStrategy.offset(cursor.position)
        return PollingStrategy.next() if cursor.has_started else self.start

    def decide_next(self, partition_id: int, seen: ReplyOffsets) -> PollDecision:
        """Decide on a reply that started at the stored offset, in the partition that was next."""
        cursor = self._cursors.get(partition_id)
        fresh = cursor is None or not cursor.has_started
        if (fresh and not self.starts_at_stored) or (cursor is not None and cursor.seek_target):
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
        self._get(partition_id).position = offset

    def reset_to_stored(self, partition_id: int) -> None:
        """Continue this partition at the stored offset."""
        cursor = self._get(partition_id)
        cursor.position, cursor.has_started = None, True

    def seek(self, strategy: PollingStrategy, partition_id: int | None = None) -> None:
        """Start the next poll elsewhere; without a partition, in all of them."""
        if partition_id is not None:
            self._get(partition_id).seek_target = strategy
            return
        self.start = strategy
        self._cursors.clear()

    def _get(self, partition_id: int) -> PartitionCursor:
        return self._cursors.setdefault(partition_id, PartitionCursor())
