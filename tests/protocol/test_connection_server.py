"""The server's end: what it hears, when it pauses, what it answers and refuses to answer."""

from __future__ import annotations

import dataclasses

import pytest

from iggy_protocol.base_connection import Limits
from iggy_protocol.connection import ServerConnection
from iggy_protocol.errors import (
    FrameTooLarge,
    LocalProtocolError,
    MalformedFrame,
    UnknownCommand,
)
from iggy_protocol.events import (
    NEED_DATA,
    PAUSED,
    RequestReceived,
    RequestRefused,
)
from tests.protocol.frame_oracle import (
    CONTROL_BYTES_MAX,
    FEEDERS,
    SEND_MESSAGES,
    drain,
    feed_in_place,
    hear,
    joined,
    request_frame,
    response_frame,
)

PING = request_frame(1)
PONG = response_frame(0)


def ping_outstanding() -> ServerConnection:
    """Return a server that has heard a ping and not answered it."""
    server = ServerConnection()
    server.receive_data(PING)
    assert len(drain(server)) == 1
    return server


# The server hears


def test_server_when_nothing_came_then_needs_data():
    assert ServerConnection().next_event() is NEED_DATA


def test_server_when_next_frame_follows_then_it_is_left_untouched():
    server = ServerConnection()
    server.receive_data(request_frame(202, b"\x01a") + b"garbage")

    assert server.next_event() == RequestReceived(202, memoryview(b"\x01a"))
    assert server.next_event() is NEED_DATA
    assert server.statistics().buffered_bytes == len(b"garbage")


def test_server_when_code_is_unknown_then_decode_says_so():
    server = ServerConnection()
    server.receive_data(request_frame(9999, bytes(10)))
    event = server.next_event()
    assert isinstance(event, RequestReceived)

    with pytest.raises(UnknownCommand) as caught:
        event.decode()

    assert caught.value.status == 3
    with pytest.raises(LocalProtocolError, match="9999 is no command"):
        server.send(None)
    assert joined(server.send_error(caught.value.status)) == response_frame(3)


@pytest.mark.parametrize("length", range(4))
def test_server_when_length_is_below_4_then_head_is_skipped(length):
    server = ServerConnection()
    server.receive_data(bytes([length, 0, 0, 0, 1, 0, 0, 0]) + PING)

    event = server.next_event()

    assert isinstance(event, RequestRefused)
    assert isinstance(event.error, MalformedFrame)
    assert (event.code, event.error.status) == (1, 3)
    assert isinstance(server.next_event(), RequestReceived)
    assert joined(server.send_error(event.error.status)) == response_frame(3)
    assert joined(server.send(None)) == PONG


def test_server_when_control_frame_is_at_the_limit_then_waits_for_it():
    server = ServerConnection()
    server.receive_data((CONTROL_BYTES_MAX + 4).to_bytes(4, "little") + b"\xca\0\0\0")

    assert server.next_event() is NEED_DATA


@pytest.mark.parametrize("length", [CONTROL_BYTES_MAX + 5, 2**32 - 1])
def test_server_when_control_frame_is_above_the_limit_then_fails_for_good(length):
    server = ping_outstanding()
    server.receive_data(length.to_bytes(4, "little") + b"\xca\0\0\0")

    with pytest.raises(FrameTooLarge) as caught:
        server.next_event()
    with pytest.raises(FrameTooLarge) as again:
        server.next_event()

    assert again.value is caught.value
    assert (caught.value.status, caught.value.need, caught.value.have) == (
        3,
        length - 4,
        CONTROL_BYTES_MAX,
    )
    assert joined(server.send(None) + server.send_error(3)) == PONG + response_frame(3)
    with pytest.raises(LocalProtocolError, match="no request"):
        server.send_error(3)


@pytest.mark.parametrize("feed", FEEDERS.values(), ids=FEEDERS)
def test_server_when_failed_then_drops_what_still_comes(feed):
    server = ServerConnection()
    server.receive_data(b"\xff\xff\xff\xff\x01\0\0\0" + PING * 10)
    assert drain(server) == [("failed", "FrameTooLarge")]

    for _ in range(40):
        feed(server, bytes(100_000))

    assert drain(server) == [("failed", "FrameTooLarge")]
    statistics = server.statistics()
    assert (statistics.buffered_bytes, statistics.bytes_in) == (0, 88 + 4_000_000)


