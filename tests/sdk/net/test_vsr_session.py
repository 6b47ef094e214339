"""A session with a server from 0.9 on pairs replies with requests by number, whoever leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from iggy_protocol import (
    V0_11,
    ConsumerIdentity,
    EvictionReason,
    GetStream,
    Ping,
    PollDeferred,
    PollingStrategy,
    SendMessages,
    StatusCode,
)
from iggy_sdk.errors import (
    AuthenticationError,
    DisconnectedError,
    EvictedError,
    ProtocolError,
    RequestTimeoutError,
    StreamNotFoundError,
)
from tests.sdk.cancelling import cancelled_everywhere, tasks_at_rest
from tests.sdk.net.sessions import TIMEOUT, WATCHED, large_send
from tests.sdk.net.vsr_sessions import ALL, LATER, open_vsr_session, stream_named

if TYPE_CHECKING:
    from tests.sdk.vsr_peer import VsrPeer

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

MICROSECONDS = 1_000_000


async def tell_names(peer: VsrPeer) -> None:
    """Answer every question for a stream with its own name."""
    while True:
        command = await peer.hear()
        if isinstance(command, GetStream):
            await peer.reply(stream_named(str(command.stream)))
        else:
            await peer.reply(None)


def deferred(wait_s: float = 20.0) -> PollDeferred:
    wait_us = int(wait_s * MICROSECONDS)
    return PollDeferred(
        ConsumerIdentity.single(1),
        "shop",
        "orders",
        PollingStrategy.offset(0),
        10,
        wait_us,
        wait_us + MICROSECONDS,
        partition_id=0,
    )


def large(size: int) -> SendMessages:
    return replace(large_send(size), random=bytes(range(16)))


async def ask(session: Any, name: str) -> None:
    assert await session.request(GetStream(name), timeout=TIMEOUT) == stream_named(name)


@ALL
@WATCHED
async def test_request_when_answered_then_returns_the_decoded_reply(dialect, watched):
    async with open_vsr_session(tell_names, dialect, watched=watched) as session:
        await ask(session, "shop")
        assert session.dialect is dialect


@ALL
async def test_request_when_refused_then_raises_the_error_of_the_status(dialect):
    async def refuse(peer: VsrPeer) -> None:
        await peer.hear()
        await peer.reply(StatusCode.STREAM_ID_NOT_FOUND)
        await peer.serve()

    async with open_vsr_session(refuse, dialect) as session:
        with pytest.raises(StreamNotFoundError, match="GetStream"):
            await session.request(GetStream("shop"), timeout=TIMEOUT)
        await session.request(Ping(), timeout=TIMEOUT)


@LATER
@WATCHED
async def test_replies_when_they_come_in_another_order_then_each_finds_its_request(
    dialect, watched
):
    async def answer_backwards(peer: VsrPeer) -> None:
        asked = []
        for _ in range(20):
            command = await peer.hear()
            asked.append((peer.detach(), command))
        for request, command in reversed(asked):
            await peer.reply_to(request, stream_named(command.stream))
        await peer.serve()

    async with (
        open_vsr_session(answer_backwards, dialect, watched=watched) as session,
        anyio.create_task_group() as tasks,
    ):
        for number in range(20):
            tasks.start_soon(ask, session, f"s{number}")


@WATCHED
async def test_requests_of_0_9_when_many_tasks_ask_then_one_is_on_its_way_at_a_time(watched):
    on_their_way = []

    async def serve_one_by_one(peer: VsrPeer) -> None:
        while True:
            command = await peer.hear()
            for _ in range(5):
                await checkpoint()
            on_their_way.append(session.statistics().waiting)
            await peer.reply(stream_named(command.stream))

    async with (
        open_vsr_session(serve_one_by_one, V0_11, watched=watched) as session,
        anyio.create_task_group() as tasks,
    ):
        for number in range(20):
            tasks.start_soon(ask, session, f"s{number}")

    assert set(on_their_way) == {1}


@LATER
async def test_request_when_cancelled_then_its_reply_is_dropped(dialect):
    released = anyio.Event()

    async def answer_late(peer: VsrPeer) -> None:
        await peer.hear()
        late = peer.detach()
        await released.wait()
        await peer.reply_to(late, stream_named("late"))
        await tell_names(peer)

    async with open_vsr_session(answer_late, dialect) as session:
        with anyio.move_on_after(1):
            await session.request(GetStream("late"), timeout=TIMEOUT)
        released.set()
        await ask(session, "next")
        assert session.statistics().abandoned == 1
        assert session.statistics().connection.outstanding == 0


async def test_request_of_0_9_when_cancelled_then_the_next_one_waits_for_its_reply():
    async def answer_late(peer: VsrPeer) -> None:
        await peer.hear()
        await anyio.sleep(5)
        await peer.reply(stream_named("late"))
        await tell_names(peer)

    async with open_vsr_session(answer_late, V0_11) as session:
        begun_at = anyio.current_time()
        with anyio.move_on_after(1):
            await session.request(GetStream("late"), timeout=TIMEOUT)
        await ask(session, "next")
        assert anyio.current_time() - begun_at == pytest.approx(5, abs=0.1)


async def test_request_of_0_9_when_never_answered_then_the_connection_ends():
    async def swallow(peer: VsrPeer) -> None:
        await peer.hear()
        await anyio.sleep_forever()

    async with open_vsr_session(swallow, V0_11) as session:
        with anyio.move_on_after(1):
            await session.request(GetStream("lost"), timeout=TIMEOUT)
        with pytest.raises(RequestTimeoutError):
            await session.request(GetStream("next"), timeout=TIMEOUT)
        assert session.failure is not None


@ALL
@WATCHED
async def test_request_when_cancelled_anywhere_then_the_session_goes_on(dialect, watched):
    async with open_vsr_session(tell_names, dialect, watched=watched) as session:
        at_rest = await tasks_at_rest()
        async for _ in cancelled_everywhere(lambda: ask(session, "shop")):
            await ask(session, "other")
        assert await tasks_at_rest() == at_rest
        assert session.statistics().connection.outstanding == 0


@LATER
@WATCHED
async def test_deferred_poll_when_it_waits_then_others_are_answered_and_it_is_cancelled(
    dialect, watched
):
    seen: list[Any] = []

    async def park(peer: VsrPeer) -> None:
        seen.append(peer)
        parked = await peer.hear()
        peer.detach()
        assert isinstance(parked, PollDeferred)
        await tell_names(peer)

    async with open_vsr_session(park, dialect, watched=watched) as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poll, session)
            await anyio.sleep(1)
            await ask(session, "shop")
            tasks.cancel_scope.cancel()
        await ask(session, "shop")

    (peer,) = seen
    assert peer.cancelled == [peer.numbers[1]]


async def poll(session: Any) -> None:
    await session.request(deferred(), timeout=TIMEOUT)


@LATER
async def test_deferred_poll_when_cancelled_anywhere_then_the_server_forgets_it_or_never_knew(
    dialect,
):
    seen: list[VsrPeer] = []

    async def park(peer: VsrPeer) -> None:
        seen.append(peer)
        while True:
            command = await peer.hear()
            if isinstance(command, PollDeferred):
                peer.detach()
                await peer.write()
            else:
                await peer.reply(None)

    async with open_vsr_session(park, dialect) as session:
        for seconds in (0, 0.01, 1.0):
            with anyio.move_on_after(seconds):
                await poll(session)
            await session.request(Ping(), timeout=TIMEOUT)

    (peer,) = seen
    polls = [number for number in peer.numbers if number not in peer.numbers[:1]]
    assert set(peer.cancelled) <= set(polls)
    assert len(peer.cancelled) >= 2


@LATER
async def test_deferred_poll_when_the_wire_is_full_then_its_cancel_follows_what_is_written(dialect):
    seen: list[VsrPeer] = []

    async def park(peer: VsrPeer) -> None:
        seen.append(peer)
        await peer.hear()
        peer.detach()
        await anyio.sleep(2)
        await peer.serve()

    async with (
        open_vsr_session(park, dialect, capacity_bytes=4096) as session,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(cancel_after, session, 1.0)
        await anyio.sleep(0.5)
        await session.request(large(100_000), timeout=TIMEOUT)
        await session.request(Ping(), timeout=TIMEOUT)

    assert len(seen[0].cancelled) == 1


async def cancel_after(session: Any, seconds: float) -> None:
    with anyio.move_on_after(seconds):
        await poll(session)


@ALL
async def test_eviction_when_requests_wait_then_all_of_them_learn_the_reason(dialect):
    async def evict(peer: VsrPeer) -> None:
        await peer.hear()
        await peer.evict(EvictionReason.USER_INACTIVE)
        await anyio.sleep_forever()

    async def fail(name: str) -> None:
        with pytest.raises(EvictedError) as caught:
            await session.request(GetStream(name), timeout=TIMEOUT)
        assert caught.value.eviction is not None
        assert caught.value.eviction.reason == EvictionReason.USER_INACTIVE

    async with (
        open_vsr_session(evict, dialect) as session,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(fail, "one")
        tasks.start_soon(fail, "two")
    assert session.identity.session == 0


@ALL
async def test_bytes_when_they_are_no_reply_then_the_session_ends_with_a_protocol_error(dialect):
    async def babble(peer: VsrPeer) -> None:
        await peer.hear()
        await peer.write(b"x" * 300)
        await anyio.sleep_forever()

    async with open_vsr_session(babble, dialect) as session:
        with pytest.raises(ProtocolError):
            await session.request(GetStream("shop"), timeout=TIMEOUT)
        assert session.is_ended_by_peer


@ALL
async def test_request_when_half_of_it_is_written_and_its_task_goes_then_the_session_ends(dialect):
    async def read_nothing(peer: VsrPeer) -> None:
        await anyio.sleep_forever()

    async with open_vsr_session(read_nothing, dialect, capacity_bytes=4096) as session:
        with anyio.move_on_after(1):
            await session.request(large(1_000_000), timeout=TIMEOUT)
        with pytest.raises(DisconnectedError):
            await session.request(Ping(), timeout=TIMEOUT)


@LATER
async def test_request_when_it_times_out_then_others_are_not_disturbed(dialect):
    async def swallow_first(peer: VsrPeer) -> None:
        await peer.hear()
        peer.detach()
        await tell_names(peer)

    async with open_vsr_session(swallow_first, dialect) as session:
        with pytest.raises(RequestTimeoutError, match="no answer came"):
            await session.request(GetStream("lost"), timeout=2.0)
        await ask(session, "shop")


@ALL
async def test_request_when_nobody_has_logged_in_then_it_is_not_sent(dialect):
    async with open_vsr_session(tell_names, dialect) as session:
        session.identity.end()
        with pytest.raises(AuthenticationError):
            await session.request(GetStream("shop"), timeout=TIMEOUT)
        await session.request(Ping(), timeout=TIMEOUT)
