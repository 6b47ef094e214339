"""Consumer groups, their members and stored offsets."""

from __future__ import annotations

from iggy_protocol.records import record

__all__ = ["ConsumerGroup", "ConsumerGroupDetails", "ConsumerGroupMember", "ConsumerOffset"]


@record
class ConsumerGroup:
    """A group of a topic and its totals."""

    id: int
    partitions_count: int
    members_count: int
    name: str


@record
class ConsumerGroupMember:
    """A member and the partitions it reads; its id is a number within the group, not a client."""

    id: int
    partitions: tuple[int, ...] = ()


@record
class ConsumerGroupDetails(ConsumerGroup):
    """A group with its members."""

    members: tuple[ConsumerGroupMember, ...] = ()


@record
class ConsumerOffset:
    """How far a consumer or group has come in a partition, and how far the partition goes."""

    partition_id: int
    current_offset: int
    stored_offset: int
