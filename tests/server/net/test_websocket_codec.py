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
from iggy_protocol.websocket import FrameReader, ReplyFramer, encoder
from iggy_ref_server.net.socket_connection import SocketLimits
from iggy_ref_server.net.websocket_codec import FramedOutputBuffer, WebSocketCodec
from iggy_ref_server.storage.interface import FileSlice
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.protocol.websocket.frames import ws_frame

if TYPE_CHECKING:
    from iggy_ref_server.storage.interface import File

STORED = bytes(range(256)) * 400
LIMITS = SocketLimits(
    connection=Limits(), output_bytes_max=1 << 20, stall_timeout_s=30.0, idle_timeout_s=0.0
)


async def _store() -> File:
    file = await SimulatedStorage().open("log", create=True)
    await file.write([STORED], 0)
    return file


FILE = trio.run(_store)

# A part of a payload: whether it lies in the file, where it begins there, and its size.
PARTS = st.tuples(
    st.booleans(), st.integers(0, 300), st.integers(0, 250) | st.sampled_from([1100, 70_000])
)
REPLIES = st.lists(st.lists(PARTS, max_size=4), max_size=5)


def reply_of(parts: list[tuple[bool, int, int]]) -> list[bytes | FileSlice]:
    """Make a reply of parts as the scheduler does: a head, then what follows it."""
    size = sum(size for _, _, size in parts)
    payload = [
        FileSlice(FILE, position, size) if is_stored else STORED[position : position + size]
        for is_stored, position, size in parts
    ]
    return [bytes(4) + size.to_bytes(4, "little"), *payload]


def content_of(item: bytes | FileSlice) -> bytes:
    if isinstance(item, FileSlice):
        return FILE.read_nowait(item.size, item.position) or b""
    return item


def drain(output_buffer: FramedOutputBuffer, step: int) -> bytes:
    """Send everything as the socket room does, a few bytes at a time."""
    sent = b""
    while output_buffer:
        piece = output_buffer.head_slice()
        waiting = b"".join(output_buffer.head_buffers()) if piece is None else content_of(piece)
        sent += waiting[:step]
        output_buffer.sent(len(waiting[:step]))
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
    output_buffer = FramedOutputBuffer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "FRAME_BYTES_MAX", frame_bytes_max)
        expected = b"".join(ReplyFramer().frame(b"".join(map(content_of, items))))
        output_buffer.extend(items)

    output_buffer.load_small(loaded_bytes_max)
    assert output_buffer.size_bytes == len(expected)
    assert drain(output_buffer, max(step, len(expected) // 1000)) == expected
    assert output_buffer.size_bytes == 0


def test_file_when_longer_than_a_frame_then_its_pieces_stay_in_the_file(monkeypatch):
    monkeypatch.setattr(encoder, "FRAME_BYTES_MAX", 20_000)
    output_buffer = FramedOutputBuffer()

    output_buffer.extend(reply_of([(True, 5, 50_000)]))

    slices = []
    while output_buffer:
        piece = output_buffer.head_slice()
        slices += [] if piece is None else [(piece.position, piece.size)]
        output_buffer.sent(piece.size if piece else sum(map(len, output_buffer.head_buffers())))
    assert slices == [(5, 19_992), (19_997, 20_000), (39_997, 10_008)]


def test_file_when_its_piece_is_short_then_it_can_leave_with_the_heads():
    output_buffer = FramedOutputBuffer()
    output_buffer.extend(reply_of([(True, 5, 1000)]))

    output_buffer.load_small(1000)

    assert b"".join(output_buffer.head_buffers())[-1000:] == STORED[5:1005]
    assert output_buffer.size_bytes == 4 + 8 + 1000


@pytest.mark.trio
async def test_file_when_its_piece_cannot_be_read_at_once_then_it_stays_in_the_file():
    plan = FaultPlan()
    file = await SimulatedStorage(plan).open("log", create=True)
    await file.write([STORED], 0)
    beyond, cold = FileSlice(file, len(STORED) - 3, 10), FileSlice(file, 0, 10)
    for piece in (beyond, cold):
        output_buffer = FramedOutputBuffer()
        output_buffer.put(bytes(4) + (10).to_bytes(4, "little"))
        output_buffer.put(piece)
        if piece is cold:
            plan.uncache()

        output_buffer.load_small(1000)

        output_buffer.sent(10)
        assert output_buffer.head_slice() == piece


def test_reply_when_small_then_leaves_in_one_buffer_with_the_heads():
    output_buffer = FramedOutputBuffer()
    output_buffer.put(bytes(4) + (20).to_bytes(4, "little"))

    assert [bytes(buffer) for buffer in output_buffer.head_buffers()] == [
        b"\x82\x1c" + bytes(4) + b"\x14\0\0\0"
    ]


def test_pong_when_replies_wait_then_comes_behind_them_and_before_the_next():
    output_buffer = FramedOutputBuffer()
    output_buffer.extend(reply_of([(True, 0, 20)]))
    output_buffer.put_pong(b"\x8a\x00")
    output_buffer.put(bytes(8))

    sent = drain(output_buffer, 5)

    assert sent == b"\x82\x1c" + bytes(4) + b"\x14\0\0\0" + STORED[:20] + b"\x8a\x00\x82\x08" + (
        bytes(8)
    )


def test_pongs_when_none_is_read_then_one_waits_and_the_last_one_follows_it():
    output_buffer = FramedOutputBuffer()
    for number in range(1000):
        output_buffer.put_pong(b"\x8a\x01" + bytes([number % 256]))

    assert output_buffer.size_bytes == 3
    assert drain(output_buffer, 2) == b"\x8a\x01\x00" + b"\x8a\x01" + bytes([999 % 256])
    output_buffer.put_pong(b"\x8a\x01!")
    assert drain(output_buffer, 9) == b"\x8a\x01!"


def open_codec(receive_bytes: int = 1 << 18) -> WebSocketCodec:
    protocol = ServerProtocol(state=State.OPEN, max_size=None)
    reader = FrameReader(protocol, frame_bytes_max=1 << 20, message_bytes_max=1 << 20)
    return WebSocketCodec(reader, LIMITS, receive_bytes=receive_bytes)


def test_codec_when_closed_twice_then_writes_one_close_frame_and_no_pong_behind_it():
    codec = open_codec()
    codec.decode(ws_frame(b"1", Opcode.PING))
    codec.decode(ws_frame(b"2", Opcode.PING))

    codec.write_close()
    codec.write_close()

    assert drain(codec.output_buffer, 1) == b"\x8a\x011" + b"\x88\x02\x03\xe9"


def test_codec_when_the_client_closes_then_what_came_before_is_decoded_and_the_rest_dropped():
    codec = open_codec()
    data = ws_frame(b"ab") + ws_frame(b"cd") + ws_frame(b"\x03\xe8bye", Opcode.CLOSE)

    assert codec.decode(data + ws_frame(b"late")) == b"abcd"
    assert codec.is_ended
    codec.write_close()
    assert drain(codec.output_buffer, 100) == b"\x88\x05\x03\xe8bye"


def test_codec_when_a_large_payload_has_begun_then_asks_for_as_much_as_it_may():
    codec = open_codec(receive_bytes=100_000)
    assert (codec.missing_bytes, codec.receive_bytes) == (0, 1 << 16)

    codec.decode(ws_frame(bytes(90_000))[:1000])
    assert codec.missing_bytes == codec.receive_bytes == 90_014 - 1000

    codec = open_codec(receive_bytes=100_000)
    codec.decode(ws_frame(bytes(900_000))[:1000])
    assert codec.missing_bytes == codec.receive_bytes == 100_000
