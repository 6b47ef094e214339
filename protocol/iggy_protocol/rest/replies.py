"""Decode the JSON of a reply to the same value as the binary protocol returns.

Also errors: some of them mean that a resource does not exist, which is a reply of None to a command
that asks for it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from iggy_protocol.batch import MessageBatch, PolledMessages
from iggy_protocol.codes import CommandCode
from iggy_protocol.errors import InvalidField, RemoteProtocolError
from iggy_protocol.message_view import HEADER
from iggy_protocol.model.stream import (
    CompressionAlgorithm,
    ConsumerGroup,
    ConsumerGroupDetails,
    ConsumerGroupMember,
    ConsumerOffset,
    Partition,
    Stream,
    StreamDetails,
    Topic,
    TopicDetails,
)
from iggy_protocol.model.system import (
    CacheMetrics,
    ClientDetails,
    ClientInfo,
    ClusterMetadata,
    ClusterNode,
    ConsumerGroupMembership,
    HostResources,
    NodeRole,
    NodeStatus,
    Snapshot,
    Stats,
    Transport,
)
from iggy_protocol.model.user import (
    Identity,
    PersonalAccessTokenInfo,
    RawPersonalAccessToken,
    User,
    UserDetails,
    UserStatus,
)
from iggy_protocol.options import OptionDescription, OptionFlags
from iggy_protocol.rest.codec import (
    decode_json,
    encode_header_entries,
    option_from_text,
    permissions_from_shape,
)
from iggy_protocol.rest.routes import ROUTES_BY_COMMAND
from iggy_protocol.rest.shapes import NOT_FOUND, ErrorShape, MessageShape, PolledMessagesShape
from iggy_protocol.status_table import StatusCode
from iggy_protocol.unit_text import parse_size
from iggy_protocol.user_headers import HeaderKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iggy_protocol.rest import shapes


# Convert the JSON of a poll to the bytes of the binary protocol.
#
# Consumers read messages in place, from the stored byte format. So the JSON is converted back to
# it; it has every number, the payloads and the user headers. Only the order of user headers may
# differ from the producer's, because the server sorts them.


ID_BYTES = 16


def polled_from_shape(shape: PolledMessagesShape) -> PolledMessages:
    """Make of JSON what a binary poll brings.

    Raises:
        InvalidField: a message contradicts itself, or a number does not fit its field.
    """
    parts: list[bytes] = []
    for index, message in enumerate(shape.messages):
        block = _block_of(message)
        parts += (_header_of(message, block, index), message.payload, block)
    return PolledMessages(
        shape.partition_id,
        shape.current_offset,
        shape.count,
        MessageBatch(b"".join(parts)),
    )


def _block_of(message: MessageShape) -> bytes:
    headers = message.user_headers
    if not headers:
        return b""
    return headers if isinstance(headers, bytes) else encode_header_entries(headers)


def _header_of(message: MessageShape, block: bytes, index: int) -> bytes:
    """Write the fixed part of a message, whose lengths have to be true."""
    header = message.header
    if header.payload_length != len(message.payload):
        raise _contradiction("the payload has another length", index, "payload")
    if header.user_headers_length != len(block):
        raise _contradiction("the user headers have another length", index, "user_headers")
    try:
        return HEADER.pack(
            header.checksum,
            header.id.to_bytes(ID_BYTES, "little"),
            header.offset,
            header.timestamp,
            header.origin_timestamp,
            header.user_headers_length,
            header.payload_length,
            header.reserved,
        )
    except struct.error:
        raise _contradiction("a number has at most 64 bits", index, "header") from None


def _contradiction(message: str, index: int, field: str) -> InvalidField:
    return InvalidField(message, field=f"messages.{index}.{field}")


ABSENT: Final = object()
"""Returned instead of a status where an error only means that the resource does not exist."""

PONG: Final = b"pong"

_TRANSPORTS: Final = {
    "tcp": Transport.TCP,
    "quic": Transport.QUIC,
    "http": Transport.HTTP,
    "ws": Transport.WEBSOCKET,
}


def decode_rest_reply(code: CommandCode, body: bytes) -> Any:
    """Read the answer to the command with this code; the HTTP status was that of success.

    Raises:
        RemoteProtocolError: the body is not such an answer.
    """
    reply = ROUTES_BY_COMMAND[code].reply
    if reply is None:
        if body:
            raise RemoteProtocolError("the reply has a body where none is expected", have=len(body))
        return None
    if reply is str:
        if body.strip() != PONG:
            raise RemoteProtocolError("this is no reply to a ping", have=len(body))
        return None
    if reply is bytes:
        return Snapshot(body)
    return _READERS[code](decode_json(body, reply))


def decode_rest_error(code: CommandCode, body: bytes) -> int | object:
    """Read a refusal of the command with this code.

    Returns:
        The status that the binary protocol answers for it, or ``ABSENT`` where that answers with
        nothing.

    Raises:
        RemoteProtocolError: the body is none of an Iggy server.
    """
    error = decode_json(body, ErrorShape)
    if error.status in _ABSENT_STATUSES.get(code, ()):
        return ABSENT
    if error == NOT_FOUND:
        return _STATUSES_WITHOUT_NAME.get(code, error.status)
    return error.status


# What a refusal says of a thing that one has asked for.
_NOTHING: Final = frozenset({StatusCode.RESOURCE_NOT_FOUND})
_NO_CACHE_KEY: Final = _NOTHING | {StatusCode.STREAM_ID_NOT_FOUND, StatusCode.TOPIC_ID_NOT_FOUND}
_ABSENT_STATUSES: Final[Mapping[CommandCode, frozenset[StatusCode]]] = {
    CommandCode.GET_CLIENT: _NOTHING,
    CommandCode.GET_USER: _NOTHING,
    CommandCode.GET_STREAM: _NOTHING,
    CommandCode.GET_TOPIC: _NOTHING,
    CommandCode.GET_TOPICS: _NOTHING,
    CommandCode.GET_CONSUMER_OFFSET: _NO_CACHE_KEY,
    CommandCode.GET_CONSUMER_GROUP: _NO_CACHE_KEY | {StatusCode.CONSUMER_GROUP_ID_NOT_FOUND},
    CommandCode.GET_CONSUMER_GROUPS: _NO_CACHE_KEY,
}

# What is missing where a refusal does not say it.
_STATUSES_WITHOUT_NAME: Final[Mapping[CommandCode, StatusCode]] = {
    CommandCode.CREATE_TOPIC: StatusCode.STREAM_ID_NOT_FOUND,
}


# Users


def _identity(shape: shapes.IdentityShape) -> Identity:
    return Identity(shape.user_id)


def _user_fields(shape: shapes.UserShape) -> dict[str, Any]:
    return {
        "id": shape.id,
        "created_at_us": shape.created_at,
        "status": UserStatus[shape.status.upper()],
        "username": shape.username,
    }


def _users(users: list[shapes.UserShape]) -> tuple[User, ...]:
    return tuple(User(**_user_fields(user)) for user in users)


def _user_details(shape: shapes.UserDetailsShape) -> UserDetails:
    return UserDetails(**_user_fields(shape), permissions=permissions_from_shape(shape.permissions))


def _tokens(
    tokens: list[shapes.PersonalAccessTokenShape],
) -> tuple[PersonalAccessTokenInfo, ...]:
    return tuple(PersonalAccessTokenInfo(token.name, token.expiry_at) for token in tokens)


def _raw_token(shape: shapes.RawPersonalAccessTokenShape) -> RawPersonalAccessToken:
    return RawPersonalAccessToken(shape.token)


# Streams and topics


def _stream_fields(shape: shapes.StreamShape) -> dict[str, Any]:
    return {
        "id": shape.id,
        "created_at_us": shape.created_at,
        "topics_count": shape.topics_count,
        "size_bytes": parse_size(shape.size),
        "messages_count": shape.messages_count,
        "name": shape.name,
    }


def _stream(shape: shapes.StreamShape) -> Stream:
    return Stream(**_stream_fields(shape))


def _streams(streams: list[shapes.StreamShape]) -> tuple[Stream, ...]:
    return tuple(map(_stream, streams))


def _stream_details(shape: shapes.StreamDetailsShape) -> StreamDetails:
    return StreamDetails(**_stream_fields(shape), topics=_topics(shape.topics))


def _topic_fields(shape: shapes.TopicShape) -> dict[str, Any]:
    return {
        "id": shape.id,
        "created_at_us": shape.created_at,
        "partitions_count": shape.partitions_count,
        "message_expiry_us": shape.message_expiry,
        "compression": CompressionAlgorithm[shape.compression_algorithm.upper()],
        "max_topic_size_bytes": shape.max_topic_size,
        "replication_factor": shape.replication_factor,
        "size_bytes": parse_size(shape.size),
        "messages_count": shape.messages_count,
        "name": shape.name,
    }


def _topics(topics: Any) -> tuple[Topic, ...]:
    return tuple(Topic(**_topic_fields(topic)) for topic in topics)


def _topic_details(shape: shapes.TopicDetailsShape) -> TopicDetails:
    return TopicDetails(
        **_topic_fields(shape),
        partitions=tuple(
            Partition(
                partition.id,
                partition.created_at,
                partition.segments_count,
                partition.current_offset,
                parse_size(partition.size),
                partition.messages_count,
            )
            for partition in shape.partitions
        ),
    )


# Groups and offsets


def _group(shape: shapes.ConsumerGroupShape) -> ConsumerGroup:
    return ConsumerGroup(shape.id, shape.partitions_count, shape.members_count, shape.name)


def _groups(groups: list[shapes.ConsumerGroupShape]) -> tuple[ConsumerGroup, ...]:
    return tuple(map(_group, groups))


def _group_details(shape: shapes.ConsumerGroupDetailsShape) -> ConsumerGroupDetails:
    return ConsumerGroupDetails(
        shape.id,
        shape.partitions_count,
        shape.members_count,
        shape.name,
        tuple(ConsumerGroupMember(member.id, member.partitions) for member in shape.members),
    )


def _offset(shape: shapes.ConsumerOffsetShape) -> ConsumerOffset:
    return ConsumerOffset(shape.partition_id, shape.current_offset, shape.stored_offset)


# The server


def _client_fields(shape: shapes.ClientShape) -> dict[str, Any]:
    return {
        "client_id": shape.client_id,
        "user_id": shape.user_id,
        "transport": _TRANSPORTS[shape.transport],
        "address": shape.address,
        "consumer_groups_count": shape.consumer_groups_count,
    }


def _clients(clients: list[shapes.ClientShape]) -> tuple[ClientInfo, ...]:
    return tuple(ClientInfo(**_client_fields(client)) for client in clients)


def _client_details(shape: shapes.ClientDetailsShape) -> ClientDetails:
    return ClientDetails(
        **_client_fields(shape),
        consumer_groups=tuple(
            ConsumerGroupMembership(group.stream_id, group.topic_id, group.group_id)
            for group in shape.consumer_groups
        ),
    )


def _cluster(shape: shapes.ClusterShape) -> ClusterMetadata:
    return ClusterMetadata(
        shape.name,
        tuple(
            ClusterNode(
                node.name,
                node.ip,
                node.endpoints.tcp,
                node.endpoints.quic,
                node.endpoints.http,
                node.endpoints.websocket,
                NodeRole[node.role.upper()],
                NodeStatus[node.status.upper()],
            )
            for node in shape.nodes
        ),
    )


def _cache(place: str, shape: shapes.CacheMetricsShape) -> CacheMetrics:
    numbers = place.split("-")
    if len(numbers) != 3 or not all(text.isascii() and text.isdigit() for text in numbers):
        raise InvalidField(f"{place!r} is no partition", field="cache_metrics")
    stream_id, topic_id, partition_id = map(int, numbers)
    return CacheMetrics(
        stream_id, topic_id, partition_id, shape.hits, shape.misses, shape.hit_ratio
    )


def _stats(shape: shapes.StatsShape) -> Stats:
    host = HostResources(
        shape.threads_count, parse_size(shape.free_disk_space), parse_size(shape.total_disk_space)
    )
    return Stats(
        process_id=shape.process_id,
        cpu_usage=shape.cpu_usage,
        total_cpu_usage=shape.total_cpu_usage,
        memory_usage_bytes=parse_size(shape.memory_usage),
        total_memory_bytes=parse_size(shape.total_memory),
        available_memory_bytes=parse_size(shape.available_memory),
        run_time_us=shape.run_time,
        start_time_us=shape.start_time,
        read_bytes=parse_size(shape.read_bytes),
        written_bytes=parse_size(shape.written_bytes),
        messages_size_bytes=parse_size(shape.messages_size_bytes),
        streams_count=shape.streams_count,
        topics_count=shape.topics_count,
        partitions_count=shape.partitions_count,
        segments_count=shape.segments_count,
        messages_count=shape.messages_count,
        clients_count=shape.clients_count,
        consumer_groups_count=shape.consumer_groups_count,
        hostname=shape.hostname,
        os_name=shape.os_name,
        os_version=shape.os_version,
        kernel_version=shape.kernel_version,
        server_version=shape.iggy_server_version,
        server_semver=shape.iggy_server_semver or 0,
        cache_metrics=tuple(_cache(*entry) for entry in shape.cache_metrics.items()),
        host=host if shape.threads_count else None,
    )


def _descriptions(
    described: list[shapes.OptionDescriptionShape],
) -> tuple[OptionDescription, ...]:
    return tuple(map(_description, described))


def _description(shape: shapes.OptionDescriptionShape) -> OptionDescription:
    kind = HeaderKind[shape.kind.upper()]
    default = b"" if shape.default is None else option_from_text(kind, shape.default).raw
    flags = OptionFlags(0)
    for flag in OptionFlags:
        assert flag.name is not None
        if getattr(shape, flag.name.lower()):
            flags |= flag
    return OptionDescription(shape.key, kind, default, shape.description, flags)


_READERS: Final[Mapping[CommandCode, Callable[[Any], object]]] = {
    CommandCode.GET_STATS: _stats,
    CommandCode.GET_CLUSTER_METADATA: _cluster,
    CommandCode.DESCRIBE_OPTIONS: _descriptions,
    CommandCode.GET_CLIENTS: _clients,
    CommandCode.GET_CLIENT: _client_details,
    CommandCode.LOGIN_USER: _identity,
    CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN: _identity,
    CommandCode.GET_USERS: _users,
    CommandCode.GET_USER: _user_details,
    CommandCode.CREATE_USER: _user_details,
    CommandCode.GET_PERSONAL_ACCESS_TOKENS: _tokens,
    CommandCode.CREATE_PERSONAL_ACCESS_TOKEN: _raw_token,
    CommandCode.GET_STREAMS: _streams,
    CommandCode.GET_STREAM: _stream_details,
    CommandCode.CREATE_STREAM: _stream,
    CommandCode.GET_TOPICS: _topics,
    CommandCode.GET_TOPIC: _topic_details,
    CommandCode.CREATE_TOPIC: _topic_details,
    CommandCode.GET_CONSUMER_GROUPS: _groups,
    CommandCode.GET_CONSUMER_GROUP: _group_details,
    CommandCode.CREATE_CONSUMER_GROUP: _group,
    CommandCode.GET_CONSUMER_OFFSET: _offset,
    CommandCode.POLL_MESSAGES: polled_from_shape,
}