@pytest.mark.parametrize("feed", FEEDERS.values(), ids=FEEDERS)
def test_server_when_send_is_above_the_limit_then_its_body_is_dropped_as_it_comes(feed):
    server = ServerConnection(limits=Limits(send_bytes_max=1_000))
    frame = request_frame(SEND_MESSAGES, bytes(3_000_000))

    feed(server, frame[:20])
    event = server.next_event()

    assert isinstance(event, RequestRefused)
    assert isinstance(event.error, FrameTooLarge)
    assert (event.code, event.error.status) == (SEND_MESSAGES, 3)
    for position in range(20, len(frame), 50_000):
        assert server.next_event() is NEED_DATA
        feed(server, frame[position : position + 50_000])
        assert server.next_event() is NEED_DATA
        assert server.statistics().buffered_bytes == 0
    assert server.statistics().reserved_bytes <= 65_536
    feed(server, PING)
    assert isinstance(server.next_event(), RequestReceived)
    assert joined(server.send_error(3) + server.send(None)) == response_frame(3) + PONG


def test_server_when_message_is_as_large_as_allowed_then_default_limit_takes_it():
    server = ServerConnection()
    payload_bytes = 64_000_000 + 100_000 + 64 + 16 + 1_000
    server.receive_data((payload_bytes + 4).to_bytes(4, "little") + b"\x65\0\0\0")

    assert server.next_event() is NEED_DATA


def test_server_when_limit_is_lowered_then_counts_for_the_frame_at_hand():
    server = ServerConnection()
    frame = request_frame(SEND_MESSAGES, bytes(5_000))
    server.receive_data(frame[:2_000])
    assert server.next_event() is NEED_DATA

    server.limits = dataclasses.replace(server.limits, send_bytes_max=1_000)

    assert isinstance(server.next_event(), RequestRefused)
    server.receive_data(frame[2_000:] + PING)
    assert isinstance(server.next_event(), RequestReceived)


def test_server_when_limit_of_unread_bytes_is_changed_then_counts_at_once():
    server = ServerConnection()
    server.limits = Limits(unread_bytes_max=20)
    server.receive_data(PING * 2)

    with pytest.raises(LocalProtocolError, match="call next_event first"):
        server.receive_data(PING)

    assert server.statistics().bytes_in == 16
    assert len(server.get_buffer()) == 4


@pytest.mark.parametrize("is_given_at_first", [True, False])
def test_server_when_retained_memory_is_limited_then_larger_buffers_are_dropped(is_given_at_first):
    limits = Limits(retained_bytes_max=100_000)
    server = ServerConnection(limits=limits if is_given_at_first else Limits())
    if not is_given_at_first:
        server.limits = limits
    frame = request_frame(SEND_MESSAGES, bytes(200_000))

    pieces = (frame[position : position + 50_000] for position in range(0, len(frame), 50_000))
    told = hear(server, pieces, feed_in_place)

    assert [kind for kind, *_ in told] == ["request", "closed"]
    assert server.statistics().reserved_bytes == 0


def test_server_when_failed_then_tracebacks_do_not_pile_up():
    server = ServerConnection()
    server.receive_data(b"\xff\xff\xff\xff\x01\0\0\0")
    depths = []

    for _ in range(4):
        with pytest.raises(FrameTooLarge) as caught:
            server.next_event()
        depths.append(len(caught.traceback))

    assert depths[1:] == depths[1:2] * 3


# The server pauses


def test_server_when_too_many_are_outstanding_then_pauses_until_answered():
    server = ServerConnection(limits=Limits(pipelined_max=2))
    server.receive_data(PING * 3)

    assert isinstance(server.next_event(), RequestReceived)
    assert isinstance(server.next_event(), RequestReceived)
    assert server.next_event() is PAUSED
    assert server.next_event() is PAUSED
    server.send(None)
    assert isinstance(server.next_event(), RequestReceived)
    assert server.next_event() is PAUSED


