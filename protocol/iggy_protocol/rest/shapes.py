"""The JSON of replies.

A shape mirrors its JSON object exactly: same names, same order, text where JSON has text. Unknown
fields are ignored when reading, because a newer server may send more. Binary values are ``bytes``
here and base64 in JSON.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from iggy_protocol.codes import status
from iggy_protocol.status_table import StatusCode
from iggy_protocol.unit_text import SIZE_TEXT_PATTERN

MESSAGE_ID_MAX: Final = 2**128 - 1

U8: TypeAlias = Annotated[int, Meta(ge=0, le=2**8 - 1)]
U16: TypeAlias = Annotated[int, Meta(ge=0, le=2**16 - 1)]
U32: TypeAlias = Annotated[int, Meta(ge=0, le=2**32 - 1)]
# msgspec takes no bound above 2^63, so shapes that must refuse more check by themselves.
U64: TypeAlias = Annotated[int, Meta(ge=0)]
SizeText: TypeAlias = Annotated[str, Meta(pattern=SIZE_TEXT_PATTERN)]

CompressionName: TypeAlias = Literal["none", "gzip"]
UserStatusName: TypeAlias = Literal["active", "inactive"]
TransportName: TypeAlias = Literal["tcp", "quic", "http", "ws"]
NodeRoleName: TypeAlias = Literal["leader", "follower"]
NodeStatusName: TypeAlias = Literal[
    "healthy", "starting", "stopping", "unreachable", "maintenance", "unknown"
]
HeaderKindName: TypeAlias = Literal[
    "raw",
    "string",
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "int128",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "uint128",
    "float32",
    "float64",
]

# Which field of a request a status blames.
_FIELD_BY_STATUS: Final[dict[int, str]] = {
    StatusCode.USER_ALREADY_EXISTS: "username",
    StatusCode.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS: "name",
    StatusCode.CLIENT_NOT_FOUND: "client_id",
    StatusCode.STREAM_ID_NOT_FOUND: "stream_id",
    StatusCode.STREAM_NAME_ALREADY_EXISTS: "name",
    StatusCode.INVALID_STREAM_NAME: "name",
    StatusCode.INVALID_STREAM_ID: "stream_id",
    StatusCode.TOPIC_ID_NOT_FOUND: "topic_id",
    StatusCode.TOPIC_NAME_ALREADY_EXISTS: "name",
    StatusCode.INVALID_TOPIC_NAME: "name",
    StatusCode.INVALID_TOPIC_ID: "topic_id",
    StatusCode.PARTITION_NOT_FOUND: "partition_id",
    StatusCode.SEGMENT_NOT_FOUND: "segment_id",
    StatusCode.INVALID_OFFSET: "offset",
    StatusCode.INVALID_CONSUMER_GROUP_ID: "consumer_group_id",
    StatusCode.CONSUMER_GROUP_NAME_ALREADY_EXISTS: "name",
}


class ErrorShape(Struct, frozen=True):
    """The body of every error that a handler raises."""

    id: int
    code: str
    reason: str
    field: str | None

    @classmethod
    def of(cls, code: int, reason: str | None = None) -> ErrorShape:
        """Describe a status; the reason is its meaning unless given."""
        record = status(code)
        return cls(
            id=code,
            code=record.snake_name,
            reason=record.meaning if reason is None else reason,
            field=_FIELD_BY_STATUS.get(code),
        )

    @property
    def status(self) -> int:
        """The status of the binary protocol that means the same."""
        return StatusCode.RESOURCE_NOT_FOUND if self == NOT_FOUND else self.id


NOT_FOUND: Final = ErrorShape(id=404, code="not_found", reason="Resource not found", field=None)
"""The answer for a thing that is absent without a status of its own.

Its id is no status: 404 in the table of statuses is a WebSocket failure.
"""


class SecretStruct(Struct, frozen=True):
    """A struct with a secret: its repr hides all fields, in tracebacks too."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(hidden)"


class AccessTokenShape(SecretStruct, frozen=True):
    """A JWT and when it ends, in seconds since the epoch."""

    token: str
    expiry: U64


