"""From record batches to messages: what each column becomes, and what is refused."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import HeaderValue, encode_user_headers, partition_for_key
from iggy_sdk import InvalidRequestError
from iggy_sdk.arrow import ArrowMessageBuilder

PAIRS = pa.list_(pa.struct([("key", pa.string()), ("kind", pa.string()), ("value", pa.binary())]))


def rows(**columns):
    return pa.RecordBatch.from_pydict(columns)


def builder(*, scope=b"scope", has_keys=False):
    return ArrowMessageBuilder(scope, has_keys=has_keys)


def ids(made):
    return [message.id for message in made.rows]


@given(cuts=st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_ids_when_rows_come_in_other_batches_then_are_the_same(cuts):
    values = [b"%d" % (number % 7) for number in range(sum(cuts))]
    whole = ids(builder().messages(rows(payload=values)))
    maker = builder()

    pieces, begin = [], 0
    for cut in cuts:
        pieces += ids(maker.messages(rows(payload=values[begin : begin + cut])))
        begin += cut

    assert pieces == whole
    assert len(set(whole)) == len(whole) == maker.rows_count
    assert all(0 < one < 2**128 for one in whole)


def test_messages_when_there_is_nothing_but_payloads_then_have_nothing_else():
    made = builder(scope=None).messages(rows(payload=["café", "b"]))

    assert list(made.rows) == [("café".encode(), 0, b"", None), (b"b", 0, b"", None)]


def test_messages_when_all_columns_are_there_then_each_becomes_a_field():
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    mine = uuid.UUID(int=5)
    headers = pa.array([[("h", "v"), ("n", None)], None], pa.map_(pa.string(), pa.string()))

    first, second = (
        builder(has_keys=True)
        .messages(
            rows(
                payload=[b"a", b"b"],
                key=["k", None],
                id=[mine.bytes, None],
                origin_timestamp=pa.array([moment, None], pa.timestamp("us", "UTC")),
                headers=headers,
                offset=[1, 2],
            )
        )
        .rows
    )

    micros = int(moment.timestamp() * 1_000_000)
    block = encode_user_headers({"h": "v", "iggy-key": "k"})
    assert first == (b"a", int.from_bytes(mine.bytes, "little"), block, micros)
    assert second[2:] == (b"", None)
    assert second.id != 0


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.string(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.binary(2),
    ],
)
def test_payloads_when_of_any_layout_or_sliced_then_are_the_same(kind, size):
    column = pa.array(["aa", "bb", "cc", "dd", "ee"], pa.string()).cast(pa.binary())
    if not pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.string())
    is_dictionary = pa.types.is_dictionary(kind)
    column = column.dictionary_encode() if is_dictionary else column.cast(kind)
    batch = pa.RecordBatch.from_arrays([column], ["payload"]).slice(2, size)

    made = builder(scope=None).messages(batch).rows

    assert [message.payload for message in made] == [b"cc", b"dd", b"ee"][:size]


def test_headers_when_rows_are_sliced_then_each_has_its_own():
    kind = pa.map_(pa.string(), pa.binary())
    maps = [[("a", b"0")], None, [("b", b"1"), ("c", b"2")], [], [("d", b"3")]]
    batch = rows(payload=[b""] * 5, headers=pa.array(maps, kind)).slice(1, 4)

    made = builder(scope=None).messages(batch).rows

    blocks = [{}, {"b": b"1", "c": b"2"}, {}, {"d": b"3"}]
    assert [message.user_headers for message in made] == list(map(encode_user_headers, blocks))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), -5),
        (pa.int32(), 7),
        (pa.float64(), 0.5),
        (pa.bool_(), True),
        (pa.binary(), b"\xff"),
        (pa.string(), "text"),
    ],
)
def test_headers_when_of_other_types_then_are_those_of_a_message(kind, value):
    maps = pa.array([[("n", value), ("gone", None)]], pa.map_(pa.string(), kind))

    (message,) = builder(scope=None).messages(rows(payload=[b"a"], headers=maps)).rows

    assert message.user_headers == encode_user_headers({"n": value})


def test_headers_when_given_as_a_list_then_keep_their_kinds():
    pairs = [
        {"key": "n", "kind": "UINT8", "value": b"\x05"},
        {"key": "r", "kind": None, "value": b"raw"},
        {"key": "gone", "kind": "raw", "value": None},
    ]
    batch = rows(payload=[b"", b"a"], headers=pa.array([[], pairs], PAIRS)).slice(1)

    (message,) = builder(scope=None).messages(batch).rows

    assert message.user_headers == encode_user_headers({"n": HeaderValue.uint8(5), "r": b"raw"})


def test_ids_when_given_as_text_then_are_read_as_uuids():
    mine = uuid.uuid4()

    made = builder(scope=None).messages(rows(payload=[b"a", b"b"], id=[str(mine), None]))

    assert ids(made) == [int.from_bytes(mine.bytes, "little"), 0]


def test_ids_when_rows_go_elsewhere_then_differ():
    one, other = (builder().messages(rows(payload=[b"a"]), place=name) for name in ("t", "u"))

    assert ids(one) != ids(other)


def test_partitions_when_rows_have_keys_then_are_those_of_the_producer():
    names = [f"k{number}" for number in range(20)]
    made = builder(has_keys=True).messages(rows(payload=names, key=names))

    groups = made.by_key(3, otherwise=0)

    assert {message.payload: number for number, some in groups for message in some} == {
        name.encode(): partition_for_key(name.encode(), 3) for name in names
    }


def test_partitions_when_rows_name_them_then_are_those():
    made = builder(scope=None).messages(rows(payload=[b"a", b"b", b"c"]))

    groups = made.by_number(pa.array([2, None, 0], pa.int64()), 3, otherwise=1)

    assert [(number, [one.payload for one in some]) for number, some in groups] == [
        (0, [b"c"]),
        (1, [b"b"]),
        (2, [b"a"]),
    ]
    for wrong in (3, -1):
        with pytest.raises(InvalidRequestError, match=f"there is no partition {wrong}"):
            made.by_number(pa.array([0, wrong, 0], pa.int64()), 3, otherwise=1)


@pytest.mark.parametrize(
    ("columns", "answer"),
    [
        ({"payload": [b"x", None]}, "row 2 has no payload"),
        ({"payload": [b"x"], "id": [b"short"]}, "row 1: the id b'short' is invalid"),
        ({"payload": [b"x"], "id": ["no uuid"]}, "row 1: the id 'no uuid' is invalid"),
        ({"payload": [b"x"], "key": [""]}, "row 1: a key has 1 to 255 bytes, not 0"),
        (
            {
                "payload": [b"x"],
                "headers": pa.array([[{"key": "a", "kind": "int7", "value": b"x"}]], PAIRS),
            },
            "a header is of kind 'int7'",
        ),
    ],
)
def test_messages_when_a_row_cannot_become_one_then_the_answer_names_it(columns, answer):
    maker = builder(has_keys="key" in columns)
    maker.messages(rows(payload=[b"x"], key=["k"]))

    with pytest.raises(InvalidRequestError) as caught:
        maker.messages(rows(**columns))

    assert caught.value.message.startswith(answer)