def test_server_when_paused_then_input_is_bounded():
    server = ServerConnection(limits=Limits(pipelined_max=1, unread_bytes_max=100))
    server.receive_data(PING * 2)
    server.next_event()
    assert server.next_event() is PAUSED

    server.receive_data(PING * 11)
    with pytest.raises(LocalProtocolError, match="PAUSED"):
        server.receive_data(PING)

    assert server.statistics().buffered_bytes == 96
    assert len(server.get_buffer()) == 4


# The server answers


def test_server_when_nothing_is_outstanding_then_cannot_answer():
    server = ServerConnection()

    for answer in (
        lambda: server.send(None),
        lambda: server.send_payload([]),
        lambda: server.send_head(0),
        lambda: server.send_error(3),
    ):
        with pytest.raises(LocalProtocolError, match="no request is waiting"):
            answer()


def test_server_when_pushing_then_nothing_needs_to_be_outstanding():
    server = ServerConnection()

    assert joined(server.push_error(8)) == bytes.fromhex("0800000000000000")
    assert server.statistics().frames_out == 1


@pytest.mark.parametrize("status", [-1, 0, 2**32])
def test_server_when_status_is_none_of_an_error_then_refuses(status):
    server = ping_outstanding()

    with pytest.raises(LocalProtocolError, match="no status"):
        server.send_error(status)
    with pytest.raises(LocalProtocolError, match="no status"):
        server.push_error(status)

    assert server.outstanding == 1


@pytest.mark.parametrize("parts", [[b"x"], [b"", memoryview(b"x")]])
def test_server_when_reply_would_be_one_byte_then_refuses(parts):
    server = ping_outstanding()

    with pytest.raises(LocalProtocolError, match="one byte"):
        server.send_payload(parts)

    assert joined(server.send(None)) == PONG


@pytest.mark.parametrize("size", [-1, 2**32])
def test_server_when_no_frame_can_hold_the_reply_then_refuses(size):
    server = ping_outstanding()

    with pytest.raises(LocalProtocolError, match="no frame can hold"):
        server.send_head(size)

    assert server.outstanding == 1


def test_server_when_reply_does_not_fit_the_command_then_request_stays_outstanding():
    server = ping_outstanding()

    with pytest.raises(LocalProtocolError):
        server.send("pong")

    assert joined(server.send(None)) == PONG


def test_server_when_payload_is_small_then_it_is_one_buffer():
    server = ping_outstanding()

    assert server.send_payload([b"ab", bytearray(b"cd"), memoryview(b"ef")]) == [
        response_frame(0, b"abcdef")
    ]


def test_server_when_payload_is_large_then_it_is_not_copied():
    server = ping_outstanding()
    large, larger = bytes(10_000), memoryview(bytearray(20_000))

    buffers = server.send_payload([b"head", large, larger, b"tail"])

    assert len(buffers) == 4
    assert buffers[0] == response_frame(0, bytes(30_008))[:8] + b"head"
    assert buffers[1] is large
    assert buffers[2] is larger
    assert server.statistics().bytes_out == 30_016


def test_server_when_payload_is_sent_by_the_caller_then_head_announces_it():
    server = ping_outstanding()

    assert server.send_head(1_000_000) == response_frame(0, bytes(1_000_000))[:8]
    assert server.outstanding == 0


# The server hands a client over


@pytest.mark.parametrize("feed", FEEDERS.values(), ids=FEEDERS)
@pytest.mark.parametrize("cut", [0, 3, 9])
def test_server_when_at_rest_then_another_can_go_on_with_what_came(feed, cut):
    frame = request_frame(202, b"\x01a")
    server, successor = ServerConnection(), ServerConnection()
    feed(server, PING + frame[:cut])
    drain(server)
    server.send(None)

    unread = server.unread()
    successor.receive_data(unread + frame[cut:])

    assert unread == frame[:cut]
    assert drain(successor) == [("request", 202, b"\x01a")]


def test_server_when_it_owes_something_then_it_cannot_be_handed_over():
    server = ping_outstanding()

    assert not server.is_idle
    with pytest.raises(LocalProtocolError, match="outstanding"):
        server.unread()


