"""Basics: the first things anybody does with a server."""

from __future__ import annotations

import pytest

from iggy_protocol import (
    NEVER_EXPIRES,
    SERVER_DEFAULT,
    UNLIMITED,
    CompressionAlgorithm,
    CreateConsumerGroup,
    CreatePartitions,
    CreateStream,
    CreateTopic,
    DeleteConsumerGroup,
    DeleteConsumerOffset,
    DeletePartitions,
    DeleteSegments,
    DeleteStream,
    DeleteTopic,
    GetClients,
    GetConsumerGroup,
    GetConsumerGroups,
    GetConsumerOffset,
    GetMe,
    GetStats,
    GetStream,
    GetStreams,
    GetTopic,
    GetTopics,
    Ping,
    PollingStrategy,
    PurgeStream,
    PurgeTopic,
    StatusCode,
    UpdateStream,
    UpdateTopic,
)
from tests.server.features.topic_calls import SINGLE, make_topic, unique

MESSAGES = [f"message {number}" for number in range(1337)]


@pytest.fixture
def filled(root):
    """A topic of three partitions with 1337 messages in its first."""
    topic = make_topic(root, partitions=3)
    topic.send(*MESSAGES)
    return topic


def test_ping_when_sent_without_a_login_then_it_is_answered(server):
    with server.connect() as client:
        client.ask(Ping())


def test_server_when_fresh_then_it_has_no_streams_and_the_first_gets_id_0(start_server):
    client = start_server().login()
    assert client.ask(GetStreams()) == ()

    made = client.ask(CreateStream("first"))
    topic = client.ask(CreateTopic("first", "topic", 1))

    assert (made.id, topic.id, topic.partitions[0].id) == (0, 0, 0)


def test_stream_when_created_then_it_is_listed_as_empty(root):
    name = unique("stream")
    made = root.ask(CreateStream(name))

    listed = {stream.name: stream for stream in root.ask(GetStreams())}[name]

    assert listed == made
    assert (listed.topics_count, listed.size_bytes, listed.messages_count) == (0, 0, 0)


def test_stream_when_asked_for_by_id_and_by_name_then_it_is_the_same(root):
    made = root.ask(CreateStream(unique("stream")))

    assert root.ask(GetStream(made.id)) == root.ask(GetStream(made.name))


def test_stream_when_created_twice_then_the_second_is_refused(root):
    name = unique("stream")
    root.ask(CreateStream(name))

    assert root.refusal(CreateStream(name)) == StatusCode.STREAM_NAME_ALREADY_EXISTS


def test_topic_when_created_with_partitions_then_it_reports_them(root):
    stream = root.ask(CreateStream(unique("stream"))).name
    made = root.ask(CreateTopic(stream, "t", 3))

    [listed] = root.ask(GetTopics(stream))

    assert made.partitions_count == listed.partitions_count == 3
    assert listed.compression is CompressionAlgorithm.NONE
    assert listed.replication_factor == 1


def test_topic_when_it_never_expires_and_size_is_left_to_the_server_then_both_are_echoed(root):
    topic = make_topic(root, message_expiry_us=NEVER_EXPIRES, max_topic_size_bytes=SERVER_DEFAULT)

    details = topic.details()

    assert details.message_expiry_us == NEVER_EXPIRES
    assert details.max_topic_size_bytes == UNLIMITED


def test_partitions_when_fresh_then_each_has_one_empty_segment(root):
    partitions = make_topic(root, partitions=3).details().partitions

    assert [partition.id for partition in partitions] == [0, 1, 2]
    for partition in partitions:
        assert partition.segments_count == 1
        assert (partition.size_bytes, partition.current_offset, partition.messages_count) == (
            0,
            0,
            0,
        )


def test_topic_when_created_twice_then_the_second_is_refused_and_the_stream_lists_one(root):
    topic = make_topic(root)

    assert root.refusal(CreateTopic(topic.stream, "t", 1)) == StatusCode.TOPIC_NAME_ALREADY_EXISTS
    details = root.ask(GetStream(topic.stream))
    assert details is not None
    assert [found.name for found in details.topics] == ["t"]


def test_messages_when_sent_in_one_batch_then_they_come_back_in_order(filled):
    polled = filled.poll(PollingStrategy.offset(0), count=1337)

    assert [message.offset for message in polled.messages] == list(range(1337))
    assert [payload.decode() for payload in polled.messages.payloads()] == MESSAGES
    assert all(message.timestamp_us > 0 for message in polled.messages)


def test_messages_when_read_in_ten_smaller_polls_then_they_are_the_same(filled):
    step = len(MESSAGES) // 10 + 1

    read = [
        payload
        for start in range(0, len(MESSAGES), step)
        for payload in filled.read(PollingStrategy.offset(start), count=step)
    ]

    assert read == MESSAGES


def test_topic_when_filled_then_its_size_counts_headers_and_payloads(filled):
    details = filled.details()

    assert details.size_bytes == 100_502
    assert details.messages_count == 1337
    assert details.partitions[0].current_offset == 1336


def test_partitions_when_another_one_is_filled_then_they_stay_empty(filled):
    assert filled.read(partition=1) == []
    assert [found.messages_count for found in filled.details().partitions] == [1337, 0, 0]


def test_offset_when_stored_and_deleted_then_it_is_there_and_gone(filled):
    question = GetConsumerOffset(SINGLE, filled.stream, filled.topic, 0)
    assert filled.client.ask(question) is None

    filled.store(10)
    found = filled.client.ask(question)
    assert (found.partition_id, found.current_offset, found.stored_offset) == (0, 1336, 10)

    filled.client.ask(DeleteConsumerOffset(SINGLE, filled.stream, filled.topic, 0))
    assert filled.client.ask(question) is None


