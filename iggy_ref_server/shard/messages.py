"""The messages between shards: one struct per call, one per reply.

A message is a small msgpack record and, beside it, a payload of raw bytes that is never packed: the
batch of an append, the messages of a poll, the body of a reply. Channels carry them
(``shard.channel``), and the call handler carries them out (``shard.call_handler``).
"""

from __future__ import annotations

import msgspec


class PartitionRef(msgspec.Struct, frozen=True, array_like=True):
    """A partition: its ids, its generation, and its creation time, which a purge keeps."""

    stream_id: int
    topic_id: int
    partition_id: int
    generation: int
    created_at_us: int


class BindingInfo(msgspec.Struct, frozen=True, array_like=True):
    """What the login of a client from 0.9 on has bound; the user is that of the session."""

    dialect: str
    client: bytes
    session: int


class SessionInfo(msgspec.Struct, frozen=True, array_like=True):
    """A session of a client, as another shard needs it."""

    client_id: int
    address: str
    transport: int
    user_id: int | None
    user_generation: int
    is_evicted: bool = False
    binding: BindingInfo | None = None
    attached_session: int = 0


class RequestInfo(msgspec.Struct, frozen=True, array_like=True):
    """What tells a request from 0.9 on from all others, and what its client speaks."""

    dialect: str
    client: bytes
    session: int
    number: int
    identifier: bytes
    context: tuple[int, int, int]


class _ShardMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class SnapshotCall(_ShardMessage, frozen=True):
    """Ask shard 0 for the metadata; sent by a shard that starts."""


class SnapshotReply(_ShardMessage, frozen=True):
    """A snapshot of the metadata is in the payload."""


class MetadataEntryCall(_ShardMessage, frozen=True):
    """Apply an entry of the metadata log, which is in the payload.

    The reply comes when the partitions of the shard agree with the metadata. With ``is_published``
    set to False, clients do not see the change before a ``PublishMetadataCall``.
    """

    version: int
    is_published: bool = True


class PublishMetadataCall(_ShardMessage, frozen=True):
    """Show a change to clients: all shards have applied its entry."""

    version: int


class ForwardCall(_ShardMessage, frozen=True):
    """Run a client's request on shard 0; the body of the request is the payload."""

    session_info: SessionInfo
    code: int
    request_info: RequestInfo | None = None


class RegisterCall(_ShardMessage, frozen=True):
    """Begin a session of the wire for a client whose credentials were verified."""

    client_id: int
    request_info: RequestInfo
    user_id: int
    user_generation: int
    secret_hash: bytes


class BindCall(_ShardMessage, frozen=True):
    """Bind a connection to a session; 0 asks for the one that the client has registered."""

    client: bytes
    session: int
    secret_hash: bytes


class SessionReply(_ShardMessage, frozen=True):
    """The session that a connection is bound to."""

    session: int
    user_id: int
    user_generation: int


class ReleaseSessionCall(_ShardMessage, frozen=True):
    """Tell shard 0 that a connection of a session has gone."""

    session: int


class LogOutCall(_ShardMessage, frozen=True):
    """End a session whose client has logged out."""

    session: int


class CheckSessionCall(_ShardMessage, frozen=True):
    """Ask shard 0 whether a session has not ended; a fault if it has."""

    session: int


class SessionEndedCall(_ShardMessage, frozen=True):
    """End a session on its connections of this shard; sent by shard 0."""

    session: int


class AppendCall(_ShardMessage, frozen=True):
    """Append a batch; the payload is a validated SendMessages body.

    ``write`` is the session and the number of a send that may be repeated, and ``producer`` the
    position of the batch in what an idempotent producer sends.
    """

    partition: PartitionRef
    shape: tuple[int, int, int, int, int, int]
    write: tuple[int, int] | None = None
    producer: tuple[int, int, int] | None = None


class AppendReply(_ShardMessage, frozen=True):
    """A batch is committed; its first message has this offset. None: all were duplicates."""

    base_offset: int | None


class PollCall(_ShardMessage, frozen=True):
    """Poll a partition."""

    partition: PartitionRef
    strategy_kind: int
    strategy_value: int
    count: int
    size_max_bytes: int
    consumer_kind: int
    consumer_id: int
    auto_commit: bool


class PollReply(_ShardMessage, frozen=True):
    """The result of a poll; the messages are in the payload."""

    current_offset: int
    messages_count: int
    last_offset: int | None
    next_offset: int


class OffsetCall(_ShardMessage, frozen=True):
    """Read, store or delete (None) the offset of a consumer.

    ``write`` is the session and the number of a request that may be repeated.
    """

    partition: PartitionRef
    consumer_kind: int
    consumer_id: int
    offset: int | None = None
    action: str = "get"
    write: tuple[int, int] | None = None


