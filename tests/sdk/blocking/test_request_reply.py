"""Request and reply without await: threads that call, handlers on threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from iggy_sdk import ClientClosedError, RemoteHandlerError
from iggy_sdk.blocking import IggyClient
from tests.sdk.request_reply.services import REPLIES, REQUESTS, url_of

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def stream(request):
    return f"s{abs(hash(request.node.name))}"


@pytest.fixture
def client(server, stream):
    with IggyClient(url_of(server)) as connected:
        connected.create_stream(stream)
        connected.create_topic(stream, REQUESTS, partitions_count=1)
        connected.create_topic(stream, REPLIES, partitions_count=1)
        yield connected


def test_calls_when_threads_make_them_then_handlers_on_threads_answer(client, stream):
    names = set()

    def shout(message):
        names.add(threading.current_thread().name)
        if message.payload == b"bad":
            raise ValueError("no such thing")
        return message.payload.upper()

    with (
        client.responder(stream, REQUESTS) as responder,
        client.request_reply(stream, REQUESTS, reply_topic=REPLIES) as calls,
        ThreadPoolExecutor() as threads,
    ):
        serving = threads.submit(responder.serve, shout, concurrency=4)
        values = [b"item-%d" % number for number in range(50)]
        replies = list(threads.map(calls.call, values))
        with pytest.raises(RemoteHandlerError, match="ValueError: no such thing"):
            calls.call(b"bad")
        reply = calls.call_message(b"last")
        responder.stop()
        serving.result()
        seen = calls.statistics(), responder.statistics()

    assert replies == [value.upper() for value in values]
    assert (reply.payload, reply.partition_id) == (b"LAST", calls.reply_partition)
    assert (seen[0].replies, seen[1].replies) == (52, 52)
    assert "iggy-blocking" not in names


def test_call_when_the_block_was_left_then_is_refused(client, stream):
    with client.request_reply(stream, REQUESTS, reply_topic=REPLIES) as calls:
        assert (calls.stream, calls.topic, calls.reply_topic) == (stream, REQUESTS, REPLIES)

    with pytest.raises(ClientClosedError):
        calls.call(b"tea")
