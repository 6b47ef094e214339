"""What a server answers in the framing from 0.9 on: replies, errors, evictions, out of order."""

from __future__ import annotations

import pytest

from iggy_protocol import (
    DETACHED_MAX,
    NEED_DATA,
    V0_11,
    V0_12_0,
    V0_12_2,
    VSR_HEAD_BYTES,
    CommandCode,
    EvictionReason,
    LocalProtocolError,
    RequestReceived,
    VsrServerConnection,
)
from iggy_protocol.vsr.heads import read_eviction_head
from iggy_protocol.vsr.operations import NO_ERRORS, result_section
from tests.protocol.frame_oracle import joined
from tests.protocol.vsr_frames import (
    CLIENT,
    SESSION,
    bound_server,
    coded,
    event_of,
    events_of,
    expect,
    replicated,
    replies_in,
    the_reply,
)

VSR = [V0_11, V0_12_0, V0_12_2]
GET_STREAMS = int(CommandCode.GET_STREAMS)


# Replies


@pytest.mark.parametrize("dialect", VSR)
def test_reply_when_sent_then_echoes_its_request_and_comes_in_order(dialect):
    server = bound_server(dialect)
    identifier = bytes(16) if dialect is V0_11 else b"\7" * 16
    data = coded(GET_STREAMS, number=3) + replicated(128, b"", number=4, identifier=identifier)
    assert len(events_of(server, data)) == 2
    written = joined([*server.send_payload([b"streams"]), *server.send_payload([b"x"], position=9)])
    (read, streams), (write, created) = replies_in(written)
    assert (read.number, read.operation, read.client, streams) == (3, 2, CLIENT, b"streams")
    assert (write.number, write.operation, write.identifier) == (4, 128, identifier)
    assert created == NO_ERRORS + b"x"
    assert (read.marker, write.marker) == ((0, 0) if dialect is V0_11 else (0, 1))
    assert (write.op, write.commit) == ((SESSION, 9) if dialect is V0_11 else (9, 9))


def test_reply_when_given_a_position_then_reads_of_0_10_tell_none():
    for dialect, expected in ((V0_11, (SESSION, 9, 0)), (V0_12_0, (0, 0, 0))):
        server = bound_server(dialect)
        event_of(server, coded(GET_STREAMS))
        head, _ = the_reply(server.send_payload([], position=9))
        assert (head.op, head.commit, head.marker) == expected


@pytest.mark.parametrize(
    ("code", "operation", "committed"), [(302, 132, 64), (402, 136, 65), (503, 138, 68)]
)
def test_reply_when_a_server_commits_something_else_then_carries_its_operation(
    code, operation, committed
):
    server = bound_server(V0_12_0)
    assert expect(event_of(server, replicated(operation)), RequestReceived).code == code
    head, body = the_reply(server.send_payload([b"x"], position=9))
    assert (head.operation, body) == (committed, NO_ERRORS + b"x")


@pytest.mark.parametrize(
    ("operation", "told", "is_result"),
    [(128, 128, True), (132, 132, True), (138, 68, True), (150, 150, True), (161, 161, True)],
)
def test_error_when_committed_then_stands_in_the_result_section(operation, told, is_result):
    server = bound_server(V0_12_0)
    event_of(server, replicated(operation, b"\1"))
    head, body = the_reply(server.send_error(1012, position=9))
    assert (head.operation, head.status, head.marker, head.op) == (told, 0, 1, 9)
    assert body == result_section(1012)
    event_of(server, replicated(operation, b"\1"))
    head, body = the_reply(server.send_error(1012))
    assert (head.operation, head.status, head.marker, head.op) == (operation, 1012, 0, 0)
    assert body == b""


def test_error_when_of_a_send_or_a_read_then_is_a_status_in_any_case():
    for data in (replicated(160), coded(GET_STREAMS), replicated(3)):
        server = bound_server(V0_12_0)
        event_of(server, data)
        head, body = the_reply(server.send_error(20, position=9))
        assert (head.status, head.marker, head.op, body) == (20, 0, 0, b"")


def test_reply_when_of_large_parts_then_does_not_copy_them():
    server = bound_server(V0_12_0)
    event_of(server, coded(100))
    large = bytes(100_000)
    head, payload = server.send_payload([large])
    assert payload is large
    assert len(head) == VSR_HEAD_BYTES
    event_of(server, coded(100))
    assert server.send_head(len(large)) == head
    statistics = server.statistics()
    assert statistics.frames_out == 3
    assert statistics.bytes_out >= 2 * (VSR_HEAD_BYTES + len(large))


def test_acknowledgements_when_sent_together_then_are_one_frame_for_each_request():
    server = bound_server(V0_12_0)
    events_of(server, b"".join(replicated(160, b"x", number=number) for number in (5, 6, 7)))
    with pytest.raises(LocalProtocolError):
        server.send_empty(4)
    with pytest.raises(LocalProtocolError):
        server.send_empty(0)
    frames = replies_in(server.send_empty(2, position=9))
    assert [(head.number, head.marker, body) for head, body in frames] == [(5, 1, b""), (6, 1, b"")]
    assert server.outstanding == 1


