"""What waits for a client, and how much memory that takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.dispatch.replies import OutputBuffer

SIZES = st.lists(st.integers(1, 100), max_size=20)


def test_memory_when_a_buffer_is_sent_in_part_then_all_of_it_is_held():
    output_buffer = OutputBuffer()
    output_buffer.put(bytes(100))
    output_buffer.put(bytes(10))
    output_buffer.sent(99)
    assert (output_buffer.size_bytes, output_buffer.held_bytes) == (11, 110)

    output_buffer.sent(2)
    assert (output_buffer.size_bytes, output_buffer.held_bytes) == (9, 10)
    output_buffer.sent(9)
    assert (output_buffer.size_bytes, output_buffer.held_bytes) == (0, 0)


@given(SIZES, SIZES)
def test_memory_when_everything_is_sent_then_is_free_again(put, sent):
    output_buffer = OutputBuffer()
    for size in put:
        output_buffer.put(bytes(size))
    for size in sent:
        output_buffer.sent(min(size, output_buffer.size_bytes))
        assert (
            output_buffer.size_bytes <= output_buffer.held_bytes <= output_buffer.size_bytes + 100
        )
    output_buffer.sent(output_buffer.size_bytes)
    assert output_buffer.held_bytes == 0
    output_buffer.put(b"x")
    output_buffer.clear()
    assert output_buffer.held_bytes == 0
