"""The client over QUIC and the reference server: requests, load, cancellation, loss."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from iggy_protocol import (
    CreateStream,
    GetMe,
    GetStream,
    Ping,
    Transport,
)
from iggy_sdk.client import IggyClient
from iggy_sdk.errors import (
    ClientClosedError,
    DisconnectedError,
    IggyError,
    ProtocolError,
    RequestTimeoutError,
    StreamExistsError,
)
from iggy_sdk.session.quic import QuicSession
from iggy_sdk.testing.server import in_test_protocol
from tests.sdk.cancelling import cancelled_everywhere
from tests.sdk.exchanges import batch_of, check_echo, last_of, make_topic

if TYPE_CHECKING:
    from tests.server.running import RunningServer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

REQUESTS = 300


def url_of(server: Any, query: str = "") -> str:
    """Write where the QUIC listener of a server is; its certificate is not looked at."""
    config: Any = server.current_config()
    return in_test_protocol(
        f"iggy+quic://iggy:iggy@{config['quic']['address']}?validate_certificate=false{query}"
    )


def skip_in_lockstep(client: IggyClient) -> None:
    """Leave a test about several requests at a time, if a connection carries one."""
    if client.dialect.is_lockstep:
        pytest.skip("a connection of 0.9 carries one request at a time")


def session_of(client: IggyClient) -> QuicSession:
    session: Any = client._session._session
    assert isinstance(session, QuicSession)
    return session


async def test_client_when_it_asks_by_quic_then_the_server_says_so(server):
    async with IggyClient(url_of(server)) as client:
        me = await client.request(GetMe())

    assert me.transport is Transport.QUIC


async def test_statistics_when_many_have_asked_then_every_stream_counts_once(server):
    async with IggyClient(url_of(server)) as client:
        async with anyio.create_task_group() as tasks:
            for _ in range(REQUESTS):
                tasks.start_soon(client.request, Ping())
        seen = session_of(client).statistics()

    assert seen.waiting == 0
    assert seen.answers == seen.connection.frames_out == seen.connection.frames_in
    assert seen.connection.bytes_in > 0


async def test_small_request_when_a_large_one_is_under_way_then_does_not_wait_for_it(server):
    finished: list[str] = []

    async def ask(client: IggyClient, name: str, command: Any) -> None:
        await client.request(command)
        finished.append(name)

    async with IggyClient(url_of(server)) as client:
        await make_topic(client, "beside")
        session = session_of(client)
        before = session.statistics().connection.frames_out
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, client, "large", batch_of("beside", bytes(1_000_000), 8))
            while session.statistics().connection.frames_out == before:
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(ask, client, "small", Ping())

    order = ["small", "large"]
    assert finished == (order[::-1] if client.dialect.is_lockstep else order)


@pytest.mark.parametrize("size_bytes", [1, 1_200, 8_000, 65_536, 1_000_000])
async def test_batch_when_of_any_size_then_comes_back_as_it_went(server, size_bytes):
    async with IggyClient(url_of(server)) as client:
        await check_echo(client, size_bytes)


async def test_client_when_it_has_no_background_task_then_works_the_same(server):
    client = IggyClient(url_of(server))
    await client.connect()
    await make_topic(client, "hostless")
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(client.request, Ping())
    await client.request(batch_of("hostless", bytes(300_000)))
    await client.aclose()

    with pytest.raises(ClientClosedError):
        await client.request(Ping())


async def test_requests_when_few_may_be_outstanding_then_the_others_wait_their_turn(server):
    async with IggyClient(url_of(server), max_outstanding=2) as client:
        most = 0

        async def ask() -> None:
            nonlocal most
            await client.request(Ping())
            most = max(most, session_of(client).statistics().waiting)

        async with anyio.create_task_group() as tasks:
            for _ in range(40):
                tasks.start_soon(ask)

    assert most <= 2


async def test_request_when_others_never_stop_asking_then_has_its_turn_all_the_same(server):
    asked_count = 0

    async def ask_without_end(client: IggyClient) -> None:
        nonlocal asked_count
        while True:
            await client.request(Ping())
            asked_count += 1

    async with (
        IggyClient(url_of(server), max_outstanding=2) as client,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(2):
            tasks.start_soon(ask_without_end, client)
        await anyio.wait_all_tasks_blocked()
        asked_before = asked_count
        await client.request(GetMe(), timeout=10.0)
        asked_meanwhile = asked_count - asked_before
        tasks.cancel_scope.cancel()

    assert asked_meanwhile <= 4


async def test_requests_when_the_send_window_is_small_then_large_ones_take_turns(server):
    async with IggyClient(url_of(server, "&send_window=200000")) as client:
        await make_topic(client, "turns")
        before = len((await client.request(last_of("turns", 100))).messages)
        most = 0

        async def send() -> None:
            nonlocal most
            await client.request(batch_of("turns", bytes(150_000)))
            most = max(most, session_of(client).statistics().waiting)

        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(send)
        polled = await client.request(last_of("turns", 100))

    assert len(polled.messages) == before + 6
    assert most <= 1


async def test_answer_when_refused_then_is_the_error_of_the_status(server):
    async with IggyClient(url_of(server)) as client:
        await make_topic(client, "twice")
        with pytest.raises(StreamExistsError):
            await client.request(CreateStream("twice"))


async def test_reply_when_longer_than_the_settings_allow_then_only_that_request_fails(server):
    async with IggyClient(url_of(server, "&response_buffer_size=10000")) as client:
        await make_topic(client, "long")
        await client.request(batch_of("long", bytes(50_000)))
        with pytest.raises(ProtocolError, match="10000"):
            await client.request(last_of("long"))
        await client.request(Ping())
        # In 0.9 the next request has to wait for the end of a reply, which nobody reads here.
        assert client.statistics().disconnects == client.dialect.is_lockstep


# Leaving early


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.004, 0.016])
async def test_request_when_cancelled_then_the_connection_goes_on(server, seconds):
    async with IggyClient(url_of(server)) as client:
        await make_topic(client, "cut")
        with anyio.move_on_after(seconds):
            await client.request(batch_of("cut", bytes(1_000_000), 8))
        await client.request(Ping())
        assert await client.request(GetStream("cut")) is not None
        assert client.statistics().dials == 1


@pytest.mark.parametrize("is_hosted", [True, False])
async def test_request_when_cancelled_anywhere_then_others_are_answered(server, is_hosted):
    client = IggyClient(url_of(server))
    async with anyio.create_task_group() as tasks:
        await (tasks.start(client.run) if is_hosted else client.connect())

        async def ask() -> None:
            await client.request(GetMe())

        async for _ in cancelled_everywhere(ask):
            assert (await client.request(GetMe())).transport is Transport.QUIC
        seen = session_of(client).statistics()
        await client.aclose()

    assert seen.waiting == 0
    assert client.statistics().dials == 1


# The longer one is kept by the session, the shorter one has a timer of its own.
@pytest.mark.parametrize("seconds", [0.2, 1.0])
async def test_request_when_the_server_does_not_answer_then_times_out_and_others_go_on(
    start_server, seconds
):
    server = await anyio.to_thread.run_sync(start_server)
    async with IggyClient(url_of(server)) as client:
        skip_in_lockstep(client)
        await client.request(Ping())
        await anyio.wait_all_tasks_blocked()
        os.killpg(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(RequestTimeoutError, match=f"within {seconds:g} s"):
                await client.request(GetMe(), timeout=seconds)
            with anyio.move_on_after(0.1):
                await client.request(GetMe())
            streams = session_of(client)._transport.core._streams.values()
            assert len(streams) == 2
            assert all(stream.sender._reset_error_code is not None for stream in streams)
        finally:
            os.killpg(server.pid, signal.SIGCONT)
        await client.request(Ping())
        seen = session_of(client).statistics()

    assert (seen.timeouts, seen.abandoned) == (1, 2)


async def test_close_when_requests_are_under_way_then_waits_for_their_answers(server):
    async with IggyClient(url_of(server)) as other:
        skip_in_lockstep(other)
    client = IggyClient(url_of(server), close_timeout=60.0)
    answers: list[object] = []

    async def ask() -> None:
        answers.append(await client.request(last_of("closing")))

    async with anyio.create_task_group() as tasks:
        await tasks.start(client.run)
        await make_topic(client, "closing")
        # Sends to one partition would go one after another from 0.9 on.
        await client.request(batch_of("closing", bytes(500_000)))
        await client.request(last_of("closing"))
        for _ in range(4):
            tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(30):
            await client.aclose()

    assert len(answers) == 4


# Losing the server


async def test_request_when_the_server_is_killed_under_it_then_says_whether_it_had_left(
    start_server,
):
    server: RunningServer = await anyio.to_thread.run_sync(start_server)
    async with IggyClient(url_of(server), reconnect=False) as client:
        await make_topic(client, "killed")
        # From 0.10 on the first request to a partition asks where it is.
        await client.request(batch_of("killed", b""))
        os.killpg(server.pid, signal.SIGSTOP)
        failures: list[IggyError] = []

        async def ask(command: Any) -> None:
            try:
                await client.request(command)
            except IggyError as error:
                failures.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, GetMe())
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(ask, batch_of("killed", bytes(1_000_000), 4))
            await anyio.wait_all_tasks_blocked()
            await anyio.to_thread.run_sync(server.kill)
        lost = {failure.sent for failure in failures if isinstance(failure, DisconnectedError)}

    assert len(failures) == 2
    assert lost == {True, False}, "the small one had left, the large one had not"


# What stands on it


async def test_producer_and_consumer_when_over_quic_then_work_as_over_tcp(server):
    async with IggyClient(url_of(server)) as client:
        await make_topic(client, "work", partitions_count=3)
        async with client.producer("work", "orders") as producer:
            for number in range(200):
                await producer.send(f"{number}".encode(), key=f"{number % 7}")
        seen: set[bytes] = set()
        async with client.consumer_group("team", "work", "orders") as consumer:
            with anyio.fail_after(30):
                async for message in consumer:
                    seen.add(bytes(message.payload))
                    if len(seen) == 200:
                        break

    assert seen == {f"{number}".encode() for number in range(200)}
