"""The client's side of the framing from 0.9 on: numbers, sessions, replies in any order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iggy_protocol import (
    NEED_DATA,
    V0_11,
    V0_12_0,
    V0_12_2,
    VSR_HEAD_BYTES,
    CommandCode,
    ConnectionClosed,
    CreateStream,
    DeleteStream,
    ErrorReceived,
    EvictionReason,
    EvictionReceived,
    FrameTooLarge,
    GetMe,
    GetStreams,
    HeadroomBuffer,
    InvalidField,
    Limits,
    LocalProtocolError,
    MalformedFrame,
    NotInDialect,
    PartitionContext,
    Ping,
    PreparedRequest,
    ResponseReceived,
    TruncatedField,
    VsrClientConnection,
)
from iggy_protocol.vsr.client_connection import _plain_parts
from iggy_protocol.vsr.evictions import eviction
from iggy_protocol.vsr.heads import EvictionHead, ReplyHead, read_request_head
from iggy_protocol.vsr.operations import NO_ERRORS, result_section
from tests.protocol.frame_oracle import CUTTERS, joined
from tests.protocol.vsr_frames import (
    SESSION,
    bound_client,
    details_of,
    expect,
    fails,
    head_of,
    log_in,
    new_session,
    reply,
)
from tests.protocol.vsr_recordings import DIALECTS, FOLDER, RECORDINGS, read_reply

VSR = [V0_11, V0_12_0, V0_12_2]
LATER = [V0_12_0, V0_12_2]
CONTEXT = PartitionContext(5, 6, 7)


# Recordings


class RecordedCommand:
    """Stands for the command of a recorded request; only its code matters to a connection."""

    def __init__(self, code: int) -> None:
        self.CODE = code


class RecordedClient:
    """A client that sends what a recorded one sent, under the ids that it drew."""

    def __init__(self, dialect):
        self.connection = VsrClientConnection(new_session(dialect))

    def send(self, frame):
        head, body = read_request_head(frame), frame[VSR_HEAD_BYTES:]
        code = head.code or {1: CommandCode.REGISTER, 3: CommandCode.LOGOUT_USER}.get(
            head.operation
        )
        self.connection.session.client = head.client
        command: Any = RecordedCommand(code or CommandCode.CREATE_STREAM)
        request = PreparedRequest(command, head, (body,))
        if head.code == CommandCode.CANCEL_DEFERRED:
            parked = self.connection._pending[head.number]
            assert joined(self.connection.cancel(parked)) == frame
        else:
            assert joined(self.connection.send_prepared(request)) == frame


@pytest.mark.parametrize("cut", CUTTERS.values(), ids=CUTTERS)
@pytest.mark.parametrize("file", RECORDINGS)
def test_recorded_replies_when_fed_to_a_client_then_are_read_as_they_were_meant(file, cut):
    first, *lines = [json.loads(line) for line in (FOLDER / file).read_text().splitlines()]
    clients: dict[int, RecordedClient] = {}
    for number, entry in enumerate(line for line in lines if "frame" in line):
        frame = bytes.fromhex(entry["frame"])
        client = clients.setdefault(entry["conn"], RecordedClient(DIALECTS[first["version"]]))
        if entry["dir"] == ">":
            client.send(frame)
            continue
        for piece in cut(frame):
            assert client.connection.next_event() is NEED_DATA
            client.connection.receive_data(piece)
        event, recorded = client.connection.next_event(), read_reply(number, "", frame)
        if recorded.eviction:
            assert expect(event, EvictionReceived).reason == recorded.eviction
        elif recorded.status:
            error = expect(event, ErrorReceived)
            assert (error.status, error.is_committed) == (recorded.status, bool(frame[220]))
        else:
            response = expect(event, ResponseReceived)
            assert bytes(response.payload) == recorded.payload
            assert response.is_committed == bool(frame[220])
    assert clients


# Requests


def test_request_when_of_0_9_then_is_the_only_one_on_its_way():
    client = bound_client(V0_11)
    head = head_of(client.send(DeleteStream("a")))
    with pytest.raises(LocalProtocolError, match="unanswered"):
        client.send(DeleteStream("b"))
    client.receive_data(reply(head, NO_ERRORS))
    expect(client.next_event(), ResponseReceived)
    client.send(DeleteStream("b"))


def test_requests_when_too_many_are_unanswered_then_the_next_is_not_sent():
    client = bound_client(V0_12_0, limits=Limits(outstanding_max=2))
    client.send(GetStreams())
    client.send(GetStreams())
    with pytest.raises(LocalProtocolError, match="2 requests"):
        client.send(GetStreams())


def test_request_when_sent_again_then_has_the_same_bytes_on_any_connection_of_the_session():
    client = bound_client(V0_12_0)
    request = client.prepare(CreateStream("a"))
    first = joined(client.send_prepared(request))
    with pytest.raises(LocalProtocolError, match="unanswered already"):
        client.send_prepared(request)
    client.receive_data(reply(request.head, status=57))
    event = expect(client.next_event(), ErrorReceived)
    assert (event.command, event.number, event.status) == (request.command, request.number, 57)
    assert joined(client.send_prepared(request)) == first
    other = VsrClientConnection(client.session)
    with pytest.raises(LocalProtocolError):
        other.send_prepared(request)
    head = head_of(other.send(client.session.bind()))
    other.receive_data(reply(head, details_of(other)))
    other.next_event()
    assert joined(other.send_prepared(request)) == first


def test_request_when_too_large_then_is_not_sent():
    client = bound_client(V0_12_0, limits=Limits(control_bytes_max=100))
    with pytest.raises(LocalProtocolError, match="allowed"):
        client.send(CreateStream("a" * 100))
    assert head_of(client.send(Ping())).number == 1


def test_request_when_the_peer_has_closed_then_is_not_sent():
    client = bound_client(V0_12_0)
    client.receive_eof()
    with pytest.raises(LocalProtocolError, match="closed"):
        client.send(Ping())
    assert client.next_event() == ConnectionClosed(mid_frame=False)


def test_payload_when_it_has_headroom_then_goes_without_it_and_is_not_copied():
    prepared = HeadroomBuffer(bytearray(b"12345678payload"), 8)
    (part,) = _plain_parts([prepared])
    assert isinstance(part, memoryview)
    assert part.obj is prepared.buffer
    assert bytes(part) == b"payload"


def test_cancel_when_sent_then_names_the_request_and_its_answer_is_dropped():
    client = bound_client(V0_12_0)
    request, other = client.prepare(GetStreams(), context=CONTEXT), client.prepare(Ping())
    client.send_prepared(request)
    client.send_prepared(other)
    head = head_of(client.cancel(request))
    assert (head.operation, head.code, head.number) == (2, 108, request.number)
    assert (head.session, head.incarnation) == (SESSION, 0)
    assert client.outstanding == 1
    client.receive_data(reply(request.head, bytes(1000)) + reply(other.head))
    assert expect(client.next_event(), ResponseReceived).command == Ping()
    for call in (client.cancel, client.forget):
        with pytest.raises(LocalProtocolError, match="not outstanding"):
            call(request)


def test_request_when_forgotten_in_0_9_then_is_our_mistake():
    client = bound_client(V0_11)
    request = client.prepare(GetStreams())
    client.send_prepared(request)
    for call in (client.cancel, client.forget):
        with pytest.raises(NotInDialect):
            call(request)
    assert client.outstanding == 1


# Replies


def test_replies_when_they_overtake_each_other_then_each_finds_its_request():
    client = bound_client(V0_12_0)
    requests = [client.prepare(one) for one in (GetStreams(), Ping(), GetMe())]
    for request in requests:
        client.send_prepared(request)
    order = [requests[1], requests[2], requests[0]]
    client.receive_data(
        b"".join(reply(one.head, status=number) for number, one in enumerate(order, 1))
    )
    for number, request in enumerate(order, start=1):
        event = expect(client.next_event(), ErrorReceived)
        assert (event.command, event.number, event.status) == (
            request.command,
            request.number,
            number,
        )
    assert client.is_idle


def test_reply_when_not_asked_for_then_is_dropped_from_0_10_on_and_an_error_before():
    client = bound_client(V0_12_0)
    request = client.prepare(Ping())
    client.send_prepared(request)
    unasked = ReplyHead(size=VSR_HEAD_BYTES + 10, number=99, operation=2).encode() + bytes(10)
    frames = client.statistics().frames_in
    client.receive_data(unasked * 3 + unasked[:-1])
    assert client.next_event() is NEED_DATA
    client.receive_data(unasked[-1:] + reply(request.head))
    expect(client.next_event(), ResponseReceived)
    assert client.statistics().frames_in == frames + 5
    fails(bound_client(V0_11), unasked)


@pytest.mark.parametrize("dialect", VSR)
def test_result_when_it_has_an_error_then_the_request_failed_with_it(dialect):
    client = bound_client(dialect)
    request = client.prepare(DeleteStream("a"))
    client.send_prepared(request)
    marker = 0 if dialect is V0_11 else 1
    client.receive_data(reply(request.head, result_section(1012), op=9, commit=9, marker=marker))
    event = expect(client.next_event(), ErrorReceived)
    assert (event.status, event.is_committed) == (1012, bool(marker))
    assert client.session.watermark == 9


def test_reply_when_it_carries_what_the_server_committed_then_is_read_by_its_operation():
    client = bound_client(V0_11)
    request = client.prepare(DeleteStream("a"))
    client.send_prepared(request)
    client.receive_data(reply(request.head, NO_ERRORS, operation=64))
    event = expect(client.next_event(), ResponseReceived)
    assert event.decode() is None
    event.payload.release()


@pytest.mark.parametrize(
    "wrong",
    [
        {"client": b"\1" * 16},
        {"identifier": b"\1" * 16},
        {"operation": 131},
        {"incarnation": 4},
        {"op": 0, "commit": 0},
        {"op": 8},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_committed_reply_when_it_is_not_that_of_the_request_then_the_connection_fails(wrong):
    client = bound_client(V0_12_0)
    request = client.prepare(DeleteStream("a"))
    client.send_prepared(request)
    fields = {"op": 9, "commit": 9, "marker": 1}
    fails(client, reply(request.head, NO_ERRORS, **{**fields, **wrong}))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"size": 255}, MalformedFrame),
        ({"command": 5}, MalformedFrame),
        ({"command": 0}, MalformedFrame),
        ({"size": VSR_HEAD_BYTES + 1001}, FrameTooLarge),
        ({"padding": b"\1" * 7}, InvalidField),
        ({"marker": 2}, InvalidField),
        ({"status": 3, "size": VSR_HEAD_BYTES + 1}, InvalidField),
    ],
    ids=["short", "request", "zero", "large", "padding", "marker", "status"],
)
def test_frame_when_no_server_sends_it_then_the_connection_fails(fields, error):
    client = bound_client(V0_12_0, limits=Limits(response_bytes_max=1000))
    head = head_of(client.send(Ping()))
    fails(client, reply(head, **fields), error)


def test_result_when_cut_then_the_connection_fails():
    client = bound_client(V0_12_0)
    head = head_of(client.send(DeleteStream("a")))
    fails(client, reply(head, b"\0\0"), TruncatedField)


def test_large_reply_when_the_only_one_then_the_next_is_read_in_one_piece():
    client = bound_client(V0_12_0)
    head = head_of(client.send(GetStreams()))
    client.receive_data(reply(head, bytes(200_000)))
    expect(client.next_event(), ResponseReceived)
    client.send(GetStreams())
    assert len(client.get_buffer()) >= 200_000 + VSR_HEAD_BYTES


# Evictions


def test_eviction_when_received_in_0_9_then_the_client_logs_in_again_on_the_connection():
    client = bound_client(V0_11)
    before = client.session.client
    head_of(client.send(GetStreams()))
    client.receive_data(eviction(EvictionReason.NO_SESSION, before))
    event = expect(client.next_event(), EvictionReceived)
    assert (event.reason, event.status) == (EvictionReason.NO_SESSION, 40)
    assert client.outstanding == 0
    assert client.session.client != before
    assert not client.is_bound
    log_in(client)


@pytest.mark.parametrize(
    ("reason", "is_kept"),
    [
        (EvictionReason.NO_SESSION, True),
        (EvictionReason.STALE_CLIENT, True),
        (EvictionReason.SESSION_TOO_LOW, False),
        (EvictionReason.INCOMPATIBLE_PROTOCOL, False),
    ],
)
def test_eviction_when_received_later_then_all_requests_fail_and_the_connection_is_over(
    reason, is_kept
):
    client = bound_client(V0_12_0)
    before = client.session.client
    request = client.prepare(GetStreams())
    client.send_prepared(request)
    client.send(Ping())
    client.receive_data(eviction(reason, before) + reply(request.head))
    event = expect(client.next_event(), EvictionReceived)
    assert (event.lowest is not None) == (reason is EvictionReason.INCOMPATIBLE_PROTOCOL)
    assert client.outstanding == 0
    assert client.next_event() is NEED_DATA, "what still comes is dropped"
    assert (client.session.client == before) == is_kept
    with pytest.raises(LocalProtocolError, match="connect again"):
        client.send(Ping())


def test_eviction_when_its_head_is_wrong_then_the_connection_fails():
    head = EvictionHead(client=b"\1" * 16, reason=9, reserved_end=b"\1" * 103)
    fails(bound_client(V0_12_0), head.encode(), InvalidField)
