"""Messages and limits: what a message may hold, and that nothing of a refused batch is stored."""

from __future__ import annotations

import struct

import pytest

from iggy_protocol import (
    PAYLOAD_BYTES_MAX,
    USER_HEADERS_BYTES_MAX,
    HeaderKey,
    HeaderKind,
    HeaderValue,
    MessageBatch,
    NewMessage,
    Partitioning,
    SendMessages,
    StatusCode,
    decode_user_headers,
    encode_user_headers,
)
from tests.server.features.topic_calls import make_topic

TINY, MEGABYTE = 1, 1_000_000


def batch_of_any_size(payload_bytes, user_headers_bytes):
    """Make a batch of one message without asking whether it is allowed."""
    head = bytes(48) + struct.pack("<II", user_headers_bytes, payload_bytes) + bytes(8)
    return MessageBatch(head + bytes(payload_bytes + user_headers_bytes))


def refusal_of(topic, batch):
    return topic.client.refusal(
        SendMessages(topic.stream, topic.topic, Partitioning.partition(0), batch)
    )


def test_batch_when_empty_then_it_is_refused(root):
    topic = make_topic(root)

    assert refusal_of(topic, []) == StatusCode.INVALID_MESSAGES_COUNT


@pytest.mark.parametrize("payload_bytes", [TINY, MEGABYTE, 10 * MEGABYTE])
def test_payload_when_large_then_it_comes_back_whole(root, payload_bytes):
    topic = make_topic(root)
    payload = bytes(range(256)) * (payload_bytes // 256) + b"x" * (payload_bytes % 256)

    topic.send(payload)

    assert topic.poll().messages.payloads() == [payload]


def test_user_headers_when_at_their_limit_then_they_come_back_whole(root):
    topic = make_topic(root)
    headers = b"h" * USER_HEADERS_BYTES_MAX

    topic.send(NewMessage(bytes(10 * MEGABYTE), user_headers=headers))

    [message] = topic.poll().messages
    assert message.user_headers == headers
    assert len(message.payload) == 10 * MEGABYTE


def test_user_headers_when_one_byte_too_long_then_nothing_is_stored(root):
    topic = make_topic(root)

    refused = refusal_of(topic, batch_of_any_size(1, USER_HEADERS_BYTES_MAX + 1))

    assert refused == StatusCode.TOO_BIG_USER_HEADERS
    assert topic.details().messages_count == 0


def test_payload_when_one_byte_too_long_then_nothing_is_stored(root):
    topic = make_topic(root)

    refused = refusal_of(topic, batch_of_any_size(PAYLOAD_BYTES_MAX + 1, 0))

    assert refused == StatusCode.TOO_BIG_MESSAGE_PAYLOAD
    assert topic.details().messages_count == 0


def test_payload_when_at_its_limit_then_it_is_stored(root):
    topic = make_topic(root)
    batch = batch_of_any_size(PAYLOAD_BYTES_MAX, 0)

    root.ask(SendMessages(topic.stream, topic.topic, Partitioning.partition(0), batch))

    assert topic.details().size_bytes == PAYLOAD_BYTES_MAX + 64


def test_user_headers_when_of_every_kind_then_they_round_trip(root):
    topic = make_topic(root)
    headers = {
        HeaderKey.of("text"): HeaderValue.of("wörter"),
        HeaderKey.of("flag"): HeaderValue.of(True),
        HeaderKey.of("number"): HeaderValue.of(-7),
        HeaderKey.of("bytes"): HeaderValue.of(b"\0\1"),
        HeaderKey.of("float"): HeaderValue.of(0.5),
    }

    topic.send(NewMessage(b"p", user_headers=encode_user_headers(headers)))

    [message] = topic.poll().messages
    found = decode_user_headers(message.user_headers)
    assert dict(found) == headers
    assert {value.kind for value in dict(found).values()} >= {HeaderKind.STRING, HeaderKind.BOOL}


def test_message_when_it_brings_an_id_then_id_and_payload_come_back(root):
    topic = make_topic(root)

    topic.send(NewMessage(b"mine", id=2**127 + 5), NewMessage(b"yours"))

    first, second = topic.poll().messages
    assert (first.id, bytes(first.payload)) == (2**127 + 5, b"mine")
    assert second.id != 0


def test_messages_when_one_per_request_and_saved_late_then_none_is_lost(start_server):
    settings = {
        "IGGY_SYSTEM_PARTITION_ACK": "memory",
        "IGGY_SYSTEM_PARTITION_MESSAGES_REQUIRED_TO_SAVE": "100000",
        "IGGY_SYSTEM_PARTITION_SIZE_OF_MESSAGES_REQUIRED_TO_SAVE": "1 GiB",
    }
    topic = make_topic(start_server(settings=settings).login())
    payloads = [f"{number:08}".encode() for number in range(3000)]
    sends = [
        SendMessages(topic.stream, topic.topic, Partitioning.partition(0), [payload])
        for payload in payloads
    ]
    for start in range(0, len(sends), 500):
        topic.client.send(*sends[start : start + 500])
        for _ in range(500):
            topic.client.receive()

    before = topic.poll().messages.payloads()
    topic.flush()

    assert before == topic.poll().messages.payloads() == payloads
