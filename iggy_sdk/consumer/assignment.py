"""The partitions of a group's member where the member has to know them: servers from 0.9 on.

A server of 0.8 chooses the next partition of a member with every poll. Later ones tell a member its
partitions when it asks, and it names one in every poll. They change while it reads, so it asks
again every second, and at once when the server refuses a partition.

A partition that another member is to get is left out of the answer first. Its messages that were
polled already are delivered and their offsets stored, upon which it changes hands.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_protocol import ConsumerGroupAssignment
    from iggy_sdk.consumer.membership import ConsumerMembership


SYNC_SECONDS: Final = 1.0
"""How often a member asks for its partitions; official clients do so as well."""

SYNC_SECONDS_MIN: Final = 0.05
"""How soon it asks again after a refusal; a server may refuse for a while what it assigns."""

NO_PARTITION: Final = 0xFFFF_FFFE
"""Stands for the partition of a member that has none; a server never uses this number."""

NO_PARTITIONS: Final = frozenset({NO_PARTITION})
"""The round of such a member."""


class PartitionRotation:
    """Partitions that are polled in turn.

    Attributes:
        as_set: the partitions without their order.
    """

    def __init__(self, partitions: Sequence[int]) -> None:
        self.replace(partitions)
        self._turn = 0
        self._preferred: deque[int] = deque()

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions, in their order."""
        return self._partitions

    def replace(self, partitions: Sequence[int]) -> None:
        """Go on with other partitions."""
        self._partitions = tuple(partitions)
        self.as_set: frozenset[int] = frozenset(self._partitions)

    def prefer(self, partitions: Sequence[int]) -> None:
        """Take these partitions first, once."""
        self._preferred = deque(partitions)

    def take(self, excluded: frozenset[int]) -> int | None:
        """Return the next partition, or None when all of them are excluded."""
        while self._preferred:
            partition_id = self._preferred.popleft()
            if partition_id in self._partitions and partition_id not in excluded:
                return partition_id
        for _ in self._partitions:
            self._turn = (self._turn + 1) % len(self._partitions)
            partition_id = self._partitions[self._turn - 1]
            if partition_id not in excluded:
                return partition_id
        return None


class AssignedPartitions:
    """The partitions that a group assigns to one member, as far as it knows.

    Attributes:
        rotation: the partitions, to be polled in turn.
    """

    def __init__(self, membership: ConsumerMembership) -> None:
        """Take the membership, which asks."""
        self.rotation: PartitionRotation = PartitionRotation(())
        self._membership = membership
        self._generation: int | None = None
        self._synced_at = -math.inf
        self._due_at = -math.inf

    def expire(self) -> None:
        """Ask again before the next poll, because the server refused a partition."""
        self._due_at = min(self._due_at, self._synced_at + SYNC_SECONDS_MIN)

    def forget(self) -> None:
        """Begin anew, because the group was joined again."""
        self._generation = None
        self._due_at = -math.inf
        self.rotation.replace(())

    @property
    def due_at(self) -> float:
        """When to ask again, on the clock of the event loop."""
        return self._due_at

    async def refresh(self) -> frozenset[int]:
        """Ask for the partitions if that is due, and return those that are new.

        Raises:
            IggyError: the server refuses, or cannot be reached.
        """
        if anyio.current_time() < self._due_at:
            return frozenset()
        assignment = await self._membership.sync()
        self._synced_at = anyio.current_time()
        self._due_at = self._synced_at + SYNC_SECONDS
        if assignment.generation == self._generation:
            return frozenset()
        return self._take(assignment)

    def _take(self, assignment: ConsumerGroupAssignment) -> frozenset[int]:
        before, after = self.rotation.partitions, tuple(assignment.partitions)
        self._generation = assignment.generation
        if set(before) != set(after):
            self.rotation.replace(after)
        return frozenset(after) - frozenset(before)
