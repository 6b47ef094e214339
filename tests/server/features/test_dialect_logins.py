"""Logins of clients of 0.9 and 0.10 on the port of a real server."""

from __future__ import annotations

import pytest

from iggy_protocol import (
    CreatePersonalAccessToken,
    CreateStream,
    CreateUser,
    DeleteUser,
    Dialect,
    EvictionReason,
    GetClients,
    GetMe,
    LogoutUser,
    PasswordCredentials,
    Ping,
    StatusCode,
    TokenCredentials,
    Transport,
    UpdateUser,
    UserStatus,
)
from iggy_protocol.vsr.heads import RequestHead
from tests.server.features.topic_calls import unique
from tests.server.running import RunningServer
from tests.server.vsr_client import CONTEXT_DIALECTS, VSR_DIALECTS, connections, dialect_name


@pytest.fixture(params=[1, 2], ids=["one shard", "two shards"], scope="module")
def running(request, tmp_path_factory):
    """One server for the tests that leave each other's streams alone."""
    with RunningServer(tmp_path_factory.mktemp("dialects"), shards=request.param) as server:
        yield server


@pytest.fixture
def connect(running):
    """Open connections of any dialect, which end with the test."""
    with connections(running.address) as connect:
        yield connect


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_client_when_it_logs_in_and_out_then_gets_a_later_session_each_time(connect, dialect):
    client = connect(dialect, is_logged_in=False)
    assert client.ask(Ping()) is None

    first = client.login()
    assert client.ask(Ping()) is None
    assert client.ask(LogoutUser()) is None
    second = client.login()

    assert (first.user_id, first.version) == (0, dialect.version)
    assert first.server_version == dialect.server_version
    assert 0 < first.session < second.session < 1 << 43


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_login_when_it_fails_then_is_an_eviction_with_its_reason(running, connect, dialect):
    root, name = running.login(), unique("u")
    root.ask(CreateUser(name, "secret", UserStatus.INACTIVE))
    wrong = {
        PasswordCredentials("iggy", "wrong"): EvictionReason.INVALID_CREDENTIALS,
        PasswordCredentials("nobody", "iggy"): EvictionReason.INVALID_CREDENTIALS,
        PasswordCredentials(name, "secret"): EvictionReason.USER_INACTIVE,
        TokenCredentials("absent"): EvictionReason.INVALID_TOKEN,
    }
    for credentials, reason in wrong.items():
        client = connect(dialect, is_logged_in=False)
        assert client.eviction(client.session.register(credentials)) == reason


def test_client_of_0_9_when_its_login_failed_then_logs_in_on_the_same_connection(connect):
    client = connect(Dialect.V0_11, is_logged_in=False)
    client.eviction(client.session.register(PasswordCredentials("iggy", "wrong")))

    assert client.login().user_id == 0


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_client_when_it_has_a_token_then_logs_in_with_it(running, connect, dialect):
    token = running.login().ask(CreatePersonalAccessToken(unique("pat"))).token
    client = connect(dialect, is_logged_in=False)

    assert client.login(TokenCredentials(token)).user_id == 0
    assert client.ask(GetMe()).user_id == 0


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_login_when_the_client_has_a_session_then_returns_that_and_looks_at_nothing(
    connect, dialect
):
    client = connect(dialect)
    session = client.session.session
    register = client.session.register
    client.session.session = 0

    again = client.ask(register(PasswordCredentials("iggy", "wrong")))

    assert again.session == session
    assert client.ask(GetMe()).user_id == 0


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_client_when_it_has_not_logged_in_then_may_only_ping(connect, dialect):
    def head(**fields):
        client = connect(dialect, is_logged_in=False)
        client.socket.sendall(RequestHead(client=bytes(range(1, 17)), **fields).encode())
        reply = b""
        while len(reply) < 256:
            reply += client.socket.recv(256 - len(reply))
        return reply

    assert int.from_bytes(head(operation=2, code=201)[216:220], "little") == 40
    assert head(operation=128, number=1, session=1)[255] == EvictionReason.NO_SESSION
    assert head(operation=2, code=38)[255] == EvictionReason.MALFORMED_LOGIN
    assert head(operation=3)[216:220] == bytes(4)


@pytest.mark.parametrize("dialect", CONTEXT_DIALECTS, ids=dialect_name)
def test_session_when_it_is_not_known_then_cannot_be_bound(connect, dialect):
    client = connect(dialect, is_logged_in=False)

    assert client.refusal(client.session.bind()) == StatusCode.UNAUTHENTICATED
    assert client.login().user_id == 0


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
@pytest.mark.parametrize("end", ["deleted", "deactivated"])
def test_client_when_its_user_ends_then_its_session_ends_too(running, connect, dialect, end):
    root, name = running.login(), unique("u")
    root.ask(CreateUser(name, "secret"))
    client = connect(dialect, is_logged_in=False)
    client.login(PasswordCredentials(name, "secret"))

    root.ask(DeleteUser(name) if end == "deleted" else UpdateUser(name, status=UserStatus.INACTIVE))

    assert client.refusal(GetMe()) == StatusCode.UNAUTHENTICATED
    assert client.eviction(CreateStream(unique("s"))) == EvictionReason.NO_SESSION


def test_clients_when_they_speak_any_dialect_then_are_listed_alike(running, connect):
    clients = [connect(dialect) for dialect in VSR_DIALECTS]
    seen = {client.client_id: client for client in running.login().ask(GetClients())}

    for client in clients:
        me = client.ask(GetMe())
        assert me.address == client.local_address
        assert (me.user_id, me.transport) == (0, Transport.TCP)
        assert seen[me.client_id].address == me.address
