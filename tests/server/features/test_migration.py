"""Clients that keep asking for what another shard has: their connections move there, unnoticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    CreateConsumerGroup,
    CreateStream,
    CreateTopic,
    GetClients,
    GetConsumerGroup,
    GetMe,
    JoinConsumerGroup,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
    pack_namespace,
    shard_for_namespace,
)
from iggy_ref_server.session import MIGRATION_REQUESTS_MIN

SERVER_SHARDS = 2
PARTITIONS = 8


def holder_of(client, server):
    """Return the process that holds the server's end of a connection."""
    port = client.socket.getsockname()[1]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, remote = (int(place.rpartition(":")[2], 16) for place in fields[1:3])
        if (local, remote) == (server.address[1], port):
            wanted = f"socket:[{fields[9]}]"
            for task in Path("/proc").glob("[0-9]*"):
                if parent_of(task) == server.pid and wanted in sockets_of(task):
                    return int(task.name)
    return None


def parent_of(task):
    try:
        return int((task / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def sockets_of(task):
    found = set()
    for entry in (task / "fd").iterdir():
        try:
            found.add(os.readlink(entry))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def topic(server):
    root = server.login()
    root.ask(CreateStream("s"))
    root.ask(CreateTopic("s", "t", PARTITIONS))
    return root


def partition_of(shard_id):
    """Return a partition of the first topic that lives on a shard."""
    return next(
        number
        for number in range(PARTITIONS)
        if shard_for_namespace(
            pack_namespace(stream_id=0, topic_id=0, partition_id=number), shards_count=2
        )
        == shard_id
    )


def send(partition_id, *payloads):
    return SendMessages("s", "t", Partitioning.partition(partition_id), list(payloads))


def keep_sending(client, partition_id, count=2 * MIGRATION_REQUESTS_MIN):
    for number in range(count):
        client.ask(send(partition_id, b"%d" % number))


def send_to_each(client, server, partitions):
    """Keep sending to each shard in turn; return which process held the connection afterwards."""
    holders = []
    for partition_id in partitions:
        keep_sending(client, partition_id)
        client.ask(GetMe())
        holders.append(holder_of(client, server))
    return holders


def test_client_when_it_keeps_sending_then_it_is_served_by_the_owner(server, topic, connect):
    partitions = [partition_of(0), partition_of(1), partition_of(0)]

    first, second, third = send_to_each(connect(), server, partitions)

    assert None not in (first, second)
    assert first == third != second


def test_client_when_moved_then_its_number_login_and_memberships_stay(server, topic, connect):
    client = connect()
    if topic.ask(GetConsumerGroup("s", "t", "g")) is None:
        topic.ask(CreateConsumerGroup("s", "t", "g"))
    client.ask(JoinConsumerGroup("s", "t", "g"))
    before = client.ask(GetMe())

    send_to_each(client, server, [partition_of(0), partition_of(1)])
    after = client.ask(GetMe())

    assert (after.client_id, after.user_id) == (before.client_id, before.user_id)
    assert after.consumer_groups == before.consumer_groups != ()
    listed = [one.client_id for one in topic.ask(GetClients())]
    assert listed.count(after.client_id) == 1
    client.close()
    wait_until_left(topic)


def wait_until_left(topic):
    """A moved member that hangs up leaves its group, as any other."""
    for _ in range(1000):
        if topic.ask(GetConsumerGroup("s", "t", "g")).members_count == 0:
            return
    raise AssertionError("the member is still there")


@pytest.mark.parametrize("shard_id", [0, 1])
def test_pipelined_sends_when_the_client_moves_amid_them_then_none_is_lost_or_out_of_order(
    server, topic, connect, shard_id
):
    partition_id = partition_of(shard_id)
    poll = PollMessages(
        ConsumerIdentity.single(7),
        "s",
        "t",
        PollingStrategy.last(),
        5000,
        partition_id=partition_id,
    )
    for _ in range(4):
        client = connect()
        payloads = [os.urandom(8) + b"x" * (37 * n % 5000) for n in range(400)]
        client.send(*(send(partition_id, payload) for payload in payloads))
        for _ in payloads:
            client.receive()

        stored = client.ask(poll).messages.payloads()

        assert stored[-len(payloads) :] == payloads


def test_polls_when_they_keep_coming_then_the_owner_serves_them(server, topic, connect):
    client, holders = connect(), []
    for shard_id in (0, 1):
        partition_id = partition_of(shard_id)
        keep_sending(topic, partition_id, 1)
        poll = PollMessages(
            ConsumerIdentity.single(8),
            "s",
            "t",
            PollingStrategy.first(),
            1,
            partition_id=partition_id,
        )
        for _ in range(2 * MIGRATION_REQUESTS_MIN):
            assert client.ask(poll).messages_count == 1
        client.ask(GetMe())
        holders.append(holder_of(client, server))

    assert len(set(holders)) == 2


def test_client_when_told_to_stay_then_it_is_served_from_where_it_is(start_server):
    server = start_server(shards=2, settings={"IGGY_TCP_SOCKET_MIGRATION": "false"})
    root = server.login()
    root.ask(CreateStream("s"))
    root.ask(CreateTopic("s", "t", PARTITIONS))

    holders = send_to_each(root, server, [partition_of(0), partition_of(1)])

    assert len(set(holders)) == 1


def test_clients_when_all_move_at_once_then_each_is_served(server, topic, connect):
    clients = [connect() for _ in range(40)]
    for shard_id in (0, 1):
        for number in range(2 * MIGRATION_REQUESTS_MIN):
            for client in clients:
                client.send(send(partition_of(shard_id), b"%d" % number))
            for client in clients:
                assert client.receive() is None
