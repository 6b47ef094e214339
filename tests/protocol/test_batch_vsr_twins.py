"""The two implementations of the batches of 0.9 side by side: the same results or refusals."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iggy_protocol import batch_python
from tests.protocol.batch_strategies import (
    HOSTILE_ITEMS,
    ITEMS,
    U64,
    damaged,
    exact,
    hostile_messages,
    load_twin,
    outcome,
)
from tests.protocol.vsr_strategies import (
    PRODUCERS,
    hostile_polled,
    hostile_sends,
    make_batch,
    make_frame,
    make_send,
    polled,
    sends,
    stored,
)

TWO_FRAMES = [make_frame(b"first", user_headers=b"headers"), make_frame(b"2", offset_delta=1)]
SEND = make_send(TWO_FRAMES, origin_us=5, producer=(1, 2, 3))
POLLED = make_batch([], base_offset=7) + make_batch(TWO_FRAMES, base_offset=7, timestamp_us=5)


@pytest.fixture(scope="module")
def extension():
    return load_twin("c")


@given(body=st.binary(max_size=300) | hostile_sends() | sends(), producers_allowed=st.booleans())
@example(body=make_send([make_frame(payload_length=2**32 - 1)]), producers_allowed=False)
def test_classic_send_when_body_is_hostile_then_twins_agree(extension, body, producers_allowed):
    ours = batch_python.classic_send(body, producers_allowed)

    assert extension.classic_send(exact(body), producers_allowed) == ours


@given(batches=hostile_polled() | polled(), producers_allowed=st.booleans(), verify=st.booleans())
def test_classic_records_when_batches_are_hostile_then_twins_agree(
    extension, batches, producers_allowed, verify
):
    ours = batch_python.classic_records(batches, producers_allowed, verify)

    assert extension.classic_records(exact(batches), producers_allowed, verify) == ours


@given(
    records=hostile_messages()
    | stored().map(b"".join)
    | stored().map(b"".join).flatmap(lambda whole: damaged(whole)),
    partition_id=U64,
    bytes_max=st.integers(0, 3000) | U64,
    verify=st.booleans(),
)
def test_vsr_batches_when_records_are_hostile_then_twins_agree(
    extension, records, partition_id, bytes_max, verify
):
    arguments = partition_id, bytes_max, verify

    assert extension.vsr_batches(exact(records), *arguments) == batch_python.vsr_batches(
        records, *arguments
    )


@pytest.mark.parametrize("value", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_reading_when_any_byte_is_replaced_or_missing_then_twins_agree(extension, value):
    different = []
    for whole, name, flags in (
        (SEND, "classic_send", (True,)),
        (POLLED, "classic_records", (True, True)),
    ):
        for at in range(len(whole)):
            replaced = whole[:at] + bytes([value]) + whole[at + 1 :]
            for data in (replaced, whole[:at]):
                ours = getattr(batch_python, name)(data, *flags)
                if getattr(extension, name)(exact(data), *flags) != ours:
                    different.append((name, at))

    assert different == []


@given(
    items=st.lists(ITEMS, max_size=6),
    origin_us=st.integers(0, 2**33) | U64,
    headroom=st.integers(0, 300),
    random=st.binary(max_size=100),
    producer=PRODUCERS,
)
def test_encode_when_items_are_good_then_twins_agree(
    extension, items, origin_us, headroom, random, producer
):
    arguments = b"metadata", items, origin_us, headroom, random, producer

    assert outcome(extension.encode_vsr, *arguments) == outcome(batch_python.encode_vsr, *arguments)


def said(function, *arguments):
    """Call and tell what was returned, or everything that an error says."""
    try:
        return function(*arguments)
    except (TypeError, OverflowError, ValueError) as error:
        return type(error), str(error)
    except BufferError:
        return "not contiguous, in Python's own words"


@given(
    items=st.lists(HOSTILE_ITEMS, max_size=3),
    origin_us=st.sampled_from([0, 1, 2**64 - 1, 2**64, -1, None, "1"]),
    headroom=st.sampled_from([0, 0, 256, -1, 4097, None]),
    producer=st.sampled_from(
        [None, None, (1, 2, 3), (2**63, 0, 0), (0, -1, 0), (0, 0, 2**31), (1, 2), 7, ("1", 2, 3)]
    ),
)
def test_encode_when_anything_is_odd_then_twins_say_the_same(
    extension, items, origin_us, headroom, producer
):
    arguments = b"", items, origin_us, headroom, bytes(32), producer

    assert said(extension.encode_vsr, *arguments) == said(batch_python.encode_vsr, *arguments)


@given(
    partition_id=st.sampled_from([0, 2**64, -1, None, "1"]),
    bytes_max=st.sampled_from([0, 2**64, -1, None, 1.0]),
)
def test_vsr_batches_when_numbers_are_odd_then_twins_say_the_same(
    extension, partition_id, bytes_max
):
    arguments = b"", partition_id, bytes_max, True

    assert said(extension.vsr_batches, *arguments) == said(batch_python.vsr_batches, *arguments)
