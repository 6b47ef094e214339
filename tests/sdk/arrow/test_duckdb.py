"""Topics as tables of DuckDB, from a real server."""

from __future__ import annotations

import pickle

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pyarrow.dataset as ds  # type: ignore[import-untyped]  # the same
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_sdk import IggyClient as AsyncIggyClient
from iggy_sdk import Message
from iggy_sdk.arrow.settings import read_options
from iggy_sdk.blocking import IggyClient
from iggy_sdk.duckdb import TopicDataset, register
from iggy_sdk.errors import ConfigurationError, StreamNotFoundError, TopicNotFoundError
from iggy_sdk.testing.server import in_test_protocol

pytestmark = pytest.mark.timeout(90)

SCHEMA = pa.schema([("id", pa.int64()), ("item", pa.string())])


@pytest.fixture(scope="module")
def client(server):
    """Connect to two streams, one with a topic of two partitions with 20 orders each."""
    url = in_test_protocol("iggy://iggy:iggy@{}:{}".format(*server.address))
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
        opened.create_topic("shop", "empty", 1)
        opened.create_stream('odd "name"')
        opened.create_topic('odd "name"', "select", 1)
        opened.send_messages('odd "name"', "select", [b"x"], partition_id=0)
        yield opened


@pytest.fixture
def connection():
    with duckdb.connect() as opened:
        yield opened


def polls(client):
    """Count the requests of this client."""
    return client.statistics().session.connection.frames_out


def test_tables_when_all_are_registered_then_have_the_names_of_streams_and_topics(
    client, connection
):
    tables = register(connection, client)

    assert sorted(tables) == ['"odd ""name"""."select"', '"shop"."empty"', '"shop"."orders"']
    assert connection.sql("SELECT count(*) FROM shop.orders").fetchall() == [(40,)]
    assert connection.sql("SELECT count(*) FROM shop.empty").fetchall() == [(0,)]
    assert connection.sql('SELECT payload FROM "odd ""name"""."select"').fetchall() == [(b"x",)]


def test_table_when_read_then_has_what_the_topic_has(client, connection):
    register(connection, client, "shop", "orders", headers=True)
    expected = client.read_arrow("shop", "orders", headers=True)

    found = connection.sql("SELECT * FROM shop.orders").to_arrow_table()

    assert found.column_names == expected.column_names
    for name in ("stream", "topic", "partition", "offset", "timestamp", "id", "payload"):
        assert found[name].to_pylist() == expected[name].to_pylist()
    values = "SELECT headers['n'] FROM shop.orders WHERE \"offset\" = 7"
    assert connection.sql(values).fetchall() == [(b"7",), (b"7",)]


def test_table_when_messages_are_sent_then_the_next_query_sees_them(client, connection):
    client.create_topic("shop", "growing", 1)
    register(connection, client, "shop", "growing")
    counting = "SELECT count(*) FROM shop.growing"

    counts = []
    for _ in range(3):
        client.send_messages("shop", "growing", [b"x"], partition_id=0)
        counts += connection.execute(counting).fetchall()

    assert counts == [(1,), (2,), (3,)]


def test_table_when_payloads_are_json_then_its_members_are_columns(client, connection):
    register(connection, client, "shop", "orders", schema=SCHEMA)

    query = "SELECT sum(payload.id), any_value(payload.item) FROM shop.orders WHERE payload.id > 17"

    assert connection.sql(query).fetchall() == [(2 * (18 + 19), "tea")]


def test_table_when_asked_for_offsets_then_little_is_polled(client, connection):
    register(connection, client, "shop", "orders", batch_bytes=1)
    before = polls(client)
    connection.sql('SELECT "offset" FROM shop.orders').fetchall()
    between = polls(client)

    query = 'SELECT "offset", partition FROM shop.orders WHERE "offset" >= 19 AND partition = 1'

    assert connection.sql(query).fetchall() == [(19, 1)]
    assert between - before > 40
    assert polls(client) - between < 8


def test_table_when_asked_for_times_then_the_server_finds_the_offsets(client, connection):
    register(connection, client, "shop", "orders", batch_bytes=1, partitions=[0])
    times = connection.sql("SELECT DISTINCT timestamp FROM shop.orders ORDER BY 1").fetchall()
    assert len(times) == 2
    before = polls(client)

    query = 'SELECT min("offset"), count(*) FROM shop.orders WHERE timestamp >= ?'

    assert connection.execute(query, [times[1][0]]).fetchall() == [(10, 10)]
    assert polls(client) - before < 20


def test_table_when_limited_then_filters_see_only_that_part(client, connection):
    register(connection, client, "shop", "orders", limit=25)

    query = "SELECT count(*) FROM shop.orders WHERE partition = 1"

    assert connection.sql(query).fetchall() == [(5,)]


