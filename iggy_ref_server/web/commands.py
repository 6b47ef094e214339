"""Builds the command of an HTTP request, one small function per command.

Holds also the rules that apply over HTTP only: what the binary form cannot express, or rejects with
another status. Validation and handlers have all other rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from iggy_protocol import (
    CLASSIC,
    ChangePassword,
    Command,
    CommandCode,
    CompressionAlgorithm,
    ConsumerIdentity,
    CreateConsumerGroup,
    CreatePartitions,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeleteConsumerGroup,
    DeleteConsumerOffset,
    DeletePartitions,
    DeletePersonalAccessToken,
    DeleteSegments,
    DeleteStream,
    DeleteTopic,
    DeleteUser,
    DescribeOptions,
    Dialect,
    FlushUnsavedBuffer,
    GetClient,
    GetClients,
    GetClusterMetadata,
    GetConsumerGroup,
    GetConsumerGroups,
    GetConsumerOffset,
    GetPersonalAccessTokens,
    GetSnapshot,
    GetStats,
    GetStream,
    GetStreams,
    GetTopic,
    GetTopics,
    GetUser,
    GetUsers,
    Identifier,
    LoginUser,
    LoginWithPersonalAccessToken,
    LogoutUser,
    NewMessage,
    OptionScope,
    Partitioning,
    PartitioningKind,
    Ping,
    PollingKind,
    PollingStrategy,
    PollMessages,
    PurgeStream,
    PurgeTopic,
    RuleViolation,
    SendMessages,
    SnapshotCompression,
    SnapshotType,
    StatusCode,
    StoreConsumerOffset,
    UpdatePermissions,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    UserStatus,
    record,
)
from iggy_protocol.rest import (
    MessageBody,
    NewTopicBody,
    encode_header_entries,
    permissions_from_shape,
)
from iggy_ref_server.web.option_bodies import (
    json_options,
    new_topic,
    update_stream,
    update_topic,
    update_user,
)

if TYPE_CHECKING:
    from collections.abc import Callable


NAME_BYTES: Final = range(1, 256)
PARTITION_ID_BYTES: Final = 4
VALUE_BYTES: Final = {
    PartitioningKind.BALANCED: 0,
    PartitioningKind.PARTITION_ID: PARTITION_ID_BYTES,
    PartitioningKind.MESSAGES_KEY: NAME_BYTES[-1],
}
NUMBER: Final = re.compile(r"\+?[0-9]+")
NUMBER_MAX: Final = 2**32 - 1


@record
class RequestParts:
    """The parts of a request.

    Attributes:
        values: the parameters of the path, with numbers and booleans converted.
        body: the JSON, in the shape of the route.
        query: the parameters of the query, in the shape of the route.
        now_us: the time of the request.
        dialect: what the body is written in.
    """

    values: Mapping[str, Any]
    body: Any
    query: Any
    now_us: int
    dialect: Dialect = CLASSIC

    def name(self, parameter: str) -> Identifier:
        """Read a path parameter that identifies a resource."""
        return identifier(self.values[parameter])

    @property
    def stream(self) -> Identifier:
        """The stream that the path names."""
        return self.name("stream_id")

    @property
    def topic(self) -> Identifier:
        """The topic that the path names."""
        return self.name("topic_id")


def identifier(text: str | int) -> Identifier:
    """Read an identifier: a number if the text is one, a name otherwise."""
    if isinstance(text, int):
        return text
    if _bytes(text) not in NAME_BYTES:
        raise _violation("a name has 1 to 255 bytes", StatusCode.INVALID_IDENTIFIER)
    if NUMBER.fullmatch(text) and int(text) <= NUMBER_MAX:
        return int(text)
    return text


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _violation(message: str, status: StatusCode) -> RuleViolation:
    return RuleViolation(message, field="", status=status)


def _checked_name(name: str, status: StatusCode) -> str:
    if _bytes(name) not in NAME_BYTES:
        raise _violation("a name has 1 to 255 bytes", status)
    return name


# The server and its users


def _snapshot(parts: RequestParts) -> GetSnapshot:
    body = parts.body
    types = tuple(SnapshotType[_constant(name)] for name in body.snapshot_types)
    if SnapshotType.ALL in types and len(types) > 1:
        raise _violation("All stands alone", StatusCode.INVALID_COMMAND)
    return GetSnapshot(SnapshotCompression[body.compression.upper()], types)


def _constant(name: str) -> str:
    """Write a name such as ``ProcessList`` as ``PROCESS_LIST``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def _login(parts: RequestParts) -> LoginUser:
    body = parts.body
    return LoginUser(body.username, body.password, body.version or "", body.context or "")


