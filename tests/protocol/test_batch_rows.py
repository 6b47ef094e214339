"""Messages to be sent from columns: ids, headers, partitions and bodies, over both twins."""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    BytesColumn,
    ContentIds,
    HeaderValue,
    LocalProtocolError,
    MessageRows,
    encode_user_headers,
    header_blocks,
    partition_for_key,
)
from iggy_protocol.message_view import NewMessage
from tests.protocol.batch_strategies import TWINS, load_twin, make_metadata

SEEDS = (2**63 + 5, 7)
NOTHING_SEEN = 1 << 20


@pytest.fixture(scope="module", params=TWINS)
def twin(request):
    return load_twin(request.param)


def column(values, *, start=0, wide=False):
    """Lay values out as Arrow does, behind ``start`` others."""
    padded = [b"before"] * start + list(values)
    bits = bytearray((len(padded) + 7) // 8)
    for at, value in enumerate(padded):
        if value is not None:
            bits[at >> 3] |= 1 << (at & 7)
    ends = array("q" if wide else "i", accumulate((len(one or b"") for one in padded), initial=0))
    validity = bytes(bits) if None in padded else None
    data = b"".join(one or b"" for one in padded)
    return BytesColumn(len(padded) - start, start, validity, 8 if wide else 4, ends.tobytes(), data)


def numbers(values, *, start=0):
    padded = [5] * start + list(values)
    present = column([b"" if value is not None else None for value in padded])
    data = struct.pack(f"={len(padded)}q", *(value or 0 for value in padded))
    return BytesColumn(len(values), start, present.validity, 8, None, data)


CONTENTS = st.sampled_from([b"", b"a", b"b", b"ab", b"x" * 17, b"y" * 200, b"z" * 300])
ROWS = st.lists(st.tuples(CONTENTS, CONTENTS), max_size=40)


def ids_of(twin, rows, *, contents_max=NOTHING_SEEN, cuts=(), seeds=SEEDS, salt=0):
    """Make the ids of rows that come in pieces."""
    made = twin.ContentIds(*seeds, contents_max)
    borders = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    found = b""
    for begin, end in pairwise(borders):
        piece = rows[begin:end]
        payloads, headers = (column(values) for values in zip(*piece, strict=True))
        found += bytes(made.assign(payloads, headers, None, salt))
    return [found[at : at + 16] for at in range(0, len(found), 16)]


@given(
    rows=ROWS, contents_max=st.integers(0, 5) | st.just(NOTHING_SEEN), cuts=st.lists(st.integers(0))
)
def test_ids_when_made_for_a_task_then_no_two_rows_share_one(twin, rows, contents_max, cuts):
    ids = ids_of(twin, rows, contents_max=contents_max, cuts=cuts)

    assert len(set(ids)) == len(ids) == len(rows)


@given(data=st.data(), rows=ROWS, cuts=st.lists(st.integers(0)))
def test_ids_when_rows_come_in_another_order_and_other_pieces_then_are_the_same(
    twin, data, rows, cuts
):
    again = data.draw(st.permutations(rows))

    first = sorted(zip(rows, ids_of(twin, rows), strict=True))
    second = sorted(zip(again, ids_of(twin, again, cuts=cuts), strict=True))

    assert first == second


@given(first=ROWS, rows=ROWS)
def test_ids_when_an_attempt_saw_only_some_rows_then_the_last_one_stores_all_of_its_own(
    twin, first, rows
):
    """As a server with deduplication does it: what has an id that was there is not stored."""
    stored = dict(zip(ids_of(twin, first), first, strict=True))

    for id_bytes, content in zip(ids_of(twin, rows), rows, strict=True):
        stored.setdefault(id_bytes, content)

    assert Counter(rows) <= Counter(stored.values())


def test_ids_when_seeds_place_or_border_differ_then_so_do_the_ids(twin):
    rows = [(b"ab", b""), (b"a", b"b"), (b"", b"ab")]

    made = [
        ids_of(twin, rows),
        ids_of(twin, rows, seeds=(1, 7)),
        ids_of(twin, rows, seeds=(2**63 + 5, 8)),
        ids_of(twin, rows, salt=1),
    ]

    assert len({one for some in made for one in some}) == 12


def test_ids_when_a_row_brings_one_then_it_stays_and_counts_for_nothing(twin):
    ids = twin.ContentIds(*SEEDS, NOTHING_SEEN)
    payloads = column([b"a", b"a", b"a", b"a"], start=3)
    mine = bytes(range(16))

    made = ids.assign(payloads, None, column([None, mine, bytes(16), None], start=1), 0)

    assert [bytes(made[at : at + 16]) for at in (16,)] == [mine]
    others = [bytes(made[at : at + 16]) for at in (0, 32, 48)]
    assert others == ids_of(twin, [(b"a", b"")] * 3)
    assert ids.contents_count == 1


def test_scope_when_it_differs_then_ids_share_nothing():
    payloads = column([b"same"] * 3)

    made = [bytes(ContentIds(scope).assign(payloads)) for scope in (b"1", b"2", b"1")]

    assert made[0] == made[2]
    assert not {made[0][at : at + 16] for at in (0, 16, 32)} & {
        made[1][at : at + 16] for at in (0, 16, 32)
    }


def test_place_when_it_differs_then_equal_rows_count_apart():
    ids = ContentIds(b"scope")
    payloads = column([b"same"])
    here = bytes(ids.assign(payloads, place=b"here"))
    there = bytes(ids.assign(payloads, place=b"there"))
    again = ContentIds(b"scope")

    assert bytes(again.assign(payloads, place=b"there")) == there != here


# ---- user headers

KEYS = st.binary(min_size=1, max_size=20) | st.none()
TEXTS = st.text("abcäß", min_size=1, max_size=8)
MAPS = st.none() | st.dictionaries(TEXTS, st.none() | st.binary(min_size=1, max_size=9), max_size=4)


def pairs_of(maps, kinds=1, *, start=0):
    """Lay maps out as Arrow does: bounds of each, then names and values of all."""
    flat = [(name.encode(), value) for one in maps for name, value in (one or {}).items()]
    ends = array("i", accumulate((len(one or {}) for one in maps), initial=0))
    places = column([b"" if one is not None else None for one in maps])
    return (
        BytesColumn(len(maps), 0, places.validity, 4, ends.tobytes(), b""),
        column([name for name, _ in flat], start=start),
        kinds,
        column([value for _, value in flat], start=start),
    )


def blocks_of(twin, maps, keys=None, key_kind=2, kinds=1, start=0):
    pairs = None if maps is None else pairs_of(maps, kinds, start=start)
    count = len(keys if maps is None else maps)
    own = None if keys is None else column(keys, start=start)
    bounds, blocks = twin.header_blocks(count, own, key_kind, pairs, 0)
    ends = memoryview(bounds).cast("q")
    return [bytes(blocks[ends[at] : ends[at + 1]]) for at in range(count)]


@given(rows=st.lists(st.tuples(MAPS, KEYS), max_size=12), start=st.integers(0, 9))
def test_headers_when_written_from_columns_then_are_those_of_messages(twin, rows, start):
    maps, keys = [one for one, _ in rows], [key for _, key in rows]

    expected = []
    for one, key in rows:
        headers = {name: value for name, value in (one or {}).items() if value is not None}
        if key is not None:
            headers["iggy-key"] = key
        expected.append(encode_user_headers(headers))

    assert blocks_of(twin, maps, keys, key_kind=1, start=start) == expected


def test_headers_when_kinds_differ_then_each_value_has_its_own(twin):
    maps = [{"n": b"\5", "s": b"text"}, {"r": b"raw"}]

    made = blocks_of(twin, maps, kinds=bytes([9, 2, 1]))

    assert made == [
        encode_user_headers({"n": HeaderValue.uint8(5), "s": "text"}),
        encode_user_headers({"r": b"raw"}),
    ]


def test_headers_when_one_is_called_as_the_key_then_it_wins(twin):
    maps = [{"iggy-key": b"mine"}]

    assert blocks_of(twin, maps, [b"key"], kinds=2) == [encode_user_headers({"iggy-key": "mine"})]


@pytest.mark.parametrize(
    ("maps", "keys", "kinds", "answer"),
    [
        ([{}, {"": b"x"}], None, 1, "row 1: a header key has 1 to 255 bytes, not 0"),
        ([{"a": b""}], None, 1, "row 0: a header value has 1 to 255 bytes, not 0"),
        ([{"a": b"x" * 256}], None, 1, "row 0: a header value has 1 to 255 bytes, not 256"),
        ([{"a": b"xx"}], None, 9, "row 0: a header value of kind 9 has 1 bytes, not 2"),
        ([{"a": b"xx"}], None, 16, "row 0: no header kind has the code 16"),
        (None, [None, b""], 1, "row 1: a key has 1 to 255 bytes, not 0"),
        (None, [b"k" * 256], 1, "row 0: a key has 1 to 255 bytes, not 256"),
        (
            [{f"{number:03}": b"x" * 255 for number in range(400)}],
            None,
            1,
            "row 0: user headers have at most 100000 bytes, not 107200",
        ),
    ],
)
def test_headers_when_they_do_not_fit_then_the_row_is_named(twin, maps, keys, kinds, answer):
    with pytest.raises(ValueError) as caught:
        blocks_of(twin, maps, keys, kinds=kinds)

    assert str(caught.value) == answer


def test_headers_when_they_do_not_fit_then_the_package_has_its_own_error():
    with pytest.raises(LocalProtocolError, match="row 7: a key has"):
        header_blocks(1, keys=column([b""]), first_row=7)


# ---- partitions


@given(keys=st.lists(KEYS, max_size=30), count=st.integers(1, 9), start=st.integers(0, 9))
def test_partitions_when_rows_have_keys_then_are_those_of_the_producer(twin, keys, count, start):
    ids = b"".join(struct.pack("<QQ", row * 3, 9) for row in range(len(keys)))

    made = twin.row_partitions(len(keys), column(keys, start=start), ids, count, 0)

    assert list(memoryview(made).cast("I")) == [
        row * 3 % count if key is None else partition_for_key(key, count)
        for row, key in enumerate(keys)
    ]


def test_partitions_when_rows_have_nothing_then_are_the_one_that_was_given(twin):
    assert list(memoryview(twin.row_partitions(3, None, None, 5, 4)).cast("I")) == [4, 4, 4]


@given(chosen=st.lists(st.integers(0, 6)))
def test_groups_when_rows_are_divided_then_each_partition_has_its_own_in_order(twin, chosen):
    order, ends = twin.group_rows(array("I", chosen).tobytes(), 7)

    rows = list(memoryview(order).cast("I"))
    starts = [0, *ends[:-1]]
    groups = [rows[start:end] for start, end in zip(starts, ends, strict=True)]
    assert groups == [
        [row for row, one in enumerate(chosen) if one == number] for number in range(7)
    ]


# ---- encoding

ROW = st.tuples(
    st.binary(max_size=40),
    st.integers(0, 2**128 - 1),
    st.binary(max_size=20),
    st.none() | st.integers(0, 2**32 - 1),
)


def rows_of(messages, *, start=0, order=None, wide=False):
    payloads, ids, headers, times = zip(*messages, strict=True) if messages else ((),) * 4
    order_bytes = None if order is None else array("I", order).tobytes()
    return (
        column(payloads, start=start, wide=wide),
        column(headers, start=start, wide=not wide),
        b"".join(one.to_bytes(16, "little") for one in ids),
        numbers(times, start=start),
        order_bytes,
        0,
        len(messages if order is None else order),
    )


@given(messages=st.lists(ROW, min_size=1, max_size=9), start=st.integers(0, 9), wide=st.booleans())
def test_body_when_written_from_columns_then_is_that_of_the_messages(twin, messages, start, wide):
    metadata = make_metadata(len(messages))
    expected = [NewMessage(*one) for one in messages]
    rows = rows_of(messages, start=start, wide=wide)
    random = bytes(range(256)) * 9

    assert twin.encode_rows(metadata, rows, 77, 8) == twin.encode(metadata, expected, 77, 8)
    assert twin.encode_rows_vsr(metadata, rows, 77, 256, random, (1, 2, 3)) == twin.encode_vsr(
        metadata, expected, 77, 256, random, (1, 2, 3)
    )


@given(data=st.data(), messages=st.lists(ROW, min_size=1, max_size=9))
def test_body_when_some_rows_are_taken_then_has_them_in_that_order(twin, data, messages):
    order = data.draw(st.lists(st.integers(0, len(messages) - 1), min_size=1, max_size=12))
    *columns, _, _ = rows_of(messages, order=order)
    begin = data.draw(st.integers(0, len(order)))
    taken = order[begin:]
    rows = (*columns, begin, len(taken))
    metadata = make_metadata(len(taken))

    body = twin.encode_rows(metadata, rows, 5, 0)

    assert body == twin.encode(metadata, [NewMessage(*messages[at]) for at in taken], 5, 0)
    for at, row in enumerate(taken):
        assert twin.message_at(rows, at) == messages[row]


@given(
    sizes=st.lists(st.integers(0, 30), max_size=20),
    count_max=st.integers(1, 8),
    bytes_max=st.integers(1, 300),
)
def test_pieces_when_rows_are_divided_then_only_a_single_row_is_too_large(
    twin, sizes, count_max, bytes_max
):
    rows = rows_of([(bytes(size), 1, b"", None) for size in sizes])

    ends, totals = twin.split_rows(rows, count_max, bytes_max, 80)

    pieces = [sizes[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    assert [one for piece in pieces for one in piece] == sizes
    assert totals == [sum(piece) + 80 * len(piece) for piece in pieces]
    for piece, total in zip(pieces, totals, strict=True):
        assert len(piece) == 1 or (len(piece) <= count_max and total <= bytes_max)


def test_pieces_when_times_lie_far_apart_then_no_request_has_both(twin):
    day = 24 * 3600 * 1_000_000
    times = [0, 5, day, day + 1, None, None, 2**32 - 1, 0, 2**32]

    ends, _ = twin.split_rows(rows_of([(b"", 1, b"", time) for time in times]), 100, 10_000, 80)

    assert ends == [2, 4, 6, 8, 9]


# ---- the public side


def test_rows_when_used_as_a_sequence_then_make_messages_one_by_one():
    rows = MessageRows(column([b"a", b"b", b"c"], start=2), ids=bytes(32) + b"\5" + bytes(15))

    assert list(rows) == [NewMessage(b"a"), NewMessage(b"b"), NewMessage(b"c", 5)]
    assert rows[-1] == NewMessage(b"c", 5)
    assert list(rows[1:]) == [NewMessage(b"b"), NewMessage(b"c", 5)]
    assert (len(rows[5:]), repr(rows)) == (0, "<MessageRows of 3 messages>")
    with pytest.raises(IndexError):
        rows[3]
    with pytest.raises(ValueError, match="without gaps"):
        rows[::2]


def test_rows_when_divided_among_partitions_then_each_has_its_own():
    rows = MessageRows(column([b"a", b"b", b"c"]))

    groups = rows.by_partition(array("I", [2, 0, 2]).tobytes(), 3)

    assert [(number, [one.payload for one in some]) for number, some in groups] == [
        (0, [b"b"]),
        (2, [b"a", b"c"]),
    ]
    assert [(len(some), size) for some, size in rows.pieces(length=2, size_bytes=10**6)] == [
        (2, 162),
        (1, 81),
    ]
    assert [len(some) for some, _ in rows.pieces(length=None, size_bytes=10**6)] == [3]
