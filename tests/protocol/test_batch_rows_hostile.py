"""Columns that are not what they say: both twins refuse them, and agree in everything else."""

from __future__ import annotations

import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.batch_strategies import TWINS, exact, load_twin, make_metadata, outcome
from tests.protocol.test_batch_rows import SEEDS, blocks_of, column, numbers

U64_SMALL = st.integers(0, 2**33)


@pytest.fixture(scope="module", params=TWINS)
def twin(request):
    return load_twin(request.param)


# ---- columns that lie


BAD_ROWS = {
    "bounds too short": (3, 0, None, 4, bytes(12), b""),
    "bounds begin later": (1, 5, None, 4, bytes(8), b""),
    "bounds of another width": (1, 0, None, 2, bytes(8), b""),
    "bitmap too short": (9, 0, b"\xff", 4, bytes(40), b""),
    "value behind the data": (1, 0, None, 4, struct.pack("=2i", 0, 5), b"four"),
    "value before the data": (1, 0, None, 4, struct.pack("=2i", -1, 2), b"four"),
    "value that ends before it begins": (1, 0, None, 4, struct.pack("=2i", 3, 2), b"four"),
    "fixed values that are too few": (2, 0, None, 8, None, bytes(15)),
    "a negative start": (1, -1, None, 4, bytes(8), b""),
    "a negative length": (-1, 0, None, 4, bytes(8), b""),
}


@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=BAD_ROWS)
def test_column_when_it_is_not_what_it_says_then_is_refused(twin, bad):
    length = max(bad[0], 0)
    rows = (bad, None, None, None, None, 0, length)
    calls = [
        lambda: twin.ContentIds(1, 2, 3).assign(bad, None, None, 0),
        lambda: twin.header_blocks(bad[0], bad, 2, None, 0),
        lambda: twin.row_partitions(bad[0], bad, None, 3, 0),
        lambda: twin.encode_rows(make_metadata(1), rows, 0, 0),
        lambda: twin.encode_rows_vsr(make_metadata(1), rows, 0, 0, bytes(64), None),
        lambda: twin.split_rows(rows, 5, 100, 80),
        lambda: twin.header_blocks(1, None, 2, (bad, column([b"a"]), 1, column([b"b"])), 0),
    ]

    for call in calls:
        with pytest.raises(ValueError):
            call()


def test_rows_when_their_columns_do_not_fit_together_then_are_refused(twin):
    one, two = column([b"a"]), column([b"a", b"b"])
    missing = column([None])
    metadata = make_metadata(1)
    calls = [
        lambda: twin.encode_rows(metadata, (one, two, None, None, None, 0, 1), 0, 0),
        lambda: twin.encode_rows(metadata, (one, None, bytes(15), None, None, 0, 1), 0, 0),
        lambda: twin.encode_rows(metadata, (one, None, None, two, None, 0, 1), 0, 0),
        lambda: twin.encode_rows(metadata, (one, None, None, None, bytes(4), 0, 2), 0, 0),
        lambda: twin.encode_rows(metadata, (one, None, None, None, b"\1\0\0\0", 0, 1), 0, 0),
        lambda: twin.encode_rows(metadata, (one, None, None, None, None, -1, 1), 0, 0),
        lambda: twin.encode_rows(metadata, (one, None, None, one, None, 0, 1), 0, 0),
        lambda: twin.encode_rows(metadata, (one, None, None, numbers([-1]), None, 0, 1), 0, 0),
        lambda: twin.encode_rows(metadata, (missing, None, None, None, None, 0, 1), 0, 0),
        lambda: twin.ContentIds(1, 2, 3).assign(missing, None, None, 0),
        lambda: twin.ContentIds(1, 2, 3).assign(one, two, None, 0),
        lambda: twin.ContentIds(1, 2, 3).assign(one, None, one, 0),
        lambda: twin.row_partitions(1, None, bytes(15), 1, 0),
        lambda: twin.row_partitions(1, None, None, 0, 0),
        lambda: twin.row_partitions(1, two, None, 1, 0),
        lambda: twin.group_rows(struct.pack("=I", 3), 3),
        lambda: twin.header_blocks(1, None, 2, ((*one[:5], b""), two, 1, one), 0),
        lambda: twin.header_blocks(2, two, 2, ((*one[:5], b""), two, 1, two), 0),
        lambda: blocks_of(twin, [{"a": b"x", "b": b"y"}], kinds=b"\1"),
    ]

    for call in calls:
        with pytest.raises(ValueError):
            call()


