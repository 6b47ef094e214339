"""A session ends in many ways, and everybody who waits in it is told the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from iggy_protocol import (
    GetStream,
    Ping,
    SendMessages,
    StatusCode,
)
from iggy_sdk.errors import (
    ClientClosedError,
    DisconnectedError,
    InvalidRequestError,
    ProtocolError,
    RequestTimeoutError,
)
from iggy_sdk.session.byte_stream import SHIELDED_BYTES_MAX, SHIELDED_SECONDS_MAX
from tests.sdk.cancelling import cancelled_everywhere
from tests.sdk.net.sessions import TIMEOUT, WATCHED, details, large_send, open_session, tell_names

if TYPE_CHECKING:
    from tests.sdk.scripted_peer import Peer

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


@WATCHED
async def test_session_when_the_server_closes_inside_a_frame_then_says_so(watched):
    async def torn(peer: Peer) -> None:
        await peer.hear()
        await peer.write(b"\0\0\0\0\xff\0\0\0only a part of the reply")

    async with open_session(torn, watched=watched) as session:
        with pytest.raises(DisconnectedError, match="closed") as caught:
            await session.request(GetStream("shop"), timeout=TIMEOUT)

    assert caught.value.sent


@WATCHED
async def test_session_when_the_server_writes_garbage_then_is_a_protocol_error(watched):
    async def other_protocol(peer: Peer) -> None:
        await peer.hear()
        await peer.write(b"\0\0\0\0\xff\xff\xff\xffHTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.serve()

    async with open_session(other_protocol, watched=watched) as session:
        with pytest.raises(ProtocolError, match="allowed"):
            await session.request(GetStream("shop"), timeout=TIMEOUT)
        assert isinstance(session.failure, ProtocolError)


@WATCHED
async def test_session_when_a_reply_has_the_wrong_shape_then_only_that_request_fails(watched):
    async def misshapen(peer: Peer) -> None:
        await peer.hear()
        await peer.write(b"\0\0\0\0\3\0\0\0abc")
        await peer.hear()
        await peer.write(bytes(8))

    async with open_session(misshapen, watched=watched) as session:
        with pytest.raises(ProtocolError):
            await session.request(GetStream("shop"), timeout=TIMEOUT)
        await session.request(Ping(), timeout=TIMEOUT)


@WATCHED
async def test_session_when_the_server_stops_then_the_waiting_do_not_know(watched):
    async def stop(peer: Peer) -> None:
        await peer.hear()
        await peer.hear()
        await peer.push(StatusCode.DISCONNECTED)
        await peer.serve()

    errors: list[DisconnectedError] = []

    async def ask() -> None:
        with pytest.raises(DisconnectedError) as caught:
            await session.request(GetStream("shop"), timeout=TIMEOUT)
        errors.append(caught.value)

    async with open_session(stop, watched=watched) as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
        assert session.is_closed

    assert [error.sent for error in errors] == [True, True]


async def test_session_when_an_idle_server_takes_its_leave_then_run_returns_at_once():
    async def farewell(peer: Peer) -> None:
        await anyio.sleep(5)
        await peer.push(StatusCode.DISCONNECTED)
        await peer.serve()

    async with open_session(farewell, watched=False) as session:
        await session.run()

        assert anyio.current_time() == pytest.approx(5.0, abs=0.2)
        with pytest.raises(DisconnectedError) as caught:
            await session.request(Ping(), timeout=TIMEOUT)
        assert not caught.value.sent


@WATCHED
async def test_write_when_the_wire_is_full_then_others_wait_and_nothing_is_mixed(watched):
    async def slowly(peer: Peer) -> None:
        while True:
            await anyio.sleep(0.01)
            command = await peer.hear()
            await peer.reply(None if isinstance(command, SendMessages) else details("shop"))

    replies: list[object] = []

    async def ask(size: int) -> None:
        command = large_send(size) if size else GetStream("shop")
        replies.append(await session.request(command, timeout=TIMEOUT))

    async with (
        open_session(slowly, watched=watched, capacity_bytes=1_000) as session,
        anyio.create_task_group() as tasks,
    ):
        for size in (50_000, 0, 200_000, 0, 0, 10):
            tasks.start_soon(ask, size)

    assert replies.count(None) == 3
    assert replies.count(details("shop")) == 3


@WATCHED
async def test_write_when_the_server_reads_late_then_waits_for_it(watched):
    async def late(peer: Peer) -> None:
        await anyio.sleep(20)
        await tell_names(peer)

    async with open_session(late, watched=watched, capacity_bytes=100) as session:
        await session.request(large_send(1_000), timeout=TIMEOUT)

        assert session.failure is None


@WATCHED
async def test_write_when_cancelled_and_the_rest_is_small_then_it_is_finished(watched):
    async with open_session(tell_names, watched=watched, capacity_bytes=700) as session:

        async def send() -> None:
            await session.request(large_send(5_000), timeout=TIMEOUT)

        async for checkpoint in cancelled_everywhere(send):
            name = f"after-{checkpoint}"
            assert await session.request(GetStream(name), timeout=TIMEOUT) == details(name)

        assert session.failure is None


@WATCHED
async def test_write_when_cancelled_and_the_rest_is_large_then_the_connection_is_given_up(watched):
    async def deaf(peer: Peer) -> None:
        await anyio.sleep_forever()

    async with open_session(deaf, watched=watched) as session:
        with anyio.move_on_after(1):
            await session.request(large_send(4 * SHIELDED_BYTES_MAX), timeout=TIMEOUT)

        assert isinstance(session.failure, DisconnectedError)


@WATCHED
async def test_write_when_the_rest_is_small_and_the_server_deaf_then_cancelling_takes_a_moment(
    watched,
):
    async def deaf(peer: Peer) -> None:
        await anyio.sleep_forever()

    async with open_session(deaf, watched=watched, capacity_bytes=100) as session:
        begun_at = anyio.current_time()
        with anyio.move_on_after(1):
            await session.request(large_send(1_000), timeout=TIMEOUT)

        assert isinstance(session.failure, DisconnectedError)
        assert anyio.current_time() - begun_at == pytest.approx(1.0 + SHIELDED_SECONDS_MAX)


async def test_request_when_it_never_left_then_the_error_says_so():
    async def hang_up_on_large(peer: Peer) -> None:
        await anyio.sleep(1)

    errors: list[DisconnectedError] = []

    async def ask(size: int) -> None:
        with pytest.raises(DisconnectedError) as caught:
            await session.request(large_send(size), timeout=TIMEOUT)
        errors.append(caught.value)

    async with (
        open_session(hang_up_on_large, capacity_bytes=1_000) as session,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(ask, 500)
        await anyio.sleep(0.1)
        tasks.start_soon(ask, 5_000)
        await anyio.sleep(0.1)
        tasks.start_soon(ask, 500)

    assert sorted(error.sent for error in errors) == [False, False, True]


async def test_request_when_the_command_does_not_fit_the_wire_then_the_session_goes_on():
    async with open_session(tell_names) as session:
        with pytest.raises(InvalidRequestError):
            await session.request(GetStream("x" * 256), timeout=TIMEOUT)

        assert await session.request(GetStream("shop"), timeout=TIMEOUT) == details("shop")


@WATCHED
async def test_aclose_when_a_request_is_under_way_then_it_may_end(watched):
    async def slowly(peer: Peer) -> None:
        await peer.hear()
        await anyio.sleep(2)
        await peer.reply(None)
        await peer.serve()

    ended = 0

    async def ask() -> None:
        nonlocal ended
        await session.request(Ping(), timeout=TIMEOUT)
        ended += 1

    async with (
        open_session(slowly, watched=watched, close_timeout=5.0) as session,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(ask)
        await anyio.sleep(1)
        await session.aclose()
        assert anyio.current_time() == pytest.approx(2.0, abs=0.1)

    assert ended == 1


@WATCHED
async def test_aclose_when_the_server_is_wedged_then_takes_the_close_timeout(watched):
    async def wedged(peer: Peer) -> None:
        while True:
            await peer.hear()

    async def ask() -> None:
        with pytest.raises(ClientClosedError):
            await session.request(Ping(), timeout=TIMEOUT)

    async with open_session(wedged, watched=watched, close_timeout=5.0) as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(1)
            await session.aclose()
            assert anyio.current_time() == pytest.approx(6.0, abs=0.1)
        with pytest.raises(ClientClosedError):
            await session.request(Ping(), timeout=TIMEOUT)


async def test_aclose_when_only_the_abandoned_are_waiting_then_takes_no_time():
    async def wedged(peer: Peer) -> None:
        while True:
            await peer.hear()

    async with open_session(wedged) as session:
        with pytest.raises(RequestTimeoutError):
            await session.request(Ping(), timeout=1.0)
        begun_at = anyio.current_time()
        await session.aclose()

        assert anyio.current_time() == begun_at


async def test_aclose_when_cancelled_then_closes_all_the_same():
    async with open_session(tell_names) as session:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.aclose()

        assert session.is_closed
