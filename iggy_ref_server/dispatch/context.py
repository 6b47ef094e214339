"""The handler context: the parts of a shard that command handlers use.

The shard fills it in. For parts on another shard it holds clients that use the shard channel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from iggy_protocol import BatchShape, CommandCode, StatusCode
from iggy_ref_server.clients import ClientTable
from iggy_ref_server.clock import Clock
from iggy_ref_server.completion import Completion
from iggy_ref_server.config.schema import ServerConfig
from iggy_ref_server.dispatch.table import COMMAND_TABLE
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import GroupKey, GroupRegistry, PollGrant
from iggy_ref_server.host import Host
from iggy_ref_server.identity.credentials import Passwords
from iggy_ref_server.identity.permissions import is_allowed
from iggy_ref_server.metadata.state import (
    Metadata,
    MetadataSettings,
    PlanContext,
    TopicRecord,
    UserRecord,
)
from iggy_ref_server.partitions.partition_client import PartitionClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iggy_ref_server.metadata.changes import Change
    from iggy_ref_server.partitions.partition import PartitionStatistics
    from iggy_ref_server.session import ClientSession


C = TypeVar("C", bound="Change | None")


class StatisticsByPartition(dict[tuple[int, int, int], "PartitionStatistics"]):
    """The statistics of partitions by stream, topic and partition id."""

    def of(self, stream_id: int, topic_id: int, partition_id: int) -> PartitionStatistics | None:
        """Return the statistics of one partition; None if they are not known yet."""
        return self.get((stream_id, topic_id, partition_id))


class StagedAppend(NamedTuple):
    """A send that is staged for its partition and not committed yet.

    Attributes:
        pending: completes with the commit.
        is_backlogged: whether the partition has so much uncommitted data that the client must wait.
        metadata: the stream, topic and partitioning fields of the send.
        append_more: stages more messages for the same partition; None if the next send may go
            elsewhere.
    """

    pending: Completion
    is_backlogged: bool = False
    metadata: bytes = b""
    append_more: Callable[[memoryview, BatchShape], Completion] | None = None


class BatchAppender(Protocol):
    """Takes batches for their partitions."""

    def stage(self, session: ClientSession, body: memoryview) -> StagedAppend:
        """Stage a batch; the returned completion fires with its commit.

        Raises:
            ServerFault: the batch is refused.
            RemoteProtocolError: the body is malformed.
        """

    def commit(self) -> None:
        """Start the writes of all staged batches; never waits."""


class GroupService(Protocol):
    """What polls and offset commands need of consumer groups, on this shard or on shard 0."""

    async def resolve_poll(
        self, key: GroupKey, client_id: int, partition_id: int | None
    ) -> PollGrant | None:
        """Choose the partition of a member's poll; None if no partition is available to it."""

    async def deliver(
        self, key: GroupKey, client_id: int, grant: PollGrant, last_offset: int
    ) -> bool:
        """Record a delivery to a member; False if it does not own the partition any more."""

    async def resolve_commit(self, key: GroupKey, client_id: int, partition_id: int | None) -> int:
        """Choose the partition whose offset a member changes."""

    async def committed(self, key: GroupKey, partition_id: int, offset: int | None) -> None:
        """Record the stored offset of a group, or None after its deletion."""

    async def memberships(self, client_ids: Iterable[int]) -> Mapping[int, tuple[GroupKey, ...]]:
        """List the groups of clients."""


class ChangeMetadata(Protocol):
    """Plans and applies a change of the metadata."""

    async def __call__(self, plan: Callable[[Metadata], C]) -> C:
        """Return the planned change once all shards have applied it."""


class ClusterView(Protocol):
    """Statistics and clients of all shards."""

    async def statistics(self) -> StatisticsByPartition:
        """Return the statistics of all partitions."""

    async def sessions(self) -> list[ClientSession]:
        """Return the sessions of all clients."""


@dataclass(slots=True, kw_only=True)
class HandlerContext:
    """The parts of a shard that handlers use.

    Attributes:
        metadata: returns the current metadata.
        change: plans and applies a change of the metadata; only on shard 0.
        partition_client: returns the client of a partition, local or remote.
        appender: takes the batches of sends.
        registry: the consumer groups; empty on all shards but 0.
        poll_bytes_max: returns how much a poll may read into memory now, at most its argument.
    """

    shard_id: int
    config: ServerConfig
    settings: MetadataSettings
    clock: Clock
    passwords: Passwords
    host: Host
    clients: ClientTable
    groups: GroupService
    cluster_view: ClusterView
    metadata: Callable[[], Metadata]
    partition_client: Callable[[TopicRecord, int], PartitionClient]
    appender: BatchAppender
    random_bytes: Callable[[int], bytes]
    change: ChangeMetadata
    registry: GroupRegistry
    poll_bytes_max: Callable[[int], int] = int

    def authorize(
        self,
        session: ClientSession,
        code: CommandCode,
        stream_id: int | None = None,
        topic_id: int | None = None,
    ) -> UserRecord:
        """Return the user of a session after a permission check.

        Raises:
            ServerFault: the client has not logged in, or the user lacks the permission.
        """
        user = session.user(self.metadata())
        require_permission(user, code, stream_id, topic_id)
        return user

    def authorize_account(
        self, session: ClientSession, code: CommandCode, account: UserRecord | None
    ) -> None:
        """Check the permission for a command on the account of a user; None is an unknown user.

        Raises:
            ServerFault: the client has not logged in, or the user lacks the permission.
        """
        is_own = account is not None and account.id == session.user_id
        if not (is_own and COMMAND_TABLE[code].allows_own_account):
            self.authorize(session, code)

    def plan_context(self, session: ClientSession) -> PlanContext:
        """Return the time, user and settings for planning a command of a session."""
        assert session.user_id is not None
        return PlanContext(
            now_us=self.clock.now_us(), user_id=session.user_id, settings=self.settings
        )


def require_permission(
    user: UserRecord,
    code: CommandCode,
    stream_id: int | None = None,
    topic_id: int | None = None,
) -> None:
    """Check that a user may use a command.

    Raises:
        ServerFault: the user lacks the permission.
    """
    requirement = COMMAND_TABLE[code].requirement
    if not is_allowed(requirement, user.permissions, stream_id=stream_id, topic_id=topic_id):
        raise ServerFault(
            StatusCode.UNAUTHORIZED, f"user {user.id} has no permission for {code.name}"
        )
