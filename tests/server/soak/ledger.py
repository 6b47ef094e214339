"""What producers were told and what consumers saw, and where the two disagree.

Every partition has one producer, which numbers its batches and sends the next one only when the
outcome of the one before is settled. What a batch holds follows from its number, so the ledger of
a run of hours stays small: numbers of batches whose outcome is not known, and a window of what was
read last.

It does no I/O. Whatever breaks a promise becomes a line in ``violations``.
"""

from __future__ import annotations

import zlib
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iggy_protocol import SendConfirmation

BATCH_SIZES = (1, 1, 10, 40)
FILLER_BYTES = (0, 60, 300, 900)
WINDOW_MESSAGES = 20_000
"""How many of the last messages of a partition are remembered with their offsets."""
VIOLATIONS_KEPT = 200
"""A run that goes wrong repeats itself; the count says how often."""

Key = tuple[int, int]
"""The number of a batch and the place in it."""


def batch_size(partition: int, batch: int) -> int:
    """Tell how many messages a batch has."""
    return BATCH_SIZES[zlib.crc32(b"%d/%d" % (partition, batch)) % len(BATCH_SIZES)]


def payload_of(partition: int, batch: int, place: int) -> bytes:
    """Write a message that says where it belongs."""
    head = b"%d/%d/%d:" % (partition, batch, place)
    mixed = zlib.crc32(head)
    return head + bytes([mixed & 0xFF]) * FILLER_BYTES[mixed % len(FILLER_BYTES)]


def batch_payloads(partition: int, batch: int) -> list[bytes]:
    """Write all messages of a batch."""
    return [payload_of(partition, batch, place) for place in range(batch_size(partition, batch))]


def key_of(partition: int, payload: bytes) -> Key | None:
    """Read where a message belongs; None if it is none of this partition, or was changed."""
    try:
        home, batch, place = map(int, payload.partition(b":")[0].split(b"/"))
    except ValueError:
        return None
    if home != partition or payload != payload_of(home, batch, place):
        return None
    return batch, place


class Intervals:
    """A set of offsets, kept as ranges."""

    def __init__(self) -> None:
        self.ranges: list[list[int]] = []

    def add(self, first: int, last: int) -> None:
        """Add all offsets from the first to the last; they usually belong to the last range."""
        at = len(self.ranges)
        while at and self.ranges[at - 1][0] > first:
            at -= 1
        if at and self.ranges[at - 1][1] >= first - 1:
            at -= 1
            self.ranges[at][1] = max(self.ranges[at][1], last)
        else:
            self.ranges.insert(at, [first, last])
        while at + 1 < len(self.ranges) and self.ranges[at + 1][0] <= self.ranges[at][1] + 1:
            self.ranges[at][1] = max(self.ranges[at][1], self.ranges.pop(at + 1)[1])

    def count(self) -> int:
        """Count the offsets."""
        return sum(last - first + 1 for first, last in self.ranges)

    def missing_from(self, other: Intervals) -> list[tuple[int, int]]:
        """Name the ranges of this set that the other one lacks."""
        gaps: list[tuple[int, int]] = []
        for first, last in self.ranges:
            at = first
            for begin, end in other.ranges:
                if end < at or begin > last:
                    continue
                if begin > at:
                    gaps.append((at, begin - 1))
                at = max(at, end + 1)
            if at <= last:
                gaps.append((at, last))
        return gaps


@dataclass(slots=True)
class Life:
    """One life of the server.

    Attributes:
        level: what an acknowledgement promised.
        first_batches: the number that each partition's next batch had at its beginning.
        is_killed: whether it ended with a kill.
    """

    level: str
    first_batches: list[int]
    is_killed: bool = False

    @property
    def may_lose(self) -> bool:
        """Whether what was acknowledged in this life may be gone after it."""
        return self.is_killed and self.level == "memory"


