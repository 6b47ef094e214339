"""The server's side of the framing from 0.9 on: what it takes, refuses, answers and ends."""

from __future__ import annotations

from typing import Any

import pytest

from iggy_protocol import (
    NEED_DATA,
    NO_CONTEXT,
    PAUSED,
    V0_11,
    V0_12_0,
    V0_12_2,
    VSR_HEAD_BYTES,
    CancelReceived,
    CommandCode,
    ConnectionClosed,
    EvictionReason,
    FrameTooLarge,
    GetStreams,
    Limits,
    LocalProtocolError,
    MalformedFrame,
    PartitionContext,
    Ping,
    RequestReceived,
    RequestRefused,
    SessionBinding,
    SessionDetails,
    Version,
    VersionRefused,
    VsrServerConnection,
    vsr_probe,
)
from iggy_protocol.vsr.evictions import read_eviction
from iggy_protocol.vsr.heads import read_eviction_head, read_request_head
from iggy_protocol.vsr.operations import NO_ERRORS, result_section
from tests.protocol.frame_oracle import CUTTERS, FEEDERS, joined
from tests.protocol.vsr_frames import (
    CLIENT,
    SESSION,
    bound_server,
    coded,
    event_of,
    expect,
    frame,
    login_body,
    replicated,
    stamped,
    the_reply,
)
from tests.protocol.vsr_recordings import RECORDINGS, VsrRequest, exchanges

VSR = [V0_11, V0_12_0, V0_12_2]
LATER = [V0_12_0, V0_12_2]
OTHER_CLIENT = bytes(range(2, 18))
GET_STREAMS = int(CommandCode.GET_STREAMS)


def refused(server, data, status):
    """Check that a frame is refused with a status, and return the frame that says so."""
    event = expect(event_of(server, data), RequestRefused)
    assert event.error.status == status, event
    head, body = the_reply(server.send_error(event.error.status))
    assert (head.command, head.status, body) == (8, status, b"")
    assert head.number == read_request_head(data).number
    return head


def evicted(server, data, reason):
    """Check that a frame is answered with an eviction, and return what it tells."""
    event = expect(event_of(server, data), RequestRefused)
    written = joined(server.send_error(event.error.status))
    assert len(written) == VSR_HEAD_BYTES
    head = read_eviction_head(written)
    assert (head.command, head.reason) == (13, reason)
    assert head.client == read_request_head(data).client
    assert server.binding is None
    return read_eviction(head)


# Recordings


def recorded_frames(file):
    """Return all that the clients of a recording sent, by connection."""
    found: dict[int, list[VsrRequest]] = {}
    for exchange in exchanges(file):
        found.setdefault(exchange.request.connection, []).append(exchange.request)
    return found.values()


@pytest.mark.parametrize("feed", FEEDERS.values(), ids=FEEDERS)
@pytest.mark.parametrize("cut", CUTTERS.values(), ids=CUTTERS)
def test_recorded_clients_when_served_then_every_request_is_read_as_it_was_meant(cut, feed):
    taken = 0
    for requests in (one for file in RECORDINGS for one in recorded_frames(file)):
        server = VsrServerConnection()
        for request in requests:
            for piece in cut(request.head + request.body):
                feed(server, piece)
            event = server.next_event()
            assert server.next_event() is NEED_DATA
            if request.code == CommandCode.CANCEL_DEFERRED:
                assert event == CancelReceived(request.number)
                continue
            taken += 1
            read = expect(event, RequestReceived)
            assert (read.code, bytes(read.payload)) == (request.code, request.body)
            bound = request.session or request.code == CommandCode.REGISTER
            assert read.dialect is (request.dialect if bound else V0_11)
            assert read.context == PartitionContext(*request.context)
            identifier = request.head[144:160]
            expected = (request.client, request.session, request.number, identifier)
            assert read.request_id is not None
            assert read.request_id[:4] == expected
            if request.code == CommandCode.REGISTER:
                following = next(
                    (one for one in requests if one.client == request.client and one.session), None
                )
                if following is None:
                    server.send_error(42)
                    continue
                server.bind(request.client, following.session, 0)
            if request.code == CommandCode.LOGOUT_USER:
                server.unbind()
            server.send_empty(position=1)
    assert taken > 250


