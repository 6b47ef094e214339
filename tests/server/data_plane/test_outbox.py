"""What waits for a client, and how much memory that takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.data_plane.outbox import Outbox

SIZES = st.lists(st.integers(1, 100), max_size=20)


def test_memory_when_a_buffer_is_sent_in_part_then_all_of_it_is_held():
    outbox = Outbox()
    outbox.put(bytes(100))
    outbox.put(bytes(10))
    outbox.sent(99)
    assert (outbox.size_bytes, outbox.held_bytes) == (11, 110)

    outbox.sent(2)
    assert (outbox.size_bytes, outbox.held_bytes) == (9, 10)
    outbox.sent(9)
    assert (outbox.size_bytes, outbox.held_bytes) == (0, 0)


@given(SIZES, SIZES)
def test_memory_when_everything_is_sent_then_is_free_again(put, sent):
    outbox = Outbox()
    for size in put:
        outbox.put(bytes(size))
    for size in sent:
        outbox.sent(min(size, outbox.size_bytes))
        assert outbox.size_bytes <= outbox.held_bytes <= outbox.size_bytes + 100
    outbox.sent(outbox.size_bytes)
    assert outbox.held_bytes == 0
    outbox.put(b"x")
    outbox.clear()
    assert outbox.held_bytes == 0
