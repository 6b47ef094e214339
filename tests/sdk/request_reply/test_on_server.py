"""Request and reply on a real server, in every generation of the wire that it speaks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from iggy_sdk import (
    ClientClosedError,
    ConfigurationError,
    Encryptor,
    IggyClient,
    JsonSerde,
    Message,
    MsgspecSerde,
    NotFoundError,
    RemoteHandlerError,
    ReplyTimeoutError,
    SerdeError,
    TopicNotFoundError,
)
from iggy_sdk.serde import StrSerde
from tests.sdk.request_reply.services import (
    GENERATIONS,
    REPLIES,
    REQUESTS,
    answering,
    make_service,
    shout,
    url_of,
)

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
    settings.setdefault("timeout", 30.0)
    return client.request_reply(stream, REQUESTS, reply_topic=REPLIES, **settings)


async def test_call_when_a_responder_runs_then_returns_its_value(client, stream):
    await make_service(client, stream)
    async with answering(client, stream, shout), calling(client, stream) as calls:
        reply = await calls.call(b"tea")

        assert reply == b"TEA"
        assert calls.statistics().replies == 1
        assert calls.statistics().in_flight == 0


async def test_calls_when_a_thousand_are_in_flight_then_each_gets_its_own_reply(client, stream):
    await make_service(client, stream, partitions_count=3, reply_partitions_count=2)
    replies = {}
    async with answering(client, stream, shout), calling(client, stream) as calls:

        async def call(number):
            replies[number] = await calls.call(b"item-%d" % number)

        async with anyio.create_task_group() as tasks:
            for number in range(1_000):
                tasks.start_soon(call, number)

    assert replies == {number: b"ITEM-%d" % number for number in range(1_000)}


async def test_callers_when_they_share_a_partition_then_each_takes_its_own_replies(client, stream):
    await make_service(client, stream)
    async with (
        answering(client, stream, shout),
        calling(client, stream) as one,
        calling(client, stream) as other,
    ):
        for number in range(5):
            assert await one.call(b"one-%d" % number) == b"ONE-%d" % number
            assert await other.call(b"other-%d" % number) == b"OTHER-%d" % number
        seen = one.statistics()

    assert (seen.replies, seen.malformed, seen.ignored) == (5, 0, 0)
    assert seen.foreign >= 4


async def test_responders_when_several_share_a_group_then_each_request_is_handled_once(
    client, stream
):
    await make_service(client, stream, partitions_count=2)
    handled = []

    async def note(message):
        handled.append(message.payload)
        return message.payload

    async with (
        answering(client, stream, note),
        answering(client, stream, note),
        calling(client, stream) as calls,
        anyio.create_task_group() as tasks,
    ):
        for number in range(40):
            tasks.start_soon(calls.call, b"%d" % number)

    assert sorted(handled, key=int) == [b"%d" % number for number in range(40)]


@dataclass
class Wanted:
    item: str


@dataclass
class Price:
    cents: int


async def test_call_when_serdes_are_given_then_both_sides_have_values(client, stream):
    await make_service(client, stream)
    serdes: Any = {"request_serde": MsgspecSerde(Wanted), "reply_serde": MsgspecSerde(Price)}

    def price_of(message):
        return Price(len(message.value.item) * 100)

    async with (
        answering(client, stream, price_of, **serdes),
        calling(client, stream, **serdes) as calls,
    ):
        assert await calls.call(Wanted("tea")) == Price(300)


async def test_call_message_when_both_sides_add_headers_then_both_see_them(client, stream):
    await make_service(client, stream)

    async def echo(message):
        return Message(message.payload, headers={"for": message.headers["user"]})

    async with answering(client, stream, echo), calling(client, stream) as calls:
        request = Message(b"tea", headers={"user": "ada"})
        reply = await calls.call_message(request, headers={"user": "nobody"})

        assert (reply.payload, reply.headers["for"]) == (b"tea", "ada")
    assert request.headers == {"user": "ada"}


async def test_handler_when_it_raises_then_the_caller_gets_type_and_text_only(
    client, stream, caplog
):
    await make_service(client, stream)

    async def refuse(message):
        raise LookupError("no such item")

    async with answering(client, stream, refuse) as responder, calling(client, stream) as calls:
        with pytest.raises(RemoteHandlerError, match="LookupError: no such item") as caught:
            await calls.call(b"tea")
        assert calls.statistics().remote_errors == 1
    seen = responder.statistics()

    assert (caught.value.remote_type, caught.value.remote_message) == (
        "LookupError",
        "no such item",
    )
    assert caught.value.remote_traceback is None
    assert (seen.handler_failures, seen.replies, seen.in_progress) == (1, 1, 0)
    (logged,) = [record for record in caplog.records if record.name == "iggy_sdk.request_reply"]
    assert logged.iggy_event == "handler_failed"
    assert logged.exc_info is not None


async def test_handler_when_tracebacks_are_sent_then_the_caller_gets_it(client, stream):
    await make_service(client, stream)

    def refuse(message):
        raise LookupError("no such item")

    async with (
        answering(client, stream, refuse, send_tracebacks=True),
        calling(client, stream) as calls,
    ):
        with pytest.raises(RemoteHandlerError) as caught:
            await calls.call(b"tea")

    assert caught.value.remote_traceback is not None
    assert "in refuse" in caught.value.remote_traceback


async def test_handler_when_its_value_cannot_be_written_then_the_caller_is_told(client, stream):
    await make_service(client, stream)

    def number(message):
        return 7

    async with answering(client, stream, number), calling(client, stream) as calls:
        with pytest.raises(RemoteHandlerError, match="a payload is bytes or text") as caught:
            await calls.call(b"tea")

    assert caught.value.remote_type == "SerdeError"


async def test_reply_when_the_serde_cannot_read_it_then_the_call_says_so(client, stream):
    await make_service(client, stream)
    serdes = {"request_serde": StrSerde(), "reply_serde": JsonSerde()}
    async with answering(client, stream, shout), calling(client, stream, **serdes) as calls:
        with pytest.raises(SerdeError, match="JsonSerde"):
            await calls.call("tea")


async def test_call_when_nobody_answers_then_the_error_says_that_it_was_stored(client, stream):
    await make_service(client, stream)
    async with calling(client, stream) as calls:
        with pytest.raises(ReplyTimeoutError, match="was stored, and nobody has") as caught:
            await calls.call(b"tea", timeout=0.2)
        seen = calls.statistics()

    assert caught.value.sent
    assert isinstance(caught.value, TimeoutError)
    assert (seen.timeouts, seen.in_flight) == (1, 0)


async def test_call_when_no_place_is_free_then_the_error_says_that_it_was_not_sent(client, stream):
    await make_service(client, stream)
    async with calling(client, stream, max_in_flight=1) as calls, anyio.create_task_group() as busy:
        busy.start_soon(calls.call, b"first")
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ReplyTimeoutError, match="was not sent: max_in_flight") as caught:
            await calls.call(b"second", timeout=0.05)
        busy.cancel_scope.cancel()

    assert not caught.value.sent


async def test_calls_when_they_are_cancelled_then_nothing_of_them_is_kept(client, stream):
    await make_service(client, stream)
    async with calling(client, stream, max_in_flight=2) as calls:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(calls.call, b"tea")
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert calls.statistics().in_flight == 0
        async with answering(client, stream, shout):
            assert await calls.call(b"coffee") == b"COFFEE"


async def test_requests_when_nobody_waits_any_more_then_they_are_dropped(client, stream):
    await make_service(client, stream)
    handled = []

    async def note(message):
        handled.append(message.payload)
        return message.payload

    async with calling(client, stream) as calls:
        for _ in range(3):
            with pytest.raises(ReplyTimeoutError):
                await calls.call(b"old", timeout=0.05)
        async with answering(client, stream, note, expiry_tolerance=0.0) as responder:
            assert await calls.call(b"new") == b"new"
            assert responder.statistics().expired == 3

    assert handled == [b"new"]


async def test_call_when_it_may_take_for_ever_then_the_request_never_expires(client, stream):
    await make_service(client, stream)
    seen = {}

    async def note(message):
        seen.update(message.headers)
        return b""

    async with answering(client, stream, note), calling(client, stream) as calls:
        await calls.call(b"tea", timeout=math.inf)

    assert set(seen) == {"correlation-id", "reply-to", "reply-partition"}


async def test_block_when_left_then_the_calls_of_other_tasks_end(client, stream):
    await make_service(client, stream)
    ended = []

    async def call(calls):
        with pytest.raises(ClientClosedError):
            await calls.call(b"tea")
        ended.append(True)

    async with anyio.create_task_group() as tasks, calling(client, stream) as calls:
        tasks.start_soon(call, calls)
        await anyio.wait_all_tasks_blocked()

    assert ended == [True]
    with pytest.raises(ClientClosedError, match="inside the block"):
        await calls.call(b"tea")


async def test_caller_when_the_reply_topic_is_missing_then_it_is_refused_or_created(client, stream):
    await client.create_stream(stream)
    await client.create_topic(stream, REQUESTS, partitions_count=1)
    with pytest.raises(TopicNotFoundError):
        await calling(client, stream).__aenter__()
    create = {"partitions_count": 3}
    async with (
        calling(client, stream, create_reply_topic_if_not_exists=create) as calls,
        answering(client, stream, shout),
    ):
        assert await calls.call(b"tea") == b"TEA"
        assert calls.reply_partition in range(3)
    topic = await client.get_topic(stream, REPLIES, required=True)

    assert topic.partitions_count == 3


async def test_caller_when_the_reply_topic_is_deleted_then_calls_fail_at_once(client, stream):
    await make_service(client, stream)
    async with calling(client, stream) as calls, anyio.create_task_group() as tasks:
        failed = anyio.Event()

        async def call():
            with pytest.raises(NotFoundError):
                await calls.call(b"tea")
            failed.set()

        tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        await client.delete_topic(stream, REPLIES)
        await failed.wait()
        with pytest.raises(NotFoundError):
            await calls.call(b"again")


async def test_caller_when_entered_twice_then_refuses(client, stream):
    await make_service(client, stream)
    async with calling(client, stream) as calls:
        with pytest.raises(ConfigurationError, match="entered already"):
            await calls.__aenter__()


async def test_caller_when_it_comes_later_then_old_replies_are_not_read(client, stream):
    await make_service(client, stream)
    async with answering(client, stream, shout):
        async with calling(client, stream) as first:
            await first.call(b"one")
        async with calling(client, stream) as second:
            assert await second.call(b"two") == b"TWO"
            assert second.statistics().foreign == 0


async def test_call_when_both_sides_encrypt_then_nothing_is_readable_in_between(
    anyio_backend, server, protocol, client, stream
):
    await make_service(client, stream)
    encryptor = Encryptor.aes256_gcm(bytes(range(32)))

    async def pick(message):
        if message.payload == b"bad":
            raise LookupError("secret reason")
        return b"secret answer"

    async with (
        IggyClient(url_of(server, protocol), encryptor=encryptor) as sealed,
        answering(sealed, stream, pick) as responder,
        calling(sealed, stream) as calls,
    ):
        await client.send_messages(stream, REPLIES, [b"not sealed"], partition_id=0)
        await client.send_messages(stream, REQUESTS, [b"not sealed"], partition_id=0)
        assert await calls.call(b"secret question") == b"secret answer"
        with pytest.raises(RemoteHandlerError, match="LookupError: secret reason"):
            await calls.call(b"bad")
        assert (calls.statistics().malformed, responder.statistics().malformed) == (1, 1)
    for topic in (REQUESTS, REPLIES):
        async with client.consumer("spy", stream, topic, encryptor=None, until_end=True) as spy:
            seen = [message.raw_payload + message.raw_user_headers async for message in spy]
        assert len(seen) == 3
        assert not any(b"secret" in one or b"correlation" in one for one in seen)
