"""A lost connection comes back: one dial for all callers, and only harmless requests twice."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest

from iggy_protocol import (
    Command,
    CreateStream,
    GetMe,
    GetStream,
    LogoutUser,
    Partitioning,
    Ping,
    SendMessages,
    StatusCode,
)
from iggy_sdk.errors import (
    AuthenticationError,
    ConnectionFailedError,
    DisconnectedError,
    IggyError,
    RequestTimeoutError,
)
from iggy_sdk.options import Reconnect
from tests.sdk.cancelling import CHECKPOINTS_MAX, cancel_at, tasks_at_rest
from tests.sdk.net.clients import ONE, HangsUpOn, Recorder, client_of, send
from tests.sdk.scripted_peer import (
    Peer,
    scripted_server,
)

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

# Coming back


async def test_connection_when_it_is_lost_while_idle_then_comes_back_by_itself():
    script = Recorder()
    async with scripted_server(script) as server, client_of(server) as client:
        await anyio.sleep(10)
        server.peers[0].wire.abort()
        await anyio.sleep(1)

        assert client.is_connected
        assert client.epoch == 2
        assert client.statistics().disconnects == 1

    assert script.kinds() == [["LoginUser", "GetClusterMetadata"]] * 2


async def test_connection_when_it_is_lost_under_many_callers_then_one_of_them_dials():
    script = HangsUpOn(GetStream)
    async with scripted_server(script) as server, client_of(server) as client:
        await anyio.sleep(10)

        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(client.request, GetStream("shop"))

        assert len(server.dialled) == 2
        assert client.epoch == 2


async def test_request_when_cancelled_at_any_checkpoint_of_coming_back_then_the_next_one_works():
    for checkpoint in range(1, CHECKPOINTS_MAX):
        script = HangsUpOn(GetStream)
        async with scripted_server(script) as server, client_of(server) as client:
            await client.request(Ping())
            tasks = await tasks_at_rest()

            ask = partial(client.request, GetStream("shop"))
            is_reached = await cancel_at(ask, checkpoint, children=True)
            assert await client.request(GetStream("next")) is None

            assert client.epoch == 2
            assert len(server.dialled) <= 3  # A dial that was cancelled is made again.
            # One server went and another one came, and nobody else stayed.
            assert len(await tasks_at_rest()) == len(tasks)
        if not is_reached:
            assert checkpoint > 2
            return
    raise AssertionError("the call does not end")


async def test_connection_when_the_server_is_away_then_callers_wait_and_dials_are_few():
    async with scripted_server() as server, client_of(server) as client:
        await anyio.sleep(10)
        server.dead.add(ONE)
        server.peers[0].wire.abort()

        async def come_back() -> None:
            await anyio.sleep(5)
            server.dead.clear()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(come_back)
            for _ in range(200):
                tasks.start_soon(client.request, Ping())

        assert client.epoch == 2
        assert len(server.dialled) <= 10


async def test_connection_when_the_server_stays_away_then_callers_end_in_their_own_time():
    async with scripted_server() as server, client_of(server) as client:
        await anyio.sleep(10)
        server.dead.add(ONE)
        server.peers[0].wire.abort()
        begun_at = anyio.current_time()
        with pytest.raises(RequestTimeoutError, match="did not come back"):
            await client.request(Ping(), timeout=7.0)

        assert anyio.current_time() - begun_at == pytest.approx(7.0, abs=0.1)


async def test_connection_when_retries_are_used_up_then_the_waiting_hear_it_once():
    async with scripted_server() as server:
        client = client_of(server, reconnect=Reconnect(retries=2, jitter=0.0))
        async with client:
            await anyio.sleep(10)
            server.dead.add(ONE)
            server.peers[0].wire.abort()
            errors: list[IggyError] = []

            async def ask() -> None:
                try:
                    await client.ping()
                except ConnectionFailedError as error:
                    errors.append(error)

            async with anyio.create_task_group() as tasks:
                for _ in range(50):
                    tasks.start_soon(ask)

            assert len(errors) == 50
            assert len(server.dialled) == 1 + 3

            server.dead.clear()
            await anyio.sleep(60)
            await client.ping()
            assert client.epoch == 2


async def test_connection_when_the_server_hangs_up_at_once_every_time_then_dials_slow_down():
    async def rude(peer: Peer) -> None:
        await peer.welcome()

    async with scripted_server(rude) as server, client_of(server):
        await anyio.sleep(60)

    assert len(server.dialled) < 15


async def test_connection_when_it_is_given_up_here_then_the_next_dial_has_no_pause():
    command = SendMessages("shop", "orders", Partitioning.partition(0), [bytes(1_000_000)])

    async def reads_little(peer: Peer) -> None:
        await peer.welcome()
        await anyio.sleep_forever()

    async with scripted_server(reads_little) as server, client_of(server) as client:
        begun_at = anyio.current_time()
        for _ in range(5):
            with anyio.move_on_after(0.01):
                await client.request(command)
        assert anyio.current_time() - begun_at < 0.1

    assert len(server.dialled) >= 5


async def test_connection_when_a_cool_down_is_set_then_waits_since_the_last_connect():
    reconnect = Reconnect(jitter=0.0, reestablish_after=30.0)
    async with scripted_server() as server, client_of(server, reconnect=reconnect) as client:
        connected_at = anyio.current_time()
        await anyio.sleep(10)
        server.peers[0].wire.abort()
        await client.ping()

        assert anyio.current_time() - connected_at == pytest.approx(30.0, abs=0.1)


async def test_connection_when_reconnecting_is_off_then_calls_fail_until_connect():
    reconnect = Reconnect(enabled=False)
    async with scripted_server() as server, client_of(server, reconnect=reconnect) as client:
        await anyio.sleep(10)
        server.peers[0].wire.abort()
        await anyio.sleep(10)
        with pytest.raises(DisconnectedError, match="connect") as caught:
            await client.ping()
        assert not caught.value.sent

        await client.connect()
        await client.ping()
        assert client.epoch == 2


async def test_connection_when_the_password_changed_meanwhile_then_callers_are_told():
    async def forgetful(peer: Peer) -> None:
        if len(server.dialled) > 1:
            await peer.hear()
            await peer.reply(StatusCode.INVALID_CREDENTIALS)
        await peer.serve()

    async with scripted_server(forgetful) as server, client_of(server) as client:
        await anyio.sleep(10)
        server.peers[0].wire.abort()
        await anyio.sleep(100)

        assert len(server.dialled) == 2
        with pytest.raises(AuthenticationError):
            await client.ping()


# Repeating


async def test_request_when_the_connection_breaks_and_it_is_a_question_then_is_sent_again():
    script = HangsUpOn(GetStream)
    async with scripted_server(script) as server, client_of(server) as client:
        assert await client.request(GetStream("shop")) is None
        assert client.statistics().resends == 1


@pytest.mark.parametrize("command", [send(), CreateStream("shop"), LogoutUser()])
async def test_request_when_it_left_and_may_not_be_repeated_then_is_sent_once(command):
    script = HangsUpOn(type(command))
    async with scripted_server(script) as server, client_of(server) as client:
        with pytest.raises(DisconnectedError) as caught:
            await client.request(command)
        await client.ping()

    assert caught.value.sent
    assert sum(kinds.count(type(command).__name__) for kinds in script.kinds()) == 1


async def test_request_when_it_never_left_then_is_sent_on_the_next_connection():
    """The frame is larger than the wire, and the server goes before it has read all of it."""
    command = SendMessages("shop", "orders", Partitioning.partition(0), [bytes(100_000)])

    class ReadsNothing(Recorder):
        async def __call__(self, peer: Peer) -> None:
            if not self.heard:
                self.heard.append([])
                await peer.welcome()
                await anyio.sleep(5)
            else:
                await super().__call__(peer)

    script = ReadsNothing()
    async with scripted_server(script, capacity_bytes=1_000) as server, client_of(server) as client:
        await client.request(command)
        assert client.statistics().resends == 1

    assert script.kinds()[1] == ["LoginUser", "GetClusterMetadata", "SendMessages"]


async def test_request_when_every_connection_breaks_under_it_then_gives_up():
    script = HangsUpOn(GetStream, times=1_000)
    async with scripted_server(script) as server, client_of(server) as client:
        with pytest.raises(DisconnectedError):
            await client.request(GetStream("shop"))

    assert len(script.heard) < 10


@pytest.mark.parametrize("status", [StatusCode.UNAUTHENTICATED, StatusCode.STALE_CLIENT])
async def test_request_when_the_server_forgot_the_login_then_logs_in_again_and_repeats(status):
    class Forgets(Recorder):
        async def answer(self, peer: Peer, command: Command[Any], connection: int) -> None:
            if isinstance(command, SendMessages) and connection == 1:
                await peer.reply(status)
            else:
                await peer.answer(command)

    script = Forgets()
    async with scripted_server(script) as server, client_of(server) as client:
        await client.request(send())

        assert client.epoch == 2


async def test_request_when_never_logged_in_then_the_refusal_is_raised():
    class Strict(Recorder):
        async def answer(self, peer: Peer, command: Command[Any], connection: int) -> None:
            await peer.reply(StatusCode.UNAUTHENTICATED)

    script = Strict()
    async with scripted_server(script) as server, client_of(server, credentials=None) as client:
        with pytest.raises(AuthenticationError):
            await client.request(GetMe())

        assert client.epoch == 1
