"""The HTTP listener under clients of all kinds, good and bad, on real sockets.

Where a clock is moved by hand, nothing depends on how fast the machine is.
"""

from __future__ import annotations

import contextlib
import random
import ssl

import httpx
import pytest
import trio
import trio.testing
import trustme

from iggy_protocol import CreateStream, Ping, StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.net.pipeline import DRAIN_TIMEOUT_S
from iggy_ref_server.web import app, http_connection, http_listener, requests
from iggy_ref_server.web.app import DISCARDING_S
from iggy_ref_server.web.auth import TokenMiddleware
from iggy_ref_server.web.context import WebDispatcher
from tests.server.web.web_harness import ROOT, Site, open_site, read_all, read_answer

pytestmark = pytest.mark.trio

PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
LOGIN = b'{"username":"iggy","password":"iggy"}'
POST = b"POST /users/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
LOGIN_REQUEST = POST + b"Content-Length: %d\r\n\r\n%b" % (len(LOGIN), LOGIN)
STALL_S, IDLE_S, HANDSHAKE_S = 30, 120, 10


async def assert_alive(site: Site) -> None:
    """Both listeners of the shard answer."""
    async with await site.connect() as stream:
        await stream.send_all(PING)
        assert (await read_answer(stream)).endswith(b"pong")
    client = await site.world.log_in()
    await client.ask(Ping())
    await client.aclose()


async def until_blocked() -> None:
    await trio.testing.wait_all_tasks_blocked(0.05)


# Good clients


async def test_connection_when_kept_then_serves_one_request_after_another():
    async with open_site() as site, await site.connect() as stream:
        for _ in range(20):
            await stream.send_all(PING)
            assert (await read_answer(stream)).endswith(b"pong")


async def test_requests_when_pipelined_then_are_answered_in_order():
    async with open_site() as site:
        received = await site.say(PING + LOGIN_REQUEST + PING)
        assert received.count(b"HTTP/1.1 200") == 3
        assert received.index(b"pong") < received.index(b"access_token") < received.rindex(b"pong")


async def test_request_when_it_comes_byte_by_byte_then_is_answered():
    async with open_site() as site, await site.connect() as stream:
        for byte in LOGIN_REQUEST:
            await stream.send_all(bytes([byte]))
        assert b"access_token" in await read_answer(stream)


@pytest.mark.parametrize("origin", [b"http://there:1", b"HTTPS://there", b"http://"])
async def test_target_when_it_is_a_whole_address_then_its_path_counts(origin):
    async with open_site() as site:
        assert b"pong" in await site.say(PING.replace(b"/ping", origin + b"/ping"))
        assert b"Iggy API" in await site.say(PING.replace(b"/ping", origin))
        assert b"pong" not in await site.say(PING.replace(b"/ping", b"/" + origin + b"/ping"))


async def test_body_when_chunked_then_is_read():
    async with open_site() as site:
        chunks = b"".join(b"%x\r\n%b\r\n" % (1, bytes([byte])) for byte in LOGIN)
        received = await site.say(
            POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
        )
        assert b"access_token" in received


async def test_client_of_http2_when_it_knows_then_is_served():
    async with open_site() as site:
        async with httpx.AsyncClient(http1=False, http2=True) as client:
            url = f"http://127.0.0.1:{site.port}"
            answer = await client.post(f"{url}/users/login", json=ROOT)
            assert answer.http_version == "HTTP/2"
            token = answer.json()["access_token"]["token"]
            headers = {"authorization": f"Bearer {token}"}
            assert (await client.get(f"{url}/streams", headers=headers)).json() == []
        await assert_alive(site)


# TLS


def certificates() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


async def test_tls_when_configured_then_serves_and_survives_those_who_do_not_speak_it():
    server, trusting = certificates()
    async with open_site(tls=server) as site:
        url = f"https://127.0.0.1:{site.port}"
        async with httpx.AsyncClient(verify=trusting) as client:
            assert (await client.get(f"{url}/ping")).text == "pong"
            assert (await client.post(f"{url}/users/login", json=ROOT)).status_code == 200
        assert b"pong" not in await site.say(PING)
        assert b"pong" not in await site.say(b"\x16\x03\x01\x00\x05rubbish")
        with pytest.raises(httpx.ConnectError):
            async with httpx.AsyncClient() as client:
                await client.get(f"{url}/ping")
        async with httpx.AsyncClient(verify=trusting) as client:
            assert (await client.get(f"{url}/ping")).text == "pong"