def _create_user(parts: RequestParts) -> CreateUser:
    body = parts.body
    return CreateUser(
        body.username,
        body.password,
        UserStatus[body.status.upper()],
        permissions_from_shape(body.permissions),
        options=json_options(body.options or {}),
    )


def _update_user(parts: RequestParts) -> UpdateUser:
    body = parts.body
    if isinstance(body, dict):
        return update_user(parts.name("user_id"), body, parts.dialect)
    status = None if body.status is None else UserStatus[body.status.upper()]
    return UpdateUser(parts.name("user_id"), body.username, status)


def _update_permissions(parts: RequestParts) -> UpdatePermissions:
    return UpdatePermissions(parts.name("user_id"), permissions_from_shape(parts.body.permissions))


def _change_password(parts: RequestParts) -> ChangePassword:
    body = parts.body
    return ChangePassword(parts.name("user_id"), body.current_password, body.new_password)


def _delete_token(parts: RequestParts) -> DeletePersonalAccessToken:
    name = _checked_name(parts.values["name"], StatusCode.INVALID_PERSONAL_ACCESS_TOKEN_NAME)
    return DeletePersonalAccessToken(name)


# Streams, topics, partitions


def _create_stream(parts: RequestParts) -> CreateStream:
    name = _checked_name(parts.body.name, StatusCode.INVALID_STREAM_NAME)
    return CreateStream(name, options=json_options(parts.body.options or {}))


def _update_stream(parts: RequestParts) -> UpdateStream:
    if isinstance(parts.body, dict):
        return update_stream(parts.stream, parts.body, parts.dialect)
    return UpdateStream(
        parts.stream, _checked_name(parts.body.name, StatusCode.INVALID_STREAM_NAME)
    )


def _topic_settings(parts: RequestParts) -> dict[str, Any]:
    body = parts.body
    if body.replication_factor == 0:
        raise _violation("at least one copy is kept", StatusCode.INVALID_REPLICATION_FACTOR)
    return {
        "stream": parts.stream,
        "name": _checked_name(body.name, StatusCode.INVALID_TOPIC_NAME),
        "compression": CompressionAlgorithm[body.compression.upper()],
        "message_expiry_us": body.message_expiry,
        "max_topic_size_bytes": body.max_topic_size,
        "replication_factor": body.replication_factor or 0,
    }


def _create_topic(parts: RequestParts) -> CreateTopic:
    if isinstance(parts.body, NewTopicBody):
        _checked_name(parts.body.name, StatusCode.INVALID_TOPIC_NAME)
        return new_topic(parts.stream, parts.body, parts.dialect)
    return CreateTopic(partitions_count=parts.body.partitions_count, **_topic_settings(parts))


def _update_topic(parts: RequestParts) -> UpdateTopic:
    if isinstance(parts.body, dict):
        return update_topic(parts.stream, parts.topic, parts.body, parts.dialect)
    return UpdateTopic(topic=parts.topic, **_topic_settings(parts))


def _delete_segments(parts: RequestParts) -> DeleteSegments:
    return DeleteSegments(
        parts.stream, parts.topic, parts.values["partition_id"], parts.query.segments_count
    )


