"""Streaming queries in a real Spark session: each message once, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from iggy_sdk import ConsumerIdentity
from spark_jobs import register
from spark_jobs.offsets import read_offsets
from tests.spark.killed_query import start_copy
from tests.spark.test_reading import delete_oldest, make_sealed_segments

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def load(spark, options):
    """Return a function that reads the test's topic as it grows."""

    def read(**more):
        return spark.readStream.format("iggy").options(**{**options, **more}).load()

    return read


@pytest.fixture
def collect(spark, load, request):
    """Return a function that starts a query into a table in memory; it is stopped at the end."""
    running: list = []

    def start(**more):
        name = f"table_{len(running)}_{abs(hash(request.node.name))}"
        query = load(**more).writeStream.format("memory").queryName(name).start()
        running.append(query)

        def rows():
            query.processAllAvailable()
            return sorted(
                (row["partition"], row["offset"])
                for row in spark.table(name).select("partition", "offset").collect()
            )

        return rows

    yield start
    for query in running:
        query.stop()


def start_to_files(df, folder):
    """Start a query into Parquet files that ends when all that is there was read."""
    writer = df.writeStream.format("parquet").options(
        path=f"{folder}/out", checkpointLocation=f"{folder}/checkpoint"
    )
    return writer.trigger(availableNow=True).start()


def batch_sizes(query):
    return [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]


def to_files(df, folder):
    """Run a query into Parquet files until all that is there was read."""
    query = start_to_files(df, folder)
    query.awaitTermination()
    return batch_sizes(query)


def places(spark, folder):
    rows = spark.read.parquet(f"{folder}/out").select("partition", "offset").collect()
    return sorted((row["partition"], row["offset"]) for row in rows)


def committed(folder):
    """List the batches that Spark is done with, without asking Spark, whose tasks may be stuck."""
    return sorted(int(path.name) for path in (folder / "checkpoint/commits").glob("[0-9]*"))


def expected(*counts):
    return [(number, at) for number, count in enumerate(counts) for at in range(count)]


def send(client, stream, partition, count):
    client.send_messages(stream, "t", [b"x"] * count, partition_id=partition)


def test_query_when_it_starts_then_spark_adds_nothing_to_what_all_streams_of_a_source_share(
    spark, topic, options, tmp_path
):
    topic(counts=(1,))
    session = register(spark.newSession())
    sources = session._jsparkSession.sessionState().dataSourceManager()
    environment = sources.lookupDataSource("iggy").dataSourceCls().envVars()
    before = dict(environment)

    to_files(session.readStream.format("iggy").options(**options).load(), tmp_path)

    assert set(environment) == set(before)
    assert dict(environment) != before, "the stream put its values into another map"


def test_query_when_run_again_then_goes_on_where_it_ended(
    spark, client, stream, topic, load, tmp_path
):
    topic()
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 25, "consumer": "lake"}

    sizes = to_files(load(**given), tmp_path)
    send(client, stream, 1, 7)
    more = to_files(load(**given), tmp_path)

    assert (sizes, more) == ([25, 25, 10], [7])
    assert places(spark, tmp_path) == expected(10, 27, 30)
    last = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda one: int(one.name))
    reached = read_offsets(json.loads(last.read_text().splitlines()[-1]))
    assert reached == {("t", 0): 10, ("t", 1): 27, ("t", 2): 30}
    # All of it is committed, so the server has been told.
    stored = [
        client.get_consumer_offset(
            stream,
            "t",
            consumer=ConsumerIdentity.single("lake"),
            partition_id=number,
            required=True,
        ).stored_offset
        for number in range(3)
    ]
    assert stored == [9, 26, 29]


def test_query_when_retention_overtook_it_then_fails_unless_told_otherwise(
    spark, client, stream, load, tmp_path
):
    make_sealed_segments(client, stream, count=5)
    to_files(load(startingOffsets="earliest"), tmp_path)
    for _ in range(40):
        send(client, stream, 0, 10)
    oldest = delete_oldest(client, stream, count=3)
    assert oldest > 5

    with pytest.raises(StreamingQueryException, match=rf"offsets 5 to {oldest - 1} are gone"):
        to_files(load(startingOffsets="earliest"), tmp_path)
    to_files(load(startingOffsets="earliest", failOnDataLoss="false"), tmp_path)

    kept = [*range(5), *range(oldest, 405)]
    assert places(spark, tmp_path) == [(0, at) for at in kept]


def test_query_when_its_topic_is_made_anew_and_longer_then_fails_unless_told_otherwise(
    spark, client, stream, topic, load, tmp_path
):
    topic(counts=(100,))
    to_files(load(startingOffsets="earliest"), tmp_path)
    client.delete_topic(stream, "t")
    topic(counts=(250,))

    with pytest.raises(StreamingQueryException, match="was made anew, or purged, after the query"):
        to_files(load(), tmp_path)
    assert to_files(load(failOnDataLoss="false"), tmp_path) == [250]

    assert places(spark, tmp_path) == sorted(expected(100) + expected(250))


