"""The source that is a table of a database: what is new by a column that grows, or all of it.

Spark has no stream of it, so micro-batches are planned here: which rows one has is written to the
checkpoint before it begins, and a repetition asks for the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_jobs import jdbc
from spark_jobs.jobs.terminal import FIRST_ROWS
from spark_jobs.pipeline.connectors import ERROR, ORIGIN
from spark_jobs.pipeline.secrets import SecretOrText, SecretReference, redact, reveal
from spark_jobs.pipeline.sql_steps import check_columns, quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class JdbcSource:
    """A table of a database.

    Attributes:
        url: the place of the database, ``jdbc:postgresql://host/database``.
        table: the table, or a query in parentheses with a name.
        watermark_column: a column that only grows, such as the time of the last change; rows are
            read once whose value is above that of the last micro-batch. Without it each
            micro-batch is the whole table.
        user: who logs in.
        password: the password.
        driver: the Java class of the driver, if it is not the usual one.
        fetch_rows: rows that the database hands over at a time.
    """

    url: SecretOrText
    table: str
    watermark_column: str | None = None
    user: SecretOrText | None = None
    password: SecretReference | None = None
    driver: str | None = None
    fetch_rows: int = 10_000

    prefix = ""
    has_stable_places = False

    def check(self) -> None:
        """Reveal what is secret, so that what is missing is known before Spark starts."""
        self._options()

    def _options(self) -> dict[str, str]:
        given = {
            "url": reveal(self.url),
            "dbtable": self.table,
            "user": None if self.user is None else reveal(self.user),
            "password": None if self.password is None else self.password.reveal(),
            "driver": self.driver,
            "fetchsize": str(self.fetch_rows),
        }
        return {name: value for name, value in given.items() if value is not None}

    def packages(self) -> tuple[str, ...]:
        """Return the Maven packages that a session needs; none with a driver of one's own."""
        return () if self.driver is not None else tuple(jdbc.packages(reveal(self.url)))

    def table_rows(self, spark: SparkSession) -> DataFrame:
        """Return the whole table; nothing is read yet."""
        return spark.read.format("jdbc").options(**self._options()).load()

    def plan(
        self, spark: SparkSession, last: Mapping[str, Any] | None, max_rows: int | None
    ) -> dict[str, Any] | None:
        """Choose the rows of the next micro-batch; None if there are none.

        Args:
            spark: the session.
            last: the plan of the micro-batch before; None for the first.
            max_rows: how many rows there shall be, but for those with the same last value.
        """
        from pyspark.sql import functions as F

        if self.watermark_column is None:
            return {}
        rows = self.table_rows(spark)
        check_columns([self.watermark_column], rows.schema)
        name = quote(self.watermark_column)
        kind = rows.schema[self.watermark_column].dataType.simpleString()
        after = None if last is None else last["until"]
        marks = self._between(rows.select(name), kind, after, None)
        if max_rows is not None:
            marks = marks.orderBy(name).limit(max_rows)
        (found,) = marks.agg(F.max(name).cast("string").alias("mark")).collect()
        if found["mark"] is None:
            return None
        return {"after": after, "until": found["mark"], "type": kind}

    def rows(self, spark: SparkSession, plan: Mapping[str, Any]) -> DataFrame:
        """Return the rows of a micro-batch."""
        rows = self.table_rows(spark)
        if self.watermark_column is None:
            return rows
        return self._between(rows, plan["type"], plan["after"], plan["until"])

    def _between(
        self, rows: DataFrame, kind: str, after: str | None, until: str | None
    ) -> DataFrame:
        from pyspark.sql import functions as F

        mark = F.col(quote(str(self.watermark_column)))
        if after is not None:
            rows = rows.where(mark > F.lit(after).cast(kind))
        return rows if until is None else rows.where(mark <= F.lit(until).cast(kind))

    def load(self, spark: SparkSession, max_rows: int | None) -> DataFrame:
        """Return the whole table, which is no stream."""
        return self.table_rows(spark)

    def label(self, rows: DataFrame) -> DataFrame:
        """Add the columns of the pipeline; a row is its own origin."""
        from pyspark.sql import functions as F

        payload = F.to_json(F.struct("*")).cast("binary").alias("payload")
        origin = F.struct(F.lit(self.table).alias("table"), payload)
        return rows.select("*", origin.alias(ORIGIN), F.lit(None).cast("string").alias(ERROR))

    def sample(self, spark: SparkSession) -> DataFrame:
        """Return the first rows."""
        return self.table_rows(spark).limit(FIRST_ROWS)

    def spans(self) -> None:
        """Return nothing: a table has no offsets."""

    def describe(self) -> str:
        """Say in words what is read."""
        how = f"new rows by {self.watermark_column}" if self.watermark_column else "all rows"
        return f"{how} of table {self.table} of {redact(str(self.url))}"
