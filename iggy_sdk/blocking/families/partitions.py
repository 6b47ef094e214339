"""Blocking: Commands for partitions and their segments.

Made from iggy_sdk.families.partitions by ``python -m tests.sdk.blocking.facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_sdk.blocking.calls import ClientCalls

if TYPE_CHECKING:
    from iggy_protocol import Identifier
    from iggy_sdk.durations import Seconds

__all__ = ["PartitionsFamily"]


class PartitionsFamily(ClientCalls):
    """Commands for partitions and their segments."""

    def create_partitions(
        self,
        stream: Identifier,
        topic: Identifier,
        partitions_count: int,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Add partitions behind the last one."""
        self._run(self._inner.create_partitions(stream, topic, partitions_count, timeout=timeout))

    def delete_partitions(
        self,
        stream: Identifier,
        topic: Identifier,
        partitions_count: int,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Delete the last partitions with everything in them."""
        self._run(self._inner.delete_partitions(stream, topic, partitions_count, timeout=timeout))

    def delete_segments(
        self,
        stream: Identifier,
        topic: Identifier,
        partition_id: int,
        segments_count: int,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Delete up to so many of the oldest sealed segments that no consumer needs any more."""
        self._run(
            self._inner.delete_segments(
                stream, topic, partition_id, segments_count, timeout=timeout
            )
        )