def test_poll_when_next_with_auto_commit_then_it_goes_on_behind_the_stored_offset(filled):
    filled.store(10)

    offsets = filled.offsets(PollingStrategy.next(), count=10, auto_commit=True)

    assert offsets == list(range(11, 21))
    found = filled.client.ask(GetConsumerOffset(SINGLE, filled.stream, filled.topic, 0))
    assert found.stored_offset == 20


def test_group_when_created_then_it_is_listed_without_members(root):
    topic = make_topic(root, partitions=3)
    assert root.ask(GetConsumerGroups(topic.stream, topic.topic)) == ()

    made = root.ask(CreateConsumerGroup(topic.stream, topic.topic, "g"))

    assert (made.id, made.name) == (0, "g")
    [listed] = root.ask(GetConsumerGroups(topic.stream, topic.topic))
    assert (listed.partitions_count, listed.members_count) == (3, 0)


def test_group_when_joined_and_left_then_the_member_comes_and_goes(root):
    topic = make_topic(root, partitions=3)
    topic.make_group()

    topic.join()
    assert topic.shares() == [[0, 1, 2]]
    [membership] = root.ask(GetMe()).consumer_groups
    assert (membership.stream_id, membership.topic_id, membership.group_id) == (
        topic.stream_id,
        topic.topic_id,
        0,
    )

    topic.leave()
    assert topic.group().members_count == 0
    assert root.ask(GetMe()).consumer_groups == ()


def test_stats_when_things_were_made_then_they_are_counted(start_server):
    client = start_server().login()
    topic = make_topic(client, partitions=3)
    topic.send(*MESSAGES)
    topic.make_group()

    stats = client.ask(GetStats())

    assert stats.hostname
    assert stats.os_name
    assert stats.kernel_version
    assert (stats.streams_count, stats.topics_count) == (1, 1)
    assert (stats.partitions_count, stats.segments_count) == (3, 3)
    assert (stats.messages_count, stats.messages_size_bytes) == (1337, 100_502)
    assert (stats.clients_count, stats.consumer_groups_count) == (1, 1)
    assert stats.server_version
    assert stats.server_semver == 8000


@pytest.mark.parametrize("shards", [1, 2])
def test_stats_when_asked_for_then_the_process_is_the_one_that_was_started(start_server, shards):
    server = start_server(shards=shards)

    assert server.login().ask(GetStats()).process_id == server.pid


def test_group_when_deleted_then_it_is_gone(root):
    topic = make_topic(root)
    topic.make_group()

    root.ask(DeleteConsumerGroup(topic.stream, topic.topic, "g"))

    assert root.ask(GetConsumerGroup(topic.stream, topic.topic, "g")) is None


def test_partitions_when_added_and_deleted_then_the_count_follows(root):
    topic = make_topic(root, partitions=3)

    root.ask(CreatePartitions(topic.stream, topic.topic, 3))
    assert topic.details().partitions_count == 6

    root.ask(DeletePartitions(topic.stream, topic.topic, 3))
    assert topic.details().partitions_count == 3


def test_topic_when_updated_then_everything_is_readable_under_the_new_name(root):
    topic = make_topic(root)
    gibibytes = 5 * 2**30

    root.ask(
        UpdateTopic(
            topic.stream, topic.topic, "new", CompressionAlgorithm.GZIP, 1_000_000, gibibytes, 3
        )
    )

    found = root.ask(GetTopic(topic.stream, "new"))
    assert found is not None
    assert found.message_expiry_us == 1_000_000
    assert found.compression is CompressionAlgorithm.GZIP
    assert (found.max_topic_size_bytes, found.replication_factor) == (gibibytes, 3)
    assert root.ask(GetTopic(topic.stream, topic.topic)) is None


def test_topic_when_purged_then_nothing_is_left_and_the_offset_is_0(filled):
    filled.client.ask(PurgeTopic(filled.stream, filled.topic))

    polled = filled.poll()

    assert (len(polled.messages), polled.current_offset) == (0, 0)


def test_stream_when_renamed_and_purged_then_it_is_empty_under_its_new_name(filled):
    name = unique("renamed")
    filled.client.ask(UpdateStream(filled.stream, name))

    filled.client.ask(PurgeStream(name))

    found = filled.client.ask(GetStream(name))
    assert found is not None
    assert (found.messages_count, found.size_bytes) == (0, 0)
    assert filled.client.ask(GetStream(filled.stream)) is None


def test_topics_and_streams_when_deleted_then_none_are_left(start_server):
    client = start_server().login()
    topics = [make_topic(client) for _ in range(3)]

    client.ask(DeleteTopic(topics[0].stream, topics[0].topic))
    assert client.ask(GetTopics(topics[0].stream)) == ()

    for topic in topics:
        client.ask(DeleteStream(topic.stream))
    assert client.ask(GetStreams()) == ()


def test_segments_when_more_are_deleted_than_there_are_then_one_stays(filled):
    filled.client.ask(DeleteSegments(filled.stream, filled.topic, 0, 3))

    assert filled.details().partitions[0].segments_count == 1
    assert filled.read() == MESSAGES


def test_clients_when_one_is_connected_then_one_is_listed(start_server):
    client = start_server().login()

    [listed] = client.ask(GetClients())

    assert listed.client_id == client.ask(GetMe()).client_id
    assert listed.user_id == 0
