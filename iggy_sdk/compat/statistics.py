"""Statistics of a server under the official names; ``own`` is the record of this SDK."""

from __future__ import annotations

from datetime import timedelta

import iggy_protocol
from iggy_protocol import CacheMetrics
from iggy_sdk.compat.records import Reported, Told
from iggy_sdk.compat.variants import ByValue


class CacheMetricsKey(ByValue):
    """The partition that figures of a cache belong to."""

    __slots__ = ("partition_id", "stream_id", "topic_id")
    __match_args__ = ("stream_id", "topic_id", "partition_id")

    def __init__(self, stream_id: int, topic_id: int, partition_id: int) -> None:
        """Name a partition by ids."""
        self.stream_id: int = stream_id
        self.topic_id: int = topic_id
        self.partition_id: int = partition_id


class Stats(Reported[iggy_protocol.Stats]):
    """Statistics of a server."""

    __slots__ = ()
    process_id: Told[int] = Told[int]()
    cpu_usage: Told[float] = Told[float]()
    total_cpu_usage: Told[float] = Told[float]()
    memory_usage: Told[int] = Told[int]("memory_usage_bytes")
    total_memory: Told[int] = Told[int]("total_memory_bytes")
    available_memory: Told[int] = Told[int]("available_memory_bytes")
    start_time: Told[int] = Told[int]("start_time_us")
    read_bytes: Told[int] = Told[int]()
    written_bytes: Told[int] = Told[int]()
    messages_size_bytes: Told[int] = Told[int]()
    streams_count: Told[int] = Told[int]()
    topics_count: Told[int] = Told[int]()
    partitions_count: Told[int] = Told[int]()
    segments_count: Told[int] = Told[int]()
    messages_count: Told[int] = Told[int]()
    clients_count: Told[int] = Told[int]()
    consumer_groups_count: Told[int] = Told[int]()
    hostname: Told[str] = Told[str]()
    os_name: Told[str] = Told[str]()
    os_version: Told[str] = Told[str]()
    kernel_version: Told[str] = Told[str]()
    iggy_server_version: Told[str] = Told[str]("server_version")

    @property
    def run_time(self) -> timedelta:
        """How long the server has been running."""
        return timedelta(microseconds=self.own.run_time_us)

    @property
    def iggy_server_semver(self) -> int | None:
        """The version as a number; None if it is not known."""
        return self.own.server_semver or None

    @property
    def cache_metrics(self) -> dict[CacheMetricsKey, CacheMetrics]:
        """How often reads of each partition were served from memory."""
        return {
            CacheMetricsKey(one.stream_id, one.topic_id, one.partition_id): one
            for one in self.own.cache_metrics
        }

    @property
    def threads_count(self) -> int:
        """How many threads the server has."""
        return 0 if self.own.host is None else self.own.host.threads_count

    @property
    def free_disk_space(self) -> int:
        """How many bytes are free on the disk of the server."""
        return 0 if self.own.host is None else self.own.host.free_disk_bytes

    @property
    def total_disk_space(self) -> int:
        """How many bytes the disk of the server has."""
        return 0 if self.own.host is None else self.own.host.total_disk_bytes

    @property
    def open_files_count(self) -> int:
        """How many files the server has open."""
        return 0 if self.own.open_files is None else self.own.open_files.count

    @property
    def open_files_limit(self) -> int:
        """How many files the server may have open."""
        return 0 if self.own.open_files is None else self.own.open_files.limit
