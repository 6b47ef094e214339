"""A session on real sockets: where the engine calls when bytes come, and where somebody waits.

The other tests of the session talk through memory, on a clock that jumps. These go through what
only sockets have, with the same scripts at the other end.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from iggy_protocol import GetStream, Ping, StatusCode
from iggy_sdk.errors import (
    ClientClosedError,
    DisconnectedError,
    IggyError,
    ProtocolError,
    RequestTimeoutError,
)
from iggy_sdk.options import Endpoint
from iggy_sdk.session import WATCH_AFTER_SECONDS, Session
from iggy_sdk.transport.tcp import TcpTransport
from tests.sdk.cancelling import cancelled_everywhere
from tests.sdk.net.sessions import TIMEOUT, WATCHED, details, large_send, tell_names
from tests.sdk.scripted_peer import Peer, PeerGone, Script, options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


def socket_pair() -> tuple[TcpTransport, TcpTransport]:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    return TcpTransport(near, peer="far"), TcpTransport(far, peer="near")


@asynccontextmanager
async def open_session(
    script: Script = tell_names, *, watched: bool = True, **changes: Any
) -> AsyncIterator[Session]:
    near, far = socket_pair()

    async def attend() -> None:
        try:
            await script(Peer(far, Endpoint("far", 1)))
        except PeerGone:
            return
        finally:
            far.abort()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(attend)
        session = Session(near, options(**changes))
        if watched:
            tasks.start_soon(session.run)
        yield session
        await session.aclose()
        tasks.cancel_scope.cancel()


@WATCHED
async def test_requests_when_they_come_one_by_one_then_each_gets_its_reply(watched):
    async with open_session(watched=watched) as session:
        for number in range(300):
            name = f"s{number}"
            assert await session.request(GetStream(name), timeout=TIMEOUT) == details(name)


@WATCHED
async def test_requests_when_many_tasks_ask_then_each_gets_its_reply(watched):
    async def ask(number: int) -> None:
        for turn in range(20):
            name = f"s{number}-{turn}"
            assert await session.request(GetStream(name), timeout=TIMEOUT) == details(name)

    async with (
        open_session(watched=watched, max_outstanding=10) as session,
        anyio.create_task_group() as tasks,
    ):
        for number in range(30):
            tasks.start_soon(ask, number)


@WATCHED
async def test_request_when_cancelled_at_any_checkpoint_then_the_next_get_their_own(watched):
    async with open_session(watched=watched) as session:

        async def ask() -> None:
            await session.request(GetStream("cancelled"), timeout=TIMEOUT)

        async for checkpoint in cancelled_everywhere(ask):
            name = f"after-{checkpoint}"
            assert await session.request(GetStream(name), timeout=TIMEOUT) == details(name)

        assert session.failure is None


@WATCHED
async def test_write_when_cancelled_at_any_checkpoint_then_the_session_is_whole_or_closed(watched):
    async def slowly(peer: Peer) -> None:
        await anyio.sleep(0.01)
        await tell_names(peer)

    for checkpoint in range(1, 6):
        async with open_session(slowly, watched=watched) as session:
            with anyio.move_on_after(0.003 * checkpoint):
                await session.request(large_send(3_000_000), timeout=TIMEOUT)
            if session.failure is None:
                reply = await session.request(GetStream("next"), timeout=TIMEOUT)
                assert reply == details("next")
            else:
                assert isinstance(session.failure, DisconnectedError)


@pytest.mark.parametrize("seconds", [0.05, 1.0])
@WATCHED
async def test_request_when_there_is_no_answer_then_ends_in_time_and_drops_the_late_reply(
    watched, seconds
):
    heard = anyio.Event()

    async def late(peer: Peer) -> None:
        await peer.hear()
        await heard.wait()
        await peer.reply(details("late"))
        await tell_names(peer)

    async with open_session(late, watched=watched) as session:
        if watched and seconds >= 1.0:
            # The first one wakes the keeper of time, the second one relies on it.
            with pytest.raises(RequestTimeoutError):
                await session.request(GetStream("first"), timeout=0.01)
            await anyio.wait_all_tasks_blocked()
        begun_at = anyio.current_time()
        with pytest.raises(RequestTimeoutError):
            await session.request(GetStream("late"), timeout=seconds)
        elapsed = anyio.current_time() - begun_at
        heard.set()
        assert await session.request(GetStream("next"), timeout=TIMEOUT) == details("next")

    assert elapsed >= seconds - 0.01
    assert elapsed < seconds + WATCH_AFTER_SECONDS + 1.0


@WATCHED
async def test_session_when_the_server_closes_inside_a_frame_then_everybody_is_told(watched):
    async def torn(peer: Peer) -> None:
        await peer.hear()
        await peer.hear()
        await peer.write(b"\0\0\0\0\xff\0\0\0only a part of the reply")

    async def ask() -> None:
        with pytest.raises(DisconnectedError, match="closed"):
            await session.request(GetStream("shop"), timeout=TIMEOUT)

    async with open_session(torn, watched=watched) as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
        assert isinstance(session.failure, DisconnectedError)
        assert session.is_ended_by_peer


@WATCHED
async def test_session_when_the_server_writes_garbage_then_is_a_protocol_error(watched):
    async def other_protocol(peer: Peer) -> None:
        await peer.hear()
        await peer.write(b"\0\0\0\0\xff\xff\xff\xffHTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.serve()

    async with open_session(other_protocol, watched=watched) as session:
        with pytest.raises(ProtocolError):
            await session.request(GetStream("shop"), timeout=TIMEOUT)


async def test_session_when_an_idle_server_takes_its_leave_then_run_returns():
    async def farewell(peer: Peer) -> None:
        await anyio.sleep(3 * WATCH_AFTER_SECONDS)
        await peer.push(StatusCode.DISCONNECTED)
        await peer.serve()

    async with open_session(farewell, watched=False) as session:
        await session.run()

        assert session.is_closed
        with pytest.raises(DisconnectedError) as caught:
            await session.request(Ping(), timeout=TIMEOUT)
        assert not caught.value.sent


async def test_session_when_the_server_went_while_nobody_looked_then_the_next_request_fails():
    async def goes(peer: Peer) -> None:
        await peer.answer(await peer.hear())

    async with open_session(goes, watched=False) as session:
        await session.request(Ping(), timeout=TIMEOUT)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(DisconnectedError):
            await session.request(Ping(), timeout=TIMEOUT)
        assert session.is_closed


@pytest.mark.parametrize("is_idle", [True, False])
async def test_run_when_the_session_is_closed_then_returns(is_idle):
    near, far = socket_pair()
    session = Session(near, options())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        await anyio.wait_all_tasks_blocked()
        if is_idle:
            await anyio.sleep(2 * WATCH_AFTER_SECONDS)
        await session.aclose()
    far.abort()

    with pytest.raises(ClientClosedError):
        await session.request(Ping(), timeout=TIMEOUT)


def test_session_when_the_program_is_asyncios_own_then_works_the_same():
    """Nothing tells the callbacks of such a loop which library runs it."""

    async def hang_up(peer: Peer) -> None:
        await peer.hear()

    async def converse() -> IggyError | None:
        async with open_session() as session:
            assert await session.request(GetStream("shop"), timeout=TIMEOUT) == details("shop")
        async with open_session(hang_up) as session:
            with pytest.raises(DisconnectedError):
                await session.request(Ping(), timeout=TIMEOUT)
            return session.failure

    assert isinstance(asyncio.run(converse()), DisconnectedError)
