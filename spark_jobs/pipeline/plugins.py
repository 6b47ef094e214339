"""Sources and sinks of other packages, found by entry points.

A package names a class in the group ``iggy_spark.sources`` or ``iggy_spark.sinks``; the name of the
entry point is the ``type`` in a pipeline file. The class is made with the other keys of the table,
secrets revealed, as keyword arguments. A source has ``read(spark) -> DataFrame``, a stream; a sink
has ``write(rows, batch_id)``, which is called again with the same number when a micro-batch is
repeated. Either may have ``check()``, which is called before Spark starts.

    class CountSink:
        def __init__(self, path: str) -> None:
            self.path = Path(path)

        def write(self, rows: DataFrame, batch_id: int) -> None:
            (self.path / str(batch_id)).write_text(str(rows.count()))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.errors import OptionError
from spark_jobs.jobs.terminal import FIRST_ROWS
from spark_jobs.pipeline.connectors import ERROR, ORIGIN, BatchContext, public_columns
from spark_jobs.pipeline.reading import check_literal, read_value
from spark_jobs.pipeline.secrets import SecretOrText, SecretReference, is_reference, reveal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.pipeline.document import KeyPath, PipelineDocument

SOURCE_GROUP: Final = "iggy_spark.sources"
SINK_GROUP: Final = "iggy_spark.sinks"


def plugin_names(group: str | None) -> list[str]:
    """Return the types that other packages add."""
    return [] if group is None else sorted({one.name for one in entry_points(group=group)})


def load_plugin(
    document: PipelineDocument, path: KeyPath, values: Mapping[str, Any], group: str
) -> PluginSource | PluginSink | None:
    """Make the source or sink of a table whose type is a plugin; None if it has mistakes."""
    name = values["type"]
    (entry, *_) = entry_points(group=group, name=name)
    given = {}
    for key, value in values.items():
        if key != "type":
            try:
                check_literal(key, value)
                given[key] = read_value(key, value, SecretOrText) if is_reference(value) else value
            except ValueError as error:
                document.add_mistake((*path, key), str(error))
    try:
        made_of = entry.load()
    except (ImportError, AttributeError) as error:
        document.add_mistake(path, f"the plugin {name} cannot be loaded: {error}")
        return None
    cls, method = (PluginSource, "read") if group == SOURCE_GROUP else (PluginSink, "write")
    if not callable(getattr(made_of, method, None)):
        document.add_mistake(path, f"the plugin {name} has no method {method}; add it")
        return None
    return cls(name, made_of, given)


@dataclass(frozen=True)
class Plugin:
    """A class of another package with the options of a table.

    Attributes:
        name: its type in the file.
        made_of: the class.
        options: the keys of the table; secrets are revealed when an instance is made.
    """

    name: str
    made_of: Any
    options: Mapping[str, Any] = field(repr=False)

    def make(self) -> Any:
        """Make an instance.

        Raises:
            OptionError: the class refuses the options.
        """
        given = {
            key: reveal(value) if isinstance(value, SecretReference) else value
            for key, value in self.options.items()
        }
        try:
            return self.made_of(**given)
        except (TypeError, ValueError) as error:
            raise OptionError(f"the plugin {self.name} refuses its options: {error}") from None

    def check(self) -> None:
        """Make an instance, and have it check itself if it can."""
        check = getattr(self.make(), "check", None)
        if check is not None:
            check()


class PluginSource(Plugin):
    """A source of another package."""

    prefix = ""
    has_stable_places = False

    def load(self, spark: SparkSession, max_rows: int | None) -> DataFrame:
        """Return the stream of the plugin.

        Raises:
            OptionError: it is no stream.
        """
        rows: DataFrame = self.make().read(spark)
        if not rows.isStreaming:
            raise OptionError(
                f"the plugin {self.name} returned no stream; use spark.readStream in read()"
            )
        return rows

    def label(self, rows: DataFrame) -> DataFrame:
        """Add the columns of the pipeline; a row is its own origin."""
        from pyspark.sql import functions as F

        payload = F.to_json(F.struct("*")).cast("binary").alias("payload")
        origin = F.struct(F.lit(self.name).alias("source"), payload)
        error = F.lit(None).cast("string")
        return rows.select("*", origin.alias(ORIGIN), error.alias(ERROR))

    def sample(self, spark: SparkSession) -> DataFrame:
        """Return an empty batch: a stream has no first rows without a query."""
        schema = self.load(spark, FIRST_ROWS).schema
        return spark.createDataFrame([], schema)

    def spans(self) -> None:
        """Return nothing: they are the plugin's."""

    def describe(self) -> str:
        """Say in words what is read."""
        return f"the plugin {self.name} ({self.made_of.__module__}.{self.made_of.__qualname__})"


class PluginSink(Plugin):
    """A sink of another package."""

    needs_origin = False

    @property
    def guarantee(self) -> str:
        """Say what a repeated micro-batch does."""
        given = getattr(self.made_of, "guarantee", None)
        known = given if isinstance(given, str) else "what its documentation says"
        return f"{known} (it is called again with the number of a repeated micro-batch)"

    def prepare(self, rows: DataFrame, prefix: str) -> None:
        """Need nothing."""

    def write(self, rows: DataFrame, context: BatchContext) -> None:
        """Hand the rows of a micro-batch to the plugin."""
        self.make().write(public_columns(rows), context.batch_id)

    def describe(self) -> str:
        """Say in words what is written."""
        return f"the plugin {self.name} ({self.made_of.__module__}.{self.made_of.__qualname__})"
