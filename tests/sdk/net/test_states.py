"""The states of a session and of a client: their tables, and what users are told about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from iggy_protocol import GetStream, Ping
from iggy_sdk.errors import ClientClosedError, DisconnectedError, IggyError, RequestTimeoutError
from iggy_sdk.options import Reconnect
from iggy_sdk.session.reconnecting import ReconnectingSession
from iggy_sdk.session.states import (
    CLIENT_TRANSITIONS,
    SESSION_TRANSITIONS,
    ClientEvent,
    ClientState,
    SessionEvent,
    SessionState,
    next_state,
)
from tests.sdk.cancelling import cancelled_everywhere
from tests.sdk.net.clients import ONE
from tests.sdk.net.sessions import TIMEOUT, WATCHED, open_session, tell_names
from tests.sdk.scripted_peer import options, scripted_server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iggy_sdk.session.stream import StreamSession
    from tests.sdk.scripted_peer import Peer, ScriptedServer

TABLES = pytest.mark.parametrize(
    ("transitions", "states", "events"),
    [
        (SESSION_TRANSITIONS, SessionState, SessionEvent),
        (CLIENT_TRANSITIONS, ClientState, ClientEvent),
    ],
    ids=["session", "client"],
)
VIRTUAL_TIME = [pytest.mark.anyio, pytest.mark.virtual_time]

CHECKPOINTS_OF_CONNECT = 60
"""More than a connect in memory has on either engine."""


# The tables


def reachable_from(transitions: Mapping[Any, Any], state: Any) -> set[Any]:
    found, left = {state}, [state]
    while left:
        before = left.pop()
        after = {to for (start, _), to in transitions.items() if start is before} - found
        found |= after
        left += after
    return found


@TABLES
def test_table_when_walked_from_the_first_state_then_every_state_is_reached(
    transitions, states, events
):
    first, *_ = states

    assert reachable_from(transitions, first) == set(states)


@TABLES
def test_table_when_walked_from_any_state_then_the_client_can_close(transitions, states, events):
    assert all(states.CLOSED in reachable_from(transitions, state) for state in states)
    assert reachable_from(transitions, states.CLOSED) == {states.CLOSED}


@TABLES
def test_table_when_searched_then_every_event_is_used(transitions, states, events):
    assert {event for _, event in transitions} == set(events)


@TABLES
def test_table_when_the_client_closes_then_that_is_possible_in_every_state(
    transitions, states, events
):
    assert {state for state, event in transitions if event is events.CLOSE} == set(states)


def test_next_state_when_the_table_does_not_allow_an_event_then_fails():
    with pytest.raises(AssertionError, match=r"LOSS_FOUND is not possible in .*CLOSED"):
        next_state(SESSION_TRANSITIONS, SessionState.CLOSED, SessionEvent.LOSS_FOUND)


# One session


async def lose(session: StreamSession) -> None:
    session.abort(DisconnectedError("the server went"), by_peer=True)


async def abort(session: StreamSession) -> None:
    session.abort(DisconnectedError("the client moved"))


async def close(session: StreamSession) -> None:
    await session.aclose()


async def find_loss(session: StreamSession) -> None:
    session._note_loss(DisconnectedError("the server went"))


ENDS = pytest.mark.parametrize(
    ("steps", "state", "error"),
    [
        ([lose], SessionState.DISCONNECTED, DisconnectedError),
        ([find_loss], SessionState.DISCONNECTED, DisconnectedError),
        ([abort], SessionState.ABORTED, DisconnectedError),
        ([close], SessionState.CLOSED, ClientClosedError),
        ([lose, close], SessionState.CLOSED, ClientClosedError),
        ([abort, close], SessionState.CLOSED, ClientClosedError),
        ([find_loss, close], SessionState.CLOSED, ClientClosedError),
        ([close, close], SessionState.CLOSED, ClientClosedError),
        # The first reason counts, whether a task knew it or not.
        ([find_loss, abort], SessionState.DISCONNECTED, DisconnectedError),
        ([abort, find_loss], SessionState.ABORTED, DisconnectedError),
        ([find_loss, find_loss], SessionState.DISCONNECTED, DisconnectedError),
        ([lose, abort], SessionState.DISCONNECTED, DisconnectedError),
    ],
)


class TestSession:
    pytestmark = VIRTUAL_TIME

    @WATCHED
    @ENDS
    async def test_request_when_the_session_has_ended_then_names_the_state(
        self, watched, steps, state, error
    ):
        async with open_session(watched=watched) as session:
            for step in steps:
                await step(session)
            assert session.is_closed
            with pytest.raises(error) as caught:
                await session.request(Ping(), timeout=TIMEOUT)

            assert session.state is state
            assert session.failure is not None
            assert session.is_ended_by_peer == (state is SessionState.DISCONNECTED)
            assert f"(session state: {state.value})" in caught.value.message
            assert not getattr(caught.value, "sent", False)

    @WATCHED
    async def test_request_when_pending_as_the_server_goes_then_names_the_state(self, watched):
        async def goes(peer: Peer) -> None:
            await peer.hear()

        async with open_session(goes, watched=watched) as session:
            with pytest.raises(DisconnectedError, match=r"session state: disconnected") as caught:
                await session.request(Ping(), timeout=TIMEOUT)

            assert caught.value.sent

    @WATCHED
    @pytest.mark.parametrize("is_found_outside", [False, True], ids=["task", "event_loop"])
    async def test_aclose_when_the_server_goes_meanwhile_then_the_session_counts_as_closed(
        self, watched, is_found_outside
    ):
        """The pending request was sent and is told so; a new one is refused as closed."""

        async def silent(peer: Peer) -> None:
            await peer.hear()
            await anyio.sleep_forever()

        async def ask() -> None:
            with pytest.raises(DisconnectedError, match="the server went") as caught:
                await session.request(GetStream("shop"), timeout=TIMEOUT)
            assert caught.value.sent

        async with (
            open_session(silent, watched=watched) as session,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(session.aclose)
            await anyio.wait_all_tasks_blocked()
            before = [session.state]
            await (find_loss if is_found_outside else lose)(session)
            before.append(session.state)
            after = SessionState.LOST_WHILE_CLOSING if is_found_outside else SessionState.CLOSED
            assert before == [SessionState.CLOSING, after]
            with pytest.raises(ClientClosedError, match=r"session state: closed"):
                await session.request(Ping(), timeout=TIMEOUT)

            assert session.state is SessionState.CLOSED
            assert not session.is_ended_by_peer

    @WATCHED
    async def test_request_when_the_session_is_closing_then_names_the_state(self, watched):
        async def late(peer: Peer) -> None:
            await anyio.sleep(1)
            await tell_names(peer)

        async with (
            open_session(late, watched=watched) as session,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(lambda: session.request(GetStream("shop"), timeout=TIMEOUT))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(session.aclose)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(ClientClosedError, match=r"session state: closing"):
                await session.request(Ping(), timeout=TIMEOUT)


# The client


def session_of(server: ScriptedServer, **changes: Any) -> ReconnectingSession:
    return ReconnectingSession(options(**changes), dial=server.dial)


class TestClient:
    pytestmark = VIRTUAL_TIME

    async def test_client_when_it_lives_then_goes_through_the_states(self):
        seen: list[ClientState] = []
        async with scripted_server() as server:
            client = session_of(server)
            advance = client._advance

            def note(event: ClientEvent) -> None:
                advance(event)
                seen.append(client.state)

            client._advance = note  # type: ignore[method-assign]
            await client.connect()
            server.peers[0].wire.abort()
            await client.request(Ping())
            await client.disconnect()
            await client.aclose()

        attempt = [
            ClientState.BACKING_OFF,
            ClientState.CONNECTING,
            ClientState.LOGGING_IN,
            ClientState.READY,
        ]
        assert seen == [
            ClientState.DISCONNECTED,
            *attempt,
            ClientState.DISCONNECTED,
            *attempt,
            ClientState.IDLE,
            ClientState.CLOSED,
        ]

    async def test_request_when_there_is_no_connection_then_names_the_state(self):
        async with scripted_server() as server:
            client = session_of(server, reconnect=Reconnect(enabled=False))
            with pytest.raises(DisconnectedError, match=r"not connected \(client state: idle\)"):
                await client.request(Ping())
            await client.connect()
            server.peers[0].wire.abort()
            with pytest.raises(DisconnectedError):
                await client.request(Ping())
            with pytest.raises(DisconnectedError, match=r"client state: disconnected"):
                await client.request(Ping())
            await client.aclose()
            with pytest.raises(ClientClosedError, match=r"client state: closed"):
                await client.request(Ping())

    async def test_request_when_the_connection_stays_away_then_names_the_state(self):
        async with scripted_server() as server, anyio.create_task_group() as tasks:
            client = session_of(server)
            await tasks.start(client.run)
            server.dead.add(ONE)
            server.peers[0].wire.abort()
            with pytest.raises(RequestTimeoutError, match=r"client state: disconnected"):
                await client.request(Ping(), timeout=5)
            await client.aclose()

    @pytest.mark.parametrize(
        ("call", "state"), [("disconnect", ClientState.IDLE), ("aclose", ClientState.CLOSED)]
    )
    async def test_connect_when_ended_by_another_task_at_any_step_then_no_session_stays(
        self, call, state
    ):
        """Also where the last reply is there already, and the cancellation comes too late."""

        async def connect() -> None:
            try:
                await client.connect()
            except IggyError as error:
                errors.append(error)

        for turns in range(CHECKPOINTS_OF_CONNECT):
            errors: list[IggyError] = []
            async with scripted_server() as server:
                client = session_of(server)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(connect)
                    while client.state is ClientState.IDLE:
                        await checkpoint()
                    for _ in range(turns):
                        await checkpoint()
                    await getattr(client, call)()
                assert not client.is_connected
                assert client.state is state
                assert all(isinstance(error, ClientClosedError) for error in errors)
                await client.aclose()

    async def test_connect_when_cancelled_at_any_step_then_the_next_one_succeeds(self):
        async with scripted_server() as server:
            client = session_of(server)

            async for _ in cancelled_everywhere(client.connect):
                assert client.state in (ClientState.DISCONNECTED, ClientState.READY)
                await client.connect()
                assert client.state is ClientState.READY
                await client.request(Ping())
                await client.disconnect()
                assert client.state is ClientState.IDLE
            await client.aclose()

    async def test_connect_when_the_last_session_still_drains_then_opens_another(self):
        async def late(peer: Peer) -> None:
            await peer.welcome()
            await peer.hear()
            await anyio.sleep(3)
            await peer.reply(None)
            await peer.serve()

        async with scripted_server(late) as server, anyio.create_task_group() as tasks:
            client = session_of(server)
            await client.connect()
            tasks.start_soon(client.request, GetStream("shop"))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(client.disconnect)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(DisconnectedError, match="not connected"):
                await client.request(Ping())

            await client.connect()
            assert client.epoch == 2
            await anyio.sleep(10)
            assert client.state is ClientState.READY
            await client.aclose()

        assert client.statistics().disconnects == 0
