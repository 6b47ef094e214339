"""The retrieval matrix: the same messages, however they were cut into batches and segments."""

from __future__ import annotations

import itertools

import pytest

from iggy_protocol import HeaderKey, HeaderValue, NewMessage, PollingStrategy, encode_user_headers
from tests.server.features.topic_calls import make_topic
from tests.server.running import RunningServer

HOUR_US = 3_600_000_000

# Sizes of segments, cached indexes, messages before a save, payload bytes, sizes of batches.
MATRIX = [
    ("512 B", "all", 32, 50, (1,)),
    ("512 B", "none", 1, 1000, (1, 2, 5)),
    ("1 KiB", "open_segment", 64, 50, (10,)),
    ("1 KiB", "none", 1024, 1000, (3, 1, 7, 64)),
    ("10 MiB", "all", 9984, 20_000, (25,)),
    ("10 MiB", "none", 64, 50, (100, 1)),
]
MESSAGES_COUNT = 200


def stored_headers(number):
    return encode_user_headers(
        {
            HeaderKey.of("number"): HeaderValue.of(number),
            HeaderKey.of("name"): HeaderValue.of(f"n{number}"),
            HeaderKey.of("even"): HeaderValue.of(number % 2 == 0),
        }
    )


def message(number, payload_bytes):
    text = f"{number:06}".encode()
    payload = text * (payload_bytes // len(text) + 1)
    return NewMessage(payload[:payload_bytes], id=number + 1, user_headers=stored_headers(number))


def in_batches(messages, sizes):
    left = iter(messages)
    for size in itertools.cycle(sizes):
        batch = list(itertools.islice(left, size))
        if not batch:
            return
        yield batch


@pytest.fixture(params=MATRIX, ids=lambda row: "-".join(str(part) for part in row), scope="module")
def filled(request, tmp_path_factory):
    """A topic with 200 messages on a server of its own, and what was sent."""
    segment_size, cached, required, payload_bytes, sizes = request.param
    settings = {
        "IGGY_SYSTEM_SEGMENT_SIZE": segment_size,
        "IGGY_SYSTEM_SEGMENT_CACHE_INDEXES": cached,
        "IGGY_SYSTEM_PARTITION_MESSAGES_REQUIRED_TO_SAVE": str(required),
    }
    messages = [message(number, payload_bytes) for number in range(MESSAGES_COUNT)]
    with RunningServer(tmp_path_factory.mktemp("server"), settings=settings) as server:
        topic = make_topic(server.login())
        for batch in in_batches(messages, sizes):
            topic.send(*batch)
        yield topic, messages
        topic.client.close()


def test_poll_when_from_offset_0_then_everything_comes(filled):
    topic, messages = filled

    assert topic.offsets(PollingStrategy.offset(0)) == list(range(MESSAGES_COUNT))
    assert topic.poll().messages.payloads() == [sent.payload for sent in messages]


def test_poll_when_from_the_middle_then_the_second_half_comes(filled):
    topic, _ = filled

    assert topic.offsets(PollingStrategy.offset(100)) == list(range(100, MESSAGES_COUNT))


def test_poll_when_beyond_the_end_then_nothing_comes(filled):
    topic, _ = filled

    assert topic.offsets(PollingStrategy.offset(MESSAGES_COUNT)) == []
    assert topic.offsets(PollingStrategy.offset(MESSAGES_COUNT + 100)) == []


def test_poll_when_a_small_count_is_asked_for_then_no_more_comes(filled):
    topic, _ = filled

    assert topic.offsets(PollingStrategy.offset(0), count=3) == [0, 1, 2]


def test_poll_when_it_spans_batches_and_segments_then_the_range_is_whole(filled):
    topic, _ = filled

    for start, count in ((1, 30), (7, 120), (63, 66), (199, 5)):
        wanted = list(range(start, min(start + count, MESSAGES_COUNT)))
        assert topic.offsets(PollingStrategy.offset(start), count=count) == wanted


def test_messages_when_polled_then_content_id_and_headers_are_those_sent(filled):
    topic, messages = filled

    polled = topic.poll(PollingStrategy.offset(0)).messages

    polled.verify()
    for found, sent in zip(polled, messages, strict=True):
        assert (found.id, found.payload, found.user_headers) == (
            sent.id,
            sent.payload,
            sent.user_headers,
        )


def test_polls_when_one_after_the_other_then_they_cover_everything_once(filled):
    topic, _ = filled

    read: list[int] = []
    while chunk := topic.offsets(PollingStrategy.offset(len(read)), count=17):
        read += chunk

    assert read == list(range(MESSAGES_COUNT))


def test_poll_when_last_then_the_newest_come(filled):
    topic, _ = filled

    assert topic.offsets(PollingStrategy.last(), count=100) == list(range(100, 200))


def timestamps(topic):
    return [found.timestamp_us for found in topic.poll(PollingStrategy.offset(0)).messages]


def test_poll_when_from_a_time_before_all_then_everything_comes(filled):
    topic, _ = filled
    before = timestamps(topic)[0] - 1

    assert topic.offsets(PollingStrategy.timestamp(before)) == list(range(MESSAGES_COUNT))
    assert topic.offsets(PollingStrategy.timestamp(before), count=9) == list(range(9))


def test_poll_when_from_the_time_of_a_batch_then_it_and_the_later_ones_come(filled):
    topic, _ = filled
    stamps = timestamps(topic)

    for offset in (0, 1, 50, 101, 199):
        first = stamps.index(stamps[offset])
        wanted = list(range(first, MESSAGES_COUNT))
        assert topic.offsets(PollingStrategy.timestamp(stamps[offset])) == wanted


def test_poll_when_from_between_two_batches_then_only_the_later_ones_come(filled):
    topic, _ = filled
    stamps = timestamps(topic)

    for offset in (0, 60, 150):
        later = [number for number, stamp in enumerate(stamps) if stamp > stamps[offset]]
        assert topic.offsets(PollingStrategy.timestamp(stamps[offset] + 1)) == later
        assert topic.offsets(PollingStrategy.timestamp(stamps[offset] + 1), count=40) == later[:40]


def test_poll_when_from_an_hour_ahead_then_nothing_comes(filled):
    topic, _ = filled

    assert topic.offsets(PollingStrategy.timestamp(timestamps(topic)[-1] + HOUR_US)) == []
