"""Segments and retention: files of the expected size, deleted when nobody needs them any more."""

from __future__ import annotations

import pytest

from iggy_protocol import (
    NEVER_EXPIRES,
    ConsumerIdentity,
    CreateTopic,
    DeleteSegments,
    GetConsumerOffset,
    PollingStrategy,
    PurgeTopic,
    StatusCode,
)
from tests.server.features.topic_calls import SINGLE, eventually, make_topic
from tests.server.running import RunningServer

# Records of 1000 bytes, so that a segment holds seven of them: the sixth fills it, the seventh
# finds it full, and belongs to it all the same.
SERVER_SETTINGS = {
    "IGGY_SYSTEM_SEGMENT_SIZE": "5 KiB",
    "IGGY_SYSTEM_PARTITION_MESSAGES_REQUIRED_TO_SAVE": "1",
}
RECORD_BYTES = 1000
SEGMENT_MESSAGES = 7
CLEANER = {
    "IGGY_DATA_MAINTENANCE_MESSAGES_CLEANER_ENABLED": "true",
    "IGGY_DATA_MAINTENANCE_MESSAGES_INTERVAL": "100 ms",
}


def fill(topic, count, *, partition=0):
    """Send records of 1000 bytes, one by one."""
    for number in range(count):
        topic.send(f"{number:0>{RECORD_BYTES - 64}}", partition=partition)


@pytest.fixture(scope="module")
def cleaning(tmp_path_factory):
    """A server whose cleaner runs often."""
    settings = SERVER_SETTINGS | CLEANER
    with RunningServer(tmp_path_factory.mktemp("server"), settings=settings) as server:
        yield server


@pytest.fixture
def filled(root):
    """A topic with 25 records: segments that start at 0, 7, 14 and 21."""
    topic = make_topic(root)
    fill(topic, 25)
    return topic


def starts(server, topic, suffix="log", partition=0):
    """Return where the segments of a partition start, by the names of their files."""
    directory = server.partition_directory(topic.stream_id, topic.topic_id, partition)
    return sorted(int(path.stem) for path in directory.glob(f"*.{suffix}"))


def delete(topic, count):
    topic.client.ask(DeleteSegments(topic.stream, topic.topic, 0, count))


def test_segments_when_full_then_they_roll_with_files_of_exact_sizes(server, filled):
    directory = server.partition_directory(filled.stream_id, filled.topic_id, 0)
    sizes = {
        int(path.stem): (path.stat().st_size, path.with_suffix(".index").stat().st_size)
        for path in directory.glob("*.log")
    }

    assert starts(server, filled) == [0, 7, 14, 21]
    assert [sizes[start] for start in (0, 7, 14)] == [(7000, 112)] * 3
    assert sizes[21] == (4000, 64)
    assert all(len(path.stem) == 20 for path in directory.glob("*.log"))
    assert filled.details().partitions[0].segments_count == 4


def test_segments_when_deleted_one_by_one_then_the_oldest_go_first(server, filled):
    for left in ([7, 14, 21], [14, 21], [21]):
        delete(filled, 1)
        assert starts(server, filled) == left
        assert filled.offsets()[0] == left[0]


def test_active_segment_when_all_are_asked_for_then_it_stays(server, filled):
    delete(filled, 3)
    for _ in range(2):
        delete(filled, 1)

    assert starts(server, filled) == [21]
    assert filled.offsets() == [21, 22, 23, 24]


def test_segments_when_none_or_a_huge_number_is_asked_for_then_so_many_go(server, filled):
    delete(filled, 0)
    assert starts(server, filled) == [0, 7, 14, 21]

    delete(filled, 2**32 - 1)
    assert starts(server, filled) == [21]


def test_segment_when_a_consumer_is_inside_it_then_it_stays_until_the_last_message(server, filled):
    for offset in (0, 5):
        filled.store(offset)
        delete(filled, 1)
        assert starts(server, filled) == [0, 7, 14, 21]

    filled.store(6)
    delete(filled, 4)
    assert starts(server, filled) == [7, 14, 21]


def test_segment_when_a_group_is_inside_it_then_it_stays_until_the_last_message(server, filled):
    group = filled.make_group()
    filled.join()
    for offset in range(SEGMENT_MESSAGES * 2):
        filled.store(offset, consumer=group)
        delete(filled, 1)
        expected = [start for start in (0, 7, 14, 21) if start + 6 > offset or start == 21]
        assert starts(server, filled) == expected


def test_segments_when_there_are_several_consumers_then_the_slowest_decides(server, filled):
    filled.store(20, consumer=ConsumerIdentity.single(1))
    filled.store(6, consumer=ConsumerIdentity.single("slow"))

    delete(filled, 3)

    assert starts(server, filled) == [7, 14, 21]


def test_segments_when_the_place_does_not_exist_then_the_request_is_refused(filled):
    refusal = filled.client.refusal
    stream, topic = filled.stream, filled.topic

    assert refusal(DeleteSegments("none", topic, 0, 1)) == StatusCode.STREAM_ID_NOT_FOUND
    assert refusal(DeleteSegments(stream, "none", 0, 1)) == StatusCode.TOPIC_ID_NOT_FOUND
    assert refusal(DeleteSegments(stream, topic, 9, 1)) == StatusCode.PARTITION_NOT_FOUND


