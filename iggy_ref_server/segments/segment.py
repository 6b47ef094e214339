"""One segment: a log file, its index, and how far both are published and written.

*Published* messages are visible to polls. *Written* messages are in the log file. The index file
may lag behind both. Under acknowledgement from memory messages are published before they are
written, otherwise when they are written.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

from iggy_ref_server.segments.file_names import index_path, log_path
from iggy_ref_server.segments.index import SegmentIndex
from iggy_ref_server.storage.interface import File, Storage, StorageError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from iggy_protocol import Buffer


LOGGER = logging.getLogger(__name__)


# The verified byte ranges of a log: read and checked once, or written by this process.
#
# A poll sends bytes from the file to the socket unread, so they are verified before, once.


# Consumers read at few places at a time; a forgotten range is verified again.
RANGES_MAX = 16


class CheckedRanges:
    """Byte ranges of one log, apart from each other and in order."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def covers(self, start: int, end: int) -> bool:
        """Tell whether all bytes of a range are known."""
        return any(first <= start and end <= last for first, last in reversed(self._ranges))

    def add(self, start: int, end: int) -> None:
        """Note a range; those that touch become one, and of too many the shortest is forgotten."""
        ranges = self._ranges
        if ranges and ranges[-1][1] == start:  # what is appended follows what was
            ranges[-1] = (ranges[-1][0], end)
            return
        apart = [known for known in ranges if known[1] < start or end < known[0]]
        touching = [known for known in ranges if not (known[1] < start or end < known[0])]
        merged = (
            min([start, *(first for first, _ in touching)]),
            max([end, *(last for _, last in touching)]),
        )
        ranges[:] = sorted([*apart, merged])
        if len(ranges) > RANGES_MAX:
            ranges.remove(min(ranges, key=lambda known: known[1] - known[0]))


# An index entry holds the end of a message in 32 bits.
POSITION_MAX = 2**32 - 1


class Segment:
    """A stretch of a partition.

    Args:
        directory: the partition's directory.
        start_offset: offset of the first message.

    Attributes:
        messages_count: messages that are published.
        size_bytes: their bytes.
        first_timestamp_us: time of the first message, 0 while there is none.
        last_timestamp_us: time of the last message, 0 while there is none.
        written_count: messages that the log file holds.
        written_bytes: where the next write goes.
        indexed_bytes: bytes of messages that the index file accounts for, as far as is known.
        index: one entry for each published message.
        checked: the bytes of the log that are known to be good messages.
        log: the open log; None before the segment is made, and while it is not needed.
        is_created: whether the files exist.
        is_sealed: whether all is written and nothing will be added.
        is_used: whether it was read since the open file budget asked last.
        last_seen_bytes: how far it was written when the open file budget asked last.
    """

    __slots__ = (
        "checked",
        "directory",
        "first_timestamp_us",
        "index",
        "indexed_bytes",
        "is_created",
        "is_sealed",
        "is_used",
        "last_seen_bytes",
        "last_timestamp_us",
        "log",
        "messages_count",
        "size_bytes",
        "start_offset",
        "written_bytes",
        "written_count",
    )

    def __init__(self, directory: str, start_offset: int) -> None:
        self.directory = directory
        self.start_offset = start_offset
        self.messages_count = 0
        self.size_bytes = 0
        self.first_timestamp_us = 0
        self.last_timestamp_us = 0
        self.written_count = 0
        self.written_bytes = 0
        self.indexed_bytes = 0
        self.index = SegmentIndex(start_offset)
        self.checked = CheckedRanges()
        self.log: File | None = None
        self.is_created = False
        self.is_sealed = False
        self.is_used = False
        self.last_seen_bytes = 0

    @classmethod
    def existing(
        cls,
        directory: str,
        start_offset: int,
        *,
        size_bytes: int,
        first_timestamp_us: int,
        last_timestamp_us: int,
        indexed_count: int,
        unwritten_entries: bytes,
    ) -> Segment:
        """Describe a segment whose files exist and agree; they are not open yet.

        Args:
            directory: the partition's directory.
            start_offset: offset of the first message.
            size_bytes: length of the log.
            first_timestamp_us: time of the first message.
            last_timestamp_us: time of the last message.
            indexed_count: how many entries the index file holds.
            unwritten_entries: those that follow them.
        """
        segment = cls(directory, start_offset)
        segment.index = SegmentIndex(start_offset, indexed_count)
        segment.index.extend(unwritten_entries)
        segment.messages_count = segment.written_count = segment.index.count
        segment.size_bytes = segment.written_bytes = size_bytes
        segment.indexed_bytes = 0 if unwritten_entries else size_bytes
        segment.first_timestamp_us = first_timestamp_us
        segment.last_timestamp_us = last_timestamp_us
        segment.is_created = True
        return segment

    @property
    def next_offset(self) -> int:
        """Offset behind the last published message."""
        return self.start_offset + self.messages_count

    @property
    def is_open(self) -> bool:
        """Whether both files can be used at once."""
        return self.log is not None and self.index.file is not None

    def publish(self, entries: Buffer, count: int, size_bytes: int, timestamp_us: int) -> None:
        """Show more messages to polls."""
        if not self.messages_count:
            self.first_timestamp_us = timestamp_us
        self.index.extend(entries)
        self.messages_count += count
        self.size_bytes += size_bytes
        self.last_timestamp_us = timestamp_us
        assert self.index.count == self.messages_count

    async def create(self, storage: Storage, preallocated_bytes: int = 0) -> None:
        """Make both files, empty, and bring their names to the disk.

        Args:
            storage: where they lie.
            preallocated_bytes: so much of the disk the log takes at once, if there is room.

        Raises:
            StorageError: they cannot be made.
        """
        await self.open(storage, create=True)
        assert self.log is not None
        assert self.index.file is not None
        # An earlier attempt may have created one of them. Never overwrite messages.
        for file in (self.log, self.index.file):
            if file.size():
                self.close()
                raise StorageError(
                    "create", file.path, "the file exists and is not empty", errno=errno.EEXIST
                )
        await storage.sync_directory(self.directory)
        self.is_created = True
        if preallocated_bytes:
            await self._preallocate(self.log, preallocated_bytes)

    async def _preallocate(self, log: File, size_bytes: int) -> None:
        # The files are made: messages are stored as long as there is room for them.
        try:
            await log.preallocate(size_bytes)
        except StorageError as error:
            LOGGER.warning(
                "the disk keeps no room of %d bytes for %s, which takes what it needs as it grows:"
                " %s",
                size_bytes,
                self.log_path,
                error,
            )

    async def open(self, storage: Storage, *, create: bool = False) -> None:
        """Open both files.

        Raises:
            StorageError: one of them cannot be opened.
        """
        if self.log is None:
            self.log = await storage.open(self.log_path, create=create)
        if self.index.file is None:
            self.index.file = await storage.open(self.index_path, create=create)

    def close(self) -> None:
        """Close the files; a slice of one stays readable while it is referenced."""
        self.log = None
        self.index.file = None

    async def remove(self, storage: Storage) -> None:
        """Remove both files.

        The log goes first: an index alone is nothing, a log alone would be a segment again.

        Raises:
            StorageError: a file is still there.
        """
        await storage.remove(self.log_path)
        await storage.remove(self.index_path)
        await storage.sync_directory(self.directory)

    @property
    def log_path(self) -> str:
        """Name of the log."""
        return log_path(self.directory, self.start_offset)

    @property
    def index_path(self) -> str:
        """Name of the index."""
        return index_path(self.directory, self.start_offset)

    def __repr__(self) -> str:
        return (
            f"<Segment {self.log_path}: {self.messages_count} messages in {self.size_bytes} bytes>"
        )


