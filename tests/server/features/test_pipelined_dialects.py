"""Clients from 0.9 on that send far ahead of their confirmations, on a real server."""

from __future__ import annotations

import itertools
import random
import socket
from contextlib import contextmanager

import pytest

from iggy_protocol import (
    NEED_DATA,
    VSR_HEAD_BYTES,
    CommandCode,
    CreatePartitions,
    Dialect,
    GetPartitionRoute,
    HeadroomBuffer,
    NewMessage,
    Partitioning,
    PasswordCredentials,
    Ping,
    PurgeTopic,
    ResponseReceived,
    SendConfirmation,
    SendMessages,
    StatusCode,
    VsrClientConnection,
    decode_reply,
    encode_request,
)
from iggy_protocol.vsr.heads import RequestHead, read_reply_head
from tests.protocol.frame_oracle import joined
from tests.server.features.topic_calls import make_topic
from tests.server.vsr_client import new_session

VSR_DIALECTS = [dialect for dialect in Dialect if dialect.is_vsr]
ANSWER_SECONDS_MAX = 20.0
HERE = Partitioning.partition(0)
IDS = itertools.count(1)
ROOT = PasswordCredentials("iggy", "iggy")


def body_of(command, dialect):
    (encoded,) = encode_request(command, dialect)
    if isinstance(encoded, HeadroomBuffer):
        return bytes(encoded.buffer[encoded.headroom :])
    return bytes(encoded)


def one(payload=b"m"):
    """Make a message with an id, which official clients always give."""
    return NewMessage(payload, next(IDS))


class Pipeliner:
    """A client that writes many requests at once, which ours does not."""

    def __init__(self, address, dialect):
        self.dialect = dialect
        self.socket = socket.create_connection(address, timeout=ANSWER_SECONDS_MAX)
        session = new_session(dialect)
        connection = VsrClientConnection(session)
        self.socket.sendall(joined(connection.send(session.register(ROOT))))
        while (event := connection.next_event()) is NEED_DATA:
            connection.receive_data(self.socket.recv(1 << 18))
        assert isinstance(event, ResponseReceived), event
        self.head = RequestHead(client=session.client, session=event.decode().session)

    def frame(self, command, incarnation=0):
        """Write a request with the next number."""
        body = body_of(command, self.dialect)
        operation = 160 if isinstance(command, SendMessages) else 2
        self.head = self.head._replace(number=self.head.number + 1)
        head = self.head._replace(
            size=VSR_HEAD_BYTES + len(body),
            operation=operation,
            code=0 if operation == 160 else command.CODE,
            incarnation=incarnation,
        )
        return head.encode() + body

    def frames(self, count, command, incarnation=0):
        return [self.frame(command, incarnation) for _ in range(count)]

    def incarnation(self, topic, partition_id):
        if not self.dialect.binds_sessions:
            return 0
        command = GetPartitionRoute(topic.stream, topic.topic, partition_id)
        ((status, payload),) = self.exchange([self.frame(command)])
        assert not status
        return decode_reply(command.CODE, payload, self.dialect).incarnation

    def exchange(self, frames):
        """Write frames at once, and return status and payload of each reply."""
        self.socket.sendall(b"".join(frames))
        numbers = [int.from_bytes(frame[168:176], "little") for frame in frames]
        replies, received = [], b""
        for number in numbers:
            while len(received) < 256 or len(received) < int.from_bytes(received[48:52], "little"):
                received += self.receive()
            head = read_reply_head(received)
            assert head.number == number
            replies.append((head.status, received[VSR_HEAD_BYTES : head.size]))
            received = received[head.size :]
        return replies

    def receive(self):
        data = self.socket.recv(1 << 18)
        assert data, "the server has closed the connection"
        return data

    def send(self, frames):
        """Write sends at once, and return the confirmation or the status of each."""
        return [
            status or decode_reply(CommandCode.SEND_MESSAGES, payload, self.dialect)
            for status, payload in self.exchange(frames)
        ]


@contextmanager
def connected(server, dialect):
    client = Pipeliner(server.address, dialect)
    with client.socket:
        yield client


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("shards", [1, 2])
def test_sends_when_pipelined_then_each_is_confirmed_where_its_messages_are(
    start_server, shards, dialect
):
    server, rng = start_server(shards=shards), random.Random(5)
    root = server.login()
    topic = make_topic(root, partitions=2)
    sent: dict[int, list[str]] = {0: [], 1: []}
    offsets, frames = [], []
    with connected(server, dialect) as client:
        incarnations = [client.incarnation(topic, partition) for partition in (0, 1)]
        for number in range(700):
            partition = int(rng.random() < 0.1)
            payloads = [f"{number} {index}" for index in range(rng.choice((1, 1, 1, 3)))]
            offsets.append((partition, len(sent[partition])))
            sent[partition] += payloads
            where = Partitioning.partition(partition)
            send = SendMessages(
                topic.stream, topic.topic, where, [one(text.encode()) for text in payloads]
            )
            frames.append(client.frame(send, incarnations[partition]))
        confirmations = [one for (one,) in client.send(frames)]

    assert [(one.partition_id, one.base_offset) for one in confirmations] == offsets
    place = (topic.stream_id, topic.topic_id)
    assert {(one.stream_id, one.topic_id) for one in confirmations} == {place}
    assert [topic.read(partition=partition) for partition in (0, 1)] == [sent[0], sent[1]]


