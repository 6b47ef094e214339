"""A client that sends far ahead of its answers: it is answered in full, and nobody else notices."""

from __future__ import annotations

import threading

import pytest

from iggy_protocol import (
    CreateUser,
    GlobalPermissions,
    Partitioning,
    Permissions,
    Ping,
    SendMessages,
    UserStatus,
)
from tests.server.features.topic_calls import frame_of, make_topic, unique

# What a server may leave unanswered for one client is 1,024 requests.
DEPTHS = [1025, 5000]
# Far more than any answer takes, on whatever machine; a shard that loops never answers.
ANSWER_SECONDS_MAX = 20.0
OK = bytes(8)


def read_exactly(connected, size):
    received = bytearray()
    while len(received) < size:
        data = connected.recv(size - len(received))
        assert data, "the server has closed the connection"
        received += data
    return bytes(received)


def make_sender(server, root):
    """Make a user who may send, and nothing else."""
    name = unique("sender")
    rights = Permissions(GlobalPermissions(send_messages=True))
    root.ask(CreateUser(name, "secret-1", UserStatus.ACTIVE, rights))
    client = server.connect(timeout_s=ANSWER_SECONDS_MAX)
    client.login(name, "secret-1")
    return client


class Pinger(threading.Thread):
    """Pings all the time."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self._client = client
        self._is_over = threading.Event()
        self.pings_count = 0
        self.failure = None

    def run(self):
        try:
            while not self._is_over.is_set():
                self._client.ask(Ping())
                self.pings_count += 1
        except Exception as error:
            self.failure = error

    def end(self):
        self._is_over.set()
        self.join(ANSWER_SECONDS_MAX)
        assert self.failure is None
        assert self.pings_count


@pytest.mark.parametrize("ack", ["fsync", "written"])
@pytest.mark.parametrize("depth", DEPTHS)
def test_sends_when_pipelined_beyond_the_limit_then_all_are_answered_and_the_server_stops(
    start_server, ack, depth
):
    """It took 1,025 sends and a right to send to stop a shard for everybody, and for good."""
    server = start_server(settings={"IGGY_SYSTEM_PARTITION_ACK": ack})
    root = server.login()
    topic = make_topic(root)
    sender = make_sender(server, root)
    pinger = Pinger(server.login())
    pinger.start()
    send = frame_of(SendMessages(topic.stream, topic.topic, Partitioning.partition(0), [b"m"]))

    sender.socket.sendall(send * depth)
    answers = read_exactly(sender.socket, depth * len(OK))
    pinger.end()

    assert answers == OK * depth
    assert topic.details().messages_count == depth
    server.stop()


def test_sender_when_it_leaves_in_the_middle_then_the_server_serves_on(start_server):
    server = start_server(settings={"IGGY_SYSTEM_PARTITION_ACK": "fsync"})
    root = server.login()
    topic = make_topic(root)
    sender = make_sender(server, root)
    send = frame_of(SendMessages(topic.stream, topic.topic, Partitioning.partition(0), [b"m"]))

    sender.socket.sendall(send * 3000)
    sender.close()

    for _ in range(50):
        root.ask(Ping())
    topic.send("after")
    server.stop()