async def test_tls_when_the_handshake_never_comes_then_is_given_up(mock_clock):
    server, _ = certificates()
    async with open_site(tls=server) as site, await site.connect() as stream:
        await until_blocked()
        mock_clock.jump(HANDSHAKE_S)
        assert await read_all(stream) == b""


# Bad clients


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"rubbish\r\n\r\n", b"400"),
        (b"\0\1\2\3" * 100 + b"\r\n\r\n", b"400"),
        (b"GET /ping HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", b"400"),
        (b"GET /ping HTTP/1.1\r\n\r\n", b"400"),
        (PING[:-2] + b"X: " + b"a" * 100_000 + b"\r\n\r\n", b"431"),
        (PING[:-2] + b"X: a\r\n" * 20_000 + b"\r\n", b"431"),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"431"),
        (POST + b"Content-Length: -1\r\n\r\n", b"400"),
        (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
        (POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", b"501"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n", b"400"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", b"400"),
        (PING.replace(b"\r\n", b"\n"), b"400"),
        (PING.replace(b"x\r\n", b"x\n"), b"400"),
        (b"GET /ping HTTP/1.1\nHost: x\r\n\r\n", b"400"),
        (PING[:-2] + b"X: a\n\r\n", b"400"),
        (PING[:-2] + b"X: a\rY: b\r\n\r\n", b"400"),
        (PING[:-2] + b"X: a\r\n b\r\n\r\n", b"400"),
        (PING[:-2] + b"X: a\r\n\tb\r\n\r\n", b"400"),
        (PING[:-2] + b"X: a\0b\r\n\r\n", b"400"),
        (PING[:-2] + b"X : a\r\n\r\n", b"400"),
        (PING.replace(b"1.1", b"9.9"), b"505"),
        (PING.replace(b"1.1", b"2.0"), b"505"),
        (PING.replace(b"1.1", b"0.9"), b"505"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n", b"501"),
        (POST + b"Content-Length: 3000000\r\n\r\n" + bytes(3_000_000), b"413"),
        (
            POST
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + b"10000\r\n%b\r\n" % bytes(65_536) * 40
            + b"0\r\n\r\n",
            b"413",
        ),
        (
            b"GET /streams HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n"
            + bytes(3_000_000),
            b"401",
        ),
    ],
)
async def test_request_when_it_cannot_be_served_then_says_so_and_the_listener_stays_open(
    request_, status
):
    async with open_site() as site:
        received = await site.say(request_)
        assert received.startswith(b"HTTP/1.1 " + status), received[:200]
        assert received.count(b"HTTP/1.1 ") == 1
        await assert_alive(site)


async def test_request_when_cut_anywhere_then_other_clients_are_served():
    async with open_site() as site:
        for length in range(0, len(LOGIN_REQUEST), 3):
            received = await site.say(LOGIN_REQUEST[:length])
            assert b"access_token" not in received
        await assert_alive(site)


async def test_bytes_when_random_then_other_clients_are_served():
    noise = random.Random(7)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    upgrade = PING[:-2] + b"Upgrade: h2c\r\nConnection: upgrade\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
    async with open_site() as site:
        for start in (b"", PING[:-4], preface, upgrade, LOGIN_REQUEST[:120]):
            for _ in range(15):
                await site.say(start + noise.randbytes(noise.randrange(200)))
        await assert_alive(site)


async def test_websocket_when_asked_for_then_is_refused():
    async with open_site() as site:
        key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        asked = PING[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n" + key + b"\r\n"
        async with await site.connect() as stream:
            await stream.send_all(asked)
            assert (await read_answer(stream)).startswith(b"HTTP/1.1 403")
        await assert_alive(site)


async def test_head_when_it_dribbles_then_is_given_up(mock_clock):
    """Slow loris: each byte comes in time, the whole never does."""
    async with open_site() as site, await site.connect() as stream:
        await stream.send_all(PING[:5])
        for byte in PING[5:12]:
            await until_blocked()
            mock_clock.jump(STALL_S / 6)
            try:
                await stream.send_all(bytes([byte]))
            except trio.BrokenResourceError:
                break
        assert await read_all(stream) == b""
        await assert_alive(site)


async def test_body_when_it_dribbles_then_is_given_up(mock_clock):
    async with open_site() as site, await site.connect() as stream:
        await stream.send_all(LOGIN_REQUEST[:-5])
        await until_blocked()
        mock_clock.jump(STALL_S + 2_000_000 / 16_384)
        await until_blocked()
        mock_clock.jump(DISCARDING_S)
        assert (await read_answer(stream)).startswith(b"HTTP/1.1 408")
        await assert_alive(site)


async def test_large_bodies_when_many_dribble_then_small_ones_and_logins_do_not_wait(
    mock_clock, monkeypatch
):
    monkeypatch.setattr(requests, "LARGE_BODIES_MAX", 1)
    async with (
        open_site() as site,
        await site.connect() as slow,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{site.port}") as client,
    ):
        login = (await client.post("/users/login", json=ROOT)).json()
        token = login["access_token"]["token"]
        head = POST.replace(b"/users/login", b"/streams")
        head += b"Authorization: Bearer %b\r\n" % token.encode()
        await slow.send_all(head + b"Content-Length: 1000000\r\n\r\n{")
        await until_blocked()
        headers = {"authorization": f"Bearer {token}"}
        made = await client.post("/streams", json={"name": "small"}, headers=headers)
        assert made.status_code == 200
        assert (await client.post("/users/login", json=ROOT)).status_code == 200
        body = {**ROOT, "context": "c" * 100_000}
        assert (await client.post("/users/login", json=body)).status_code == 413


REFUSED = b"POST /streams HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


async def test_body_when_its_request_is_refused_then_is_discarded_and_the_connection_kept():
    async with open_site() as site, await site.connect() as stream:
        for size in (0, 1, 100_000, 1_000_000):
            await stream.send_all(REFUSED % size + bytes(size))
            assert (await read_answer(stream)).startswith(b"HTTP/1.1 401")
        await stream.send_all(PING)
        assert (await read_answer(stream)).endswith(b"pong")


@pytest.mark.parametrize("discarded_bytes_max", [0, 1 << 23])
async def test_body_when_unread_for_long_then_its_request_is_answered_all_the_same(
    discarded_bytes_max, monkeypatch, mock_clock
):
    """Pieces of the body wait for the application, and the server behind waits for them."""
    go_on = trio.Event()

    async def hesitate(self, scope, address):
        await go_on.wait()
        raise ServerFault(StatusCode.UNAUTHENTICATED, "after all")

    monkeypatch.setattr(app, "DISCARDED_BYTES_MAX", discarded_bytes_max)
    monkeypatch.setattr(TokenMiddleware, "_authenticate", hesitate)
    size = 20_000_000
    async with open_site() as site, await site.connect() as stream:

        async def send():
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all(REFUSED % size + bytes(size))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await until_blocked()
            go_on.set()
            assert (await read_all(stream)).startswith(b"HTTP/1.1 401")
            nursery.cancel_scope.cancel()
        await assert_alive(site)


async def test_connection_when_idle_for_long_then_is_closed(mock_clock):
    async with open_site() as site, await site.connect() as stream:
        await stream.send_all(PING)
        assert (await read_answer(stream)).endswith(b"pong")
        await until_blocked()
        mock_clock.jump(IDLE_S - 1)
        await stream.send_all(PING)
        assert (await read_answer(stream)).endswith(b"pong")
        await until_blocked()
        mock_clock.jump(IDLE_S)
        assert await read_all(stream) == b""


async def test_reply_when_the_client_does_not_read_it_then_is_given_up(mock_clock):
    """A half-open client: it asks for much, and is never heard of again."""
    async with open_site() as site:
        async with httpx.AsyncClient() as client:
            token = (
                await client.post(f"http://127.0.0.1:{site.port}/users/login", json=ROOT)
            ).json()
        head = b"Authorization: Bearer " + token["access_token"]["token"].encode()
        stream = await site.connect()
        for number in range(40):
            body = b'{"name":"%b"}' % (b"%03d" % number + b"n" * 250)
            await stream.send_all(
                b"POST /streams HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                + head
                + b"\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            await read_answer(stream)
        one = b"GET /streams HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n"

        async def ask_for_much():
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all(one * 2000)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_for_much)
            await until_blocked()
            await assert_alive(site)
            mock_clock.jump(STALL_S + 5)
            await until_blocked()
            received = await read_all(stream)
            assert 0 < received.count(b"HTTP/1.1 200") < 2000
        await stream.aclose()
        await assert_alive(site)


async def test_connections_when_there_are_too_many_then_the_next_is_closed():
    async with open_site(settings={"LIMITS_HTTP_MAX_CONNECTIONS": "3"}) as site:
        streams = [await site.connect() for _ in range(3)]
        await until_blocked()
        async with await site.connect() as stream:
            assert await read_all(stream) == b""
        for stream in streams:
            await stream.aclose()
        await until_blocked()
        await assert_alive(site)


async def test_connections_when_left_by_their_clients_then_make_room_at_once():
    async with open_site(settings={"LIMITS_HTTP_MAX_CONNECTIONS": "2"}) as site:
        for _ in range(20):
            async with await site.connect() as stream:
                await stream.send_all(PING)
                assert (await read_answer(stream)).endswith(b"pong")
            await until_blocked()


async def test_command_when_its_client_is_gone_before_it_is_done_then_is_done_all_the_same(
    monkeypatch,
):
    began, go_on = trio.Event(), trio.Event()
    perform = WebDispatcher.perform

    async def hesitate(self, session, command):
        if isinstance(command, CreateStream):
            began.set()
            await go_on.wait()
        return await perform(self, session, command)

    monkeypatch.setattr(WebDispatcher, "perform", hesitate)
    async with open_site() as site:
        client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{site.port}")
        login = (await client.post("/users/login", json=ROOT)).json()
        client.headers["authorization"] = f"Bearer {login['access_token']['token']}"
        with trio.CancelScope() as leaving:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: client.post("/streams", json={"name": "s"}))
                await began.wait()
                leaving.cancel()
        await client.aclose()
        await until_blocked()
        go_on.set()
        await until_blocked()
        assert site.world.shards[0].handler_context.metadata().find_stream("s") is not None


# The guard


async def test_connection_when_its_server_fails_then_the_others_and_the_shard_go_on(
    monkeypatch, caplog
):
    async with open_site() as site:
        steady = await site.connect()
        await steady.send_all(PING)
        assert (await read_answer(steady)).endswith(b"pong")

        async def fail(self):
            raise RuntimeError("hypercorn is broken")

        with monkeypatch.context() as patch:
            patch.setattr(http_connection.HttpServerConnection, "run", fail)
            assert await site.say(PING) == b""
        assert "hypercorn is broken" in caplog.text
        await steady.send_all(PING)
        assert (await read_answer(steady)).endswith(b"pong")
        await steady.aclose()
        await assert_alive(site)


async def test_accepting_when_it_fails_then_begins_again(monkeypatch, caplog):
    real = http_listener._HttpServer.accept
    attempts = []

    async def fail_first(self, listener, nursery):
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("accepting is broken")
        await real(self, listener, nursery)

    monkeypatch.setattr(http_listener._HttpServer, "accept", fail_first)
    async with open_site() as site:
        await assert_alive(site)
    assert "accepting is broken" in caplog.text


# The end


async def test_listener_when_closed_then_requests_under_way_are_answered(mock_clock):
    """The clock stands still, so no timeout closes connections."""
    async with open_site() as site, await site.connect() as stream, await site.connect() as idle:
        await stream.send_all(LOGIN_REQUEST[:-5])
        await idle.send_all(PING)
        assert (await read_answer(idle)).endswith(b"pong")
        await until_blocked()
        site.nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            assert await read_all(idle) == b""
            await stream.send_all(LOGIN_REQUEST[-5:])
            assert b"access_token" in await read_all(stream)


async def test_listener_when_closed_under_a_client_that_does_nothing_then_ends_in_time(mock_clock):
    async with open_site() as site, await site.connect() as stream:
        await stream.send_all(LOGIN_REQUEST[:-5])
        await until_blocked()
        site.nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await until_blocked()
            mock_clock.jump(DRAIN_TIMEOUT_S)
            assert await read_all(stream) == b""
