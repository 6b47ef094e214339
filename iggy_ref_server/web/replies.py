"""Converts the replies of handlers to their JSON shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from iggy_protocol import (
    CLASSIC,
    ClientDetails,
    ClientInfo,
    ClusterMetadata,
    ClusterNode,
    ConsumerGroup,
    ConsumerGroupDetails,
    ConsumerOffset,
    Dialect,
    HostResources,
    OptionDescription,
    OptionFlags,
    OptionValue,
    Partition,
    PersonalAccessTokenInfo,
    RawPersonalAccessToken,
    ReportedOptions,
    SendConfirmation,
    Stats,
    Stream,
    StreamDetails,
    Topic,
    TopicDetails,
    Transport,
    User,
    UserDetails,
)
from iggy_protocol.rest import (
    CacheMetricsShape,
    ClientDetailsShape,
    ClientShape,
    ClusterNodeShape,
    ClusterShape,
    ConfirmationShape,
    ConfirmationsShape,
    ConsumerGroupDetailsShape,
    ConsumerGroupMemberShape,
    ConsumerGroupShape,
    ConsumerOffsetShape,
    EndpointsShape,
    JoinedGroupShape,
    OptionDescriptionShape,
    OptionShape,
    PartitionContextShape,
    PartitionShape,
    PersonalAccessTokenShape,
    RawPersonalAccessTokenShape,
    StatsShape,
    StreamDetailsShape,
    StreamShape,
    TopicDetailsShape,
    TopicShape,
    UserDetailsShape,
    UserShape,
    format_size,
    option_text,
    permissions_to_shape,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


TRANSPORTS: Final[dict[Transport, Any]] = {
    Transport.TCP: "tcp",
    Transport.QUIC: "quic",
    Transport.HTTP: "http",
    Transport.WEBSOCKET: "ws",
}


def shape_reply(reply: object, dialect: Dialect = CLASSIC) -> object:
    """Convert a reply to its JSON shape; a list becomes a list.

    Args:
        reply: of a handler.
        dialect: what the client speaks; options are told from 0.9 on.
    """
    if isinstance(reply, tuple):
        return [shape_reply(item, dialect) for item in reply]
    shape = _SHAPES[type(reply)](reply)
    return _tell_options(shape, reply) if dialect.is_vsr else shape


# Options and contexts, which clients of 0.8 are not told of.


def _tell_options(shape: Any, reply: Any) -> Any:
    """Add what clients from 0.9 on are told to the shape of a reply."""
    if not isinstance(reply, Stream | Topic | User):
        return shape
    told: dict[str, Any] = {"options": _options(reply)}
    if isinstance(reply, StreamDetails):
        told["topics"] = tuple(map(_tell_options, shape.topics, reply.topics))
    elif isinstance(reply, TopicDetails):
        told["partitions"] = tuple(map(_tell_context, shape.partitions, reply.partitions))
    return msgspec.structs.replace(shape, **told)


def _options(reply: Stream | Topic | User) -> dict[str, OptionShape]:
    return shape_options(ReportedOptions(reply.options, reply.derived_options))


def shape_options(reported: ReportedOptions) -> dict[str, OptionShape]:
    """Convert the options of a resource."""
    both = ((reported.explicit, True), (reported.derived, False))
    return {
        key: OptionShape(option_text(value), is_explicit)
        for options, is_explicit in both
        for key, value in options.items()
    }


def _tell_context(shape: PartitionShape, partition: Partition) -> PartitionShape:
    context = partition.context
    told = PartitionContextShape(
        context.incarnation, context.owner_generation, context.metadata_position
    )
    return msgspec.structs.replace(shape, context=told)


def _description(option: OptionDescription) -> OptionDescriptionShape:
    default = option_text(OptionValue(option.kind, option.default)) if option.default else None
    kind: Any = option.kind.name.lower()
    flags = {str(flag.name).lower(): flag in option.flags for flag in OptionFlags}
    return OptionDescriptionShape(option.key, kind, default, option.description, **flags)


def shape_confirmations(confirmed: Iterable[SendConfirmation]) -> ConfirmationsShape:
    """Convert where the messages of a send are."""
    return ConfirmationsShape(
        tuple(
            ConfirmationShape(one.stream_id, one.topic_id, one.partition_id, one.base_offset)
            for one in confirmed
        )
    )


def _topic_fields(topic: Topic) -> dict[str, Any]:
    return {
        "id": topic.id,
        "created_at": topic.created_at_us,
        "name": topic.name,
        "size": format_size(topic.size_bytes),
        "message_expiry": topic.message_expiry_us,
        "compression_algorithm": topic.compression.name.lower(),
        "max_topic_size": topic.max_topic_size_bytes,
        "replication_factor": topic.replication_factor,
        "messages_count": topic.messages_count,
        "partitions_count": topic.partitions_count,
    }


def _partition(partition: Partition) -> PartitionShape:
    return PartitionShape(
        id=partition.id,
        created_at=partition.created_at_us,
        segments_count=partition.segments_count,
        current_offset=partition.current_offset,
        size=format_size(partition.size_bytes),
        messages_count=partition.messages_count,
    )


def _topic(topic: Topic) -> TopicShape:
    return TopicShape(**_topic_fields(topic))


def _topic_details(topic: TopicDetails) -> TopicDetailsShape:
    partitions = tuple(map(_partition, topic.partitions))
    return TopicDetailsShape(**_topic_fields(topic), partitions=partitions)


def _stream_fields(stream: Stream) -> dict[str, Any]:
    return {
        "id": stream.id,
        "created_at": stream.created_at_us,
        "name": stream.name,
        "size": format_size(stream.size_bytes),
        "messages_count": stream.messages_count,
        "topics_count": stream.topics_count,
    }


def _stream(stream: Stream) -> StreamShape:
    return StreamShape(**_stream_fields(stream))


def _stream_details(stream: StreamDetails) -> StreamDetailsShape:
    topics = tuple(map(_topic, stream.topics))
    return StreamDetailsShape(**_stream_fields(stream), topics=topics)


def _group(group: ConsumerGroup) -> ConsumerGroupShape:
    return ConsumerGroupShape(group.id, group.name, group.partitions_count, group.members_count)


def _group_details(group: ConsumerGroupDetails) -> ConsumerGroupDetailsShape:
    return ConsumerGroupDetailsShape(
        id=group.id,
        name=group.name,
        partitions_count=group.partitions_count,
        members_count=group.members_count,
        members=tuple(
            ConsumerGroupMemberShape(member.id, len(member.partitions), member.partitions)
            for member in group.members
        ),
    )


def _offset(offset: ConsumerOffset) -> ConsumerOffsetShape:
    return ConsumerOffsetShape(offset.partition_id, offset.current_offset, offset.stored_offset)


def _user_fields(user: User) -> dict[str, Any]:
    return {
        "id": user.id,
        "created_at": user.created_at_us,
        "status": user.status.name.lower(),
        "username": user.username,
    }


def _user(user: User) -> UserShape:
    return UserShape(**_user_fields(user))


def _user_details(user: UserDetails) -> UserDetailsShape:
    return UserDetailsShape(
        **_user_fields(user), permissions=permissions_to_shape(user.permissions)
    )


def _token(token: PersonalAccessTokenInfo) -> PersonalAccessTokenShape:
    return PersonalAccessTokenShape(token.name, token.expires_at_us)


def _raw_token(token: RawPersonalAccessToken) -> RawPersonalAccessTokenShape:
    return RawPersonalAccessTokenShape(token.token)


def _client_fields(client: ClientInfo) -> dict[str, Any]:
    return {
        "client_id": client.client_id,
        "user_id": client.user_id,
        "address": client.address,
        "transport": TRANSPORTS[client.transport],
        "consumer_groups_count": client.consumer_groups_count,
    }


def _client(client: ClientInfo) -> ClientShape:
    return ClientShape(**_client_fields(client))


def _client_details(client: ClientDetails) -> ClientDetailsShape:
    groups = tuple(
        JoinedGroupShape(group.stream_id, group.topic_id, group.group_id)
        for group in client.consumer_groups
    )
    return ClientDetailsShape(**_client_fields(client), consumer_groups=groups)


def _node(node: ClusterNode) -> ClusterNodeShape:
    names: dict[str, Any] = {"role": node.role.name.lower(), "status": node.status.name.lower()}
    endpoints = EndpointsShape(node.tcp_port, node.quic_port, node.http_port, node.websocket_port)
    return ClusterNodeShape(name=node.name, ip=node.ip, endpoints=endpoints, **names)


def _cluster(cluster: ClusterMetadata) -> ClusterShape:
    return ClusterShape(cluster.name, tuple(map(_node, cluster.nodes)))


def _stats(stats: Stats) -> StatsShape:
    host = stats.host or HostResources(0, 0, 0)
    caches = {
        f"{cache.stream_id}-{cache.topic_id}-{cache.partition_id}": CacheMetricsShape(
            cache.hits, cache.misses, cache.hit_ratio
        )
        for cache in stats.cache_metrics
    }
    return StatsShape(
        process_id=stats.process_id,
        cpu_usage=stats.cpu_usage,
        total_cpu_usage=stats.total_cpu_usage,
        memory_usage=format_size(stats.memory_usage_bytes),
        total_memory=format_size(stats.total_memory_bytes),
        available_memory=format_size(stats.available_memory_bytes),
        run_time=stats.run_time_us,
        start_time=stats.start_time_us,
        read_bytes=format_size(stats.read_bytes),
        written_bytes=format_size(stats.written_bytes),
        messages_size_bytes=format_size(stats.messages_size_bytes),
        streams_count=stats.streams_count,
        topics_count=stats.topics_count,
        partitions_count=stats.partitions_count,
        segments_count=stats.segments_count,
        messages_count=stats.messages_count,
        clients_count=stats.clients_count,
        consumer_groups_count=stats.consumer_groups_count,
        hostname=stats.hostname,
        os_name=stats.os_name,
        os_version=stats.os_version,
        kernel_version=stats.kernel_version,
        iggy_server_version=stats.server_version,
        iggy_server_semver=stats.server_semver,
        cache_metrics=caches,
        threads_count=host.threads_count,
        free_disk_space=format_size(host.free_disk_bytes),
        total_disk_space=format_size(host.total_disk_bytes),
    )


_SHAPES: Final[Mapping[type[Any], Callable[[Any], object]]] = {
    ClientDetails: _client_details,
    ClientInfo: _client,
    ClusterMetadata: _cluster,
    ConsumerGroup: _group,
    ConsumerGroupDetails: _group_details,
    ConsumerOffset: _offset,
    OptionDescription: _description,
    PersonalAccessTokenInfo: _token,
    RawPersonalAccessToken: _raw_token,
    Stats: _stats,
    Stream: _stream,
    StreamDetails: _stream_details,
    Topic: _topic,
    TopicDetails: _topic_details,
    User: _user,
    UserDetails: _user_details,
}
