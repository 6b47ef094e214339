"""A client with a host and without one: heartbeats, closing, hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from iggy_protocol import (
    Command,
    Ping,
)
from iggy_sdk.client import IggyClient
from iggy_sdk.consumer import ConsumerBuilder
from iggy_sdk.errors import (
    ClientClosedError,
    ConfigurationError,
    ConnectionFailedError,
    DisconnectedError,
    IggyError,
)
from iggy_sdk.hooks import Hook
from iggy_sdk.producer import ProducerBuilder
from tests.sdk.net.clients import ONE, Recorder, client_of, send
from tests.sdk.scripted_peer import (
    Peer,
    scripted_server,
)

if TYPE_CHECKING:
    from iggy_sdk.client_interface import ClientInterface

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

# Heartbeats


async def test_heartbeat_when_the_client_is_hosted_then_pings_in_its_rhythm():
    script = Recorder()
    async with (
        scripted_server(script) as server,
        client_of(server, heartbeat_interval=5.0) as client,
    ):
        await anyio.sleep(52)
        assert client.statistics().heartbeats == 10

    assert script.kinds()[0].count("Ping") == 10


async def test_heartbeat_when_requests_go_on_all_the_time_then_pings_all_the_same():
    script = Recorder()
    async with (
        scripted_server(script) as server,
        client_of(server, heartbeat_interval=5.0) as client,
    ):
        for _ in range(30):
            await client.request(send())
            await anyio.sleep(1)

    assert script.kinds()[0].count("Ping") >= 5


async def test_heartbeat_when_the_server_is_wedged_then_the_connection_is_replaced():
    async def wedged_once(peer: Peer) -> None:
        await peer.welcome()
        if len(server.dialled) == 1:
            while True:
                await peer.hear()
        await peer.serve()

    async with (
        scripted_server(wedged_once) as server,
        client_of(server, heartbeat_interval=5.0, request_timeout=30.0) as client,
    ):
        await anyio.sleep(40)

        assert client.epoch == 2


# By hand


async def test_connect_when_there_is_no_background_task_then_only_requests_work():
    script = Recorder()
    async with scripted_server(script) as server:
        client = client_of(server, heartbeat_interval=5.0)
        await client.connect()
        await anyio.sleep(100)
        await client.ping()
        server.peers[0].wire.abort()
        await client.ping()
        assert client.epoch == 2
        await client.aclose()
        with pytest.raises(ClientClosedError):
            await client.ping()

    assert script.kinds()[0] == ["LoginUser", "GetClusterMetadata", "Ping"]


async def test_connect_when_many_tasks_ask_without_a_host_then_each_gets_its_answer():
    async with scripted_server() as server:
        client = client_of(server)
        await client.connect()
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(client.request, Ping())
        await client.aclose()

        session = client.statistics().session

    assert session is not None
    assert session.answers == 102


async def test_connect_when_called_twice_then_dials_once():
    async with scripted_server() as server:
        client = client_of(server)
        await client.connect()
        await client.connect()
        await client.aclose()

    assert len(server.dialled) == 1


async def test_run_when_hosted_by_hand_then_ends_with_aclose():
    async with scripted_server() as server:
        client = client_of(server, heartbeat_interval=5.0)
        async with anyio.create_task_group() as tasks:
            await tasks.start(client.run)
            assert client.is_connected
            await anyio.sleep(12)
            await client.aclose()

    assert client.statistics().heartbeats == 2


async def test_run_when_no_server_is_there_then_start_raises():
    async with scripted_server() as server:
        server.dead.add(ONE)
        with pytest.RaisesGroup(ConnectionFailedError, allow_unwrapped=True):
            async with anyio.create_task_group() as tasks:
                await tasks.start(client_of(server).run)


async def test_client_when_entered_or_run_twice_then_says_so():
    async with scripted_server() as server, client_of(server) as client:
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ConfigurationError, match="sibling"):
            async with client:
                pass
        with pytest.raises(ConfigurationError, match="sibling"):
            await client.run()
        await client.ping()


async def test_disconnect_when_done_then_connect_opens_another_connection():
    async with scripted_server() as server, client_of(server) as client:
        await client.disconnect()
        assert not client.is_connected
        await anyio.sleep(60)
        assert len(server.dialled) == 1
        with pytest.raises(DisconnectedError, match="not connected"):
            await client.ping()

        await client.connect()
        await client.ping()
        assert client.epoch == 2


async def test_aclose_when_the_client_is_reconnecting_then_the_waiting_are_told():
    async with scripted_server() as server:
        client = client_of(server)
        await client.connect()
        await anyio.sleep(10)
        server.dead.add(ONE)
        server.peers[0].wire.abort()

        async def ask() -> None:
            with pytest.raises(ClientClosedError):
                await client.ping()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
            await anyio.sleep(1)
            begun_at = anyio.current_time()
            await client.aclose()

        assert anyio.current_time() == begun_at


# Hooks


class Diary(Hook):
    """Writes down what it sees, and fails every time."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    def on_connect(self, endpoint: str) -> None:
        self.note(f"connected to {endpoint}")

    def on_disconnect(self, endpoint: str, error: IggyError | None) -> None:
        self.note(f"lost {endpoint}" if error else f"left {endpoint}")

    def before_request(self, command: Command[Any]) -> None:
        self.note(f"asks {type(command).__name__}")

    def after_request(
        self, command: Command[Any], *, reply: object, error: BaseException | None, seconds: float
    ) -> None:
        self.note(f"heard {type(error).__name__ if error else reply} after {seconds:.0f} s")

    def note(self, entry: str) -> None:
        self.entries.append(entry)
        raise RuntimeError("a hook that fails")


async def test_hooks_when_they_fail_then_see_everything_and_change_nothing():
    class Slow(Recorder):
        async def answer(self, peer: Peer, command: Command[Any], connection: int) -> None:
            if isinstance(command, Ping):
                await anyio.sleep(3)
            await peer.answer(command)

    diary = Diary()
    async with scripted_server(Slow()) as server, client_of(server, hooks=(diary,)) as client:
        await client.ping()
        await anyio.sleep(10)
        server.peers[0].wire.abort()
        await anyio.sleep(1)
        assert client.statistics().hook_failures == 5

    assert diary.entries == [
        "connected to one.example",
        "asks Ping",
        "heard None after 3 s",
        "lost one.example",
        "connected to one.example",
        "left one.example",
    ]


# Parts


async def test_factories_when_called_then_begin_producers_and_consumers():
    async with scripted_server() as server:
        client = client_of(server)

        assert isinstance(client.producer("shop", "orders"), ProducerBuilder)
        assert isinstance(client.consumer("me", "shop", "orders"), ConsumerBuilder)
        assert isinstance(client.consumer_group("us", "shop", "orders"), ConsumerBuilder)
        assert server.dialled == []


def test_client_when_used_as_its_interface_then_fits():
    client: ClientInterface = IggyClient("localhost:8090")

    assert client.epoch == 0
    assert not client.is_connected