@pytest.mark.parametrize("file", RECORDINGS)
def test_recorded_replies_when_written_anew_then_have_the_same_bytes(file):
    """Heads that the official client has accepted; informational positions are as recorded."""
    for request, reply in ((one.request, one.reply) for one in exchanges(file)):
        if reply is None or reply.eviction:
            continue
        binding = SessionBinding(request.dialect, request.client, request.session, 0)
        server = VsrServerConnection(binding=binding if request.session else None)
        event = expect(event_of(server, request.head + request.body), RequestReceived)
        assert event.code == request.code
        recorded, _ = the_reply([reply.head])
        position = recorded.commit
        if not reply.status:
            written = server.send_payload([reply.payload], position=position)
        elif recorded.status:
            written = server.send_error(reply.status)
        else:
            written = server.send_error(reply.status, position=position)
        head, _ = the_reply(written)
        ignored = (
            {} if request.dialect is not V0_11 or not recorded.status else {"commit": position}
        )
        if not request.session and request.operation == 2:
            ignored["commit"] = position
        assert head._replace(**ignored) == recorded


# Logins


@pytest.mark.parametrize("dialect", VSR)
def test_register_when_received_then_chooses_the_dialect_of_what_follows(dialect):
    server = VsrServerConnection()
    event = expect(event_of(server, frame(login_body(dialect), operation=1)), RequestReceived)
    assert (event.code, event.dialect) == (CommandCode.REGISTER, dialect)
    assert server.dialect is dialect
    server.bind(CLIENT, SESSION, 3)
    assert server.is_authenticated
    assert server.binding == SessionBinding(dialect, CLIENT, SESSION, 3)
    details = SessionDetails(3, SESSION, dialect.version, "0.10.0")
    head, body = the_reply(server.send(details, position=SESSION))
    assert (head.operation, head.number, head.status) == (1, 0, 0)
    assert body.startswith(NO_ERRORS)
    assert head.marker == (0 if dialect is V0_11 else 1)
    assert head.commit == SESSION
    event = expect(event_of(server, coded(GET_STREAMS)), RequestReceived)
    assert event.dialect is dialect


@pytest.mark.parametrize("operation", [1, 2])
@pytest.mark.parametrize("version", [Version(0, 10, 0), Version(0, 12, 1), Version(1023, 0, 0)])
def test_login_when_its_version_is_unknown_then_is_refused_with_our_window(operation, version):
    server = VsrServerConnection()
    body = version.pack().to_bytes(4, "little") + b"\7my-sdk!\0069.9.9x" + bytes(80)
    data = frame(body, operation=operation, code=15 if operation == 2 else 0)
    event = expect(event_of(server, data), VersionRefused)
    assert (event.version, event.sdk_name, event.sdk_version) == (version, "my-sdk!", "9.9.9x")
    told = read_eviction(read_eviction_head(joined(server.send_error(event.error.status))))
    assert (told.reason, told.lowest, told.highest) == (14, Version(0, 11, 0), Version(0, 12, 2))
    assert server.outstanding == 0
    expect(event_of(server, frame(login_body(V0_11), operation=1)), RequestReceived)


def test_register_when_not_readable_then_is_malformed_before_anything_else():
    for body in (b"", b"\0\x2c\0\0", b"\0\x2c\0\0\0\0", login_body(V0_11)[:10]):
        evicted(VsrServerConnection(), frame(body, operation=1), EvictionReason.MALFORMED_LOGIN)


def test_register_when_it_fails_then_is_answered_with_an_eviction_or_a_transient_result():
    for status, reason in ((42, 9), (53, 10), (47, 11), (8, 12), (4, 15)):
        server = VsrServerConnection()
        expect(event_of(server, frame(login_body(V0_12_0), operation=1)), RequestReceived)
        head = read_eviction_head(joined(server.send_error(status)))
        assert (head.command, head.reason, head.client) == (13, reason, CLIENT)
    for status in (57, 58):
        server = VsrServerConnection()
        expect(event_of(server, frame(login_body(V0_12_0), operation=1)), RequestReceived)
        head, body = the_reply(server.send_error(status))
        assert (head.operation, head.status, head.marker) == (1, 0, 0)
        assert body == result_section(status)