def test_table_when_the_query_needs_few_rows_then_it_ends_early(client, connection):
    register(connection, client, "shop", "orders", batch_bytes=1)

    for _ in range(20):
        assert len(connection.sql("SELECT payload FROM shop.orders LIMIT 2").fetchall()) == 2

    assert client.read_arrow("shop", "orders").num_rows == 40


def test_tables_when_registered_again_then_the_new_settings_count(client, connection):
    register(connection, client, "shop")
    register(connection, client, "shop", "orders", start=15)

    assert connection.sql("SELECT count(*) FROM shop.orders").fetchall() == [(10,)]


def test_tables_when_given_a_catalog_then_they_are_in_that_one(client, tmp_path):
    with duckdb.connect(tmp_path / "file.db") as connection:
        tables = register(connection, client, "shop", "orders", catalog="iggy")
        assert tables == ['"iggy"."shop"."orders"']
        assert connection.sql("SELECT count(*) FROM iggy.shop.orders").fetchall() == [(40,)]
        register(connection, client, "shop", "empty", catalog="iggy")
    with duckdb.connect(tmp_path / "file.db") as connection:
        views = connection.sql("SELECT view_name FROM duckdb_views() WHERE NOT internal")
        assert views.fetchall() == []


def test_tables_when_something_is_missing_then_the_error_says_what(client, connection):
    with pytest.raises(StreamNotFoundError):
        register(connection, client, "none")
    with pytest.raises(TopicNotFoundError):
        register(connection, client, "shop", "none")
    with pytest.raises(ConfigurationError, match=r"topic is 'orders', without a stream"):
        register(connection, client, topic="orders")
    with pytest.raises(ConfigurationError, match=r"iggy_sdk.blocking.IggyClient"):
        register(connection, AsyncIggyClient())  # type: ignore[arg-type]  # that is the mistake


def test_query_when_a_payload_cannot_be_read_then_it_says_which(client, connection):
    register(connection, client, 'odd "name"', "select", schema=SCHEMA)

    with pytest.raises(duckdb.Error, match="message 0 in partition 0 cannot be read"):
        connection.sql('SELECT payload FROM "odd ""name"""."select"').fetchall()


numbers = st.integers(-1, 21)
conditions = st.recursive(
    st.builds('"offset" {} {}'.format, st.sampled_from(["=", "<", ">=", "<>"]), numbers)
    | st.builds("partition = {}".format, st.integers(0, 2))
    | st.builds('"offset" IN ({}, {})'.format, numbers, numbers)
    | st.builds('"offset" BETWEEN {} AND {}'.format, numbers, numbers)
    | st.builds("octet_length(payload) = {}".format, st.integers(22, 25)),
    lambda inner: (
        st.builds("({} AND {})".format, inner, inner)
        | st.builds("({} OR {})".format, inner, inner)
        | st.builds("(NOT {})".format, inner)
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def both(client):
    """Connect to the topic as a table that asks the server, and as one of its own."""
    with duckdb.connect() as opened:
        register(opened, client, "shop", "orders")
        opened.execute("CREATE TABLE copied AS SELECT * FROM shop.orders")
        yield opened


@given(condition=conditions, columns=st.sampled_from(['"offset"', "payload", "count(*)"]))
def test_table_when_asked_anything_then_answers_as_a_copy_does(both, condition, columns):
    query = f"SELECT {columns} FROM {{}} WHERE {condition} ORDER BY ALL"

    answers = [both.sql(query.format(table)).fetchall() for table in ("shop.orders", "copied")]

    assert answers[0] == answers[1]


# The dataset behind a table

SAFE = {"schema", "scanner", "partition_expression", "count_rows", "head", "take", "to_batches",
        "to_table"}  # fmt: skip
"""What works without fragments: it is overridden, or made of the scanner."""


@pytest.fixture
def dataset(client):
    return TopicDataset(client, read_options("shop", "orders"))


def test_dataset_when_it_is_asked_for_more_than_a_scanner_then_refuses(dataset):
    unsafe = [name for name in dir(ds.Dataset) if not name.startswith("_") and name not in SAFE]

    assert unsafe
    assert set(unsafe) <= set(vars(TopicDataset))
    for name in unsafe:
        with pytest.raises(TypeError, match="for queries of DuckDB"):
            getattr(dataset, name)(*([None] if name != "get_fragments" else []))
    with pytest.raises(TypeError):
        pickle.dumps(dataset)


def test_dataset_when_used_by_other_programs_then_reads_what_is_asked(dataset):
    assert dataset.count_rows() == 40
    assert dataset.head(3).num_rows == 3
    assert dataset.take([1]).num_rows == 1
    few = dataset.to_table(columns=["offset"], filter=ds.field("partition") == 1)
    assert few["offset"].to_pylist() == list(range(20))
    made = dataset.to_table(columns={"next": ds.field("offset") + ds.scalar(1)})
    assert made["next"].to_pylist()[:2] == [1, 2]
    assert sum(batch.num_rows for batch in dataset.to_batches(columns=[])) == 40
    assert dataset.partition_expression.equals(ds.scalar(True))
