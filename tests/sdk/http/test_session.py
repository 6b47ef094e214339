"""The conversation over HTTP: what it refuses, how it ends, and what cancelling leaves behind."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from iggy_protocol import (
    CLASSIC,
    COMMANDS,
    ConsumerIdentity,
    GetMe,
    GetStream,
    GetStreams,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
    StoreConsumerOffset,
    commands_of,
)
from iggy_protocol.rest import ROUTES_BY_COMMAND
from iggy_sdk.client import IggyClient
from iggy_sdk.connection_string import Endpoint
from iggy_sdk.errors import (
    ClientClosedError,
    ConfigurationError,
    ConnectionFailedError,
    DisconnectedError,
    InvalidRequestError,
    RequestTimeoutError,
)
from iggy_sdk.options import Reconnect
from iggy_sdk.session.http.connection import CONNECTIONS_MAX, IDLE_SECONDS_MAX
from tests.sdk.cancelling import cancelled_everywhere
from tests.sdk.http.peers import HttpPeer, http_options, http_server

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

TIMEOUT = 30.0


def send(*payloads: bytes) -> SendMessages:
    return SendMessages("shop", "orders", Partitioning.partition(0), payloads or [b"payload"])


async def deaf(peer: HttpPeer) -> None:
    """Answer pings, and nothing else."""
    while True:
        heard = await peer.hear()
        if heard.line == "GET /ping":
            await peer.answer(heard)
        else:
            await anyio.sleep_forever()


# What HTTP cannot do

GROUP = ConsumerIdentity.group("billing")
IMPOSSIBLE: list[Any] = [
    GetMe(),
    JoinConsumerGroup("shop", "orders", "billing"),
    LeaveConsumerGroup("shop", "orders", "billing"),
    PollMessages(GROUP, "shop", "orders", PollingStrategy.next(), 1),
    StoreConsumerOffset(GROUP, "shop", "orders", 1),
    GetStream("42"),
]


def test_commands_when_counted_then_only_three_have_no_route():
    codes = commands_of(CLASSIC) - ROUTES_BY_COMMAND.keys()
    without = {COMMANDS[code].command for code in codes}

    assert without == {GetMe, JoinConsumerGroup, LeaveConsumerGroup}


@pytest.mark.parametrize("command", IMPOSSIBLE, ids=lambda command: type(command).__name__)
async def test_command_when_http_cannot_carry_it_then_fails_before_any_io(command):
    async with http_server() as server:
        conversation = await server.open()
        with pytest.raises(InvalidRequestError, match="HTTP") as caught:
            await conversation.request(command, timeout=TIMEOUT)

        assert caught.value.code == StatusCode.FEATURE_UNAVAILABLE
        assert "iggy://" in caught.value.advice
        assert not caught.value.retriable
        assert server.lines == []
        assert not conversation.is_closed


@pytest.mark.parametrize("joins", [True, False])
async def test_consumer_group_when_opened_over_http_then_fails_before_any_io(joins):
    async with http_server() as server, server.client() as client:
        heard_count = len(server.lines)
        group = client.consumer_group("billing", "shop", "orders", auto_join_consumer_group=joins)
        with pytest.raises(InvalidRequestError, match="member of a consumer group"):
            async with group:
                raise AssertionError("the consumer was opened")
        assert len(server.lines) == heard_count


async def test_send_when_a_message_is_empty_then_fails_before_any_io():
    async with http_server() as server:
        conversation = await server.open()
        with pytest.raises(InvalidRequestError) as caught:
            await conversation.request(send(b""), timeout=TIMEOUT)

        assert caught.value.code == StatusCode.EMPTY_MESSAGE_PAYLOAD
        assert server.lines == []


async def test_command_when_no_wire_can_carry_it_then_is_invalid():
    async with http_server() as server:
        conversation = await server.open()
        with pytest.raises(InvalidRequestError):
            await conversation.request(GetStream(""), timeout=TIMEOUT)


async def test_client_when_the_library_is_missing_then_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("iggy_sdk.session.http")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "h11", None)

    with pytest.raises(ConfigurationError, match=r"iggy-python\[http\]"):
        await IggyClient("iggy+http://127.0.0.1:1").connect()


# Opening


async def test_open_when_the_port_is_closed_then_says_so():
    async with http_server() as server:
        server.is_dead = True
        with pytest.raises(ConnectionFailedError, match="refused") as caught:
            await server.open()

        assert not isinstance(caught.value, DisconnectedError)


@pytest.mark.parametrize("is_connected", [True, False])
async def test_open_when_there_is_no_answer_then_ends_in_time(is_connected):
    async def silent(peer: HttpPeer) -> None:
        await anyio.sleep_forever()

    async def never(endpoint: Endpoint, options: Any) -> Any:
        await anyio.sleep_forever()

    async with http_server(silent) as server:
        if not is_connected:
            server.dial = never  # type: ignore[method-assign]
        begun_at = anyio.current_time()
        with pytest.raises(ConnectionFailedError, match="within 3 s"):
            await server.open(connect_timeout=3.0)
        assert anyio.current_time() - begun_at == pytest.approx(3.0, abs=0.1)


async def test_open_when_the_name_is_no_name_then_says_so():
    strange = Endpoint("ü" * 300, 3000)
    async with http_server() as server:
        client = IggyClient.from_options(
            http_options(endpoints=(strange,), reconnect=Reconnect(enabled=False)),
            dial=server.dial,
        )
        with pytest.raises(ConnectionFailedError, match="no address"):
            await client.connect()


@pytest.mark.parametrize(
    ("host", "header"),
    [
        ("one.example", b"one.example:3000"),
        ("fe80::1%eth0", b"[fe80::1]:3000"),
        ("bücher.example", b"xn--bcher-kva.example:3000"),
    ],
)
async def test_request_when_sent_then_names_the_host_and_asks_for_no_compression(host, header):
    async with http_server() as server:
        endpoint = Endpoint(host, 3000)
        client = IggyClient.from_options(
            http_options(endpoints=(endpoint,), credentials=None), dial=server.dial
        )
        await client.connect()
        await client.aclose()

    assert server.heard[0].headers[b"host"] == header
    assert server.heard[0].headers[b"accept-encoding"] == b"identity"


# Time


async def test_request_when_there_is_no_answer_in_time_then_says_so():
    async with http_server(deaf) as server:
        conversation = await server.open()
        begun_at = anyio.current_time()
        with pytest.raises(RequestTimeoutError, match="no answer came within 5 s"):
            await conversation.request(GetStreams(), timeout=5.0)

        assert anyio.current_time() - begun_at == pytest.approx(5.0, abs=0.1)
        assert not conversation.is_closed
        await conversation.request(Ping(), timeout=TIMEOUT)
        assert conversation.statistics().timeouts == 1


async def test_request_when_it_cannot_be_written_in_time_then_says_so():
    async def blocked(peer: HttpPeer) -> None:
        await peer.answer(await peer.hear())
        await anyio.sleep_forever()

    async with http_server(blocked, capacity_bytes=1_000) as server:
        conversation = await server.open()
        with pytest.raises(RequestTimeoutError, match="could not be sent"):
            await conversation.request(send(bytes(100_000)), timeout=5.0)


async def test_requests_when_there_are_many_then_few_connections_carry_them():
    async with http_server() as server:
        conversation = await server.open()
        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(lambda: conversation.request(GetStreams(), timeout=TIMEOUT))
        counted = conversation.statistics()

        assert len(server.lines) == 200
        assert server.dials_count <= CONNECTIONS_MAX
        assert (counted.answers, counted.waiting) == (201, 0)
        assert counted.connection.bytes_in > 0 < counted.connection.bytes_out


async def test_requests_when_fewer_may_be_outstanding_then_the_others_wait():
    async with http_server() as server:
        conversation = await server.open(max_outstanding=2)
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(lambda: conversation.request(GetStreams(), timeout=TIMEOUT))

        assert server.dials_count <= 2


async def test_connection_when_it_lay_idle_for_long_then_another_one_is_opened():
    async with http_server() as server:
        conversation = await server.open()
        await anyio.sleep(IDLE_SECONDS_MAX / 2)
        await conversation.request(Ping(), timeout=TIMEOUT)
        assert server.dials_count == 1
        await anyio.sleep(IDLE_SECONDS_MAX + 1)
        await conversation.request(Ping(), timeout=TIMEOUT)
        assert server.dials_count == 2


# The end


async def test_abort_when_requests_are_on_their_way_then_all_hear_the_reason():
    heard: list[DisconnectedError] = []

    async def ask(conversation: Any) -> None:
        with pytest.raises(DisconnectedError, match="over") as caught:
            await conversation.request(GetStreams(), timeout=TIMEOUT)
        heard.append(caught.value)

    async with http_server(deaf) as server:
        conversation = await server.open(max_outstanding=2)
        rung: list[bool] = []
        conversation.on_end = lambda: rung.append(True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(conversation.run)
            for _ in range(3):
                tasks.start_soon(ask, conversation)
            await anyio.sleep(1)
            conversation.abort(DisconnectedError("it is over"))
            conversation.abort(DisconnectedError("again"))

    # Two were with the server; the third one waited for its turn.
    assert sorted(error.sent for error in heard) == [False, True, True]
    assert rung == [True]
    assert conversation.is_closed
    assert not conversation.is_ended_by_peer
    assert str(conversation.failure).startswith("it is over")


async def test_close_when_a_request_is_on_its_way_then_it_may_end():
    async def slow(peer: HttpPeer) -> None:
        while True:
            heard = await peer.hear()
            await anyio.sleep(2)
            await peer.answer(heard)

    replies: list[object] = []

    async def ask(conversation: Any) -> None:
        replies.append(await conversation.request(GetStreams(), timeout=TIMEOUT))

    async with http_server(slow) as server:
        conversation = await server.open(close_timeout=5.0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, conversation)
            await anyio.sleep(1)
            await conversation.aclose()
        assert replies == [()]
        with pytest.raises(ClientClosedError):
            await conversation.request(Ping(), timeout=TIMEOUT)


async def test_close_when_a_request_does_not_end_then_is_cut_off():
    async def ask(conversation: Any) -> None:
        with pytest.raises(ClientClosedError):
            await conversation.request(GetStreams(), timeout=TIMEOUT)

    async with http_server(deaf) as server:
        conversation = await server.open(close_timeout=5.0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, conversation)
            await anyio.sleep(1)
            begun_at = anyio.current_time()
            await conversation.aclose()
        assert anyio.current_time() - begun_at == pytest.approx(5.0, abs=0.1)


async def test_request_when_cancelled_anywhere_then_the_next_one_is_served():
    async with http_server(capacity_bytes=700) as server:
        conversation = await server.open()
        batch = send(bytes(2_000))

        async def ask() -> None:
            await conversation.request(batch, timeout=TIMEOUT)

        async for _ in cancelled_everywhere(ask):
            assert await conversation.request(GetStreams(), timeout=TIMEOUT) == ()
        await checkpoint()
        assert not conversation.is_closed
        assert conversation.statistics().waiting == 0
        assert conversation.statistics().abandoned > 5


async def test_login_when_cancelled_anywhere_then_the_next_one_succeeds():
    async with http_server() as server:

        async def enter() -> None:
            client = server.client()
            try:
                await client.connect()
            finally:
                with anyio.CancelScope(shield=True):
                    await client.aclose()

        async for _ in cancelled_everywhere(enter):
            pass
        await enter()
