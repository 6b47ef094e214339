"""``format("iggy")``: the data source and sink of Spark.

Readers and writers are imported when they are used, because Spark plans each query in a process
that has to start first.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql.datasource import DataSource

from spark_jobs.credentials import NOTHING_COLLECTED, CollectedSecrets, collect_secrets
from spark_jobs.errors import OptionError
from spark_jobs.options import (
    OPTION_NAMES,
    QueryKind,
    check_names,
    read_options,
    write_options,
)
from spark_jobs.redaction import hide_secrets
from spark_jobs.spark_api import (
    HAS_ADMISSION_CONTROL,
    HAS_FILTER_PUSHDOWN,
    HAS_STREAM_ARROW_WRITER,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamWriter
    from pyspark.sql.types import StructType

    from spark_jobs.reader import BatchReader
    from spark_jobs.stream_reader import StreamReader
    from spark_jobs.writer import BatchWriter


PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"

STREAM_ENVIRONMENT: Final = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)
"""Variables that Spark 4.3 sets for a source each time one of its streams starts."""


class IggyDataSource(DataSource):
    """Topics of Apache Iggy as a source and a sink of Spark."""

    collected: ClassVar[CollectedSecrets] = NOTHING_COLLECTED

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Check the names of the options."""
        super().__init__(options)
        check_names(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "iggy"

    def schema(self) -> StructType:
        """Return the columns of a read without a schema."""
        from spark_jobs.schema import read_schema

        text = self.options.get("includeHeaders", "false")
        return read_schema(include_headers=text.strip().lower() == "true")

    def reader(self, schema: StructType) -> BatchReader:
        """Make the reader of ``spark.read``."""
        from spark_jobs.reader import BatchReader

        return BatchReader(read_options(self.options, QueryKind.BATCH, self.collected), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        """Make the reader of ``spark.readStream``."""
        options = read_options(self.options, QueryKind.STREAM, self.collected)
        if HAS_ADMISSION_CONTROL:
            from spark_jobs.stream_reader import StreamReader

            return StreamReader(options, schema)
        from spark_jobs.older_spark import UnlimitedStreamReader

        return UnlimitedStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Make the writer of ``df.write``."""
        from spark_jobs.writer import BatchWriter

        return BatchWriter(write_options(self.options, self.collected), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Make the writer of ``df.writeStream``."""
        from spark_jobs.writer import StreamWriter

        writer = StreamWriter(write_options(self.options, self.collected), schema)
        if HAS_STREAM_ARROW_WRITER:
            return writer
        from spark_jobs.older_spark import RowStreamWriter

        return RowStreamWriter(writer, schema)


class IggyPushdownDataSource(IggyDataSource):
    """The same with filter pushdown.

    Spark 4.3 caches the filtered source and uses it for every other query on the same ``load()``,
    filtered or not. So use this one only with a new ``load()`` for each query.
    """

    def reader(self, schema: StructType) -> BatchReader:
        """Make the reader of ``spark.read``."""
        from spark_jobs.reader import PushdownReader

        return PushdownReader(read_options(self.options, QueryKind.BATCH, self.collected), schema)


def register(spark: SparkSession, *, pushdown: bool = False) -> SparkSession:
    """Register ``format("iggy")`` in a session.

    Spark then hides passwords and connection strings in plans, its UI and event logs. Variables
    that begin with ``IGGY`` and entries of Hadoop's credential providers that begin with ``iggy``
    are read now, for queries that log in with them; call it again when they change.

    Args:
        spark: the session.
        pushdown: whether filters on topic, partition, offset and timestamp limit what is polled.
            Spark 4.3 then returns the rows of the first query for a second query on the same
            ``load()``, so call ``load()`` for each query, or leave this off. It switches on
            ``spark.sql.python.filterPushdown.enabled`` for the session.

    Returns:
        The session.

    Raises:
        OptionError: this version of Spark has no filter pushdown.
    """
    if pushdown:
        if not HAS_FILTER_PUSHDOWN:
            raise OptionError("filter pushdown needs PySpark 4.1; register without it")
        spark.conf.set(PUSHDOWN, "true")
    hide_secrets(spark, OPTION_NAMES)
    source = IggyPushdownDataSource if pushdown else IggyDataSource
    with _complete_environment(spark):
        spark.dataSource.register(_with_secrets(source, collect_secrets(spark)))
    return spark


def _with_secrets(source: type[IggyDataSource], found: CollectedSecrets) -> type[IggyDataSource]:
    """Make a source that carries the secrets to the process that plans.

    Nothing can import this class, so it is pickled with its values; Spark shows them nowhere.
    """

    class SourceWithSecrets(source):  # type: ignore[valid-type,misc]
        collected = found

    return SourceWithSecrets


@contextmanager
def _complete_environment(spark: SparkSession) -> Iterator[None]:
    """Register with an environment that has all variables that Spark will set later.

    The environment of a source is one Java map for all its streams, and each stream sets the same
    names in it from its own thread, without a lock. Two streams that start at the same moment can
    corrupt the size of the map; every task is sent with it and cannot be read
    (``OptionalDataException``). Where the names exist already, only values change.
    """
    context = getattr(spark, "_sc", None)
    if context is None:  # Spark Connect has these maps on its server
        yield
        return
    before = context.environment
    context.environment = {**dict.fromkeys(STREAM_ENVIRONMENT, ""), **before}
    try:
        yield
    finally:
        context.environment = before
