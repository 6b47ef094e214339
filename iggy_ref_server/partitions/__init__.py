"""Partitions: append, poll, stored offsets, deduplication and retention of messages."""

from __future__ import annotations

from iggy_ref_server.partitions.generation import remove_partition_files
from iggy_ref_server.partitions.health import PartitionHealth
from iggy_ref_server.partitions.journal import CommitGroup
from iggy_ref_server.partitions.lifecycle import UnsavedData
from iggy_ref_server.partitions.offsets import OffsetKey
from iggy_ref_server.partitions.partition import PartitionLog, PartitionStatistics
from iggy_ref_server.partitions.poll_plan import PollParams, PollResult
from iggy_ref_server.partitions.settings import (
    AckLevel,
    DeduplicationSettings,
    IndexCache,
    PartitionSettings,
)
from iggy_ref_server.segments.errors import CorruptPartition

__all__ = [
    "AckLevel",
    "CommitGroup",
    "CorruptPartition",
    "DeduplicationSettings",
    "IndexCache",
    "OffsetKey",
    "PartitionHealth",
    "PartitionLog",
    "PartitionSettings",
    "PartitionStatistics",
    "PollParams",
    "PollResult",
    "UnsavedData",
    "remove_partition_files",
]