class IdentityShape(Struct, frozen=True):
    """Who logged in."""

    user_id: U32
    access_token: AccessTokenShape


class OptionShape(Struct, frozen=True):
    """The value of an option as text, and whether a client has set it."""

    value: str
    explicit: bool


class OptionsShape(Struct, frozen=True, kw_only=True):
    """The options of a resource, for clients from 0.9 on only."""

    options: dict[str, OptionShape] | UnsetType = UNSET


class PartitionContextShape(Struct, frozen=True):
    """What a client from 0.10 on hands back when it sends."""

    incarnation: U64
    owner_generation: U64
    metadata_op: U64


class PartitionShape(Struct, frozen=True):
    """One partition of a topic; the context is for clients from 0.9 on only."""

    id: U32
    created_at: U64
    segments_count: U32
    current_offset: U64
    size: SizeText
    messages_count: U64
    context: PartitionContextShape | UnsetType = UNSET


class TopicShape(OptionsShape, frozen=True):
    """A topic without its partitions."""

    id: U32
    created_at: U64
    name: str
    size: SizeText
    message_expiry: U64
    compression_algorithm: CompressionName
    max_topic_size: U64
    replication_factor: U8
    messages_count: U64
    partitions_count: U32


class TopicDetailsShape(TopicShape, frozen=True):
    """A topic with its partitions."""

    partitions: tuple[PartitionShape, ...]


class StreamShape(OptionsShape, frozen=True):
    """A stream without its topics."""

    id: U32
    created_at: U64
    name: str
    size: SizeText
    messages_count: U64
    topics_count: U32


class StreamDetailsShape(StreamShape, frozen=True):
    """A stream with its topics."""

    topics: tuple[TopicShape, ...]


class ConsumerGroupShape(Struct, frozen=True):
    """A consumer group without its members."""

    id: U32
    name: str
    partitions_count: U32
    members_count: U32


class ConsumerGroupMemberShape(Struct, frozen=True):
    """A member and the partitions it owns."""

    id: U32
    partitions_count: U32
    partitions: tuple[U32, ...]


class ConsumerGroupDetailsShape(ConsumerGroupShape, frozen=True):
    """A consumer group with its members."""

    members: tuple[ConsumerGroupMemberShape, ...]


class ConsumerOffsetShape(Struct, frozen=True):
    """How far a consumer is."""

    partition_id: U32
    current_offset: U64
    stored_offset: U64


class GlobalPermissionsShape(Struct, frozen=True):
    """What a user may do everywhere."""

    manage_servers: bool
    read_servers: bool
    manage_users: bool
    read_users: bool
    manage_streams: bool
    read_streams: bool
    manage_topics: bool
    read_topics: bool
    poll_messages: bool
    send_messages: bool


class TopicPermissionsShape(Struct, frozen=True):
    """What a user may do in one topic."""

    manage_topic: bool
    read_topic: bool
    poll_messages: bool
    send_messages: bool


class StreamPermissionsShape(Struct, frozen=True):
    """What a user may do in one stream; topics are keyed by their ids."""

    manage_stream: bool
    read_stream: bool
    manage_topics: bool
    read_topics: bool
    poll_messages: bool
    send_messages: bool
    topics: dict[U32, TopicPermissionsShape] | None = None


class PermissionsShape(Struct, frozen=True):
    """What a user may do; streams are keyed by their ids."""

    global_: GlobalPermissionsShape = field(name="global")
    streams: dict[U32, StreamPermissionsShape] | None = None


class UserShape(OptionsShape, frozen=True):
    """A user without the permissions."""

    id: U32
    created_at: U64
    status: UserStatusName
    username: str


class UserDetailsShape(UserShape, frozen=True):
    """A user with the permissions."""

    permissions: PermissionsShape | None


class ClientShape(Struct, frozen=True):
    """A connection; the user is absent before the login."""

    client_id: U32
    user_id: U32 | None
    address: str
    transport: TransportName
    consumer_groups_count: U32


class JoinedGroupShape(Struct, frozen=True):
    """A group of which a client is a member."""

    stream_id: U32
    topic_id: U32
    group_id: U32