# Messages, offsets, groups


def _message(body: MessageBody) -> bytes | NewMessage:
    if not body.id and not body.user_headers:
        return body.payload
    headers = body.user_headers or b""
    block = headers if isinstance(headers, bytes) else encode_header_entries(headers)
    return NewMessage(body.payload, body.message_id, block)


def _partitioning(parts: RequestParts) -> Partitioning:
    body = parts.body.partitioning
    kind = PartitioningKind[body.kind.upper()]
    size = len(body.value)
    if kind is PartitioningKind.MESSAGES_KEY and size not in NAME_BYTES:
        raise _violation("a key has 1 to 255 bytes", StatusCode.INVALID_KEY_VALUE_LENGTH)
    if kind is PartitioningKind.PARTITION_ID and size < PARTITION_ID_BYTES:
        raise _violation("a partition id has 4 bytes", StatusCode.INVALID_COMMAND)
    # Surplus bytes are ignored: all of a balanced send, and those after a partition id.
    return Partitioning(kind, body.value[: VALUE_BYTES[kind]])


def _send(parts: RequestParts) -> SendMessages:
    if not parts.body.messages:
        raise _violation("a batch has messages", StatusCode.INVALID_MESSAGES_COUNT)
    return SendMessages(
        parts.stream,
        parts.topic,
        _partitioning(parts),
        [_message(message) for message in parts.body.messages],
        origin_timestamp_us=parts.now_us,
    )


def _poll(parts: RequestParts) -> PollMessages:
    query = parts.query
    return PollMessages(
        ConsumerIdentity.single(identifier(query.consumer_id)),
        parts.stream,
        parts.topic,
        PollingStrategy(PollingKind[query.strategy.upper()], query.value),
        query.count,
        query.partition_id,
        query.auto_commit,
    )


def _flush(parts: RequestParts) -> FlushUnsavedBuffer:
    values = parts.values
    return FlushUnsavedBuffer(parts.stream, parts.topic, values["partition_id"], values["fsync"])


def _get_offset(parts: RequestParts) -> GetConsumerOffset:
    consumer = ConsumerIdentity.single(identifier(parts.query.consumer_id))
    return GetConsumerOffset(consumer, parts.stream, parts.topic, parts.query.partition_id)


def _store_offset(parts: RequestParts) -> StoreConsumerOffset:
    body = parts.body
    consumer = ConsumerIdentity.single(identifier(body.consumer_id))
    return StoreConsumerOffset(consumer, parts.stream, parts.topic, body.offset, body.partition_id)


def _delete_offset(parts: RequestParts) -> DeleteConsumerOffset:
    consumer = ConsumerIdentity.single(parts.name("consumer_id"))
    return DeleteConsumerOffset(consumer, parts.stream, parts.topic, parts.query.partition_id)


def _create_group(parts: RequestParts) -> CreateConsumerGroup:
    name = _checked_name(parts.body.name, StatusCode.INVALID_CONSUMER_GROUP_NAME)
    return CreateConsumerGroup(parts.stream, parts.topic, name)


def _describe_options(parts: RequestParts) -> DescribeOptions:
    name = parts.values["scope"].upper()
    if name not in OptionScope.__members__:
        raise _violation("options are of a topic, stream or user", StatusCode.RESOURCE_NOT_FOUND)
    return DescribeOptions(OptionScope[name])


