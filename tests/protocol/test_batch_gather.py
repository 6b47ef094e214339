"""Runs of small sends that are taken as one batch; over both twins, and through a connection."""

from __future__ import annotations

from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    NEED_DATA,
    ClientConnection,
    CommandCode,
    Limits,
    MessageBatch,
    NewMessage,
    Partitioning,
    Ping,
    RequestReceived,
    SendMessages,
    ServerConnection,
    gather_sends,
    inspect_send,
)
from iggy_protocol.framing import CLASSIC_FRAMING
from tests.protocol.batch_strategies import TWINS, load_twin

HERE, ELSEWHERE = Partitioning.partition(0), Partitioning.partition(1)


@pytest.fixture(scope="module", params=TWINS)
def twin(request):
    return load_twin(request.param)


def frame(*payloads, to=HERE, ids=None):
    numbers = ids or [0] * len(payloads)
    messages = [NewMessage(*pair) for pair in zip(payloads, numbers, strict=True)]
    return b"".join(
        bytes(part) for part in ClientConnection().send(SendMessages("s", "t", to, messages))
    )


def metadata_of(data):
    shape = inspect_send(data[8:])
    return data[12 : 8 + shape.indexes_at - 4]


METADATA = metadata_of(frame(b"x"))


def payloads_of(data):
    return MessageBatch(data).payloads()


def test_run_when_frames_follow_each_other_then_their_messages_lie_together(twin):
    data = bytearray(frame(b"a", b"b") + frame(b"c", ids=[7]) + frame(b"d"))

    frames, consumed, count, missing, size = twin.gather(data, METADATA, 100)

    assert (frames, consumed, count, missing) == (3, len(data), 4, 3)
    assert payloads_of(data[:size]) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    "other",
    [
        frame(b"z", to=ELSEWHERE),
        bytes.fromhex("0400000001000000"),
        frame(b"z")[:-1],
        frame(b"z" * (1 << 14)),
        frame(b"z").replace(
            b"\x01\x00\x00\x00\x00\x00\x00\x00", b"\x01\x00\x00\x00\x01\x00\x00\x00"
        ),
        b"\x00" * 8,
        b"\xff" * 200,
        b"\x01",
        b"",
    ],
    ids=["elsewhere", "ping", "cut", "large", "unsound", "zeros", "ones", "a byte", "end"],
)
def test_run_when_something_else_comes_then_stops_before_it(twin, other):
    good = frame(b"a") + frame(b"b")
    data = bytearray(good + other)

    frames, consumed, count, _, size = twin.gather(data, METADATA, 100)

    assert (frames, consumed, count) == (2, len(good), 2)
    assert payloads_of(data[:size]) == [b"a", b"b"]
    assert data[consumed:] == other


def test_run_when_enough_frames_are_taken_then_stops(twin):
    data = bytearray(frame(b"a") * 5)

    assert twin.gather(data, METADATA, 2)[:3] == (2, 2 * len(frame(b"a")), 2)


def test_run_when_the_frames_cannot_be_changed_then_is_refused(twin):
    with pytest.raises(BufferError):
        twin.gather(frame(b"a"), METADATA, 1)


pieces = st.one_of(
    st.lists(st.binary(max_size=40), min_size=1, max_size=4).map(lambda lot: frame(*lot)),
    st.just(frame(b"z", to=ELSEWHERE)),
    st.binary(max_size=30),
    st.tuples(st.just(frame(b"abc")), st.integers(0, 110), st.integers(0, 255)).map(
        lambda cut: cut[0][: cut[1]] + bytes([cut[2]]) + cut[0][cut[1] + 1 :]
    ),
)


@given(st.lists(pieces, max_size=8).map(b"".join), st.integers(0, 10))
def test_twins_when_given_anything_then_agree_on_every_byte(data, frames_max):
    outcomes = []
    for name in TWINS:
        copy = bytearray(data)
        result = load_twin(name).gather(copy, METADATA, frames_max)
        outcomes.append((result, bytes(copy[: result[4]]), bytes(copy[result[1] :])))

    assert all(outcome == outcomes[0] for outcome in outcomes)