# ---- the twins side by side, over columns that may lie


def hostile_columns():
    """Make columns with bounds, bitmaps and sizes that fit or do not."""
    honest = st.lists(st.none() | st.binary(max_size=20), max_size=6)
    return st.one_of(
        st.builds(column, honest, start=st.integers(0, 3), wide=st.booleans()),
        st.tuples(
            st.integers(-1, 9),
            st.integers(-1, 9),
            st.none() | st.binary(max_size=3).map(exact),
            st.sampled_from([4, 8, 4, 8, 0, 1, 3, 16]),
            st.none()
            | st.lists(st.integers(-2, 30), max_size=9).map(
                lambda bounds: exact(struct.pack(f"={len(bounds)}i", *bounds))
            ),
            st.binary(max_size=30).map(exact),
        ),
    )


OPTIONAL = st.none() | hostile_columns()
KINDS = st.integers(0, 20) | st.binary(max_size=12).map(exact)


@given(data=st.data(), keys=OPTIONAL, count=st.integers(0, 7))
def test_headers_when_columns_are_hostile_then_twins_agree(data, keys, count):
    pairs = data.draw(
        st.none() | st.tuples(hostile_columns(), hostile_columns(), KINDS, hostile_columns())
    )

    results = [
        outcome(load_twin(name).header_blocks, count, keys, 2, pairs, 5) for name in ("c", "python")
    ]

    assert results[0] == results[1]


@given(payloads=hostile_columns(), headers=OPTIONAL, own=OPTIONAL, count=st.integers(0, 7))
def test_ids_when_columns_are_hostile_then_twins_agree(payloads, headers, own, count):
    results = []
    for name in ("c", "python"):
        twin = load_twin(name)
        made = twin.ContentIds(*SEEDS, 3)
        results.append(
            [
                outcome(made.assign, payloads, headers, own, 9),
                outcome(made.assign, payloads, headers, None, 9),
                outcome(twin.row_partitions, count, headers, bytes(16 * count), 3, 1),
            ]
        )

    assert results[0] == results[1]


@given(
    payloads=hostile_columns(),
    headers=OPTIONAL,
    ids=st.none() | st.binary(max_size=100).map(exact),
    origins=st.none()
    | hostile_columns()
    | st.lists(st.none() | U64_SMALL, max_size=6).map(numbers),
    order=st.none() | st.lists(st.integers(0, 7), max_size=9),
    first=st.integers(-1, 4),
    count=st.integers(-1, 7),
)
def test_rows_when_columns_are_hostile_then_twins_agree(
    payloads, headers, ids, origins, order, first, count
):
    order_bytes = None if order is None else exact(array("I", order).tobytes())
    rows = (payloads, headers, ids, origins, order_bytes, first, count)
    metadata = make_metadata(max(count, 0))
    results = []
    for name in ("c", "python"):
        twin = load_twin(name)
        results.append(
            [
                outcome(twin.encode_rows, metadata, rows, 7, 8),
                outcome(twin.encode_rows_vsr, metadata, rows, 7, 8, bytes(32), None),
                outcome(twin.split_rows, rows, 2, 40, 10),
                outcome(twin.message_at, rows, 0),
            ]
        )

    assert results[0] == results[1]


@given(numbers=st.lists(st.integers(0, 9)), count=st.integers(0, 9))
def test_groups_when_some_partitions_do_not_exist_then_twins_agree(numbers, count):
    given = exact(array("I", numbers).tobytes())

    results = [outcome(load_twin(name).group_rows, given, count) for name in ("c", "python")]

    assert results[0] == results[1]
