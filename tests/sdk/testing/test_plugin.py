"""The plugin: it costs nothing until it is used, and serves every kind of client."""

from __future__ import annotations

import subprocess
import sys
import time

import anyio.to_thread
import pytest

from iggy_protocol import StatusCode
from iggy_sdk.blocking import IggyClient as BlockingClient
from iggy_sdk.client import IggyClient
from iggy_sdk.errors import DisconnectedError, IggyError, RequestTimeoutError
from iggy_sdk.testing import RunningServer

pytestmark = pytest.mark.timeout(60)

READY_SECONDS_MAX = 10.0
"""About one second on a machine that does nothing else; those that run tests do."""

LOADED = """
import sys
import iggy_sdk.testing.plugin
print([name for name in ("anyio", "construct", "iggy_protocol") if name in sys.modules])
"""


def test_plugin_when_imported_then_loads_nothing_of_the_sdk():
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"


def test_server_when_started_then_is_ready_in_about_a_second():
    started = time.perf_counter()
    with RunningServer() as server:
        assert server.is_running

    assert time.perf_counter() - started < READY_SECONDS_MAX


@pytest.mark.parametrize("_again", range(2))
def test_fixture_when_a_test_leaves_a_stream_then_the_next_finds_none(iggy_server, _again):
    with BlockingClient(iggy_server.url) as client:
        assert client.get_streams() == []
        client.create_stream("left")
        iggy_server.faults.answer_with(StatusCode.ERROR, times=None)


def test_factory_when_called_then_starts_servers_of_their_own(iggy_server, iggy_server_factory):
    other = iggy_server_factory(username="admin", password="secret")

    with BlockingClient(other.url) as client, BlockingClient(iggy_server.url) as here:
        client.create_stream("there")
        assert here.get_stream("there") is None


@pytest.mark.anyio
async def test_drop_when_a_question_is_under_way_then_the_client_asks_again(iggy_server):
    async with IggyClient(iggy_server.url) as client:
        dropped = iggy_server.faults.drop_connection(command="get_streams")

        assert await client.get_streams() == []
    assert dropped.hits == 1


@pytest.mark.anyio
async def test_drop_when_a_creation_is_under_way_then_the_client_does_not_guess(iggy_server):
    async with IggyClient(iggy_server.url) as client:
        iggy_server.faults.drop_connection(command="create_stream", executed=True)

        if client.dialect.binds_sessions:
            # From 0.10 on the server knows the request again when it is repeated.
            await client.create_stream("made")
        else:
            with pytest.raises(DisconnectedError):
                await client.create_stream("made")
        assert await client.get_stream("made") is not None


@pytest.mark.anyio
async def test_answer_when_it_is_an_error_then_the_client_raises_it(iggy_server):
    async with IggyClient(iggy_server.url) as client:
        iggy_server.faults.answer_with(StatusCode.INVALID_FORMAT, command="get_stats")

        with pytest.raises(IggyError) as error:
            await client.get_stats()
        assert error.value.code == StatusCode.INVALID_FORMAT
        await client.get_stats()


@pytest.mark.anyio
async def test_swallow_when_an_answer_is_lost_then_the_client_times_out(iggy_server):
    async with IggyClient(iggy_server.url) as client:
        iggy_server.faults.swallow_reply(command="ping")

        with pytest.raises(RequestTimeoutError):
            await client.ping(timeout=0.1)


@pytest.mark.anyio
async def test_restart_when_a_client_is_connected_then_it_goes_on(iggy_server):
    async with IggyClient(iggy_server.url) as client:
        await client.create_stream("kept")
        await anyio.to_thread.run_sync(iggy_server.kill)
        await anyio.to_thread.run_sync(iggy_server.start)

        assert await client.get_stream("kept") is not None
