"""The spare chunk of the receive buffer: who reads ahead makes two chunks take turns."""

from __future__ import annotations

from iggy_protocol.receive_buffer import ReceiveBuffer
from tests.protocol.frame_oracle import pattern
from tests.protocol.test_receive_buffer import MEGABYTE, receive_frame


def test_spare_when_each_frame_is_held_until_the_next_then_two_chunks_take_turns():
    buffer = ReceiveBuffer(unread_bytes_max=100, keeps_spare=True)
    frame = pattern(MEGABYTE)
    held = receive_frame(buffer, frame)
    receive_frame(buffer, frame)
    allocations = buffer.chunk_allocations

    for _ in range(6):
        held = receive_frame(buffer, frame)
        assert held == frame[8:]

    assert buffer.chunk_allocations == allocations
    assert buffer.reserved_bytes <= 3 * MEGABYTE


def test_spare_when_it_is_too_small_for_the_next_frame_then_another_is_made():
    buffer = ReceiveBuffer(unread_bytes_max=100, keeps_spare=True, chunk_bytes=64)
    held = [receive_frame(buffer, pattern(size)) for size in (500, 1_000, 300, 2_000, 100)]

    assert [len(view) + 8 for view in held] == [500, 1_000, 300, 2_000, 100]
    del held
    frame = pattern(800)
    assert receive_frame(buffer, frame) == frame[8:]


def test_spare_when_taken_and_the_old_chunk_is_not_worth_keeping_then_none_is_left():
    buffer = ReceiveBuffer(
        unread_bytes_max=100, keeps_spare=True, chunk_bytes=64, retained_bytes_max=1_000
    )
    first = receive_frame(buffer, pattern(900))
    second = receive_frame(buffer, pattern(5_000))
    del first
    third = receive_frame(buffer, pattern(800))

    assert [len(second), len(third)] == [4_992, 792]
    assert third == pattern(800)[8:]
