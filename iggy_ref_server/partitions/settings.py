"""The settings of a partition; the shard makes them from the configuration."""

from __future__ import annotations

from enum import Enum

from iggy_protocol import PayloadCipher, record
from iggy_ref_server.partitions.generation import NO_GENERATION

GIBIBYTE = 1 << 30
MEBIBYTE = 1 << 20


class AckLevel(Enum):
    """When a producer is told that its messages are stored.

    ``MEMORY``: at once. A crash of the process loses what was not written yet; the offsets of the
    lost messages are skipped, so that they are never given to others.
    ``WRITTEN``: when the operating system has them. A crash of the process loses nothing.
    ``FSYNC``: when the disk has them. A loss of power loses nothing.
    """

    MEMORY = "memory"
    WRITTEN = "written"
    FSYNC = "fsync"


class IndexCache(Enum):
    """Which index entries stay in memory once they are in their file.

    ``ALL``: every segment's, from its first use on. ``OPEN_SEGMENT``: the newest ones of the
    segment that is written to. ``NONE``: none; they are read from the file each time.
    """

    ALL = "all"
    OPEN_SEGMENT = "open_segment"
    NONE = "none"


@record(kw_only=True)
class DeduplicationSettings:
    """How long ids of messages are remembered.

    Attributes:
        entries_max: the most ids, 0 for any number.
        expiry_us: for how long, 0 for ever.
    """

    entries_max: int
    expiry_us: int


@record(kw_only=True)
class PartitionSettings:
    """The settings of a partition.

    Attributes:
        segment_size_bytes: a segment of this size is full: one more batch goes in, then it rolls.
        ack: when producers are told.
        offset_ack: when those who store an offset are told; as producers where it is None. There is
            no memory level for offsets: they are written in any case.
        preallocated_bytes: so much of the disk a new segment takes at once, if there is room.
        messages_required_to_save: so many messages in memory are written under ``MEMORY``; under
            the other levels the index file lags behind by fewer messages than this.
        bytes_required_to_save: the same in bytes of messages.
        index_cache: which index entries stay in memory.
        writes_survived: whether all that was ever written is in the files, because the machine has
            run since then; otherwise a power loss may explain what is missing at their ends.
        opened_generation: partitions up to this generation were on the disk before.
        validate_checksums: check every stored message when the partition is opened.
        deduplication: drop messages whose id was seen; None for no such thing.
        encryptor: seals payloads and user headers in the files; None to store them as they come.
    """

    segment_size_bytes: int = GIBIBYTE
    ack: AckLevel = AckLevel.WRITTEN
    offset_ack: AckLevel | None = None
    preallocated_bytes: int = 0
    messages_required_to_save: int = 1024
    bytes_required_to_save: int = MEBIBYTE
    index_cache: IndexCache = IndexCache.OPEN_SEGMENT
    writes_survived: bool = False
    opened_generation: int = NO_GENERATION
    validate_checksums: bool = False
    deduplication: DeduplicationSettings | None = None
    encryptor: PayloadCipher | None = None

    @property
    def syncs_offsets(self) -> bool:
        """Whether a stored offset is on the disk before the client is told."""
        return (self.offset_ack or self.ack) is AckLevel.FSYNC
