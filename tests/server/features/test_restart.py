"""Restart and durability: what was there stays there, and what is deleted stays deleted.

Most tests look at one server that was filled, stopped and started again, or killed and started
again, so that the file does not start one for every sentence.
"""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from iggy_protocol import (
    NEVER_EXPIRES,
    SERVER_DEFAULT,
    UNLIMITED,
    ChangePassword,
    ConsumerIdentity,
    CreateConsumerGroup,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeleteConsumerGroup,
    DeleteStream,
    DeleteTopic,
    GetConsumerGroups,
    GetConsumerOffset,
    GetStats,
    GetStream,
    GetStreams,
    GetTopic,
    GetTopics,
    LoginUser,
    LoginWithPersonalAccessToken,
    NewMessage,
    PollingStrategy,
    StatusCode,
    TopicDetails,
    UpdateTopic,
    encode_user_headers,
)
from tests.server.features.topic_calls import SINGLE, TopicScene, make_topic
from tests.server.running import RunningServer

SECRET = "a-very-secret-passphrase"
KEY = base64.b64encode(bytes(range(32))).decode()
NEXT = PollingStrategy.next()


def counts(stats):
    return (
        stats.streams_count,
        stats.topics_count,
        stats.partitions_count,
        stats.segments_count,
        stats.messages_count,
        stats.messages_size_bytes,
        stats.consumer_groups_count,
    )


@pytest.mark.parametrize("cached", ["all", "open_segment", "none"])
def test_everything_when_restarted_then_it_is_as_before_and_grows_on(start_server, cached):
    settings = {
        "IGGY_SYSTEM_SEGMENT_SIZE": "1 KiB",
        "IGGY_SYSTEM_SEGMENT_CACHE_INDEXES": cached,
    }
    server = start_server(settings=settings)
    client = server.login()
    topics = [make_topic(client, partitions=2) for _ in range(2)]
    for topic in topics:
        topic.make_group()
        for number in range(30):
            topic.send(f"{number:0>50}", partition=number % 2)
        topic.store(3)
    before = counts(client.ask(GetStats()))
    streams = client.ask(GetStreams())

    server.restart()

    client = server.login()
    assert counts(client.ask(GetStats())) == before
    assert client.ask(GetStreams()) == streams
    for topic in (topic.seen_by(client) for topic in topics):
        assert topic.offsets() == list(range(15))
        assert topic.offsets(NEXT, count=2) == [4, 5]
        for number in range(30):
            topic.send(f"{number:0>50}", partition=number % 2)
        assert topic.offsets(partition=1) == list(range(30))
    assert counts(client.ask(GetStats()))[4] == 2 * before[4]


@dataclass(frozen=True, slots=True)
class Past:
    """What was made before the restart, as a client of the present sees it."""

    server: RunningServer
    single: TopicScene
    ahead: TopicScene
    busy: TopicScene
    defaults: TopicScene
    defaults_before: TopicDetails
    offsets: TopicScene
    token: str


def fill_the_past(server):
    """Make one scene for each of the tests below, none of which another one touches."""
    client = server.login()
    for name in ("a", "b", "c"):
        client.ask(CreateStream(name))
        client.ask(CreateTopic("a", name, 1))
        client.ask(CreateConsumerGroup("a", "a", name))
    client.ask(DeleteTopic("a", "b"))
    client.ask(DeleteConsumerGroup("a", "a", "b"))
    client.ask(DeleteStream("b"))
    assert client.ask(CreateStream("new")).id == 1
    client.ask(CreateUser("alice", SECRET))
    client.ask(CreateUser("bob", f"{SECRET}-old"))
    client.ask(ChangePassword("bob", f"{SECRET}-old", f"{SECRET}-new"))
    alice = server.login("alice", SECRET)
    defaults = make_topic(client, message_expiry_us=SERVER_DEFAULT)
    past = Past(
        server,
        single=make_topic(client),
        ahead=make_topic(client),
        busy=make_topic(client),
        defaults=defaults,
        defaults_before=defaults.details(),
        offsets=make_topic(client),
        token=alice.ask(CreatePersonalAccessToken("token")).token,
    )
    past.single.send("zero")
    past.ahead.send(*(str(number) for number in range(10)))
    past.ahead.store(9)
    past.busy.send("before")
    group = past.offsets.make_group()
    past.offsets.join()
    past.offsets.send("a", "b", "c")
    past.offsets.store(1)
    past.offsets.store(2, consumer=group)
    return past


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    """A server that was stopped and started again, with one offset file far ahead of its data."""
    with RunningServer(tmp_path_factory.mktemp("server")) as server:
        past = fill_the_past(server)
        server.stop()
        ahead = server.partition_directory(past.ahead.stream_id, past.ahead.topic_id, 0)
        (ahead / "offsets" / "consumers" / "1").write_bytes((999).to_bytes(8, "little"))
        server.start()
        yield past


def test_ids_when_middle_things_were_deleted_then_the_others_keep_theirs(past):
    client = past.server.login()

    for question in (GetTopics("a"), GetConsumerGroups("a", "a")):
        assert [(found.id, found.name) for found in client.ask(question)] == [(0, "a"), (2, "c")]


def test_ids_when_freed_and_given_again_then_they_carry_the_new_name_after_a_restart(past):
    listed = past.server.login().ask(GetStreams())

    assert [(found.id, found.name) for found in listed][:3] == [(0, "a"), (1, "new"), (2, "c")]


