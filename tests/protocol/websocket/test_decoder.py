"""Received frames of both ends, split anywhere, good and bad; the library judges them too."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import OPEN

from tests.protocol.websocket.frames import (
    CUTS,
    ENDS,
    FRAME_MAX,
    ClientEnd,
    End,
    ServerEnd,
    pieces_of,
    ws_frame,
)


@dataclass(frozen=True)
class Written:
    """A frame before it is known which end receives it."""

    payload: bytes
    opcode: int = Opcode.BINARY
    fin: bool = True
    mask: bytes = b"abcd"
    is_mask_wrong: bool = False

    def to(self, end: End) -> bytes:
        is_masked = isinstance(end, ServerEnd) != self.is_mask_wrong
        mask = self.mask if is_masked else None
        return ws_frame(self.payload, self.opcode, fin=self.fin, mask=mask)


MASKS = st.binary(min_size=4, max_size=4)
# Mostly frames that may come, because the first one that may not is the end.
GOOD = st.builds(
    Written,
    st.binary(max_size=40) | st.integers(120, 140).map(bytes) | st.just(bytes(70_000)),
    st.sampled_from([Opcode.BINARY, Opcode.TEXT, Opcode.CONT]),
    st.booleans(),
    MASKS,
)
ODD = st.builds(
    Written,
    st.binary(max_size=130),
    st.sampled_from([*Opcode, 3, 11]),
    st.booleans(),
    MASKS,
    st.booleans(),
)
PINGS = st.builds(Written, st.binary(max_size=125), st.just(Opcode.PING))
FRAMES = GOOD | GOOD | PINGS | ODD


class Verdict:
    """What the library alone makes of frames."""

    def __init__(self, end: End, data: bytes) -> None:
        library = end.library
        if data:
            library.receive_data(data)
        self.payload = b""
        is_dropped = False
        for frame in library.events_received():
            assert isinstance(frame, Frame)
            if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
                is_dropped = frame.opcode is Opcode.TEXT and isinstance(end, ServerEnd)
            if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT) and not is_dropped:
                self.payload += frame.data
        self.is_ended = library.state is not OPEN
        self.is_violation = library.parser_exc is not None
        self.code = library.close_sent.code if library.close_sent else None
        if self.code == CloseCode.MESSAGE_TOO_BIG and isinstance(end, ClientEnd):
            self.code = CloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize("make_end", ENDS)
@example(frames=[Written(b"a", Opcode.TEXT), Written(b"b")], cuts=[])
@example(frames=[Written(b"a" * 9, fin=False), Written(b"b", Opcode.CONT)], cuts=[7, 8, 9, 11])
@given(frames=st.lists(FRAMES, max_size=6), cuts=CUTS)
def test_frames_when_cut_anywhere_then_are_judged_as_the_library_does(make_end, frames, cuts):
    end = make_end()
    data = b"".join(frame.to(end) for frame in frames)
    expected = Verdict(end, data)

    payload = end.decode(pieces_of(data, cuts))

    assert end.decoder.is_ended == expected.is_ended
    assert bool(end.decoder.failure) == expected.is_violation
    if expected.is_ended:
        # The library gives no payload of a frame that it has not seen to its end.
        assert payload.startswith(expected.payload)
        assert end.sent_close_code() == expected.code
    else:
        assert payload == expected.payload
        assert not end.decoder.close_frame


MESSAGES = st.lists(
    st.tuples(st.binary(max_size=300) | st.just(bytes(70_000)), st.integers(1, 4)), max_size=5
)


def fragments(end: End, payload: bytes, count: int) -> bytes:
    """Write a message in several frames, with a ping between any two of them."""
    step = len(payload) // count + 1
    pieces = [payload[start : start + step] for start in range(0, max(1, len(payload)), step)]
    written = b""
    for index, piece in enumerate(pieces):
        opcode = Opcode.CONT if index else Opcode.BINARY
        written += end.frame(piece, opcode, fin=index == len(pieces) - 1)
        written += end.frame(b"p", Opcode.PING)
    return written


@pytest.mark.parametrize("make_end", ENDS)
@given(messages=MESSAGES, cuts=CUTS)
def test_fragments_when_cut_anywhere_then_their_payloads_are_what_is_left(make_end, messages, cuts):
    end = make_end()
    data = b"".join(fragments(end, payload, count) for payload, count in messages)

    assert end.decode(pieces_of(data, cuts)) == b"".join(payload for payload, _ in messages)
    assert not end.decoder.is_ended
    assert not end.decoder.is_mid_frame


@given(payload=st.binary(min_size=1, max_size=300), cuts=CUTS)
def test_unmasked_frames_when_accepted_then_are_read_like_masked_ones(payload, cuts):
    data = ws_frame(b"hi", Opcode.PING, mask=None) + ws_frame(payload, mask=None)
    data += ws_frame(payload) + ws_frame(b"", Opcode.CLOSE, mask=None)
    end = ServerEnd(accepts_unmasked=True)

    assert end.decode(pieces_of(data, cuts)) == payload * 2
    assert end.decoder.pong == b"\x8a\x02hi"
    assert end.decoder.is_ended
    assert not end.decoder.failure


@pytest.mark.parametrize("make_end", ENDS)
def test_pings_when_many_come_then_only_the_last_answer_is_kept(make_end):
    end = make_end()

    end.decode([b"".join(end.frame(bytes([number]), Opcode.PING) for number in range(200))])

    (pong,) = pongs_of(end, end.decoder.pong)
    assert bytes(pong.data) == b"\xc7"


def pongs_of(end: End, data: bytes) -> list[Frame]:
    """Have the peer read pongs."""
    end.peer.receive_data(data)
    frames = [event for event in end.peer.events_received() if isinstance(event, Frame)]
    assert {frame.opcode for frame in frames} == {Opcode.PONG}
    return frames


@pytest.mark.parametrize(
    "frames",
    [
        [Written(bytes(FRAME_MAX + 1))],
        [Written(bytes(75_000), op, fin=False) for op in (Opcode.BINARY, *[Opcode.CONT] * 2)],
    ],
    ids=["frame", "message"],
)
@pytest.mark.parametrize("make_end", ENDS)
def test_message_when_too_large_then_is_refused_before_it_has_come(make_end, frames):
    end = make_end()
    *before, last = (frame.to(end) for frame in frames)

    end.decode([b"".join(before) + last[:14]])

    assert end.decoder.is_ended
    assert end.decoder.left == 0
    assert end.sent_close_code() == TOO_LARGE[make_end]


TOO_LARGE = {ServerEnd: CloseCode.MESSAGE_TOO_BIG, ClientEnd: CloseCode.PROTOCOL_ERROR}


@pytest.mark.parametrize("make_end", ENDS)
def test_length_when_absurd_then_is_refused(make_end):
    end = make_end()
    second = b"\x7f" if end.mask is None else b"\xff"

    end.decode([b"\x82" + second + b"\xff" * 8 + (end.mask or b"")])

    assert end.decoder.is_ended
    assert end.sent_close_code() == TOO_LARGE[make_end]


@pytest.mark.parametrize("make_end", ENDS)
def test_message_when_as_large_as_allowed_then_is_read(make_end):
    end = make_end()
    payload = bytes(FRAME_MAX)
    data = end.frame(payload, fin=False) + end.frame(payload, Opcode.CONT, fin=False)
    data += end.frame(payload[:40_000], Opcode.CONT)

    assert len(end.decode([data, end.frame(payload)])) == 280_000
    assert not end.decoder.is_ended


CONT, PING, CLOSE = Opcode.CONT, Opcode.PING, Opcode.CLOSE
VIOLATIONS = {
    "reserved bit": [Written(b"x", 0x42)],
    "reserved bit of a control frame": [Written(b"x", 0x49)],
    "reserved bit within a message": [Written(b"x", fin=False), Written(b"y", 0x20)],
    "reserved opcode": [Written(b"x", 3)],
    "reserved opcode of a control frame": [Written(b"x", 11)],
    "continuation of nothing": [Written(b"x", CONT)],
    "message within a message": [Written(b"x", fin=False), Written(b"y")],
    "text within a message": [Written(b"x", fin=False), Written(b"y", Opcode.TEXT)],
    "ping in fragments": [Written(b"x", PING, fin=False)],
    "ping with a length of two bytes": [Written(bytes(126), PING)],
    "ping with a length of eight bytes": [Written(bytes(1 << 16), PING)],
    "close of one byte": [Written(b"x", CLOSE)],
    "close with a code that is never sent": [Written(b"\x03\xed", CLOSE)],
    "close within a message": [Written(b"x", fin=False), Written(b"\x03\xe8", CLOSE)],
    "mask of a data frame": [Written(b"xyz", is_mask_wrong=True)],
    "mask of a control frame": [Written(b"x", PING, is_mask_wrong=True)],
}


@pytest.mark.parametrize("frames", VIOLATIONS.values(), ids=VIOLATIONS)
@pytest.mark.parametrize("make_end", ENDS)
def test_violation_when_cut_anywhere_then_ends_the_connection(make_end, frames):
    payload = b"".join(frame.payload for frame in frames[:-1])
    size = len(b"".join(frame.to(make_end()) for frame in frames))
    for cut in range(min(size, 40)):
        end = make_end()
        data = b"".join(frame.to(end) for frame in frames)
        received = end.decode([end.frame(b"good") + data[:cut], data[cut:], end.frame(b"late")])

        assert received == b"good" + payload
        assert end.decoder.is_ended
        assert end.decoder.failure
        assert end.sent_close_code() == CloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    "frame",
    [
        Written(bytes(126), PING),
        Written(bytes(1 << 16), CLOSE),
        Written(b"xyz", is_mask_wrong=True),
        Written(b"xyz", PING, is_mask_wrong=True),
    ],
    ids=["long ping", "long close", "mask of a data frame", "mask of a ping"],
)
@pytest.mark.parametrize("make_end", ENDS)
def test_violation_when_the_first_two_bytes_show_it_then_no_more_is_waited_for(make_end, frame):
    end = make_end()

    end.decode([frame.to(end)[:2]])

    assert end.decoder.is_ended
    assert end.decoder.failure in {"control frame too long", *WRONG_MASKS}
    assert not end.decoder.is_mid_frame


WRONG_MASKS = {"incorrect masking", "a frame of the server is masked"}


@pytest.mark.parametrize("make_end", ENDS)
def test_close_when_its_reason_is_no_text_then_ends_the_connection(make_end):
    end = make_end()

    end.decode([end.frame(b"\x03\xe8\xff", CLOSE)])

    assert end.decoder.failure
    assert end.sent_close_code() == CloseCode.INVALID_DATA


def test_reader_when_in_a_frame_then_says_so():
    end = ServerEnd()
    data = ws_frame(b"payload")

    states = []
    for piece in (data[:1], data[1:6], data[6:8], data[8:]):
        end.decode([piece])
        states.append((end.decoder.is_mid_frame, end.decoder.left))

    assert states == [(True, 0), (True, 7), (True, 5), (False, 0)]


def test_control_replies_when_taken_then_come_once_and_the_close_frame_first():
    end = ClientEnd()
    assert end.reader.take_control_reply() == b""

    end.decode([end.frame(b"1", PING)])
    (pong,) = pongs_of(end, end.reader.take_control_reply())
    assert bytes(pong.data) == b"1"
    assert end.reader.take_control_reply() == b""

    end.decode([end.frame(b"2", PING) + end.frame(b"", CLOSE)])
    end.peer.receive_data(end.reader.take_control_reply())
    assert end.peer.close_rcvd is not None
    assert end.reader.take_control_reply() == b""
