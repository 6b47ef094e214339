"""Sinks that are tables: of Delta and Iceberg, of a database, or of files that Spark keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spark_jobs import jdbc, tables
from spark_jobs.errors import OptionError
from spark_jobs.pipeline.connectors import BatchContext, public_columns
from spark_jobs.pipeline.file_sink import refuse_list_of_files, with_time, write_files
from spark_jobs.pipeline.reading import INTERNAL
from spark_jobs.pipeline.secrets import SecretOrText, SecretReference, redact, reveal
from spark_jobs.pipeline.sql_steps import check_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

ONCE: Final = "each row once: the number of the micro-batch is in the same commit as its rows"


@dataclass(frozen=True)
class TableSink:
    """A table of Delta or Iceberg, or one that Spark keeps in files of another format.

    Attributes:
        table: its name; it is created if missing.
        format: ``delta``, ``iceberg``, or a format of Spark itself.
        keys: replace rows with the same values in these columns instead of appending.
        partition_by: columns by which it is divided; ``date`` and ``hour`` are made of the time.
        time_column: where date and hour come from.
        evolve_schema: whether the table takes new columns, and wider types where it can.
        path: where the files of a new table are; by default the catalog decides.
    """

    table: str
    format: str = field(default="delta", metadata=INTERNAL)
    keys: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    time_column: str = "timestamp"
    evolve_schema: bool = False
    path: str | None = None

    needs_origin = False

    @property
    def guarantee(self) -> str:
        """Say what a repeated micro-batch does."""
        if self.format in tables.OWN_FORMATS:
            return "each row once: a repeated micro-batch puts the same files in the same places"
        return ONCE

    def check(self) -> None:
        """Refuse what the format cannot do."""
        if self.format not in tables.OWN_FORMATS:
            self._target()
        elif self.keys or self.evolve_schema:
            raise OptionError(
                f"tables of {self.format} can only be appended to; leave --merge-key and "
                f"--evolve-schema out, or choose --format {' or '.join(tables.FORMATS)}"
            )

    def _target(self) -> tables.TableTarget:
        return tables.TableTarget(
            self.table,
            self.format,
            mode="merge" if self.keys else "append",
            keys=self.keys,
            partition_by=self.partition_by,
            evolve_schema=self.evolve_schema,
            path=self.path,
        )

    def packages(self) -> Sequence[str]:
        """Return the Maven packages that a session needs."""
        from pyspark import __version__

        return tables.packages(self.format, __version__)

    def prepare(self, rows: DataFrame, prefix: str) -> None:
        """Check that Spark has the package of the format, and the rows the columns."""
        tables.check_format(rows.sparkSession, self.format)
        check_columns(self.keys, rows.schema)
        with_time(rows, self.partition_by, self.time_column, prefix)

    def write(self, rows: DataFrame, context: BatchContext) -> None:
        """Write the rows of a micro-batch."""
        timed = with_time(public_columns(rows), self.partition_by, self.time_column, context.prefix)
        if self.format in tables.OWN_FORMATS:
            self._append_files(timed, context)
            return
        writer, number = context.marker, context.batch_id
        tables.write_batch(timed, self._target(), writer=writer, batch_id=number)

    def _append_files(self, rows: DataFrame, context: BatchContext) -> None:
        """Put files where the table has its own, and have Spark look for them."""
        spark = rows.sparkSession
        if not spark.catalog.tableExists(self.table):
            creator = rows.limit(0).write.format(self.format)
            divided = creator.partitionBy(*self.partition_by) if self.partition_by else creator
            divided.saveAsTable(self.table)
        described = spark.sql(f"DESCRIBE TABLE EXTENDED {self.table}").collect()
        (place,) = (row["data_type"] for row in described if row["col_name"] == "Location")
        refuse_list_of_files(spark, place)
        write_files(rows, place, context, partition_by=self.partition_by, file_format=self.format)
        if self.partition_by:
            spark.catalog.recoverPartitions(self.table)
        spark.catalog.refreshTable(self.table)

    def describe(self) -> str:
        """Say in words what is written."""
        how = f"merge by {', '.join(self.keys)}" if self.keys else "append"
        return f"{self.format} table {self.table}, {how}"


@dataclass(frozen=True)
class IcebergSink(TableSink):
    """A table of Iceberg; its catalog is set with ``--conf spark.sql.catalog.NAME...``."""

    format: str = field(default="iceberg", metadata=INTERNAL)


@dataclass(frozen=True)
class JdbcSink:
    """A table of a database.

    Attributes:
        url: the place of the database, ``jdbc:postgresql://host/database``.
        table: the name of the table, with its schema if it has one; it is created if missing.
        keys: replace rows with the same values in these columns instead of appending.
        user: who logs in.
        password: the password.
        driver: the Java class of the driver, if it is not the usual one.
    """

    url: SecretOrText
    table: str
    keys: tuple[str, ...] = ()
    user: SecretOrText | None = None
    password: SecretReference | None = None
    driver: str | None = None

    needs_origin = False
    guarantee = "each row once: rows and the number of the micro-batch are in one transaction"

    def check(self) -> None:
        """Validate the options."""
        self._target()

    def _target(self) -> jdbc.JdbcTarget:
        return jdbc.JdbcTarget(
            reveal(self.url),
            self.table,
            mode="upsert" if self.keys else "append",
            keys=self.keys,
            user=None if self.user is None else reveal(self.user),
            password=None if self.password is None else self.password.reveal(),
            driver=self.driver,
        )

    def packages(self) -> Sequence[str]:
        """Return the Maven packages that a session needs."""
        return jdbc.packages(reveal(self.url))

    def prepare(self, rows: DataFrame, prefix: str) -> None:
        """Check the columns; the first write connects."""
        check_columns(self.keys, rows.schema)

    def write(self, rows: DataFrame, context: BatchContext) -> None:
        """Write the rows of a micro-batch."""
        writer, number = context.marker, context.batch_id
        jdbc.write_batch(public_columns(rows), self._target(), writer=writer, batch_id=number)

    def describe(self) -> str:
        """Say in words what is written."""
        url = self.url if isinstance(self.url, str) else str(self.url)
        how = f"upsert by {', '.join(self.keys)}" if self.keys else "append"
        return f"table {self.table} of {redact(url)}, {how}"
