"""Append: a batch is deduplicated, encrypted, and gets its segment, offsets and timestamp.

Batches get offsets in the order of the calls. Nothing waits. A staged batch becomes visible to
polls when it is written, or at once under acknowledgement from memory.

When a write fails, all staged batches that are not visible fail with it, and the next batch
continues behind the last visible message. So offsets have no holes, and a message that was dropped
as a duplicate is acknowledged only if the first copy is stored.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from iggy_protocol import BatchShape, StatusCode, index_entries, stamp
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.deduplication import Deduplicator
from iggy_ref_server.partitions.encryption_at_rest import encrypt_messages
from iggy_ref_server.partitions.journal import ALREADY_COMMITTED, CommitGroup, Journal, PendingWrite
from iggy_ref_server.partitions.settings import AckLevel, PartitionSettings
from iggy_ref_server.segments.segment import POSITION_MAX, Segment

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

    from iggy_ref_server.clock import Clock
    from iggy_ref_server.partitions.reservation import OffsetReservation
    from iggy_ref_server.partitions.segment_list import SegmentList


# The limit of messages acknowledged from memory: a producer faster than the disk has to wait.
JOURNAL_BYTES_MAX = 64 << 20


class Appender:
    """The end of a partition at which messages are added.

    Args:
        clock: tells the time of each batch.
        settings: of the partition.
        segment_list: the segments.
        reservation: which offsets may be acknowledged from memory.

    Attributes:
        journal: what is staged and not yet written.
        next_offset: what the next message gets.
        staged_offset: that of the first message of the last batch; None if none of it was new.
        deduplicator: the window of ids, None when duplicates are not looked for.
    """

    def __init__(
        self,
        clock: Clock,
        settings: PartitionSettings,
        segment_list: SegmentList,
        reservation: OffsetReservation,
    ) -> None:
        self.journal = Journal()
        self.staged_offset: int | None = None
        self.deduplicator: Deduplicator | None = None
        if settings.deduplication is not None:
            self.deduplicator = Deduplicator(settings.deduplication)
        self._clock = clock
        self._random_ids = RandomIds()
        self._settings = settings
        self._segment_list = segment_list
        self._reservation = reservation
        self._acks_from_memory = settings.ack is AckLevel.MEMORY
        self._transforms_batches = self.deduplicator is not None or settings.encryptor is not None
        self._last_timestamp_us = max(
            [segment.last_timestamp_us for segment in segment_list.segments], default=0
        )
        self.restart()

    def restart(self) -> None:
        """Continue behind the last visible message."""
        self._segment = self._segment_list.last
        self._position = self._segment.size_bytes
        self.next_offset = self._segment.next_offset

    def reset(self) -> None:
        """Restart at offset 0 after a purge; nothing is staged."""
        assert not len(self.journal)
        self._reservation.reset()
        if self.deduplicator is not None:
            self.deduplicator.clear()
        self.restart()

    def stage(self, body: memoryview, shape: BatchShape) -> CommitGroup:
        """Put a batch in the queue of writes.

        Args:
            body: an inspected SendMessages body; its messages are stamped in place where possible.
            shape: what the inspection found.

        Returns:
            The group that tells when the batch is stored.

        Raises:
            ServerFault: the batch cannot be stored in any segment.
        """
        now_us = self._clock.now_us()
        messages, count = body[shape.messages_at :], shape.messages_count
        ids: tuple[int, ...] = ()
        if self._transforms_batches:
            messages, count, ids = self._transform(messages, shape, now_us)
            if not count:
                self.staged_offset = None
                return self.journal.newest_group or ALREADY_COMMITTED
        self.staged_offset = self.next_offset
        size = len(messages)
        is_published = self._acks_from_memory and self._may_ack_from_memory(count, size)
        write = self._open_write(size, is_published=is_published)
        messages = write.append_copy(messages, size) if is_published else writable_copy(messages)
        timestamp_us = self._last_timestamp_us = max(now_us, self._last_timestamp_us)
        stamp(
            messages,
            base_offset=self.next_offset,
            timestamp_us=timestamp_us,
            random=self._random_ids.take(shape.missing_ids),
        )
        entries = index_entries(
            messages,
            relative_offset=self.next_offset - self._segment.start_offset,
            position=self._position,
        )
        persisted_bytes = write.position if self._acks_from_memory else self._position
        self.next_offset += count
        self._position += size
        self.journal.grow(write, count, size, timestamp_us)
        if is_published:
            self._segment_list.append(write.segment)
            self._segment_list.publish(entries, count, size, timestamp_us)
            self._record_ids(ids, timestamp_us)
        else:
            write.buffers.append(messages)
            write.entries += entries
            write.ids += ids
        if persisted_bytes >= self._settings.segment_size_bytes:
            self._roll_after(write)
        elif self._acks_from_memory:
            self._close_if_due(write)
        return write.group or ALREADY_COMMITTED

    def publish(self, write: PendingWrite) -> None:
        """Show the messages of a write that has reached its file."""
        self._segment_list.append(write.segment)
        self._segment_list.publish(
            write.entries, write.messages_count, write.size_bytes, write.timestamp_us
        )
        self._record_ids(write.ids, write.timestamp_us)
        if write.next_segment is not None:
            self._segment_list.append(write.next_segment)

    def roll_back(self, fault: ServerFault) -> None:
        """Drop everything that is not visible, and fail the groups that wait for it."""
        withdrawn = self.journal.take_unpublished()
        if self.deduplicator is not None:
            self.deduplicator.roll_back()
        self.restart()
        for write in withdrawn:
            write.release()
            assert write.group is not None
            write.group.finish(fault)

    def _transform(
        self, messages: memoryview, shape: BatchShape, now_us: int
    ) -> tuple[memoryview, int, tuple[int, ...]]:
        """Drop duplicates and seal the rest; return it, its count and the ids it came with."""
        count = shape.messages_count
        ids: tuple[int, ...] = ()
        if self.deduplicator is not None and shape.missing_ids < count:
            messages, count, ids = self.deduplicator.admit(messages, count, now_us)
        if self._settings.encryptor is not None and count:
            messages = memoryview(encrypt_messages(messages, self._settings.encryptor))
        return messages, count, ids

    def _may_ack_from_memory(self, count: int, size: int) -> bool:
        """Tell whether a batch may be acknowledged before it is written."""
        last = self.journal.last
        return (
            (last is None or last.is_published)
            and self.next_offset + count <= self._reservation.ceiling
            and self.journal.size_bytes + size <= JOURNAL_BYTES_MAX
        )

    def _open_write(self, size: int, *, is_published: bool) -> PendingWrite:
        """Find the write that a batch of this size joins."""
        if self._position + size > POSITION_MAX:
            self._roll_early(size)
        last = self.journal.last
        if last is None or last.is_closed or last.is_published is not is_published:
            return self.journal.begin(self._segment, self._position, is_published=is_published)
        return last

    def _roll_early(self, size: int) -> None:
        """Begin a new segment before a batch that the current one cannot hold."""
        if size > POSITION_MAX:
            raise ServerFault(
                StatusCode.INVALID_MESSAGES_SIZE,
                f"a batch of {size} bytes does not fit into one segment",
            )
        self.journal.close_last()
        self.begin_segment()

    def begin_segment(self) -> Segment:
        """Let the next batch begin a new segment; the writer makes its files."""
        self._segment = Segment(self._segment.directory, self.next_offset)
        self._position = 0
        return self._segment

    def _roll_after(self, write: PendingWrite) -> None:
        """Begin a new segment behind a batch that found the current one full."""
        write.next_segment = self.begin_segment()
        write.is_closed = True
        if write.is_published:
            self._segment_list.append(self._segment)

    def _close_if_due(self, write: PendingWrite) -> None:
        """Close a write that is large enough, or that has waiting producers."""
        write.is_closed = (
            not write.is_published
            or write.messages_count >= self._settings.messages_required_to_save
            or write.size_bytes >= self._settings.bytes_required_to_save
        )

    def _record_ids(self, ids: list[int] | tuple[int, ...], timestamp_us: int) -> None:
        if self.deduplicator is not None and ids:
            self.deduplicator.confirm(ids, timestamp_us)


def writable_copy(messages: memoryview) -> memoryview:
    """Return the messages themselves if they can be stamped in place, else a copy."""
    return memoryview(bytearray(messages)) if messages.readonly else messages


# Random bytes for the ids of messages that came without one.
#
# ``os.urandom`` takes 5 % of the time of a large batch. The key stream of AES-CTR with a key from
# the kernel is as unpredictable and ten times as fast.


ID_BYTES: Final = 16
# Up to so many the kernel is asked, and nothing has to be loaded for a server with small batches.
URANDOM_IDS_MAX: Final = 64
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 16


class RandomIds:
    """A source of ids."""

    __slots__ = ("_stream", "_zeros")

    def __init__(self) -> None:
        self._stream: CipherContext | None = None
        self._zeros = b""

    def take(self, count: int) -> bytes:
        """Return the bytes of so many ids."""
        size = ID_BYTES * count
        if count <= URANDOM_IDS_MAX:
            return os.urandom(size)
        if self._stream is None:
            self._stream = _key_stream()
        if len(self._zeros) < size:
            self._zeros = bytes(size)
        return self._stream.update(memoryview(self._zeros)[:size])


def _key_stream() -> CipherContext:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES256
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    return Cipher(AES256(os.urandom(KEY_BYTES)), CTR(os.urandom(NONCE_BYTES))).encryptor()
