"""Builds the command of an HTTP request, one small function per command.

Holds also the rules that apply over HTTP only: what the binary form cannot express, or rejects with
another status. Validation and handlers have all other rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from iggy_protocol import (
    ChangePassword,
    CommandCode,
    CompressionAlgorithm,
    Consumer,
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
    LoginUser,
    LoginWithPersonalAccessToken,
    LogoutUser,
    NewMessage,
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
from iggy_protocol.rest import encode_header_entries, read_permissions

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol import Command, Identifier
    from iggy_protocol.rest import MessageBody

__all__ = ["Asked", "build_command", "identifier"]

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
class Asked:
    """The parts of a request.

    Attributes:
        values: the parameters of the path, with numbers and booleans converted.
        body: the JSON, in the shape of the route.
        query: the parameters of the query, in the shape of the route.
        now_us: the time of the request.
    """

    values: Mapping[str, Any]
    body: Any
    query: Any
    now_us: int

    def name(self, parameter: str) -> Identifier:
        """Read a parameter of the path that names a thing."""
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
    """Read what names a thing: a number where it can be one, a name otherwise."""
    if isinstance(text, int):
        return text
    if _bytes(text) not in NAME_BYTES:
        raise _broken("a name has 1 to 255 bytes", StatusCode.INVALID_IDENTIFIER)
    if NUMBER.fullmatch(text) and int(text) <= NUMBER_MAX:
        return int(text)
    return text


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _broken(message: str, status: StatusCode) -> RuleViolation:
    return RuleViolation(message, field="", status=status)


def _named(name: str, status: StatusCode) -> str:
    if _bytes(name) not in NAME_BYTES:
        raise _broken("a name has 1 to 255 bytes", status)
    return name


# The server and its users


def _snapshot(asked: Asked) -> GetSnapshot:
    body = asked.body
    types = tuple(SnapshotType[_constant(name)] for name in body.snapshot_types)
    if SnapshotType.ALL in types and len(types) > 1:
        raise _broken("All stands alone", StatusCode.INVALID_COMMAND)
    return GetSnapshot(SnapshotCompression[body.compression.upper()], types)


def _constant(name: str) -> str:
    """Write a name such as ``ProcessList`` as ``PROCESS_LIST``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def _login(asked: Asked) -> LoginUser:
    body = asked.body
    return LoginUser(body.username, body.password, body.version or "", body.context or "")


def _create_user(asked: Asked) -> CreateUser:
    body = asked.body
    return CreateUser(
        body.username,
        body.password,
        UserStatus[body.status.upper()],
        read_permissions(body.permissions),
    )


def _update_user(asked: Asked) -> UpdateUser:
    body = asked.body
    status = None if body.status is None else UserStatus[body.status.upper()]
    return UpdateUser(asked.name("user_id"), body.username, status)


def _update_permissions(asked: Asked) -> UpdatePermissions:
    return UpdatePermissions(asked.name("user_id"), read_permissions(asked.body.permissions))


def _change_password(asked: Asked) -> ChangePassword:
    body = asked.body
    return ChangePassword(asked.name("user_id"), body.current_password, body.new_password)


def _delete_token(asked: Asked) -> DeletePersonalAccessToken:
    name = _named(asked.values["name"], StatusCode.INVALID_PERSONAL_ACCESS_TOKEN_NAME)
    return DeletePersonalAccessToken(name)


# Streams, topics, partitions


def _create_stream(asked: Asked) -> CreateStream:
    return CreateStream(_named(asked.body.name, StatusCode.INVALID_STREAM_NAME))


def _update_stream(asked: Asked) -> UpdateStream:
    return UpdateStream(asked.stream, _named(asked.body.name, StatusCode.INVALID_STREAM_NAME))


