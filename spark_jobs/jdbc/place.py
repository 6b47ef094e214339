"""A table with its staging table and its marker, over one connection of the driver of Spark."""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.errors import OptionError, SchemaError, StaleBatchError
from spark_jobs.jdbc.statements import RowMove, quote_name
from spark_jobs.jdbc.target import packages, without_secrets
from spark_jobs.tables.merge import AGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_jobs.jdbc.target import JdbcTarget


STAGED_ROW: Final = "iggy_staged_row"
"""The column of a staging table that numbers its rows."""

WRITER_MAX: Final = 200
"""Characters of a writer's name, and of a table's; the marker's columns are as long."""


def write_rows(
    rows: DataFrame, target: JdbcTarget, table: str, *, tasks_max: int, column_types: str = ""
) -> None:
    """Add rows to a table as Spark does, which creates it if it is missing."""
    writer = rows.write.format("jdbc").options(url=target.url, dbtable=table, **target.properties())
    writer = writer.option("driver", target.driver or target.database.driver)
    if column_types:
        writer = writer.option("createTableColumnTypes", column_types)
    writer.option("numPartitions", tasks_max).mode("append").save()


@contextmanager
def open_connection(spark: SparkSession, target: JdbcTarget) -> Iterator[Any]:
    """Open a connection from the driver of Spark, which has the driver of the database.

    Raises:
        OptionError: it has not got it.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types

    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        raise OptionError("tables by JDBC need a session in this process, without Spark Connect")
    name = target.driver or target.database.driver
    try:
        driver = jvm.org.apache.spark.util.Utils.classForName(name, True, False).newInstance()
    except Py4JJavaError:
        raise OptionError(
            f"Spark has no driver {name} here; add --packages {','.join(packages(target.url))}"
        ) from None
    properties = jvm.java.util.Properties()
    for key, value in target.properties().items():
        properties.setProperty(key, value)
    connection = driver.connect(target.url, properties)
    if connection is None:
        raise OptionError(f"the driver {name} does not know {without_secrets(target.url)}")
    try:
        yield connection
    finally:
        connection.close()


def column_named(columns: Sequence[str], key: str, target: JdbcTarget) -> str:
    """Return the column that a key names, whatever its case.

    Raises:
        OptionError: there is none.
    """
    for name in columns:
        if name.lower() == key.lower():
            return name
    raise OptionError(
        f"the key {key!r} of {target.table} is no column; there are {', '.join(columns)}"
    )


class TablePlace:
    """A table, its staging table and its marker, over one connection.

    Args:
        connection: a ``java.sql.Connection`` that commits each statement.
        target: the table.
        writer: who writes.
    """

    def __init__(self, connection: Any, target: JdbcTarget, writer: str) -> None:
        self._connection = connection
        self._target = target
        self._writer = writer
        self._markers = target.beside("iggy_batches")
        digest = blake2b(f"{writer}\0{target.table}".encode(), digest_size=8).hexdigest()
        self.staging = target.beside(f"iggy_staging_{digest}")

    def is_written(self, batch_id: int) -> bool:
        """Tell whether the micro-batch is in the table.

        Raises:
            StaleBatchError: a later one is.
        """
        if not self._exists(self._markers):
            self._execute(
                f"CREATE TABLE {self._markers} (writer VARCHAR({WRITER_MAX}) NOT NULL, "
                f"target_table VARCHAR({WRITER_MAX}) NOT NULL, batch_id BIGINT NOT NULL, "
                "PRIMARY KEY (writer, target_table))"
            )
        mine = self._writer, self._target.table
        where = "WHERE writer = ? AND target_table = ?"
        found = self._query(f"SELECT batch_id FROM {self._markers} {where}", *mine)
        if not found:
            self._execute(f"INSERT INTO {self._markers} VALUES (?, ?, -1)", *mine)
            return False
        last = int(found[0])
        if last > batch_id:
            raise StaleBatchError(
                f"table {self._target.table} holds micro-batch {last} of {self._writer}, and now "
                f"comes {batch_id}: its checkpoint was deleted or restored; give the new "
                "checkpoint another writer, and remove from the table what it will read again"
            )
        return last == batch_id

    def create(self, batch: DataFrame) -> None:
        """Create the table if it is missing, with an index over the keys."""
        target, database = self._target, self._target.database
        if self._exists(target.table):
            return
        schema = _with_keys(batch.schema, target)
        empty = batch.sparkSession.createDataFrame([], schema)
        texts = [
            f"{one.name} {database.key_text}"
            for one in schema.fields
            if not one.nullable and one.dataType.typeName() == "string"
        ]
        types = ", ".join(texts) if database.key_text is not None else ""
        write_rows(empty, target, target.table, tasks_max=1, column_types=types)
        if target.keys:
            keys = ", ".join(
                quote_name(column_named(batch.columns, key, target)) for key in target.keys
            )
            index = f"iggy_key_{self.staging.rpartition('_')[2]}"
            self._execute(f"CREATE UNIQUE INDEX {index} ON {target.table} ({keys})")

    def columns(self) -> list[str]:
        """Return the columns of the table."""
        statement = self._connection.prepareStatement(
            f"SELECT * FROM {self._target.table} WHERE 1 = 0"
        )
        try:
            about = statement.executeQuery().getMetaData()
            return [about.getColumnName(at + 1) for at in range(about.getColumnCount())]
        finally:
            statement.close()

    def make_staging(self, statement: RowMove) -> None:
        """Make the staging table anew, with the types of the table."""
        if self._exists(self.staging):
            self._execute(f"DROP TABLE {self.staging}")
        self._execute(
            f"CREATE TABLE {self.staging} AS SELECT {statement.names()}, CAST(0 AS BIGINT) AS "
            f"{quote_name(STAGED_ROW)} FROM {statement.target} WHERE 1 = 0 WITH NO DATA"
        )

    def repeated_rows(self) -> int:
        """Count the rows of tasks that Spark has repeated after they had committed."""
        row = quote_name(STAGED_ROW)
        (count,) = self._query(f"SELECT COUNT(*) - COUNT(DISTINCT {row}) FROM {self.staging}")
        return int(count)

    def move(self, statement: RowMove, batch_id: int) -> None:
        """Move the staged rows to the table and advance the marker, in one transaction."""
        self._connection.setAutoCommit(False)
        try:
            advanced = self._execute(
                f"UPDATE {self._markers} SET batch_id = ? "
                "WHERE writer = ? AND target_table = ? AND batch_id < ?",
                *(batch_id, self._writer, self._target.table, batch_id),
            )
            if advanced:
                self._move(statement)
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        finally:
            self._connection.setAutoCommit(True)
        self._execute(f"DROP TABLE {self.staging}")

    def _move(self, statement: RowMove) -> None:
        repeated = self.repeated_rows()
        if repeated:
            raise RuntimeError(
                f"{repeated} rows are twice in {self.staging}: Spark repeats tasks that have "
                "written; start the query again, without spark.speculation"
            )
        if not statement.keys:
            self._execute(statement.insert())
            return
        self._check_keys(statement)
        try:
            self._execute(self._target.database.upsert(statement))
        except Exception as error:
            keys = ", ".join(map(quote_name, statement.keys))
            if _sql_state(error) == "42P10":
                raise SchemaError(
                    f"table {statement.target} has no unique key ({keys}); CREATE UNIQUE INDEX ON "
                    f"{statement.target} ({keys})"
                ) from error
            raise

    def _check_keys(self, statement: RowMove) -> None:
        keys = list(map(quote_name, statement.keys))
        no_key = " OR ".join(f"{key} IS NULL" for key in keys)
        (count,) = self._query(f"SELECT COUNT(*) FROM {self.staging} WHERE {no_key}")
        if int(count):
            raise SchemaError(
                f"{count} rows of the micro-batch for {statement.target} lack a key "
                f"({', '.join(statement.keys)}); filter them out, or send them to dead letters"
            )
        names = ", ".join(keys)
        twice = self._query(
            f"SELECT COUNT(*) FROM {self.staging} GROUP BY {names} HAVING COUNT(*) > 1"
        )
        if twice:
            raise SchemaError(
                f"{len(twice)} keys ({', '.join(statement.keys)}) are in the micro-batch for "
                f"{statement.target} more than once, and nothing says which row is the newest; "
                f"keep the columns {', '.join(AGE)} of the messages, or deduplicate the rows"
            )

    def _exists(self, table: str) -> bool:
        from py4j.protocol import Py4JJavaError

        try:
            self._query(f"SELECT COUNT(*) FROM {table} WHERE 1 = 0")
        except Py4JJavaError as error:
            if _sql_state(error).startswith("42"):
                return False
            raise
        return True

    def _execute(self, sql: str, *values: str | int) -> int:
        statement = self._prepared(sql, values)
        try:
            return int(statement.executeUpdate())
        finally:
            statement.close()

    def _query(self, sql: str, *values: str | int) -> list[Any]:
        """Return the first column."""
        statement = self._prepared(sql, values)
        try:
            rows, found = statement.executeQuery(), []
            while rows.next():
                found.append(rows.getObject(1))
            return found
        finally:
            statement.close()

    def _prepared(self, sql: str, values: Sequence[str | int]) -> Any:
        statement = self._connection.prepareStatement(sql)
        for at, value in enumerate(values, start=1):
            if isinstance(value, int):
                statement.setLong(at, value)
            else:
                statement.setString(at, value)
        return statement


def _sql_state(error: BaseException) -> str:
    raised = getattr(error, "java_exception", None)
    state = getattr(raised, "getSQLState", None)
    return str(state() or "") if state is not None else ""


def _with_keys(schema: StructType, target: JdbcTarget) -> StructType:
    """Make the keys of a new table NOT NULL."""
    from pyspark.sql.types import StructField, StructType

    keys = {key.lower() for key in target.keys}
    return StructType(
        [StructField(one.name, one.dataType, one.name.lower() not in keys) for one in schema.fields]
    )
