"""Transforms that compare rows of different micro-batches: Spark keeps state for them.

No row with an error may come here. Its time would either count as late, or make others late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_jobs.errors import OptionError
from spark_jobs.pipeline.connectors import ERROR, ORIGIN, TIME
from spark_jobs.pipeline.reading import Duration
from spark_jobs.pipeline.sql_steps import check_columns, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

TIMES: Final = ("timestamp", "timestamp_ntz")
TEN_MINUTES: Final = Duration("10 minutes")


def _check_time(time: str, schema: StructType) -> None:
    check_columns([time], schema)
    kind = schema[time].dataType.typeName()
    if kind not in TIMES:
        raise OptionError(f"column {time} is {kind}; convert it to TIMESTAMP before")


def with_time_checked(rows: DataFrame, time: str) -> DataFrame:
    """Give rows without a time an error.

    Raises:
        OptionError: there is no such column, or it holds no times.
    """
    from pyspark.sql import functions as F

    _check_time(time, rows.schema)
    missing = F.when(F.col(quote(time)).isNull(), F.lit(f"column {time} is null"))
    return rows.withColumn(ERROR, F.coalesce(F.col(ERROR), missing))


def _with_watermark(rows: DataFrame, time: str, delay: str) -> DataFrame:
    """Add the time; Spark takes one watermark, so a second step uses that of the first."""
    from pyspark.sql import functions as F

    if TIME in rows.columns:
        return rows
    timed = rows.withColumn(TIME, F.col(quote(time)).cast("timestamp"))
    return timed.withWatermark(TIME, delay) if rows.isStreaming else timed


@dataclass(frozen=True)
class DeduplicateStep:
    """Drops rows whose keys were there before, within a time.

    Attributes:
        keys: the columns that have to be equal.
        time: a column of type TIMESTAMP.
        within: how far apart duplicates are at most; what comes later than this is dropped.
    """

    keys: tuple[str, ...]
    time: str
    within: Duration = TEN_MINUTES

    is_stateful = True

    def apply(self, rows: DataFrame, prefix: str) -> DataFrame:
        """Run it."""
        check_columns(self.keys, rows.schema)
        _check_time(self.time, rows.schema)
        made = _with_watermark(rows, self.time, self.within)
        if rows.isStreaming:
            return made.dropDuplicatesWithinWatermark([*self.keys])
        return made.dropDuplicates([*self.keys])

    def sql(self, rows: DataFrame, prefix: str) -> None:
        """Return nothing: SQL has no words for it."""

    def describe(self) -> str:
        """Say what is dropped."""
        return (
            f"drop rows with the same {', '.join(self.keys)} within {self.within} of {self.time}; "
            "what is later than that is dropped as well, and counted"
        )


@dataclass(frozen=True)
class WindowStep:
    """Aggregates rows by windows of time; a window is written once, when it is over.

    Attributes:
        time: a column of type TIMESTAMP.
        size: the length of a window.
        aggregates: for each column its name and an SQL aggregate, such as ``count(*)``.
        slide: the distance of windows that overlap; by default they do not.
        by: columns to group by as well.
        late: how much later than the newest row one may come; what is later is dropped. After
            ``deduplicate`` its ``within`` counts instead.
    """

    time: str
    size: Duration
    aggregates: Mapping[str, str]
    slide: Duration | None = None
    by: tuple[str, ...] = ()
    late: Duration = TEN_MINUTES

    is_stateful = True

    def apply(self, rows: DataFrame, prefix: str) -> DataFrame:
        """Run it."""
        from pyspark.sql import functions as F

        check_columns(self.by, rows.schema)
        _check_time(self.time, rows.schema)
        made = _with_watermark(rows, self.time, self.late)
        window = F.window(TIME, self.size, self.slide)
        grouped = made.groupBy(window, *map(quote, self.by))
        counted = grouped.agg(*self._aggregates())
        return counted.select(
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            *map(quote, self.by),
            *map(quote, self.aggregates),
            F.lit(None).cast(rows.schema[ORIGIN].dataType).alias(ORIGIN),
            F.lit(None).cast("string").alias(ERROR),
        )

    def _aggregates(self) -> list[Column]:
        from pyspark.sql import functions as F

        taken = {"window_start", "window_end", *self.by} & set(self.aggregates)
        if taken:
            raise OptionError(f"there would be two columns {min(taken)}; name the aggregate anew")
        return [F.expr(text).alias(name) for name, text in self.aggregates.items()]

    def sql(self, rows: DataFrame, prefix: str) -> str:
        """Return the statement without the columns of the pipeline."""
        window = f"window({quote(self.time)}, '{self.size}', '{self.slide or self.size}')"
        keys = ", ".join([window, *map(quote, self.by)])
        made = ", ".join(f"{text} AS {quote(name)}" for name, text in self.aggregates.items())
        check_columns(self.by, rows.schema)
        return f"SELECT {keys}, {made}\nFROM rows\nGROUP BY {keys}"

    def describe(self) -> str:
        """Say what is counted."""
        groups = f" by {', '.join(self.by)}" if self.by else ""
        return (
            f"aggregate windows of {self.size} of {self.time}{groups}; a window is written when "
            f"the newest row is {self.late} past its end, and what is later is dropped and counted"
        )
