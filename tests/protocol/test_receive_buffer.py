"""The receive buffer: any cut gives the same frames, views stay valid, copies are counted."""

from __future__ import annotations

import ctypes

import pytest

from iggy_protocol.errors import LocalProtocolError
from iggy_protocol.receive_buffer import CHUNK_BYTES, ReceiveBuffer, is_unshared
from tests.protocol.frame_oracle import pattern

MEGABYTE = 1_000_000


def fill(buffer: ReceiveBuffer, data: bytes, *, read_max: int = CHUNK_BYTES) -> int:
    """Read one piece of ``data`` into the buffer and return its size."""
    space = buffer.get_buffer()
    size = min(len(space), len(data), read_max)
    space[:size] = data[:size]
    del space
    buffer.buffer_updated(size)
    return size


def receive_frame(
    buffer: ReceiveBuffer, frame: bytes, *, read_max: int = CHUNK_BYTES
) -> memoryview:
    """Read a frame as a connection does: its head, then all of it."""
    position = 0
    while not (buffer.ensure(8) and buffer.ensure(len(frame))):
        position += fill(buffer, frame[position:], read_max=read_max)
    return buffer.take(8, len(frame))


def address(view: memoryview) -> int:
    """Say where in memory a writable view begins."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


# Whether anyone looks at a chunk


def test_is_unshared_when_no_view_is_alive_then_chunk_is_unchanged():
    chunk = bytearray(b"abc")

    assert is_unshared(chunk)
    assert chunk == b"abc"


@pytest.mark.parametrize(
    "derive",
    [
        lambda view: view[1:2],
        lambda view: view[1:][1:],
        lambda view: view.toreadonly(),
        lambda view: view.cast("c"),
        memoryview,
        ctypes.c_char.from_buffer,
    ],
    ids=["slice", "slice of slice", "read-only", "cast", "copy", "foreign"],
)
def test_is_unshared_when_anything_derived_is_alive_then_says_no(derive):
    chunk = bytearray(b"abc")
    held = derive(memoryview(chunk))

    assert not is_unshared(chunk)
    assert chunk == b"abc"

    del held
    assert is_unshared(chunk)


# Copies


def test_receive_data_when_bytes_hold_whole_frames_then_nothing_is_copied():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    data = pattern(3_000)

    buffer.receive_data(data)
    views = []
    for _ in range(3):
        assert buffer.ensure(1_000)
        views.append(buffer.take(8, 1_000))

    assert [view.obj is data for view in views] == [True, True, True]
    assert b"".join(views) == data[8:1000] + data[1008:2000] + data[2008:]
    assert (buffer.copied_bytes, buffer.chunk_allocations, len(buffer)) == (0, 0, 0)


def test_receive_data_when_frame_straddles_inputs_then_only_that_frame_is_copied():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    data = pattern(300)

    buffer.receive_data(data[:150])
    assert buffer.ensure(100)
    buffer.take(0, 100)
    assert not buffer.ensure(100)
    buffer.receive_data(data[150:])
    assert buffer.ensure(100)
    straddling = buffer.take(0, 100)
    assert buffer.ensure(100)
    last = buffer.take(0, 100)

    assert (bytes(straddling), bytes(last)) == (data[100:200], data[200:])
    assert last.readonly
    assert (buffer.copied_bytes, len(buffer)) == (100, 0)


def test_receive_data_when_head_straddles_inputs_then_frame_is_gathered_once():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    data = pattern(500)

    buffer.receive_data(data[:3])
    assert not buffer.ensure(8)
    buffer.receive_data(data[3:])
    assert buffer.ensure(8)
    assert buffer.ensure(400)
    frame = buffer.take(0, 400)
    assert buffer.ensure(100)

    assert frame == data[:400]
    assert buffer.take(0, 100) == data[400:]
    assert buffer.copied_bytes == 400


def test_receive_data_when_a_reader_waits_for_a_head_then_only_that_is_copied():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    data = pattern(500)
    assert not buffer.ensure(8)

    buffer.receive_data(data[:3])
    buffer.receive_data(data[3:])

    assert buffer.copied_bytes == 8
    assert buffer.ensure(8)
    assert bytes(buffer.take(0, 8)) == data[:8]
    assert buffer.ensure(492)
    assert bytes(buffer.take(0, 492)) == data[8:]
    assert buffer.copied_bytes == 8


def test_receive_data_when_large_frame_comes_in_pieces_then_each_byte_is_copied_once():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    data = pattern(MEGABYTE)

    for position in range(0, MEGABYTE, 50_000):
        assert not (buffer.ensure(8) and buffer.ensure(MEGABYTE))
        buffer.receive_data(data[position : position + 50_000])
    assert buffer.ensure(MEGABYTE)

    assert buffer.take(0, MEGABYTE) == data
    assert (buffer.copied_bytes, buffer.chunk_allocations) == (MEGABYTE, 1)


@pytest.mark.parametrize("kind", [bytearray, lambda data: memoryview(bytearray(data))])
def test_receive_data_when_input_is_mutable_then_later_changes_do_not_show(kind):
    buffer = ReceiveBuffer(unread_bytes_max=100)
    data = kind(pattern(50))

    buffer.receive_data(data)
    assert not buffer.ensure(60)
    buffer.receive_data(data)
    data[:] = bytes(50)
    assert buffer.ensure(60)

    assert buffer.take(0, 60) == pattern(50) + pattern(50)[:10]
    assert buffer.ensure(40)
    assert buffer.take(0, 40) == pattern(50)[10:]


def test_receive_data_when_items_are_wider_than_bytes_then_bytes_are_taken():
    buffer = ReceiveBuffer(unread_bytes_max=100)

    buffer.receive_data(memoryview(b"12345678").cast("I"))

    assert buffer.ensure(8)
    assert bytes(buffer.take(0, 8)) == b"12345678"


def test_get_buffer_when_megabyte_is_read_in_pieces_then_one_small_piece_is_copied():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    frame = pattern(MEGABYTE)

    assert receive_frame(buffer, frame) == frame[8:]

    assert buffer.copied_bytes <= CHUNK_BYTES
    assert buffer.chunk_allocations == 2


def test_get_buffer_when_megabytes_follow_each_other_then_nothing_more_is_copied():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    frame = pattern(MEGABYTE)
    receive_frame(buffer, frame).release()
    copied = buffer.copied_bytes

    for _ in range(5):
        assert receive_frame(buffer, frame) == frame[8:]

    assert (buffer.copied_bytes, buffer.chunk_allocations) == (copied, 2)


def test_get_buffer_when_frames_are_held_then_each_gets_memory_at_once():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    frame = pattern(MEGABYTE)
    held = [receive_frame(buffer, frame)]
    copied = buffer.copied_bytes

    held += [receive_frame(buffer, frame) for _ in range(3)]

    assert all(view == frame[8:] for view in held)
    assert (buffer.copied_bytes, buffer.chunk_allocations) == (copied, 5)


def test_get_buffer_when_frame_is_large_then_space_ends_with_it():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    buffer.receive_data(b"12345678")

    assert not buffer.ensure(100_000)

    assert len(buffer.get_buffer()) == 100_000 - 8


def test_get_buffer_when_frame_fits_then_it_stays_where_it_is():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    frame = pattern(60_000)

    assert receive_frame(buffer, frame, read_max=59_000) == frame[8:]

    assert (buffer.copied_bytes, buffer.chunk_allocations) == (0, 1)


def test_get_buffer_when_hint_is_larger_than_a_chunk_then_space_is_too():
    buffer = ReceiveBuffer(unread_bytes_max=100, retained_bytes_max=300_000)

    assert len(buffer.get_buffer()) == CHUNK_BYTES
    assert len(buffer.get_buffer(200_000)) == 200_000
    assert len(buffer.get_buffer(MEGABYTE)) == 300_000


# Views


def test_view_when_alive_then_its_memory_is_not_used_again():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    held = []

    for number in range(100):
        frame = pattern(40_000, seed=number)
        view = receive_frame(buffer, frame)
        if number % 3 == 0:
            held.append((view, frame))
        else:
            view.release()

    assert all(view == frame[8:] for view, frame in held)


def test_view_when_many_straddling_frames_are_held_then_they_share_a_chunk():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    data = pattern(50 * 100)
    held = []

    for position in range(0, len(data), 50):
        buffer.receive_data(data[position : position + 50])
        if buffer.ensure(100):
            held.append(buffer.take(0, 100))

    assert b"".join(held) == data
    assert buffer.chunk_allocations == 1


def test_view_when_released_then_its_memory_is_used_again():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    frame = pattern(60_000)
    view = receive_frame(buffer, frame)
    place = address(view)
    part = view[10:20]

    view.release()
    other = receive_frame(buffer, frame)
    assert address(other) != place
    assert part == frame[18:28]

    place = address(other)
    part.release()
    other.release()
    assert address(receive_frame(buffer, frame)) == place


def test_view_when_read_in_place_then_may_be_written_to():
    buffer = ReceiveBuffer(unread_bytes_max=100)

    view = receive_frame(buffer, pattern(100))
    view[:4] = b"\0\0\0\0"

    assert bytes(view[:4]) == b"\0\0\0\0"


def test_take_when_payload_is_empty_then_nothing_is_held():
    buffer = ReceiveBuffer(unread_bytes_max=100)

    held = [receive_frame(buffer, b"12345678") for _ in range(3 * CHUNK_BYTES // 8)]

    assert all(len(view) == 0 for view in held)
    assert buffer.chunk_allocations == 1


def test_take_when_empty_payload_is_released_then_buffer_goes_on():
    buffer = ReceiveBuffer(unread_bytes_max=100)

    for feed in (buffer.receive_data, lambda data: fill(buffer, data)):
        for _ in range(2):
            feed(b"12345678")
            assert buffer.ensure(8)
            buffer.take(8, 8).release()

    assert len(buffer) == 0


def test_chunk_when_larger_than_retained_then_dropped_as_soon_as_it_is_empty():
    buffer = ReceiveBuffer(unread_bytes_max=100, retained_bytes_max=100_000)

    view = receive_frame(buffer, pattern(200_000))

    assert view == pattern(200_000)[8:]
    assert buffer.reserved_bytes == 0
    receive_frame(buffer, pattern(50))
    assert buffer.reserved_bytes == CHUNK_BYTES


def test_chunk_when_small_frames_follow_a_large_one_that_is_held_then_shrinks():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    receive_frame(buffer, pattern(MEGABYTE))
    small = pattern(10_000)
    held = []

    while buffer.reserved_bytes > CHUNK_BYTES:
        held.append(receive_frame(buffer, small))

    assert len(held) < 300


# Bounds


def test_receive_data_when_too_much_is_unread_then_refused():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    buffer.receive_data(bytes(60))

    with pytest.raises(LocalProtocolError, match="next_event first"):
        buffer.receive_data(bytes(41))

    buffer.receive_data(bytes(40))
    assert len(buffer) == 100


def test_receive_data_when_a_reader_waits_then_any_amount_is_taken():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    buffer.receive_data(bytes(60))
    assert not buffer.ensure(61)

    buffer.receive_data(bytes(1_000))

    assert len(buffer) == 1_060


def test_receive_data_when_no_reader_waits_any_more_then_the_bound_counts_again():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    assert not buffer.ensure(8)
    buffer.receive_data(bytes(60))

    with pytest.raises(LocalProtocolError, match="60 bytes are unread"):
        buffer.receive_data(bytes(41))


def test_get_buffer_when_much_is_unread_then_offers_less_until_nothing():
    buffer = ReceiveBuffer(unread_bytes_max=1_000)
    buffer.receive_data(bytes(990))

    space = buffer.get_buffer()
    assert len(space) == 10
    buffer.buffer_updated(10)

    with pytest.raises(LocalProtocolError, match="next_event first"):
        buffer.get_buffer()


def test_receive_data_when_fed_byte_by_byte_unread_then_moved_a_few_times_only():
    buffer = ReceiveBuffer(unread_bytes_max=20_000, chunk_bytes=4_096)
    data = pattern(20_000)

    for index in range(len(data)):
        buffer.receive_data(data[index : index + 1])

    assert buffer.ensure(len(data))
    assert buffer.take(0, len(data)) == data
    assert buffer.copied_bytes < 3 * len(data)
    assert buffer.chunk_allocations < 5


def test_get_buffer_when_filled_unread_then_moved_a_few_times_only():
    buffer = ReceiveBuffer(unread_bytes_max=200_000, chunk_bytes=4_096)
    data = pattern(200_000)

    position = 0
    while position < len(data):
        position += fill(buffer, data[position:], read_max=1_000)

    assert buffer.ensure(len(data))
    assert buffer.take(0, len(data)) == data
    assert buffer.copied_bytes < 2 * len(data)


def test_get_buffer_when_input_is_unread_then_it_joins_in_order():
    buffer = ReceiveBuffer(unread_bytes_max=3_000)
    data = pattern(2_500)

    buffer.receive_data(data[:500])
    assert not buffer.ensure(600)
    buffer.receive_data(data[500:1_500])
    assert fill(buffer, data[1_500:]) == 1_000

    assert buffer.ensure(2_500)
    assert buffer.take(0, 2_500) == data


@pytest.mark.parametrize("size", [-1, 1])
def test_buffer_updated_when_nothing_was_offered_then_refused(size):
    buffer = ReceiveBuffer(unread_bytes_max=100)

    with pytest.raises(LocalProtocolError, match="cannot have been read"):
        buffer.buffer_updated(size)


def test_buffer_updated_when_data_came_another_way_meanwhile_then_refused():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    buffer.get_buffer()
    buffer.receive_data(b"abc")

    with pytest.raises(LocalProtocolError, match="cannot have been read"):
        buffer.buffer_updated(1)


def test_take_when_a_read_is_under_way_then_large_chunk_is_kept_for_it():
    buffer = ReceiveBuffer(unread_bytes_max=300_000, retained_bytes_max=100_000)
    data = pattern(200_000)
    position = 0
    while not buffer.ensure(len(data)):
        position += fill(buffer, data[position:])

    space = buffer.get_buffer()
    assert buffer.take(0, len(data)) == data
    space[:3] = b"abc"
    buffer.buffer_updated(3)

    assert buffer.ensure(3)
    assert bytes(buffer.take(0, 3)) == b"abc"


def test_ensure_when_all_that_came_is_not_enough_then_it_is_gathered_for_the_rest():
    buffer = ReceiveBuffer(unread_bytes_max=100)
    data = pattern(30)
    buffer.receive_data(data[:3])
    assert not buffer.ensure(8)
    buffer.receive_data(data[3:20])
    assert buffer.ensure(8)
    assert not buffer.ensure(25)

    buffer.receive_data(data[20:])

    assert buffer.ensure(25)
    assert bytes(buffer.take(0, 25)) == data[:25]
    assert buffer.copied_bytes == 25


# Skipping


def test_skip_when_bytes_lie_in_front_and_rest_then_drops_across_both():
    buffer = ReceiveBuffer(unread_bytes_max=1_000)
    buffer.receive_data(b"abc")
    assert not buffer.ensure(5)
    buffer.receive_data(b"defghij")

    assert buffer.skip(7) == 7
    assert buffer.ensure(3)
    assert bytes(buffer.take(0, 3)) == b"hij"
    assert buffer.skip(7) == 0