class ClientDetailsShape(ClientShape, frozen=True):
    """A connection with its memberships."""

    consumer_groups: tuple[JoinedGroupShape, ...]


class PersonalAccessTokenShape(Struct, frozen=True):
    """A personal access token as listed: without the secret."""

    name: str
    expiry_at: U64 | None


class RawPersonalAccessTokenShape(SecretStruct, frozen=True):
    """The secret of a new personal access token, shown once."""

    token: str


class EndpointsShape(Struct, frozen=True):
    """The ports of a node."""

    tcp: U16
    quic: U16
    http: U16
    websocket: U16


class ClusterNodeShape(Struct, frozen=True):
    """A server of the cluster."""

    name: str
    ip: str
    endpoints: EndpointsShape
    role: NodeRoleName
    status: NodeStatusName


class ClusterShape(Struct, frozen=True):
    """The cluster and its nodes."""

    name: str
    nodes: tuple[ClusterNodeShape, ...]


class CacheMetricsShape(Struct, frozen=True):
    """How often a partition's cache had the answer."""

    hits: U64
    misses: U64
    hit_ratio: float


class StatsShape(Struct, frozen=True):
    """What the server measures about itself.

    Cache metrics are keyed ``stream-topic-partition``. The last three fields are new in 0.8; zero
    stands for a server that does not tell.
    """

    process_id: U32
    cpu_usage: float
    total_cpu_usage: float
    memory_usage: SizeText
    total_memory: SizeText
    available_memory: SizeText
    run_time: U64
    start_time: U64
    read_bytes: SizeText
    written_bytes: SizeText
    messages_size_bytes: SizeText
    streams_count: U32
    topics_count: U32
    partitions_count: U32
    segments_count: U32
    messages_count: U64
    clients_count: U32
    consumer_groups_count: U32
    hostname: str
    os_name: str
    os_version: str
    kernel_version: str
    iggy_server_version: str
    iggy_server_semver: U32 | None
    cache_metrics: dict[str, CacheMetricsShape]
    threads_count: U32 = 0
    free_disk_space: SizeText = "0 B"
    total_disk_space: SizeText = "0 B"


class OptionDescriptionShape(Struct, frozen=True):
    """An option that a kind of resource has; an option without a default has none as text."""

    key: str
    kind: HeaderKindName
    default: str | None
    description: str
    updatable: bool
    resettable: bool
    secret: bool
    read_only: bool
    critical: bool


class ConfirmationShape(Struct, frozen=True):
    """Where the messages of a send are."""

    stream_id: U32
    topic_id: U32
    partition_id: U32
    base_offset: U64


class ConfirmationsShape(Struct, frozen=True):
    """The answer to a send of a client from 0.9 on; empty where no offset is known."""

    confirmations: tuple[ConfirmationShape, ...]


class HeaderFieldShape(Struct, frozen=True):
    """The key or the value of a user header; its size need not fit the kind."""

    kind: HeaderKindName
    value: bytes


class HeaderEntryShape(Struct, frozen=True):
    """One user header."""

    key: HeaderFieldShape
    value: HeaderFieldShape


UserHeadersField: TypeAlias = tuple[HeaderEntryShape, ...] | bytes
"""User headers as entries, or the block as it is when it cannot be interpreted."""


class MessageHeaderShape(Struct, frozen=True):
    """The fixed part of a message; the id is a bare integer of up to 128 bits."""

    checksum: U64
    id: U64
    offset: U64
    timestamp: U64
    origin_timestamp: U64
    user_headers_length: U32
    payload_length: U32
    reserved: U64

    def __post_init__(self) -> None:
        if self.id > MESSAGE_ID_MAX:
            raise ValueError("a message id has at most 128 bits")


class MessageShape(Struct, frozen=True):
    """A polled message."""

    header: MessageHeaderShape
    payload: bytes
    user_headers: UserHeadersField


class PolledMessagesShape(Struct, frozen=True):
    """The answer to a poll; all zero when there is nothing."""

    partition_id: U32
    current_offset: U64
    count: U32
    messages: tuple[MessageShape, ...]
