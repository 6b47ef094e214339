"""Programs for the official Python client 0.8; some run with this SDK in its place as well.

Each wheel lives in a virtual environment of its own, which ``make test`` makes, because only one of
them can be installed at a time. A program runs there as a script and reports in JSON. What all
versions do is in ``test_verbs.py`` and beside it.
"""

from __future__ import annotations

import json
import socket
import subprocess
from contextlib import contextmanager

import pytest

from iggy_protocol import GetConsumerGroup, GetStreams, Ping
from tests.interop.wheels import SCENARIO_SECONDS_MAX, SCENARIOS, wheel_python
from tests.server.features.topic_calls import eventually
from tests.server.running import RunningServer

pytestmark = pytest.mark.interop


@pytest.fixture
def wheel():
    """The interpreter of the environment with the client 0.8.0."""
    return wheel_python()


@pytest.fixture
def report_of(wheel, tmp_path):
    """Run a scenario with the client against a fresh server, and return what it reports."""

    def run(scenario):
        with RunningServer(tmp_path, shards=2) as server:
            return report(wheel, scenario, server)

    return run


def report(wheel, scenario, server):
    """Run a scenario with the client against a server, and return what it reports."""
    host, port = server.address
    done = subprocess.run(
        [wheel, SCENARIOS / f"{scenario}.py", f"{host}:{port}"],
        capture_output=True,
        text=True,
        timeout=SCENARIO_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{server.output()}"
    return json.loads(done.stdout)


NUMBERED = [[number, f"0 {number}"] for number in range(5)]
STORED = [*NUMBERED, [5, "bytes"]]


def test_client_when_it_does_the_basics_then_everything_is_as_on_the_original(report_of):
    report = report_of("basics")
    errors = report.pop("errors")

    assert report == {
        "wrong password": "InvalidCredentials",
        "stream": [0, "s", 1, 0],
        "topic": [0, "t", 3, 0],
        "same by id": True,
        "missing stream": None,
        "missing topic": None,
        "first": STORED,
        "offset": STORED[4:],
        "last": STORED[4:],
        "next": STORED[:2],
        "next again": STORED[2:4],
        "timestamp": STORED[5:],
        "future": [],
        "partition 2": [[number, f"2 {number}"] for number in range(5)],
        "ids": 6,
        "partitions": [0],
        "lengths": [3, 3, 3, 3, 3, 5],
        "recent": True,
        "counted": 16,
        "large": True,
    }
    assert {what: text.partition("(")[0] for what, text in errors.items()} == {
        "stream again": "StreamNameAlreadyExists",
        "topic again": "TopicNameAlreadyExists",
        "topic in missing stream": "StreamIdNotFound",
        "too many partitions": "TooManyPartitions",
        "send to missing stream": "StreamIdNotFound",
        "send to missing topic": "TopicIdNotFound",
        "send to missing partition": "PartitionNotFound",
        "poll of missing partition": "PartitionNotFound",
    }


def test_client_when_it_consumes_in_a_group_then_everything_comes_once_and_in_order(report_of):
    assert report_of("groups") == {
        "name": "readers",
        "stream": "s",
        "topic": "t",
        "taken": 60,
        "in order": True,
        "consumed": [19, 19, 19],
        "iterated": 60,
        "beyond the end": "InvalidOffset(0)",
    }


@pytest.fixture
def cluster(tmp_path):
    """Run a leader and a follower that name each other."""
    with socket.socket() as first, socket.socket() as second:
        for reserved in (first, second):
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            reserved.bind(("127.0.0.1", 0))
        ports = [first.getsockname()[1], second.getsockname()[1]]
        nodes = [
            RunningServer(
                tmp_path / f"node-{number}",
                settings={
                    "IGGY_TCP_ADDRESS": f"127.0.0.1:{own}",
                    "IGGY_CLUSTER_ENABLED": "true",
                    "IGGY_CLUSTER_NODE_CURRENT_NAME": f"node-{number}",
                    "IGGY_CLUSTER_NODE_OTHERS_0_NAME": f"node-{1 - number}",
                    "IGGY_CLUSTER_NODE_OTHERS_0_IP": "127.0.0.1",
                    "IGGY_CLUSTER_NODE_OTHERS_0_PORTS_TCP": str(ports[1 - number]),
                },
                arguments=["--follower"] * number,
            )
            for number, own in enumerate(ports)
        ]
        with nodes[0] as leader, nodes[1] as follower:
            yield leader, follower


@pytest.mark.parametrize("node", [0, 1], ids=["leader", "follower"])
def test_client_when_it_connects_to_either_node_then_it_is_redirected_to_the_leader(
    wheel, cluster, node
):
    leader, follower = cluster

    assert report(wheel, "redirect", cluster[node]) == {"stream": "made-by-the-client"}

    assert [stream.name for stream in leader.login().ask(GetStreams())] == ["made-by-the-client"]
    assert follower.login().ask(GetStreams()) == ()


HEARTBEATS = {"IGGY_HEARTBEAT_ENABLED": "true", "IGGY_HEARTBEAT_INTERVAL": "500 ms"}
ALL_TEN = [str(number) for number in range(10)]


@contextmanager
def returning_client(wheel, server):
    """Run the consumer that loses its connection up to the moment when it may."""
    host, port = server.address
    client = subprocess.Popen(
        [wheel, SCENARIOS / "reconnect.py", f"{host}:{port}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "first\n", "it failed before it consumed anything"
            yield client
        finally:
            client.kill()


def taken_by(client):
    output, _ = client.communicate("go on\n", timeout=SCENARIO_SECONDS_MAX)
    assert client.returncode == 0
    return json.loads(output)["taken"]


def test_consumer_when_its_heart_stood_still_then_it_comes_back_by_itself(wheel, tmp_path):
    with (
        RunningServer(tmp_path, shards=2, settings=HEARTBEATS) as server,
        returning_client(wheel, server) as client,
    ):
        observer = server.login()

        def is_thrown_out():
            observer.ask(Ping())
            group = observer.ask(GetConsumerGroup("s", "t", "readers"))
            return group is not None and group.members == ()

        assert eventually(is_thrown_out, within_s=10)
        assert taken_by(client) == ALL_TEN


def test_clients_when_there_are_many_then_nothing_is_lost_and_nothing_comes_twice(report_of):
    assert report_of("many_clients") == {"counted": 2000, "dense": True, "taken": 2000, "twice": 0}
