"""Partitions: append, poll, stored offsets, deduplication and retention of messages."""

from __future__ import annotations

from iggy_ref_server.partitions.closing import Unsaved
from iggy_ref_server.partitions.commit import CommitGroup
from iggy_ref_server.partitions.health import PartitionHealth
from iggy_ref_server.partitions.incarnation import remove_files
from iggy_ref_server.partitions.offsets import OffsetKey
from iggy_ref_server.partitions.partition import Partition, PartitionStatistics
from iggy_ref_server.partitions.polls import Polled, PollRequest
from iggy_ref_server.partitions.settings import (
    AckLevel,
    DeduplicationSettings,
    IndexCache,
    PartitionSettings,
)
from iggy_ref_server.segments.damage import CorruptPartition

__all__ = [
    "AckLevel",
    "CommitGroup",
    "CorruptPartition",
    "DeduplicationSettings",
    "IndexCache",
    "OffsetKey",
    "Partition",
    "PartitionHealth",
    "PartitionSettings",
    "PartitionStatistics",
    "PollRequest",
    "Polled",
    "Unsaved",
    "remove_files",
]