def test_register_when_it_has_a_session_or_a_number_then_is_refused():
    for fields in ({"session": 1}, {"number": 1}, {"code": 40}):
        data = frame(login_body(V0_11), operation=1, **fields)
        evicted(VsrServerConnection(), data, EvictionReason.MALFORMED_LOGIN)


def test_register_when_bound_then_is_taken_in_the_same_dialect_alone():
    server = bound_server(V0_11)
    expect(event_of(server, frame(login_body(V0_11), operation=1)), RequestReceived)
    server.send_empty()
    event = expect(event_of(server, frame(login_body(V0_12_0), operation=1)), RequestRefused)
    assert event.error.status == 3
    assert server.dialect is V0_11


def test_logout_when_done_then_another_login_may_choose_another_dialect():
    server = bound_server(V0_11)
    event = expect(event_of(server, replicated(3)), RequestReceived)
    assert event.code == CommandCode.LOGOUT_USER
    server.unbind()
    head, body = the_reply(server.send(None, position=9))
    assert (head.operation, body) == (3, b"")
    assert not server.is_authenticated
    event = expect(event_of(server, frame(login_body(V0_12_0), operation=1)), RequestReceived)
    assert server.dialect is V0_12_0


def test_bind_when_given_no_client_or_session_then_is_our_mistake():
    for client, session in ((bytes(16), 1), (CLIENT, 0)):
        with pytest.raises(LocalProtocolError):
            VsrServerConnection().bind(client, session, 0)


def bind_body(client=CLIENT, dialect=V0_12_0):
    prefix = dialect.version.pack().to_bytes(4, "little") + b"\3sdk\0050.1.0"
    return prefix + client + bytes(8) + bytes(8) + bytes(32)


def test_bind_session_when_received_then_chooses_the_dialect_and_names_its_client():
    for dialect in LATER:
        server = VsrServerConnection()
        data = coded(15, bind_body(dialect=dialect), metadata_position=4)
        event = expect(event_of(server, data), RequestReceived)
        assert (event.code, event.dialect) == (CommandCode.BIND_SESSION, dialect)
        server.bind(CLIENT, SESSION, 0)
        head, body = the_reply(server.send_payload([b"details"]))
        assert (head.operation, head.marker, head.commit) == (2, 0, 0)
        assert body == b"details", "a bind is no write, so it has no result section"
    refused(VsrServerConnection(), coded(15, bind_body(OTHER_CLIENT)), 4)
    refused(VsrServerConnection(), coded(15, bind_body(dialect=V0_11)), 3)
    evicted(VsrServerConnection(), coded(15, b""), EvictionReason.MALFORMED_LOGIN)


# Before a login


def test_client_when_not_logged_in_then_only_a_ping_is_taken():
    server = VsrServerConnection()
    event = expect(event_of(server, vsr_probe(CLIENT)), RequestReceived)
    assert event.decode() == Ping()
    head, body = the_reply(server.send(None))
    assert (head.command, head.operation, head.number, body) == (8, 2, 1, b"")
    refused(server, coded(GET_STREAMS, session=0), 40)
    refused(server, coded(CommandCode.CANCEL_DEFERRED, session=0), 40)
    refused(server, coded(4711, session=0), 40)
    refused(server, replicated(99), 3)
    for code in (38, 44):
        evicted(server, coded(code, session=0), EvictionReason.MALFORMED_LOGIN)
    for operation in (128, 150, 160):
        evicted(server, replicated(operation), EvictionReason.NO_SESSION)
    event = expect(event_of(server, replicated(3, session=0, number=0)), RequestReceived)
    assert event.code == CommandCode.LOGOUT_USER


def test_request_when_large_before_the_login_then_ends_the_connection_with_status_40():
    limits = Limits(unauthenticated_bytes_max=100)
    for data in (frame(bytes(101), operation=1), coded(1, bytes(101))):
        server = VsrServerConnection(limits=limits)
        server.receive_data(data[:VSR_HEAD_BYTES])
        with pytest.raises(FrameTooLarge) as caught:
            server.next_event()
        assert caught.value.status == 40
        assert server.outstanding == 1
        server.send_error(caught.value.status)
        with pytest.raises(FrameTooLarge):
            server.next_event()


# Requests of a session


