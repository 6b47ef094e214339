"""The heads of frames, and the shapes in which frames are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.framing import CLASSIC_FRAMING, JOINED_BYTES_MAX, join_small, size_of
from iggy_protocol.framing.classic import REQUEST_HEAD, REQUEST_HEADROOM, RESPONSE_HEAD

U32 = st.integers(0, 2**32 - 1)
HEAD = st.binary(min_size=8, max_size=8)


@given(HEAD)
def test_request_head_when_read_then_agrees_with_its_declaration(head):
    declared = REQUEST_HEAD.parse(head)

    assert CLASSIC_FRAMING.read_request_head(head, 0) == (declared.code, declared.length - 4)


@given(HEAD)
def test_response_head_when_read_then_agrees_with_its_declaration(head):
    declared = RESPONSE_HEAD.parse(head)

    assert CLASSIC_FRAMING.read_response_head(head, 0) == (declared.status, declared.length)


@given(U32, st.integers(0, CLASSIC_FRAMING.payload_bytes_max))
def test_request_head_when_written_then_agrees_with_its_declaration(code, size):
    buffer = bytearray(b"\xff" * 12)

    CLASSIC_FRAMING.write_request_head(buffer, 3, code, size)

    head = CLASSIC_FRAMING.request_head(code, size)
    assert head == REQUEST_HEAD.build({"length": size + 4, "code": code})
    assert buffer == b"\xff" * 3 + head + b"\xff"


@given(U32, U32)
def test_response_head_when_written_then_agrees_with_its_declaration(status, size):
    head = CLASSIC_FRAMING.response_head(status, size)

    assert head == RESPONSE_HEAD.build({"status": status, "length": size})


def test_heads_when_measured_then_have_eight_bytes():
    assert CLASSIC_FRAMING.request_head_bytes == REQUEST_HEAD.sizeof() == REQUEST_HEADROOM == 8
    assert CLASSIC_FRAMING.response_head_bytes == RESPONSE_HEAD.sizeof() == 8


def test_request_head_when_ping_then_is_as_recorded():
    assert CLASSIC_FRAMING.request_head(1, 0) == bytes.fromhex("0400000001000000")
    assert CLASSIC_FRAMING.read_request_head(b"??" + bytes.fromhex("0400000001000000"), 2) == (1, 0)


@pytest.mark.parametrize("length", range(4))
def test_request_head_when_length_is_below_its_minimum_then_size_is_negative(length):
    head = bytes([length, 0, 0, 0, 7, 0, 0, 0])

    assert CLASSIC_FRAMING.read_request_head(head, 0) == (7, length - 4)


PARTS = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.binary(max_size=20).map(bytearray),
        st.binary(max_size=20).map(lambda data: memoryview(data)),
        st.sampled_from(
            [b"x" * JOINED_BYTES_MAX, b"y" * (JOINED_BYTES_MAX + 1), memoryview(b"z" * 10_000)]
        ),
    )
)


@given(PARTS)
def test_join_small_when_given_any_parts_then_keeps_bytes_and_large_parts(parts):
    joined = join_small(parts)

    assert b"".join(joined) == b"".join(parts)
    assert size_of(joined) == size_of(parts) == len(b"".join(parts))
    large = [part for part in parts if len(part) > JOINED_BYTES_MAX]
    kept = [part for part in joined if any(part is one for one in large)]
    assert [id(part) for part in kept] == [id(part) for part in large]
    # Between two large parts there is at most one other.
    assert len(joined) <= 2 * len(large) + 1


def test_size_of_when_items_are_wider_than_bytes_then_counts_bytes():
    assert size_of([memoryview(b"12345678").cast("I"), b"9", bytearray(2)]) == 11
