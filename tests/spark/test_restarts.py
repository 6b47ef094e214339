"""A server that restarts in time never ends a query: killed at any moment, in many rounds."""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable

from iggy_protocol import StatusCode
from iggy_sdk import AuthenticationError, ConsumerIdentity, IggyError, PollingStrategy
from iggy_sdk.blocking import IggyClient
from iggy_sdk.testing import RunningServer
from spark_jobs import IggyDataSource
from spark_jobs.topics import close_all, connection

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAM, TOPIC, PARTITIONS = "s", "t", 2
ROUNDS = 8
SLOW_ROUNDS = 60
ROWS_PER_POLL = 20
DELAY_SECONDS_MAX = 0.6


@pytest.fixture(scope="module")
def mortal() -> Iterator[RunningServer]:
    """Run a server that tests may kill; nobody else uses it."""
    with RunningServer() as running:
        yield running


@pytest.fixture
def server(mortal: RunningServer) -> Iterator[RunningServer]:
    """Return that server, empty and running, without connections of this process."""
    mortal.reset()
    yield mortal
    close_all()


@pytest.fixture
def options(server: RunningServer) -> dict[str, str]:
    """Make the topic, and return the options of all queries."""
    with IggyClient(server.url) as client:
        client.create_stream(STREAM)
        client.create_topic(STREAM, TOPIC, PARTITIONS)
    return {"server": server.url, "stream": STREAM, "topic": TOPIC}


def send(url: str, count: int, mark: int) -> None:
    """Send to both partitions until the server has acknowledged it."""
    with IggyClient(url) as client:
        for partition in range(PARTITIONS):
            payloads = [b"%d/%d" % (mark, number) for number in range(count)]
            client.send_messages(STREAM, TOPIC, payloads, partition_id=partition)


def stored(url: str) -> list[tuple[int, int, bytes]]:
    """Return what the topic has."""
    rows: list[tuple[int, int, bytes]] = []
    with IggyClient(url) as client:
        for partition in range(PARTITIONS):
            at = 0
            while batch := client.poll_messages(
                *(STREAM, TOPIC),
                consumer=ConsumerIdentity.single("check"),
                partition_id=partition,
                strategy=PollingStrategy.offset(at),
                count=1000,
            ):
                rows += [(partition, one.offset, bytes(one.payload)) for one in batch]
                at = rows[-1][1] + 1
    return sorted(rows)


@contextmanager
def running_query(spark, options, folder):
    """Run a query over the topic into files, with small polls and its offsets on the server."""
    given = {"startingOffsets": "earliest", "pollCount": ROWS_PER_POLL, "consumer": "lake"}
    rows = spark.readStream.format("iggy").options(**options, **given).load()
    writer = rows.writeStream.format("parquet").options(
        path=f"{folder}/out", checkpointLocation=f"{folder}/checkpoint"
    )
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()


def read_files(spark, folder):
    rows = spark.read.parquet(f"{folder}/out").select("partition", "offset", "payload").collect()
    return sorted((row[0], row[1], bytes(row[2])) for row in rows)


def kill_in_rounds(spark, server, options, folder, rounds):
    """Kill the server at random moments of a query; return what the query and the topic have."""
    chance = random.Random()
    with running_query(spark, options, folder) as query:
        for number in range(rounds):
            send(server.url, ROWS_PER_POLL * 10, number)
            assert not query.awaitTermination(chance.uniform(0, DELAY_SECONDS_MAX))
            server.kill()
            assert not query.awaitTermination(chance.uniform(0, DELAY_SECONDS_MAX))
            server.start()
        query.processAllAvailable()
        assert query.exception() is None
    return read_files(spark, folder), stored(server.url)


