"""Columns: schemas that are taken or refused, and what headers look like in each form."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from iggy_sdk import Encryptor, HeaderKey, HeaderValue, Message
from iggy_sdk.blocking import IggyClient
from spark_jobs import IggyDataSource, SchemaError
from spark_jobs.schema import check_read_schema, check_write_schema, read_schema
from spark_jobs.topics import POLL_CONSUMER

TEXT, BYTES = StringType(), BinaryType()
HEADER_LIST = ArrayType(
    StructType([StructField("key", TEXT), StructField("kind", TEXT), StructField("value", BYTES)])
)
BINARY_MAP, TEXT_MAP = MapType(TEXT, BYTES), MapType(TEXT, TEXT)


def columns(**kinds):
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def read(options, schema):
    source = IggyDataSource(CaseInsensitiveDict(options))
    reader = source.reader(schema)
    return [
        row for one in reader.partitions() for rows in reader.read(one) for row in rows.to_pylist()
    ]


def test_schema_when_headers_are_wanted_then_they_come_last():
    assert read_schema(include_headers=True).fieldNames()[-1] == "headers"
    assert "headers" not in read_schema(include_headers=False).fieldNames()


@pytest.mark.parametrize(
    "schema",
    [
        read_schema(include_headers=True),
        columns(payload=TEXT),
        columns(headers=TEXT_MAP, checksum=LongType()),
        columns(headers=HEADER_LIST, timestamp=LongType()),
        columns(),
    ],
)
def test_read_schema_when_it_fits_a_topic_then_is_taken(schema):
    check_read_schema(schema)


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        (columns(value=BYTES), "no column 'value'; choose from stream, topic, partition"),
        (columns(paylod=BYTES), "no column 'paylod'; did you mean payload?"),
        (columns(offset=TEXT), "column offset is string; cast it to bigint"),
        (columns(payload=LongType()), "column payload is bigint; cast it to binary or string"),
        (columns(headers=TEXT), "column headers is string; cast it to map<string,binary> or map<s"),
    ],
)
def test_read_schema_when_it_does_not_fit_then_the_answer_helps(schema, answer):
    with pytest.raises(SchemaError) as caught:
        check_read_schema(schema)

    assert answer in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        read_schema(include_headers=True),
        columns(payload=TEXT, key=TEXT, partition=ShortType(), id=TEXT),
        columns(payload=BYTES, key=BYTES, origin_timestamp=TimestampType()),
        columns(payload=BYTES, headers=MapType(TEXT, DoubleType())),
        columns(payload=BYTES, headers=MapType(TEXT, BooleanType()), checksum=LongType()),
        columns(payload=BYTES, headers=HEADER_LIST),
    ],
)
def test_write_schema_when_it_fits_messages_then_is_taken(schema):
    check_write_schema(schema)


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        (
            columns(value=BYTES),
            "no column payload (binary or string); make one, for example with df",
        ),
        (columns(payload=IntegerType()), "column payload is int; cast it to binary or string"),
        (columns(payload=TEXT, keys=TEXT), "no column 'keys'; did you mean key?, or drop it"),
        (columns(payload=TEXT, price=TEXT), "no column 'price'; choose from topic, payload, key"),
        (columns(payload=TEXT, partition=TEXT), "column partition is string; cast it to int or b"),
    ],
)
def test_write_schema_when_it_does_not_fit_then_the_answer_helps(schema, answer):
    with pytest.raises(SchemaError) as caught:
        check_write_schema(schema)

    assert answer in str(caught.value)


@pytest.fixture
def sent(client, stream):
    """Send messages with headers of many kinds, and one without any."""
    client.create_topic(stream, "t", 1)
    many: dict[str, Any] = {
        "text": "café",
        "raw": b"\x00\xff",
        "flag": True,
        "int": -5,
        "small": HeaderValue.uint8(200),
        "float": 0.5,
    }
    odd = {HeaderKey.int32(7): "seven", HeaderKey.raw_bytes(b"\xff"): "bytes"}
    messages = [
        Message(b"many", headers=many),
        Message(b"none"),
        Message(b"odd", headers=odd),
        Message(b"text", headers={"a": "b"}),
    ]
    client.send_messages(stream, "t", messages, partition_id=0)
    return many


def test_headers_when_wanted_as_bytes_then_values_are_those_of_the_wire(sent, options):
    rows = read(options, columns(headers=BINARY_MAP))

    assert dict(rows[0]["headers"]) == {
        "text": "café".encode(),
        "raw": b"\x00\xff",
        "flag": b"\x01",
        "int": (-5).to_bytes(8, "little", signed=True),
        "small": b"\xc8",
        "float": bytes.fromhex("000000000000e03f"),
    }
    assert rows[1]["headers"] == []
    assert dict(rows[2]["headers"]) == {"7": b"seven", "\\xff": b"bytes"}


def test_headers_when_wanted_as_text_then_values_are_readable(sent, options):
    rows = read(options, columns(offset=LongType(), headers=TEXT_MAP))

    assert dict(rows[0]["headers"]) == {
        "text": "café",
        "raw": "\x00\\xff",
        "flag": "true",
        "int": "-5",
        "small": "200",
        "float": "0.5",
    }
    assert [row["offset"] for row in rows] == [0, 1, 2, 3]
    assert dict(rows[3]["headers"]) == {"a": "b"}


def test_headers_when_wanted_as_a_list_then_their_kinds_are_named(sent, options):
    rows = read(options, columns(headers=HEADER_LIST))

    kinds = {pair["key"]: pair["kind"] for pair in rows[0]["headers"]}
    assert kinds == {
        "text": "string",
        "raw": "raw",
        "flag": "bool",
        "int": "int64",
        "small": "uint8",
        "float": "float64",
    }
    assert rows[3]["headers"] == [{"key": "a", "kind": "string", "value": b"b"}]


def test_headers_when_a_block_cannot_be_read_then_only_that_row_has_none(client, stream, options):
    client.create_topic(stream, "t", 1)
    good = Message(b"good", headers={"a": "b"})
    client.send_messages(stream, "t", [broken_headers(b"bad"), good], partition_id=0)

    rows = read(options, columns(payload=BYTES, headers=BINARY_MAP))

    assert rows[0] == {"payload": b"bad", "headers": None}
    assert dict(rows[1]["headers"]) == {"a": b"b"}


def broken_headers(payload):
    from iggy_protocol import NewMessage

    return NewMessage(payload, 0, b"\x09junk", None)


def test_payload_when_wanted_as_text_and_is_none_then_the_answer_helps(client, stream, options):
    client.create_topic(stream, "t", 1)
    client.send_messages(stream, "t", [b"\xff"], partition_id=0)

    with pytest.raises(SchemaError, match=r"message 0 of partition 0 is not UTF-8; use binary"):
        read(options, columns(payload=TEXT))


def test_numbers_when_wanted_as_such_then_times_are_microseconds(client, topic, options):
    topic(counts=(1,))
    schema = columns(
        timestamp=LongType(), origin_timestamp=LongType(), checksum=LongType(), id=BYTES
    )

    (row,) = read(options, schema)

    assert row["timestamp"] >= row["origin_timestamp"] > 1_600_000_000_000_000
    assert row["checksum"] != 0
    assert len(row["id"]) == 16


def test_rows_when_no_column_is_wanted_then_they_are_still_counted(topic, options):
    topic(counts=(4,))
    source = IggyDataSource(CaseInsensitiveDict(options))
    reader = source.reader(columns())

    assert [rows.num_rows for one in reader.partitions() for rows in reader.read(one)] == [4]


def test_columns_of_a_batch_when_messages_are_sealed_then_payloads_are_opened(spark_server, stream):
    with IggyClient(spark_server.url, encryptor=Encryptor.aes256_gcm(bytes(32))) as sealing:
        sealing.create_topic(stream, "t", 1)
        sealing.send_messages(stream, "t", [b"one", b"", b"three"], partition_id=0)
        batch = sealing.poll_messages(stream, "t", consumer=POLL_CONSUMER, count=10)

        made, without = batch.columns(), batch.columns(payloads=False)

    assert list(memoryview(made.payload_bounds or b"").cast("i")) == [0, 3, 3, 8]
    assert made.payloads == b"onethree"
    assert (without.payloads, without.offsets) == (None, made.offsets)
