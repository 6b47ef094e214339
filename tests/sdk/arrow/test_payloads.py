"""JSON payloads: what Arrow reads by a schema, and what it must not take for a document."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_sdk.arrow import ArrowRowBuilder, PayloadDecodeError
from iggy_sdk.arrow.settings import arrow_schema
from iggy_sdk.errors import ConfigurationError
from tests.sdk.arrow.test_rows import batch_of

SCHEMA = pa.schema([("id", pa.int64()), ("item", pa.string()), ("tags", pa.list_(pa.string()))])


def read(payloads, *, on_error="raise", schema=SCHEMA):
    wanted = arrow_schema(columns=["payload"], schema=schema, on_error=on_error)
    rows = ArrowRowBuilder(wanted, {}, on_error=on_error).rows(batch_of(payloads, base_offset=10))
    rows.validate(full=True)
    return [row["payload"] for row in rows.to_pylist()]


documents = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "item": st.none() | st.text(st.characters(codec="utf-8")),
        "tags": st.none() | st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=3),
        "unknown": st.integers() | st.lists(st.booleans()),
    },
)
WRITERS = (
    lambda value: json.dumps(value),
    lambda value: json.dumps(value, ensure_ascii=False),
    lambda value: json.dumps(value, indent=2),
    lambda value: json.dumps(value, indent=1).replace("\n", "\r\n") + "\r\n",
)


@given(st.lists(st.tuples(documents, st.sampled_from(WRITERS)), min_size=1, max_size=20))
def test_json_when_written_in_any_way_then_is_read_as_json_reads_it(sent):
    payloads = [write(document).encode() for document, write in sent]

    assert read(payloads) == [
        {name: document.get(name) for name in SCHEMA.names} for document, _ in sent
    ]


def test_json_when_it_says_null_then_the_value_is_missing():
    assert read([b"null", b'{"id": null}']) == [None, {"id": None, "item": None, "tags": None}]


NO_DOCUMENT = {
    "empty": b"",
    "blank": b" \n",
    "cut": b'{"id": 1',
    "cut in text": b'{"item": "x',
    "two": b'{"id": 1} {"id": 2}',
    "two lines": b'{"id": 1}\n{"id": 2}',
    "breaks out": b'{"id": 1}}\n{"payload":{"id": 2}',
    "no json": b"hello",
    "a number": b"5",
    "a list": b"[]",
    "another type": b'{"id": "x"}',
    "a fraction": b'{"id": 1.5}',
    "too large": b'{"id": 9223372036854775808}',
    "a line break in text": b'{"item": "a\nb"}',
    "no text": b'{"item": "\xff"}',
    "a name twice": b'{"id": 1, "id": 2}',
    "a zero byte": b'{"id": 1}\0',
    "the rest of another": b', "id": 2}',
}


@pytest.mark.parametrize("payload", NO_DOCUMENT.values(), ids=NO_DOCUMENT)
@pytest.mark.parametrize("place", [0, 3, 6])
def test_json_when_a_payload_is_no_document_then_that_one_is_named(payload, place):
    payloads = [b'{"id": %d}' % number for number in range(7)]
    payloads[place] = payload

    with pytest.raises(PayloadDecodeError) as caught:
        read(payloads)

    assert (caught.value.partition_id, caught.value.offset) == (3, 10 + place)
    assert f"message {10 + place} in partition 3 cannot be read: " in str(caught.value)
    assert 'on_error="null"' in caught.value.advice


@given(
    st.lists(
        st.sampled_from([b'{"id": 1}', *NO_DOCUMENT.values()])
        | st.text(st.sampled_from('{}[]",:1 \n\\"payload')).map(str.encode),
        min_size=1,
        max_size=20,
    )
)
def test_json_when_bad_payloads_may_be_missing_then_the_others_are_read_in_their_rows(payloads):
    alone = [read([payload], on_error="null")[0] for payload in payloads]

    assert read(payloads, on_error="null") == alone
    for payload, value in zip(payloads, alone, strict=True):
        assert value is None or json.loads(payload).get("id") == value["id"]


def test_error_when_pickled_then_is_the_same():
    error = PayloadDecodeError("why", partition_id=1, offset=2)

    again = pickle.loads(pickle.dumps(error))

    assert (str(again), again.partition_id, again.offset) == (str(error), 1, 2)


def test_schema_when_arrow_cannot_read_it_from_json_then_is_refused_at_once():
    with pytest.raises(ConfigurationError, match="Arrow cannot read from JSON"):
        arrow_schema(schema=pa.schema([("a", pa.dense_union([pa.field("x", pa.int8())]))]))


def test_json_when_values_have_times_and_decimals_then_arrow_reads_them():
    schema = pa.schema(
        [("at", pa.timestamp("us")), ("price", pa.decimal128(10, 2)), ("ok", pa.bool_())]
    )

    [row] = read([b'{"at": "2026-01-31T12:00:00", "price": "4.20", "ok": true}'], schema=schema)

    assert (str(row["at"]), str(row["price"]), row["ok"]) == ("2026-01-31 12:00:00", "4.20", True)