def test_query_when_the_server_is_killed_at_random_moments_then_goes_on_and_misses_nothing(
    spark, server, options, tmp_path
):
    read, there = kill_in_rounds(spark, server, options, tmp_path, ROUNDS)

    assert len(there) >= ROUNDS * PARTITIONS * ROWS_PER_POLL * 10
    assert read == there


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_query_when_the_server_is_killed_all_the_time_then_goes_on_and_misses_nothing(
    spark, server, options, tmp_path
):
    read, there = kill_in_rounds(spark, server, options, tmp_path, SLOW_ROUNDS)

    assert read == there


# The same without Spark around it, fault by fault.


def make_readers(options, **more):
    """Make a batch reader and a streaming one."""
    source = IggyDataSource(CaseInsensitiveDict({**options, **more}))
    streaming = IggyDataSource(CaseInsensitiveDict({**options, "startingOffsets": "earliest"}))
    return source.reader(source.schema()), streaming.streamReader(streaming.schema())


def count(reader, parts):
    return sum(rows.num_rows for part in parts for rows in reader.read(part))


@contextmanager
def starting(server: RunningServer) -> Iterator[None]:
    """Start a server that was killed, while the block already asks it."""
    thread = threading.Thread(target=server.start)
    thread.start()
    yield
    thread.join()


FAULTS = {
    "a login without an answer": lambda faults: faults.swallow_reply(command="register", times=2),
    "a login that is cut off": lambda faults: faults.drop_connection(command="register", times=5),
    "a plan that is cut off": lambda faults: faults.drop_connection(command="get_topic", times=5),
    "polls that are cut off": lambda faults: faults.drop_connection(
        command="poll_messages", times=5
    ),
    "replies that are cut off": lambda faults: faults.drop_connection(
        command="poll_messages", executed=True, times=5
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_read_when_the_server_restarts_in_time_then_misses_nothing(server, options, fault):
    send(server.url, 30, 0)
    impatient = {**options, "server": f"{server.url}?connect_timeout=500ms&request_timeout=20s"}
    reader, streaming = make_readers(impatient, pollCount="10")
    FAULTS[fault](server.faults)

    read = count(reader, reader.partitions())
    end = streaming.latestOffset({}, ReadAllAvailable())
    streamed = count(streaming, streaming.partitions({}, end))

    assert (read, streamed) == (60, 60)


def test_read_when_the_server_is_not_there_yet_then_waits_for_it(server, options):
    send(server.url, 30, 0)
    reader, streaming = make_readers(options)

    server.kill()
    with starting(server):
        parts = reader.partitions()
        read = count(reader, parts)
    server.kill()
    with starting(server):
        end = streaming.latestOffset({}, ReadAllAvailable())

    assert (read, count(streaming, streaming.partitions({}, end))) == (60, 60)


def test_progress_when_the_server_cuts_it_off_then_is_stored_nevertheless(server, options):
    send(server.url, 30, 0)
    source = IggyDataSource(
        CaseInsensitiveDict({**options, "startingOffsets": "earliest", "consumer": "lake"})
    )
    reader = source.streamReader(source.schema())
    end = reader.latestOffset({}, ReadAllAvailable())
    server.faults.drop_connection(command="store_consumer_offset", executed=True, times=5)

    reader.commit(end)

    with IggyClient(server.url) as client:
        found = client.get_consumer_offset(
            *(STREAM, TOPIC), consumer=ConsumerIdentity.single("lake"), partition_id=1
        )
    assert found is not None
    assert found.stored_offset == 29


def test_read_when_the_server_stays_away_then_gives_up_after_the_promised_time(server, options):
    reader, _ = make_readers({**options, "server": f"{server.url}?request_timeout=300ms"})
    server.kill()

    with pytest.raises(IggyError):
        reader.partitions()


def test_read_when_the_server_refuses_then_does_not_ask_again(server, options):
    refused = server.faults.answer_with(StatusCode.INVALID_CREDENTIALS, command="register")

    with pytest.raises(AuthenticationError):
        connection(options["server"])

    assert refused.hits == 1
