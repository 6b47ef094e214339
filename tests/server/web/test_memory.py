"""What HTTP requests and answers hold, and who may keep whom out, on real sockets."""

from __future__ import annotations

import base64
import json
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio
import trio.testing

from iggy_ref_server.client_limits import BufferBudget
from iggy_ref_server.web.context import WebDispatcher
from tests.server.web.web_harness import ROOT, Site, Web, open_site, read_all, read_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.trio

MIB = 1 << 20
PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
SEND = "/streams/s/topics/t/messages"
# Far above what anything here takes, far below the timeouts that must not be waited for.
PATIENCE_S = 10.0
STRANGERS_MAX = 3


@asynccontextmanager
async def open_shop(
    budget: BufferBudget | None = None, **settings: str
) -> AsyncIterator[tuple[Site, Web]]:
    """Run a server with a topic, and log in."""
    async with (
        open_site(budget=budget, settings=settings) as site,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{site.port}", timeout=PATIENCE_S) as client,
    ):
        web = Web(site.world, client, None)
        await web.log_in()
        await web.make_topic()
        yield site, web


def batch_of(payload: bytes, count: int = 1) -> bytes:
    """Write the body of a request to send messages."""
    message = {"payload": base64.b64encode(payload).decode()}
    partitioning = {"kind": "balanced", "value": ""}
    return json.dumps({"partitioning": partitioning, "messages": [message] * count}).encode()


def head_of(web: Web, length: str) -> bytes:
    lines = [
        f"POST {SEND} HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        f"Authorization: Bearer {web.token}",
        length,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


async def until_blocked() -> None:
    await trio.testing.wait_all_tasks_blocked(0.05)


@pytest.mark.parametrize("kind", ["stated", "chunked"])
async def test_body_when_there_is_no_room_then_waits_while_small_ones_are_served(kind):
    budget = BufferBudget(16 * MIB)
    async with open_shop(budget) as (site, web), await site.connect() as stream:
        other = budget.open("another client", lambda: None, lambda: None)
        other.hold(15 * MIB)
        body = batch_of(bytes(MIB))
        length = f"Content-Length: {len(body)}"
        if kind == "chunked":
            length = "Transfer-Encoding: chunked"
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, head_of(web, length) + body)
            await until_blocked()
            assert budget.accounts_count == 2
            assert (await web.ask("POST", SEND, json.loads(batch_of(b"small")))).status_code == 201
            assert budget.total_bytes < 16 * MIB
            other.hold(0)
            with trio.fail_after(PATIENCE_S):
                assert (await read_answer(stream)).startswith(b"HTTP/1.1 201")
        await until_blocked()
        assert budget.total_bytes == 0
        other.close()
        assert budget.accounts_count == 0


async def test_body_when_it_has_waited_for_long_then_is_refused_and_loses_no_other_time(
    mock_clock,
):
    budget = BufferBudget(16 * MIB)
    async with open_shop(budget) as (site, web), await site.connect() as stream:
        other = budget.open("another client", lambda: None, lambda: None)
        other.hold(15 * MIB)
        await stream.send_all(head_of(web, f"Content-Length: {MIB}"))
        await until_blocked()
        mock_clock.jump(60)
        await until_blocked()
        assert budget.accounts_count == 2
        mock_clock.jump(600)
        await until_blocked()
        mock_clock.jump(10)
        assert (await read_answer(stream)).startswith(b"HTTP/1.1 503")


async def test_body_when_it_could_never_fit_then_is_refused_at_once():
    async with open_shop(BufferBudget(4 * MIB)) as (_, web):
        answer = await web.ask("POST", SEND, json.loads(batch_of(bytes(MIB))))
        assert answer.status_code == 413
        assert (await web.ask("POST", SEND, json.loads(batch_of(bytes(1000))))).status_code == 201


@pytest.mark.parametrize(("payload", "count"), [(bytes(MIB), 1), (b"1", 50_000)])
async def test_request_when_its_command_is_served_then_all_that_it_became_is_counted(
    payload, count, monkeypatch
):
    budget, seen = BufferBudget(256 * MIB), []
    perform = WebDispatcher.perform

    async def look_and_perform(self, session, command):
        seen.append(budget.total_bytes)
        return await perform(self, session, command)

    async with open_shop(budget) as (_, web):
        monkeypatch.setattr(WebDispatcher, "perform", look_and_perform)
        body = batch_of(payload, count)
        answer = await web.client.post(
            SEND,
            content=body,
            headers={"content-type": "application/json", "authorization": f"Bearer {web.token}"},
        )
        assert answer.status_code == 201
        # As contents and as a batch, and an object for each message.
        assert seen == [2 * len(body) + 192 * count]
        await until_blocked()
        assert budget.total_bytes == 0


