"""Telling the framings apart: by a client's first words, and by a server's answer to a probe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    NEED_DATA,
    ConnectionClosed,
    DetectingConnection,
    FramingDetected,
    Limits,
    LocalProtocolError,
    MalformedFrame,
    Ping,
    ProbeVerdict,
    RequestReceived,
    RequestRefused,
    ServerConnection,
    VsrServerConnection,
    WireFraming,
    framing_of,
    judge_probe,
    vsr_probe,
)
from iggy_protocol.errors import INVALID_COMMAND
from iggy_protocol.vsr.recognition import vsr_refusal
from tests.protocol.frame_oracle import (
    FEEDERS,
    RECORDING_NAMES,
    joined,
    recorded_connections,
    request_frame,
    response_frame,
)
from tests.protocol.vsr_frames import CLIENT, coded, expect
from tests.protocol.vsr_recordings import RECORDINGS, exchanges

PROBE = vsr_probe(CLIENT)


@pytest.mark.parametrize("feed", FEEDERS.values(), ids=FEEDERS)
@pytest.mark.parametrize("step", [1, 3, 4, 10_000])
@pytest.mark.parametrize(
    ("data", "kind"),
    [(request_frame(1), ServerConnection), (PROBE, VsrServerConnection)],
    ids=["classic", "vsr"],
)
def test_client_when_it_sends_its_first_word_then_gets_the_right_connection(data, kind, step, feed):
    limits = Limits(pipelined_max=3)
    connection = DetectingConnection(limits=limits)
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    event: object = NEED_DATA
    while pieces:
        feed(connection, pieces.pop(0))
        event = connection.next_event()
        if event is not NEED_DATA:
            break
    found = expect(event, FramingDetected).connection
    assert type(found) is kind
    assert found.limits is limits
    assert not found.is_authenticated
    for piece in pieces:
        feed(found, piece)
    assert expect(found.next_event(), RequestReceived).decode() == Ping()
    assert connection.buffered_bytes == 0


@pytest.mark.parametrize("word", [1, 2, 3])
def test_client_when_no_framing_begins_like_this_then_the_connection_fails_for_good(word):
    connection = DetectingConnection()
    connection.receive_data(word.to_bytes(4, "little") + PROBE)
    for _ in range(2):
        with pytest.raises(MalformedFrame):
            connection.next_event()


@given(st.integers(4, 2**32 - 1), st.binary(max_size=300))
def test_client_when_its_first_word_is_a_length_then_is_classic_whatever_follows(word, rest):
    assert framing_of(word.to_bytes(4, "little") + rest) is WireFraming.CLASSIC


@given(st.binary(max_size=300))
def test_client_when_its_first_words_are_zero_then_is_not_classic_whatever_follows(rest):
    assert framing_of(bytes(8) + rest) is WireFraming.VSR
    assert framing_of(rest[:3]) is None
    for size in range(4, 8):
        assert framing_of(bytes(size)) is None


@given(st.integers(1, 2**32 - 1), st.binary(max_size=300))
def test_client_when_it_gets_its_first_length_wrong_then_is_told_as_a_classic_one(code, rest):
    data = bytes(4) + code.to_bytes(4, "little") + rest
    assert framing_of(data) is WireFraming.CLASSIC
    connection = DetectingConnection()
    connection.receive_data(data)
    found = expect(connection.next_event(), FramingDetected).connection
    assert expect(found.next_event(), RequestRefused).error.status == INVALID_COMMAND


def test_recorded_clients_when_detected_then_are_what_they_were():
    for name in RECORDING_NAMES:
        for recorded in recorded_connections(name):
            data = b"".join(recorded.requests)
            if data[:4] not in (b"\1\0\0\0", b"\2\0\0\0", b"\3\0\0\0"):
                assert framing_of(data) is WireFraming.CLASSIC
    for file in RECORDINGS:
        for one in exchanges(file):
            assert framing_of(one.request.head) is WireFraming.VSR


def test_client_when_it_closes_early_then_says_whether_it_sent_anything():
    for data, mid_frame in ((b"", False), (b"\4\0", True)):
        connection = DetectingConnection()
        if data:
            connection.receive_data(data)
        connection.receive_eof()
        assert connection.next_event() == ConnectionClosed(mid_frame=mid_frame)


def test_client_when_it_closes_after_its_first_frame_then_the_right_connection_knows():
    connection = DetectingConnection()
    connection.receive_data(PROBE)
    connection.receive_eof()
    found = expect(connection.next_event(), FramingDetected).connection
    expect(found.next_event(), RequestReceived)
    assert found.next_event() == ConnectionClosed(mid_frame=False)


def test_connection_when_nothing_is_known_then_is_idle_and_can_be_moved():
    connection = DetectingConnection()
    connection.receive_data(b"\4\0")
    assert connection.next_event() is NEED_DATA
    assert connection.is_idle
    assert connection.outstanding == 0
    assert connection.unread() == b"\4\0"
    assert joined(connection.push_error(8)) == response_frame(8)
    with pytest.raises(LocalProtocolError):
        connection.push_error(0)


# Probes


@pytest.mark.parametrize("answer", [b"", bytes(3), bytes(4), bytes(255)])
def test_answer_when_it_is_short_then_more_is_needed(answer):
    assert judge_probe(answer) is None


def test_answer_when_complete_then_tells_what_the_server_speaks():
    server = VsrServerConnection()
    server.receive_data(PROBE)
    server.next_event()
    pong = joined(server.send(None))
    assert judge_probe(pong) is ProbeVerdict.VSR
    assert judge_probe(pong + b"more") is ProbeVerdict.VSR
    assert judge_probe(response_frame(3) * 6) is ProbeVerdict.CLASSIC
    assert judge_probe(response_frame(3)[:4]) is ProbeVerdict.CLASSIC
    assert judge_probe(vsr_refusal(PROBE)) is ProbeVerdict.CLASSIC
    assert judge_probe(bytes(256)) is ProbeVerdict.NEITHER
    assert judge_probe(coded(1)) is ProbeVerdict.NEITHER


def test_answers_when_recorded_then_are_those_of_a_server_of_this_framing():
    for file in RECORDINGS:
        for one in exchanges(file):
            if one.reply is not None:
                assert judge_probe(one.reply.head) is ProbeVerdict.VSR
