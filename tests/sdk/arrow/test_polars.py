"""Topics as lazy frames of Polars, from a real server."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iggy_sdk import IggyClient as AsyncIggyClient
from iggy_sdk import Message
from iggy_sdk.blocking import IggyClient
from iggy_sdk.errors import ClientClosedError, ConfigurationError
from iggy_sdk.polars import scan_iggy
from iggy_sdk.testing.server import in_test_protocol

pytestmark = pytest.mark.timeout(90)

SERVER_SETTINGS = {"IGGY_SYSTEM_SEGMENT_SIZE": "5 KiB"}


@pytest.fixture(scope="module")
def url(server):
    return in_test_protocol("iggy://iggy:iggy@{}:{}".format(*server.address))


@pytest.fixture(scope="module")
def client(url):
    """Connect to a topic of two partitions with 20 orders each."""
    with IggyClient(url) as opened:
        opened.create_stream("shop")
        opened.create_topic("shop", "orders", 2)
        for partition in range(2):
            orders = [
                Message(b'{"id": %d, "item": "tea"}' % number, headers={"n": str(number)})
                for number in range(20)
            ]
            opened.send_messages("shop", "orders", orders[:10], partition_id=partition)
            opened.send_messages("shop", "orders", orders[10:], partition_id=partition)
        yield opened


def polls(client):
    """Count the requests of this client."""
    return client.statistics().session.connection.frames_out


def test_frame_when_collected_then_has_all_rows_and_columns(client):
    frame = scan_iggy(client, "shop", "orders", headers=True).collect()

    assert frame.shape == (40, 9)
    assert frame.schema == {
        "stream": pl.String,
        "topic": pl.String,
        "partition": pl.Int32,
        "offset": pl.Int64,
        "timestamp": pl.Datetime("us", "UTC"),
        "origin_timestamp": pl.Datetime("us", "UTC"),
        "id": pl.Binary,
        "payload": pl.Binary,
        "headers": frame.schema["headers"],
    }
    assert frame["headers"].to_arrow()[21].as_py() in ([("n", b"1")], [{"key": "n", "value": b"1"}])
    assert frame.equals(pl.DataFrame(client.read_arrow("shop", "orders", headers=True)))


def test_frame_when_a_connection_string_is_given_then_each_collect_connects(client, url):
    lazy = scan_iggy(url, "shop", "orders").select("offset")

    assert lazy.collect().height == lazy.collect().height == 40


def test_frame_when_grouped_and_joined_then_polars_does_the_rest(client):
    schema = pa.schema([("id", pa.int64()), ("item", pa.string())])
    orders = scan_iggy(client, "shop", "orders", schema=schema)

    sums = (
        orders.group_by("partition")
        .agg(pl.col("payload").struct.field("id").sum())
        .sort("partition")
    )

    assert sums.collect().rows() == [(0, 190), (1, 190)]


def test_frame_when_only_counted_then_needs_no_payloads(client):
    assert scan_iggy(client, "shop", "orders").select(pl.len()).collect().item() == 40


def test_frame_when_the_head_is_wanted_then_that_is_the_beginning(client):
    lazy = scan_iggy(client, "shop", "orders").select("partition", "offset")

    assert lazy.head(3).collect().rows() == [(0, 0), (0, 1), (0, 2)]
    assert lazy.head(0).collect().rows() == []
    assert lazy.head(22).filter(pl.col("offset") < 2).collect().rows() == [
        (0, 0), (0, 1), (1, 0), (1, 1),
    ]  # fmt: skip
    limited = scan_iggy(client, "shop", "orders", limit=25).select("partition", "offset")
    assert limited.filter(pl.col("partition") == 1).collect().height == 5
    assert limited.head(1).collect().height == 1


def test_frame_when_filtered_by_offset_then_little_is_polled(client):
    lazy = scan_iggy(client, "shop", "orders", batch_bytes=1)
    before = polls(client)
    assert lazy.select("offset").collect().height == 40
    between = polls(client)

    found = lazy.filter(pl.col("offset") == 19, pl.col("partition") == 1).select("offset").collect()

    assert found.rows() == [(19,)]
    assert between - before > 40
    assert polls(client) - between < 8


def test_frame_when_filtered_by_time_then_the_server_finds_the_offsets(client):
    lazy = scan_iggy(client, "shop", "orders", batch_bytes=1)
    times = lazy.select("partition", "timestamp").collect().filter(pl.col("partition") == 0)
    second = times["timestamp"].unique().sort()[-1]
    before = polls(client)

    late = lazy.filter(pl.col("partition") == 0, pl.col("timestamp") >= second)
    assert late.select("offset").collect()["offset"].to_list() == list(range(10, 20))
    assert polls(client) - before < 20

    early = lazy.filter(pl.col("partition") == 0, pl.col("timestamp") < second)
    assert early.select("offset").collect()["offset"].to_list() == list(range(10))
    later = lazy.filter(pl.col("timestamp") > second + timedelta(hours=1))
    assert later.collect().height == 0


numbers = st.integers(-1, 21)
predicates = st.recursive(
    st.builds(lambda number: pl.col("offset") > number, numbers)
    | st.builds(lambda number: pl.col("offset") <= number, numbers)
    | st.builds(lambda number: pl.col("partition") == number, st.integers(0, 2))
    | st.builds(lambda few: pl.col("offset").is_in(few), st.lists(numbers, min_size=1))
    | st.builds(lambda one, two: pl.col("offset").is_between(one, two), numbers, numbers)
    | st.builds(lambda size: pl.col("payload").bin.size() == size, st.integers(22, 23)),
    lambda inner: (
        st.builds(lambda one, two: one & two, inner, inner)
        | st.builds(lambda one, two: one | two, inner, inner)
        | st.builds(lambda one: ~one, inner)
    ),
    max_leaves=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(predicate=predicates, columns=st.sampled_from([["offset"], ["payload", "offset"], ["id"]]))
def test_frame_when_filtered_in_any_way_then_is_what_polars_keeps_of_all(
    client, predicate, columns
):
    lazy = scan_iggy(client, "shop", "orders")

    assert (
        lazy.filter(predicate)
        .select(columns)
        .collect()
        .equals(lazy.collect().filter(predicate).select(columns))
    )


def test_scan_when_the_client_does_not_block_then_the_answer_helps():
    with pytest.raises(ConfigurationError, match=r"iggy_sdk.blocking.IggyClient, or give a conn"):
        scan_iggy(AsyncIggyClient(), "shop", "orders")  # type: ignore[arg-type]  # the mistake


def test_frame_when_the_client_is_closed_then_collecting_fails(url):
    with IggyClient(url) as opened:
        lazy = scan_iggy(opened, "shop", "orders")

    with pytest.raises((ClientClosedError, pl.exceptions.ComputeError), match="not open"):
        lazy.collect()