@dataclass
class Track:
    """One partition.

    Attributes:
        next_batch: the number of the batch that is sent next.
        uncertain: batches whose sending ended with an error.
        confirmed: batches that lie at the offsets that servers have told, until they are read.
        troubled: acknowledged batches that may be there twice, since they were sent again.
        expected: what the reader should see next.
        last_offset: the highest offset that the reader saw.
        window: what the reader saw last, by offset.
        read: all offsets that the reader saw.
        grouped: all offsets that the group saw.
        read_of_life: the same, by the number of the life whose end may take them away.
    """

    partition: int
    next_batch: int = 0
    uncertain: set[int] = field(default_factory=set)
    confirmed: OrderedDict[int, int] = field(default_factory=OrderedDict)
    troubled: set[int] = field(default_factory=set)
    expected: Key = (0, 0)
    last_offset: int = -1
    window: OrderedDict[int, Key] = field(default_factory=OrderedDict)
    read: Intervals = field(default_factory=Intervals)
    grouped: Intervals = field(default_factory=Intervals)
    read_of_life: dict[int, Intervals] = field(default_factory=dict)


class Ledger:
    """All partitions, and what went wrong in any of them.

    Args:
        partitions: how many there are.
    """

    def __init__(self, partitions: int) -> None:
        self.tracks = [Track(partition) for partition in range(partitions)]
        self.lives: list[Life] = []
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.violations: list[str] = []

    def accuse(self, sentence: str) -> None:
        """Note that a promise was broken."""
        self.counts["violations"] += 1
        if len(self.violations) < VIOLATIONS_KEPT:
            self.violations.append(f"life {len(self.lives)}: {sentence}")

    # ---- lives

    def begin_life(self, level: str) -> None:
        """Note that the server begins to serve."""
        self.lives.append(Life(level, [track.next_batch for track in self.tracks]))

    def end_life(self, *, is_killed: bool) -> None:
        """Note how the server has ended, before it is started again."""
        self.lives[-1].is_killed = is_killed

    def _life_of(self, track: Track, batch: int) -> int:
        """Find the number of the life in which a batch was sent."""
        for number in range(len(self.lives) - 1, 0, -1):
            if batch >= self.lives[number].first_batches[track.partition]:
                return number
        return 0

    def _note_life(self, track: Track, offset: int, batch: int) -> None:
        """Note whose end may take away what was just read.

        When it was read says nothing: it may have lain in the reader's buffer since the life
        before. A batch under way while the server changed may be there from either life.
        """
        number = self._life_of(track, batch)
        track.read_of_life.setdefault(number, Intervals()).add(offset, offset)
        while number and batch == self.lives[number].first_batches[track.partition]:
            number -= 1
            track.read_of_life.setdefault(number, Intervals()).add(offset, offset)

    # ---- producers

    def acknowledge(self, track: Track, batch: int, *, was_disturbed: bool) -> None:
        """Note that a batch was acknowledged."""
        self.counts["acknowledged"] += batch_size(track.partition, batch)
        if was_disturbed:
            track.troubled.add(batch)

    def confirm(self, track: Track, batch: int, confirmation: SendConfirmation) -> None:
        """Note where the server says that a batch lies, and hold it to that."""
        self.counts["confirmed"] += batch_size(track.partition, batch)
        offset = confirmation.base_offset
        if confirmation.partition_id != track.partition:
            self.accuse(f"batch {batch} of partition {track.partition}: told {confirmation}")
        elif offset in track.window:
            self._hold_to(track, batch, offset, track.window[offset])
        else:
            track.confirmed[offset] = batch
            if len(track.confirmed) > WINDOW_MESSAGES:
                track.confirmed.popitem(last=False)

    def _hold_to(self, track: Track, batch: int, offset: int, key: Key) -> None:
        if key != (batch, 0) and not self.lives[self._life_of(track, batch)].may_lose:
            self.accuse(
                f"partition {track.partition}: batch {batch} was told to be at offset {offset},"
                f" where message {key} is"
            )

    def give_up(self, track: Track, batch: int) -> None:
        """Note that nobody knows whether a batch is there."""
        self.counts["uncertain"] += batch_size(track.partition, batch)
        track.uncertain.add(batch)

    # ---- the reader of each partition

    def see(self, track: Track, offset: int, payload: bytes) -> None:
        """Take the next message that the reader of a partition was given."""
        key = key_of(track.partition, payload)
        where = f"partition {track.partition}, offset {offset}"
        if key is None:
            self.accuse(f"{where}: not a message of it: {payload[:40]!r}")
            return
        if offset <= track.last_offset:
            self.compare(track, offset, key)
            self.counts["redelivered"] += 1
            return
        if offset != track.last_offset + 1:
            self._skip_offsets(track, track.last_offset + 1, offset)
        track.last_offset = offset
        track.read.add(offset, offset)
        track.window[offset] = key
        if offset in track.confirmed:
            self._hold_to(track, track.confirmed.pop(offset), offset, key)
        if len(track.window) > WINDOW_MESSAGES:
            track.window.popitem(last=False)
        self.counts["consumed"] += 1
        self._note_life(track, offset, key[0])
        self._follow(track, key, where)

    def compare(self, track: Track, offset: int, key: Key) -> None:
        """Hold a message that was read before to what it was then."""
        known = track.window.get(offset)
        if known is not None and known != key:
            self.accuse(
                f"partition {track.partition}, offset {offset}: was message {known}, is {key}"
            )

    def _skip_offsets(self, track: Track, first: int, behind: int) -> None:
        if any(life.may_lose for life in self.lives):
            self.counts["offsets skipped"] += behind - first
        else:
            self.accuse(f"partition {track.partition}: offsets {first} to {behind - 1} are missing")

    def _follow(self, track: Track, key: Key, where: str) -> None:
        batch, place = key
        if key < track.expected:
            self.counts["duplicates"] += 1
            if batch not in track.troubled and batch not in track.uncertain:
                self.accuse(f"{where}: message {key} is there twice and was sent once")
            return
        if key > track.expected:
            self._count_missing(track, key)
        is_last = place + 1 == batch_size(track.partition, batch)
        track.expected = (batch + 1, 0) if is_last else (batch, place + 1)

    def _count_missing(self, track: Track, until: Key) -> None:
        """Settle what should have come before a message, or before the end."""
        batch, place = track.expected
        while (batch, place) < until:
            size = batch_size(track.partition, batch)
            gone = (until[1] if batch == until[0] else size) - place
            if batch not in track.uncertain:
                self._lose(track, batch, gone)
            batch, place = batch + 1, 0

    def _lose(self, track: Track, batch: int, messages: int) -> None:
        if self.lives[self._life_of(track, batch)].may_lose:
            self.counts["lost within the promise"] += messages
        else:
            self.counts["lost"] += messages
            self.accuse(
                f"partition {track.partition}: {messages} messages of batch {batch} are lost"
            )

    # ---- groups

    def see_in_group(self, partition: int, offset: int, payload: bytes) -> None:
        """Take a message that a member of the group was given."""
        track = self.tracks[partition]
        key = key_of(partition, payload)
        if key is None:
            self.accuse(f"group, partition {partition}, offset {offset}: not a message of it")
            return
        self.compare(track, offset, key)
        track.grouped.add(offset, offset)
        self.counts["consumed by the group"] += 1

    # ---- the end

    def is_read_up(self) -> bool:
        """Tell whether readers have seen all that was acknowledged."""
        return all(self._rest(track) is None for track in self.tracks)

    def is_grouped_up(self) -> bool:
        """Tell whether the group has seen all that readers have."""
        return not any(self._ungrouped(track) for track in self.tracks)

    def settle(self) -> None:
        """Count what never came, once nothing more is to be expected."""
        for track in self.tracks:
            rest = self._rest(track)
            if rest is not None:
                self._count_missing(track, rest)
            for first, last in self._ungrouped(track):
                self.accuse(
                    f"partition {track.partition}: the group never got offsets {first} to {last}"
                )

    def _rest(self, track: Track) -> Key | None:
        """Name the place behind the last acknowledged batch if the reader has not come there."""
        batch = track.next_batch
        while batch > track.expected[0] and batch - 1 in track.uncertain:
            batch -= 1
        return (batch, 0) if (batch, 0) > track.expected else None

    def _ungrouped(self, track: Track) -> list[tuple[int, int]]:
        seen = Intervals()
        seen.ranges = [list(each) for each in track.grouped.ranges]
        for number, offsets in track.read_of_life.items():
            if self.lives[number].may_lose:
                for first, last in offsets.ranges:
                    seen.add(first, last)
        return track.read.missing_from(seen)
