"""Faults as a client on the wire sees them, with a real server behind the proxy."""

from __future__ import annotations

import time

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    GetStream,
    GetStreams,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
)
from iggy_sdk.testing import RunningServer
from tests.server.wire_client import ConnectionLost, Refused, WireClient

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def one_server():
    with RunningServer() as running:
        yield running


@pytest.fixture
def server(one_server):
    one_server.reset()
    return one_server


@pytest.fixture
def client(server):
    with WireClient(server.address) as wire:
        wire.login()
        yield wire


def test_proxy_when_nothing_is_broken_then_commands_pass_and_are_counted(server, client):
    client.ask(CreateStream("s"))
    client.ask(Ping())

    assert server.faults.commands() == {"ping": 1, "login_user": 1, "create_stream": 1}
    assert server.faults.connections == 1


def test_drop_connection_when_commands_have_passed_then_cuts_before_the_server_sees_the_next(
    server, client
):
    dropped = server.faults.drop_connection(after_commands=1)
    client.ask(Ping())

    with pytest.raises((ConnectionLost, ConnectionError)):
        client.ask(CreateStream("never"))

    with WireClient(server.address) as other:
        other.login()
        assert other.ask(GetStream("never")) is None
    assert dropped.hits == 1


def test_drop_connection_when_pipelined_then_what_came_before_is_answered(server, client):
    server.faults.drop_connection(command="create_stream", after_commands=1)
    client.send(CreateStream("one"), CreateStream("two"), CreateStream("three"))

    assert client.receive().name == "one"
    assert client.is_closed_by_peer()
    with WireClient(server.address) as other:
        other.login()
        assert [stream.name for stream in other.ask(GetStreams())] == ["one"]


def test_drop_connection_when_executed_then_only_the_answer_is_lost(server, client):
    server.faults.drop_connection(command=CreateStream, executed=True)

    with pytest.raises((ConnectionLost, ConnectionError)):
        client.ask(CreateStream("made"))

    with WireClient(server.address) as other:
        other.login()
        assert other.ask(GetStream("made")) is not None


def test_answer_with_when_commands_are_pipelined_then_the_order_of_answers_is_kept(server, client):
    server.faults.answer_with(StatusCode.INVALID_COMMAND, command=Ping, times=2)
    client.send(CreateStream("s"), Ping(), CreateStream("s"), Ping(), Ping())

    assert client.receive().name == "s"
    for expected in (StatusCode.INVALID_COMMAND, StatusCode.STREAM_NAME_ALREADY_EXISTS):
        with pytest.raises(Refused) as refused:
            client.receive()
        assert refused.value.status == expected
    with pytest.raises(Refused):
        client.receive()
    assert client.receive() is None


def test_swallow_reply_when_later_commands_come_then_none_is_answered_wrongly(server, client):
    server.faults.swallow_reply(command="create_stream")
    client.socket.settimeout(0.1)
    client.send(Ping(), CreateStream("silent"), Ping())
    assert client.receive() is None

    with pytest.raises(TimeoutError):
        client.receive()

    with WireClient(server.address) as other:
        other.login()
        assert other.ask(GetStream("silent")) is not None


def test_heal_when_a_connection_fell_silent_then_it_is_cut(server, client):
    server.faults.swallow_reply(command=Ping)
    client.send(Ping())
    with WireClient(server.address) as other:
        other.login()
        server.faults.delay(0.001, times=1)
        other.ask(Ping())

        server.faults.heal()

        assert client.is_closed_by_peer()
        assert other.ask(Ping()) is None


def test_delay_when_in_force_then_the_command_takes_at_least_as_long(server, client):
    server.faults.delay(0.05, command=Ping, times=1)

    started = time.perf_counter()
    client.ask(Ping())
    late = time.perf_counter() - started
    client.ask(Ping())

    assert late >= 0.05


def test_heal_when_a_command_is_held_back_then_it_goes_at_once(server, client):
    server.faults.delay(60.0)
    client.send(Ping())

    server.faults.heal()

    assert client.receive() is None


def test_refuse_connections_when_in_force_then_the_system_refuses_and_open_ones_live(
    server, client
):
    server.faults.refuse_connections()

    with pytest.raises(ConnectionRefusedError):
        WireClient(server.address)
    assert client.ask(Ping()) is None
    server.faults.heal()
    WireClient(server.address).close()


def test_partition_when_the_block_ends_then_clients_are_let_in_again(server, client):
    with server.faults.partition():
        assert client.is_closed_by_peer()
        with pytest.raises(ConnectionRefusedError):
            WireClient(server.address)

    with WireClient(server.address) as other:
        assert other.ask(Ping()) is None


def test_proxy_when_frames_are_large_then_both_ways_stream_through(server, client):
    payload = bytes(range(256)) * 65_536
    client.ask(CreateStream("s"))
    client.ask(CreateTopic("s", "t", 1))

    client.ask(SendMessages("s", "t", Partitioning.partition(0), [payload], origin_timestamp_us=1))
    polled = client.ask(
        PollMessages(ConsumerIdentity.single(1), "s", "t", PollingStrategy.first(), 1, 0)
    )

    assert [bytes(message.payload) == payload for message in polled.messages] == [True]


@pytest.mark.parametrize("seconds", [0, -1.0])
def test_delay_when_it_is_none_then_is_refused(server, seconds):
    with pytest.raises(ValueError, match="more than 0"):
        server.faults.delay(seconds)


def test_answer_with_when_the_code_means_success_then_is_refused(server):
    with pytest.raises(ValueError, match="0 is not an error status"):
        server.faults.answer_with(0)