def test_files_when_segments_were_deleted_then_they_agree_with_polls_after_a_restart(start_server):
    server = start_server(settings=SERVER_SETTINGS)
    topic = make_topic(server.login())
    fill(topic, 25)
    delete(topic, 2)
    assert starts(server, topic) == starts(server, topic, "index") == [14, 21]

    server.restart()

    assert starts(server, topic) == starts(server, topic, "index") == [14, 21]
    assert topic.seen_by(server.login()).offsets(PollingStrategy.offset(0)) == list(range(14, 25))


def test_consumer_when_its_next_messages_were_deleted_then_it_goes_on_with_the_oldest(filled):
    filled.store(6)
    delete(filled, 1)
    filled.store(2)

    assert filled.offsets(PollingStrategy.next(), count=3) == [7, 8, 9]


def test_purge_when_offsets_are_stored_then_all_files_go_and_offsets_start_at_0(start_server):
    server = start_server(settings=SERVER_SETTINGS)
    client = server.login()
    topic = make_topic(client)
    group = topic.make_group()
    topic.join()
    fill(topic, 10)
    topic.store(3)
    topic.store(4, consumer=group)
    offsets = server.partition_directory(topic.stream_id, topic.topic_id, 0) / "offsets"

    client.ask(PurgeTopic(topic.stream, topic.topic))

    def files():
        return [path for path in offsets.glob("*/*") if path.is_file()]

    assert files() == []
    assert starts(server, topic) == [0]
    for consumer in (SINGLE, group):
        assert client.ask(GetConsumerOffset(consumer, topic.stream, topic.topic, 0)) is None
    topic.send("new")
    assert topic.offsets() == [0]

    server.restart()
    assert files() == []
    assert topic.seen_by(server.login()).read() == ["new"]


def test_purge_when_messages_are_only_in_memory_then_nothing_is_left(start_server):
    settings = {"IGGY_SYSTEM_PARTITION_ACK": "memory"}
    topic = make_topic(start_server(settings=settings).login())
    topic.send("a", "b")

    topic.client.ask(PurgeTopic(topic.stream, topic.topic))
    assert topic.read() == []

    topic.send("c")
    assert topic.poll().messages_count == 1
    topic.flush()
    assert (topic.read(), topic.offsets()) == (["c"], [0])


def test_segments_when_expired_then_the_cleaner_takes_them_and_leaves_the_active_one(cleaning):
    topic = make_topic(cleaning.login(), message_expiry_us=300_000, partitions=2)
    fill(topic, 25)
    fill(topic, 8, partition=1)

    assert eventually(lambda: starts(cleaning, topic) == [21])
    assert eventually(lambda: starts(cleaning, topic, partition=1) == [7])
    assert topic.offsets() == [21, 22, 23, 24]
    assert topic.details().partitions[0].current_offset == 24


def test_segments_when_expired_but_not_consumed_then_the_consumer_goes_on_without_a_gap(cleaning):
    topic = make_topic(cleaning.login(), message_expiry_us=200_000)
    topic.send("first")
    topic.store(0)
    fill(topic, 24)
    bystander = make_topic(topic.client, message_expiry_us=200_000)
    fill(bystander, 8)

    # When the bystander's segment has gone, the cleaner has passed by here as well.
    assert eventually(lambda: starts(cleaning, bystander) == [7])

    assert topic.offsets(PollingStrategy.next())[0] == 1


def test_topic_when_it_nears_its_size_then_the_oldest_segments_go(cleaning):
    topic = make_topic(cleaning.login(), max_topic_size_bytes=20_000)
    fill(topic, 25)

    assert eventually(lambda: topic.details().size_bytes < 18_000)
    assert topic.offsets()[-1] == 24
    assert topic.offsets()[0] in (7, 14)


def test_topic_when_both_policies_are_on_then_every_partition_keeps_its_active_segment(cleaning):
    topic = make_topic(
        cleaning.login(), partitions=3, message_expiry_us=300_000, max_topic_size_bytes=30_000
    )
    for partition in range(3):
        fill(topic, 15, partition=partition)

    assert eventually(lambda: topic.details().messages_count == 3)
    assert [found.segments_count for found in topic.details().partitions] == [1, 1, 1]
    assert [topic.offsets(partition=partition) for partition in range(3)] == [[14]] * 3


def test_topic_when_its_size_is_below_a_segment_then_it_is_refused(root, filled):
    too_small = CreateTopic(filled.stream, "small", 1, max_topic_size_bytes=5119)

    assert root.refusal(too_small) == StatusCode.INVALID_TOPIC_SIZE
    root.ask(CreateTopic(filled.stream, "large", 1, max_topic_size_bytes=5120))


def test_topic_when_it_never_expires_then_the_cleaner_leaves_it_alone(cleaning):
    kept = make_topic(cleaning.login(), message_expiry_us=NEVER_EXPIRES)
    fill(kept, 25)
    bystander = make_topic(kept.client, message_expiry_us=1)
    fill(bystander, 8)

    assert eventually(lambda: starts(cleaning, bystander) == [7])
    assert starts(cleaning, kept) == [0, 7, 14, 21]