def test_users_when_restarted_then_they_log_in_with_their_latest_password(past):
    past.server.login("alice", SECRET)
    past.server.login("bob", f"{SECRET}-new")

    refused = past.server.connect().refusal(LoginUser("bob", f"{SECRET}-old"))

    assert refused == StatusCode.INVALID_CREDENTIALS


def test_secrets_when_used_then_none_is_on_the_disk(past):
    past.server.connect().ask(LoginWithPersonalAccessToken(past.token))

    for path in past.server.data.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert SECRET.encode() not in content, path
            assert past.token.encode() not in content, path


def test_message_when_alone_at_offset_0_then_the_next_after_a_restart_gets_1(past):
    topic = past.single.seen_by(past.server.login())

    topic.send("one")

    assert topic.offsets() == [0, 1]


def test_offset_file_when_ahead_of_the_data_then_new_messages_are_delivered(past):
    topic = past.ahead.seen_by(past.server.login())

    topic.send("new")

    assert topic.read(NEXT) == ["new"]


def test_offsets_when_producing_and_consuming_after_a_restart_then_they_have_no_gap(past):
    writer, reader = (past.busy.seen_by(past.server.login()) for _ in range(2))

    def produce():
        for number in range(200):
            writer.send(str(number))

    seen: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        producing = pool.submit(produce)
        while len(seen) < 201:
            seen += reader.offsets(NEXT, count=50, auto_commit=True)
        producing.result()

    assert seen == list(range(201))


def test_topic_when_its_settings_are_left_to_the_server_then_a_restart_keeps_the_resolved_ones(
    past,
):
    after = past.defaults.seen_by(past.server.login()).details()

    assert (after.message_expiry_us, after.max_topic_size_bytes) == (NEVER_EXPIRES, UNLIMITED)
    assert after == past.defaults_before


def test_topic_when_updated_to_server_defaults_then_they_are_resolved_and_checked(past):
    client = past.server.login()
    topic = make_topic(client, message_expiry_us=5_000_000, max_topic_size_bytes=2**31)

    client.ask(UpdateTopic(topic.stream, topic.topic, "t"))
    found = client.ask(GetTopic(topic.stream, topic.topic))
    too_small = UpdateTopic(topic.stream, topic.topic, "t", max_topic_size_bytes=1000)

    assert found is not None
    assert (found.message_expiry_us, found.max_topic_size_bytes) == (NEVER_EXPIRES, UNLIMITED)
    assert client.refusal(too_small) == StatusCode.INVALID_TOPIC_SIZE


def test_offsets_of_consumers_and_groups_when_restarted_then_they_are_kept(past):
    client = past.server.login()
    topic = past.offsets.seen_by(client)

    for consumer, offset in ((SINGLE, 1), (ConsumerIdentity.group("g"), 2)):
        found = client.ask(GetConsumerOffset(consumer, topic.stream, topic.topic, 0))
        assert found is not None
        assert found.stored_offset == offset
    assert topic.group().members_count == 0
    assert topic.details().messages_count == 3


def test_encryption_when_on_then_nothing_is_readable_on_disk_and_all_over_the_wire(start_server):
    settings = {
        "IGGY_SYSTEM_ENCRYPTION_ENABLED": "true",
        "IGGY_SYSTEM_ENCRYPTION_KEY": KEY,
    }
    server = start_server(settings=settings)
    topic = make_topic(server.login())
    headers = encode_user_headers({"secret-header": SECRET})
    batch = [NewMessage(f"{SECRET}-{n}".encode(), user_headers=headers) for n in range(5)]
    topic.send(*batch)
    assert topic.read() == [f"{SECRET}-{n}" for n in range(5)]

    server.restart()

    topic = topic.seen_by(server.login())
    polled = topic.poll().messages
    polled.verify()
    assert [message.user_headers for message in polled] == [headers] * 5
    topic.send(*batch)
    assert topic.details().messages_count == 10
    for path in server.data.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
            assert b"secret-header" not in path.read_bytes(), path


@dataclass(frozen=True, slots=True)
class Killed:
    """What was acknowledged before the kill, as a client of the present sees it."""

    produced: TopicScene
    consumed: TopicScene
    remade: TopicScene


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A server that was killed in the middle of its life, and started again."""
    with RunningServer(tmp_path_factory.mktemp("server")) as server:
        client = server.login()
        old = make_topic(client)
        old.send("old")
        client.ask(DeleteStream(old.stream))
        remade, produced, consumed = (make_topic(client) for _ in range(3))
        assert remade.stream_id == old.stream_id
        for number in range(50):
            produced.send(str(number))
        produced.store(40)
        consumed.send(*(str(number) for number in range(20)))
        consumed.poll(NEXT, auto_commit=True)
        server.kill()
        server.start()
        client = server.login()
        yield Killed(produced.seen_by(client), consumed.seen_by(client), remade.seen_by(client))


def test_messages_when_acknowledged_and_killed_then_none_is_lost_and_no_offset_reissued(killed):
    topic = killed.produced
    assert topic.read() == [str(number) for number in range(50)]

    topic.send("next")

    assert topic.offsets()[-1] == 50
    assert topic.offsets(NEXT)[0] == 41


def test_consumer_when_it_committed_before_a_kill_then_it_misses_none_of_the_new_messages(killed):
    topic = killed.consumed

    for number in range(5):
        topic.send(f"new {number}")

    assert topic.read(NEXT) == [f"new {number}" for number in range(5)]


def test_stream_when_it_was_deleted_then_no_message_comes_back_under_its_number(killed):
    assert killed.remade.read() == []
    details = killed.remade.client.ask(GetStream(killed.remade.stream))
    assert details is not None
    assert details.messages_count == 0
