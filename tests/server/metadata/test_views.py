"""Replies made of metadata, counters and memberships."""

from __future__ import annotations

from iggy_protocol import (
    CommandCode,
    ConsumerGroup,
    ConsumerGroupDetails,
    ConsumerGroupMember,
    CreateConsumerGroup,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeleteStream,
    PersonalAccessTokenInfo,
    UserStatus,
    encode_reply,
)
from iggy_ref_server.metadata.views import (
    PartitionCounters,
    ServerTotals,
    no_members,
    no_statistics,
    view_group,
    view_group_details,
    view_groups,
    view_stream,
    view_stream_details,
    view_streams,
    view_tokens,
    view_topic_details,
    view_topics,
    view_totals,
    view_user_details,
    view_users,
)
from tests.server.metadata.metadata_calls import NOW_US, after, with_root

METADATA = after(
    with_root(),
    CreateStream("gone"),
    CreateStream("s"),
    DeleteStream("gone"),
    CreateTopic("s", "t", partitions_count=2),
    CreateTopic("s", "u", partitions_count=1),
    CreateConsumerGroup("s", "t", "g"),
    CreateConsumerGroup("s", "t", "h"),
    CreateStream("late"),
    CreateUser("bob", "secret", UserStatus.INACTIVE),
    CreatePersonalAccessToken("tok"),
    CreatePersonalAccessToken("short", 5),
)
STREAM = METADATA.require_stream("s")
TOPIC = METADATA.require_topic("s", "t")


def statistics(stream_id: int, topic_id: int, partition_id: int) -> PartitionCounters | None:
    """Know of the partitions of stream 1, but for the second of topic 0."""
    return {
        (1, 0, 0): PartitionCounters(2, 100, 10, 12),
        (1, 1, 0): PartitionCounters(1, 20, 3, 2),
    }.get((stream_id, topic_id, partition_id))


def members(stream_id: int, topic_id: int, group_id: int) -> list[ConsumerGroupMember]:
    """Know of two members of the first group."""
    if (stream_id, topic_id, group_id) == (1, 0, 0):
        return [ConsumerGroupMember(1, (1,)), ConsumerGroupMember(0, (0,))]
    return []


def test_topic_details_when_shown_then_sum_up_their_partitions():
    details = view_topic_details(TOPIC, statistics)

    assert (details.size_bytes, details.messages_count, details.partitions_count) == (100, 10, 2)
    assert [
        (entry.id, entry.segments_count, entry.current_offset, entry.size_bytes)
        for entry in details.partitions
    ] == [(0, 2, 12, 100), (1, 0, 0, 0)]


def test_stream_details_when_shown_then_sum_up_their_topics():
    details = view_stream_details(STREAM, statistics)

    assert (details.topics_count, details.size_bytes, details.messages_count) == (2, 120, 13)
    assert [(topic.id, topic.name, topic.size_bytes) for topic in details.topics] == [
        (0, "t", 100),
        (1, "u", 20),
    ]
    assert details.topics == view_topics(STREAM, statistics)


def test_streams_when_shown_then_ascend_by_id():
    streams = view_streams(METADATA, statistics)

    assert [(stream.id, stream.name, stream.messages_count) for stream in streams] == [
        (0, "late", 0),
        (1, "s", 13),
    ]
    assert streams[1] == view_stream(STREAM, statistics)


def test_totals_when_counted_then_cover_everything():
    assert view_totals(METADATA, statistics) == ServerTotals(
        streams_count=2,
        topics_count=2,
        partitions_count=3,
        segments_count=3,
        messages_count=13,
        messages_size_bytes=120,
        consumer_groups_count=2,
    )


def test_creation_when_answered_then_all_counters_are_zero():
    details = view_topic_details(TOPIC, no_statistics)

    assert {entry.segments_count for entry in details.partitions} == {0}
    assert view_group(TOPIC, TOPIC.require_group("g"), no_members) == ConsumerGroup(0, 2, 0, "g")


def test_groups_when_shown_then_count_their_members_and_keep_their_order():
    assert view_groups(TOPIC, members) == (
        ConsumerGroup(0, 2, 2, "g"),
        ConsumerGroup(1, 2, 0, "h"),
    )
    assert view_group_details(TOPIC, TOPIC.require_group("g"), members) == ConsumerGroupDetails(
        0, 2, 2, "g", (ConsumerGroupMember(1, (1,)), ConsumerGroupMember(0, (0,)))
    )


def test_users_when_shown_then_ascend_by_id_and_hide_their_passwords():
    users = view_users(METADATA)
    details = view_user_details(METADATA.require_user("bob"))

    assert [(user.id, user.username, user.status) for user in users] == [
        (0, "iggy", UserStatus.ACTIVE),
        (1, "bob", UserStatus.INACTIVE),
    ]
    assert details.permissions is None
    assert "secret" not in repr(METADATA)


def test_tokens_when_shown_then_are_those_of_the_user():
    assert view_tokens(METADATA, 0) == (
        PersonalAccessTokenInfo("tok", None),
        PersonalAccessTokenInfo("short", NOW_US + 5),
    )
    assert view_tokens(METADATA, 1) == ()


def test_views_when_encoded_then_fit_the_wire():
    group = TOPIC.require_group("g")
    replies = {
        CommandCode.GET_STREAMS: view_streams(METADATA, statistics),
        CommandCode.GET_STREAM: view_stream_details(STREAM, statistics),
        CommandCode.CREATE_STREAM: view_stream(STREAM, no_statistics),
        CommandCode.GET_TOPICS: view_topics(STREAM, statistics),
        CommandCode.GET_TOPIC: view_topic_details(TOPIC, statistics),
        CommandCode.GET_CONSUMER_GROUPS: view_groups(TOPIC, members),
        CommandCode.GET_CONSUMER_GROUP: view_group_details(TOPIC, group, members),
        CommandCode.GET_USERS: view_users(METADATA),
        CommandCode.GET_USER: view_user_details(METADATA.require_user(0)),
        CommandCode.GET_PERSONAL_ACCESS_TOKENS: view_tokens(METADATA, 0),
    }

    for code, reply in replies.items():
        assert b"".join(encode_reply(code, reply)), code
