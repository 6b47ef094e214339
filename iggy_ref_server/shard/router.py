"""Routing: from a send to its partitions, and from a partition to the shard that owns it.

A partition belongs to the shard that the mmh3 hash of its packed ids gives. Its client, local or
remote, is made once and kept until the metadata change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import pack_namespace, shard_for_namespace
from iggy_ref_server.partitions.door import LocalDoor
from iggy_ref_server.shard import letters
from iggy_ref_server.shard.directory import PartitionKey
from iggy_ref_server.shard.doors import RemoteDoor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iggy_ref_server.metadata.records import PartitionRecord, TopicRecord
    from iggy_ref_server.partitions import Partition
    from iggy_ref_server.partitions.door import PartitionDoor
    from iggy_ref_server.shard.directory import PartitionDirectory
    from iggy_ref_server.shard.wall import Hatch

__all__ = ["Router", "owner_of"]


def owner_of(key: PartitionKey, shards_count: int) -> int:
    """Return the shard that owns a partition."""
    namespace = pack_namespace(
        stream_id=key.stream_id, topic_id=key.topic_id, partition_id=key.partition_id
    )
    return shard_for_namespace(namespace, shards_count=shards_count)


class Router:
    """Finds the client of a partition.

    Args:
        shard_id: this shard.
        hatches: the channels to the other shards, by their ids.
        directory: the partitions of this shard.
        touched: called with each local partition that has a staged batch.
    """

    def __init__(
        self,
        shard_id: int,
        hatches: Mapping[int, Hatch],
        directory: PartitionDirectory,
        touched: Callable[[Partition], None],
    ) -> None:
        self._shard_id = shard_id
        self._hatches = hatches
        self._directory = directory
        self._touched = touched
        self._doors: dict[tuple[PartitionKey, int], PartitionDoor] = {}

    def door(self, topic: TopicRecord, partition_id: int) -> PartitionDoor:
        """Return the client of a partition.

        Raises:
            ServerFault: the topic has no such partition, or it is quarantined.
        """
        record = topic.require_partition(partition_id)
        key = PartitionKey(topic.stream_id, topic.id, partition_id)
        door = self._doors.get((key, record.incarnation))
        if door is None:
            door = self._doors[key, record.incarnation] = self._make(key, record)
        return door

    def _make(self, key: PartitionKey, record: PartitionRecord) -> PartitionDoor:
        owner = owner_of(key, len(self._hatches) + 1)
        if owner == self._shard_id:
            return LocalDoor(self._directory.get(key), self._touched)
        partition = letters.Partition(*key, record.incarnation, record.created_at_us)
        return RemoteDoor(owner, self._hatches[owner], partition)

    def forget(self) -> None:
        """Drop all clients, because the metadata have changed."""
        self._doors.clear()
