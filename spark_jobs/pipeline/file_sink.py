"""The sink that is a folder of files, of which readers see each micro-batch once.

A micro-batch is written aside, then a list of its files, and then each file is moved to its place.
A repetition finds the list and only moves what is left; without a list it begins anew. So a file
in its place is whole and final, and no reader needs to know Spark's log of valid files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_jobs.errors import OptionError
from spark_jobs.pipeline.connectors import BatchContext, names_of, public_columns
from spark_jobs.pipeline.hadoop_files import HadoopFolder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

STATE: Final = "_iggy"
"""The folder of lists and unfinished files; its underscore hides it from readers."""

LISTS_KEPT: Final = 10
"""Lists of the last micro-batches; only the last one can be repeated."""

SPARK_LOG: Final = "_spark_metadata"


@dataclass(frozen=True)
class ParquetSink:
    """Parquet files in folders.

    Attributes:
        path: the folder; any path or URL of Spark.
        partition_by: columns of which folders are made; ``date`` and ``hour`` are made of the time.
        time_column: where date and hour come from.
    """

    path: str
    partition_by: tuple[str, ...] = ()
    time_column: str = "timestamp"

    needs_origin = False

    @property
    def guarantee(self) -> str:
        """Say what a repeated micro-batch does."""
        return "each row once: a repeated micro-batch puts the same files in the same places"

    def check(self) -> None:
        """Leave the check to Spark, which knows the file system."""

    def prepare(self, rows: DataFrame, prefix: str) -> None:
        """Refuse a folder in which new files would not be seen.

        Raises:
            OptionError: it has Spark's own log of files, or the rows lack a column.
        """
        with_time(rows, self.partition_by, self.time_column, prefix)
        refuse_list_of_files(rows.sparkSession, self.path)

    def write(self, rows: DataFrame, context: BatchContext) -> None:
        """Write the rows of a micro-batch."""
        timed = with_time(public_columns(rows), self.partition_by, self.time_column, context.prefix)
        write_files(timed, self.path, context, partition_by=self.partition_by)

    def describe(self) -> str:
        """Say in words what is written."""
        folders = f", folders by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"Parquet files in {self.path}{folders}"


def refuse_list_of_files(spark: SparkSession, path: str) -> None:
    """Refuse a folder in which Spark would overlook new files.

    Raises:
        OptionError: it has a list of files by Spark's own sink.
    """
    if HadoopFolder(spark, path).exists(SPARK_LOG):
        raise OptionError(
            f"{path}/{SPARK_LOG} is a list of valid files, with which Spark overlooks all others; "
            "delete it once no query writes there, or choose another path"
        )


def write_files(
    rows: DataFrame,
    path: str,
    context: BatchContext,
    *,
    partition_by: Sequence[str] = (),
    file_format: str = "parquet",
) -> None:
    """Write a micro-batch, so that repeating it changes nothing."""
    folder = HadoopFolder(rows.sparkSession, path)
    state = f"{STATE}/{context.sink_writer}"
    listing, aside = f"{state}/{context.batch_id}.json", f"{state}/{context.batch_id}"
    text = folder.read_text(listing)
    if text is None:
        folder.delete(aside)
        writer = rows.write.format(file_format).mode("overwrite")
        (writer.partitionBy(*partition_by) if partition_by else writer).save(folder.at(aside))
        text = json.dumps(_moves(folder, aside, f"{context.sink_writer}-{context.batch_id}"))
        folder.write_text(listing, text)
    for source, target in json.loads(text):
        folder.move(f"{aside}/{source}", target)
    folder.delete(aside)
    folder.delete(f"{state}/{context.batch_id - LISTS_KEPT}.json")


def _moves(folder: HadoopFolder, aside: str, name: str) -> list[tuple[str, str]]:
    """Choose the place of each file; its name says which micro-batch it is of."""
    found = [one for one in folder.files(aside) if not one.name.startswith(("_", "."))]
    found.sort(key=lambda one: one.path)
    moves = []
    for number, one in enumerate(found):
        suffix = one.name.partition(".")[2]
        inside = one.path.removesuffix(one.name)
        moves.append((one.path, f"{inside}{name}-{number:05}.{suffix}"))
    return moves


def with_time(
    rows: DataFrame, partition_by: Sequence[str], time_column: str, prefix: str
) -> DataFrame:
    """Add date and hour, if folders are made of them and no column has their name.

    Raises:
        OptionError: a column that is to be used does not exist.
    """
    from pyspark.sql import functions as F

    makers = {"date": F.to_date, "hour": F.hour}
    for name in partition_by:
        if name in rows.columns:
            continue
        if name not in makers:
            known = ", ".join([*makers, *names_of(rows)])
            raise OptionError(f"folders are to be made of {name!r}; there are {known}")
        rows = rows.withColumn(name, makers[name](_time_of(rows, time_column, prefix)))
    return rows


def _time_of(rows: DataFrame, time_column: str, prefix: str) -> Column:
    from pyspark.sql import functions as F

    for name in (time_column, f"{prefix}{time_column}"):
        if name in rows.columns:
            kind = rows.schema[name].dataType.typeName()
            if kind not in ("timestamp", "timestamp_ntz", "date"):
                raise OptionError(
                    f"the time column is {name}, which is {kind}; make it TIMESTAMP in the schema"
                )
            return F.col(name)
    raise OptionError(f"the time column is {time_column!r}; there are {', '.join(names_of(rows))}")
