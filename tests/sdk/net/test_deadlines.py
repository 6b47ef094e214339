"""One deadline for each call, and errors that say truthfully whether the request was sent."""

from __future__ import annotations

import inspect

import anyio
import pytest

import iggy_sdk
from iggy_protocol import GetStreams, GetTopic, StatusCode
from iggy_sdk import blocking
from iggy_sdk.errors import (
    ConnectionFailedError,
    DisconnectedError,
    RequestTimeoutError,
)
from iggy_sdk.options import Reconnect
from tests.sdk.dialects import SPOKEN
from tests.sdk.net.clients import ONE, client_of, send
from tests.sdk.scripted_peer import PeerGone, scripted_server

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

every_dialect = pytest.mark.usefixtures("every_dialect")


async def deaf(peer) -> None:
    """Let clients in, and answer nothing else."""
    await peer.welcome()
    while True:
        await peer.hear()


class AnswersLate:
    """Refuses or answers each request after a second."""

    def __init__(self, *replies: object) -> None:
        self.replies = list(replies)

    async def __call__(self, peer) -> None:
        await peer.welcome()
        while True:
            await peer.hear()
            await anyio.sleep(1.0)
            await peer.reply(self.replies.pop(0))


@every_dialect
async def test_request_when_not_answered_then_says_that_it_was_sent():
    async with (
        scripted_server(deaf, peers=SPOKEN.peers) as server,
        client_of(server, **SPOKEN.options) as client,
    ):
        with pytest.raises(RequestTimeoutError, match="was sent, and may have been") as caught:
            await client.get_streams(timeout=3)

    assert caught.value.sent is True
    assert "may have been carried out" in caught.value.advice


@every_dialect
async def test_request_when_there_is_no_connection_then_says_that_it_was_not_sent_and_why():
    async with (
        scripted_server(peers=SPOKEN.peers) as server,
        client_of(server, **SPOKEN.options) as client,
    ):
        await client.ping()
        server.dead.add(ONE)
        server.peers[-1].wire.abort()
        await anyio.sleep(1)
        begun_at = anyio.current_time()

        with pytest.raises(RequestTimeoutError, match="the request was not sent") as caught:
            await client.request(send(), timeout=4)

        assert anyio.current_time() - begun_at == pytest.approx(4.0, abs=0.01)
    assert caught.value.sent is False
    assert "refused" in caught.value.message
    assert "may have been carried out" not in str(caught.value)


@every_dialect
async def test_request_when_an_attempt_was_sent_and_the_next_was_not_then_counts_as_sent():
    async def hangs_up(peer) -> None:
        await peer.welcome()
        await peer.hear()
        server.dead.add(ONE)
        raise PeerGone

    async with (
        scripted_server(hangs_up, peers=SPOKEN.peers) as server,
        client_of(server, **SPOKEN.options) as client,
    ):
        with pytest.raises((RequestTimeoutError, DisconnectedError)) as caught:
            await client.request(GetStreams(), timeout=4)

    assert caught.value.sent is True
    assert "earlier attempt was sent" in str(caught.value)


@pytest.mark.usefixtures("later_dialect")
async def test_send_when_a_question_before_it_is_not_answered_then_says_that_it_was_not_sent():
    async with (
        scripted_server(deaf, peers=SPOKEN.peers) as server,
        client_of(server, **SPOKEN.options) as client,
    ):
        with pytest.raises(RequestTimeoutError) as caught:
            await client.request(send(), timeout=3)

    assert "GetPartitionRoute" in str(caught.value)
    assert caught.value.sent is False


async def test_verb_when_it_needs_two_requests_then_they_share_the_timeout():
    async with (
        scripted_server(AnswersLate(StatusCode.TOPIC_NAME_ALREADY_EXISTS, None)) as server,
        client_of(server) as client,
    ):
        begun_at = anyio.current_time()
        with pytest.raises(RequestTimeoutError):
            await client.create_topic("shop", "orders", exist_ok=True, timeout=1.5)

        assert anyio.current_time() - begun_at == pytest.approx(1.5, abs=0.01)


@pytest.mark.parametrize("seconds", [0.5, 3.0])
async def test_connect_when_it_takes_too_long_then_fails_in_time_and_says_why(seconds):
    async with scripted_server() as server:
        server.dead.add(ONE)
        begun_at = anyio.current_time()
        with pytest.raises(ConnectionFailedError, match="no connection within") as caught:
            await client_of(server).connect(timeout=seconds)

        assert anyio.current_time() - begun_at == pytest.approx(seconds, abs=0.01)
    assert "refused" in str(caught.value)


async def test_connect_when_the_supervisor_is_connecting_then_waits_no_longer_than_told():
    async with scripted_server() as server, client_of(server) as client:
        server.silent.add(ONE)
        server.peers[-1].wire.abort()
        await anyio.sleep(1)
        begun_at = anyio.current_time()

        with pytest.raises(ConnectionFailedError):
            await client.connect(timeout=2)

        assert anyio.current_time() - begun_at == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("verb", ["aclose", "disconnect", "shutdown"])
async def test_close_when_a_request_is_pending_then_waits_no_longer_than_told(verb):
    async with scripted_server(deaf) as server, client_of(server) as client:
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                with pytest.raises(iggy_sdk.ClientClosedError):
                    await client.get_streams()

            tasks.start_soon(ask)
            await anyio.sleep(1)
            begun_at = anyio.current_time()
            await getattr(client, verb)(timeout=0.5)

        assert anyio.current_time() - begun_at == pytest.approx(0.5, abs=0.01)


async def test_request_when_reconnecting_is_off_then_says_that_it_was_not_sent():
    async with (
        scripted_server() as server,
        client_of(server, reconnect=Reconnect(enabled=False)) as client,
    ):
        server.peers[-1].wire.abort()
        await anyio.sleep(1)
        with pytest.raises(DisconnectedError, match="the request was not sent") as caught:
            await client.request(GetTopic("shop", "orders"))

    assert caught.value.sent is False


# Every public call takes a timeout.

UNTIMED = {
    ("BatchIterator", "aclose"): "waits for nothing",
    ("IggyClient", "run"): "lasts as long as the client",
    ("IggyConsumer", "run"): "lasts until it is stopped",
    ("IggyConsumer", "consume_messages"): "lasts until it is stopped",
    ("Responder", "serve"): "lasts until it is stopped",
}


def coroutine_methods() -> list[tuple[str, str, object]]:
    """List the public coroutine methods of the public classes."""
    kinds = [getattr(iggy_sdk, name) for name in iggy_sdk.__all__]
    return [
        (kind.__name__, name, method)
        for kind in kinds
        if isinstance(kind, type)
        for name, method in inspect.getmembers(kind, inspect.iscoroutinefunction)
        if not name.startswith("_")
    ]


def test_public_calls_when_listed_then_each_takes_a_timeout_or_has_a_reason():
    found = coroutine_methods()
    assert len(found) > 70

    untimed = {
        (kind, name)
        for kind, name, method in found
        if "timeout" not in inspect.signature(method).parameters  # type: ignore[arg-type]
    }

    assert untimed == set(UNTIMED)


def test_blocking_calls_when_compared_then_take_a_timeout_where_the_async_ones_do():
    missing = []
    for kind, name, method in coroutine_methods():
        twin = getattr(getattr(blocking, kind, None), name, None)
        is_timed = "timeout" in inspect.signature(method).parameters  # type: ignore[arg-type]
        if twin is not None and is_timed and "timeout" not in inspect.signature(twin).parameters:
            missing.append((kind, name))

    assert not missing
