"""Large polls: bounded is what has to be read into memory for them, and not what is asked for."""

from __future__ import annotations

import base64

import pytest

from tests.server.features.topic_calls import make_topic

MESSAGES, PAYLOAD_BYTES = 5_000, 20_000
KEY = base64.b64encode(bytes(32)).decode()


def fill(topic) -> None:
    """Send all messages, in batches that everybody takes."""
    payload = bytes(PAYLOAD_BYTES)
    for _ in range(MESSAGES // 500):
        topic.send(*[payload] * 500)


def test_poll_when_it_goes_from_the_files_to_the_socket_then_brings_all_that_was_asked_for(
    start_server,
):
    topic = make_topic(start_server().login())
    fill(topic)

    polled = topic.poll(count=MESSAGES)

    assert polled.messages_count == MESSAGES
    assert [message.offset for message in polled.messages][-1] == MESSAGES - 1


@pytest.mark.parametrize("bound", [True, False])
def test_poll_when_messages_are_encrypted_then_is_cut_at_the_bound(start_server, bound):
    settings = {
        "IGGY_SYSTEM_ENCRYPTION_ENABLED": "true",
        "IGGY_SYSTEM_ENCRYPTION_KEY": KEY,
        "IGGY_LIMITS_MAX_POLL_BYTES": "1 MiB" if bound else "64 MiB",
    }
    topic = make_topic(start_server(settings=settings).login())
    topic.send(*[bytes(PAYLOAD_BYTES)] * 200)

    polled = topic.poll(count=200)

    assert polled.messages_count == ((1 << 20) // (PAYLOAD_BYTES + 64 + 28) if bound else 200)