# Which segments of a partition are open: the active one and the most recently used others.
#
# A shard may have thousands of partitions with thousands of segments, and a process has a limited
# number of descriptors. All files of a partition, those of the active segment included, are closed
# when other partitions need descriptors (``OpenBudget``). A closed file stays readable for a reply
# that still refers to it.


# Consumers of one partition read at few places at a time.
SEALED_OPEN_MAX = 8
# A log and its index.
DESCRIPTORS_EACH = 2


class OpenSegments:
    """The open segments of one partition.

    Args:
        storage: where they lie.
    """

    __slots__ = ("_budget", "_sealed", "_storage")

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._budget = storage.open_files
        self._sealed: dict[Segment, None] = {}  # least recently used first

    async def open(self, segment: Segment) -> None:
        """Open the files of a segment, if they are not; nothing is awaited behind that.

        Raises:
            StorageError: they cannot be opened; with ENOENT when the segment was removed.
        """
        while not segment.is_open:  # others may close one file while the other is being opened
            async with self._budget.opening:
                await segment.open(self._storage)
        self.keep(segment)

    def keep(self, segment: Segment) -> None:
        """Count a segment that was opened."""
        if segment.is_open:
            self._budget.keep(self, segment, DESCRIPTORS_EACH)
            self._limit_sealed(segment)

    def note(self, segment: Segment) -> None:
        """Count a segment as used last."""
        segment.is_used = True
        if segment.is_sealed and segment.is_open:
            self._limit_sealed(segment)

    def _limit_sealed(self, segment: Segment) -> None:
        if not segment.is_sealed:
            return
        self._sealed.pop(segment, None)
        self._sealed[segment] = None
        while len(self._sealed) > SEALED_OPEN_MAX:
            self.close(next(iter(self._sealed)))

    def close(self, *segments: Segment) -> None:
        """Let go of files; index entries that are not written stay in memory."""
        for segment in segments:
            self._budget.forget(self, segment)
            self.close_item(segment)

    # ---- what the budget asks

    def is_idle(self, item: Hashable) -> bool:
        """Tell whether a segment was neither written nor read since the last time."""
        assert isinstance(item, Segment)
        is_idle = not item.is_used and item.last_seen_bytes == item.written_bytes
        item.is_used, item.last_seen_bytes = False, item.written_bytes
        return is_idle

    def close_item(self, item: Hashable) -> None:
        """Keep a segment open no longer."""
        assert isinstance(item, Segment)
        self._sealed.pop(item, None)
        item.close()