async def test_poll_when_its_client_does_not_read_and_holds_most_then_its_connection_is_closed(
    caplog,
):
    """The answer is on its way to a socket that is full, which nothing but its end can stop."""
    budget = BufferBudget(64 * MIB)
    async with open_shop(budget) as (site, web):
        for _ in range(8):
            answer = await web.ask("POST", SEND, json.loads(batch_of(bytes(MIB))))
            assert answer.status_code == 201
        await until_blocked()
        tasks_count = trio.lowlevel.current_statistics().tasks_living
        plain = trio.socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await plain.connect(("127.0.0.1", site.port))
        async with trio.SocketStream(plain) as lazy:
            asked = f"GET {SEND}?consumer_id=1&partition_id=0&count=100 HTTP/1.1\r\nHost: x\r\n"
            await lazy.send_all(f"{asked}Authorization: Bearer {web.token}\r\n\r\n".encode())
            await until_blocked()
            assert budget.total_bytes >= 24 * MIB
            other = budget.open("another client", lambda: None, lambda: None)
            other.hold(20 * MIB, 20 * MIB)
            third = budget.open("a third one", lambda: None, lambda: None)
            third.hold(20 * MIB)

            budget.evict_over_limit()

            await until_blocked()
            assert trio.lowlevel.current_statistics().tasks_living == tasks_count
            assert budget.accounts_count == 2
            with trio.fail_after(PATIENCE_S):
                assert len(await read_all(lazy)) < 8 * MIB
            assert "limits.memory_budget" in caplog.text
        assert (await web.ask("GET", "/ping")).text == "pong"


# Who may keep whom out

STRANGERS: dict[str, Any] = {
    "LIMITS_MAX_UNAUTHENTICATED_CONNECTIONS_PER_ADDRESS": str(STRANGERS_MAX)
}
LOGIN_HEAD = (
    b"POST /users/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n{"
)


@pytest.mark.parametrize("said", [b"", b"G", PING[:-2], LOGIN_HEAD])
async def test_newcomer_when_silent_ones_of_its_address_are_many_then_the_oldest_goes(said):
    async with open_shop(**STRANGERS) as (site, web), AsyncExitStack() as stack:
        silent = []
        for _ in range(STRANGERS_MAX):
            silent.append(await stack.enter_async_context(await site.connect()))
            if said:
                await silent[-1].send_all(said)
            await until_blocked()

        newcomer = await stack.enter_async_context(await site.connect())
        await newcomer.send_all(PING)
        with trio.fail_after(PATIENCE_S):
            assert (await read_answer(newcomer)).endswith(b"pong")
            assert await read_all(silent[0]) == b""
        # Whoever has shown a token does not count, and stays.
        assert (await web.ask("GET", "/streams")).status_code == 200


async def test_newcomer_when_others_of_its_address_have_logged_in_then_none_is_closed():
    async with open_shop(**STRANGERS) as (site, web), AsyncExitStack() as stack:
        asked = f"GET /streams HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {web.token}\r\n\r\n"
        known = []
        for _ in range(2 * STRANGERS_MAX):
            known.append(await stack.enter_async_context(await site.connect()))
            await known[-1].send_all(asked.encode())
            assert (await read_answer(known[-1])).startswith(b"HTTP/1.1 200")
        assert (await httpx_login(site)) == 200
        for one in known:
            await one.send_all(asked.encode())
            assert (await read_answer(one)).startswith(b"HTTP/1.1 200")


async def httpx_login(site: Site) -> int:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{site.port}") as client:
        return (await client.post("/users/login", json=ROOT)).status_code


async def test_place_when_all_are_taken_then_one_without_a_login_goes_before_an_older_one_with():
    async with open_shop(LIMITS_HTTP_MAX_CONNECTIONS="3") as (site, web), AsyncExitStack() as stack:
        unauthenticated = []
        for _ in range(2):
            unauthenticated.append(await stack.enter_async_context(await site.connect()))
            await until_blocked()
        newcomer = await stack.enter_async_context(await site.connect())
        await newcomer.send_all(PING)
        assert (await read_answer(newcomer)).endswith(b"pong")
        with trio.fail_after(PATIENCE_S):
            assert await read_all(unauthenticated[0]) == b""
        (kept,) = web.client._transport._pool.connections  # type: ignore[attr-defined]
        assert (await web.ask("GET", "/streams")).status_code == 200
        assert web.client._transport._pool.connections == [kept]  # type: ignore[attr-defined]
