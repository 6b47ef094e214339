"""``format("iggy")``: what Spark asks for when a query names the source or the sink.

Readers and writers are imported when they are asked for, because Spark plans each query in a
process that has to start first.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from spark_jobs.options import Use, check_names, read_options, write_options

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_jobs.reader import BatchReader
    from spark_jobs.stream_reader import StreamReader
    from spark_jobs.writer import BatchWriter, StreamWriter

__all__ = ["IggyDataSource", "IggyPushdownDataSource", "register"]

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"

SET_BY_STREAMS: Final = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)
"""What Spark 4.3 puts into the environment of a source each time one of its streams starts."""


class IggyDataSource(DataSource):
    """Topics of Apache Iggy as a source and a sink of Spark."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Take the options of a query; only their names are looked at here."""
        super().__init__(options)
        check_names(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "iggy"

    def schema(self) -> StructType:
        """Return the columns of a read whose user named none."""
        from spark_jobs.schema import read_schema

        text = self.options.get("includeHeaders", "false")
        return read_schema(include_headers=text.strip().lower() == "true")

    def reader(self, schema: StructType) -> BatchReader:
        """Make the reader of ``spark.read``."""
        from spark_jobs.reader import BatchReader

        return BatchReader(read_options(self.options, Use.BATCH), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        """Make the reader of ``spark.readStream``."""
        from spark_jobs.stream_reader import StreamReader

        return StreamReader(read_options(self.options, Use.STREAM), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Make the writer of ``df.write``."""
        from spark_jobs.writer import BatchWriter

        return BatchWriter(write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Make the writer of ``df.writeStream``."""
        from spark_jobs.writer import StreamWriter

        return StreamWriter(write_options(self.options), schema, overwrite=overwrite)


class IggyPushdownDataSource(IggyDataSource):
    """The same with filter pushdown.

    Spark 4.3 remembers what a filter left over, and shows that to every other query on the same
    ``load()``, filtered or not. So this one is only for those who load anew for each query.
    """

    def reader(self, schema: StructType) -> BatchReader:
        """Make the reader of ``spark.read``."""
        from spark_jobs.reader import PushdownReader

        return PushdownReader(read_options(self.options, Use.BATCH), schema)


def register(spark: SparkSession, *, pushdown: bool = False) -> SparkSession:
    """Make ``format("iggy")`` known to a session.

    Args:
        spark: the session.
        pushdown: whether filters on topic, partition, offset and timestamp decide what is polled.
            Spark 4.3 then answers a second query on the same ``load()`` with the rows of the first
            one, so load anew for each query, or leave this off. It switches on
            ``spark.sql.python.filterPushdown.enabled`` for the session.

    Returns:
        The session.
    """
    if pushdown:
        spark.conf.set(PUSHDOWN, "true")
    with _complete_environment(spark):
        spark.dataSource.register(IggyPushdownDataSource if pushdown else IggyDataSource)
    return spark


@contextmanager
def _complete_environment(spark: SparkSession) -> Iterator[None]:
    """Have what is registered in here begin with all variables that Spark will put there.

    The environment of a source is one Java map for all its streams, and each stream puts the same
    names into it from a thread of its own, without a lock. Two that start at the same moment can
    leave a map that counts more entries than it has; every task is sent with it and cannot be read
    (``OptionalDataException``). Where the names are there already, only values change.
    """
    context = getattr(spark, "_sc", None)
    if context is None:  # Spark Connect makes these maps on its server
        yield
        return
    before = context.environment
    context.environment = {**dict.fromkeys(SET_BY_STREAMS, ""), **before}
    try:
        yield
    finally:
        context.environment = before
