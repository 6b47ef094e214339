"""Consumer groups, their members and stored offsets."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ConsumerGroup", "ConsumerGroupDetails", "ConsumerGroupMember", "ConsumerOffset"]


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A group of a topic and its totals."""

    id: int
    partitions_count: int
    members_count: int
    name: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """A member and the partitions it reads; its id is a number within the group, not a client."""

    id: int
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupDetails(ConsumerGroup):
    """A group with its members."""

    members: tuple[ConsumerGroupMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerOffset:
    """How far a consumer or group has come in a partition, and how far the partition goes."""

    partition_id: int
    current_offset: int
    stored_offset: int
