"""Sends from 0.9 on that are taken together, and their replies, through a connection."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    NEED_DATA,
    PAUSED,
    V0_11,
    V0_12_0,
    V0_12_2,
    CommandCode,
    InvalidBatch,
    Limits,
    LocalProtocolError,
    PartitionContext,
    RequestReceived,
    RequestRefused,
    SendConfirmation,
    SendRun,
    SendsReceived,
    SessionBinding,
    classic_send_body,
    encode_reply,
    inspect_send,
)
from tests.protocol.frame_oracle import joined
from tests.protocol.vsr_frames import (
    CLIENT,
    SESSION,
    bound_server,
    coded,
    expect,
    replicated,
    replies_in,
)
from tests.protocol.vsr_strategies import CONTENT_LISTS, frames_of, make_frame, make_send

DIALECTS = [V0_11, V0_12_0, V0_12_2]
GATHERED_BYTES = 1 << 14


def body(*payloads):
    return make_send([make_frame(one, offset_delta=at) for at, one in enumerate(payloads)])


def send(number, *payloads, **fields):
    return replicated(160, body(*payloads), number=number, **fields)


def classic_of(sent):
    classic = classic_send_body(sent).body
    shape = inspect_send(classic)
    return bytes(classic[4 : shape.indexes_at - 4]), bytes(classic[shape.messages_at :])


METADATA = classic_of(body(b"x"))[0]


def receive(server, data):
    """Have bytes read into the buffer of the connection, as a socket does."""
    space = server.get_buffer(len(data))
    space[: len(data)] = data
    server.buffer_updated(len(data))


def accepting_server(dialect, *frames, **arguments):
    """Return a server that has accepted a first send, with more received behind it."""
    server = bound_server(dialect, **arguments)
    receive(server, send(10, b"first") + b"".join(frames))
    expect(server.next_event(), RequestReceived)
    server.expect_sends(METADATA)
    return server


def payload_at(offset):
    confirmations = (SendConfirmation(1, 2, 3, offset),)
    return b"".join(encode_reply(CommandCode.SEND_MESSAGES, confirmations, V0_11))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_sends_when_expected_then_come_as_one_with_their_numbers(dialect):
    other = coded(1, number=20)
    server = accepting_server(dialect, send(11, b"a"), send(12, b"b", b"c"), other)

    sends = expect(server.next_event(), SendsReceived)

    assert (sends.run.frames_count, sends.run.messages_count) == (2, 3)
    assert bytes(sends.messages) == classic_of(body(b"a"))[1] + classic_of(body(b"b", b"c"))[1]
    assert sends.metadata == METADATA
    assert sends.request_id[:3] == (CLIENT, SESSION, 10)
    assert sends.request_id.dialect is dialect
    assert server.outstanding == 3
    assert server.statistics().outstanding == 3
    assert expect(server.next_event(), RequestReceived).code == CommandCode.PING
    assert server.next_event() is NEED_DATA
    assert server.frames_in == 5


@pytest.mark.parametrize("dialect", DIALECTS)
def test_replies_when_confirmed_together_then_equal_those_written_one_by_one(dialect):
    frames = [send(11, b"a"), send(13, b"b", b"c"), send(14, b"d")]
    together, apart = accepting_server(dialect, *frames), bound_server(dialect)
    expect(together.next_event(), SendsReceived)
    receive(apart, b"".join([send(10, b"first"), *frames]))
    wanted = b""
    for offset in (100, 101, 102, 104):
        expect(apart.next_event(), RequestReceived)
        wanted += joined(apart.send_payload([payload_at(offset)], position=9))

    replies = joined(together.send_payload([payload_at(100)], position=9))
    replies += together.send_confirmations(payload_at(101), position=9)

    assert replies == wanted
    assert together.is_idle
    assert together.statistics().frames_out == apart.statistics().frames_out
    assert together.statistics().bytes_out == apart.statistics().bytes_out


@pytest.mark.parametrize("dialect", DIALECTS)
def test_replies_when_a_run_fails_then_each_request_has_the_error(dialect):
    server = accepting_server(dialect, send(11, b"a"), send(13, b"b"), send(15, b"c"))
    expect(server.next_event(), SendsReceived)
    server.send_payload([payload_at(0)])

    replies = replies_in(joined(server.send_error(4009)) + server.send_empty())
    assert server.outstanding == 1
    replies += replies_in(joined(server.send_error(20)))

    assert [(head.number, head.status) for head, _ in replies] == [(11, 4009), (13, 0), (15, 20)]
    assert server.is_idle


def test_replies_when_a_part_of_a_run_is_answered_then_the_rest_is_confirmed():
    server = accepting_server(V0_12_0, send(11, b"a"), send(12, b"b"), send(13, b"c"))
    expect(server.next_event(), SendsReceived)
    server.send_payload([payload_at(0)])
    server.send_error(20)

    replies = replies_in(server.send_confirmations(payload_at(7), position=1))

    assert [head.number for head, _ in replies] == [12, 13]
    assert [content for _, content in replies] == [payload_at(7), payload_at(8)]
    assert server.is_idle


def test_confirmations_when_no_run_is_oldest_then_are_our_mistake():
    server = accepting_server(V0_11, send(11, b"a"))
    for _ in range(2):
        with pytest.raises(LocalProtocolError, match="no run"):
            server.send_confirmations(payload_at(0))
        if server.outstanding == 1:
            server.send_payload([payload_at(0)])
    assert bound_server(V0_11).is_idle


def test_sends_when_too_many_are_unanswered_then_are_taken_as_replies_leave():
    frames = [send(number, b"a") for number in range(11, 16)]
    server = accepting_server(V0_12_0, *frames, limits=Limits(pipelined_max=3))

    assert expect(server.next_event(), SendsReceived).run.frames_count == 2
    assert server.next_event() is PAUSED
    server.send_error(1)
    assert expect(server.next_event(), SendsReceived).run.frames_count == 1
    server.send_error(1)
    server.send_error(1)
    assert expect(server.next_event(), SendsReceived).run.frames_count == 2
    assert server.outstanding == 3


def test_sends_when_the_last_is_incomplete_then_it_comes_later():
    whole = send(12, b"b")
    server = accepting_server(V0_12_0, send(11, b"a"), whole[:300])
    assert expect(server.next_event(), SendsReceived).run.frames_count == 1
    assert server.next_event() is NEED_DATA

    receive(server, whole[300:])

    assert expect(server.next_event(), SendsReceived).run.frames_count == 1


@pytest.mark.parametrize(
    "frame",
    [
        send(10, b"a"),
        send(11, b"a", incarnation=1),
        send(11, b"a" * GATHERED_BYTES),
        coded(100, number=11),
    ],
    ids=["not newer", "another context", "large", "another command"],
)
def test_request_when_it_is_not_as_expected_then_comes_by_itself(frame):
    server = accepting_server(V0_12_0, frame, send(12, b"b"))

    expect(server.next_event(), RequestReceived)

    assert expect(server.next_event(), SendsReceived).run.frames_count == 1


def test_send_when_damaged_then_is_refused_by_whoever_converts_it():
    server = accepting_server(V0_12_0, send(11, b"a"), send(12, b"b")[:-1] + b"c")
    expect(server.next_event(), SendsReceived)

    damaged = expect(server.next_event(), RequestReceived)

    with pytest.raises(InvalidBatch, match="checksum"):
        classic_send_body(damaged.payload)


def test_head_when_it_breaks_a_rule_then_is_refused_between_runs():
    wrong = send(12, b"b", reserved_end=bytes(31) + b"\1")
    server = accepting_server(V0_12_0, send(11, b"a"), wrong, send(13, b"c"))

    kinds = [type(server.next_event()) for _ in range(3)]

    assert kinds == [SendsReceived, RequestRefused, SendsReceived]
    assert [server.send_error(20) and server.outstanding for _ in range(4)] == [3, 2, 1, 0]


def one_by_one(server):
    """Tell whether the next send comes as a request of its own."""
    return isinstance(server.next_event(), RequestReceived)


def test_sends_when_the_session_changes_then_come_one_by_one():
    unbound = accepting_server(V0_12_0)
    unbound.unbind()
    receive(unbound, send(11, b"a"))
    assert isinstance(unbound.next_event(), RequestRefused)

    again = accepting_server(V0_12_0)
    again.bind(CLIENT, SESSION + 1, 0)
    receive(again, send(11, b"a", session=SESSION + 1))
    assert one_by_one(again)

    same = accepting_server(V0_12_0)
    same.binding = SessionBinding(*same.binding)
    receive(same, send(11, b"a"))
    assert not one_by_one(same)


def test_sends_when_the_input_cannot_be_changed_then_come_one_by_one():
    server = accepting_server(V0_12_0)
    server.receive_data(send(11, b"a") * 2)
    assert one_by_one(server)


def test_expectation_when_the_last_request_is_no_small_send_then_there_is_none():
    ping = bound_server(V0_12_0)
    receive(ping, coded(1))
    ping.next_event()
    large = bound_server(V0_12_0)
    receive(large, send(9, b"x" * GATHERED_BYTES))
    large.next_event()
    limited = bound_server(V0_12_0, limits=Limits(send_bytes_max=GATHERED_BYTES - 1))
    receive(limited, send(9, b"x"))
    limited.next_event()
    for server in (ping, large, limited):
        server.expect_sends(METADATA)
        receive(server, send(11, b"a"))
        assert one_by_one(server)


def test_expectation_when_nobody_is_bound_or_nothing_came_then_there_is_none():
    server = bound_server(V0_12_0)
    server.expect_sends(METADATA)
    receive(server, send(11, b"a"))
    assert one_by_one(server)

    server.bind(CLIENT, SESSION + 1, 0)
    server.expect_sends(METADATA)
    receive(server, send(12, b"a", session=SESSION + 1))
    assert one_by_one(server)


def test_expectation_when_taken_back_then_sends_come_one_by_one():
    server = accepting_server(V0_12_0, b"")
    server.expect_no_sends()
    receive(server, send(12, b"a"))
    assert one_by_one(server)


def test_run_when_asked_for_its_ends_then_tells_the_numbers_and_the_last_count():
    run = SendRun(2, 0, 5, 0, 0, struct.pack("<2Q", 11, 14), struct.pack("<2I", 3, 2))
    assert run.ends == (11, 14, 2)


def test_run_when_it_is_newest_then_is_not_detached():
    server = accepting_server(V0_12_0, send(11, b"a"))
    server.next_event()
    with pytest.raises(LocalProtocolError, match="in order"):
        server.detach()


def test_context_when_the_first_send_has_one_then_it_is_that_of_all():
    server = bound_server(V0_12_0)
    context = {"incarnation": 3, "owner_generation": 4, "metadata_position": 5}
    receive(server, send(10, b"x", **context) + send(11, b"y", **context))
    server.next_event()
    server.expect_sends(METADATA)
    assert expect(server.next_event(), SendsReceived).request_id.context == PartitionContext(
        3, 4, 5
    )


def taken(server, *, expects):
    """Read all events, and return what was sent: number, metadata, messages."""
    found = []
    while (event := server.next_event()) is not NEED_DATA:
        if isinstance(event, SendsReceived):
            messages = bytes(event.messages)
            numbers = struct.unpack(f"<{event.run.frames_count}Q", event.run.numbers)
            found += [(numbers, event.metadata, messages)]
        else:
            event = expect(event, RequestReceived)
            assert event.request_id is not None
            metadata, messages = classic_of(event.payload)
            found.append(((event.request_id.number,), metadata, messages))
            if expects:
                server.expect_sends(metadata)
    return found


@given(
    contents=st.lists(CONTENT_LISTS, min_size=1, max_size=6),
    elsewhere=st.sets(st.integers(0, 5)),
    data=st.data(),
)
def test_sends_when_cut_anywhere_then_runs_equal_the_requests_one_by_one(contents, elsewhere, data):
    bodies = []
    for index, content in enumerate(contents):
        made = make_send(frames_of(content))
        bodies.append(made.replace(b"\2\1s\2\1t", b"\2\1s\2\1u") if index in elsewhere else made)
    stream = b"".join(
        replicated(160, one, number=number) for number, one in enumerate(bodies, start=1)
    )
    together, apart = bound_server(V0_12_2), bound_server(V0_12_2)
    found, wanted = [], []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        receive(together, stream[:size])
        receive(apart, stream[:size])
        found += taken(together, expects=True)
        wanted += taken(apart, expects=False)
        stream = stream[size:]

    assert [number for numbers, _, _ in found for number in numbers] == [
        number for numbers, _, _ in wanted for number in numbers
    ]
    assert b"".join(one[2] for one in found) == b"".join(one[2] for one in wanted)
    destinations = {number: metadata for (number,), metadata, _ in wanted}
    assert all(destinations[one] == metadata for numbers, metadata, _ in found for one in numbers)
    assert together.outstanding == apart.outstanding == len(bodies)
