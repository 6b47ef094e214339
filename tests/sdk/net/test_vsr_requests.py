"""Requests to servers from 0.9 on: what is sent again after each outcome, and as which bytes."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from iggy_protocol import (
    V0_11,
    BindSession,
    Command,
    CreateStream,
    EvictionReason,
    FlushUnsavedBuffer,
    GetPartitionRoute,
    GetStream,
    PartitionContext,
    PollMessages,
    PurgeTopic,
    Register,
    SendConfirmation,
    SendMessages,
    StatusCode,
    StoreConsumerOffset,
)
from iggy_sdk.errors import (
    AuthenticationError,
    DisconnectedError,
    IggyError,
    InvalidRequestError,
    NotFoundError,
    PartitionNotOwnedError,
    RequestTimeoutError,
    StreamExistsError,
    UnsupportedByServerError,
)
from tests.sdk.net.vsr_sessions import (
    ALL,
    LATER,
    Planned,
    poll,
    send,
    store,
    stream_named,
    vsr_client,
)
from tests.sdk.vsr_peer import VsrPeer, vsr_peers

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

S = StatusCode


# Statuses that ask for another attempt.


@ALL
@pytest.mark.parametrize("status", [S.TRANSIENT_NOT_COMMITTED, S.TRANSIENT_NOT_ACCEPTED])
async def test_write_when_the_server_asks_for_patience_then_sends_the_same_bytes(dialect, status):
    script = Planned(CreateStream, status, status)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        assert (await client.create_stream("shop")).name == "shop"
        assert client.statistics().epoch == 1

    identities = script.identities()
    assert len(identities) == 3
    assert len(set(identities)) == 1


@LATER
async def test_write_when_its_outcome_was_unknown_then_only_a_marked_reply_is_final(dialect):
    script = Planned(SendMessages, S.TRANSIENT_NOT_COMMITTED, "unmarked", "unmarked", None)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        confirmed = await client.request(send())

    assert confirmed == (SendConfirmation(1, 1, 0, 7),)
    assert len(script.identities()) == 4


@LATER
async def test_write_when_its_outcome_stays_unknown_then_the_error_says_so_in_time(dialect):
    script = Planned(CreateStream, *[S.TRANSIENT_NOT_COMMITTED] * 500)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        begun_at = anyio.current_time()
        with pytest.raises(RequestTimeoutError, match="not known after 5 s") as caught:
            await client.request(CreateStream("shop"), timeout=5)
        assert anyio.current_time() - begun_at <= 5
    assert caught.value.code == S.OPERATION_UNCERTAIN
    assert caught.value.retriable


@LATER
async def test_write_when_refused_for_good_then_fails_at_once_although_the_status_is_transient(
    dialect,
):
    class Committed(Planned):
        async def answer(self, peer: VsrPeer, command: Command[Any]) -> None:
            if isinstance(command, CreateStream):
                await peer.reply(S.STREAM_NAME_ALREADY_EXISTS, position=peer.peers.advance())
            else:
                await super().answer(peer, command)

    script = Committed(CreateStream)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        with pytest.raises(StreamExistsError):
            await client.create_stream("shop")
    assert script.count(CreateStream) == 1


@LATER
async def test_write_when_a_lifecycle_is_pending_then_asks_with_a_new_number(dialect):
    script = Planned(CreateStream, S.LIFECYCLE_OPERATION_PENDING)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        await client.create_stream("shop")

    first, second = script.identities()
    assert first[0] < second[0]
    assert first[1] != second[1]


@LATER
async def test_send_when_the_history_is_gone_then_looks_up_the_route_and_starts_over_once(dialect):
    script = Planned(SendMessages, S.PARTITION_HISTORY_UNAVAILABLE)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        await client.request(send())
        assert script.count(GetPartitionRoute) == 2
        script.steps.extend([S.PARTITION_HISTORY_UNAVAILABLE] * 2)
        with pytest.raises(NotFoundError) as caught:
            await client.request(send())
    assert caught.value.code == S.PARTITION_HISTORY_UNAVAILABLE
    numbers = [number for number, _ in script.identities()]
    assert len(set(numbers)) == len(numbers) == 4


@LATER
async def test_poll_when_the_history_is_gone_then_the_next_history_is_read(dialect):
    script = Planned(PollMessages, S.PARTITION_HISTORY_UNAVAILABLE)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        await client.request(poll())
    assert script.count(PollMessages) == 2


@LATER
async def test_store_when_the_caller_named_the_history_then_it_fails_with_it(dialect):
    script = Planned(StoreConsumerOffset, S.PARTITION_HISTORY_UNAVAILABLE)
    context = PartitionContext(incarnation=5, owner_generation=2, metadata_position=9)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        with pytest.raises(NotFoundError):
            await client.request(store(), context=context)
    assert script.count(GetPartitionRoute) == 0
    assert script.requests[-1].context == context


@LATER
async def test_store_when_another_member_owns_the_partition_then_it_fails_at_once(dialect):
    script = Planned(StoreConsumerOffset, S.CONSUMER_GROUP_PARTITION_NOT_OWNED)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        with pytest.raises(PartitionNotOwnedError):
            await client.request(store())
    assert script.count(StoreConsumerOffset) == 1


@LATER
@pytest.mark.parametrize("status", [S.NOT_PRIMARY, S.TOO_MANY_DEFERRED_POLLS])
async def test_poll_when_the_server_is_not_ready_for_it_then_sends_the_same_bytes(dialect, status):
    script = Planned(PollMessages, status, status)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        await client.request(poll())
    assert len(set(script.identities())) == 1


@LATER
async def test_poll_when_the_server_is_never_ready_then_the_error_is_its_own(dialect):
    script = Planned(PollMessages, *[S.TOO_MANY_DEFERRED_POLLS] * 100)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        with pytest.raises(IggyError) as caught:
            await client.request(poll(), timeout=3)
    assert caught.value.code == S.TOO_MANY_DEFERRED_POLLS


# Lost connections.


@LATER
@pytest.mark.parametrize("command", [send(), store(), poll(), GetStream("shop")], ids=type)
async def test_request_when_the_connection_is_lost_then_the_same_bytes_go_over_another(
    dialect, command
):
    script = Planned(type(command), "hang up", "hang up")
    peers = vsr_peers(dialect)
    async with vsr_client(script, peers) as (_, client):
        await client.request(command)
        assert client.epoch == 3
        assert client.session_epoch == 1
        assert client.statistics().resends == 2

    assert len(set(script.identities())) == 1
    assert [type(login) for login in peers.logins] == [Register, BindSession, BindSession]


@LATER
async def test_poll_that_commits_when_the_connection_is_lost_then_it_is_not_repeated(dialect):
    script = Planned(PollMessages, "hang up")
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        with pytest.raises(DisconnectedError):
            await client.request(poll(auto_commit=True))
        await client.request(poll())
    assert script.count(PollMessages) == 2


@LATER
async def test_write_when_the_session_is_lost_with_the_connection_then_the_caller_learns_it(
    dialect,
):
    script = Planned(SendMessages, "forget")
    peers = vsr_peers(dialect)
    async with vsr_client(script, peers) as (_, client):
        with pytest.raises(DisconnectedError) as caught:
            await client.request(send())
        assert caught.value.sent
        assert caught.value.retriable
        await client.request(send())
        assert client.session_epoch == 2

    assert [type(login) for login in peers.logins] == [Register, BindSession, Register]
    assert peers.logins[0].secret != peers.logins[2].secret


@LATER
async def test_read_when_the_session_is_lost_with_the_connection_then_it_is_asked_again(dialect):
    script = Planned(GetStream, "forget")
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        assert await client.get_stream("shop") == stream_named("shop")


async def test_write_of_0_9_when_the_connection_is_lost_then_it_is_not_repeated():
    script = Planned(CreateStream, "hang up")
    peers = vsr_peers(V0_11)
    async with vsr_client(script, peers) as (_, client):
        with pytest.raises(DisconnectedError):
            await client.create_stream("shop")
        await client.create_stream("shop")
        assert client.session_epoch == client.epoch == 2

    assert script.count(CreateStream) == 2
    assert [type(login) for login in peers.logins] == [Register, Register]


async def test_read_of_0_9_when_the_connection_is_lost_then_it_is_asked_in_a_new_session():
    script = Planned(GetStream, "hang up")
    async with vsr_client(script, vsr_peers(V0_11)) as (_, client):
        assert await client.get_stream("shop") == stream_named("shop")
    first, second = (one.client for one in script.requests)
    assert first != second


@ALL
async def test_request_when_every_connection_is_lost_then_gives_up_after_three(dialect):
    script = Planned(GetStream, *["hang up"] * 10)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        with pytest.raises(DisconnectedError):
            await client.get_stream("shop")
    assert script.count(GetStream) == 4


# Evictions and refusals of the session.


@LATER
@pytest.mark.parametrize("reason", [EvictionReason.NO_SESSION, EvictionReason.STALE_CLIENT])
async def test_request_when_the_session_goes_on_elsewhere_then_it_is_bound_and_repeated(
    dialect, reason
):
    script = Planned(SendMessages, reason)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        await client.request(send())
        assert client.session_epoch == 1
    assert len(set(script.identities())) == 1


@ALL
async def test_request_when_the_session_was_ended_then_the_caller_learns_why(dialect):
    script = Planned(GetStream, EvictionReason.USER_INACTIVE)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        with pytest.raises(AuthenticationError):
            await client.get_stream("shop")
        assert await client.get_stream("shop") == stream_named("shop")


@ALL
async def test_request_when_the_login_is_unknown_then_logs_in_anew_once(dialect):
    script = Planned(GetStream, S.UNAUTHENTICATED)
    peers = vsr_peers(dialect)
    async with vsr_client(script, peers) as (_, client):
        assert await client.get_stream("shop") == stream_named("shop")
        script.steps.extend([S.UNAUTHENTICATED] * 2)
        with pytest.raises(AuthenticationError):
            await client.get_stream("shop")
    assert [type(login) for login in peers.logins] == [Register] * 3


# What the server does not have.


@ALL
@pytest.mark.parametrize(
    "command", [FlushUnsavedBuffer("s", "t", 0), PurgeTopic("s", "t")], ids=type
)
async def test_command_when_the_server_lacks_it_then_it_is_not_sent(dialect, command):
    script = Planned(type(command), S.FEATURE_UNAVAILABLE)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        if dialect is V0_11 and isinstance(command, PurgeTopic):
            return
        with pytest.raises(UnsupportedByServerError, match=dialect.generation) as caught:
            await client.request(command)
    assert isinstance(caught.value, InvalidRequestError)
    assert "protocol=" in caught.value.advice
    assert not caught.value.retriable
    assert script.all_heard() == []
