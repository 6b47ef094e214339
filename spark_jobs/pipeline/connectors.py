"""What the parts of a pipeline are to each other: sources, steps and sinks.

Rows carry two columns of the pipeline until they are written: where a row comes from, with what
was read, and why it cannot be processed. A row with an error passes all further steps untouched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.jobs.topic_source import PartitionSpan

ORIGIN: Final = "_iggy_origin"
"""A struct: the place of a row in its source, ``payload``, and times where the source has some."""

ERROR: Final = "_iggy_error"
"""Why a row cannot be processed; null for all others."""

TIME: Final = "_iggy_time"
"""The time by which Spark tells late rows, from the first step on that compares rows."""

INTERNAL_COLUMNS: Final = (ORIGIN, ERROR, TIME)


@dataclass(frozen=True)
class BatchContext:
    """The micro-batch that is written.

    Attributes:
        query: the id of the checkpoint: two runs with the same one continue each other.
        writer: the name of the pipeline, and enough of that id to tell checkpoints apart.
        batch_id: the number of the micro-batch, the same when it is repeated.
        sink: the position of the sink in the pipeline.
        prefix: begins the names of columns that describe a message and not its payload.
    """

    query: str
    writer: str
    batch_id: int
    sink: int
    prefix: str

    @property
    def marker(self) -> str:
        """The id under which a table keeps the number; that of the query, as Spark's own sinks."""
        return f"{self.query}-{self.sink}" if self.sink else self.query

    @property
    def sink_writer(self) -> str:
        """The writer, for this sink alone."""
        return f"{self.writer}-{self.sink}"


class PipelineSource(Protocol):
    """Where rows come from."""

    @property
    def prefix(self) -> str:
        """What the names of columns begin with that describe a message and not its payload."""

    @property
    def has_stable_places(self) -> bool:
        """Whether a row is found at the same place when everything is read anew."""

    def check(self) -> None:
        """Validate the options, against the server where there is one."""

    def load(self, spark: SparkSession, max_rows: int | None) -> DataFrame:
        """Return the rows as a stream."""

    def label(self, rows: DataFrame) -> DataFrame:
        """Add the columns of the pipeline."""

    def sample(self, spark: SparkSession) -> DataFrame:
        """Return the first rows, as a batch."""

    def spans(self) -> list[PartitionSpan] | None:
        """Return the offsets of a first run, where the source has such."""

    def describe(self) -> str:
        """Say in words what is read."""


class PipelineStep(Protocol):
    """A transform."""

    @property
    def is_stateful(self) -> bool:
        """Whether it compares rows of different micro-batches."""

    def apply(self, rows: DataFrame, prefix: str) -> DataFrame:
        """Transform rows that have the columns of the pipeline."""

    def sql(self, rows: DataFrame, prefix: str) -> str | None:
        """Return the SQL that it runs, if it is SQL."""

    def describe(self) -> str:
        """Say in words what it does."""


class PipelineSink(Protocol):
    """Where rows go."""

    @property
    def needs_origin(self) -> bool:
        """Whether it writes, or may refuse, the origin of rows."""

    @property
    def guarantee(self) -> str:
        """What a repeated micro-batch does to what is there."""

    def check(self) -> None:
        """Validate the options, against the server where there is one."""

    def prepare(self, rows: DataFrame, prefix: str) -> None:
        """Check that the session and the columns have what is needed, before the first write."""

    def write(self, rows: DataFrame, context: BatchContext) -> DataFrame | None:
        """Write the rows of a micro-batch; return those that the target has refused."""

    def describe(self) -> str:
        """Say in words what is written."""


def good_rows(rows: DataFrame) -> DataFrame:
    """Return the rows without an error."""
    return rows.where(f"{ERROR} IS NULL")


def public_columns(rows: DataFrame) -> DataFrame:
    """Drop the columns of the pipeline."""
    return rows.drop(*INTERNAL_COLUMNS)


def names_of(rows: Any) -> list[str]:
    """Return the names of the columns that are not of the pipeline."""
    return [name for name in rows.columns if name not in INTERNAL_COLUMNS]
