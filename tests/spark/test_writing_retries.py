"""Writes that Spark repeats, over a server with deduplication: every row is counted.

Tasks fail after they have written, and see their rows in another order; a micro-batch writes
several times, and is repeated.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.spark.retried_write import ROWS, content
from tests.spark.test_session import payloads

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = Counter(content(number).encode() for number in range(ROWS))


def run_program(spark_server, stream, folder, master):
    command = [sys.executable, "-m", "tests.spark.retried_write", master, spark_server.url, stream]
    done = subprocess.run([*command, str(folder)], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


def test_write_when_tasks_fail_and_see_other_orders_then_each_row_is_stored_once(
    spark_server, client, stream, tmp_path
):
    run_program(spark_server, stream, tmp_path, "local[2,4]")

    assert Counter(payloads(client, stream, "balanced")) == EXPECTED
    assert Counter(payloads(client, stream, "keyed")) == EXPECTED


@pytest.fixture
def each_batch(spark, options, topic, tmp_path):
    """Return a function that runs another one for each micro-batch of the test's topic."""
    topic(counts=(30, 20))

    def run(function):
        query = (
            spark.readStream.format("iggy")
            .options(**options, startingOffsets="earliest")
            .load()
            .select("payload")
            .writeStream.foreachBatch(function)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    return run


@pytest.fixture
def save(options):
    """Return a function that appends rows to the topic ``out``."""

    def write(rows, **more):
        given = {**options, "topic": "out", "createTopic": "2", **more}
        rows.write.format("iggy").mode("append").options(**given).save()

    return write


def forget_the_last_batch(folder):
    """Make Spark repeat the last micro-batch, as after a crash."""
    last = max((folder / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (folder / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def test_micro_batch_when_it_writes_twice_to_one_topic_then_no_row_is_lost(
    client, stream, each_batch, save
):
    def write_twice(rows, batch):
        save(rows)
        save(rows)
        save(rows.selectExpr("concat('other ', cast(payload AS string)) AS payload"))

    each_batch(write_twice)

    found = Counter(payloads(client, stream))
    assert len(found) == 100
    assert sum(found.values()) == 150
    assert {many for payload, many in found.items() if payload.startswith(b"other")} == {1}


def test_micro_batch_when_repeated_then_its_writes_repeat_nothing(
    client, stream, each_batch, save, tmp_path
):
    def write_twice(rows, batch):
        save(rows)
        rows.count()
        save(rows)

    each_batch(write_twice)
    forget_the_last_batch(tmp_path / "checkpoint")
    each_batch(write_twice)

    assert Counter(payloads(client, stream)) == Counter(
        dict.fromkeys(payloads(client, stream, "t"), 2)
    )


def test_micro_batch_when_repeated_in_other_pieces_then_no_row_is_lost(
    client, stream, each_batch, save, tmp_path
):
    pieces = iter((2, 5))

    def write(rows, batch):
        save(rows.repartition(next(pieces)))

    each_batch(write)
    forget_the_last_batch(tmp_path / "checkpoint")
    each_batch(write)

    found = Counter(payloads(client, stream))
    assert set(found) == set(payloads(client, stream, "t"))


def test_micro_batch_when_one_statement_inserts_twice_then_no_row_is_lost(
    spark, client, stream, options, each_batch
):
    client.create_topic(stream, "out", 1)
    given = {**options, "topic": "out"}
    pairs = ", ".join(f"{name} '{value}'" for name, value in given.items())
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW twice (payload BINARY) USING iggy OPTIONS ({pairs})"
    )

    def insert(rows, batch):
        rows.createOrReplaceTempView("rows_of_batch")
        rows.sparkSession.sql(
            "FROM rows_of_batch INSERT INTO twice SELECT payload INSERT INTO twice SELECT payload"
        )

    each_batch(insert)

    assert Counter(payloads(client, stream)) == Counter(
        dict.fromkeys(payloads(client, stream, "t"), 2)
    )