def test_reply_when_nothing_is_outstanding_then_is_our_mistake():
    server = bound_server(V0_12_0)
    for call in (
        lambda: server.send(None),
        lambda: server.send_payload([]),
        lambda: server.send_head(0),
        lambda: server.send_error(1),
        lambda: server.send_eviction(EvictionReason.NO_SESSION),
        server.detach,
    ):
        with pytest.raises(LocalProtocolError):
            call()


def test_reply_when_it_does_not_fit_then_is_our_mistake_and_the_request_stays():
    server = bound_server(V0_12_0)
    event_of(server, coded(43210))
    for call in (
        lambda: server.send(None),
        lambda: server.send_head(2**32),
        lambda: server.send_error(0),
        lambda: server.send_error(2**32),
        lambda: server.push_error(0),
    ):
        with pytest.raises(LocalProtocolError):
            call()
    assert server.outstanding == 1


def test_reply_when_encoded_here_then_is_that_of_the_dialect():
    server = bound_server(V0_12_0)
    event_of(server, coded(1, number=12))
    head, body = the_reply(server.send(None))
    assert (head.number, body) == (12, b"")


# Evictions


def test_eviction_when_sent_then_takes_the_place_of_a_reply_and_ends_the_session():
    server = bound_server(V0_12_0)
    event_of(server, coded(GET_STREAMS))
    head = read_eviction_head(joined(server.send_eviction(EvictionReason.NO_SESSION)))
    assert (head.reason, head.client) == (1, CLIENT)
    assert server.binding is None
    assert not server.is_authenticated
    assert server.outstanding == 0


def test_error_when_pushed_then_evicts_a_stale_client_and_leaves_others_to_the_close():
    server = bound_server(V0_12_0)
    assert server.push_error(8) == []
    head = read_eviction_head(joined(server.push_error(30)))
    assert (head.reason, head.client) == (13, CLIENT)
    assert VsrServerConnection().push_error(30) == [], "it has not told its id"


# Out of order


def test_request_when_detached_then_is_answered_at_any_time_and_blocks_no_other():
    server = bound_server(V0_12_0)
    event_of(server, coded(106, number=8, incarnation=3))
    parked = server.detach()
    assert (parked.number, server.outstanding, server.detached) == (8, 0, 1)
    event_of(server, coded(1, number=9))
    assert the_reply(server.send(None))[0].number == 9
    with pytest.raises(LocalProtocolError):
        server.unread()
    head, body = the_reply(server.send_detached(parked, [b"polled"]))
    assert (head.number, head.incarnation, body) == (8, 3, b"polled")
    assert server.is_idle
    for call in (
        lambda: server.send_detached(parked, []),
        lambda: server.send_detached_error(parked, 1),
        lambda: server.drop_detached(parked),
    ):
        with pytest.raises(LocalProtocolError):
            call()


def test_request_when_detached_then_can_be_refused_found_and_dropped():
    server = bound_server(V0_12_0)
    events_of(server, coded(106, number=8))
    first = server.detach()
    events_of(server, coded(106, number=9))
    second = server.detach()
    assert server.find_detached(9) is second
    assert server.find_detached(10) is None
    server.drop_detached(second)
    with pytest.raises(LocalProtocolError):
        server.send_detached_error(first, 0)
    head, _ = the_reply(server.send_detached_error(first, 90))
    assert (head.number, head.status) == (8, 90)
    assert server.detached == 0


def test_request_when_detached_then_the_newest_is_taken_and_older_ones_stay():
    server = bound_server(V0_12_0)
    events_of(server, coded(1, number=7) + coded(106, number=8))
    assert server.detach().number == 8
    assert the_reply(server.send(None))[0].number == 7


def test_detach_when_the_client_needs_order_or_too_many_are_then_is_our_mistake():
    server = bound_server(V0_11)
    event_of(server, coded(100))
    with pytest.raises(LocalProtocolError, match="order"):
        server.detach()
    server = bound_server(V0_12_0)
    for number in range(DETACHED_MAX):
        event_of(server, coded(106, number=number))
        server.detach()
    event_of(server, coded(106))
    with pytest.raises(LocalProtocolError, match="256"):
        server.detach()
    assert the_reply(server.send_error(90))[0].status == 90


# What a pipeline asks


def test_connection_when_moved_then_the_new_one_goes_on_with_session_and_bytes():
    server = bound_server(V0_12_0)
    data = coded(GET_STREAMS)
    server.receive_data(data[:100])
    assert server.next_event() is NEED_DATA
    moved = VsrServerConnection(binding=server.binding, is_authenticated=True)
    moved.receive_data(server.unread() + data[100:])
    event = expect(moved.next_event(), RequestReceived)
    assert event.dialect is V0_12_0
    assert moved.needs_data
    assert not moved.is_idle
