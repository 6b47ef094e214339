"""Reading topics of a real server as Arrow, in each protocol that it speaks."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_sdk import ConsumerIdentity, Encryptor, Message, PollingStrategy
from iggy_sdk.arrow import PayloadDecodeError
from iggy_sdk.blocking import IggyClient as BlockingClient
from iggy_sdk.client import IggyClient
from iggy_sdk.errors import (
    ClientClosedError,
    PartitionNotFoundError,
    RequestTimeoutError,
    StreamNotFoundError,
    TopicNotFoundError,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

SERVER_SETTINGS = {"IGGY_SYSTEM_SEGMENT_SIZE": "5 KiB"}
READER = ConsumerIdentity.single("test")


def url_of(server, way):
    if way == "http":
        return f"iggy+http://iggy:iggy@{server.current_config()['http']['address']}"
    return "iggy://iggy:iggy@{}:{}?protocol={}".format(*server.address, way)


@pytest.fixture(params=["0.8", "0.9", "0.10", "http"])
def url(server, request):
    """Name the server in each protocol."""
    return url_of(server, request.param)


@pytest.fixture
def stream(request):
    """Choose a name that no other test has."""
    return re.sub(r"\W+", "_", request.node.nodeid)[-200:]


async def fill(client, stream, *counts, topic="t"):
    """Make a topic and send so many messages to each partition."""
    await client.create_stream(stream, exist_ok=True)
    await client.create_topic(stream, topic, len(counts))
    for partition, count in enumerate(counts):
        sent = [Message(b"%d-%d" % (partition, n), headers={"n": n}) for n in range(count)]
        if sent:
            await client.send_messages(stream, topic, sent, partition_id=partition)


def places(table):
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


async def test_topic_when_read_then_has_what_polling_message_by_message_has(url, stream):
    async with IggyClient(url) as client:
        await fill(client, stream, 3, 0, 25)
        polled = [
            message
            for partition in range(3)
            for message in await client.poll_messages(
                stream,
                "t",
                consumer=READER,
                partition_id=partition,
                strategy=PollingStrategy.first(),
                count=100,
            )
        ]

        table = await client.read_arrow(stream, "t", headers=True)

    table.validate(full=True)
    assert table.to_pylist() == [
        {
            "stream": stream,
            "topic": "t",
            "partition": message.partition_id,
            "offset": message.offset,
            "timestamp": message.timestamp,
            "origin_timestamp": message.origin_timestamp,
            "id": message.uuid.bytes,
            "payload": message.payload,
            "headers": [(key.value, value.raw) for key, value in message.typed_headers.items()],
        }
        for message in polled
    ]


async def test_topic_when_bounds_are_given_then_only_what_is_between_is_read(url, stream):
    async with IggyClient(url) as client:
        await fill(client, stream, 10, 10)
        read = partial(client.read_arrow, stream, "t", columns=["partition", "offset"])

        assert places(await read(start=8)) == [(0, 8), (0, 9), (1, 8), (1, 9)]
        assert places(await read(end=1)) == [(0, 0), (1, 0)]
        assert places(await read(start=5, end=5)) == []
        assert places(await read(start=7, end=3)) == []
        assert places(await read(start="latest")) == []
        assert places(await read(end="earliest")) == []
        assert places(await read(start={0: 9, 1: "latest"})) == [(0, 9)]
        assert places(await read(start=9, end={1: "earliest"})) == [(0, 9)]
        assert places(await read(start=9, end=1000, partitions=[1])) == [(1, 9)]
        assert places(await read(start=8, limit=3)) == [(0, 8), (0, 9), (1, 8)]
        assert (await read(limit=0)).num_rows == 0


async def test_topic_when_bounds_are_times_then_the_server_finds_them(url, stream):
    async with IggyClient(url) as client:
        await fill(client, stream, 5)
        await client.send_messages(stream, "t", [b"late"], partition_id=0)
        table = await client.read_arrow(stream, "t")
        first, last = (table["timestamp"].to_pylist()[index] for index in (0, -1))
        assert first < last
        read = partial(client.read_arrow, stream, "t", columns=["offset"])

        assert (await read(start=last))["offset"].to_pylist() == [5]
        assert (await read(end=last))["offset"].to_pylist() == [0, 1, 2, 3, 4]
        assert (await read(start=last + timedelta(hours=1))).num_rows == 0
        assert (await read(start=first, end=datetime.now(UTC) + timedelta(hours=1))).num_rows == 6
        assert (await read(end=datetime(1960, 1, 1, tzinfo=UTC))).num_rows == 0


async def test_topic_when_retention_took_its_beginning_then_the_rest_is_read(url, stream):
    async with IggyClient(url) as client:
        await client.create_stream(stream)
        await client.create_topic(stream, "t", 1)
        for number in range(40):
            await client.send_messages(stream, "t", [b"%04d" % number * 100], partition_id=0)
        reading = client.arrow_batches(stream, "t", columns=["offset"], batch_bytes=3000)
        async with reading as batches:
            seen = (await anext(batches))["offset"].to_pylist()
            await client.delete_segments(stream, "t", 0, 2)
            seen += [offset async for batch in batches for offset in batch["offset"].to_pylist()]
        polled = await client.poll_messages(
            stream, "t", consumer=READER, strategy=PollingStrategy.first(), count=1
        )
        oldest = polled.first_offset
        assert oldest is not None
        assert oldest > 3
        table = await client.read_arrow(stream, "t", columns=["offset"])
        inside = await client.read_arrow(stream, "t", columns=["offset"], start=1, end=oldest + 1)
        before = await client.read_arrow(stream, "t", columns=["offset"], start=0, end=oldest)

    assert seen == sorted(set(seen))
    assert set(range(oldest, 40)) <= set(seen)
    assert table["offset"].to_pylist() == list(range(oldest, 40))
    assert inside["offset"].to_pylist() == [oldest]
    assert before.num_rows == 0


async def test_topic_when_it_is_empty_then_the_table_has_columns_and_no_rows(url, stream):
    schema = pa.schema([("a", pa.int64())])
    async with IggyClient(url) as client:
        await fill(client, stream, 0, 0)

        table = await client.read_arrow(stream, "t", headers=True, schema=schema)

    assert table.num_rows == 0
    assert table.column_names[-2:] == ["payload", "headers"]
    assert table.schema.field("payload").type == pa.struct(schema)


async def test_topic_when_read_by_numbers_then_the_columns_have_its_names(url, stream):
    async with IggyClient(url) as client:
        await fill(client, stream, 1, topic="orders")
        found = await client.get_stream(stream, required=True)

        table = await client.read_arrow(found.id, found.topics[0].id, columns=["topic", "stream"])

    assert table.to_pylist() == [{"topic": "orders", "stream": stream}]


async def test_topic_when_payloads_are_json_then_they_become_columns(url, stream):
    schema = pa.schema([("id", pa.int64()), ("item", pa.string())])
    async with IggyClient(url) as client:
        await fill(client, stream, 0)
        orders = [b'{"id": %d, "item": "tea", "more": []}' % number for number in range(500)]
        await client.send_messages(stream, "t", orders, partition_id=0)

        table = await client.read_arrow(
            stream, "t", columns=["payload"], schema=schema, batch_bytes=5000
        )

    assert table["payload"].to_pylist() == [{"id": n, "item": "tea"} for n in range(500)]


async def test_consumer_when_a_payload_cannot_be_read_then_it_is_not_acknowledged(url, stream):
    schema = pa.schema([("a", pa.int64())])
    async with IggyClient(url) as client:
        await fill(client, stream, 0)
        payloads = [b'{"a": 1}', b"bad", b'{"a": 3}']
        await client.send_messages(stream, "t", payloads, partition_id=0)
        async with client.consumer("c", stream, "t", until_end=True) as consumer:
            batches = consumer.arrow_batches(columns=["payload"], schema=schema)
            for _ in range(2):
                with pytest.raises(PayloadDecodeError, match="message 1 in partition 0"):
                    await anext(batches)
            nothing = await client.get_consumer_offset(
                stream, "t", consumer=ConsumerIdentity.single("c")
            )
            loose = consumer.arrow_batches(columns=["payload"], schema=schema, on_error="null")
            [batch] = [batch async for batch in loose]
        stored = await client.get_consumer_offset(
            stream, "t", consumer=ConsumerIdentity.single("c")
        )

    assert batch["payload"].to_pylist() == [{"a": 1}, None, {"a": 3}]
    assert nothing is None
    assert stored is not None
    assert stored.stored_offset == 2


async def test_reader_when_a_payload_cannot_be_read_then_it_is_not_passed_over(url, stream):
    schema = pa.schema([("a", pa.int64())])
    async with IggyClient(url) as client:
        await fill(client, stream, 0)
        payloads = [b'{"a": 1}', b"bad", b'{"a": 3}']
        await client.send_messages(stream, "t", payloads, partition_id=0)
        reading = client.arrow_batches(stream, "t", schema=schema)
        async with reading as batches:
            for _ in range(2):
                with pytest.raises(PayloadDecodeError, match="message 1 in partition 0"):
                    await anext(batches)
        with pytest.raises(ClientClosedError, match="a reader reads once"):
            await reading.__aenter__()


async def test_topic_when_it_is_encrypted_then_it_is_read_with_the_key_of_the_client(url, stream):
    async with IggyClient(url, encryptor=Encryptor.aes256_gcm(bytes(32))) as client:
        await fill(client, stream, 3)

        table = await client.read_arrow(stream, "t", columns=["payload"], headers=True)

    assert table["payload"].to_pylist() == [b"0-0", b"0-1", b"0-2"]
    assert [dict(one)["n"][0] for one in table["headers"].to_pylist()] == [0, 1, 2]


async def test_topic_when_something_is_missing_then_the_error_says_what(url, stream):
    async with IggyClient(url) as client:
        with pytest.raises(StreamNotFoundError):
            await client.read_arrow(stream, "t")
        with pytest.raises(StreamNotFoundError):
            await client.read_arrow(4_000_000, "t")
        await fill(client, stream, 1)
        with pytest.raises(TopicNotFoundError):
            await client.read_arrow(stream, "none")
        with pytest.raises(PartitionNotFoundError, match=r"start names partition 1.*has 1"):
            await client.read_arrow(stream, "t", start={1: 0})
        with pytest.raises(PartitionNotFoundError, match="partitions names partition 5"):
            await client.read_arrow(stream, "t", partitions=[0, 5])


async def test_reader_when_left_in_the_middle_then_the_client_goes_on(url, stream):
    async with IggyClient(url) as client:
        await fill(client, stream, 500)
        async with client.arrow_batches(stream, "t", batch_bytes=1000) as batches:
            assert batches.schema.names[3] == "offset"
            async for batch in batches:
                assert batch["offset"][0].as_py() == 0
                break
        with pytest.raises(ClientClosedError, match=r"async with client.arrow_batches"):
            await anext(batches)

        with anyio.move_on_after(0) as scope:
            await client.read_arrow(stream, "t", batch_bytes=1000)
        assert scope.cancelled_caught

        assert (await client.read_arrow(stream, "t")).num_rows == 500


async def test_read_when_it_takes_too_long_then_the_error_says_what_to_do(url, stream):
    async with IggyClient(url) as client:
        await fill(client, stream, 10)

        with pytest.raises(RequestTimeoutError, match=r"took longer than 0.0 s.*arrow_batches"):
            await client.read_arrow(stream, "t", timeout=0)


# Any part of a topic, compared with what is known of it

COUNTS = (30, 0, 7)


@pytest.fixture(scope="module")
def filled(server):
    """Connect to a topic with known messages, with replies of a few messages each."""
    with BlockingClient(url_of(server, "0.10")) as client:
        client.create_stream("filled")
        client.create_topic("filled", "t", len(COUNTS))
        for partition, count in enumerate(COUNTS):
            payloads = [b"%d-%d" % (partition, number) for number in range(count)]
            if payloads:
                client.send_messages("filled", "t", payloads, partition_id=partition)
        yield client


edges = st.sampled_from(["earliest", "latest"])
bounds = edges | st.integers(0, 35) | st.dictionaries(st.integers(0, 2), edges | st.integers(0, 35))


def offset_of(bound: Any, partition, default):
    """Resolve a bound as the documentation says."""
    if isinstance(bound, dict):
        bound = bound.get(partition, default)
    return {"earliest": 0, "latest": COUNTS[partition]}.get(bound, bound)


@given(
    start=bounds,
    end=bounds,
    partitions=st.none() | st.lists(st.integers(0, 2)),
    limit=st.none() | st.integers(0, 40),
    batch_bytes=st.sampled_from([1, 300, 5000]),
)
def test_part_of_a_topic_when_read_then_is_what_is_known(
    filled, start, end, partitions, limit, batch_bytes
):
    wanted = [
        (partition, offset)
        for partition in sorted({0, 1, 2} if partitions is None else set(partitions))
        for offset in range(COUNTS[partition])
        if offset_of(start, partition, "earliest") <= offset < offset_of(end, partition, "latest")
    ]

    with filled.arrow_batches(
        "filled", "t", start=start, end=end, partitions=partitions, limit=limit,
        batch_bytes=batch_bytes,
    ) as batches:  # fmt: skip
        rows = [row for batch in batches for row in batch.to_pylist()]

    assert [(row["partition"], row["offset"]) for row in rows] == wanted[:limit]
    assert all(row["payload"] == b"%d-%d" % (row["partition"], row["offset"]) for row in rows)


def test_blocking_reader_when_not_open_then_says_so(filled):
    batches = filled.arrow_batches("filled", "t")

    with pytest.raises(ClientClosedError, match=r"with client.arrow_batches"):
        next(batches)
    with batches:
        assert next(batches).num_rows == COUNTS[0]
    with pytest.raises(ClientClosedError):
        next(batches)


def test_blocking_table_when_read_then_has_all(filled):
    assert filled.read_arrow("filled", "t").num_rows == sum(COUNTS)
