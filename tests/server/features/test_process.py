"""The server as a process: it starts once, stops in good order, and never half."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from iggy_protocol import GetStreams, Ping, StatusCode
from tests.server.features.scene import eventually, make_topic
from tests.server.running import RunningServer, ServerFailed
from tests.server.wire_client import HungUp, Refused


def shard_pids(server):
    """Find the processes that the supervisor has started."""
    listed = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
    return [int(number) for number in listed.split()]


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


@pytest.mark.parametrize("shards", [1, 2])
def test_server_when_told_to_stop_then_clients_are_told_and_it_ends_with_0(start_server, shards):
    server = start_server(shards=shards)
    clients = [server.login() for _ in range(4)]

    server.stop()

    for client in clients:
        with pytest.raises(Refused) as refused:
            client.receive()
        assert refused.value.status == StatusCode.DISCONNECTED
        with pytest.raises(HungUp):
            client.receive()


def test_server_when_interrupted_then_it_ends_with_0(start_server):
    server = start_server()

    server.signal(signal.SIGINT)

    assert server.wait() == 0


def test_shards_when_their_supervisor_is_killed_then_they_end_with_it(start_server):
    server = start_server(shards=2)
    shards = shard_pids(server)
    assert len(shards) == 2

    server.signal(signal.SIGKILL)

    assert eventually(lambda: not any(is_alive(pid) for pid in shards))


@pytest.mark.parametrize("victim", [0, 1])
def test_server_when_a_shard_dies_then_all_of_it_ends_and_says_which(start_server, victim):
    server = start_server(shards=2)
    shards = shard_pids(server)
    os.kill(shards[victim], signal.SIGKILL)

    assert server.wait() not in (0, None)
    assert "shard" in server.output()
    assert not any(is_alive(pid) for pid in shards)


def test_data_directory_when_in_use_then_a_second_server_refuses_to_start(start_server):
    first = start_server()
    topic = make_topic(first.login())
    second = RunningServer(
        first.data.parent / "second", settings={"IGGY_SYSTEM_PATH": str(first.data)}
    )

    second.launch()
    status = second.wait()

    assert status != 0
    assert str(first.data) in second.output()
    topic.send("still served")
    assert topic.read() == ["still served"]


def test_port_when_in_use_then_a_second_server_refuses_to_start(start_server):
    host, port = start_server(shards=2).address

    with pytest.raises(ServerFailed, match=rf"(?s)instead of starting.*{port}"):
        start_server(shards=2, settings={"IGGY_TCP_ADDRESS": f"{host}:{port}"})


def test_connections_when_many_come_to_two_shards_then_both_serve_them(start_server):
    server = start_server(shards=2)
    clients = [server.login() for _ in range(16)]

    for client in clients:
        client.ask(Ping())
        assert client.ask(GetStreams()) == ()


def test_fresh_start_when_asked_for_then_nothing_of_the_past_is_left(start_server):
    server = start_server()
    make_topic(server.login())
    server.stop()

    server.arguments = ("--fresh",)
    server.start()

    assert server.login().ask(GetStreams()) == ()
