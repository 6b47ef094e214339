"""Requests and replies as frames, read by the library."""

from __future__ import annotations

import secrets
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Opcode

from iggy_protocol import VSR_HEAD_BYTES, vsr_probe
from iggy_protocol.vsr.heads import ReplyHead
from iggy_protocol.vsr.recognition import vsr_refusal
from iggy_protocol.websocket import ReplyFramer, RequestFramer, encoder
from tests.protocol.websocket.frames import CUTS, frames_of, open_library, pieces_of


def reply(payload: bytes) -> bytes:
    return bytes(4) + len(payload).to_bytes(4, "little") + payload


REPLIES = st.lists(
    st.binary(max_size=30).map(reply) | st.just(bytes(8)) | st.just(reply(bytes(70_000)))
    | st.just(b"\x08" + bytes(7)),
    max_size=8,
)  # fmt: skip


def replies_in(data: bytes) -> list[tuple[Opcode, bool, bytes]]:
    """Read frames of a server with the library."""
    client, _ = open_library()
    return [(frame.opcode, frame.fin, bytes(frame.data)) for frame in frames_of(client, data)]


def requests_in(data: bytes) -> list[bytes]:
    """Read messages of a client, each in one frame, with the library."""
    _, server = open_library()
    frames = frames_of(server, data)
    assert all(frame.opcode is Opcode.BINARY and frame.fin for frame in frames)
    return [bytes(frame.data) for frame in frames]


# Replies


@given(replies=REPLIES, cuts=CUTS)
def test_replies_when_written_in_any_pieces_then_each_is_one_frame(replies, cuts):
    framer = ReplyFramer()
    written = [part for piece in pieces_of(b"".join(replies), cuts) for part in framer.frame(piece)]

    assert replies_in(b"".join(written)) == [(Opcode.BINARY, True, one) for one in replies]
    assert framer.is_at_boundary


def test_reply_when_longer_than_clients_take_then_is_one_message_of_several_frames(monkeypatch):
    monkeypatch.setattr(encoder, "FRAME_BYTES_MAX", 100)
    long = reply(bytes(range(242)))

    frames = replies_in(b"".join(ReplyFramer().frame(long)))

    assert [(opcode, fin, len(data)) for opcode, fin, data in frames] == [
        (Opcode.BINARY, False, 100),
        (Opcode.CONT, False, 100),
        (Opcode.CONT, True, 50),
    ]
    assert b"".join(data for _, _, data in frames) == long


@given(
    payloads=st.lists(st.lists(st.tuples(st.booleans(), st.binary(max_size=300))), max_size=4),
    frame_bytes_max=st.sampled_from([10, 100, 200, 1 << 20]),
)
def test_bytes_of_files_when_skipped_then_the_frames_are_those_of_the_whole(
    payloads, frame_bytes_max
):
    replies = [reply(b"".join(part for _, part in parts)) for parts in payloads]
    framer, written = ReplyFramer(), b""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "FRAME_BYTES_MAX", frame_bytes_max)
        expected = b"".join(ReplyFramer().frame(b"".join(replies)))
        for parts, whole in zip(payloads, replies, strict=True):
            written += b"".join(framer.frame(whole[:8]))
            for is_in_file, part in parts:
                if not is_in_file:
                    written += b"".join(framer.frame(part))
                    continue
                for head, size in framer.skip(len(part)):
                    written, part = written + head + part[:size], part[size:]

    assert written == expected
    assert framer.is_at_boundary


def test_bytes_of_files_when_beyond_the_reply_then_are_our_mistake():
    framer = ReplyFramer()
    framer.frame(reply(bytes(100))[:8])

    with pytest.raises(AssertionError, match="head of a reply"):
        framer.skip(101)


def test_framer_when_within_a_reply_then_says_that_nothing_may_come_between():
    framer = ReplyFramer()
    framer.frame(reply(bytes(100))[:50])

    assert not framer.is_at_boundary

    framer.frame(bytes(58))
    assert framer.is_at_boundary


def test_refusals_of_another_protocol_when_written_together_then_each_is_one_message():
    refusals = [vsr_refusal(vsr_probe(bytes([number] * 16))) for number in (1, 2)]

    written = b"".join(ReplyFramer().frame(b"".join(refusals)))

    assert replies_in(written) == [(Opcode.BINARY, True, refusal) for refusal in refusals]


