"""The handler context: the parts of a shard that command handlers use.

The shard fills it in. For parts on another shard it holds clients that use the shard channel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from iggy_protocol import (
    BatchShape,
    CommandCode,
    Dialect,
    RequestReceived,
    SendConfirmation,
    SendsReceived,
    StatusCode,
)
from iggy_ref_server.clients import ClientTable
from iggy_ref_server.clock import Clock
from iggy_ref_server.completion import Completion, Wait
from iggy_ref_server.config.schema import ServerConfig
from iggy_ref_server.dispatch.conversion import Conversions
from iggy_ref_server.dispatch.deferred_slots import DeferredSlots
from iggy_ref_server.dispatch.table import COMMAND_TABLE
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import ClaimPurpose, GroupKey, GroupRegistry, PollGrant
from iggy_ref_server.host import Host
from iggy_ref_server.identity.credentials import Passwords
from iggy_ref_server.identity.permissions import is_allowed
from iggy_ref_server.metadata.history import MetadataHistory
from iggy_ref_server.metadata.position import MetadataPosition
from iggy_ref_server.metadata.state import (
    Metadata,
    MetadataSettings,
    PlanContext,
    TopicRecord,
    UserRecord,
)
from iggy_ref_server.metadata.views import Viewer
from iggy_ref_server.partitions.partition_client import ConfirmedAppend, PartitionClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from iggy_ref_server.metadata.changes import Change
    from iggy_ref_server.partitions.partition import PartitionStatistics
    from iggy_ref_server.session import ClientSession
    from iggy_ref_server.sessions.receipts import ReplyReceipts
    from iggy_ref_server.sessions.table import BoundSession, NewSession

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


class StagedWrite(NamedTuple):
    """A send from 0.9 on that is staged for its partition and not committed yet.

    Attributes:
        pending: completes with the commit, and tells the offset.
        is_backlogged: whether the partition has so much uncommitted data that the client must wait.
        size_bytes: what it holds in memory until then.
        dialect: what the client speaks.
        stream_id: the stream of the partition.
        topic_id: the topic of the partition.
        partition_id: where the messages go.
        metadata: the stream, topic and partitioning fields of the send, if those that follow and
            have the same may be taken together.
    """

    pending: ConfirmedAppend
    is_backlogged: bool
    size_bytes: int
    dialect: Dialect
    stream_id: int
    topic_id: int
    partition_id: int
    metadata: bytes = b""

    @property
    def confirmations(self) -> list[SendConfirmation]:
        """Where the messages are, once committed; nowhere if they repeat ids of earlier ones."""
        offset = self.pending.base_offset
        if offset is None:
            return []
        return [SendConfirmation(self.stream_id, self.topic_id, self.partition_id, offset)]


class BatchAppender(Protocol):
    """Takes batches for their partitions."""

    def stage(self, session: ClientSession, body: memoryview) -> StagedAppend:
        """Stage a batch; the returned completion fires with its commit.

        Raises:
            ServerFault: the batch is refused.
            RemoteProtocolError: the body is malformed.
        """

    def stage_write(self, session: ClientSession, request: RequestReceived) -> StagedWrite:
        """Stage the batch of a send from 0.9 on.

        Raises:
            ServerFault: the batch is refused.
            RemoteProtocolError: the body is malformed.
        """

    def stage_run(self, session: ClientSession, sends: SendsReceived) -> StagedWrite:
        """Stage sends from 0.9 on that were taken together, as one batch.

        Raises:
            ServerFault: the batch is refused, and all sends with it.
        """

    def commit(self) -> None:
        """Start the writes of all staged batches; never waits."""


class HandlerAppender(BatchAppender, Protocol):
    """Takes batches of handlers, too, which are not received as bytes."""

    def stage_confirmed(self, session: ClientSession, body: memoryview) -> StagedWrite:
        """Stage a batch whose client is told where its messages are, and which is never repeated.

        Raises:
            ServerFault: the batch is refused.
            RemoteProtocolError: the body is malformed.
        """


class GroupService(Protocol):
    """What polls and offset commands need of consumer groups, on this shard or on shard 0."""

    async def resolve_poll(
        self, key: GroupKey, member_id: int, partition_id: int | None
    ) -> PollGrant | None:
        """Choose the partition of a member's poll; None if no partition is available to it."""

    async def claim(
        self, key: GroupKey, member_id: int, named: Sequence[PollGrant], purpose: ClaimPurpose
    ) -> list[PollGrant | None]:
        """Check that a member owns the partitions it names; None where it has to sync first.

        Args:
            key: the group.
            member_id: the member.
            named: the partitions, with the ownerships that the member knows of, or 0.
            purpose: what for.
        """

    def watch(self, key: GroupKey, grants: Sequence[PollGrant]) -> Wait:
        """Wait until one of some partitions may not be read any more; the caller cancels it."""

    async def deliver(
        self, key: GroupKey, member_id: int, grant: PollGrant, last_offset: int
    ) -> bool:
        """Record a delivery to a member; False if it does not own the partition any more."""

    async def resolve_commit(self, key: GroupKey, member_id: int, partition_id: int | None) -> int:
        """Choose the partition whose offset a member changes."""

    async def committed(self, key: GroupKey, partition_id: int, offset: int | None) -> None:
        """Record the stored offset of a group, or None after its deletion."""

    async def memberships(self, member_ids: Iterable[int]) -> Mapping[int, tuple[GroupKey, ...]]:
        """List the groups of members."""


