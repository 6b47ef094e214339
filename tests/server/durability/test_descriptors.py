"""Few descriptors: more partitions than files may be open, more clients than there is room for."""

from __future__ import annotations

import re
import resource
from contextlib import closing
from pathlib import Path

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    CreatePartitions,
    CreateStream,
    CreateTopic,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
)
from tests.server.features.topic_calls import eventually
from tests.server.running import RunningServer
from tests.server.wire_client import ConnectionLost

pytestmark = pytest.mark.timeout(240)

AT_ONCE = 200


def limited(limit: int, *, which: str = "") -> list[str]:
    """Say how to start a program with another limit of open files, soft and hard by default."""
    return ["sh", "-c", f'ulimit {which} -n {limit}; exec "$@"', "sh"]


def ask_each(client, count, make):
    """Ask something of each partition, many at a time, and return the answers."""
    answers = []
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        client.send(*[make(number) for number in numbers])
        answers += [client.receive() for _ in numbers]
    return answers


def send_to(number):
    """Make a message for a partition."""
    return SendMessages("s", "t", Partitioning.partition(number), [b"%d" % number])


def poll_of(number):
    """Ask for all messages of a partition."""
    return PollMessages(
        ConsumerIdentity.single(1), "s", "t", PollingStrategy.first(), 99, number, True
    )


def check_all(client, count, copies):
    """Read every partition twice, with a stored offset for each."""
    for _ in range(2):
        polled = ask_each(client, count, poll_of)
        found = [answer.messages.payloads() for answer in polled]
        assert found == [[b"%d" % number] * copies for number in range(count)]


@pytest.mark.parametrize("count", [1000, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("engine", ["auto", pytest.param("threads", marks=pytest.mark.slow)])
def test_topic_when_it_has_more_partitions_than_descriptors_then_all_are_served(
    tmp_path, engine, count
):
    settings = {"IGGY_SYSTEM_STORAGE_ENGINE": engine}
    with RunningServer(tmp_path, settings=settings, prefix=limited(1024)) as server:
        client = server.login()
        client.ask(CreateStream("s"))
        client.ask(CreateTopic("s", "t", 1000))
        for _ in range(1000, count, 1000):
            client.ask(CreatePartitions("s", "t", 1000))
        for copies in (1, 2):
            ask_each(client, count, send_to)
            check_all(client, count, copies)
        server.restart()
        client = server.login()
        check_all(client, count, 2)
        ask_each(client, count, send_to)
        check_all(client, count, 3)
        assert "Too many open files" not in server.output()


def test_start_when_the_soft_limit_is_low_then_shards_have_the_hard_one(tmp_path):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with RunningServer(tmp_path, prefix=limited(256, which="-S")) as server:
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
        shard = children.read_text().split()[0]
        limits = Path(f"/proc/{shard}/limits").read_text()
        found = re.search(r"Max open files +(\d+) +(\S+)", limits)
        assert found is not None
        assert int(found[1]) == min(hard, 1 << 20) or hard == resource.RLIM_INFINITY
        assert int(found[1]) > 256


def test_start_when_even_the_hard_limit_is_too_low_then_says_what_to_do(tmp_path):
    server = RunningServer(tmp_path, prefix=limited(100))
    with closing(server):
        server.launch()
        assert server.wait() == 1
        assert "ulimit -n" in server.output()
        assert "Traceback" not in server.output()


def test_clients_when_they_take_all_descriptors_then_files_can_still_be_opened(tmp_path):
    count = 300
    settings = {"IGGY_LIMITS_MAX_UNAUTHENTICATED_CONNECTIONS": "5000"}
    with RunningServer(tmp_path, settings=settings, prefix=limited(512)) as server:
        client = server.login()
        client.ask(CreateStream("s"))
        client.ask(CreateTopic("s", "t", count))
        clients = [server.connect() for _ in range(600)]
        assert eventually(lambda: "reserved for files" in server.output(), 20)
        ask_each(client, count, send_to)
        check_all(client, count, 1)
        for one in clients:
            one.close()

        def can_log_in():
            try:
                server.login()
            except (ConnectionLost, ConnectionError):
                return False
            return True

        assert eventually(can_log_in, 60)
