"""What handlers work with: everything of a shard that a command may touch.

Owns the list of these things and nothing of their insides. The shard furnishes the office; where a
thing is on another shard, what stands here asks over the wall.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from iggy_protocol import StatusCode
from iggy_ref_server.clients import Clients
from iggy_ref_server.clock import Clock
from iggy_ref_server.config import ServerConfig
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.registry import GroupRegistry
from iggy_ref_server.host import Host
from iggy_ref_server.identity.passwords import Passwords
from iggy_ref_server.identity.permissions import is_allowed
from iggy_ref_server.metadata.plan_context import MetadataSettings, PlanContext
from iggy_ref_server.metadata.records import TopicRecord
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.partitions.door import PartitionDoor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iggy_protocol import CommandCode
    from iggy_ref_server.groups.group import Grant
    from iggy_ref_server.groups.registry import GroupKey
    from iggy_ref_server.metadata.changes import Change
    from iggy_ref_server.metadata.records import UserRecord
    from iggy_ref_server.partitions import PartitionStatistics
    from iggy_ref_server.session import Session

__all__ = ["Census", "ChangeMetadata", "Figures", "GroupDesk", "Office", "require_right"]

C = TypeVar("C", bound="Change | None")


class Figures(dict[tuple[int, int, int], "PartitionStatistics"]):
    """The figures of partitions by stream, topic and partition."""

    def of(self, stream_id: int, topic_id: int, partition_id: int) -> PartitionStatistics | None:
        """Return the figures of one partition; None where nobody knows them yet."""
        return self.get((stream_id, topic_id, partition_id))


class GroupDesk(Protocol):
    """What polls and offset commands ask of consumer groups, wherever those live."""

    async def resolve_poll(
        self, key: GroupKey, client_id: int, partition_id: int | None
    ) -> Grant | None:
        """Choose the partition of a member's poll; None when there is nothing for it."""

    async def deliver(self, key: GroupKey, client_id: int, grant: Grant, last_offset: int) -> bool:
        """Note that a member gets messages; False when it may not have them any more."""

    async def resolve_commit(self, key: GroupKey, client_id: int, partition_id: int | None) -> int:
        """Choose the partition whose offset a member changes."""

    async def committed(self, key: GroupKey, partition_id: int, offset: int | None) -> None:
        """Note the stored offset of a group, or that it was deleted."""

    async def memberships(self, client_ids: Iterable[int]) -> Mapping[int, tuple[GroupKey, ...]]:
        """List the groups of clients."""


class ChangeMetadata(Protocol):
    """Plans and makes a change of the metadata."""

    async def __call__(self, plan: Callable[[Metadata], C]) -> C:
        """Return what was planned, once all shards have followed it."""


class Census(Protocol):
    """What all shards know together."""

    async def figures(self) -> Figures:
        """Return the figures of all partitions."""

    async def sessions(self) -> list[Session]:
        """Return all clients."""


@dataclass(slots=True, kw_only=True)
class Office:
    """The things of a shard that handlers use.

    Attributes:
        metadata: returns what exists now.
        change: plans and makes a change of the metadata; only shard 0 can.
        door: finds the door of a partition.
        registry: the consumer groups; empty on all shards but 0.
        poll_bytes_max: returns how much may be read into memory for a poll at this moment, at
            most as much as it is given.
    """

    shard_id: int
    config: ServerConfig
    settings: MetadataSettings
    clock: Clock
    passwords: Passwords
    host: Host
    clients: Clients
    groups: GroupDesk
    census: Census
    metadata: Callable[[], Metadata]
    door: Callable[[TopicRecord, int], PartitionDoor]
    random_bytes: Callable[[int], bytes]
    change: ChangeMetadata
    registry: GroupRegistry
    poll_bytes_max: Callable[[int], int] = int

    def authorize(
        self,
        session: Session,
        code: CommandCode,
        stream_id: int | None = None,
        topic_id: int | None = None,
    ) -> UserRecord:
        """Return the user of a session, who may do this.

        Raises:
            ServerFault: nobody has logged in, or the user lacks the right.
        """
        user = session.user(self.metadata())
        require_right(user, code, stream_id, topic_id)
        return user

    def plan_context(self, session: Session) -> PlanContext:
        """Return the circumstances under which a session's command is planned."""
        assert session.user_id is not None
        return PlanContext(
            now_us=self.clock.now_us(), user_id=session.user_id, settings=self.settings
        )


def require_right(
    user: UserRecord,
    code: CommandCode,
    stream_id: int | None = None,
    topic_id: int | None = None,
) -> None:
    """Insist that a user may do this.

    Raises:
        ServerFault: the user lacks the right.
    """
    if not is_allowed(code, user.permissions, stream_id=stream_id, topic_id=topic_id):
        raise ServerFault(StatusCode.UNAUTHORIZED, f"user {user.id} may not use {code.name}")
