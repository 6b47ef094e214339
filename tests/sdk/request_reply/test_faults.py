"""Request and reply when things go wrong: killed servers, repeated and hostile messages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

from iggy_sdk import (
    IggyClient,
    IggyError,
    Message,
    NotFoundError,
    Reconnect,
    RemoteHandlerError,
    ReplyTimeoutError,
    SendFailedError,
)
from iggy_sdk.testing import RunningServer
from tests.sdk.request_reply.services import (
    GENERATIONS,
    REPLIES,
    REQUESTS,
    answering,
    make_service,
    shout,
    url_of,
)

if TYPE_CHECKING:
    from iggy_sdk import Headers

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]


@pytest.fixture(params=GENERATIONS)
def protocol(request):
    return request.param


@pytest.fixture
def stream(request):
    return f"s{abs(hash(request.node.name))}"


@pytest.fixture
async def client(anyio_backend, server, protocol):
    async with IggyClient(url_of(server, protocol)) as connected:
        yield connected


def calling(client, stream, **settings):
    settings.setdefault("timeout", 60.0)
    return client.request_reply(stream, REQUESTS, reply_topic=REPLIES, **settings)


async def next_request(client, stream):
    """Read the first request, as a program in another language would."""
    async with client.consumer("by-hand", stream, REQUESTS) as consumer:
        return await anext(consumer)


def write_request(**headers):
    """Make a request of another program."""
    known = {"correlation-id": b"x", "reply-to": REPLIES, "expires-at": 2**62}
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    wanted = {**known, **given}
    return Message(b"tea", headers={name: one for name, one in wanted.items() if one is not None})


# Servers


async def test_calls_when_the_server_is_killed_in_between_then_all_are_answered(
    anyio_backend, protocol
):
    replies = {}
    with RunningServer() as server:
        async with IggyClient(server.url, protocol=protocol) as client:
            await make_service(client, "shop")
            begun = anyio.Event()

            async def note(message):
                begun.set()
                return await shout(message)

            async with answering(client, "shop", note), calling(client, "shop") as calls:

                async def call(number):
                    replies[number] = await calls.call(b"item-%d" % number)

                async with anyio.create_task_group() as tasks:
                    for number in range(50):
                        tasks.start_soon(call, number)
                    await begun.wait()
                    await anyio.to_thread.run_sync(server.kill)
                    for number in range(50, 60):
                        tasks.start_soon(call, number)
                    await anyio.to_thread.run_sync(server.start)

    assert replies == {number: b"ITEM-%d" % number for number in range(60)}


async def test_caller_when_the_reply_was_stored_while_it_was_away_then_reads_it(
    anyio_backend, protocol
):
    got = []
    with RunningServer() as server:
        async with IggyClient(server.url, protocol=protocol) as client:
            await make_service(client, "shop")
            async with calling(client, "shop") as calls, anyio.create_task_group() as tasks:

                async def call():
                    got.append(await calls.call(b"tea"))

                tasks.start_soon(call)
                request = await next_request(client, "shop")
                reply = Message(
                    b"TEA", headers={"correlation-id": request.headers["correlation-id"]}
                )
                # The caller's connections end; the answer takes another way.
                with server.faults.partition():
                    async with IggyClient(server.direct_url, protocol=protocol) as other:
                        await other.send_messages("shop", REPLIES, [reply], partition_id=0)

    assert got == [b"TEA"]


async def test_caller_when_reading_was_given_up_then_the_next_call_reads_again(anyio_backend):
    reconnect = Reconnect(retries=1, delay=0.01, max_delay=0.01)
    with RunningServer() as server:
        async with IggyClient(server.url) as client:
            await make_service(client, "shop")
            async with (
                answering(client, "shop", shout),
                IggyClient(server.url, reconnect=reconnect) as other,
                calling(other, "shop") as calls,
            ):
                assert await calls.call(b"one") == b"ONE"
                await anyio.to_thread.run_sync(server.kill)
                with pytest.raises(IggyError):
                    await calls.call(b"two")
                await anyio.to_thread.run_sync(server.start)
                assert await calls.call(b"three") == b"THREE"


# Replies


async def test_call_when_it_is_answered_twice_then_takes_the_first(client, stream):
    await make_service(client, stream)
    got = []
    async with calling(client, stream) as calls, anyio.create_task_group() as tasks:
        answered = anyio.Event()

        async def call(value):
            got.append(await calls.call(value))
            answered.set()

        tasks.start_soon(call, b"tea")
        request = await next_request(client, stream)
        headers = {"correlation-id": request.headers["correlation-id"]}
        replies = [Message(value, headers=headers) for value in (b"one", b"two", b"three")]
        await client.send_messages(stream, REPLIES, replies, partition_id=0)
        async with answering(client, stream, shout):
            await answered.wait()
            await call(b"next")
        seen = calls.statistics()

    assert got == [b"one", b"NEXT"]
    # Two of the three, and that of the responder, which has read the first request as well.
    assert (seen.replies, seen.ignored) == (2, 3)


HOSTILE: dict[str, Headers] = {
    "nothing": {},
    "a number": {"correlation-id": 7},
    "a text": {"correlation-id": "7"},
    "another length": {"correlation-id": b"7"},
    "another caller": {"correlation-id": bytes(16)},
}


async def test_call_when_the_reply_topic_has_hostile_messages_then_ignores_them(client, stream):
    await make_service(client, stream)
    async with calling(client, stream) as calls:
        messages = [Message(b"evil", headers=headers) for headers in HOSTILE.values()]
        await client.send_messages(stream, REPLIES, messages, partition_id=0)
        async with answering(client, stream, shout):
            assert await calls.call(b"tea") == b"TEA"
        seen = calls.statistics()

    assert (seen.replies, seen.malformed, seen.foreign) == (1, 1, 4)


@pytest.mark.parametrize("payload", [b"", b"plain text", b"\xff\xfe", b"[]", b'{"message": 7}'])
async def test_call_when_an_error_is_of_another_form_then_it_is_an_error_still(
    client, stream, payload
):
    await make_service(client, stream)
    async with calling(client, stream) as calls, anyio.create_task_group() as tasks:

        async def call():
            with pytest.raises(RemoteHandlerError) as caught:
                await calls.call(b"tea")
            assert caught.value.remote_type == "Oops"
            assert caught.value.remote_message == payload.decode(errors="replace")

        tasks.start_soon(call)
        request = await next_request(client, stream)
        headers = {"correlation-id": request.headers["correlation-id"], "reply-error": "Oops"}
        await client.send_messages(
            stream, REPLIES, [Message(payload, headers=headers)], partition_id=0
        )


async def test_call_when_the_request_topic_is_gone_then_the_send_fails(client, stream):
    await make_service(client, stream)
    async with calling(client, stream) as calls:
        await client.delete_topic(stream, REQUESTS)
        with pytest.raises(SendFailedError) as caught:
            await calls.call(b"tea")
        seen = calls.statistics()

    assert isinstance(caught.value.cause, NotFoundError)
    assert (seen.failed_sends, seen.in_flight) == (1, 0)


# Requests


NO_REQUESTS: dict[str, dict[str, Any]] = {
    "no headers": {"correlation_id": None, "reply_to": None, "expires_at": None},
    "no correlation id": {"correlation_id": None},
    "a number for it": {"correlation_id": 7},
    "no topic": {"reply_to": None},
    "bytes for the topic": {"reply_to": b"replies"},
    "a negative topic": {"reply_to": -1},
    "a huge topic": {"reply_to": 2**32},
    "a huge partition": {"reply_partition": 2**32},
    "a truth value for the partition": {"reply_partition": True},
    "a huge time": {"expires_at": 2**64},
    "a text for the partition": {"reply_partition": "0"},
    "a negative partition": {"reply_partition": -1},
    "a text for the time": {"expires_at": "tomorrow"},
}


async def test_responder_when_messages_are_no_requests_then_goes_on(client, stream, caplog):
    await make_service(client, stream)
    messages = [write_request(**headers) for headers in NO_REQUESTS.values()]
    await client.send_messages(stream, REQUESTS, messages, partition_id=0)
    async with answering(client, stream, shout) as responder, calling(client, stream) as calls:
        assert await calls.call(b"tea") == b"TEA"
        seen = responder.statistics()

    assert (seen.requests, seen.malformed) == (1, len(NO_REQUESTS))
    assert caplog.text.count("is no request that may be answered") == 1


@pytest.mark.parametrize(
    "headers", [{"reply_to": "nowhere"}, {"reply_partition": 99}], ids=["topic", "partition"]
)
async def test_responder_when_a_reply_has_no_place_then_goes_on(client, stream, headers, caplog):
    await make_service(client, stream)
    await client.send_messages(stream, REQUESTS, [write_request(**headers)], partition_id=0)
    async with answering(client, stream, shout) as responder, calling(client, stream) as calls:
        assert await calls.call(b"tea") == b"TEA"
    seen = responder.statistics()

    assert (seen.requests, seen.replies, seen.undeliverable) == (2, 1, 1)
    assert "was not sent" in caplog.text


async def test_responder_when_told_the_reply_topic_then_replies_go_to_no_other(client, stream):
    await make_service(client, stream)
    await client.create_topic(stream, "ledger", partitions_count=1)
    await client.send_messages(stream, REQUESTS, [write_request(reply_to="ledger")], partition_id=0)
    async with (
        answering(client, stream, shout, reply_topic=REPLIES) as responder,
        calling(client, stream) as calls,
    ):
        assert await calls.call(b"tea") == b"TEA"
        assert responder.statistics().malformed == 1
    ledger = await client.get_topic(stream, "ledger", required=True)

    assert ledger.messages_count == 0


async def test_responder_when_the_correlation_id_is_a_text_then_repeats_it(client, stream):
    await make_service(client, stream)
    request = write_request(correlation_id="7b0a", expires_at=None)
    await client.send_messages(stream, REQUESTS, [request], partition_id=0)
    async with (
        answering(client, stream, shout),
        client.consumer("by-hand", stream, REPLIES) as consumer,
    ):
        reply = await anext(consumer)

    assert (reply.payload, reply.headers["correlation-id"]) == (b"TEA", "7b0a")


async def test_responder_when_a_request_is_just_over_then_the_tolerance_answers_it(client, stream):
    await make_service(client, stream)
    an_hour_ago = time.time_ns() // 1_000 - 3_600_000_000
    request = write_request(expires_at=an_hour_ago)
    await client.send_messages(stream, REQUESTS, [request], partition_id=0)
    async with (
        answering(client, stream, shout, expiry_tolerance=4_000.0) as responder,
        calling(client, stream) as calls,
    ):
        await calls.call(b"tea")
        assert (responder.statistics().requests, responder.statistics().expired) == (2, 0)


async def test_handler_when_its_responder_is_cancelled_then_another_one_answers(client, stream):
    await make_service(client, stream)
    begun = anyio.Event()

    async def stuck(message):
        begun.set()
        await anyio.sleep_forever()

    got = []
    async with calling(client, stream) as calls, anyio.create_task_group() as tasks:
        answered = anyio.Event()

        async def call():
            got.append(await calls.call(b"tea"))
            answered.set()

        tasks.start_soon(call)
        async with anyio.create_task_group() as first:

            async def serve():
                async with client.responder(stream, REQUESTS) as responder:
                    await responder.serve(stuck)

            first.start_soon(serve)
            await begun.wait()
            first.cancel_scope.cancel()
        async with answering(client, stream, shout):
            await answered.wait()

    assert got == [b"TEA"]


async def test_call_when_the_server_is_away_then_the_error_says_that_it_may_be_sent(
    anyio_backend, protocol
):
    with RunningServer() as server:
        async with IggyClient(server.url, protocol=protocol) as client:
            await make_service(client, "shop")
            async with calling(client, "shop") as calls:
                await anyio.to_thread.run_sync(server.kill)
                with pytest.raises(ReplyTimeoutError, match="may have been sent") as caught:
                    await calls.call(b"tea", timeout=0.2)
                await anyio.to_thread.run_sync(server.start)

    assert caught.value.sent
