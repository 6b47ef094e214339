"""What the SDK logs of its connections and of sends; what it never logs."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from iggy_protocol import LoginUser, LoginWithPersonalAccessToken, Register, StatusCode
from iggy_sdk import IggyError, Retry, log_events
from iggy_sdk.connection_string import PasswordLogin, TokenLogin
from iggy_sdk.options import Reconnect
from tests.sdk.dialects import SPOKEN
from tests.sdk.net.clients import ONE, TWO, Recorder, client_of, cluster
from tests.sdk.producer.broker import Broker, broker_and_client, orders
from tests.sdk.scripted_peer import PeerGone, scripted_server

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

every_dialect = pytest.mark.usefixtures("every_dialect")

PASSWORD, TOKEN = "sentinel-password", "sentinel-token"
PAYLOAD, KEY, HEADER = b"sentinel-payload", "sentinel-key", "sentinel-header"
SENTINELS = ("sentinel", PAYLOAD.hex())


@pytest.fixture(autouse=True)
def everything(caplog):
    """Log at DEBUG, as a user who wants to see it all."""
    caplog.set_level(logging.DEBUG)


def events(caplog, *names: str) -> list[Any]:
    """Return the records of events, in their order."""
    found = [one for one in caplog.records if hasattr(one, "iggy_event")]
    return [one for one in found if not names or one.iggy_event in names]


def loud(caplog) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno > logging.INFO]


@every_dialect
async def test_outage_when_it_is_over_then_each_step_of_it_was_logged(caplog):
    async with (
        scripted_server(peers=SPOKEN.peers) as server,
        client_of(server, reconnect=Reconnect(jitter=0.0), **SPOKEN.options) as client,
    ):
        await anyio.sleep(5)
        server.dead.add(ONE)
        server.peers[-1].wire.abort()
        await anyio.sleep(10)
        server.dead.clear()
        await client.ping()
        await anyio.sleep(10)

    told = events(caplog)
    assert {one.name for one in told} == {"iggy_sdk.session"}
    steps = [one.iggy_event for one in told]
    attempts = events(caplog, "attempt")
    assert steps == ["connected", "lost", *["attempt"] * len(attempts), "back"]
    connected, lost, back = told[0], told[1], told[-1]
    assert (connected.levelname, connected.endpoint) == ("INFO", "one.example")
    assert connected.dialect == str(client.dialect)
    assert (lost.levelname, lost.endpoint) == ("WARNING", "one.example")
    assert lost.reason
    assert [one.attempt for one in attempts] == list(range(1, len(attempts) + 1))
    assert [one.levelname for one in attempts] == ["WARNING", *["DEBUG"] * (len(attempts) - 1)]
    assert [round(one.delay_s, 3) for one in attempts[:4]] == [0.1, 0.2, 0.4, 0.8]
    assert all("refused" in one.reason for one in attempts)
    assert back.levelname == "INFO"
    assert back.seconds == pytest.approx(12.7, abs=0.1)
    assert back.attempt == len(attempts) + 1


async def test_attempts_when_there_are_many_then_every_tenth_is_loud(caplog):
    steady = Reconnect(delay=1.0, max_delay=1.0, jitter=0.0)
    async with scripted_server() as server, client_of(server, reconnect=steady):
        server.dead.add(ONE)
        server.peers[-1].wire.abort()
        await anyio.sleep(35.5)

    attempts = [one for one in events(caplog, "attempt") if one.levelname == "WARNING"]
    assert [one.attempt for one in attempts] == [1, 10, 20, 30]


@every_dialect
async def test_exit_when_normal_then_nothing_is_loud(caplog):
    async with broker_and_client() as (_, client):
        async with orders(client, background=True) as producer:
            await producer.send(b"one")
        await anyio.sleep(20)

    assert loud(caplog) == []
    assert [one.iggy_event for one in events(caplog)] == ["connected"]


async def test_exit_when_the_server_goes_at_the_same_time_then_nothing_is_loud(caplog):
    async with scripted_server() as server, client_of(server) as client:
        await client.ping()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.aclose)
            server.peers[-1].wire.abort()

    assert loud(caplog) == []


async def test_leader_when_it_is_another_then_the_move_is_logged_and_is_no_loss(caplog):
    class Cluster(Recorder):
        async def answer(self, peer, command, connection) -> None:
            if type(command).__name__ == "GetClusterMetadata":
                await peer.reply(cluster(TWO, ONE))
            else:
                await peer.answer(command)

    async with scripted_server(Cluster()) as server, client_of(server) as client:
        await client.ping()

    [moved] = events(caplog, "redirected")
    assert (moved.endpoint, moved.leader) == (str(ONE), str(TWO))
    assert moved.levelname == "INFO"
    assert loud(caplog) == []


@every_dialect
@pytest.mark.parametrize("mode", ["direct", "background"])
async def test_send_when_given_up_then_says_where_how_many_and_why(caplog, mode):
    async with broker_and_client() as (broker, client):
        broker.plan("refuse", StatusCode.TOPIC_ID_NOT_FOUND)
        async with orders(client, **{mode: True}, retry=None) as producer:
            with pytest.raises(LookupError):
                await (await producer.send_many([b"one", b"two"])).delivered()

    [given_up] = events(caplog, "send_given_up")
    assert given_up.name == "iggy_sdk.producer"
    assert given_up.levelname == "WARNING"
    assert (given_up.stream, given_up.topic, given_up.messages_count) == ("shop", "orders", 2)
    assert given_up.sent is None
    assert given_up.reason


def test_events_when_listed_then_the_page_and_the_module_name_them_all():
    names = {
        value
        for name, value in vars(log_events).items()
        if name.isupper() and isinstance(value, str) and name not in ("EVENT", "TYPE_CHECKING")
    }
    page = (Path(__file__).parents[3] / "docs" / "sdk.md").read_text(encoding="utf-8")

    assert len(names) == 8
    assert not [name for name in names if f"| `{name}` |" not in page]
    assert not [name for name in names if f"    {name} " not in (log_events.__doc__ or "")]


# Secrets


def assert_no_secret(caplog) -> None:
    """Look into every text and every field of every record, tracebacks included."""
    assert caplog.records
    formatter = logging.Formatter()
    for record in caplog.records:
        whole = f"{formatter.format(record)} {vars(record)!r}"
        assert not [word for word in SENTINELS if word in whole], whole


@every_dialect
@pytest.mark.parametrize(
    "credentials", [PasswordLogin("iggy", PASSWORD), TokenLogin(TOKEN)], ids=["password", "token"]
)
async def test_log_when_a_login_is_refused_then_has_no_secret(caplog, credentials):
    async def refuses(peer) -> None:
        while True:
            command = await peer.hear()
            if isinstance(command, LoginUser | LoginWithPersonalAccessToken | Register):
                await peer.reply(StatusCode.INVALID_CREDENTIALS)
            else:
                await peer.answer(command)

    options = {**SPOKEN.options, "credentials": credentials}
    async with scripted_server(refuses, peers=SPOKEN.peers) as server:
        with pytest.raises(IggyError) as caught:
            await client_of(server, **options).connect()
        logging.getLogger("user").error("the login failed", exc_info=caught.value)

    assert_no_secret(caplog)


@every_dialect
@pytest.mark.parametrize(
    "credentials", [PasswordLogin("iggy", PASSWORD), TokenLogin(TOKEN)], ids=["password", "token"]
)
@pytest.mark.parametrize("mode", ["direct", "background"])
async def test_log_when_connections_break_and_sends_fail_then_has_no_secret(
    caplog, credentials, mode
):
    broker = Broker()
    async with (
        broker_and_client(broker, credentials=credentials, request_timeout=5.0) as (
            _,
            client,
        ),
        orders(client, **{mode: True}, retry=Retry(attempts=1)) as producer,
    ):
        for kind in ("refuse", "drop", "lose", "swallow", "swallow"):
            broker.plan(kind, StatusCode.CANNOT_APPEND_MESSAGE, times=2)
            with suppress(IggyError):
                receipt = await producer.send(PAYLOAD, key=KEY, headers={"kind": HEADER}, timeout=8)
                await receipt.delivered(timeout=30)
            await anyio.sleep(1)
            broker._plan.clear()

    assert events(caplog, "lost")
    assert events(caplog, "send_given_up")
    assert_no_secret(caplog)


async def test_log_when_a_server_speaks_nonsense_then_has_no_secret(caplog):
    async def nonsense(peer) -> None:
        await peer.hear()
        await peer.write(b"\xff" * 64)
        raise PeerGone

    async with scripted_server(nonsense) as server:
        client = client_of(
            server,
            credentials=PasswordLogin("iggy", PASSWORD),
            reconnect=Reconnect(retries=3, jitter=0.0),
        )
        with pytest.raises(IggyError) as caught:
            await client.connect()
        logging.getLogger("user").error("connecting failed", exc_info=caught.value)

    assert_no_secret(caplog)
