"""Commands for partitions and their segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import CreatePartitions, DeletePartitions, DeleteSegments, Identifier
from iggy_sdk.families.asking import Asking

if TYPE_CHECKING:
    from iggy_sdk.durations import Seconds

__all__ = ["PartitionsFamily"]


class PartitionsFamily(Asking):
    """Commands for partitions and their segments."""

    async def create_partitions(
        self,
        stream: Identifier,
        topic: Identifier,
        partitions_count: int,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Add partitions behind the last one."""
        await self.request(CreatePartitions(stream, topic, partitions_count), timeout=timeout)

    async def delete_partitions(
        self,
        stream: Identifier,
        topic: Identifier,
        partitions_count: int,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Delete the last partitions with everything in them."""
        await self.request(DeletePartitions(stream, topic, partitions_count), timeout=timeout)

    async def delete_segments(
        self,
        stream: Identifier,
        topic: Identifier,
        partition_id: int,
        segments_count: int,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Delete up to so many of the oldest sealed segments that no consumer needs any more."""
        command = DeleteSegments(stream, topic, partition_id, segments_count)
        await self.request(command, timeout=timeout)
