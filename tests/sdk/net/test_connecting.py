"""A client connects: where, as whom, how often, and when it gives up."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from iggy_protocol import (
    Command,
    LoginUser,
    LoginWithPersonalAccessToken,
    StatusCode,
)
from iggy_sdk.connection_string import TokenLogin
from iggy_sdk.errors import (
    AuthenticationError,
    ClientClosedError,
    ConfigurationError,
    ConnectionFailedError,
    DisconnectedError,
    RequestTimeoutError,
)
from iggy_sdk.options import Reconnect
from iggy_sdk.transport import open_transport
from tests.sdk.net.clients import ONE, TWO, Recorder, client_of
from tests.sdk.scripted_peer import (
    Peer,
    options,
    scripted_server,
)

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

# Connecting


async def test_client_when_made_outside_of_any_loop_then_does_no_io():
    async with scripted_server() as server:
        client = client_of(server)

        assert server.dialled == []
        assert not client.is_connected
        with pytest.raises(DisconnectedError, match="not connected") as caught:
            await client.ping()

    assert caught.value.code == StatusCode.NOT_CONNECTED
    assert not caught.value.sent


async def test_client_when_entered_then_is_connected_and_logged_in():
    script = Recorder()
    async with scripted_server(script) as server, client_of(server) as client:
        assert client.is_connected
        assert client.epoch == 1
        assert client.endpoint == ONE

    assert script.kinds() == [["LoginUser", "GetClusterMetadata"]]
    assert script.heard[0][0].username == "iggy"


async def test_client_when_it_has_a_token_then_logs_in_with_it():
    script = Recorder()
    changes = {"credentials": TokenLogin("secret-token")}
    async with scripted_server(script) as server, client_of(server, **changes):
        pass

    assert script.heard[0][0] == LoginWithPersonalAccessToken("secret-token")


async def test_client_when_it_has_no_credentials_then_only_connects():
    script = Recorder()
    async with scripted_server(script) as server, client_of(server, credentials=None) as client:
        await client.ping()

    assert script.kinds() == [["Ping"]]


async def test_client_when_the_body_fails_then_its_error_comes_out_as_it_is():
    async with scripted_server() as server:
        with pytest.raises(KeyError):
            async with client_of(server):
                raise KeyError("mine")


async def test_client_when_the_body_is_cancelled_then_closes():
    async with scripted_server() as server:
        client = client_of(server)
        with anyio.move_on_after(5) as scope:
            async with client:
                await anyio.sleep_forever()

        assert scope.cancelled_caught
        assert not client.is_connected


async def test_client_when_left_then_every_call_says_that_it_is_closed():
    async with scripted_server() as server:
        async with client_of(server) as client:
            pass

        for call in (client.ping, client.connect):
            with pytest.raises(ClientClosedError):
                await call()


async def test_connect_when_the_password_is_wrong_then_is_not_tried_again():
    async def refuse(peer: Peer) -> None:
        assert isinstance(await peer.hear(), LoginUser)
        await peer.reply(StatusCode.INVALID_CREDENTIALS)
        await peer.serve()

    changes = {"endpoints": (ONE, TWO)}
    async with scripted_server(refuse) as server:
        with pytest.raises(AuthenticationError):
            async with client_of(server, **changes):
                pass

        assert server.dialled == [ONE]


async def test_connect_when_the_server_never_answers_the_login_then_gives_up_in_time():
    """It is asked for its protocol meanwhile; a refusal of 0.9 says that it speaks 0.8."""

    async def silent(peer: Peer) -> None:
        while True:
            await peer.hear()

    async with scripted_server(silent) as server:
        begun_at = anyio.current_time()
        with pytest.raises(RequestTimeoutError):
            await client_of(server, connect_timeout=10.0).connect()

    assert anyio.current_time() - begun_at == pytest.approx(10.0, abs=0.5)


async def test_connect_when_the_port_is_dead_then_gives_up_after_the_connect_timeout():
    async with scripted_server() as server:
        server.dead.add(ONE)
        begun_at = anyio.current_time()
        with pytest.raises(ConnectionFailedError, match="refused"):
            await client_of(server, connect_timeout=10.0).connect()

    assert 1.0 < anyio.current_time() - begun_at <= 10.0
    assert len(server.dialled) == 7  # after 0, 0.1, 0.3, 0.7, 1.5, 3.1 and 6.3 seconds


async def test_connect_when_retries_are_counted_then_dials_as_often():
    async with scripted_server() as server:
        server.dead.add(ONE)
        client = client_of(server, reconnect=Reconnect(retries=4, jitter=0.0))
        with pytest.raises(ConnectionFailedError):
            await client.connect()

    assert len(server.dialled) == 5


async def test_connect_when_reconnecting_is_off_then_dials_once():
    async with scripted_server() as server:
        server.dead.add(ONE)
        with pytest.raises(ConnectionFailedError):
            await client_of(server, reconnect=Reconnect(enabled=False)).connect()

    assert len(server.dialled) == 1


async def test_connect_when_the_first_endpoint_is_dead_then_takes_the_second():
    async with scripted_server() as server:
        server.dead.add(ONE)
        async with client_of(server, endpoints=(ONE, TWO)) as client:
            await client.ping()
            assert client.endpoint == TWO

    assert server.dialled == [ONE, TWO]


async def test_connect_when_the_first_endpoint_is_silent_then_takes_the_second_in_time():
    async with scripted_server() as server:
        server.silent.add(ONE)
        async with client_of(server, endpoints=(ONE, TWO), connect_timeout=3.0) as client:
            assert client.endpoint == TWO
            assert anyio.current_time() == pytest.approx(3.0, abs=0.1)


async def test_connect_when_no_endpoint_serves_then_tells_of_all():
    async with scripted_server() as server:
        server.dead |= {ONE, TWO}
        client = client_of(server, endpoints=(ONE, TWO), reconnect=Reconnect(retries=0))
        with pytest.raises(ConnectionFailedError, match=r"one\.example.*two\.example"):
            await client.connect()


async def test_dial_when_the_transport_is_no_stream_of_bytes_then_says_what_to_do():
    with pytest.raises(ConfigurationError, match=r"iggy://"):
        await open_transport(ONE, options(transport="quic"))


# Logins


async def test_login_when_done_by_hand_then_is_repeated_after_a_reconnect():
    script = Recorder()
    async with scripted_server(script) as server, client_of(server, credentials=None) as client:
        await client.login_user("alice", "secret")
        await anyio.sleep(10)
        server.peers[0].wire.abort()
        await client.ping()

    assert script.heard[1][0] == LoginUser("alice", "secret")


async def test_login_when_refused_then_is_not_remembered():
    class RefusesAlice(Recorder):
        async def answer(self, peer: Peer, command: Command[Any], connection: int) -> None:
            if isinstance(command, LoginUser) and command.username == "alice":
                await peer.reply(StatusCode.INVALID_CREDENTIALS)
            else:
                await peer.answer(command)

    script = RefusesAlice()
    async with scripted_server(script) as server, client_of(server) as client:
        with pytest.raises(AuthenticationError):
            await client.login_user("alice", "wrong")
        await anyio.sleep(10)
        server.peers[0].wire.abort()
        await client.ping()

    assert script.heard[1][0].username == "iggy"


async def test_logout_when_done_then_the_login_is_forgotten():
    script = Recorder()
    async with scripted_server(script) as server, client_of(server) as client:
        await client.logout_user()
        await anyio.sleep(10)
        server.peers[0].wire.abort()
        await client.ping()

    assert script.kinds()[1] == ["Ping"]


async def test_sibling_when_made_then_has_the_login_and_a_connection_of_its_own():
    script = Recorder()
    async with scripted_server(script) as server, client_of(server, credentials=None) as client:
        await client.login_user("alice", "secret")
        async with client.sibling() as other:
            await other.ping()
            assert other.options is client.options

    assert script.heard[1][0] == LoginUser("alice", "secret")
