"""Clients of servers from 0.9 on: recognised by what official ones say, and refused.

The recorded requests were written by the unmodified official client 0.9.0 and 0.9.1.dev5.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    NEED_DATA,
    V0_11,
    V0_12_2,
    VSR_HEAD_BYTES,
    CommandCode,
    ConnectionClosed,
    CreateStream,
    ErrorReceived,
    ForeignRequestReceived,
    FrameTooLarge,
    GetStreams,
    PasswordCredentials,
    Ping,
    RequestReceived,
    RequestRefused,
    ServerConnection,
    StatusCode,
    UpdateStream,
    VsrClientConnection,
    begins_vsr_request,
    is_vsr_answer,
    is_vsr_refusal,
    summarise_vsr_reply,
    summarise_vsr_request,
    vsr_error_reply,
    vsr_probe,
)
from iggy_protocol.vsr.heads import REQUEST_HEAD, offset_of
from iggy_protocol.vsr.operations import UPDATE_RESOURCE_CODE
from iggy_protocol.vsr.recognition import vsr_refusal
from tests.protocol.frame_oracle import FEEDERS, request_frame
from tests.protocol.vsr_frames import bound_client, expect, new_session

RECORDINGS = sorted((Path(__file__).parents[1] / "golden" / "vsr").glob("*.jsonl"))
CLIENT = bytes(range(1, 17))
PROBE = vsr_probe(CLIENT)


def recorded(direction):
    """Return the recorded frames of clients or servers."""
    lines = [json.loads(line) for path in RECORDINGS for line in path.read_text().splitlines()]
    return [bytes.fromhex(line["frame"]) for line in lines if line.get("dir") == direction]


def first_event(data):
    server = ServerConnection()
    server.receive_data(data)
    return server.next_event()


@pytest.mark.parametrize("request_bytes", recorded(">"))
def test_request_when_an_official_client_wrote_it_then_is_refused_in_its_own_way(request_bytes):
    event = first_event(request_bytes)

    assert isinstance(event, ForeignRequestReceived)
    refusal = event.refusal
    assert len(refusal) == struct.unpack_from("<I", refusal, 48)[0] == VSR_HEAD_BYTES
    assert refusal[60] == 13
    assert refusal[128:144] == request_bytes[128:144]
    assert struct.unpack_from("<II", refusal, 144) == (0x2800, 0x2800)
    assert refusal[255] == 14
    assert is_vsr_refusal(refusal)
    assert not is_vsr_answer(refusal), "it would tell clients that this server speaks 0.9"


def test_refusal_when_compared_with_a_recorded_one_then_differs_in_client_and_versions_only():
    evictions = [frame for frame in recorded("<") if frame[60] == 13]
    assert evictions
    event = first_event(PROBE)
    assert isinstance(event, ForeignRequestReceived)
    for eviction in evictions:
        assert len(eviction) == len(event.refusal)
        assert eviction[:128] == event.refusal[:128]


@pytest.mark.parametrize("feed", FEEDERS.values(), ids=FEEDERS)
@pytest.mark.parametrize("step", [1, 100, 10_000])
def test_requests_when_several_come_in_pieces_then_each_is_refused_and_none_is_outstanding(
    feed, step
):
    server, events = ServerConnection(), []
    data = b"".join(recorded(">")[:3])
    for at in range(0, len(data), step):
        feed(server, data[at : at + step])
        while (event := server.next_event()) is not NEED_DATA:
            events.append(event)

    assert len(events) == 3
    assert all(isinstance(event, ForeignRequestReceived) for event in events)
    assert server.outstanding == 0
    assert server.statistics().buffered_bytes == 0


def test_body_when_it_comes_later_then_is_dropped():
    server = ServerConnection()
    request = bytearray(PROBE)
    struct.pack_into("<I", request, 48, VSR_HEAD_BYTES + 100)
    server.receive_data(bytes(request))
    assert isinstance(server.next_event(), ForeignRequestReceived)
    assert server.next_event() is NEED_DATA
    server.receive_data(bytes(100) + PROBE)
    assert isinstance(server.next_event(), ForeignRequestReceived)


def test_head_when_incomplete_then_is_waited_for_and_refused_as_classic_at_the_end():
    server = ServerConnection()
    server.receive_data(PROBE[:8])
    assert server.next_event() is NEED_DATA
    server.receive_data(PROBE[8:100])
    assert server.next_event() is NEED_DATA
    server.receive_eof()
    for _ in range(6):
        assert isinstance(server.next_event(), RequestRefused)
    assert server.next_event() == ConnectionClosed(mid_frame=True)


def test_zeros_when_something_else_follows_then_are_refused_as_classic_frames():
    server = ServerConnection()
    server.receive_data(bytes(8) + request_frame(1))
    assert isinstance(server.next_event(), RequestRefused)
    assert server.next_event() == RequestReceived(1, memoryview(b""))


@pytest.mark.parametrize(
    ("at", "value"), [(49, 0), (60, 6), (52, 1), (61, 1), (127, 9), (slice(128, 144), bytes(16))]
)
def test_head_when_one_field_is_wrong_then_is_no_request_of_that_dialect(at, value):
    head = bytearray(PROBE)
    head[at] = value
    assert isinstance(first_event(bytes(head)), RequestRefused)


def test_client_when_it_has_spoken_classic_before_then_is_never_taken_for_another():
    server = ServerConnection()
    server.receive_data(request_frame(1) + PROBE)
    assert isinstance(server.next_event(), RequestReceived)
    assert isinstance(server.next_event(), RequestRefused)


@given(st.integers(1, 2**32 - 1), st.binary(max_size=300))
def test_classic_frame_when_it_has_a_code_or_a_length_then_is_never_taken_for_another(number, rest):
    for head in (struct.pack("<II", 0, number), struct.pack("<II", number, 0)):
        assert not begins_vsr_request(head)
        try:
            event = first_event(head + rest)
        except FrameTooLarge:
            continue
        assert not isinstance(event, ForeignRequestReceived)


def test_probe_when_held_against_recorded_pings_then_looks_like_one():
    pings = [frame for frame in recorded(">") if frame[176] == 2 and frame[196] == 1]
    assert pings
    assert vsr_probe(pings[0][128:144]) == pings[0]


@pytest.mark.parametrize("answer", recorded("<"))
def test_answer_when_a_server_of_that_dialect_wrote_it_then_is_recognised(answer):
    assert is_vsr_answer(answer)


@pytest.mark.parametrize("answer", [b"", bytes(8), bytes(VSR_HEAD_BYTES), PROBE, PROBE[:255]])
def test_answer_when_it_is_none_of_that_dialect_then_is_not_recognised(answer):
    assert not is_vsr_answer(answer)
    assert not is_vsr_refusal(answer)


# What somebody in between can tell.


@pytest.mark.parametrize("direction", [">", "<"])
def test_summary_when_an_official_peer_wrote_the_frame_then_tells_its_size(direction):
    for frame in recorded(direction):
        summary = (summarise_vsr_request if direction == ">" else summarise_vsr_reply)(frame)

        assert summary.payload_bytes == len(frame) - VSR_HEAD_BYTES


COMMANDS = [
    (Ping(), CommandCode.PING),
    (GetStreams(), CommandCode.GET_STREAMS),
    (CreateStream("shop"), CommandCode.CREATE_STREAM),
    (UpdateStream("shop", "store"), UPDATE_RESOURCE_CODE),
]


@pytest.mark.parametrize("dialect", [V0_11, V0_12_2], ids=str)
def test_refusal_when_made_from_a_head_then_the_client_takes_it_for_the_answer(dialect):
    beginner = VsrClientConnection(new_session(dialect))
    login = beginner.session.register(PasswordCredentials("iggy", "secret"))
    answers = []
    for command, code in [(login, CommandCode.REGISTER), *COMMANDS]:
        client = beginner if command is login else bound_client(dialect)
        request = client.prepare(command)
        head = b"".join(client.send_prepared(request))[:VSR_HEAD_BYTES]
        summary = summarise_vsr_request(head)
        is_update = dialect is V0_11 and isinstance(command, UpdateStream)
        assert summary.code == (CommandCode.UPDATE_STREAM if is_update else code)
        client.receive_data(vsr_error_reply(head, StatusCode.INVALID_FORMAT))
        answers.append(expect(client.next_event(), ErrorReceived).status)
        reply = vsr_error_reply(head, StatusCode.INVALID_FORMAT)
        assert summarise_vsr_reply(reply).number == summary.number

    assert set(answers) == {StatusCode.INVALID_FORMAT}


def test_summary_when_it_is_an_eviction_then_answers_no_request():
    refusal = vsr_refusal(PROBE)

    assert summarise_vsr_reply(refusal).number is None


def test_summary_when_the_operation_is_not_known_then_there_is_no_code():
    head = bytearray(PROBE)
    head[offset_of(REQUEST_HEAD, "operation")] = 99

    assert summarise_vsr_request(bytes(head)).code == 0
