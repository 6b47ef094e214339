"""Where the next poll of each partition starts, and what its reply means.

Each partition has a cursor. Its first poll uses the start strategy; after that the cursor follows
the last message. A cursor is reset when the group assigned the partition to another member, or when
the log was truncated below it; the stored offset counts then. No I/O: the poller sends requests.
"""

from __future__ import annotations

from enum import Enum

from iggy_protocol import PollingKind, PollingStrategy, record

__all__ = ["NOTHING", "Cursors", "Seen", "Verdict"]


class Verdict(Enum):
    """What to do with a reply."""

    TAKE = "deliver its messages, without those before the cursor"
    EMPTY = "there is nothing new"
    ASK = "it did not start at this cursor: poll the partition by its number"
    LOST = "the log ends before the cursor: start again from the stored offset"


@record
class Seen:
    """The numbers of a reply.

    Attributes:
        current_offset: the highest offset of the partition; 0 also when it is empty.
        first: offset of the first message, or None when there is none.
        last: offset of the last message.
    """

    current_offset: int
    first: int | None = None
    last: int | None = None


NOTHING = Seen(0)
"""The reply of an empty partition, and of a partition that the member does not own."""


class Cursor:
    """One partition."""

    __slots__ = ("begun", "position", "wanted")

    def __init__(self) -> None:
        self.position: int | None = None
        """The offset that is polled next, once it is known."""
        self.begun = False
        """Whether the start strategy was used."""
        self.wanted: PollingStrategy | None = None
        """The target of a seek; the next poll starts there."""


class Cursors:
    """The cursors of a consumer.

    Args:
        start: where the first poll of each partition starts.
        allow_replay: whether messages that were seen are taken when the server sends them again.
    """

    def __init__(self, start: PollingStrategy, *, allow_replay: bool = False) -> None:
        self.start = start
        self._allow_replay = allow_replay
        self._cursors: dict[int, Cursor] = {}

    @property
    def starts_at_stored(self) -> bool:
        """Whether partitions start at the stored offset."""
        return self.start.kind is PollingKind.NEXT

    @property
    def has_wanted(self) -> bool:
        """Whether a seek is pending."""
        return any(cursor.wanted is not None for cursor in self._cursors.values())

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
        if cursor.wanted is not None:
            return cursor.wanted
        if cursor.position is not None:
            return PollingStrategy.offset(cursor.position)
        return PollingStrategy.next() if cursor.begun else self.start

    def judge_next(self, partition_id: int, seen: Seen) -> Verdict:
        """Decide on a reply that started at the stored offset, in the partition that was next."""
        cursor = self._cursors.get(partition_id)
        fresh = cursor is None or not cursor.begun
        if (fresh and not self.starts_at_stored) or (cursor is not None and cursor.wanted):
            # Even an empty reply says nothing: the start may be before the stored offset.
            return Verdict.ASK
        if seen.last is None:
            return Verdict.EMPTY
        if cursor is None or cursor.position is None or self._allow_replay:
            return Verdict.TAKE
        if seen.current_offset + 1 < cursor.position:
            return Verdict.LOST
        return Verdict.TAKE if seen.last >= cursor.position else Verdict.ASK

    def judge(self, partition_id: int, seen: Seen, *, certain: bool = True) -> Verdict:
        """Decide on a reply to ``strategy``.

        Args:
            partition_id: the partition that was polled.
            seen: the offsets of the reply.
            certain: whether a reply of zeros surely comes from this partition; the server also
                replies zeros to a member that does not own the partition.
        """
        cursor = self._cursors.get(partition_id)
        position = None if cursor is None or cursor.wanted else cursor.position
        speaks = certain or seen != NOTHING
        if position is not None and speaks and seen.current_offset + 1 < position:
            return Verdict.LOST
        if seen.last is None or (position is not None and seen.last < position):
            return Verdict.EMPTY
        return Verdict.TAKE

    def skip_before(self, partition_id: int) -> int:
        """Return the first new offset of a reply."""
        cursor = self._cursors.get(partition_id)
        if cursor is None or cursor.position is None or cursor.wanted or self._allow_replay:
            return 0
        return cursor.position

    def take(self, partition_id: int, last_offset: int) -> None:
        """Continue after the last message of a reply."""
        cursor = self._get(partition_id)
        cursor.position, cursor.begun, cursor.wanted = last_offset + 1, True, None

    def rewind(self, partition_id: int, offset: int) -> None:
        """Go back to a message that was polled and not delivered."""
        self._get(partition_id).position = offset

    def lose(self, partition_id: int) -> None:
        """Continue this partition at the stored offset."""
        cursor = self._get(partition_id)
        cursor.position, cursor.begun = None, True

    def seek(self, strategy: PollingStrategy, partition_id: int | None = None) -> None:
        """Start the next poll elsewhere; without a partition, in all of them."""
        if partition_id is not None:
            self._get(partition_id).wanted = strategy
            return
        self.start = strategy
        self._cursors.clear()

    def _get(self, partition_id: int) -> Cursor:
        return self._cursors.setdefault(partition_id, Cursor())
