"""From rows to messages: ids that come back, and what each column becomes."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_sdk import HeaderValue
from spark_jobs import SchemaError
from spark_jobs.writer import ROW_BITS, RowMessageBuilder


def rows(**columns):
    return pa.RecordBatch.from_pydict(columns)


def ids(maker, count):
    return [message.id for message in maker.messages(rows(payload=[b"x"] * count))]


@given(cuts=st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_ids_when_a_task_is_repeated_in_other_batches_then_are_the_same(cuts):
    whole = ids(RowMessageBuilder("query:1:0", has_keys=False), sum(cuts))
    maker = RowMessageBuilder("query:1:0", has_keys=False)

    pieces = [one for cut in cuts for one in ids(maker, cut)]

    assert pieces == whole
    assert len(set(whole)) == len(whole)
    assert maker.rows_count == sum(cuts)
    assert all(0 < one < 2**128 for one in whole)


def test_ids_when_anything_about_the_task_differs_then_share_nothing():
    scopes = ["q:1:0", "q:1:1", "q:2:0", "r:1:0"]
    made = [set(ids(RowMessageBuilder(scope, has_keys=False), 100)) for scope in scopes]

    assert len(set().union(*made)) == 400


def test_ids_when_a_task_has_very_many_rows_then_go_on_without_repeating():
    maker = RowMessageBuilder("q:1:0", has_keys=False)
    first = ids(maker, 3)
    maker._rows_count = (1 << ROW_BITS) - 2

    later = ids(maker, 4)

    assert len({*first, *later}) == 7
    assert [one & 0xFFFF_FFFF for one in later] == [2**32 - 2, 2**32 - 1, 0, 1]


def test_messages_when_there_is_nothing_but_payloads_then_are_plain_bytes():
    maker = RowMessageBuilder(None, has_keys=False)

    assert maker.messages(rows(payload=["café", "b"])) == ["café".encode(), b"b"]


def test_messages_when_all_columns_are_there_then_each_becomes_a_field():
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    mine = uuid.UUID(int=5)
    maker = RowMessageBuilder("q:1:0", has_keys=True)

    first, second = maker.messages(
        rows(
            payload=[b"a", b"b"],
            key=["k", None],
            id=[mine.bytes, None],
            origin_timestamp=pa.array([moment, None], pa.timestamp("us", "UTC")),
            headers=pa.array([[("h", "v"), ("n", None)], None], pa.map_(pa.string(), pa.string())),
            offset=[1, 2],
        )
    )

    assert (first.value, first.key, first.headers) == (b"a", "k", {"h": "v"})
    assert first.id == int.from_bytes(mine.bytes, "little")
    assert first.origin_timestamp_us == int(moment.timestamp() * 1_000_000)
    assert (second.key, second.headers, second.origin_timestamp_us) == (None, None, None)
    assert second.id == ids(RowMessageBuilder("q:1:0", has_keys=False), 2)[1]


def test_ids_when_given_as_text_then_are_read_as_uuids():
    maker = RowMessageBuilder(None, has_keys=False)
    mine = uuid.uuid4()

    (message,) = maker.messages(rows(payload=[b"a"], id=[str(mine)]))

    assert message.id == int.from_bytes(mine.bytes, "little")


def test_headers_when_given_as_a_list_then_keep_their_kinds():
    kind = pa.list_(
        pa.struct([("key", pa.string()), ("kind", pa.string()), ("value", pa.binary())])
    )
    pairs = [
        {"key": "n", "kind": "uint8", "value": b"\x05"},
        {"key": "r", "kind": None, "value": b"raw"},
        {"key": "gone", "kind": "raw", "value": None},
    ]
    maker = RowMessageBuilder(None, has_keys=False)

    (message,) = maker.messages(rows(payload=[b"a"], headers=pa.array([pairs], kind)))

    assert message.headers == {"n": HeaderValue.uint8(5), "r": HeaderValue.raw_bytes(b"raw")}


@pytest.mark.parametrize(
    ("columns", "answer"),
    [
        ({"payload": [b"x", None]}, "row 1 of the task has no payload; filter"),
        ({"payload": [b"x"], "id": [b"short"]}, "the id b'short' is invalid; give 16 bytes"),
        ({"payload": [b"x"], "id": ["no uuid"]}, "the id 'no uuid' is invalid"),
        (
            {"payload": [b"x"], "headers": [[{"key": "a", "kind": "int7", "value": b"x"}]]},
            "header 'a' is of kind 'int7'; kinds are raw, string",
        ),
    ],
)
def test_messages_when_a_row_cannot_become_one_then_the_answer_helps(columns, answer):
    with pytest.raises(SchemaError) as caught:
        RowMessageBuilder("q", has_keys=False).messages(rows(**columns))

    assert answer in str(caught.value)
