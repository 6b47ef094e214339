"""Files of micro-batches: a repetition changes nothing, wherever the one before was interrupted."""

from __future__ import annotations

import pytest

from spark_jobs.errors import OptionError
from spark_jobs.pipeline import file_sink
from spark_jobs.pipeline.connectors import BatchContext
from spark_jobs.pipeline.file_sink import ParquetSink, write_files
from spark_jobs.pipeline.hadoop_files import HadoopFolder

CONTEXT = BatchContext("query", "orders-1", 7, 0, "")


def found(spark, path):
    return sorted(row["id"] for row in spark.read.parquet(str(path)).collect())


@pytest.mark.parametrize("after", ["write_text", "move", "delete"])
def test_batch_when_interrupted_anywhere_then_repeating_it_gives_each_row_once(
    spark, tmp_path, monkeypatch, after
):
    rows = spark.range(10).selectExpr("id", "id % 3 AS part").repartition(2)
    calls: list[tuple[object, ...]] = []
    real = getattr(HadoopFolder, after)

    def interrupted(folder, *arguments):
        if len(calls) == 1:
            raise OSError("killed")
        calls.append(arguments)
        return real(folder, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(HadoopFolder, after, interrupted)
        calls += [()] if after == "write_text" else []
        with pytest.raises(OSError, match="killed"):
            write_files(rows, str(tmp_path / "out"), CONTEXT, partition_by=("part",))
    for _ in range(2):
        write_files(rows, str(tmp_path / "out"), CONTEXT, partition_by=("part",))

    assert found(spark, tmp_path / "out") == list(range(10))
    folders = {path.name for path in (tmp_path / "out").iterdir()}
    assert folders == {"_iggy", "part=0", "part=1", "part=2"}
    assert [one.name for one in (tmp_path / "out" / "_iggy" / "orders-1-0").glob("*[!c]")] == [
        "7.json"
    ]


def test_batches_when_of_another_checkpoint_or_sink_then_none_is_taken_for_another(spark, tmp_path):
    for context in (CONTEXT, BatchContext("query", "orders-2", 7, 0, ""), CONTEXT):
        write_files(spark.range(2), str(tmp_path / "out"), context)
    write_files(spark.range(2), str(tmp_path / "out"), BatchContext("q", "orders-1", 7, 1, ""))

    assert found(spark, tmp_path / "out") == [0, 0, 0, 1, 1, 1]


def test_lists_when_many_batches_were_written_then_only_the_last_are_kept(spark, tmp_path):
    for number in range(file_sink.LISTS_KEPT + 2):
        context = BatchContext("query", "orders-1", number, 0, "")
        write_files(spark.range(1), str(tmp_path / "out"), context)

    lists = list((tmp_path / "out" / "_iggy" / "orders-1-0").glob("[0-9]*.json"))
    assert len(lists) == file_sink.LISTS_KEPT


def test_folder_when_spark_keeps_a_list_there_then_is_refused(spark, tmp_path):
    (tmp_path / "_spark_metadata").mkdir()

    with pytest.raises(OptionError, match="delete it once no query writes there"):
        ParquetSink(str(tmp_path)).prepare(spark.range(1), "")
