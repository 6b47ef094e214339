"""What official clients of 0.9 and 0.10 wrote, sent to this server, and its replies compared.

The replies of the recordings come from a broker that is no Apache Iggy, but the clients accepted
them. So what counts is what a client makes of a reply: its outcome, and what was sent and polled.
Numbers that a server gives out are replaced by those of this one.
"""

from __future__ import annotations

import socket

import pytest

from iggy_protocol import (
    CommandCode,
    ConsumerOffset,
    CreateTopic,
    EvictionReason,
    PolledMessages,
    PollingKind,
    PollMessages,
    SendConfirmation,
    SessionDetails,
    StatusCode,
    StatusGroup,
    decode_reply,
    decode_request,
    status,
)
from iggy_protocol.vsr.recognition import vsr_frame_size
from iggy_ref_server.dispatch.table import COMMAND_TABLE
from tests.protocol.vsr_recordings import exchanges, read_reply, u64

SCENARIOS = ["login", "send-poll", "offsets", "system", "group"]
VERSIONS = ["0.9.0", "0.9.1.dev5"]
SESSION_AT, INCARNATION_AT = 184, 200


def put_u64(head, at, number):
    return head[:at] + number.to_bytes(8, "little") + head[at + 8 :]


class Replay:
    """The connections of a recording, to this server."""

    def __init__(self, server) -> None:
        self.server = server
        self.root = server.login()
        self.sockets: dict[int, socket.socket] = {}
        self.sessions: dict[bytes, int] = {}
        self.incarnations: dict[int, int] = {}

    def close(self):
        for connected in self.sockets.values():
            connected.close()

    def ask(self, request):
        """Send a request with the numbers of this server, and return the reply."""
        return read_reply(0, request.name, self.read_frame(self.send(request)))

    def send(self, request):
        """Send a request with the numbers of this server; return its connection."""
        head = request.head
        if request.session:
            head = put_u64(head, SESSION_AT, self.sessions.get(request.client, request.session))
        incarnation = u64(head, INCARNATION_AT)
        if incarnation:
            head = put_u64(head, INCARNATION_AT, self.incarnations[incarnation])
        connected = self.sockets.get(request.connection)
        if connected is None:
            connected = socket.create_connection(self.server.address, timeout=10)
            self.sockets[request.connection] = connected
        connected.sendall(head + request.body)
        return connected

    def read_frame(self, connected):
        frame = b""
        while (size := vsr_frame_size(frame)) is None or len(frame) < size:
            data = connected.recv(65_536 if size is None else size - len(frame))
            assert data, "the server has closed the connection"
            frame += data
        return frame

    def learn(self, exchange, reply):
        """Note the numbers that this server gives in place of those of the recording."""
        request = exchange.request
        if request.code == CommandCode.REGISTER and not reply.eviction:
            details = decode_reply(request.code, reply.payload, request.dialect)
            self.sessions[request.client] = details.session
        if request.code == CommandCode.GET_PARTITION_ROUTE and not reply.status:
            recorded = decode_reply(request.code, exchange.reply.payload, request.dialect)
            ours = decode_reply(request.code, reply.payload, request.dialect)
            self.incarnations[recorded.incarnation] = ours.incarnation

    def create_topic(self, request):
        """Create a topic as a classic client does, for a server that does not take its options."""
        wanted = decode_request(request.code, request.body, request.dialect)
        assert isinstance(wanted, CreateTopic)
        self.root.ask(CreateTopic(wanted.stream, wanted.name, wanted.partitions_count))


def told(code, payload, dialect):
    """Return what a client learns from a reply, without what servers choose."""
    value = decode_reply(code, payload, dialect)
    if isinstance(value, PolledMessages):
        return [
            (message.offset, message.id, bytes(message.payload), bytes(message.user_headers))
            for message in value.messages
        ], value.partition_id
    if isinstance(value, tuple) and value and isinstance(value[0], SendConfirmation):
        return [(place.partition_id, place.base_offset) for place in value]
    if isinstance(value, ConsumerOffset):
        return value
    if isinstance(value, SessionDetails):
        return value.user_id, value.version
    return type(value)