# Replies from 0.9 on


def vsr_reply(payload: bytes) -> bytes:
    return ReplyHead(size=VSR_HEAD_BYTES + len(payload)).encode() + payload


VSR_REPLIES = st.lists(
    st.binary(max_size=30).map(vsr_reply) | st.just(vsr_reply(bytes(70_000))), max_size=6
)


@given(replies=VSR_REPLIES, cuts=CUTS)
def test_vsr_replies_when_written_in_any_pieces_then_each_is_one_frame(replies, cuts):
    framer = ReplyFramer(is_vsr=True)
    written = [part for piece in pieces_of(b"".join(replies), cuts) for part in framer.frame(piece)]

    assert replies_in(b"".join(written)) == [(Opcode.BINARY, True, one) for one in replies]
    assert framer.is_at_boundary


def test_vsr_reply_when_longer_than_clients_take_then_is_one_message_of_several_frames(monkeypatch):
    monkeypatch.setattr(encoder, "FRAME_BYTES_MAX", 100)
    long = vsr_reply(bytes(range(44)))
    framer = ReplyFramer(is_vsr=True)

    written, rest = framer.frame(long[:260]), long[260:]
    for head, size in framer.skip(len(rest)):
        written += [head, rest[:size]]
        rest = rest[size:]
    frames = replies_in(b"".join(written))

    assert [(opcode, fin, len(data)) for opcode, fin, data in frames] == [
        (Opcode.BINARY, False, 100),
        (Opcode.CONT, False, 100),
        (Opcode.CONT, True, 100),
    ]
    assert b"".join(data for _, _, data in frames) == long


# Requests


@given(st.lists(st.binary(max_size=200) | st.just(bytes(40_001)), min_size=1, max_size=4))
def test_request_when_framed_then_the_library_reads_it_as_one_message(buffers):
    framer = RequestFramer(secrets.token_bytes)

    assert requests_in(b"".join(framer.frame(buffers))) == [b"".join(buffers)]


def test_request_when_longer_than_servers_take_then_is_several_messages(monkeypatch):
    monkeypatch.setattr(encoder, "FRAME_BYTES_MAX", 20_000)
    monkeypatch.setattr(encoder, "SCRATCH_BYTES_MAX", 10_000)
    payload = bytes(range(256)) * 200

    messages = requests_in(b"".join(RequestFramer(secrets.token_bytes).frame([payload])))

    assert [len(message) for message in messages] == [20_000, 20_000, 11_200]
    assert b"".join(messages) == payload


def test_requests_when_large_and_one_after_the_other_then_share_a_buffer_and_stay_whole():
    framer = RequestFramer(secrets.token_bytes)
    payloads = [bytes([number]) * size for number, size in enumerate((900_000, 20_000, 1_000_000))]

    # Each is used up before the next one is framed.
    written = [b"".join(framer.frame([payload])) for payload in payloads]
    begun = [next(iter(framer.frame([payload]))) for payload in payloads]

    assert requests_in(b"".join(written)) == payloads
    assert len({id(view.obj) for view in begun if isinstance(view, memoryview)}) == 1


def test_request_when_large_then_its_first_piece_is_masked_alone():
    numbers = RequestFramer(secrets.token_bytes).frame([bytes(1_000_000)])

    sizes = [len(piece) for piece in numbers]

    assert len(sizes) == 4
    assert sum(sizes) == 1_000_014


@pytest.mark.parametrize("size_bytes", [0, 10, 200, 20_000])
def test_masks_when_requests_follow_then_each_has_the_next_key_of_the_source(size_bytes):
    numbers = count(1)
    framer = RequestFramer(lambda size: next(numbers).to_bytes(size, "big"))

    written = [b"".join(framer.frame([bytes(size_bytes)])) for _ in range(3)]

    # A payload of zeros shows the key of its mask.
    keys = [one[-size_bytes - 4 :][:4] for one in written]
    assert keys == [bytes([0, 0, 0, number]) for number in (1, 2, 3)]
    assert {one[-size_bytes:][:4] for one in written} == set(keys) or not size_bytes