@pytest.mark.parametrize("dialect", VSR)
def test_request_when_a_rule_of_the_head_is_broken_then_is_refused_and_the_next_one_is_read(
    dialect,
):
    server = bound_server(dialect)
    for fields in (
        {"view": 1},
        {"user_id": 1},
        {"client": bytes(16)},
        {"reserved_end": b"\1" * 32},
    ):
        refused(server, coded(GET_STREAMS, b"body", **fields), 4)
    refused(server, replicated(128, code=202), 4)
    refused(server, replicated(128, number=0), 4)
    refused(server, replicated(128, session=0), 4)
    refused(server, replicated(99), 3)
    refused(server, replicated(0), 3)
    for command in (0, 1, 6, 8, 13, 29):
        refused(server, coded(GET_STREAMS, command=command), 3)
    assert server.outstanding == 0
    assert expect(event_of(server, coded(GET_STREAMS)), RequestReceived).decode() == GetStreams()


def test_context_when_given_then_is_read_from_0_10_on_and_refused_before():
    fields: dict[str, Any] = {"incarnation": 5, "owner_generation": 6, "metadata_position": 7}
    server = bound_server(V0_12_0)
    event = expect(event_of(server, coded(100, **fields)), RequestReceived)
    assert event.context == PartitionContext(5, 6, 7)
    head, _ = the_reply(server.send_payload([b"x"]))
    assert head.incarnation == 5
    assert expect(event_of(server, coded(100)), RequestReceived).context is NO_CONTEXT
    head = refused(bound_server(V0_11), coded(100, **fields), 4)
    assert head.incarnation == 0, "a client of 0.9 expects zeros there"


@pytest.mark.parametrize("dialect", VSR)
def test_write_when_of_another_session_then_is_refused_or_ends_the_session(dialect):
    refused(bound_server(dialect), replicated(128, session=SESSION + 1), 40)
    refused(bound_server(dialect), replicated(128, client=OTHER_CLIENT), 40)
    evicted(bound_server(dialect), replicated(128, session=SESSION - 1), 7)


@pytest.mark.parametrize("dialect", VSR)
def test_read_when_of_another_session_then_is_taken_because_a_heartbeat_may_overtake_a_login(
    dialect,
):
    server = bound_server(dialect)
    event = event_of(server, coded(1, session=0, number=0, client=OTHER_CLIENT))
    assert expect(event, RequestReceived).decode() == Ping()


def test_checksum_when_wrong_then_is_refused_in_0_9_and_means_nothing_later():
    body = b"\1s"
    for operation in (128, 160):
        server = bound_server(V0_11)
        for identifier in (bytes(16), stamped(128, body)):
            event = event_of(server, replicated(operation, body, identifier=identifier))
            expect(event, RequestReceived)
            server.send_error(1)
        refused(server, replicated(operation, body, identifier=b"\1" * 16), 4)
        refused(
            server, replicated(operation, body, identifier=stamped(128, body)[:8] + b"\1" * 8), 4
        )
    event = event_of(bound_server(V0_12_0), replicated(128, body, identifier=b"\1" * 16))
    expect(event, RequestReceived)
    refused(bound_server(V0_11), coded(1, identifier=b"\1" * 16), 4)
    body = login_body(V0_11)
    evicted(VsrServerConnection(), frame(body, operation=1, identifier=b"\1" * 16), 15)


@pytest.mark.parametrize(
    ("dialect", "code", "status"),
    [
        (V0_11, 202, 5),
        (V0_11, 204, 5),
        (V0_11, 39, 5),
        (V0_11, 101, 5),
        (V0_11, 16, 3),
        (V0_12_0, 202, 5),
        (V0_12_0, 16, 5),
        (V0_12_0, 204, 3),
        (V0_12_0, 305, 3),
        (V0_12_2, 35, 3),
    ],
)
def test_code_when_it_has_an_operation_then_is_refused(dialect, code, status):
    refused(bound_server(dialect), coded(code), status)


@pytest.mark.parametrize("dialect", VSR)
def test_code_when_unknown_then_is_left_to_the_table_of_commands(dialect):
    event = expect(event_of(bound_server(dialect), coded(43210)), RequestReceived)
    assert event.code == 43210