def outcome(code):
    """Return a status; the broker has one for all that is absent, where servers say what it is."""
    is_absent = status(code).group is StatusGroup.NOT_FOUND
    return int(StatusCode.RESOURCE_NOT_FOUND) if is_absent else code


def names_time(request):
    """Tell whether a request is a poll from a time on, which lies before this run."""
    if request.code != CommandCode.POLL_MESSAGES:
        return False
    poll = decode_request(request.code, request.body, request.dialect)
    assert isinstance(poll, PollMessages)
    return poll.strategy.kind is PollingKind.TIMESTAMP


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_requests_when_official_clients_wrote_them_then_are_answered_alike(
    start_server, scenario, version, shards
):
    server = start_server(shards=shards)
    replay, compared = Replay(server), 0
    for exchange in exchanges(f"{scenario}.{version}.jsonl"):
        request, recorded = exchange.request, exchange.reply
        assert recorded is not None
        if recorded.eviction == EvictionReason.INCOMPATIBLE_PROTOCOL:
            continue  # the broker was told to refuse the version
        ours = replay.ask(request)
        where = f"line {request.line}: {request.name}"
        if not recorded.eviction:
            assert u64(ours.head, 200) == request.number, where
        replay.learn(exchange, ours)
        if request.code not in COMMAND_TABLE and recorded.status != StatusCode.INVALID_COMMAND:
            assert ours.status == StatusCode.FEATURE_UNAVAILABLE, where
            continue
        if ours.status == StatusCode.UNSUPPORTED_OPTION_KEY:
            replay.create_topic(request)
            continue
        assert ours.eviction == recorded.eviction, where
        assert outcome(ours.status) == outcome(recorded.status), where
        if not recorded.status and not recorded.eviction and not names_time(request):
            assert told(request.code, ours.payload, request.dialect) == told(
                request.code, recorded.payload, request.dialect
            ), where
        compared += 1
    replay.close()
    assert compared >= 8
    server.stop()


class UnorderedReplay(Replay):
    """A replay that sends while earlier requests wait; replies are found by their numbers."""

    def __init__(self, server) -> None:
        super().__init__(server)
        self.arrived: dict[tuple[int, int], bytes] = {}

    def receive(self, request):
        """Return the reply to a request that was sent."""
        key = (request.connection, request.number)
        while key not in self.arrived:
            frame = self.read_frame(self.sockets[request.connection])
            self.arrived[request.connection, u64(frame, 200)] = frame
        return read_reply(0, request.name, self.arrived.pop(key))


def in_the_order_of_lines(found):
    """List requests, and replies with what they answer, as they were written."""
    lines = [(exchange.request.line, False, exchange) for exchange in found]
    lines += [
        (exchange.reply.line, True, exchange) for exchange in found if exchange.reply is not None
    ]
    return [line[1:] for line in sorted(lines, key=lambda line: line[0])]


@pytest.mark.parametrize("shards", [1, 2])
def test_polls_when_an_official_client_let_them_wait_then_are_answered_alike(start_server, shards):
    """Messages that are there, that come, that do not come; a limit, readiness and a cancel."""
    server = start_server(shards=shards)
    replay, compared = UnorderedReplay(server), 0
    for is_reply, exchange in in_the_order_of_lines(exchanges("deferred.0.9.1.dev5.jsonl")):
        request, recorded = exchange.request, exchange.reply
        if not is_reply:
            replay.send(request)
            continue
        ours, where = replay.receive(request), f"line {request.line}: {request.name}"
        replay.learn(exchange, ours)
        if ours.status == StatusCode.UNSUPPORTED_OPTION_KEY:
            replay.create_topic(request)
            continue
        assert ours.status == recorded.status, where
        if not recorded.status:
            expected = told(request.code, recorded.payload, request.dialect)
            assert told(request.code, ours.payload, request.dialect) == expected, where
        if request.code == CommandCode.WAIT_FOR_MESSAGES:
            assert ours.payload == recorded.payload, where
        compared += 1
    assert not replay.arrived, "a cancelled request was answered"
    replay.close()
    assert compared >= 20
    server.stop()
