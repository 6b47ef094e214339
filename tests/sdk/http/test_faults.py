"""Answers that no Iggy server gives, connections that break anywhere, and proxies."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest

from iggy_protocol import (
    CreateTopic,
    DeleteStream,
    GetStream,
    GetStreams,
    GetTopics,
    Partitioning,
    Ping,
    SendMessages,
    StatusCode,
)
from iggy_sdk.errors import (
    ConnectionFailedError,
    DisconnectedError,
    IggyError,
    InvalidRequestError,
    MessageTooLargeError,
    PermissionDeniedError,
    ProtocolError,
    RequestTimeoutError,
    ServerError,
    StreamNotFoundError,
)
from iggy_sdk.options import Reconnect
from iggy_sdk.session.http import connection
from tests.sdk.http.peers import NO_STREAM, HttpPeer, Script, http_server

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

TIMEOUT = 30.0
HTML = "<html><body>Welcome to the café WLAN</body></html>".encode()


def send(size: int = 7) -> SendMessages:
    return SendMessages("shop", "orders", Partitioning.partition(0), [bytes(size)])


def answering(*answer: Any, **details: Any) -> Script:
    """Answer pings, and everything else with this."""

    async def script(peer: HttpPeer) -> None:
        while True:
            heard = await peer.hear()
            if heard.line == "GET /ping":
                await peer.answer(heard)
            else:
                await peer.reply(*answer, **details)

    return script


def writing(data: bytes) -> Script:
    """Answer pings, and everything else with these bytes and the end."""

    async def script(peer: HttpPeer) -> None:
        while (heard := await peer.hear()).line == "GET /ping":
            await peer.answer(heard)
        await peer.write(data)

    return script


async def error_of(script: Script, command: Any = None) -> IggyError:
    """Ask for something, the streams unless told otherwise, and return what goes wrong."""
    async with http_server(script) as server:
        conversation = await server.open()
        with pytest.raises(IggyError) as caught:
            await conversation.request(command or GetStreams(), timeout=TIMEOUT)
        return caught.value


# Answers


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, 1009, StreamNotFoundError),
        (403, 41, PermissionDeniedError),
        (400, 1012, IggyError),
        (400, 99_999, IggyError),
        (500, 1, IggyError),
    ],
)
async def test_error_when_the_server_gives_a_status_then_is_that_of_any_transport(
    status, code, kind
):
    body = {"id": code, "code": "some_name", "reason": "a reason", "field": None}
    error = await error_of(answering(status, body), DeleteStream("shop"))

    assert isinstance(error, kind)
    assert error.code == code


async def test_error_when_the_server_does_not_say_what_is_missing_then_the_command_does():
    create = CreateTopic("shop", "orders", partitions_count=1)
    assert (await error_of(answering(404, NO_STREAM), create)).code == (
        StatusCode.STREAM_ID_NOT_FOUND
    )
    assert (await error_of(answering(404, NO_STREAM), DeleteStream("shop"))).code == (
        StatusCode.RESOURCE_NOT_FOUND
    )


async def test_answer_when_nothing_is_there_then_is_nothing_or_no_things():
    async with http_server(answering(404, NO_STREAM)) as server:
        conversation = await server.open()
        assert await conversation.request(GetStream("shop"), timeout=TIMEOUT) is None
        assert await conversation.request(GetTopics("shop"), timeout=TIMEOUT) == ()


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        (200, ProtocolError, "no JSON"),
        (204, ProtocolError, "HTTP status 204"),
        (302, ProtocolError, "redirect"),
        (400, InvalidRequestError, "could not read the request.*café"),
        (404, ProtocolError, "not a response of an Iggy server"),
        (405, ProtocolError, "not a response of an Iggy server"),
        (408, RequestTimeoutError, "rest of the request"),
        (413, MessageTooLargeError, "more bytes"),
        (415, InvalidRequestError, "could not read"),
        (418, ProtocolError, "HTTP status 418"),
        (422, InvalidRequestError, "could not read"),
        (429, ServerError, "too many requests"),
        (500, ServerError, "failed.*café"),
        (501, ServerError, "failed"),
    ],
)
async def test_answer_when_it_is_no_json_then_is_a_typed_error(status, kind, text):
    body = b"" if status == 204 else HTML
    error = await error_of(answering(status, body))

    assert type(error) is kind
    assert error.advice
    assert re.search(text, str(error))


async def test_answer_when_a_success_has_an_unexpected_body_then_is_refused():
    error = await error_of(answering(204, b"", headers={"x": "y"}), send())
    assert isinstance(error, ProtocolError)
    assert isinstance(await error_of(answering(201, HTML), send()), ProtocolError)


async def test_answer_when_it_redirects_then_names_the_place_and_sends_no_token_there():
    script = answering(307, b"", headers={"location": "https://elsewhere.example/streams"})
    error = await error_of(script)

    assert "elsewhere.example" in str(error)
    assert isinstance(error, ProtocolError)


async def test_answer_when_it_is_compressed_then_is_refused():
    script = answering(200, b"\x1f\x8b", headers={"content-encoding": "gzip"})

    assert "encoding" in str(await error_of(script))


@pytest.mark.parametrize("body", [b"{", b"{}", b"[1]", b"null", b'[{"id":-1}]', b"\xff"])
async def test_answer_when_the_json_is_of_another_shape_then_is_refused(body):
    assert isinstance(await error_of(answering(200, body)), ProtocolError)


async def test_answer_when_a_large_one_is_announced_then_is_refused_unread():
    announced = connection.RESPONSE_BYTES_MAX + 1
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {announced}\r\n\r\n"

    assert "larger than those" in str(await error_of(writing(head.encode())))


async def test_answer_when_it_does_not_end_then_is_refused_at_the_limit(monkeypatch):
    monkeypatch.setattr(connection, "RESPONSE_BYTES_MAX", 200_000)

    async def endless(peer: HttpPeer) -> None:
        while (heard := await peer.hear()).line == "GET /ping":
            await peer.answer(heard)
        await peer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            await peer.write(b"1000\r\n" + bytes(0x1000) + b"\r\n")

    assert "larger than those" in str(await error_of(endless))


@pytest.mark.parametrize(
    "data",
    [
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
        bytes(range(256)) * 300,
    ],
    ids=lambda data: repr(data[:24]),
)
async def test_answer_when_it_is_no_http_then_says_so(data):
    error = await error_of(writing(data))

    assert isinstance(error, ProtocolError)
    assert "iggy+https" in error.advice


async def test_answer_when_it_ends_with_the_connection_then_counts():
    data = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n[]"
    async with http_server(writing(data)) as server:
        conversation = await server.open()
        assert await conversation.request(GetStreams(), timeout=TIMEOUT) == ()
        await conversation.request(Ping(), timeout=TIMEOUT)
        assert server.dials_count == 2


async def test_answer_when_others_come_before_it_then_they_are_skipped():
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"
    data = early + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]"
    async with http_server(writing(data)) as server:
        conversation = await server.open()
        assert await conversation.request(GetStreams(), timeout=TIMEOUT) == ()


async def test_answer_when_more_follows_then_the_connection_is_not_used_again():
    twice = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]" * 2

    async def generous(peer: HttpPeer) -> None:
        while (heard := await peer.hear()).line == "GET /ping":
            await peer.answer(heard)
        await peer.write(twice)
        await anyio.sleep_forever()

    async with http_server(generous) as server:
        conversation = await server.open()
        for _ in range(3):
            assert await conversation.request(GetStreams(), timeout=TIMEOUT) == ()
        assert server.dials_count == 3


async def test_open_when_a_proxy_answers_for_everything_then_is_no_iggy_server():
    async def portal(peer: HttpPeer) -> None:
        while True:
            await peer.hear()
            await peer.reply(200, HTML)

    async with http_server(portal) as server:
        client = server.client(reconnect=Reconnect(delay=0.1))
        with pytest.raises(ProtocolError, match="ping"):
            await client.connect()
        assert len(server.heard) == 1


# Connections that break


class Breaking:
    """Serves what a client asks by itself; ends the connection with the first other requests."""

    MANNERS = ("GET /ping", "POST /users/login", "GET /cluster/metadata")

    def __init__(self, after: bytes = b"", *, times: int = 1) -> None:
        self.after = after
        self.times = times
        self.broken_count = 0

    async def __call__(self, peer: HttpPeer) -> None:
        while True:
            heard = await peer.hear()
            if heard.line in self.MANNERS or self.broken_count >= self.times:
                await peer.answer(heard)
            else:
                self.broken_count += 1
                if self.after:
                    await peer.write(self.after)
                return


async def test_request_when_a_kept_connection_was_closed_then_goes_over_another_one():
    async def once(peer: HttpPeer) -> None:
        await peer.answer(await peer.hear())

    async with http_server(once) as server:
        conversation = await server.open()
        for _ in range(3):
            # A closed connection is seen before it is used, so even a send is safe.
            await conversation.request(send(), timeout=TIMEOUT)
        assert server.dials_count == 4
        assert not conversation.is_closed


async def test_question_when_its_kept_connection_breaks_then_is_asked_once_more():
    async with http_server(Breaking()) as server:
        conversation = await server.open()
        assert await conversation.request(GetStream("shop"), timeout=TIMEOUT) is None
        assert server.lines == ["GET /streams/shop"] * 2
        assert not conversation.is_closed


async def test_send_when_its_kept_connection_breaks_then_is_not_repeated():
    async with http_server(Breaking()) as server:
        conversation = await server.open()
        with pytest.raises(DisconnectedError) as caught:
            await conversation.request(send(), timeout=TIMEOUT)

        assert caught.value.sent
        assert len(server.lines) == 1
        # Only that connection was lost.
        assert not conversation.is_closed
        await conversation.request(send(), timeout=TIMEOUT)


async def test_send_when_it_was_not_written_then_is_sent_once_more():
    class CutsIn(Breaking):
        async def __call__(self, peer: HttpPeer) -> None:
            await peer.answer(await peer.hear())
            if self.broken_count < self.times:
                self.broken_count += 1
                await peer.wire.receive_into(memoryview(bytearray(100)))
                return
            await super().__call__(peer)

    async with http_server(CutsIn(), capacity_bytes=1_000) as server:
        conversation = await server.open()
        await conversation.request(send(50_000), timeout=TIMEOUT)
        assert len(server.lines) == 1
        assert server.dials_count == 2


async def test_question_when_a_new_connection_breaks_as_well_then_the_conversation_ends():
    async with http_server(Breaking(times=2)) as server:
        conversation = await server.open()
        with pytest.raises(DisconnectedError):
            await conversation.request(GetStreams(), timeout=TIMEOUT)
        assert conversation.is_closed
        assert conversation.is_ended_by_peer


@pytest.mark.parametrize(
    "after",
    [
        b"HTTP/1.1 200 OK\r\nconte",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n[",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n[\r\n",
    ],
)
async def test_answer_when_it_is_cut_then_the_client_dials_again_and_asks_once_more(after):
    async with http_server(Breaking(after)) as server, server.client() as client:
        assert await client.get_streams() == []
        assert client.epoch == 2
        assert client.statistics().resends == 1


async def test_send_when_the_answer_is_cut_then_the_caller_decides():
    async with http_server(Breaking(b"HTTP/1.1 201 Cre")) as server, server.client() as client:
        with pytest.raises(DisconnectedError) as caught:
            await client.request(send())
        assert caught.value.sent
        await client.request(send())
        assert server.lines.count("POST /streams/shop/topics/orders/messages") == 2


async def test_request_when_the_server_is_gone_then_waits_until_it_is_back():
    async with http_server() as server, server.client() as client:
        server.is_dead = True
        for peer in server.peers:
            peer.wire.abort()

        async def revive() -> None:
            await anyio.sleep(10)
            server.is_dead = False

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(revive)
            # Nothing of it was sent, so even a send is repeated.
            await client.request(send())
        assert client.epoch == 2
        assert server.lines.count("POST /users/login") == 2


async def test_heartbeat_when_the_server_is_gone_then_an_idle_client_notices():
    async with http_server() as server, server.client(heartbeat_interval=5.0) as client:
        server.is_dead = True
        for peer in server.peers:
            peer.wire.abort()
        await anyio.sleep(6)
        assert not client.is_connected
        server.is_dead = False
        await anyio.sleep(60)
        assert client.is_connected


# Proxies


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_proxy_when_it_cannot_reach_the_server_then_the_client_comes_back(status):
    class Proxy:
        is_up = True

        async def __call__(self, peer: HttpPeer) -> None:
            while True:
                heard = await peer.hear()
                if self.is_up:
                    await peer.answer(heard)
                else:
                    await peer.reply(status, HTML)

    proxy = Proxy()

    async def revive() -> None:
        await anyio.sleep(10)
        proxy.is_up = True

    async with http_server(proxy) as server, server.client() as client:
        proxy.is_up = False
        with pytest.raises(DisconnectedError, match=f"proxy.*{status}") as caught:
            await client.request(send())
        assert caught.value.sent
        assert caught.value.retriable
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(revive)
            assert await client.get_streams() == []
        assert client.epoch == 2


async def test_proxy_when_it_cannot_reach_the_server_at_first_then_says_so():
    async def proxy(peer: HttpPeer) -> None:
        while True:
            await peer.hear()
            await peer.reply(502, HTML)

    async with http_server(proxy) as server:
        client = server.client(reconnect=Reconnect(enabled=False))
        with pytest.raises(ConnectionFailedError, match="proxy"):
            await client.connect()


async def test_request_when_a_proxy_is_named_in_the_environment_then_it_is_not_used(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://user:secret@proxy.example:3128")
    async with http_server() as server, server.client() as client:
        await client.get_streams()

        assert [heard.headers[b"host"] for heard in server.heard] == [b"one.example:3000"] * len(
            server.heard
        )


async def test_target_when_a_name_has_line_ends_then_nothing_is_smuggled():
    async with http_server() as server:
        conversation = await server.open()
        name = "a HTTP/1.1\r\nhost: elsewhere\r\n\r\n"
        assert await conversation.request(GetStream(name), timeout=TIMEOUT) is None
        assert len(server.lines) == 1
        assert server.lines[0].endswith("%0D%0A%0D%0A")
