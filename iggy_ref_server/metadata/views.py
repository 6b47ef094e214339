"""Builds replies from metadata records, partition counters and group members.

Counters and members come from functions that are passed in, and what differs from client to client
from a viewer. Everything is sorted by id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from iggy_protocol import (
    CLASSIC,
    ConsumerGroup,
    ConsumerGroupDetails,
    ConsumerGroupMember,
    Dialect,
    Partition,
    PartitionContext,
    PersonalAccessTokenInfo,
    Stream,
    StreamDetails,
    Topic,
    TopicDetails,
    User,
    UserDetails,
    record,
)
from iggy_ref_server.metadata.options import (
    NODES_COUNT,
    report_stream_options,
    report_topic_options,
    report_user_options,
)
from iggy_ref_server.metadata.state import MetadataSettings

if TYPE_CHECKING:
    from iggy_ref_server.metadata.state import (
        GroupRecord,
        Metadata,
        PartitionRecord,
        StreamRecord,
        TopicRecord,
        UserRecord,
    )


D = TypeVar("D")


class SupportsPartitionStatistics(Protocol):
    """What a partition says of itself."""

    @property
    def segments_count(self) -> int:
        """How many files its messages are in."""

    @property
    def size_bytes(self) -> int:
        """How much its messages take."""

    @property
    def messages_count(self) -> int:
        """How many messages it holds."""

    @property
    def current_offset(self) -> int:
        """The offset of the last message, 0 where there was none."""


@record
class PartitionCounters:
    """Counters as plain numbers."""

    segments_count: int = 0
    size_bytes: int = 0
    messages_count: int = 0
    current_offset: int = 0


@record
class Viewer:
    """What a reply depends on beside the metadata.

    Attributes:
        dialect: what the client speaks.
        settings: the settings of the server.
        position: the position of the metadata.
    """

    dialect: Dialect = CLASSIC
    settings: MetadataSettings = MetadataSettings()
    position: int = 0


CLASSIC_VIEWER: Final = Viewer()
"""A client that knows neither options nor positions."""

# The replica id of the only node.
REPLICAS: Final = (0,)


@record
class ServerTotals:
    """How much there is of everything on the server."""

    streams_count: int
    topics_count: int
    partitions_count: int
    segments_count: int
    messages_count: int
    messages_size_bytes: int
    consumer_groups_count: int


# Asked with the ids of a stream, a topic and a partition, or of a stream, a topic and a group.
StatisticsLookup = Callable[[int, int, int], SupportsPartitionStatistics | None]
MembersLookup = Callable[[int, int, int], Sequence[ConsumerGroupMember]]

_UNKNOWN = PartitionCounters()


def no_statistics(stream_id: int, topic_id: int, partition_id: int) -> None:
    """Know nothing of any partition, as in the answer to a creation."""


def no_members(stream_id: int, topic_id: int, group_id: int) -> tuple[ConsumerGroupMember, ...]:
    """Know of no member, as in the answer to a creation."""
    return ()


def _with_details(details: type[D], summary: Any, **more: Any) -> D:
    known = {entry.name: getattr(summary, entry.name) for entry in fields(summary)}
    return details(**known, **more)


def _partition(
    topic: TopicRecord,
    partition: PartitionRecord,
    statistics: StatisticsLookup,
    viewer: Viewer = CLASSIC_VIEWER,
) -> Partition:
    counters = statistics(topic.stream_id, topic.id, partition.id) or _UNKNOWN
    told: dict[str, Any] = {}
    if viewer.dialect.is_vsr:
        context = PartitionContext(partition.incarnation, metadata_position=viewer.position)
        told = {"context": context, "replicas": REPLICAS, "in_sync_replicas": REPLICAS}
    return Partition(
        id=partition.id,
        created_at_us=partition.created_at_us,
        segments_count=counters.segments_count,
        current_offset=counters.current_offset,
        size_bytes=counters.size_bytes,
        messages_count=counters.messages_count,
        **told,
    )


def _partitions(
    topic: TopicRecord, statistics: StatisticsLookup, viewer: Viewer = CLASSIC_VIEWER
) -> tuple[Partition, ...]:
    return tuple(_partition(topic, partition, statistics, viewer) for partition in topic.partitions)


def _topic(topic: TopicRecord, partitions: Sequence[Partition], viewer: Viewer) -> Topic:
    options = report_topic_options(topic, viewer.dialect, viewer.settings)
    return Topic(
        id=topic.id,
        created_at_us=topic.created_at_us,
        partitions_count=len(partitions),
        message_expiry_us=topic.message_expiry_us,
        compression=topic.compression,
        max_topic_size_bytes=topic.max_size_bytes,
        # Classic clients are told the label; to others the number is that of the copies.
        replication_factor=NODES_COUNT if viewer.dialect.is_vsr else topic.replication_factor,
        size_bytes=sum(partition.size_bytes for partition in partitions),
        messages_count=sum(partition.messages_count for partition in partitions),
        name=topic.name,
        options=options.explicit,
        derived_options=options.derived,
    )


def view_topics(
    stream: StreamRecord, statistics: StatisticsLookup, viewer: Viewer = CLASSIC_VIEWER
) -> tuple[Topic, ...]:
    """Show the topics of a stream."""
    return tuple(_topic(topic, _partitions(topic, statistics), viewer) for topic in stream.topics)


def view_topic_details(
    topic: TopicRecord, statistics: StatisticsLookup, viewer: Viewer = CLASSIC_VIEWER
) -> TopicDetails:
    """Show a topic with its partitions."""
    partitions = _partitions(topic, statistics, viewer)
    return _with_details(TopicDetails, _topic(topic, partitions, viewer), partitions=partitions)


def _stream(stream: StreamRecord, topics: Sequence[Topic], viewer: Viewer) -> Stream:
    options = report_stream_options(stream, viewer.dialect, viewer.settings)
    return Stream(
        id=stream.id,
        created_at_us=stream.created_at_us,
        topics_count=len(topics),
        size_bytes=sum(topic.size_bytes for topic in topics),
        messages_count=sum(topic.messages_count for topic in topics),
        name=stream.name,
        options=options.explicit,
        derived_options=options.derived,
    )


def view_stream(
    stream: StreamRecord, statistics: StatisticsLookup, viewer: Viewer = CLASSIC_VIEWER
) -> Stream:
    """Show a stream."""
    # The topics are only counted, so their options do not matter.
    return _stream(stream, view_topics(stream, statistics), viewer)


def view_streams(
    metadata: Metadata, statistics: StatisticsLookup, viewer: Viewer = CLASSIC_VIEWER
) -> tuple[Stream, ...]:
    """Show all streams."""
    return tuple(view_stream(stream, statistics, viewer) for stream in metadata.streams)


def view_stream_details(
    stream: StreamRecord, statistics: StatisticsLookup, viewer: Viewer = CLASSIC_VIEWER
) -> StreamDetails:
    """Show a stream with its topics."""
    topics = view_topics(stream, statistics, viewer)
    return _with_details(StreamDetails, _stream(stream, topics, viewer), topics=topics)


def view_totals(metadata: Metadata, statistics: StatisticsLookup) -> ServerTotals:
    """Count everything."""
    topics = [topic for stream in metadata.streams.by_id.values() for topic in stream.topics]
    partitions = [entry for topic in topics for entry in _partitions(topic, statistics)]
    return ServerTotals(
        streams_count=len(metadata.streams),
        topics_count=len(topics),
        partitions_count=len(partitions),
        segments_count=sum(partition.segments_count for partition in partitions),
        messages_count=sum(partition.messages_count for partition in partitions),
        messages_size_bytes=sum(partition.size_bytes for partition in partitions),
        consumer_groups_count=sum(len(topic.groups) for topic in topics),
    )


def _group(topic: TopicRecord, group: GroupRecord, members_count: int) -> ConsumerGroup:
    return ConsumerGroup(
        id=group.id,
        partitions_count=len(topic.partitions),
        members_count=members_count,
        name=group.name,
    )


def view_group(topic: TopicRecord, group: GroupRecord, members: MembersLookup) -> ConsumerGroup:
    """Show a consumer group of a topic."""
    return _group(topic, group, len(members(topic.stream_id, topic.id, group.id)))


def view_groups(topic: TopicRecord, members: MembersLookup) -> tuple[ConsumerGroup, ...]:
    """Show the consumer groups of a topic."""
    return tuple(view_group(topic, group, members) for group in topic.groups)


def view_group_details(
    topic: TopicRecord, group: GroupRecord, members: MembersLookup
) -> ConsumerGroupDetails:
    """Show a consumer group with its members, in the order in which they are given."""
    present = tuple(members(topic.stream_id, topic.id, group.id))
    summary = _group(topic, group, len(present))
    return _with_details(ConsumerGroupDetails, summary, members=present)


def _user(user: UserRecord, viewer: Viewer) -> User:
    options = report_user_options(user, viewer.dialect)
    return User(
        id=user.id,
        created_at_us=user.created_at_us,
        status=user.status,
        username=user.username,
        options=options.explicit,
        derived_options=options.derived,
    )


def view_users(metadata: Metadata, viewer: Viewer = CLASSIC_VIEWER) -> tuple[User, ...]:
    """Show all users."""
    return tuple(_user(user, viewer) for user in metadata.users)


def view_user_details(user: UserRecord, viewer: Viewer = CLASSIC_VIEWER) -> UserDetails:
    """Show a user with its permissions."""
    return _with_details(UserDetails, _user(user, viewer), permissions=user.permissions)


def view_tokens(metadata: Metadata, user_id: int) -> tuple[PersonalAccessTokenInfo, ...]:
    """Show the tokens of a user, expired ones included, in the order in which they were made."""
    return tuple(
        PersonalAccessTokenInfo(token.name, token.expires_at_us)
        for token in metadata.tokens.of_user(user_id).values()
    )
