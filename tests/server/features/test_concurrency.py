"""Concurrency: many clients at once, on two shards, see one server."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from iggy_protocol import (
    CreateConsumerGroup,
    CreatePartitions,
    CreateStream,
    CreateTopic,
    CreateUser,
    GetConsumerGroups,
    GetStream,
    GetStreams,
    GetTopic,
    GetTopics,
    GetUsers,
    PollingStrategy,
    StatusCode,
)
from tests.server.features.topic_calls import make_topic, unique
from tests.server.wire_client import Refused

SERVER_SHARDS = 2
CLIENTS = 20

DISTINCT = {
    "streams": lambda topic, name: CreateStream(f"{topic.stream}-{name}"),
    "topics": lambda topic, name: CreateTopic(topic.stream, name, 1),
    "groups": lambda topic, name: CreateConsumerGroup(topic.stream, topic.topic, name),
    "partitions": lambda topic, name: CreatePartitions(topic.stream, topic.topic, 1),
}
TAKEN = {
    "streams": StatusCode.STREAM_NAME_ALREADY_EXISTS,
    "topics": StatusCode.TOPIC_NAME_ALREADY_EXISTS,
    "groups": StatusCode.CONSUMER_GROUP_NAME_ALREADY_EXISTS,
}


@pytest.fixture(scope="module")
def clients(server):
    """Twenty connections, spread over the shards."""
    return [server.login() for _ in range(CLIENTS)]


def at_once(clients, commands):
    """Have each client ask its own command, all at the same time; success is status 0."""

    def ask(client, command):
        try:
            client.ask(command)
        except Refused as refused:
            return refused.status
        return 0

    with ThreadPoolExecutor(len(clients)) as pool:
        return list(pool.map(ask, clients, commands))


@pytest.mark.parametrize("kind", DISTINCT)
def test_creates_when_twenty_have_distinct_names_then_all_succeed(clients, kind):
    topic = make_topic(clients[0])

    statuses = at_once(clients, [DISTINCT[kind](topic, f"n{n}") for n in range(CLIENTS)])

    assert statuses == [0] * CLIENTS
    if kind == "partitions":
        assert topic.details().partitions_count == 1 + CLIENTS


@pytest.mark.parametrize("kind", TAKEN)
def test_creates_when_twenty_have_one_name_then_exactly_one_succeeds(clients, kind):
    topic = make_topic(clients[0])

    statuses = Counter(at_once(clients, [DISTINCT[kind](topic, "same")] * CLIENTS))

    assert statuses == {0: 1, TAKEN[kind]: CLIENTS - 1}


def test_users_when_twenty_are_created_at_once_then_distinct_names_win_and_one_name_wins_once(
    clients,
):
    prefix = unique("user")

    distinct = at_once(clients, [CreateUser(f"{prefix}-{n}", "secret") for n in range(CLIENTS)])
    same = Counter(at_once(clients, [CreateUser(prefix, "secret")] * CLIENTS))

    assert distinct == [0] * CLIENTS
    assert same == {0: 1, StatusCode.USER_ALREADY_EXISTS: CLIENTS - 1}


def test_clients_when_on_any_shard_then_they_see_the_same_state(clients):
    topic = make_topic(clients[0], partitions=3)
    at_once(clients, [CreateConsumerGroup(topic.stream, topic.topic, f"g{n}") for n in range(20)])
    topic.send("a", "b", partition=1)
    questions = [
        GetStreams(),
        GetStream(topic.stream),
        GetTopics(topic.stream),
        GetTopic(topic.stream, topic.topic),
        GetConsumerGroups(topic.stream, topic.topic),
        GetUsers(),
    ]

    for question in questions:
        answers = [client.ask(question) for client in clients]
        assert all(answer == answers[0] for answer in answers)


def test_consumer_when_every_send_is_saved_while_it_polls_then_it_sees_no_gap(start_server):
    settings = {
        "IGGY_SYSTEM_PARTITION_MESSAGES_REQUIRED_TO_SAVE": "1",
        "IGGY_SYSTEM_SEGMENT_SIZE": "5 KiB",
    }
    server = start_server(settings=settings, shards=2)
    topic = make_topic(server.login())
    writer = topic.seen_by(server.login())

    def produce():
        for number in range(300):
            writer.send(f"{number:0>100}")

    seen: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(produce)
        while len(seen) < 300:
            seen += topic.offsets(PollingStrategy.next(), count=7, auto_commit=True)
        future.result()

    assert seen == list(range(300))


def test_messages_when_the_saver_writes_in_the_background_then_they_stay_readable(start_server):
    settings = {
        "IGGY_SYSTEM_PARTITION_ACK": "memory",
        "IGGY_MESSAGE_SAVER_INTERVAL": "20 ms",
    }
    server = start_server(settings=settings)
    topic = make_topic(server.login())
    writer = topic.seen_by(server.login())

    def produce():
        for number in range(300):
            writer.send(str(number))

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(produce)
        length = 0
        while length < 300:
            read = topic.read()
            assert read == [str(number) for number in range(len(read))]
            assert len(read) >= length
            length = len(read)
        future.result()


def test_producers_when_eight_share_a_partition_of_tiny_segments_then_the_totals_are_exact(
    start_server,
):
    server = start_server(settings={"IGGY_SYSTEM_SEGMENT_SIZE": "512 B"}, shards=2)
    topic = make_topic(server.login())
    writers = [topic.seen_by(server.login()) for _ in range(8)]

    def produce(number):
        for index in range(50):
            writers[number].send(f"{number} {index}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(produce, range(8)))

    read = topic.read()
    assert topic.offsets() == list(range(400))
    assert topic.details().messages_count == 400
    for number in range(8):
        mine = [text for text in read if text.startswith(f"{number} ")]
        assert mine == [f"{number} {index}" for index in range(50)]