class SessionService(Protocol):
    """The sessions of the wire from 0.9 on, on this shard or on shard 0.

    Each connection that is registered or bound is released once.
    """

    async def register(self, new: NewSession) -> int:
        """Begin a session, bind the connection, and return the number.

        Raises:
            ServerFault: the client's id belongs to another one, or there are too many sessions.
        """

    async def bind(self, client: bytes, number: int, secret_hash: bytes) -> BoundSession:
        """Bind a further connection to a session.

        Args:
            client: the client's own id of the session.
            number: that of the session; 0 asks which one the client has registered.
            secret_hash: that of its secret.

        Raises:
            ServerFault: there is no such session, or it is another client's.
        """

    def release(self, number: int) -> None:
        """Note that a connection of a session has gone."""

    async def check(self, number: int, on_alive: Callable[[], None]) -> None:
        """Find out whether a session has not ended.

        Args:
            number: that of the session.
            on_alive: called if it has not, before this shard is told of a later end.

        Raises:
            ServerFault: the session has ended, or shard 0 has.
        """

    async def log_out(self, number: int) -> None:
        """End a session on all its connections."""

    def receipts(self, number: int) -> ReplyReceipts | None:
        """Return the newest replies of a session; None if it has ended. Only on shard 0."""

    def expire(self) -> None:
        """End the sessions that have had no connection for too long. Only on shard 0."""


class ChangeMetadata(Protocol):
    """Plans and applies a change of the metadata."""

    async def __call__(self, plan: Callable[[Metadata], C], *, actor: int | None = None) -> C:
        """Return the planned change once all shards have applied it.

        Args:
            plan: returns the change.
            actor: the user who asks for it; None for the server itself.
        """


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
        position: the position of the metadata.
        sessions: the sessions of the wire.
        deferred: bounds the requests of this shard that wait for messages.
        history: the newest changes of the metadata; empty on all shards but 0.
        conversions: writes polled messages as batches.
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
    appender: HandlerAppender
    random_bytes: Callable[[int], bytes]
    change: ChangeMetadata
    registry: GroupRegistry
    position: MetadataPosition
    sessions: SessionService
    deferred: DeferredSlots
    history: MetadataHistory
    conversions: Conversions
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
        """Return the time, user, settings and dialect for planning a command of a session."""
        assert session.user_id is not None
        return PlanContext(
            now_us=self.clock.now_us(),
            user_id=session.user_id,
            settings=self.settings,
            dialect=session.dialect,
        )

    def viewer(self, session: ClientSession) -> Viewer:
        """Return what a reply to a session depends on beside the metadata."""
        return Viewer(session.dialect, self.settings, self.position.current)


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
