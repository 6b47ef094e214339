"""Consumer offsets: what can be stored, and what the partition's own offset says."""

from __future__ import annotations

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    DeleteConsumerOffset,
    DeleteSegments,
    GetConsumerOffset,
    PollingStrategy,
    StatusCode,
    StoreConsumerOffset,
)
from tests.server.features.topic_calls import SINGLE, make_topic

SERVER_SETTINGS = {"IGGY_SYSTEM_SEGMENT_SIZE": "512 B"}


@pytest.fixture(params=["consumer", "named consumer", "group"])
def consumer(request):
    return {
        "consumer": SINGLE,
        "named consumer": ConsumerIdentity.single("somebody"),
        "group": ConsumerIdentity.group("g"),
    }[request.param]


@pytest.fixture
def topic(root, consumer):
    """An empty topic that the consumer may commit to."""
    topic = make_topic(root)
    topic.make_group()
    topic.join()
    return topic


def store(topic, consumer, offset):
    return StoreConsumerOffset(consumer, topic.stream, topic.topic, offset, 0)


def test_offset_when_the_partition_is_empty_then_none_can_be_stored(topic, consumer):
    for offset in (0, 1):
        assert topic.client.refusal(store(topic, consumer, offset)) == StatusCode.INVALID_OFFSET


def test_offset_when_up_to_the_current_one_then_it_is_stored(topic, consumer):
    topic.send("a", "b", "c")

    for offset in (1, 2, 0):
        topic.store(offset, consumer=consumer)
        found = topic.client.ask(GetConsumerOffset(consumer, topic.stream, topic.topic, 0))
        assert (found.current_offset, found.stored_offset) == (2, offset)


def test_offset_when_beyond_the_current_one_then_it_is_refused(topic, consumer):
    topic.send("a", "b", "c")

    assert topic.client.refusal(store(topic, consumer, 3)) == StatusCode.INVALID_OFFSET


def test_offset_when_deleted_twice_then_the_second_is_refused(topic, consumer):
    topic.send("a")
    topic.store(0, consumer=consumer)
    delete = DeleteConsumerOffset(consumer, topic.stream, topic.topic, 0)

    topic.client.ask(delete)

    assert topic.client.refusal(delete) == StatusCode.CONSUMER_OFFSET_NOT_FOUND


def test_current_offset_when_segments_were_deleted_then_it_stays(root):
    topic = make_topic(root)
    for number in range(20):
        topic.send(f"{number:0>400}")

    root.ask(DeleteSegments(topic.stream, topic.topic, 0, 5))

    polled = topic.poll(PollingStrategy.offset(0))
    assert polled.current_offset == 19
    assert 0 < len(polled.messages) < 20
    assert topic.details().partitions[0].current_offset == 19


def test_offset_when_of_a_consumer_and_of_a_group_with_one_number_then_they_are_apart(root):
    topic = make_topic(root)
    topic.make_group()
    topic.join()
    topic.send("a", "b")

    topic.store(1, consumer=ConsumerIdentity.group(0))

    assert (
        root.ask(GetConsumerOffset(ConsumerIdentity.single(0), topic.stream, topic.topic, 0))
        is None
    )
