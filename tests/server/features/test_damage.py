"""Damage on the disk: what can be mended is mended at start, and one loss is never everybody's.

One server is filled, stopped, damaged in many places and started again; each test looks at one.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    GetConsumerOffset,
    GetStreams,
    PollingStrategy,
    StatusCode,
)
from tests.server.features.topic_calls import TopicScene, make_topic
from tests.server.running import RunningServer
from tests.server.wire_client import Refused

MESSAGES = [f"message {number}" for number in range(10)]
# Where a stored message has its offset: behind its checksum and its id.
OFFSET_FIELD = slice(24, 32)


@dataclass(frozen=True, slots=True)
class Damaged:
    """Topics that were damaged, each in its own way, and one that was not."""

    server: RunningServer
    whole: TopicScene
    garbage_at_the_end: TopicScene
    torn_write: TopicScene
    short_log: TopicScene
    empty_log: TopicScene
    no_index: TopicScene
    short_index: TopicScene
    ragged_index: TopicScene
    long_index: TopicScene
    flipped_bit: TopicScene
    empty_offset: TopicScene
    odd_offset_name: TopicScene


def directory(server, topic):
    return server.partition_directory(topic.stream_id, topic.topic_id, 0)


def log_of(server, topic):
    return directory(server, topic) / f"{0:020}.log"


def beginning_of_next_message(log):
    """Make most of the message that a server would have written next."""
    size = len(log) // len(MESSAGES)
    following = bytearray(log[-size:-1])
    following[OFFSET_FIELD] = len(MESSAGES).to_bytes(8, "little")
    return bytes(following)


def damage(server, scenes):
    """Do to the files what crashes, disks and people do."""

    def edit(name, suffix, change):
        path = log_of(server, scenes[name]).with_suffix(suffix)
        path.write_bytes(change(path.read_bytes()))

    edit("garbage_at_the_end", ".log", lambda data: data + bytes(range(100)))
    # A process that dies leaves the beginning of its last write, which no index knows.
    edit("torn_write", ".log", lambda data: data + beginning_of_next_message(data))
    edit("short_log", ".log", lambda data: data[:-5])
    edit("empty_log", ".log", lambda data: b"")
    log_of(server, scenes["no_index"]).with_suffix(".index").unlink()
    edit("short_index", ".index", lambda data: data[:48])
    edit("ragged_index", ".index", lambda data: data[:-7])
    edit("long_index", ".index", lambda data: data + data[-16:])
    edit("flipped_bit", ".log", lambda data: data[:70] + bytes([data[70] ^ 1]) + data[71:])
    consumers = directory(server, scenes["empty_offset"]) / "offsets" / "consumers"
    (consumers / "1").write_bytes(b"")
    strange = directory(server, scenes["odd_offset_name"]) / "offsets" / "consumers"
    (strange / "not-a-number").write_bytes(bytes(8))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    settings = {"IGGY_SYSTEM_PARTITION_VALIDATE_CHECKSUM": "true"}
    with RunningServer(tmp_path_factory.mktemp("server"), settings=settings) as server:
        client = server.login()
        names = [name for name in Damaged.__slots__ if name != "server"]
        scenes = {name: make_topic(client) for name in names}
        for topic in scenes.values():
            for text in MESSAGES:
                topic.send(text)
            topic.store(4)
            topic.store(5, consumer=ConsumerIdentity.single(2))
        server.stop()
        damage(server, scenes)
        server.start()
        client = server.login()
        yield Damaged(server, **{name: topic.seen_by(client) for name, topic in scenes.items()})


def assert_whole(topic, messages=MESSAGES, *, skipped=0):
    """Everything is there, and the partition can be written and read as ever."""
    assert topic.read() == messages
    before = topic.poll().current_offset
    topic.send("new", "newer")
    polled = topic.poll(PollingStrategy.offset(before + 1))
    polled.messages.verify()
    assert polled.messages.payloads() == [b"new", b"newer"]
    first = before + 1 + skipped
    assert [message.offset for message in polled.messages] == [first, first + 1]
    assert len(topic.read()) == len(messages) + 2


def test_neighbours_when_others_are_damaged_then_they_are_served(damaged):
    assert_whole(damaged.whole)


def test_log_when_garbage_follows_its_records_then_it_is_cut_off(damaged):
    """Its 100 bytes may have been a message, whose offset is not given again."""
    assert_whole(damaged.garbage_at_the_end, skipped=1)


def test_log_when_its_last_write_is_torn_then_it_is_cut_off(damaged):
    assert_whole(damaged.torn_write)


@pytest.mark.parametrize("name", ["short_log", "empty_log"])
def test_log_when_shorter_than_it_was_at_the_stop_then_the_partition_is_set_aside(damaged, name):
    """Its messages were acknowledged, and their offsets are not given again."""
    with pytest.raises(Refused) as refusal:
        getattr(damaged, name).poll()

    assert refusal.value.status == StatusCode.CANNOT_READ_PARTITIONS


@pytest.mark.parametrize("name", ["no_index", "short_index", "ragged_index", "long_index"])
def test_index_when_missing_or_wrong_then_it_is_made_again_from_the_log(damaged, name):
    topic = getattr(damaged, name)

    assert_whole(topic)

    topic.flush()
    index = log_of(damaged.server, topic).with_suffix(".index").read_bytes()
    assert len(index) == 16 * 12
    ends = [int.from_bytes(index[at + 4 : at + 8], "little") for at in range(0, len(index), 16)]
    assert ends[-1] == log_of(damaged.server, topic).stat().st_size


def test_partition_when_a_record_in_its_middle_is_damaged_then_it_alone_is_set_aside(damaged):
    with pytest.raises(Refused):
        damaged.flipped_bit.poll()
    with pytest.raises(Refused):
        damaged.flipped_bit.send("new")

    assert damaged.whole.read()[:10] == MESSAGES


def test_offset_file_when_emptied_after_an_orderly_stop_then_put_right(damaged):
    topic = damaged.empty_offset

    def stored(consumer):
        question = GetConsumerOffset(consumer, topic.stream, topic.topic, 0)
        return topic.client.ask(question)

    assert stored(ConsumerIdentity.single(1)).stored_offset == 4
    assert stored(ConsumerIdentity.single(2)).stored_offset == 5


def test_offset_file_when_its_name_is_no_number_then_the_others_are_read(damaged):
    topic = damaged.odd_offset_name

    found = topic.client.ask(
        GetConsumerOffset(ConsumerIdentity.single(1), topic.stream, topic.topic, 0)
    )

    assert found is not None
    assert found.stored_offset == 4


@pytest.mark.parametrize("cut_bytes", [1, 5])
def test_metadata_log_when_torn_then_only_the_last_change_is_lost(start_server, cut_bytes):
    server = start_server()
    client = server.login()
    for name in ("a", "b", "c"):
        client.ask(CreateStream(name))
    server.stop()
    log = server.data / "state" / "metadata.log"
    log.write_bytes(log.read_bytes()[:-cut_bytes])

    server.start()

    client = server.login()
    assert [stream.name for stream in client.ask(GetStreams())] == ["a", "b"]
    assert client.ask(CreateStream("d")).id == 2