_BUILDERS: Final[Mapping[CommandCode, Callable[[RequestParts], Command[Any]]]] = {
    CommandCode.PING: lambda parts: Ping(),
    CommandCode.GET_STATS: lambda parts: GetStats(),
    CommandCode.GET_CLUSTER_METADATA: lambda parts: GetClusterMetadata(),
    CommandCode.DESCRIBE_OPTIONS: _describe_options,
    CommandCode.GET_CLIENTS: lambda parts: GetClients(),
    CommandCode.GET_CLIENT: lambda parts: GetClient(parts.values["client_id"]),
    CommandCode.GET_SNAPSHOT: _snapshot,
    CommandCode.LOGIN_USER: _login,
    CommandCode.LOGOUT_USER: lambda parts: LogoutUser(),
    CommandCode.GET_USERS: lambda parts: GetUsers(),
    CommandCode.CREATE_USER: _create_user,
    CommandCode.GET_USER: lambda parts: GetUser(parts.name("user_id")),
    CommandCode.UPDATE_USER: _update_user,
    CommandCode.UPDATE_PERMISSIONS: _update_permissions,
    CommandCode.CHANGE_PASSWORD: _change_password,
    CommandCode.DELETE_USER: lambda parts: DeleteUser(parts.name("user_id")),
    CommandCode.GET_PERSONAL_ACCESS_TOKENS: lambda parts: GetPersonalAccessTokens(),
    CommandCode.CREATE_PERSONAL_ACCESS_TOKEN: lambda parts: CreatePersonalAccessToken(
        parts.body.name, parts.body.expiry
    ),
    CommandCode.DELETE_PERSONAL_ACCESS_TOKEN: _delete_token,
    CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN: lambda parts: LoginWithPersonalAccessToken(
        parts.body.token
    ),
    CommandCode.GET_STREAMS: lambda parts: GetStreams(),
    CommandCode.CREATE_STREAM: _create_stream,
    CommandCode.GET_STREAM: lambda parts: GetStream(parts.stream),
    CommandCode.UPDATE_STREAM: _update_stream,
    CommandCode.DELETE_STREAM: lambda parts: DeleteStream(parts.stream),
    CommandCode.PURGE_STREAM: lambda parts: PurgeStream(parts.stream),
    CommandCode.GET_TOPICS: lambda parts: GetTopics(parts.stream),
    CommandCode.CREATE_TOPIC: _create_topic,
    CommandCode.GET_TOPIC: lambda parts: GetTopic(parts.stream, parts.topic),
    CommandCode.UPDATE_TOPIC: _update_topic,
    CommandCode.DELETE_TOPIC: lambda parts: DeleteTopic(parts.stream, parts.topic),
    CommandCode.PURGE_TOPIC: lambda parts: PurgeTopic(parts.stream, parts.topic),
    CommandCode.CREATE_PARTITIONS: lambda parts: CreatePartitions(
        parts.stream, parts.topic, parts.body.partitions_count
    ),
    CommandCode.DELETE_PARTITIONS: lambda parts: DeletePartitions(
        parts.stream, parts.topic, parts.query.partitions_count
    ),
    CommandCode.DELETE_SEGMENTS: _delete_segments,
    CommandCode.SEND_MESSAGES: _send,
    CommandCode.POLL_MESSAGES: _poll,
    CommandCode.FLUSH_UNSAVED_BUFFER: _flush,
    CommandCode.GET_CONSUMER_OFFSET: _get_offset,
    CommandCode.STORE_CONSUMER_OFFSET: _store_offset,
    CommandCode.DELETE_CONSUMER_OFFSET: _delete_offset,
    CommandCode.GET_CONSUMER_GROUPS: lambda parts: GetConsumerGroups(parts.stream, parts.topic),
    CommandCode.CREATE_CONSUMER_GROUP: _create_group,
    CommandCode.GET_CONSUMER_GROUP: lambda parts: GetConsumerGroup(
        parts.stream, parts.topic, parts.name("group_id")
    ),
    CommandCode.DELETE_CONSUMER_GROUP: lambda parts: DeleteConsumerGroup(
        parts.stream, parts.topic, parts.name("group_id")
    ),
}


def build_command(code: CommandCode, parts: RequestParts) -> Command[Any]:
    """Build the command of a request.

    Raises:
        RuleViolation: a field breaks a rule; ``status`` says which.
    """
    return _BUILDERS[code](parts)
