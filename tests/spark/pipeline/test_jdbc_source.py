"""Tables of a database as a source: Derby, which comes with Spark, in this process's Java."""

from __future__ import annotations

import pytest

from spark_jobs.pipeline.batch_loop import BatchLoop
from spark_jobs.pipeline.jdbc_source import JdbcSource

TEXT = """
[pipeline]
checkpoint = "FOLDER/state"
once = true
max_rows = 4
[source]
type = "jdbc"
url = "URL"
table = "items"
watermark_column = "CHANGED"
driver = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
[[transform]]
type = "convert"
columns = { NAME = "INT" }
[[sink]]
type = "parquet"
path = "FOLDER/lake"
[dead_letters]
path = "FOLDER/dead"
"""


@pytest.fixture
def database(spark, tmp_path):
    """Return the URL of a database, and a function that runs statements in it."""
    url = f"jdbc:derby:memory:{tmp_path.name};create=true"
    java = spark._jvm
    java.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    java.Class.forName("org.apache.derby.iapi.jdbc.AutoloadedDriver")
    connection = java.org.apache.derby.iapi.jdbc.AutoloadedDriver().connect(
        url, java.java.util.Properties()
    )

    def run(*texts):
        for text in texts:
            connection.createStatement().execute(text)

    run("CREATE TABLE items (id INT, name VARCHAR(10), changed TIMESTAMP)")
    yield url, run
    connection.close()


def insert(numbers, name="5"):
    return [
        f"INSERT INTO items VALUES ({n}, '{name}', TIMESTAMP('2026-01-31 12:00:{n:02}'))"
        for n in numbers
    ]


def test_table_when_it_grows_then_each_new_row_is_read_once(
    spark, database, pipeline, iggy_spark, tmp_path, capsys
):
    url, run = database
    run(*insert(range(10)))
    path = pipeline(TEXT.replace("URL", url))

    assert iggy_spark("run", path) == 0
    run(*insert([3], "late"), *insert(range(10, 13)), *insert([20], "bad"))
    assert iggy_spark("run", path) == 0
    assert iggy_spark("run", path) == 0

    rows = spark.read.parquet(str(tmp_path / "lake"))
    # The row that came late with an old mark is the limit of this way.
    assert sorted(row["ID"] for row in rows.collect()) == list(range(13))
    (dead,) = spark.read.parquet(str(tmp_path / "dead")).collect()
    assert dead["error"] == "column NAME is not INT"
    assert '"NAME":"bad"' in bytes(dead["payload"]).decode()
    assert "orders: batch 2, 2 rows" in capsys.readouterr().err


def test_table_when_a_batch_failed_then_the_same_rows_come_under_the_same_number(
    spark, database, tmp_path
):
    url, run = database
    run(*insert(range(3)))
    source = JdbcSource(
        url, "items", "CHANGED", driver="org.apache.derby.iapi.jdbc.AutoloadedDriver"
    )
    seen = []

    def process(rows, number):
        seen.append((number, sorted(row["ID"] for row in rows.collect())))
        if len(seen) == 1:
            raise ValueError("no")

    def loop():
        folder = str(tmp_path / "state")
        running = BatchLoop(
            spark, source, process, folder=folder, every_s=1, once=True, max_rows=None, pool="p"
        )
        assert running.awaitTermination(60)
        return running

    failed = loop()
    run(*insert(range(3, 5)))
    done = loop()

    assert str(failed.exception()) == "no"
    assert (done.exception(), done.lastProgress["numInputRows"]) == (None, 2)
    assert seen == [(0, [0, 1, 2]), (0, [0, 1, 2]), (1, [3, 4])]


def test_table_when_it_has_no_watermark_then_all_rows_come_each_time(
    spark, database, pipeline, iggy_spark, tmp_path
):
    url, run = database
    run(*insert(range(2)))
    path = pipeline(TEXT.replace("URL", url).replace('watermark_column = "CHANGED"\n', ""))

    assert iggy_spark("run", path) == 0
    assert iggy_spark("run", path) == 0

    assert spark.read.parquet(str(tmp_path / "lake")).count() == 4
