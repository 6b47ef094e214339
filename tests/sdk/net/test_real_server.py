"""The client and the reference server, over real sockets: load, cancellation, kills."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.lowlevel import checkpoint

from iggy_protocol import (
    CreateStream,
    CreateTopic,
    GetStream,
    Partitioning,
    Ping,
    SendMessages,
)
from iggy_sdk.client import IggyClient
from iggy_sdk.errors import AuthenticationError, ClientClosedError, DisconnectedError, IggyError
from iggy_sdk.hooks import Hook
from iggy_sdk.testing.server import in_test_protocol
from tests.sdk.cancelling import CHECKPOINTS_MAX, cancel_at

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from tests.fix_server import StartServer
    from tests.server.running import RunningServer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

STREAMS = [f"stream-{number}" for number in range(10)]
NEVER = CHECKPOINTS_MAX


def url_of(server: RunningServer, login: str = "iggy:iggy") -> str:
    host, port = server.address
    return in_test_protocol(f"iggy://{login}@{host}:{port}")


async def create_streams(client: IggyClient) -> None:
    present = {stream.name for stream in await client.get_streams()}
    for name in STREAMS:
        if name not in present:
            await client.request(CreateStream(name))


async def check(client: IggyClient, name: str) -> None:
    stream = await client.request(GetStream(name))
    assert stream is not None
    assert stream.name == name


async def test_client_when_many_tasks_ask_then_each_gets_its_own_answer(server):
    async def ask(client: IggyClient, seed: int) -> None:
        choice = random.Random(seed)
        for _ in range(20):
            await check(client, choice.choice(STREAMS))

    async with IggyClient(url_of(server)) as client:
        await create_streams(client)
        async with anyio.create_task_group() as tasks:
            for seed in range(50):
                tasks.start_soon(ask, client, seed)
        session = client.statistics().session

    assert session is not None
    assert session.connection.outstanding == 0


@pytest.mark.parametrize("hosted", [True, False], ids=["hosted", "alone"])
async def test_client_when_requests_are_cancelled_at_random_then_no_reply_goes_to_another_request(
    server, hosted
):
    async def ask(client: IggyClient, seed: int) -> None:
        choice = random.Random(seed)
        for _ in range(30):
            one = partial(check, client, choice.choice(STREAMS))
            await cancel_at(one, choice.choice([1, 2, 3, NEVER, NEVER]))

    client = IggyClient(url_of(server))
    async with anyio.create_task_group() as host:
        if hosted:
            await host.start(client.run)
        else:
            await client.connect()
        await create_streams(client)
        async with anyio.create_task_group() as tasks:
            for seed in range(20):
                tasks.start_soon(ask, client, seed)
        for name in STREAMS:
            await check(client, name)
        assert client.epoch == 1
        await client.aclose()


async def test_client_when_the_password_is_wrong_then_says_so(server):
    with pytest.raises(AuthenticationError, match="password"):
        async with IggyClient(url_of(server, "iggy:wrong")):
            pass


class Load:
    """Tasks that ask and send all the time, and what they heard."""

    def __init__(self, client: IggyClient) -> None:
        self.client = client
        self.acknowledged_count = 0
        self.answers_count = 0
        self.errors: list[DisconnectedError] = []
        self.is_over = False
        self._answered = anyio.Event()

    async def prepare(self) -> None:
        await self.client.request(CreateStream("shop"))
        await self.client.request(CreateTopic("shop", "orders", partitions_count=1))
        await create_streams(self.client)

    def start(self, tasks: TaskGroup) -> None:
        for name in STREAMS[:5]:
            tasks.start_soon(self.ask, name)
        tasks.start_soon(self.send)
        tasks.start_soon(self.send)

    async def ask(self, name: str) -> None:
        while not self.is_over:
            await check(self.client, name)
            self.answers_count += 1
            self._answered.set()
            await checkpoint()

    async def send(self) -> None:
        partition = Partitioning.partition(0)
        while not self.is_over:
            try:
                await self.client.request(SendMessages("shop", "orders", partition, [b"payload"]))
                self.acknowledged_count += 1
            except DisconnectedError as error:
                self.errors.append(error)
            await checkpoint()

    async def wait_for_answers(self, count: int) -> None:
        goal = self.answers_count + count
        while self.answers_count < goal:
            self._answered = anyio.Event()
            await self._answered.wait()


@pytest.mark.parametrize("hosted", [True, False], ids=["hosted", "alone"])
async def test_client_when_the_server_is_killed_and_comes_back_then_goes_on(
    start_server: StartServer, hosted
):
    server = await anyio.to_thread.run_sync(start_server)
    # The port was free a moment ago, and the client will look for the server there.
    server.settings["IGGY_TCP_ADDRESS"] = "{}:{}".format(*server.address)
    client = IggyClient(url_of(server))
    load = Load(client)
    async with anyio.create_task_group() as host:
        if hosted:
            await host.start(client.run)
        else:
            await client.connect()
        await load.prepare()
        async with anyio.create_task_group() as tasks:
            load.start(tasks)
            await load.wait_for_answers(100)
            await anyio.to_thread.run_sync(server.kill)
            await anyio.to_thread.run_sync(server.start)
            await load.wait_for_answers(100)
            load.is_over = True
        assert client.epoch == 2
        await client.aclose()

    assert load.acknowledged_count
    assert len(load.errors) <= 2
    assert all(error.sent for error in load.errors)


async def test_client_when_the_server_stops_in_order_then_an_idle_one_notices_at_once(
    start_server: StartServer,
):
    class Bell(Hook):
        rung = anyio.Event()

        def on_disconnect(self, endpoint: str, error: IggyError | None) -> None:
            self.rung.set()

    server = await anyio.to_thread.run_sync(start_server)
    bell = Bell()
    async with IggyClient(url_of(server), heartbeat_interval=60.0, hooks=[bell]) as client:
        await client.ping()
        await anyio.to_thread.run_sync(server.stop)
        with anyio.fail_after(5):
            await bell.rung.wait()
        assert not client.is_connected


async def test_client_when_half_of_a_large_batch_was_written_then_survives_a_cancellation(server):
    batch = SendMessages("large", "orders", Partitioning.partition(0), [bytes(1_000_000)] * 20)
    async with IggyClient(url_of(server)) as client:
        if await client.request(GetStream("large")) is None:
            await client.request(CreateStream("large"))
            await client.request(CreateTopic("large", "orders", partitions_count=1))
        stop, is_reached = 1, True
        while is_reached:
            is_reached = await cancel_at(partial(client.request, batch), stop)
            await client.request(Ping())
            stop *= 2
        assert client.epoch > 1
        assert (await client.request(GetStream("large"))) is not None


async def test_close_when_other_tasks_are_asking_then_they_hear_of_it(server):
    ended: list[str] = []
    answered = [anyio.Event() for _ in range(10)]

    async def ask(client: IggyClient, once: anyio.Event) -> None:
        try:
            while True:
                await client.request(Ping())
                once.set()
        except ClientClosedError:
            ended.append("closed")

    async with anyio.create_task_group() as tasks, IggyClient(url_of(server)) as client:
        for once in answered:
            tasks.start_soon(ask, client, once)
        for once in answered:
            await once.wait()

    assert ended == ["closed"] * 10
