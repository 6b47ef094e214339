"""The section ``[system]``: storage and the shards. Directories are relative to ``system.path``."""

from __future__ import annotations

from typing import Annotated, Literal

from iggy_ref_server.config.kinds import Choice
from iggy_ref_server.config.section import (
    U32,
    U64,
    Cores,
    Duration,
    Expiry,
    PositiveU32,
    Secret,
    Section,
    Size,
    TopicSize,
)

__all__ = ["Logging", "Partition", "System"]


class Directory(Section, frozen=True):
    """A directory inside the data directory."""

    path: str


class Backup(Section, frozen=True):
    """Directories of format converters, which this server does not have."""

    path: str
    compatibility: Directory


class State(Section, frozen=True):
    """The metadata log."""

    enforce_fsync: bool
    max_file_operation_retries: U32
    retry_delay_us: Duration


class Logging(Section, frozen=True):
    """Log levels and log files."""

    path: str
    level: str
    file_enabled: bool
    max_file_size_bytes: Size
    max_total_size_bytes: Size
    rotation_check_interval_us: Duration
    retention_us: Duration
    sysinfo_print_interval_us: Duration


class Encryption(Section, frozen=True):
    """Encrypted data at rest; ``key`` is 32 bytes in base64."""

    enabled: bool
    key: Secret


class Compression(Section, frozen=True):
    """Server-side compression, which this server does not have."""

    allow_override: bool
    default_algorithm: Literal["none", "gzip"]


class Topic(Section, frozen=True):
    """Defaults of topics."""

    path: str
    max_size_bytes: TopicSize
    message_expiry_us: Expiry


class Partition(Section, frozen=True):
    """When messages are written and acknowledged; ``ack`` already includes ``enforce_fsync``."""

    path: str
    ack: Literal["memory", "written", "fsync"]
    enforce_fsync: bool
    validate_checksum: bool
    messages_required_to_save: PositiveU32
    size_of_messages_required_to_save_bytes: Size


class Segment(Section, frozen=True):
    """The files that hold messages."""

    size_bytes: Size
    max_age_us: Duration
    archive_expired: bool
    cache_indexes: Annotated[
        Literal["all", "open_segment", "none"],
        Choice("all", "open_segment", "none", aliases={"true": "all", "false": "none"}),
    ]


class Retention(Section, frozen=True):
    """Deletion of old segments on a full disk; 0 is off."""

    min_free_space_bytes: Size


class MessageDeduplication(Section, frozen=True):
    """Messages with a recent id are dropped; a limit of 0 is none."""

    enabled: bool
    max_entries: U64
    expiry_us: Duration


class Recovery(Section, frozen=True):
    """Handling of lost files, which this server does not automate."""

    recreate_missing_state: bool


class MemoryPool(Section, frozen=True):
    """The buffer pool of Apache Iggy, which this server does not have."""

    enabled: bool
    size_bytes: Size
    bucket_capacity: U32


class Sharding(Section, frozen=True):
    """The shards and their CPU cores."""

    cpu_allocation: Cores


class StorageEngine(Section, frozen=True):
    """The storage engine."""

    engine: Literal["auto", "io_uring", "threads"]


class System(Section, frozen=True):
    """Storage and shards."""

    path: str
    backup: Backup
    state: State
    runtime: Directory
    logging: Logging
    encryption: Encryption
    compression: Compression
    stream: Directory
    topic: Topic
    partition: Partition
    segment: Segment
    retention: Retention
    message_deduplication: MessageDeduplication
    recovery: Recovery
    memory_pool: MemoryPool
    sharding: Sharding
    storage: StorageEngine

    def partition_path(self, stream_id: int, topic_id: int, partition_id: int) -> str:
        """Return the directory of a partition, relative to the data directory."""
        topic = f"{self.stream.path}/{stream_id}/{self.topic.path}/{topic_id}"
        return f"{topic}/{self.partition.path}/{partition_id}"
