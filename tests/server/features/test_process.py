"""The server as a process: it starts once, stops in good order, and never half."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from iggy_protocol import GetStreams, Ping, StatusCode
from tests.server.features.topic_calls import eventually, make_topic
from tests.server.running import RunningServer, ServerFailed
from tests.server.wire_client import ConnectionLost, Refused


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
        with pytest.raises(ConnectionLost):
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


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_port_when_reserved_by_who_starts_the_server_then_it_serves_there(start_server, host):
    """The harness of the original listens itself until the server has written where it listens."""
    reserved = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    with reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((host, 0))
        reserved.listen(1)
        port = reserved.getsockname()[1]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        settings = {"IGGY_TCP_ADDRESS": address, "IGGY_TCP_IPV6": "true" if ":" in host else ""}
        server = start_server(shards=2, settings=settings)

    assert server.address == (host, port)
    assert server.login().ask(GetStreams()) == ()
    with pytest.raises(ServerFailed, match=rf"(?s)instead of starting.*{port}"):
        start_server(settings=settings)


def test_port_when_held_for_itself_by_who_starts_the_server_then_it_is_refused(start_server):
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        with pytest.raises(ServerFailed, match=rf"(?s)instead of starting.*{port}"):
            start_server(settings={"IGGY_TCP_ADDRESS": f"127.0.0.1:{port}"})


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
