"""Frames in and out without a socket, judged by the library that is not on the fast way."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from iggy_ref_server.net import websocket_frames
from iggy_ref_server.net.websocket_frames import FrameReader, ReplyFramer
from tests.server.net.ws_peer import ws_frame

# Mostly frames that may come, because the first one that may not is the end.
GOOD = st.builds(
    ws_frame,
    st.binary(max_size=40) | st.integers(120, 140).map(bytes) | st.just(bytes(70_000)),
    st.sampled_from([Opcode.BINARY, Opcode.TEXT, Opcode.CONT]),
    fin=st.booleans(),
    mask=st.binary(min_size=4, max_size=4),
)
ODD = st.builds(
    ws_frame,
    st.binary(max_size=130),
    st.sampled_from([*Opcode, 3, 11]),
    fin=st.booleans(),
    mask=st.sampled_from([None, b"abcd"]),
)
PINGS = st.builds(ws_frame, st.binary(max_size=125), st.just(Opcode.PING))
FRAMES = GOOD | GOOD | PINGS | ODD
FRAME_MAX, MESSAGE_MAX = 80_000, 200_000


def open_protocol() -> ServerProtocol:
    """Make the library's end of a connection whose handshake is done."""
    return ServerProtocol(state=State.OPEN, max_size=(MESSAGE_MAX, FRAME_MAX))


def reader(**options) -> FrameReader:
    sizes = {"frame_bytes_max": FRAME_MAX, "message_bytes_max": MESSAGE_MAX, **options}
    return FrameReader(ServerProtocol(state=State.OPEN, max_size=None), **sizes)


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges) if start < end]


class Oracle:
    """What the library alone makes of frames."""

    def __init__(self, data: bytes) -> None:
        protocol = open_protocol()
        protocol.receive_data(data)
        self.payload = b""
        is_text = False
        for frame in protocol.events_received():
            assert isinstance(frame, Frame)
            if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
                is_text = frame.opcode is Opcode.TEXT
            if frame.opcode in (Opcode.BINARY, Opcode.CONT) and not is_text:
                self.payload += frame.data
        self.is_ended = protocol.state is not State.OPEN
        self.code = protocol.close_sent.code if protocol.close_sent else None


@example(frames=[ws_frame(b"a", Opcode.TEXT), ws_frame(b"b")], cuts=[])
@example(frames=[ws_frame(b"a" * 9, fin=False), ws_frame(b"b", Opcode.CONT)], cuts=[7, 8, 9, 11])
@given(frames=st.lists(FRAMES, max_size=6), cuts=st.lists(st.integers(0, 10**6), max_size=8))
def test_frames_when_cut_anywhere_then_are_judged_as_the_library_does(frames, cuts):
    data = b"".join(frames)
    expected, ours = Oracle(data), reader()

    payload = b"".join(b"".join(ours.feed(piece)) for piece in pieces_of(data, cuts))

    assert ours.is_ended == expected.is_ended
    if expected.is_ended:
        # The library gives no payload of a frame that it has not seen to its end.
        assert payload.startswith(expected.payload)
        assert expected.code == int.from_bytes(ours.close_frame[2:4], "big") or (
            expected.code == CloseCode.NO_STATUS_RCVD and not ours.close_frame[2:]
        )
    else:
        assert payload == expected.payload


@given(payload=st.binary(min_size=1, max_size=300), cuts=st.lists(st.integers(0, 400), max_size=5))
def test_unmasked_frames_when_accepted_then_are_read_like_masked_ones(payload, cuts):
    data = ws_frame(b"hi", Opcode.PING, mask=None) + ws_frame(payload, mask=None)
    data += ws_frame(payload) + ws_frame(b"", Opcode.CLOSE, mask=None)
    ours = reader(accepts_unmasked=True)

    received = b"".join(b"".join(ours.feed(piece)) for piece in pieces_of(data, cuts))

    assert received == payload * 2
    assert ours.pong == b"\x8a\x02hi"
    assert ours.is_ended


def test_pings_when_many_come_then_only_the_last_answer_is_kept():
    ours = reader()

    ours.feed(b"".join(ws_frame(bytes([number]), Opcode.PING) for number in range(200)))

    assert ours.pong == b"\x8a\x01\xc7"


@pytest.mark.parametrize(
    "data",
    [
        ws_frame(bytes(FRAME_MAX + 1))[:14],
        b"".join(
            ws_frame(bytes(75_000), op, fin=False) for op in (Opcode.BINARY, *[Opcode.CONT] * 2)
        ),
        b"\x82\xff" + b"\xff" * 8 + b"abcd",
    ],
    ids=["frame", "message", "absurd"],
)
def test_message_when_too_large_then_is_refused_before_it_has_come(data):
    ours = reader()

    ours.feed(data)

    assert ours.is_ended
    assert int.from_bytes(ours.close_frame[2:4], "big") == CloseCode.MESSAGE_TOO_BIG


def reply(payload: bytes) -> bytes:
    return bytes(4) + len(payload).to_bytes(4, "little") + payload


REPLIES = st.lists(
    st.binary(max_size=30).map(reply) | st.just(bytes(8)) | st.just(reply(bytes(70_000)))
    | st.just(b"\x08" + bytes(7)),
    max_size=8,
)  # fmt: skip


@given(replies=REPLIES, cuts=st.lists(st.integers(0, 10**6), max_size=8))
def test_replies_when_written_in_any_pieces_then_each_is_one_frame(replies, cuts):
    framer = ReplyFramer()
    written = [part for piece in pieces_of(b"".join(replies), cuts) for part in framer.frame(piece)]

    assert written_frames(b"".join(written)) == [(Opcode.BINARY, True, one) for one in replies]
    assert framer.is_at_boundary


def test_reply_when_longer_than_clients_take_then_is_one_message_of_several_frames(monkeypatch):
    monkeypatch.setattr(websocket_frames, "FRAME_BYTES_MAX", 100)
    long = reply(bytes(range(242)))

    frames = written_frames(b"".join(ReplyFramer().frame(long)))

    assert [(opcode, fin, len(data)) for opcode, fin, data in frames] == [
        (Opcode.BINARY, False, 100),
        (Opcode.CONT, False, 100),
        (Opcode.CONT, True, 50),
    ]
    assert b"".join(data for _, _, data in frames) == long


def test_framer_when_within_a_reply_then_says_that_nothing_may_come_between():
    framer = ReplyFramer()
    framer.frame(reply(bytes(100))[:50])

    assert not framer.is_at_boundary

    framer.frame(bytes(58))
    assert framer.is_at_boundary


def written_frames(data: bytes) -> list[tuple[Opcode, bool, bytes]]:
    """Read frames of a server with the library."""
    protocol = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN, max_size=None)
    if data:
        protocol.receive_data(data)
    events = [event for event in protocol.events_received() if isinstance(event, Frame)]
    assert protocol.parser_exc is None
    return [(frame.opcode, frame.fin, bytes(frame.data)) for frame in events]
