"""A session on real sockets: where the engine calls when bytes come, and where somebody waits.

The other tests of the session talk through memory. These go through what only sockets have, with
the same scripts at the other end. Both ends are in this process, so that nothing is on its way when
every task waits, and the clock may jump.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from iggy_protocol import (
    ConsumerIdentity,
    GetStream,
    Ping,
    PollingStrategy,
    PollMessages,
    StatusCode,
)
from iggy_sdk.connection_string import Endpoint
from iggy_sdk.errors import (
    ClientClosedError,
    DisconnectedError,
    IggyError,
    ProtocolError,
    RequestTimeoutError,
)
from iggy_sdk.session.byte_stream import IDLE_AFTER_SECONDS, READ_ON_BYTES_MIN, READS_MAX
from iggy_sdk.session.stream import StreamSession
from iggy_sdk.transport.tcp import TcpTransport
from tests.sdk.api.polling import polled
from tests.sdk.cancelling import CHECKPOINTS_MAX, cancel_at, cancelled_everywhere
from tests.sdk.net.sessions import TIMEOUT, WATCHED, details, large_send, tell_names
from tests.sdk.scripted_peer import Peer, PeerGone, Script, options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Counted(TcpTransport):
    """A connection that counts, and that may be slow to give.

    Attributes:
        piece_bytes: the most that one system call reads.
        wakes_count: how often the engine was asked for bytes, or told of them.
        reads_count: how often the socket was asked.
        reads_max: how often it was asked at most before the engine had its turn.
    """

    piece_bytes = 10**9
    wakes_count = 0
    reads_count = 0
    reads_max = 0
    _read_before = 0

    async def receive_into(self, space: memoryview) -> int:
        self._note_wake()
        self._note_read()
        return await super().receive_into(space[: self.piece_bytes])

    def receive_nowait(self, space: memoryview) -> int | None:
        self._note_read()
        return super().receive_nowait(space[: self.piece_bytes])

    def add_reader(self, on_bytes: Callable[[], None]) -> bool:
        def counted() -> None:
            self._note_wake()
            on_bytes()

        return super().add_reader(counted)

    def _note_wake(self) -> None:
        self.wakes_count += 1
        self._read_before = self.reads_count

    def _note_read(self) -> None:
        self.reads_count += 1
        self.reads_max = max(self.reads_max, self.reads_count - self._read_before)


def socket_pair() -> tuple[Counted, TcpTransport]:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    return Counted(near, peer="far"), TcpTransport(far, peer="near")


@asynccontextmanager
async def open_session(
    script: Script = tell_names, *, watched: bool = True, **changes: Any
) -> AsyncIterator[StreamSession]:
    async with open_both(script, watched=watched, **changes) as (session, _):
        yield session


@asynccontextmanager
async def open_both(
    script: Script, *, watched: bool = True, **changes: Any
) -> AsyncIterator[tuple[StreamSession, Counted]]:
    """Connect a session to a script, and show its end of the connection as well."""
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
        session = StreamSession(near, options(**changes))
        if watched:
            tasks.start_soon(session.run)
        yield session, near
        await session.aclose()
        tasks.cancel_scope.cancel()


@WATCHED
async def test_requests_when_they_come_one_by_one_then_each_gets_its_reply(watched):
    async with open_session(watched=watched) as session:
        for number in range(300):
            name = f"s{number}"
            assert await session.request(GetStream(name), timeout=TIMEOUT) == details(name)


REPLY = polled([bytes(1_000)] * 100)
POLL = PollMessages(ConsumerIdentity.single(1), "shop", "orders", PollingStrategy.first(), 100)


async def tell_messages(peer: Peer) -> None:
    """Answer every poll with what fits into a socket at once."""
    while True:
        await peer.hear()
        await peer.reply(REPLY)


@pytest.mark.parametrize(
    ("piece_bytes", "wakes_max"), [(10**9, 1), (READ_ON_BYTES_MIN, 1), (1_000, 7)]
)
@WATCHED
async def test_reply_when_large_then_is_read_in_few_turns_of_the_engine(
    watched, piece_bytes, wakes_max
):
    async with open_both(tell_messages, watched=watched) as (session, wire):
        wire.piece_bytes = piece_bytes

        reply = await session.request(POLL, timeout=TIMEOUT)

        assert reply.messages == REPLY.messages
        # What little is missing at the end is waited for piece by piece.
        assert wire.wakes_count <= wakes_max + READ_ON_BYTES_MIN // piece_bytes
        assert wire.reads_max <= READS_MAX


@WATCHED
async def test_replies_when_small_then_the_socket_is_asked_once_for_each(watched):
    async with open_both(tell_names, watched=watched) as (session, wire):
        await session.request(GetStream("first"), timeout=TIMEOUT)
        reads_count = wire.reads_count
        for number in range(20):
            await session.request(GetStream(f"s{number}"), timeout=TIMEOUT)

        assert wire.reads_count == reads_count + 20


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
    given_up = 0
    for checkpoint in range(1, CHECKPOINTS_MAX):
        async with open_session(watched=watched) as session:
            send = partial(session.request, large_send(3_000_000), timeout=TIMEOUT)
            is_reached = await cancel_at(send, checkpoint)
            if session.failure is None:
                reply = await session.request(GetStream("next"), timeout=TIMEOUT)
                assert reply == details("next")
            else:
                assert isinstance(session.failure, DisconnectedError)
                given_up += 1
        if not is_reached:
            assert 0 < given_up < checkpoint
            return
    raise AssertionError("the write does not end")


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
    assert elapsed < seconds + IDLE_AFTER_SECONDS + 1.0


@WATCHED
async def test_session_when_the_server_closes_inside_a_frame_then_every_request_fails(watched):
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
        await anyio.sleep(3 * IDLE_AFTER_SECONDS)
        await peer.push(StatusCode.DISCONNECTED)
        await peer.serve()

    async with open_session(farewell, watched=False) as session:
        await session.run()

        assert session.is_closed
        with pytest.raises(DisconnectedError) as caught:
            await session.request(Ping(), timeout=TIMEOUT)
        assert not caught.value.sent


async def test_session_when_the_server_went_between_requests_then_the_next_request_fails():
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
    session = StreamSession(near, options())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        await anyio.wait_all_tasks_blocked()
        if is_idle:
            await anyio.sleep(2 * IDLE_AFTER_SECONDS)
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