def test_operation_when_the_dialect_lacks_it_then_is_refused_with_status_3():
    refused(bound_server(V0_11), replicated(150, b"\1"), 3)
    for operation in (129, 131, 133, 135, 142):
        refused(bound_server(V0_12_0), replicated(operation, b"\1"), 3)
        expect(event_of(bound_server(V0_11), replicated(operation)), RequestReceived)


@pytest.mark.parametrize("dialect", LATER)
def test_update_when_received_then_is_the_command_of_its_scope(dialect):
    for scope, code, operation in ((1, 304, 73), (2, 204, 72), (3, 35, 74)):
        server = bound_server(dialect)
        event = expect(event_of(server, replicated(150, bytes([scope]) + b"rest")), RequestReceived)
        assert (event.code, bytes(event.payload)) == (code, bytes([scope]) + b"rest")
        head, body = the_reply(server.send_payload([], position=9))
        assert (head.operation, body) == (operation, NO_ERRORS)
    refused(bound_server(dialect), replicated(150), 3)
    refused(bound_server(dialect), replicated(150, b"\0"), 3)


def test_cancel_when_received_then_names_its_request_and_is_not_answered():
    server = bound_server(V0_12_0)
    assert event_of(server, coded(108, number=17)) == CancelReceived(17)
    assert server.outstanding == 0
    refused(server, coded(108, b"x", number=17), 4)
    event = expect(event_of(bound_server(V0_11), coded(108)), RequestReceived)
    assert event.code == 108, "0.9 has no such command, which its table says"


# Frames that end the connection


@pytest.mark.parametrize("fields", [{"size": 0}, {"size": 255}, {"command": 30}, {"command": 255}])
def test_frame_when_its_end_cannot_be_trusted_then_the_connection_fails_for_good(fields):
    server = bound_server(V0_12_0)
    server.receive_data(coded(GET_STREAMS) + coded(GET_STREAMS, **fields) + coded(GET_STREAMS))
    expect(server.next_event(), RequestReceived)
    for _ in range(2):
        with pytest.raises(MalformedFrame):
            server.next_event()
    assert server.statistics().buffered_bytes == 0
    the_reply(server.send_payload([b"still answered"]))


def test_send_when_too_large_then_is_skipped_and_others_end_the_connection():
    limits = Limits(send_bytes_max=90, control_bytes_max=70)
    server = bound_server(V0_12_0, limits=limits)
    event = expect(event_of(server, replicated(160, bytes(91))), RequestRefused)
    assert isinstance(event.error, FrameTooLarge)
    head, _ = the_reply(server.send_error(event.error.status))
    assert (head.operation, head.status) == (160, 3)
    expect(event_of(server, replicated(160, bytes(90))), RequestReceived)
    server.send_empty()
    server.receive_data(coded(GET_STREAMS, bytes(71))[:VSR_HEAD_BYTES])
    with pytest.raises(FrameTooLarge) as caught:
        server.next_event()
    head, _ = the_reply(server.send_error(caught.value.status))
    assert head.status == 3


def test_body_when_of_a_skipped_send_then_is_dropped_while_it_arrives():
    server = bound_server(V0_12_0, limits=Limits(send_bytes_max=50))
    data = replicated(160, bytes(51)) + coded(GET_STREAMS)
    server.receive_data(data[:260])
    expect(server.next_event(), RequestRefused)
    assert server.next_event() is NEED_DATA
    server.receive_data(data[260:])
    expect(server.next_event(), RequestReceived)


def test_stream_when_it_ends_then_says_whether_inside_a_frame():
    for data, mid_frame in ((b"", False), (coded(1)[:100], True), (coded(1, b"xy")[:-1], True)):
        server = bound_server(V0_11)
        if data:
            server.receive_data(data)
        server.receive_data(b"")
        assert server.next_event() == ConnectionClosed(mid_frame=mid_frame)


def test_requests_when_too_many_are_unanswered_then_paused_until_one_is():
    server = bound_server(V0_11, limits=Limits(pipelined_max=2))
    server.receive_data(coded(1) * 3)
    assert [type(server.next_event()) for _ in range(2)] == [RequestReceived] * 2
    assert server.next_event() is PAUSED
    server.send(None)
    expect(server.next_event(), RequestReceived)
