"""The rows of files: JSON, CSV, Parquet or text, those that are there and those that arrive.

A row is known by its file, its place in it and its content, whenever it is read.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from spark_jobs.jobs.terminal import FIRST_ROWS
from spark_jobs.pipeline.connectors import ERROR, ORIGIN
from spark_jobs.pipeline.schemas import read_schema_text
from spark_jobs.pipeline.sql_steps import JsonStep, quote
from spark_jobs.tables.merge import CORRUPT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SPLIT_SETTINGS: Final = {
    # Together they make one task of each file, or of each part of this size, whatever else is in
    # the folder. So the position of a row does not depend on other files.
    "spark.sql.files.maxPartitionBytes": "134217728",
    "spark.sql.files.openCostInBytes": "134217728",
}
ROW_MASK: Final = (1 << 33) - 1
"""The part of Spark's increasing ids that counts the rows of a task."""

FILES_PER_BATCH: Final = 1000
"""Files of one micro-batch, unless a pipeline says otherwise; as many as Spark's source takes."""

_FILE, _BLOCK = "_iggy_file", "_iggy_block"
_PLACE: Final = (f"_metadata.file_path AS {_FILE}", f"_metadata.file_block_start AS {_BLOCK}")
_SHOWN_CHARACTERS: Final = 80


@dataclass(frozen=True)
class FilesSource:
    """Files of a folder.

    Attributes:
        path: a folder, a file or a pattern; any path or URL of Spark.
        format: their format. Lines of text files, and of JSON files without a schema, are in the
            column ``value``.
        schema: the columns, as DDL or the name of a file; those of CSV and Parquet files are
            guessed without one.
        header: whether CSV files begin with a line of names.
        max_files: how many files a micro-batch takes at most.
    """

    path: str
    format: Literal["json", "csv", "parquet", "text"]
    schema: str | None = None
    header: bool = True
    max_files: int = FILES_PER_BATCH

    prefix = ""
    has_stable_places = True

    def check(self) -> None:
        """Leave the check to Spark, which knows the file system."""

    def load(self, spark: SparkSession, max_rows: int | None) -> DataFrame:
        """Return the rows as a stream; how many there are is known by files only."""
        reader = spark.readStream.option("maxFilesPerTrigger", self.max_files)
        return self.read(spark, reader)

    def read(self, spark: SparkSession, reader: Any) -> DataFrame:
        """Read with ``spark.read`` or ``spark.readStream``."""
        if self._has_lines:
            rows = reader.format("text").load(self.path)
        else:
            reader = reader.format(self.format).schema(self._columns(spark))
            if self.format == "csv":
                # Otherwise a line is only bad if one of the columns in use is.
                reader = reader.options(
                    header=self.header, columnNameOfCorruptRecord=CORRUPT, columnPruning=False
                )
            rows = reader.load(self.path)
        placed: DataFrame = rows.selectExpr("*", *_PLACE)
        return placed

    @property
    def _has_lines(self) -> bool:
        return self.format in ("json", "text")

    def _columns(self, spark: SparkSession) -> StructType:
        from pyspark.sql.types import StringType

        if self.schema is not None:
            schema = read_schema_text(self.schema)
        else:
            reader = spark.read.format(self.format).option("header", self.header)
            schema = reader.load(self.path).schema
        return schema.add(CORRUPT, StringType()) if self.format == "csv" else schema

    def label(self, rows: DataFrame) -> DataFrame:
        """Add the columns of the pipeline, and set bad lines apart."""
        from pyspark.sql import functions as F

        if self._has_lines:
            rows = rows.where("trim(value) != ''")
        number = F.lit(-1).cast("bigint")
        if not rows.isStreaming:
            # Only rows that come straight from their files can be numbered.
            number = F.monotonically_increasing_id().bitwiseAND(F.lit(ROW_MASK))
        columns = [name for name in rows.columns if name not in (_FILE, _BLOCK, CORRUPT)]
        payload = {"csv": CORRUPT, "parquet": "CAST(NULL AS STRING)"}.get(self.format, "value")
        origin = F.struct(
            F.col(_FILE).alias("file"),
            F.col(_BLOCK).alias("block"),
            number.alias("row"),
            F.expr(f"CAST({payload} AS BINARY)").alias("payload"),
        )
        labelled = rows.select(
            *map(quote, columns),
            *([CORRUPT] if self.format == "csv" else []),
            origin.alias(ORIGIN),
            F.expr(f"CAST(NULL AS STRING) AS {ERROR}"),
        )
        if self.format == "parquet":
            return labelled
        judged = labelled.selectExpr(*self._judged(columns))
        if self.format == "json" and self.schema is not None:
            return JsonStep(self.schema, "value").apply(judged, self.prefix)
        return judged

    def _judged(self, columns: list[str]) -> list[str]:
        """Return the columns, the origin, and the reason why a line is bad."""
        kept = [*map(quote, columns), ORIGIN]
        if self.format == "csv":
            shown = f"substring({CORRUPT}, 1, {_SHOWN_CHARACTERS})"
            reason = f"concat('the line does not fit the columns: ', {shown})"
            return [*kept, f"CASE WHEN {CORRUPT} IS NOT NULL THEN {reason} END AS {ERROR}"]
        if self.format == "text":
            return [*kept, ERROR]
        values = "json_array_length(concat('[', value, ']'))"
        shown = f"substring(value, 1, {_SHOWN_CHARACTERS})"
        reason = f"concat('the line is not JSON: ', {shown})"
        is_bad = f"coalesce({values}, 0) != 1"
        return ["trim(value) AS value", ORIGIN, f"CASE WHEN {is_bad} THEN {reason} END AS {ERROR}"]

    def sample(self, spark: SparkSession) -> DataFrame:
        """Return the first rows."""
        return self.read(spark, spark.read).limit(FIRST_ROWS)

    def spans(self) -> None:
        """Return nothing: files have no offsets."""

    def describe(self) -> str:
        """Say in words what is read."""
        return f"{self.format} files in {self.path}"


@contextmanager
def split_settings(spark: SparkSession) -> Iterator[None]:
    """Make Spark split files in the same way whenever they are read."""
    before = {name: spark.conf.get(name) for name in SPLIT_SETTINGS}
    for name, value in SPLIT_SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            assert known is not None, "Spark has defaults of both"
            spark.conf.set(name, known)
