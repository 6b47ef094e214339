"""From a poll to rows: every column is what reading message by message gives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import NewMessage, encode_user_headers
from iggy_sdk.arrow import ArrowRowBuilder, PayloadDecodeError
from iggy_sdk.arrow.settings import arrow_schema
from iggy_sdk.compression import Compression
from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import DecryptionError, SerdeError
from iggy_sdk.message import Message
from iggy_sdk.pipeline import Pipeline
from tests.sdk.api.polling import polled

NAMES: dict[str, str | int] = {"stream": "s", "topic": "t", "partition": 3}
ALL = [*arrow_schema().names, "headers", "checksum"]

header_values = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    st.binary(min_size=1, max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.floats(allow_nan=False),
)
messages = st.builds(
    Message,
    st.binary(max_size=200),
    headers=st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(
            lambda name: len(name.encode()) <= 255
        ),
        header_values,
        max_size=3,
    ),
    id=st.integers(0, 2**128 - 1),
)


def rows_of(batch, schema=None, *, end=None, begin=0, **options):
    builder = ArrowRowBuilder(
        arrow_schema(columns=ALL) if schema is None else schema, NAMES, **options
    )
    return builder.rows(batch, end, begin=begin)


def batch_of(sent, pipeline=None, reader=None, **where):
    pipeline = Pipeline() if pipeline is None else pipeline
    made: Any = polled(pipeline.encode_batch(sent), **where)
    return (pipeline if reader is None else reader).batch(made, stream="s", topic="t")


def expected(message):
    """Read a message as the columns show it."""
    return {
        "stream": "s",
        "topic": "t",
        "partition": 3,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "origin_timestamp": message.origin_timestamp,
        "id": message.uuid.bytes,
        "payload": message.payload,
        "headers": [(key.value, value.raw) for key, value in message.typed_headers.items()],
        "checksum": int.from_bytes(message.checksum.to_bytes(8, "little"), "little", signed=True),
    }


PIPELINES = {
    "plain": Pipeline(),
    "compressed": Pipeline(compression=Compression("gzip", threshold=10)),
    "sealed": Pipeline(encryptor=Encryptor.aes256_gcm(bytes(32))),
    "both": Pipeline(
        compression=Compression("gzip", threshold=10), encryptor=Encryptor.aes256_gcm(bytes(32))
    ),
}


@pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES)
@given(
    sent=st.lists(messages, min_size=1, max_size=20),
    base=st.integers(0, 2**40),
    cut=st.tuples(st.integers(0, 25), st.integers(0, 25)),
)
def test_rows_when_made_of_any_messages_then_are_what_the_messages_say(pipeline, sent, base, cut):
    batch = batch_of(sent, pipeline, base_offset=base)
    begin, end = base + min(cut), base + max(cut)

    rows = rows_of(batch, begin=begin, end=end)

    rows.validate(full=True)
    assert rows.to_pylist() == [
        expected(message) for message in batch if begin <= message.offset < end
    ]


def test_rows_when_a_key_of_a_header_is_no_text_then_it_is_written_as_one():
    headers = encode_user_headers({"plain": b"x"})
    strange = headers.replace(b"\x02\x05\x00\x00\x00plain", b"\x01\x02\x00\x00\x00\xff\x00")
    assert strange != headers
    batch = batch_of([NewMessage(b"", 0, strange, None)])

    [row] = rows_of(batch).to_pylist()

    assert row["headers"] == [("\\xff\x00", b"x")]


def test_rows_when_headers_cannot_be_read_then_they_are_missing():
    batch = batch_of([NewMessage(b"a", 0, b"\x09junk", None), Message(b"b", headers={"k": "v"})])

    assert [row["headers"] for row in rows_of(batch).to_pylist()] == [None, [("k", b"v")]]


def test_rows_when_no_column_is_wanted_then_they_are_still_counted():
    batch = batch_of([b"a", b"b"])

    assert rows_of(batch, pa.schema([])).num_rows == 2


SEALED_BY_ANOTHER = Pipeline(encryptor=Encryptor.aes256_gcm(b"\1" * 32))


def test_rows_when_a_payload_cannot_be_opened_then_the_error_says_which():
    batch = batch_of([b"a", b"b"], SEALED_BY_ANOTHER, PIPELINES["sealed"], base_offset=7)

    with pytest.raises(DecryptionError, match="message 7 of partition 3: "):
        rows_of(batch)


def test_rows_when_a_payload_cannot_be_opened_and_may_be_missing_then_it_is():
    plain = Pipeline[bytes](encryptor=None)
    sealed = PIPELINES["sealed"]
    sent = [*sealed.encode_batch([Message(b"a")]), *plain.encode_batch([Message(b"not sealed")])]
    made = polled(sent)
    schema = arrow_schema(columns=["offset", "payload"], on_error="null")

    rows = rows_of(sealed.batch(made), schema, on_error="null")

    assert rows.to_pylist() == [{"offset": 40, "payload": b"a"}, {"offset": 41, "payload": None}]


def test_rows_when_a_compression_is_unknown_then_the_error_says_which():
    batch = batch_of([b"a", Message(b"b", headers={"content-encoding": "magic"})])

    with pytest.raises(SerdeError, match=r"message 41 of partition 3: .*magic"):
        rows_of(batch)


@pytest.mark.parametrize(
    "pipeline", [PIPELINES["sealed"], PIPELINES["compressed"]], ids=["sealed", "compressed"]
)
def test_errors_of_a_batch_when_all_can_be_opened_then_there_are_none(pipeline):
    assert batch_of([b"a" * 100, Message(b"b", headers={"k": "v"})], pipeline).errors() == {}


def test_rows_when_payloads_are_wanted_as_text_then_those_that_are_none_are_named():
    schema = arrow_schema(columns=["payload"], schema=pa.string())
    good, bad = batch_of(["café", ""]), batch_of([b"ok", b"\xff", b"\xfe"])

    with pytest.raises(PayloadDecodeError) as caught:
        rows_of(bad, schema)

    assert rows_of(good, schema).to_pylist() == [{"payload": "café"}, {"payload": ""}]
    assert (caught.value.partition_id, caught.value.offset) == (3, 41)
    assert rows_of(bad, schema, on_error="null").to_pylist() == [
        {"payload": "ok"},
        {"payload": None},
        {"payload": None},
    ]
    # What is not asked for is not looked at.
    assert rows_of(bad, schema, end=41).to_pylist() == [{"payload": "ok"}]
