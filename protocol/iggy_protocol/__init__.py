"""The binary protocol of Apache Iggy, without I/O: bytes in, typed values out, and back.

    from iggy_protocol import ClientConnection, GetStream

    connection = ClientConnection()
    buffers = connection.send(GetStream("orders"))     # write these to the server
    connection.receive_data(data)                      # what the server wrote
    event = connection.next_event()                    # ResponseReceived, ErrorReceived, NEED_DATA
    details = event.decode()                           # StreamDetails, or None

Clients and servers import all names of the binary protocol from here, and those of the HTTP API
from ``iggy_protocol.rest``.
"""

from __future__ import annotations

from iggy_protocol.batch import (
    BATCH_IMPLEMENTATION,
    BatchShape,
    HeaderColumns,
    MessageBatch,
    MessageColumns,
    MessageRecord,
    MessageView,
    PolledMessages,
    SendRun,
    allocate,
    checksum,
    encode_messages,
    gather_sends,
    index_entries,
    inspect_send,
    stamp,
)
from iggy_protocol.codes import (
    STATUSES,
    CommandCode,
    Status,
    StatusCode,
    StatusGroup,
    status,
)
from iggy_protocol.commands.cluster import (
    GetClusterMetadata,
)
from iggy_protocol.commands.groups import (
    CreateConsumerGroup,
    DeleteConsumerGroup,
    GetConsumerGroup,
    GetConsumerGroups,
    JoinConsumerGroup,
    LeaveConsumerGroup,
)
from iggy_protocol.commands.messages import (
    FlushUnsavedBuffer,
    PollMessages,
    SendMessages,
    SendMetadata,
    decode_send_metadata,
    encode_polled,
)
from iggy_protocol.commands.offsets import (
    DeleteConsumerOffset,
    GetConsumerOffset,
    StoreConsumerOffset,
)
from iggy_protocol.commands.partitions import (
    CreatePartitions,
    DeletePartitions,
)
from iggy_protocol.commands.segments import (
    DeleteSegments,
)
from iggy_protocol.commands.streams import (
    CreateStream,
    DeleteStream,
    GetStream,
    GetStreams,
    PurgeStream,
    UpdateStream,
)
from iggy_protocol.commands.system import (
    GetClient,
    GetClients,
    GetMe,
    GetSnapshot,
    GetStats,
    Ping,
)
from iggy_protocol.commands.tokens import (
    CreatePersonalAccessToken,
    DeletePersonalAccessToken,
    GetPersonalAccessTokens,
    LoginWithPersonalAccessToken,
)
from iggy_protocol.commands.topics import (
    CreateTopic,
    DeleteTopic,
    GetTopic,
    GetTopics,
    PurgeTopic,
    UpdateTopic,
)
from iggy_protocol.commands.users import (
    ChangePassword,
    CreateUser,
    DeleteUser,
    GetUser,
    GetUsers,
    LoginUser,
    LogoutUser,
    UpdatePermissions,
    UpdateUser,
)
from iggy_protocol.connection import ClientConnection, ServerConnection
from iggy_protocol.encryption import (
    PayloadCipher,
)
from iggy_protocol.endpoint import ConnectionStatistics
from iggy_protocol.errors import (
    DecryptionFailed,
    FrameTooLarge,
    InvalidBatch,
    InvalidField,
    LocalProtocolError,
    MalformedFrame,
    ProtocolError,
    RemoteProtocolError,
    RuleViolation,
    TrailingBytes,
    TruncatedField,
    UnknownCommand,
    UnknownDiscriminant,
)
from iggy_protocol.events import (
    NEED_DATA,
    PAUSED,
    ClientEvent,
    ConnectionClosed,
    ErrorReceived,
    ForeignRequestReceived,
    RequestReceived,
    RequestRefused,
    ResponseReceived,
    ServerEvent,
)
from iggy_protocol.framing import (
    CLASSIC,
    Framing,
    HeadroomBuffer,
)
from iggy_protocol.framing.vsr import (
    VSR_HEAD_BYTES,
    begins_vsr_request,
    is_vsr_answer,
    is_vsr_refusal,
    vsr_probe,
)
from iggy_protocol.hashing import (
    client_id,
    consumer_id,
    pack_namespace,
    partition_for_key,
    shard_for_namespace,
)
from iggy_protocol.layout import (
    Buffer,
)
from iggy_protocol.limits import (
    Limits,
)
from iggy_protocol.model.client import (
    ClientDetails,
    ClientInfo,
    ConsumerGroupMembership,
    Transport,
)
from iggy_protocol.model.cluster import (
    ClusterMetadata,
    ClusterNode,
    NodeRole,
    NodeStatus,
)
from iggy_protocol.model.consumer_group import (
    ConsumerGroup,
    ConsumerGroupDetails,
    ConsumerGroupMember,
    ConsumerOffset,
)
from iggy_protocol.model.identifier import (
    Consumer,
    ConsumerKind,
    Identifier,
    Partitioning,
    PartitioningKind,
    PollingKind,
    PollingStrategy,
)
from iggy_protocol.model.message import (
    PAYLOAD_BYTES_MAX,
    USER_HEADERS_BYTES_MAX,
    NewMessage,
)
from iggy_protocol.model.permissions import (
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
)
from iggy_protocol.model.stats import (
    CacheMetrics,
    HostResources,
    Snapshot,
    SnapshotCompression,
    SnapshotType,
    Stats,
)
from iggy_protocol.model.stream import (
    Stream,
    StreamDetails,
)
from iggy_protocol.model.topic import (
    CompressionAlgorithm,
    Partition,
    Topic,
    TopicDetails,
)
from iggy_protocol.model.user import (
    Identity,
    PersonalAccessTokenInfo,
    RawPersonalAccessToken,
    User,
    UserDetails,
    UserStatus,
)
from iggy_protocol.primitives import (
    NEVER_EXPIRES,
    SERVER_DEFAULT,
    UNLIMITED,
)
from iggy_protocol.records import record
from iggy_protocol.registry import (
    COMMANDS,
    Command,
    CommandSpec,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from iggy_protocol.user_headers import (
    HeaderKey,
    HeaderKind,
    HeaderScalar,
    HeaderValue,
    decode_user_headers,
    encode_user_headers,
)
from iggy_protocol.validation import (
    validate,
)

__all__ = [
    "BATCH_IMPLEMENTATION",
    "CLASSIC",
    "COMMANDS",
    "NEED_DATA",
    "NEVER_EXPIRES",
    "PAUSED",
    "PAYLOAD_BYTES_MAX",
    "SERVER_DEFAULT",
    "STATUSES",
    "UNLIMITED",
    "USER_HEADERS_BYTES_MAX",
    "VSR_HEAD_BYTES",
    "BatchShape",
    "Buffer",
    "CacheMetrics",
    "ChangePassword",
    "ClientConnection",
    "ClientDetails",
    "ClientEvent",
    "ClientInfo",
    "ClusterMetadata",
    "ClusterNode",
    "Command",
    "CommandCode",
    "CommandSpec",
    "CompressionAlgorithm",
    "ConnectionClosed",
    "ConnectionStatistics",
    "Consumer",
    "ConsumerGroup",
    "ConsumerGroupDetails",
    "ConsumerGroupMember",
    "ConsumerGroupMembership",
    "ConsumerKind",
    "ConsumerOffset",
    "CreateConsumerGroup",
    "CreatePartitions",
    "CreatePersonalAccessToken",
    "CreateStream",
    "CreateTopic",
    "CreateUser",
    "DecryptionFailed",
    "DeleteConsumerGroup",
    "DeleteConsumerOffset",
    "DeletePartitions",
    "DeletePersonalAccessToken",
    "DeleteSegments",
    "DeleteStream",
    "DeleteTopic",
    "DeleteUser",
    "ErrorReceived",
    "FlushUnsavedBuffer",
    "ForeignRequestReceived",
    "FrameTooLarge",
    "Framing",
    "GetClient",
    "GetClients",
    "GetClusterMetadata",
    "GetConsumerGroup",
    "GetConsumerGroups",
    "GetConsumerOffset",
    "GetMe",
    "GetPersonalAccessTokens",
    "GetSnapshot",
    "GetStats",
    "GetStream",
    "GetStreams",
    "GetTopic",
    "GetTopics",
    "GetUser",
    "GetUsers",
    "GlobalPermissions",
    "HeaderColumns",
    "HeaderKey",
    "HeaderKind",
    "HeaderScalar",
    "HeaderValue",
    "HeadroomBuffer",
    "HostResources",
    "Identifier",
    "Identity",
    "InvalidBatch",
    "InvalidField",
    "JoinConsumerGroup",
    "LeaveConsumerGroup",
    "Limits",
    "LocalProtocolError",
    "LoginUser",
    "LoginWithPersonalAccessToken",
    "LogoutUser",
    "MalformedFrame",
    "MessageBatch",
    "MessageColumns",
    "MessageRecord",
    "MessageView",
    "NewMessage",
    "NodeRole",
    "NodeStatus",
    "Partition",
    "Partitioning",
    "PartitioningKind",
    "PayloadCipher",
    "Permissions",
    "PersonalAccessTokenInfo",
    "Ping",
    "PollMessages",
    "PolledMessages",
    "PollingKind",
    "PollingStrategy",
    "ProtocolError",
    "PurgeStream",
    "PurgeTopic",
    "RawPersonalAccessToken",
    "RemoteProtocolError",
    "RequestReceived",
    "RequestRefused",
    "ResponseReceived",
    "RuleViolation",
    "SendMessages",
    "SendMetadata",
    "SendRun",
    "ServerConnection",
    "ServerEvent",
    "Snapshot",
    "SnapshotCompression",
    "SnapshotType",
    "Stats",
    "Status",
    "StatusCode",
    "StatusGroup",
    "StoreConsumerOffset",
    "Stream",
    "StreamDetails",
    "StreamPermissions",
    "Topic",
    "TopicDetails",
    "TopicPermissions",
    "TrailingBytes",
    "Transport",
    "TruncatedField",
    "UnknownCommand",
    "UnknownDiscriminant",
    "UpdatePermissions",
    "UpdateStream",
    "UpdateTopic",
    "UpdateUser",
    "User",
    "UserDetails",
    "UserStatus",
    "allocate",
    "begins_vsr_request",
    "checksum",
    "client_id",
    "consumer_id",
    "decode_reply",
    "decode_request",
    "decode_send_metadata",
    "decode_user_headers",
    "encode_messages",
    "encode_polled",
    "encode_reply",
    "encode_request",
    "encode_user_headers",
    "gather_sends",
    "index_entries",
    "inspect_send",
    "is_vsr_answer",
    "is_vsr_refusal",
    "pack_namespace",
    "partition_for_key",
    "record",
    "shard_for_namespace",
    "stamp",
    "status",
    "validate",
    "vsr_probe",
]