@pytest.mark.parametrize("feed", FEEDERS.values(), ids=FEEDERS)
def test_server_when_all_that_came_is_taken_then_says_so_and_wants_nothing(feed):
    server = ServerConnection()
    said = [server.needs_data]

    feed(server, PING + PING[:5])
    said.append(server.needs_data)
    assert isinstance(server.next_event(), RequestReceived)
    said.append(server.needs_data)
    assert server.next_event() is NEED_DATA
    assert server.missing_bytes
    feed(server, PING[5:])
    assert isinstance(server.next_event(), RequestReceived)
    said.append(server.needs_data)
    assert server.missing_bytes == 0
    assert server.next_event() is NEED_DATA
    server.receive_eof()
    said.append(server.needs_data)

    assert said == [True, False, False, True, False]


# Before a login


@pytest.mark.parametrize("feed", FEEDERS.values(), ids=FEEDERS)
def test_send_when_unauthenticated_and_long_then_it_is_dropped_as_it_comes(feed):
    server = ServerConnection(is_authenticated=False)
    frame = request_frame(SEND_MESSAGES, bytes(1_000_000))

    feed(server, frame[:100])
    event = server.next_event()

    assert isinstance(event, RequestRefused)
    assert isinstance(event.error, FrameTooLarge)
    assert (event.error.status, event.error.have) == (40, 16_384)
    for position in range(100, len(frame), 50_000):
        feed(server, frame[position : position + 50_000])
        assert server.next_event() is NEED_DATA
        assert server.statistics().buffered_bytes == 0
    assert server.statistics().reserved_bytes <= 2 * 65_536
    assert not server.is_mid_frame
    feed(server, PING)
    assert isinstance(server.next_event(), RequestReceived)


def test_control_frame_when_unauthenticated_and_long_then_fails_for_good():
    server = ServerConnection(is_authenticated=False)
    server.receive_data((16_384 + 5).to_bytes(4, "little") + b"\xca\0\0\0")

    with pytest.raises(FrameTooLarge) as caught:
        server.next_event()

    assert (caught.value.status, caught.value.need) == (40, 16_385)


def test_control_frame_when_too_long_for_any_client_then_its_status_is_that_of_all():
    server = ServerConnection(is_authenticated=False)
    server.receive_data((CONTROL_BYTES_MAX + 5).to_bytes(4, "little") + b"\xca\0\0\0")

    with pytest.raises(FrameTooLarge) as caught:
        server.next_event()

    assert caught.value.status == 3


def test_limit_when_another_one_is_narrower_then_that_one_counts():
    server = ServerConnection(limits=Limits(send_bytes_max=10), is_authenticated=False)
    server.receive_data(request_frame(SEND_MESSAGES, bytes(11)))

    event = server.next_event()

    assert isinstance(event, RequestRefused)
    assert (event.error.status, event.error.need, event.error.have) == (3, 11, 10)


def test_frame_when_as_long_as_allowed_before_a_login_then_it_is_waited_for():
    server = ServerConnection(is_authenticated=False)
    server.receive_data(request_frame(38, bytes(16_384)))

    assert isinstance(server.next_event(), RequestReceived)


def test_limit_when_the_client_logs_in_and_out_then_it_follows():
    server = ServerConnection(is_authenticated=False)
    server.receive_data(PING)
    assert isinstance(server.next_event(), RequestReceived)

    server.is_authenticated = True
    server.receive_data(request_frame(202, bytes(100_000)))
    assert isinstance(server.next_event(), RequestReceived)

    server.is_authenticated = False
    server.receive_data(request_frame(202, bytes(100_000)))
    with pytest.raises(FrameTooLarge):
        server.next_event()


def test_frame_when_a_part_of_it_came_then_the_connection_is_in_the_middle_of_it():
    server = ServerConnection()
    states = [server.is_mid_frame]

    server.receive_data(PING + PING[:3])
    assert len(drain(server)) == 1
    states.append(server.is_mid_frame)
    assert (server.frames_in, server.buffered_bytes) == (1, 3)
    server.receive_data(PING[3:])
    assert len(drain(server)) == 1
    states.append(server.is_mid_frame)

    assert states == [False, True, False]