def _topic_settings(asked: Asked) -> dict[str, Any]:
    body = asked.body
    if body.replication_factor == 0:
        raise _broken("at least one copy is kept", StatusCode.INVALID_REPLICATION_FACTOR)
    return {
        "stream": asked.stream,
        "name": _named(body.name, StatusCode.INVALID_TOPIC_NAME),
        "compression": CompressionAlgorithm[body.compression.upper()],
        "message_expiry_us": body.message_expiry,
        "max_topic_size_bytes": body.max_topic_size,
        "replication_factor": body.replication_factor or 0,
    }


def _create_topic(asked: Asked) -> CreateTopic:
    return CreateTopic(partitions_count=asked.body.partitions_count, **_topic_settings(asked))


def _update_topic(asked: Asked) -> UpdateTopic:
    return UpdateTopic(topic=asked.topic, **_topic_settings(asked))


def _delete_segments(asked: Asked) -> DeleteSegments:
    return DeleteSegments(
        asked.stream, asked.topic, asked.values["partition_id"], asked.query.segments_count
    )


# Messages, offsets, groups


def _message(body: MessageBody) -> bytes | NewMessage:
    if not body.id and not body.user_headers:
        return body.payload
    headers = body.user_headers or b""
    block = headers if isinstance(headers, bytes) else encode_header_entries(headers)
    return NewMessage(body.payload, body.message_id, block)


def _partitioning(asked: Asked) -> Partitioning:
    body = asked.body.partitioning
    kind = PartitioningKind[body.kind.upper()]
    size = len(body.value)
    if kind is PartitioningKind.MESSAGES_KEY and size not in NAME_BYTES:
        raise _broken("a key has 1 to 255 bytes", StatusCode.INVALID_KEY_VALUE_LENGTH)
    if kind is PartitioningKind.PARTITION_ID and size < PARTITION_ID_BYTES:
        raise _broken("a partition id has 4 bytes", StatusCode.INVALID_COMMAND)
    # What is too much means nothing: all of a balanced send, and what follows a partition id.
    return Partitioning(kind, body.value[: VALUE_BYTES[kind]])


def _send(asked: Asked) -> SendMessages:
    if not asked.body.messages:
        raise _broken("a batch has messages", StatusCode.INVALID_MESSAGES_COUNT)
    return SendMessages(
        asked.stream,
        asked.topic,
        _partitioning(asked),
        [_message(message) for message in asked.body.messages],
        origin_timestamp_us=asked.now_us,
    )


def _poll(asked: Asked) -> PollMessages:
    query = asked.query
    return PollMessages(
        Consumer.single(identifier(query.consumer_id)),
        asked.stream,
        asked.topic,
        PollingStrategy(PollingKind[query.strategy.upper()], query.value),
        query.count,
        query.partition_id,
        query.auto_commit,
    )


def _flush(asked: Asked) -> FlushUnsavedBuffer:
    values = asked.values
    return FlushUnsavedBuffer(asked.stream, asked.topic, values["partition_id"], values["fsync"])


def _get_offset(asked: Asked) -> GetConsumerOffset:
    consumer = Consumer.single(identifier(asked.query.consumer_id))
    return GetConsumerOffset(consumer, asked.stream, asked.topic, asked.query.partition_id)


def _store_offset(asked: Asked) -> StoreConsumerOffset:
    body = asked.body
    consumer = Consumer.single(identifier(body.consumer_id))
    return StoreConsumerOffset(consumer, asked.stream, asked.topic, body.offset, body.partition_id)


def _delete_offset(asked: Asked) -> DeleteConsumerOffset:
    consumer = Consumer.single(asked.name("consumer_id"))
    return DeleteConsumerOffset(consumer, asked.stream, asked.topic, asked.query.partition_id)


def _create_group(asked: Asked) -> CreateConsumerGroup:
    name = _named(asked.body.name, StatusCode.INVALID_CONSUMER_GROUP_NAME)
    return CreateConsumerGroup(asked.stream, asked.topic, name)


