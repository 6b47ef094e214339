"""What a client finds out about a server: its framing by one question, its version by the login."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from iggy_protocol import CLASSIC, V0_11, V0_12_0, V0_12_2, Identity, Register, StatusCode
from iggy_sdk.connection_string import ServerProtocol
from iggy_sdk.errors import (
    AuthenticationError,
    DisconnectedError,
    IncompatibleServerError,
    ProtocolError,
    RequestTimeoutError,
)
from tests.sdk.net.clients import ONE, TWO, Recorder, client_of
from tests.sdk.scripted_peer import Peer, polite, scripted_server
from tests.sdk.vsr_peer import vsr_peers

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

AUTO = ServerProtocol.AUTO
NEWEST_FIRST = [V0_12_2, V0_12_0, V0_11]


@pytest.mark.parametrize("dialect", NEWEST_FIRST)
async def test_auto_when_the_server_speaks_one_version_then_the_client_finds_it(dialect):
    peers = vsr_peers(dialect)
    async with (
        scripted_server(peers=peers) as server,
        client_of(server, protocol=AUTO) as client,
    ):
        await client.ping()
        assert client.dialect is dialect

    assert peers.announced[-1] == str(dialect.version)


async def test_auto_when_the_server_speaks_the_newest_then_asks_on_the_connection_it_uses():
    peers = vsr_peers(V0_11, V0_12_0, V0_12_2)
    async with scripted_server(peers=peers) as server, client_of(server, protocol=AUTO) as client:
        await client.ping()

    assert server.dialled == [ONE]
    assert peers.announced == ["0.12.2"]


async def test_auto_when_the_server_speaks_0_8_then_connects_again_and_remembers():
    script = Recorder()
    async with scripted_server(script) as server, client_of(server, protocol=AUTO) as client:
        await client.ping()
        assert client.dialect is CLASSIC
        server.peers[-1].wire.abort()
        await client.ping()
        async with client.sibling() as sibling:
            await sibling.ping()

    assert server.dialled == [ONE] * 4
    assert [heard[0] for heard in script.kinds() if heard] == ["LoginUser"] * 3


async def test_auto_when_the_version_was_refused_once_then_it_is_not_tried_again():
    peers = vsr_peers(V0_11, V0_12_0)
    async with (
        scripted_server(peers=peers) as server,
        client_of(server, protocol=AUTO) as client,
        client.sibling(),
    ):
        pass

    assert peers.announced == ["0.12.2", "0.12.0", "0.12.0"]


async def test_auto_when_the_server_was_replaced_by_an_older_one_then_finds_that_out():
    script = Recorder()
    newer = vsr_peers(V0_12_2)
    async with scripted_server(peers=newer) as server, client_of(server, protocol=AUTO) as client:
        await client.ping()
        server.replace(script, Peer)
        await client.ping()
        assert client.dialect is CLASSIC

    assert script.kinds()[-1][0] == "LoginUser"


async def test_auto_when_the_server_was_replaced_by_a_newer_one_then_finds_that_out():
    newer = vsr_peers(V0_12_2)
    async with scripted_server() as server, client_of(server, protocol=AUTO) as client:
        await client.ping()
        server.replace(polite, newer)
        await client.ping()
        assert client.dialect is V0_12_2


async def test_auto_when_an_old_server_hangs_up_on_the_question_then_the_client_speaks_0_8():
    async def hang_up_on_strangers(peer: Peer) -> None:
        if peer is not server.peers[0]:
            await peer.serve()

    async with (
        scripted_server(hang_up_on_strangers) as server,
        client_of(server, protocol=AUTO) as client,
    ):
        assert client.dialect is CLASSIC


async def test_auto_when_an_old_server_is_silent_then_the_client_speaks_0_8_after_two_seconds():
    async def ignore_strangers(peer: Peer) -> None:
        if peer is server.peers[0]:
            await anyio.sleep_forever()
        await peer.serve()

    async with scripted_server(ignore_strangers) as server:
        begun_at = anyio.current_time()
        async with client_of(server, protocol=AUTO) as client:
            assert client.dialect is CLASSIC
            assert anyio.current_time() - begun_at == pytest.approx(2.0)


async def test_auto_when_it_is_no_server_of_iggy_then_says_so():
    async def babble(peer: Peer) -> None:
        await peer.write(bytes(4) + b"HTTP/1.1 400 Bad Request" * 20)

    async with scripted_server(babble) as server:
        with pytest.raises(ProtocolError, match="no Iggy server"):
            await client_of(server, protocol=AUTO).connect()


async def test_auto_when_there_are_two_servers_then_each_is_asked():
    peers = vsr_peers(V0_12_2)
    async with scripted_server(peers=peers) as server:
        server.dead.add(ONE)
        client = client_of(server, protocol=AUTO, endpoints=(ONE, TWO))
        async with client:
            assert client.endpoint == TWO
            assert client.dialect is V0_12_2


@pytest.mark.parametrize("protocol", [ServerProtocol.V0_9, ServerProtocol.V0_10])
async def test_protocol_when_the_server_speaks_0_8_alone_then_names_both(protocol):
    async with scripted_server() as server:
        with pytest.raises(IncompatibleServerError, match=r"0\.8") as caught:
            await client_of(server, protocol=protocol).connect()

    assert protocol.value in caught.value.message
    assert not caught.value.retriable


async def test_protocol_when_the_server_accepts_other_versions_then_names_them():
    async with scripted_server(peers=vsr_peers(V0_12_0, V0_12_2)) as server:
        with pytest.raises(IncompatibleServerError, match=r"0\.12\.0 to 0\.12\.2"):
            await client_of(server, protocol=ServerProtocol.V0_9).connect()


async def test_protocol_when_it_is_named_then_no_other_is_spoken():
    peers = vsr_peers(V0_11, V0_12_0, V0_12_2)
    async with (
        scripted_server(peers=peers) as server,
        client_of(server, protocol=ServerProtocol.V0_9) as client,
    ):
        assert client.dialect is V0_11


async def test_protocol_when_a_newer_server_is_silent_then_the_error_says_so():
    async def ignore(peer: Any) -> None:
        await anyio.sleep_forever()

    async with scripted_server(ignore, peers=vsr_peers(V0_12_2)) as server:
        with pytest.raises(DisconnectedError, match="does not answer"):
            await client_of(server, protocol=ServerProtocol.V0_10).connect()


async def test_login_when_it_is_refused_then_the_error_is_that_of_the_refusal():
    async def refuse(peer: Any) -> None:
        command = await peer.hear()
        while not isinstance(command, Register):
            await peer.answer(command)
            command = await peer.hear()
        await peer.reply(StatusCode.INVALID_CREDENTIALS)
        await peer.serve()

    async with scripted_server(refuse, peers=vsr_peers(V0_12_2)) as server:
        with pytest.raises(AuthenticationError, match="password"):
            await client_of(server, protocol=AUTO).connect()


async def test_login_when_it_is_not_answered_then_the_connection_times_out():
    async def swallow(peer: Any) -> None:
        await peer.answer(await peer.hear())
        await peer.hear()
        await anyio.sleep_forever()

    async with scripted_server(swallow, peers=vsr_peers(V0_12_2)) as server:
        begun_at = anyio.current_time()
        with pytest.raises(RequestTimeoutError):
            await client_of(server, protocol=AUTO).connect()
        assert anyio.current_time() - begun_at == pytest.approx(10.0, abs=0.1)


@pytest.mark.parametrize("dialect", NEWEST_FIRST)
async def test_login_when_it_is_done_by_hand_then_a_session_begins(dialect):
    peers = vsr_peers(dialect)
    async with (
        scripted_server(peers=peers) as server,
        client_of(server, protocol=AUTO, credentials=None) as client,
    ):
        await client.ping()
        with pytest.raises(AuthenticationError):
            await client.get_stream("shop")
        assert await client.login_user("alice", "secret") == Identity(user_id=1)
        assert await client.get_stream("shop") is None
        await client.logout_user()
        with pytest.raises(AuthenticationError):
            await client.get_stream("shop")
        await client.ping()

    assert str(dialect.version) == peers.announced[-1]