@pytest.mark.parametrize("ack", ["fsync", "memory"])
@pytest.mark.parametrize("dialect", [Dialect.V0_11, Dialect.V0_12_2], ids=["0.11", "0.12.2"])
def test_sends_when_pipelined_beyond_the_limit_then_all_are_confirmed_in_order(
    start_server, dialect, ack
):
    server = start_server(settings={"IGGY_SYSTEM_PARTITION_ACK": ack})
    topic = make_topic(server.login())
    depth = 4000  # the server leaves 1,024 requests of one client unanswered
    with connected(server, dialect) as client:
        send = SendMessages(topic.stream, topic.topic, HERE, [one()])
        confirmations = client.send(client.frames(depth, send, client.incarnation(topic, 0)))

    assert [one.base_offset for (one,) in confirmations] == list(range(depth))
    server.stop()


def test_send_when_damaged_between_others_then_it_alone_is_refused(start_server):
    server = start_server()
    root = server.login()
    topic = make_topic(root, partitions=2)
    with connected(server, Dialect.V0_12_2) as client:
        incarnation = client.incarnation(topic, 0)
        frames = [
            client.frame(
                SendMessages(topic.stream, topic.topic, HERE, [one(b"%d" % number)]), incarnation
            )
            for number in range(9)
        ]
        for broken in (3, 7):
            frames[broken] = frames[broken][:-1] + b"x"
        replies = client.send(frames)
        assert client.exchange([client.frame(Ping())]) == [(0, b"")]

    refused = StatusCode.INVALID_MESSAGE_CHECKSUM
    stored = iter(range(7))
    expected = [refused if number in (3, 7) else next(stored) for number in range(9)]
    found = [one if isinstance(one, int) else one[0].base_offset for one in replies]
    assert found == expected
    assert topic.read() == [str(n) for n in range(9) if n not in (3, 7)]


def test_sends_when_the_partition_was_purged_meanwhile_then_each_is_told_so(start_server):
    server = start_server()
    root = server.login()
    topic = make_topic(root, partitions=2)
    send = SendMessages(topic.stream, topic.topic, HERE, [one()])
    with connected(server, Dialect.V0_12_2) as client:
        incarnation = client.incarnation(topic, 0)
        client.send(client.frames(5, send, incarnation))
        root.ask(PurgeTopic(topic.stream, topic.topic))

        stale = client.send(client.frames(4, send, incarnation))
        fresh = client.send(client.frames(3, send, client.incarnation(topic, 0)))

    assert stale == [StatusCode.PARTITION_HISTORY_UNAVAILABLE] * 4
    assert [one.base_offset for (one,) in fresh] == [0, 1, 2]


def test_sends_when_the_topic_gets_more_partitions_then_each_goes_to_one_of_them(start_server):
    server = start_server()
    root = server.login()
    topic = make_topic(root)
    send = SendMessages(topic.stream, topic.topic, Partitioning.balanced(), [one()])
    with connected(server, Dialect.V0_11) as client:
        first = client.send(client.frames(4, send))
        root.ask(CreatePartitions(topic.stream, topic.topic, 1))
        refused = client.send(client.frames(4, send))
        later = client.send(client.frames(4, send))

    assert [(one.partition_id, one.base_offset) for (one,) in first] == [(0, n) for n in range(4)]
    assert refused == [StatusCode.TRANSIENT_NOT_ACCEPTED] * 4
    assert sorted(one.partition_id for (one,) in later) == [0, 0, 1, 1]


def test_sends_when_duplicates_are_dropped_then_confirmations_tell_what_is_stored(start_server):
    server = start_server(settings={"IGGY_SYSTEM_MESSAGE_DEDUPLICATION_ENABLED": "true"})
    topic = make_topic(server.login())
    with connected(server, Dialect.V0_11) as client:
        frames = [
            client.frame(SendMessages(topic.stream, topic.topic, HERE, [NewMessage(b"m", number)]))
            for number in (1, 2, 1, 3, 3, 4)
        ]
        replies = client.send(frames)

    offsets = [one[0].base_offset if one else None for one in replies]
    assert offsets == [0, 1, None, 2, None, 3]
    assert all(isinstance(one[0], SendConfirmation) for one in replies if one)