_BUILDERS: Final[Mapping[CommandCode, Callable[[Asked], Command[Any]]]] = {
    CommandCode.PING: lambda asked: Ping(),
    CommandCode.GET_STATS: lambda asked: GetStats(),
    CommandCode.GET_CLUSTER_METADATA: lambda asked: GetClusterMetadata(),
    CommandCode.GET_CLIENTS: lambda asked: GetClients(),
    CommandCode.GET_CLIENT: lambda asked: GetClient(asked.values["client_id"]),
    CommandCode.GET_SNAPSHOT: _snapshot,
    CommandCode.LOGIN_USER: _login,
    CommandCode.LOGOUT_USER: lambda asked: LogoutUser(),
    CommandCode.GET_USERS: lambda asked: GetUsers(),
    CommandCode.CREATE_USER: _create_user,
    CommandCode.GET_USER: lambda asked: GetUser(asked.name("user_id")),
    CommandCode.UPDATE_USER: _update_user,
    CommandCode.UPDATE_PERMISSIONS: _update_permissions,
    CommandCode.CHANGE_PASSWORD: _change_password,
    CommandCode.DELETE_USER: lambda asked: DeleteUser(asked.name("user_id")),
    CommandCode.GET_PERSONAL_ACCESS_TOKENS: lambda asked: GetPersonalAccessTokens(),
    CommandCode.CREATE_PERSONAL_ACCESS_TOKEN: lambda asked: CreatePersonalAccessToken(
        asked.body.name, asked.body.expiry
    ),
    CommandCode.DELETE_PERSONAL_ACCESS_TOKEN: _delete_token,
    CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN: lambda asked: LoginWithPersonalAccessToken(
        asked.body.token
    ),
    CommandCode.GET_STREAMS: lambda asked: GetStreams(),
    CommandCode.CREATE_STREAM: _create_stream,
    CommandCode.GET_STREAM: lambda asked: GetStream(asked.stream),
    CommandCode.UPDATE_STREAM: _update_stream,
    CommandCode.DELETE_STREAM: lambda asked: DeleteStream(asked.stream),
    CommandCode.PURGE_STREAM: lambda asked: PurgeStream(asked.stream),
    CommandCode.GET_TOPICS: lambda asked: GetTopics(asked.stream),
    CommandCode.CREATE_TOPIC: _create_topic,
    CommandCode.GET_TOPIC: lambda asked: GetTopic(asked.stream, asked.topic),
    CommandCode.UPDATE_TOPIC: _update_topic,
    CommandCode.DELETE_TOPIC: lambda asked: DeleteTopic(asked.stream, asked.topic),
    CommandCode.PURGE_TOPIC: lambda asked: PurgeTopic(asked.stream, asked.topic),
    CommandCode.CREATE_PARTITIONS: lambda asked: CreatePartitions(
        asked.stream, asked.topic, asked.body.partitions_count
    ),
    CommandCode.DELETE_PARTITIONS: lambda asked: DeletePartitions(
        asked.stream, asked.topic, asked.query.partitions_count
    ),
    CommandCode.DELETE_SEGMENTS: _delete_segments,
    CommandCode.SEND_MESSAGES: _send,
    CommandCode.POLL_MESSAGES: _poll,
    CommandCode.FLUSH_UNSAVED_BUFFER: _flush,
    CommandCode.GET_CONSUMER_OFFSET: _get_offset,
    CommandCode.STORE_CONSUMER_OFFSET: _store_offset,
    CommandCode.DELETE_CONSUMER_OFFSET: _delete_offset,
    CommandCode.GET_CONSUMER_GROUPS: lambda asked: GetConsumerGroups(asked.stream, asked.topic),
    CommandCode.CREATE_CONSUMER_GROUP: _create_group,
    CommandCode.GET_CONSUMER_GROUP: lambda asked: GetConsumerGroup(
        asked.stream, asked.topic, asked.name("group_id")
    ),
    CommandCode.DELETE_CONSUMER_GROUP: lambda asked: DeleteConsumerGroup(
        asked.stream, asked.topic, asked.name("group_id")
    ),
}


def build_command(code: CommandCode, asked: Asked) -> Command[Any]:
    """Build the command of a request.

    Raises:
        RuleViolation: a field breaks a rule; ``status`` says which.
    """
    return _BUILDERS[code](asked)
