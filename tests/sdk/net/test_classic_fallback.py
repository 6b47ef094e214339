"""Commands that newer generations lack, at scripted servers of several generations."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest

from iggy_protocol import (
    V0_11,
    V0_12_2,
    Command,
    Dialect,
    FlushUnsavedBuffer,
    LoginUser,
    LoginWithPersonalAccessToken,
    PurgeStream,
    PurgeTopic,
    StatusCode,
)
from iggy_sdk.connection_string import ServerProtocol
from iggy_sdk.errors import DisconnectedError, RequestTimeoutError, UnsupportedByServerError
from tests.sdk.cancelling import cancel_at
from tests.sdk.net.clients import ONE, client_of
from tests.sdk.scripted_peer import Peer, polite, scripted_server
from tests.sdk.vsr_peer import EveryPeers, vsr_peers

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

AUTO = ServerProtocol.AUTO
PURGE = PurgeTopic("shop", "orders")


class ClassicSide:
    """A server of all generations that remembers what it is asked in that of 0.8.

    Attributes:
        heard: the commands of each connection that logged in.
        peers: their ends.
        steps: what happens at the next purges; they are answered when there are no more.
        silence: until when nothing is answered in the protocol of 0.8, if it is set.
        waiting: set when a client begins to wait for an answer that does not come.
        open_count: how many connections there are, in any protocol.
    """

    def __init__(self, *steps: str) -> None:
        self.heard: list[list[Command[Any]]] = []
        self.peers: list[Peer] = []
        self.steps = list(steps)
        self.silence: anyio.Event | None = None
        self.open_count = 0
        self.waiting = anyio.Event()

    async def __call__(self, undetected: Any) -> None:
        self.open_count += 1
        try:
            await self._serve(undetected)
        finally:
            self.open_count -= 1

    async def _serve(self, undetected: Any) -> None:
        peer = await undetected.detect()
        if not isinstance(peer, Peer):
            await peer.serve()
        heard: list[Command[Any]] = []
        while True:
            command = await peer.hear()
            if self.silence is not None:
                self.waiting.set()
                await self.silence.wait()
            heard.append(command)
            if isinstance(command, LoginUser | LoginWithPersonalAccessToken):
                self.heard.append(heard)
                self.peers.append(peer)
            if not isinstance(command, PurgeStream | PurgeTopic | FlushUnsavedBuffer):
                await peer.answer(command)
                continue
            step = self.steps.pop(0) if self.steps else ""
            if step == "wait":
                self.waiting.set()
                await anyio.sleep_forever()
            await peer.reply(StatusCode.TOPIC_ID_NOT_FOUND if step == "refuse" else None)

    def kinds(self) -> list[list[str]]:
        return [[type(one).__name__ for one in heard] for heard in self.heard]

    def commands(self) -> list[Command[Any]]:
        kinds = (PurgeStream, PurgeTopic, FlushUnsavedBuffer)
        return [one for heard in self.heard for one in heard if isinstance(one, kinds)]


def both(*dialects: Dialect) -> EveryPeers:
    return EveryPeers(vsr_peers(*dialects))


@pytest.mark.parametrize(
    ("dialect", "commands"),
    [
        (V0_12_2, [PurgeStream("shop"), PURGE, FlushUnsavedBuffer("shop", "orders", 0)]),
        (V0_11, [FlushUnsavedBuffer("shop", "orders", 0)] * 2),
    ],
    ids=["0.10", "0.9"],
)
async def test_command_when_the_dialect_lacks_it_then_one_more_connection_carries_all(
    dialect, commands
):
    side = ClassicSide()
    async with (
        scripted_server(side, peers=both(dialect)) as server,
        client_of(server, protocol=AUTO) as client,
    ):
        before = len(server.dialled)
        for command in commands:
            await client.request(command)
        assert client.dialect is dialect
        assert server.dialled[before:] == [ONE] * 2  # The first asks whether 0.8 is spoken.

    assert side.commands() == commands
    [heard] = side.heard
    assert heard[0] == LoginUser("iggy", "secret", context="iggy_sdk")


async def test_command_when_the_server_refuses_it_then_the_error_is_that_of_the_server():
    side = ClassicSide("refuse")
    async with (
        scripted_server(side, peers=both(V0_12_2)) as server,
        client_of(server, protocol=AUTO) as client,
    ):
        with pytest.raises(LookupError):
            await client.request(PURGE)


async def test_command_when_the_server_speaks_no_0_8_then_it_is_asked_once():
    async with (
        scripted_server(peers=vsr_peers(V0_12_2)) as server,
        client_of(server, protocol=AUTO) as client,
    ):
        begun_at = anyio.current_time()
        async with client.sibling() as sibling:
            for one in (client, client, sibling):
                with pytest.raises(UnsupportedByServerError, match=r"0\.10"):
                    await one.request(PURGE)
        assert anyio.current_time() == begun_at
        assert server.dialled == [ONE] * 3


@pytest.mark.parametrize(
    ("peers", "protocol", "answers"),
    [
        (both(V0_12_2), AUTO, True),
        (vsr_peers(V0_12_2), AUTO, False),
        (both(V0_12_2), ServerProtocol.V0_10, False),
        (both(V0_12_2), ServerProtocol.V0_8, True),
    ],
    ids=["both", "new alone", "0.10 was named", "0.8 was named"],
)
async def test_server_when_asked_whether_it_answers_in_0_8_then_says_so(peers, protocol, answers):
    side = ClassicSide()
    serve = side if isinstance(peers, EveryPeers) else polite
    async with (
        scripted_server(serve, peers=peers) as server,
        client_of(server, protocol=protocol) as client,
    ):
        assert [await client.answers_classic() for _ in range(2)] == [answers] * 2
        assert len(server.dialled) <= 2


@pytest.mark.parametrize("protocol", [ServerProtocol.V0_9, ServerProtocol.V0_10])
async def test_command_when_the_generation_is_named_then_no_other_is_spoken(protocol):
    side = ClassicSide()
    async with (
        scripted_server(side, peers=both(V0_11, V0_12_2)) as server,
        client_of(server, protocol=protocol) as client,
    ):
        with pytest.raises(UnsupportedByServerError, match=rf"{protocol.value}\b"):
            await client.request(FlushUnsavedBuffer("shop", "orders", 0))
        assert server.dialled == [ONE]


async def test_command_when_the_second_connection_was_lost_then_there_is_another_one():
    side = ClassicSide()
    async with (
        scripted_server(side, peers=both(V0_12_2)) as server,
        client_of(server, protocol=AUTO) as client,
    ):
        await client.request(PURGE)
        side.peers[0].wire.abort()
        await client.request(PURGE)
        assert client.epoch == 1

    assert side.commands() == [PURGE] * 2
    assert len(side.heard) == 2


async def test_command_when_another_server_took_the_place_then_0_8_is_not_spoken():
    side = ClassicSide()
    newer = vsr_peers(V0_12_2)
    async with (
        scripted_server(side, peers=both(V0_12_2)) as server,
        client_of(server, protocol=AUTO) as client,
    ):
        await client.request(PURGE)
        server.replace(polite, newer)
        await client.ping()
        for _ in range(2):
            with pytest.raises(UnsupportedByServerError):
                await client.request(PURGE)


async def test_command_when_a_server_of_all_generations_took_the_place_then_it_is_asked_again():
    side = ClassicSide()
    async with (
        scripted_server(peers=vsr_peers(V0_12_2)) as server,
        client_of(server, protocol=AUTO) as client,
    ):
        with pytest.raises(UnsupportedByServerError):
            await client.request(PURGE)
        server.replace(side, both(V0_12_2))
        await client.ping()
        await client.request(PURGE)

    assert side.commands() == [PURGE]


async def test_login_when_it_changes_then_no_connection_of_the_one_before_is_left():
    side = ClassicSide()
    async with (
        scripted_server(side, peers=both(V0_12_2)) as server,
        client_of(server, protocol=AUTO) as client,
    ):
        await client.request(PURGE)
        await client.logout_user()
        await anyio.wait_all_tasks_blocked()
        assert side.open_count == 1
        await client.login_with_personal_access_token("token")
        await client.request(PURGE)
        await client.login_user("alice", "password")
        await anyio.wait_all_tasks_blocked()
        assert side.open_count == 1
        await client.request(PURGE)

    assert [heard[0] for heard in side.heard] == [
        LoginUser("iggy", "secret", context="iggy_sdk"),
        LoginWithPersonalAccessToken("token"),
        LoginUser("alice", "password"),
    ]


async def test_logout_when_a_purge_is_under_way_then_it_does_not_use_the_login():
    side = ClassicSide("wait")
    errors: list[str] = []
    refused = anyio.Event()

    async def purge(client: Any) -> None:
        with pytest.raises(DisconnectedError, match="login") as caught:
            await client.request(PURGE)
        errors.append(caught.value.message)
        refused.set()

    async with (
        scripted_server(side, peers=both(V0_12_2)) as server,
        client_of(server, protocol=AUTO) as client,
        anyio.create_task_group() as tasks,
    ):
        side.silence = anyio.Event()
        tasks.start_soon(purge, client)
        await side.waiting.wait()
        side.waiting = anyio.Event()
        await client.logout_user()
        side.silence.set()
        side.silence = None
        await refused.wait()
        await client.login_user("iggy", "secret")
        tasks.start_soon(purge, client)
        await side.waiting.wait()
        await client.logout_user()

    assert len(errors) == 2
    assert len(side.heard) == 1


async def test_deadline_when_the_server_is_silent_then_it_holds():
    side = ClassicSide("wait")
    async with (
        scripted_server(side, peers=both(V0_12_2)) as server,
        client_of(server, protocol=AUTO) as client,
    ):
        side.silence = anyio.Event()
        begun_at = anyio.current_time()
        with pytest.raises(RequestTimeoutError):
            await client.request(PURGE, timeout=1.5)
        assert anyio.current_time() - begun_at == pytest.approx(1.5)
        with pytest.raises(UnsupportedByServerError):
            await client.request(PURGE)
        side.silence = None
        begun_at = anyio.current_time()
        with pytest.raises(RequestTimeoutError):
            await client.request(PURGE, timeout=1.5)
        assert anyio.current_time() - begun_at == pytest.approx(1.5)


@pytest.mark.parametrize("hosted", [True, False], ids=["hosted", "alone"])
async def test_close_when_a_purge_was_cancelled_anywhere_then_no_connection_is_left(hosted):
    stop, is_reached = 1, True
    while is_reached:
        side = ClassicSide()
        async with scripted_server(side, peers=both(V0_12_2)) as server:
            client = client_of(server, protocol=AUTO)
            async with anyio.create_task_group() as host:
                if hosted:
                    await host.start(client.run)
                else:
                    await client.connect()
                is_reached = await cancel_at(partial(client.request, PURGE), stop)
                await client.request(PURGE)
                await client.aclose()
            await anyio.wait_all_tasks_blocked()
            assert side.open_count == 0
        stop += 1