# Through a connection


def receive(connection, data):
    space = connection.get_buffer(len(data))
    space[: len(data)] = data
    connection.buffer_updated(len(data))


def test_connection_when_sends_follow_a_send_then_gives_them_as_one():
    connection = ServerConnection()
    receive(connection, frame(b"a") * 4 + frame(b"b", to=ELSEWHERE))

    first = connection.next_event()
    assert isinstance(first, RequestReceived)
    run, messages = connection.take_sends(METADATA) or pytest.fail("no run")

    assert run.frames_count == 3
    assert payloads_of(messages) == [b"a"] * 3
    assert run.shape.messages_count == 3
    assert connection.outstanding == 4
    assert connection.send_empty(4) == bytes(32)
    last = connection.next_event()
    assert isinstance(last, RequestReceived)
    assert last.code == CommandCode.SEND_MESSAGES
    assert connection.take_sends(METADATA) is None
    assert connection.next_event() is NEED_DATA


def test_connection_when_the_last_frame_is_incomplete_then_it_comes_later():
    connection = ServerConnection()
    whole = frame(b"a")
    receive(connection, whole * 3 + whole[:50])
    connection.next_event()
    assert (connection.take_sends(METADATA) or pytest.fail("no run"))[0].frames_count == 2
    assert connection.next_event() is NEED_DATA

    receive(connection, whole[50:])

    event = connection.next_event()
    assert isinstance(event, RequestReceived)
    assert len(event.payload) == len(whole) - 8


def test_connection_when_too_much_is_pipelined_then_takes_no_more():
    connection = ServerConnection(limits=Limits(pipelined_max=2))
    receive(connection, frame(b"a") * 4)
    connection.next_event()

    assert (connection.take_sends(METADATA) or pytest.fail("no run"))[0].frames_count == 1
    assert connection.take_sends(METADATA) is None


def test_connection_when_the_input_cannot_be_changed_then_gives_events_one_by_one():
    connection = ServerConnection()
    connection.receive_data(frame(b"a") * 2)
    connection.next_event()

    assert connection.take_sends(METADATA) is None
    assert isinstance(connection.next_event(), RequestReceived)


def test_connection_when_nothing_follows_then_gives_nothing():
    connection = ServerConnection()
    receive(connection, frame(b"a"))
    connection.next_event()

    assert connection.take_sends(METADATA) is None


def test_connection_when_a_large_send_is_dropped_then_gives_nothing():
    connection = ServerConnection(limits=Limits(send_bytes_max=200))
    receive(connection, frame(b"x" * 300)[:250])
    connection.next_event()

    assert connection.take_sends(METADATA) is None


def test_answers_when_fewer_are_owed_then_cannot_be_given():
    connection = ServerConnection()
    receive(connection, b"".join(bytes(part) for part in ClientConnection().send(Ping())))
    connection.next_event()

    for count in (0, 2):
        with pytest.raises(Exception, match="waiting for an answer"):
            connection.send_empty(count)


def test_run_when_gathered_through_the_module_then_has_names():
    data = bytearray(frame(b"a") * 2)

    run = gather_sends(data, METADATA, frames_max=9)

    assert (run.frames_count, run.size_bytes, run.messages_count) == (2, len(data), 2)


def test_connection_when_another_command_follows_then_leaves_it():
    connection = ServerConnection()
    receive(connection, frame(b"a") + frame(b"b", to=ELSEWHERE))
    connection.next_event()

    assert connection.take_sends(METADATA) is None
    assert isinstance(connection.next_event(), RequestReceived)


def test_connection_when_its_framing_is_another_then_gives_events_one_by_one():
    connection = ServerConnection(framing=copy(CLASSIC_FRAMING))
    receive(connection, frame(b"a") * 2)
    connection.next_event()

    assert connection.take_sends(METADATA) is None