def test_query_when_partitions_are_added_and_the_server_restarts_then_misses_nothing(
    spark_server, client, stream, topic, collect
):
    topic(counts=(3,))
    rows = collect(startingOffsets="earliest")
    assert rows() == expected(3)

    client.create_partitions(stream, "t", 2)
    send(client, stream, 2, 4)
    assert rows() == expected(3, 0, 4)

    spark_server.restart()
    send(client, stream, 1, 5)
    send(client, stream, 2, 1)
    assert rows() == expected(3, 5, 5)


def test_query_when_it_starts_with_latest_then_reads_what_comes_after(
    client, stream, topic, collect
):
    topic(counts=(5,))
    rows = collect()
    assert rows() == []

    send(client, stream, 0, 2)

    assert rows() == [(0, 5), (0, 6)]


POLLS_PER_TASK = 6
ROWS_PER_POLL = 5


def kill_within_a_batch(spark_server, start_query):
    """Kill the server when tasks have read a part of what they have to, and return the query."""
    held_back = spark_server.faults.delay(0.3, command="poll_messages")
    query = start_query()
    while held_back.hits < POLLS_PER_TASK:
        assert not query.awaitTermination(0.02), "it ended before it was disturbed"
    spark_server.kill()
    assert held_back.hits < 2 * POLLS_PER_TASK, "everything had been asked for by then"
    held_back.remove()
    return query


@pytest.fixture
def half_read(spark, spark_server, client, stream, topic, load, tmp_path):
    """Have a first batch in the sink, and a second one to come; yield what starts a query."""
    topic(counts=(3, 4))

    def start(**more):
        given = {"startingOffsets": "earliest", "pollCount": ROWS_PER_POLL, **more}
        return start_to_files(load(**given), tmp_path)

    start().awaitTermination()
    for partition in range(2):
        send(client, stream, partition, POLLS_PER_TASK * ROWS_PER_POLL)
    yield start
    # Others need the server, even after a test that failed half way.
    spark_server.faults.heal()
    spark_server.start()


def test_query_when_the_server_is_killed_within_a_batch_then_goes_on_and_repeats_nothing(
    spark, spark_server, half_read, options, tmp_path
):
    tireless = f"{options['server']}?reconnection_max_interval=200ms"
    query = kill_within_a_batch(spark_server, lambda: half_read(server=tireless))
    before = committed(tmp_path)
    spark_server.start()
    query.awaitTermination()

    assert (before, committed(tmp_path)) == ([0], [0, 1])
    assert places(spark, tmp_path) == expected(33, 34)
    assert batch_sizes(query) == [60]


def test_query_when_it_dies_with_the_server_then_the_next_one_repeats_the_batch_without_a_trace(
    spark, spark_server, half_read, options, tmp_path
):
    impatient = f"{options['server']}?request_timeout=1s"
    query = kill_within_a_batch(spark_server, lambda: half_read(server=impatient))
    with pytest.raises(StreamingQueryException, match=r"did not come back within|poll"):
        query.awaitTermination()
    before = places(spark, tmp_path)
    spark_server.start()
    again = half_read()
    again.awaitTermination()

    assert (before, committed(tmp_path)) == (expected(3, 4), [0, 1])
    assert places(spark, tmp_path) == expected(33, 34)
    assert batch_sizes(again) == [60]


def copied(client, stream):
    topic = client.get_topic(stream, "out", required=True)
    return [partition.messages_count for partition in topic.partitions]


def test_sink_when_a_batch_is_repeated_then_each_row_is_stored_once(
    client, stream, topic, load, options, tmp_path
):
    topic()
    target = {**options, "topic": "out", "createTopic": "2"}

    def copy():
        writer = load(startingOffsets="earliest").select("payload").writeStream.format("iggy")
        query = writer.options(**target, checkpointLocation=str(tmp_path))
        query.trigger(availableNow=True).start().awaitTermination()

    copy()
    assert sum(copied(client, stream)) == 60
    # Spark repeats a batch of which it does not know that it is done.
    for done in (tmp_path / "commits").glob("*0*"):
        done.unlink()
    copy()

    assert sum(copied(client, stream)) == 60


def test_query_when_killed_after_a_write_then_the_next_one_repeats_it_without_a_trace(
    spark, spark_server, client, stream, topic, options, tmp_path
):
    topic(counts=(40, 30))
    command = [sys.executable, "-m", "tests.spark.killed_query", spark_server.url, stream]
    with subprocess.Popen(
        [*command, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as doomed:
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == "written\n"
        os.killpg(doomed.pid, signal.SIGKILL)
    assert sum(copied(client, stream)) == 40

    start_copy(spark, options, str(tmp_path), stuck_at=None).awaitTermination()

    assert sum(copied(client, stream)) == 70