class OffsetReply(_ShardMessage, frozen=True):
    """The messages of a partition, and the stored offset of a consumer."""

    current_offset: int
    stored_offset: int | None
    first_offset: int
    end_offset: int


class MaintainPartitionCall(_ShardMessage, frozen=True):
    """Flush a partition, or delete some of its segments."""

    partition: PartitionRef
    action: str
    fsync: bool = False
    segments_count: int = 0


class PartitionTotals(_ShardMessage, frozen=True):
    """Ask for the statistics of all partitions of a shard; the reply has the same type."""

    partitions: tuple[tuple[int, int, int, int, int, int, int, int | None], ...] = ()


class ConnectedClients(_ShardMessage, frozen=True):
    """Ask for the clients of a shard; the reply has the same type."""

    clients: tuple[SessionInfo, ...] = ()


class ResolveMemberCall(_ShardMessage, frozen=True):
    """Ask shard 0 which partition a group member uses; None lets the group choose."""

    stream_id: int
    topic_id: int
    group_id: int
    member_id: int
    partition_id: int | None
    purpose: str


class MemberPartitionReply(_ShardMessage, frozen=True):
    """The partition of a group member; None where the member has none."""

    partition_id: int | None
    epoch: int = 0


class MemberPolledCall(_ShardMessage, frozen=True):
    """Tell shard 0 that a member has polled; the reply has no partition if it lost it."""

    stream_id: int
    topic_id: int
    group_id: int
    member_id: int
    partition_id: int
    epoch: int
    polled_offset: int


class GroupCommittedCall(_ShardMessage, frozen=True):
    """Tell shard 0 the stored offset of a group; None when it was deleted."""

    stream_id: int
    topic_id: int
    group_id: int
    partition_id: int
    offset: int | None


class GroupMemberships(_ShardMessage, frozen=True):
    """Ask shard 0 for the groups of members; the reply has the same type."""

    member_ids: tuple[int, ...] = ()
    memberships: tuple[tuple[int, int, int, int], ...] = ()


class ClientGoneCall(_ShardMessage, frozen=True):
    """Tell shard 0 that a client has disconnected or was evicted."""

    client_id: int


class ClaimCall(_ShardMessage, frozen=True):
    """Ask shard 0 whether a member owns the partitions it names, each with an epoch or 0."""

    stream_id: int
    topic_id: int
    group_id: int
    member_id: int
    named: tuple[tuple[int, int], ...]
    purpose: str


class ClaimReply(_ShardMessage, frozen=True):
    """The epochs of the partitions that a member has named; None where it has to sync first."""

    epochs: tuple[int | None, ...]


class WatchOwnershipCall(_ShardMessage, frozen=True):
    """Wait on shard 0 until one of some partitions may not be read under its epoch any more."""

    stream_id: int
    topic_id: int
    group_id: int
    grants: tuple[tuple[int, int], ...]


class WaitForMessageCall(_ShardMessage, frozen=True):
    """Wait until a partition holds a message with this offset or a later one."""

    partition: PartitionRef
    offset: int


class CancelWaitCall(_ShardMessage, frozen=True):
    """End a wait that was begun with the call of this id on the same channel."""

    call_id: int


class ShardReply(_ShardMessage, frozen=True):
    """Success, or the result of a client's request: status, and the body as the payload.

    ``version`` is the version of the metadata that shard 0 had; the calling shard waits for it.
    ``position`` is where the metadata stood after a write of a client from 0.9 on.
    """

    version: int = 0
    status: int = 0
    is_final: bool = False
    position: int = 0


class FaultReply(_ShardMessage, frozen=True):
    """The call failed."""

    status: int
    message: str


DONE_REPLY = ShardReply()

ShardMessage = (
    SnapshotCall
    | SnapshotReply
    | MetadataEntryCall
    | PublishMetadataCall
    | ForwardCall
    | RegisterCall
    | BindCall
    | SessionReply
    | ReleaseSessionCall
    | LogOutCall
    | CheckSessionCall
    | SessionEndedCall
    | AppendCall
    | AppendReply
    | PollCall
    | PollReply
    | OffsetCall
    | OffsetReply
    | MaintainPartitionCall
    | PartitionTotals
    | ConnectedClients
    | ResolveMemberCall
    | MemberPartitionReply
    | MemberPolledCall
    | GroupCommittedCall
    | GroupMemberships
    | ClientGoneCall
    | ClaimCall
    | ClaimReply
    | WatchOwnershipCall
    | WaitForMessageCall
    | CancelWaitCall
    | ShardReply
    | FaultReply
)
