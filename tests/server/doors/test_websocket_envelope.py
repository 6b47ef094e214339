"""Replies as frames on their way out, without a socket: buffers and pieces of files alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from iggy_protocol import Limits
from iggy_ref_server.data_plane.sockets import SocketLimits
from iggy_ref_server.listeners import websocket_frames
from iggy_ref_server.listeners.websocket_envelope import FramedOutbox, WebSocketEnvelope
from iggy_ref_server.listeners.websocket_frames import FrameReader, ReplyFramer
from iggy_ref_server.storage.fault_plan import FaultPlan
from iggy_ref_server.storage.interface import FileSlice
from iggy_ref_server.storage.memory import MemoryStorage
from tests.server.doors.ws_peer import ws_frame

if TYPE_CHECKING:
    from iggy_ref_server.storage.interface import File

STORED = bytes(range(256)) * 400
LIMITS = SocketLimits(connection=Limits(), outbox_bytes_max=1 << 20, stalled_s=30.0, idle_s=0.0)


async def _store() -> File:
    file = await MemoryStorage().open("log", create=True)
    await file.write([STORED], 0)
    return file


FILE = trio.run(_store)

# A part of a payload: whether it lies in the file, where it begins there, and its size.
PARTS = st.tuples(
    st.booleans(), st.integers(0, 300), st.integers(0, 250) | st.sampled_from([1100, 70_000])
)
REPLIES = st.lists(st.lists(PARTS, max_size=4), max_size=5)


def reply_of(parts: list[tuple[bool, int, int]]) -> list[bytes | FileSlice]:
    """Make a reply of parts as the data plane does: a head, then what follows it."""
    size = sum(size for _, _, size in parts)
    payload = [
        FileSlice(FILE, position, size) if is_stored else STORED[position : position + size]
        for is_stored, position, size in parts
    ]
    return [bytes(4) + size.to_bytes(4, "little"), *payload]


def content_of(item: bytes | FileSlice) -> bytes:
    if isinstance(item, FileSlice):
        return FILE.read_now(item.size, item.position) or b""
    return item


def drain(outbox: FramedOutbox, step: int) -> bytes:
    """Send everything as the socket room does, a few bytes at a time."""
    sent = b""
    while outbox:
        piece = outbox.head_slice()
        waiting = b"".join(outbox.head_buffers()) if piece is None else content_of(piece)
        sent += waiting[:step]
        outbox.sent(len(waiting[:step]))
    return sent


@given(
    replies=REPLIES,
    step=st.sampled_from([1, 7, 300, 1 << 20]),
    frame_bytes_max=st.sampled_from([10, 100, 200, 1 << 20]),
    loaded_bytes_max=st.sampled_from([0, 100, 1 << 20]),
)
def test_replies_when_parts_are_in_files_then_the_frames_are_those_of_the_framer(
    replies, step, frame_bytes_max, loaded_bytes_max
):
    items = [item for parts in replies for item in reply_of(parts)]
    outbox = FramedOutbox()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(websocket_frames, "FRAME_BYTES_MAX", frame_bytes_max)
        expected = b"".join(ReplyFramer().frame(b"".join(map(content_of, items))))
        outbox.extend(items)

    outbox.load_small(loaded_bytes_max)
    assert outbox.size_bytes == len(expected)
    assert drain(outbox, max(step, len(expected) // 1000)) == expected
    assert outbox.size_bytes == 0


def test_file_when_longer_than_a_frame_then_its_pieces_stay_in_the_file(monkeypatch):
    monkeypatch.setattr(websocket_frames, "FRAME_BYTES_MAX", 20_000)
    outbox = FramedOutbox()

    outbox.extend(reply_of([(True, 5, 50_000)]))

    slices = []
    while outbox:
        piece = outbox.head_slice()
        slices += [] if piece is None else [(piece.position, piece.size)]
        outbox.sent(piece.size if piece else sum(map(len, outbox.head_buffers())))
    assert slices == [(5, 19_992), (19_997, 20_000), (39_997, 10_008)]


def test_file_when_its_piece_is_short_then_it_can_leave_with_the_heads():
    outbox = FramedOutbox()
    outbox.extend(reply_of([(True, 5, 1000)]))

    outbox.load_small(1000)

    assert b"".join(outbox.head_buffers())[-1000:] == STORED[5:1005]
    assert outbox.size_bytes == 4 + 8 + 1000


@pytest.mark.trio
async def test_file_when_its_piece_cannot_be_read_at_once_then_it_stays_in_the_file():
    plan = FaultPlan()
    file = await MemoryStorage(plan).open("log", create=True)
    await file.write([STORED], 0)
    beyond, cold = FileSlice(file, len(STORED) - 3, 10), FileSlice(file, 0, 10)
    for piece in (beyond, cold):
        outbox = FramedOutbox()
        outbox.put(bytes(4) + (10).to_bytes(4, "little"))
        outbox.put(piece)
        if piece is cold:
            plan.chill()

        outbox.load_small(1000)

        outbox.sent(10)
        assert outbox.head_slice() == piece


def test_reply_when_small_then_leaves_in_one_buffer_with_the_heads():
    outbox = FramedOutbox()
    outbox.put(bytes(4) + (20).to_bytes(4, "little"))

    assert [bytes(buffer) for buffer in outbox.head_buffers()] == [
        b"\x82\x1c" + bytes(4) + b"\x14\0\0\0"
    ]


def test_pong_when_replies_wait_then_comes_behind_them_and_before_the_next():
    outbox = FramedOutbox()
    outbox.extend(reply_of([(True, 0, 20)]))
    outbox.answer(b"\x8a\x00")
    outbox.put(bytes(8))

    sent = drain(outbox, 5)

    assert sent == b"\x82\x1c" + bytes(4) + b"\x14\0\0\0" + STORED[:20] + b"\x8a\x00\x82\x08" + (
        bytes(8)
    )


def test_pongs_when_none_is_read_then_one_waits_and_the_last_one_follows_it():
    outbox = FramedOutbox()
    for number in range(1000):
        outbox.answer(b"\x8a\x01" + bytes([number % 256]))

    assert outbox.size_bytes == 3
    assert drain(outbox, 2) == b"\x8a\x01\x00" + b"\x8a\x01" + bytes([999 % 256])
    outbox.answer(b"\x8a\x01!")
    assert drain(outbox, 9) == b"\x8a\x01!"


def open_envelope(receive_bytes: int = 1 << 18) -> WebSocketEnvelope:
    protocol = ServerProtocol(state=State.OPEN, max_size=None)
    reader = FrameReader(protocol, frame_bytes_max=1 << 20, message_bytes_max=1 << 20)
    return WebSocketEnvelope(reader, LIMITS, receive_bytes=receive_bytes)


def test_envelope_when_sealed_twice_then_says_one_last_word_and_no_pong_behind_it():
    envelope = open_envelope()
    envelope.unwrap(ws_frame(b"1", Opcode.PING))
    envelope.unwrap(ws_frame(b"2", Opcode.PING))

    envelope.seal()
    envelope.seal()

    assert drain(envelope.outbox, 1) == b"\x8a\x011" + b"\x88\x02\x03\xe9"


def test_envelope_when_the_client_closes_then_what_came_before_is_unwrapped_and_the_rest_dropped():
    envelope = open_envelope()
    data = ws_frame(b"ab") + ws_frame(b"cd") + ws_frame(b"\x03\xe8bye", Opcode.CLOSE)

    assert envelope.unwrap(data + ws_frame(b"late")) == b"abcd"
    assert envelope.is_ended
    envelope.seal()
    assert drain(envelope.outbox, 100) == b"\x88\x05\x03\xe8bye"


def test_envelope_when_a_large_payload_has_begun_then_asks_for_as_much_as_it_may():
    envelope = open_envelope(receive_bytes=100_000)
    assert (envelope.missing_bytes, envelope.receive_bytes) == (0, 1 << 16)

    envelope.unwrap(ws_frame(bytes(90_000))[:1000])
    assert envelope.missing_bytes == envelope.receive_bytes == 90_014 - 1000

    envelope = open_envelope(receive_bytes=100_000)
    envelope.unwrap(ws_frame(bytes(900_000))[:1000])
    assert envelope.missing_bytes == envelope.receive_bytes == 100_000
