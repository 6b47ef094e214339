"""A session pairs replies with requests by their order, whoever reads and whoever leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
import pytest

from iggy_protocol import (
    GetStream,
    Ping,
    StatusCode,
)
from iggy_sdk.errors import (
    DisconnectedError,
    RequestTimeoutError,
    StreamNotFoundError,
)
from tests.sdk.cancelling import cancelled_everywhere, tasks_at_rest
from tests.sdk.net.sessions import TIMEOUT, WATCHED, details, open_session, tell_names

if TYPE_CHECKING:
    from tests.sdk.scripted_peer import Peer

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


@WATCHED
async def test_request_when_answered_then_returns_the_decoded_reply(watched):
    async with open_session(tell_names, watched=watched) as session:
        reply = await session.request(GetStream("shop"), timeout=TIMEOUT)

    assert reply == details("shop")


@WATCHED
async def test_request_when_refused_then_raises_the_error_of_the_status(watched):
    async def refuse(peer: Peer) -> None:
        await peer.hear()
        await peer.reply(StatusCode.STREAM_ID_NOT_FOUND)
        await peer.serve()

    async with open_session(refuse, watched=watched) as session:
        with pytest.raises(StreamNotFoundError, match="GetStream"):
            await session.request(GetStream("shop"), timeout=TIMEOUT)
        await session.request(Ping(), timeout=TIMEOUT)


@WATCHED
async def test_requests_when_many_tasks_ask_then_all_are_sent_before_the_first_reply(watched):
    heard = 0
    answers: dict[int, object] = {}

    async def hear_all_first(peer: Peer) -> None:
        nonlocal heard
        commands = []
        for _ in range(64):
            commands.append(await peer.hear())
            heard += 1
        for command in commands:
            await peer.reply(details(str(command.stream)))
        await peer.serve()

    async def ask(number: int) -> None:
        answers[number] = await session.request(GetStream(f"s{number}"), timeout=TIMEOUT)

    async with (
        open_session(hear_all_first, watched=watched) as session,
        anyio.create_task_group() as tasks,
    ):
        for number in range(64):
            tasks.start_soon(ask, number)

    assert heard == 64
    assert answers == {number: details(f"s{number}") for number in range(64)}


@WATCHED
async def test_requests_when_more_than_allowed_then_the_rest_waits_its_turn(watched):
    outstanding_max = 0

    async def count(peer: Peer) -> None:
        nonlocal outstanding_max
        while True:
            command = await peer.hear()
            await anyio.sleep(0.01)
            outstanding_max = max(outstanding_max, session.statistics().waiting)
            await peer.reply(details(str(command.stream)))

    async def ask(number: int) -> None:
        reply = await session.request(GetStream(f"s{number}"), timeout=TIMEOUT)
        assert reply == details(f"s{number}")

    async with (
        open_session(count, watched=watched, max_outstanding=3) as session,
        anyio.create_task_group() as tasks,
    ):
        for number in range(20):
            tasks.start_soon(ask, number)

    assert outstanding_max == 3


@WATCHED
async def test_requests_when_the_only_one_allowed_has_left_then_the_next_reads_his_reply(watched):
    async def late(peer: Peer) -> None:
        await peer.hear()
        await anyio.sleep(2)
        await peer.reply(details("late"))
        await tell_names(peer)

    async with open_session(late, watched=watched, max_outstanding=1) as session:
        with pytest.raises(RequestTimeoutError):
            await session.request(GetStream("late"), timeout=0.5)
        assert await session.request(GetStream("next"), timeout=TIMEOUT) == details("next")


@WATCHED
async def test_request_when_cancelled_at_any_checkpoint_then_the_next_get_their_own_replies(
    watched,
):
    async with open_session(tell_names, watched=watched) as session:

        async def ask() -> None:
            await session.request(GetStream("cancelled"), timeout=TIMEOUT)

        tasks, checkpoints = await tasks_at_rest(), 0
        async for checkpoint in cancelled_everywhere(ask, children=True):
            assert await tasks_at_rest() == tasks
            for number in range(3):
                name = f"after-{checkpoint}-{number}"
                assert await session.request(GetStream(name), timeout=TIMEOUT) == details(name)
            checkpoints += 1

        assert checkpoints
        assert session.failure is None
        assert session.statistics().connection.outstanding == 0


@WATCHED
async def test_request_when_cancelled_among_others_then_they_get_their_own_replies(watched):
    """Cancel the one who reads for all, at each of his checkpoints."""

    async def slowly(peer: Peer) -> None:
        while True:
            command = await peer.hear()
            await anyio.sleep(0.01)
            await peer.reply(details(str(command.stream)))

    async with open_session(slowly, watched=watched) as session:
        replies: list[object] = []

        async def ask(name: str) -> None:
            replies.append(await session.request(GetStream(name), timeout=TIMEOUT))

        async def cancelled() -> None:
            await session.request(GetStream("cancelled"), timeout=TIMEOUT)

        async def three_more() -> None:
            await anyio.sleep(0.001)
            async with anyio.create_task_group() as tasks:
                for number in range(3):
                    tasks.start_soon(ask, f"s{number}")

        async def together() -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(three_more)
                async for _ in cancelled_everywhere(cancelled):
                    await anyio.lowlevel.checkpoint()

        for _ in range(5):
            await together()

        assert len(replies) == 15
        assert set(map(str, replies)) == {str(details(f"s{number}")) for number in range(3)}
        assert session.statistics().connection.outstanding == 0


@WATCHED
async def test_request_when_there_is_no_answer_then_raises_in_time_and_the_late_reply_is_dropped(
    watched,
):
    async def late(peer: Peer) -> None:
        command = await peer.hear()
        await anyio.sleep(10)
        await peer.reply(details(str(command.stream)))
        await tell_names(peer)

    async with open_session(late, watched=watched) as session:
        begun_at = anyio.current_time()
        with pytest.raises(RequestTimeoutError, match="within 2 s"):
            await session.request(GetStream("late"), timeout=2.0)
        elapsed = anyio.current_time() - begun_at
        reply = await session.request(GetStream("next"), timeout=TIMEOUT)

    assert 2.0 <= elapsed <= 2.2
    assert reply == details("next")


@pytest.mark.parametrize("seconds", [0.05, 0.9, 1.0, 5.0, 29.0])
@WATCHED
async def test_request_when_there_is_no_answer_then_waits_as_long_as_it_was_told(watched, seconds):
    async def silent(peer: Peer) -> None:
        while True:
            await peer.hear()

    async with open_session(silent, watched=watched) as session:
        begun_at = anyio.current_time()
        with pytest.raises(RequestTimeoutError):
            await session.request(Ping(), timeout=seconds)
        elapsed = anyio.current_time() - begun_at

    assert seconds - 1e-6 <= elapsed <= seconds + 0.2


@WATCHED
async def test_session_when_the_server_is_wedged_then_ends_for_all(watched):
    async def wedged(peer: Peer) -> None:
        while True:
            await peer.hear()

    errors: list[BaseException] = []

    async def ask(seconds: float) -> None:
        try:
            await session.request(GetStream("shop"), timeout=seconds)
        except (RequestTimeoutError, DisconnectedError) as error:
            errors.append(error)

    async with open_session(wedged, watched=watched, request_timeout=30.0) as session:
        begun_at = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, 30.0)
            await anyio.sleep(5)
            tasks.start_soon(ask, 200.0)
            tasks.start_soon(ask, 200.0)
        assert anyio.current_time() - begun_at == pytest.approx(30.0, abs=0.3)
        assert isinstance(session.failure, RequestTimeoutError)

    assert sorted(type(error).__name__ for error in errors) == [
        "DisconnectedError",
        "DisconnectedError",
        "RequestTimeoutError",
    ]


async def test_session_when_short_timeouts_see_no_answer_then_ends_after_the_request_timeout():
    async def wedged(peer: Peer) -> None:
        while True:
            await peer.hear()

    async with open_session(wedged, watched=False, request_timeout=30.0) as session:
        begun_at = anyio.current_time()
        while session.failure is None:
            with pytest.raises((RequestTimeoutError, DisconnectedError)):
                await session.request(Ping(), timeout=0.5)
        assert 30.0 <= anyio.current_time() - begun_at <= 31.0


async def test_session_when_its_watcher_goes_while_a_task_reads_then_deadlines_hold():
    async def silent(peer: Peer) -> None:
        while True:
            await peer.hear()

    async with open_session(silent, watched=False) as session, anyio.create_task_group() as askers:

        async def ask() -> None:
            begun_at = anyio.current_time()
            with pytest.raises(RequestTimeoutError):
                await session.request(Ping(), timeout=7.0)
            assert anyio.current_time() - begun_at == pytest.approx(7.0, abs=0.2)

        async with anyio.create_task_group() as host:
            host.start_soon(session.run)
            await anyio.sleep(0.01)
            askers.start_soon(ask)
            askers.start_soon(ask)
            await anyio.sleep(1)
            host.cancel_scope.cancel()


def test_session_when_asyncio_cancels_the_next_reader_as_he_is_woken_then_another_one_reads():
    """The first one has his reply, hands over to the second, and cancels him in the same breath."""

    async def converse() -> None:
        go_on = asyncio.Event()

        async def in_parts(peer: Peer) -> None:
            for _ in range(3):
                await peer.hear()
            await peer.reply(details("first"))
            await go_on.wait()
            await peer.reply(details("second"))
            await peer.reply(details("third"))
            await peer.serve()

        async def ask(name: str) -> object:
            return await session.request(GetStream(name), timeout=TIMEOUT)

        async def first() -> None:
            await ask("1")
            second.cancel()

        async with open_session(in_parts, watched=False) as session:
            leader = asyncio.create_task(first())
            await asyncio.sleep(0)
            second = asyncio.create_task(ask("2"))
            third = asyncio.create_task(ask("3"))
            await leader
            with pytest.raises(asyncio.CancelledError):
                await second
            go_on.set()
            assert await asyncio.wait_for(third, 5) == details("third")

    asyncio.run(converse())
