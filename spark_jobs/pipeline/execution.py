"""Runs a pipeline as one streaming query: each micro-batch is transformed once and written to all.

Only a pipeline that compares rows of different micro-batches has a second query, for the rows that
cannot be processed: their times would make other rows late.

If more than one output needs the rows of a micro-batch, they are cached. A micro-batch counts as
done when every output has it; if one fails, all of them get it again, under the same number.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.errors import OptionError
from spark_jobs.jobs.queries import BAD_ROWS
from spark_jobs.pipeline.batch_loop import BatchLoop
from spark_jobs.pipeline.connectors import (
    ERROR,
    ORIGIN,
    BatchContext,
    good_rows,
)
from spark_jobs.pipeline.dead_letters import strict
from spark_jobs.pipeline.jdbc_source import JdbcSource
from spark_jobs.pipeline.reading import seconds_of
from spark_jobs.pipeline.specification import with_place
from spark_jobs.pipeline.stateful_steps import with_time_checked
from spark_jobs.tables import query_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from spark_jobs.jobs.queries import RunningQuery
    from spark_jobs.pipeline.connectors import PipelineSource
    from spark_jobs.pipeline.specification import PipelineSpec

QUERY_FOLDER: Final = "rows"
LETTERS_FOLDER: Final = "dead-letters"
"""The folders of the queries below the checkpoint."""

OBSERVED: Final = "iggy"
"""The name of the numbers that Spark counts while rows pass."""

POOL: Final = "spark.scheduler.pool"
LETTERS: Final = 99
"""The position of dead letters among the outputs; there are fewer sinks."""

REJECTED: Final = 100
"""Plus the position of a sink: its rejected rows among the outputs."""

ADVICE: Final = "add [dead_letters] to the pipeline to set such rows aside"


class PipelineExecution:
    """One pipeline, and what its micro-batches have done.

    Args:
        spec: the pipeline.
        advice: what a user does about rows that cannot be processed.

    Attributes:
        failure: why the last micro-batch failed, as it was raised.
        dead_letters_count: rows that could not be processed, since the start.
    """

    def __init__(self, spec: PipelineSpec, *, advice: str = ADVICE) -> None:
        self.failure: Exception | None = None
        self.dead_letters_count = 0
        self._spec = spec
        self._advice = advice
        stateful = [at for at, step in enumerate(spec.steps) if step.is_stateful]
        # Spark keeps state for streams only; all other steps see plain batches.
        self._first_stateful = stateful[0] if stateful else 0
        self._stream_steps = stateful[-1] + 1 if stateful else 0

    @property
    def needs_second_query(self) -> bool:
        """Whether a query of its own writes the dead letters."""
        return bool(self._stream_steps) and self._spec.dead_letters.writes

    def start(self, spark: SparkSession) -> RunningQuery:
        """Start the query."""
        spec = self._spec
        self.failure = None
        rows = self._load(spark, spec.source)
        self.prepare(spark, rows)
        if isinstance(spec.source, JdbcSource):
            return self._start_loop(spark, spec.source)
        if self._stream_steps:
            rows = self._with_state(self._before_state(rows))
        return self._start(spark, rows.writeStream.foreachBatch(self.process), QUERY_FOLDER)

    def prepare(self, spark: SparkSession, rows: DataFrame) -> None:
        """Find what does not go together before there is a checkpoint, with rows that are none."""
        planned = self.preview(spark.createDataFrame([], rows.schema))
        for number, sink in enumerate(self._spec.sinks):
            prepare = partial(sink.prepare, planned, self._spec.source.prefix)
            with_place(self._spec, ("sink", number), prepare)

    def _start_loop(self, spark: SparkSession, source: JdbcSource) -> BatchLoop:
        run = self._spec.run
        return BatchLoop(
            spark,
            source,
            self.process,
            folder=f"{run.checkpoint.rstrip('/')}/{QUERY_FOLDER}",
            every_s=seconds_of(run.every),
            once=run.once,
            max_rows=run.max_rows,
            pool=self._spec.name,
        )

    def start_second(self, spark: SparkSession) -> StreamingQuery:
        """Start the query of the dead letters."""
        source: Any = self._spec.source
        if getattr(source, "consumer", None) is not None:
            source = replace(source, consumer=f"{source.consumer}-{LETTERS_FOLDER}")
        rows = self._before_state(self._load(spark, source)).where(f"{ERROR} IS NOT NULL")
        writer = rows.writeStream.foreachBatch(self._write_letters)
        return self._start(spark, writer, LETTERS_FOLDER)

    def _load(self, spark: SparkSession, source: PipelineSource) -> DataFrame:
        return with_place(
            self._spec, ("source",), lambda: source.load(spark, self._spec.run.max_rows)
        )

    def _before_state(self, rows: DataFrame) -> DataFrame:
        """Transform a stream up to the first step that compares rows."""
        number = self._first_stateful
        rows = self._apply(self._spec.source.label(rows), 0, number)
        time = getattr(self._spec.steps[number], "time", "")
        return with_place(self._spec, ("transform", number), lambda: with_time_checked(rows, time))

    def _with_state(self, rows: DataFrame) -> DataFrame:
        """Leave out rows with an error, which are counted, and compare the others."""
        from pyspark.sql import functions as F

        if self._spec.dead_letters.fails:
            rows = strict(rows, self._advice)
        counted = rows.observe(OBSERVED, F.count(ERROR).alias(BAD_ROWS))
        return self._apply(good_rows(counted), self._first_stateful, self._stream_steps)

    def _start(self, spark: SparkSession, writer: DataStreamWriter, folder: str) -> StreamingQuery:
        run, name = self._spec.run, self._spec.name
        named = writer.queryName(name if folder == QUERY_FOLDER else f"{name}-{folder}")
        placed = named.option("checkpointLocation", f"{run.checkpoint.rstrip('/')}/{folder}")
        if run.once:
            timed = placed.trigger(availableNow=True)
        else:
            timed = placed.trigger(processingTime=run.every)
        spark.sparkContext.setLocalProperty(POOL, name)
        try:
            return timed.start()
        finally:
            spark.sparkContext.setLocalProperty(POOL, None)  # type: ignore[arg-type]  # it clears

    def process(self, batch: DataFrame, batch_id: int) -> None:
        """Write a micro-batch."""
        try:
            self._process(batch, batch_id)
        except Exception as error:
            self.failure = error
            raise

    def _process(self, batch: DataFrame, batch_id: int) -> None:
        self.write(self.prepared(batch), self._context(batch, batch_id))

    def _context(self, batch: DataFrame, batch_id: int) -> BatchContext:
        # A new checkpoint begins to count anew, and must not be taken for the old one.
        query = query_id(batch)
        writer = f"{self._spec.name}-{query.partition('-')[0]}"
        return BatchContext(query, writer, batch_id, 0, self._spec.source.prefix)

    def _write_letters(self, bad: DataFrame, batch_id: int) -> None:
        context = replace(self._context(bad, batch_id), sink=LETTERS)
        self._spec.dead_letters.write(bad, context)

    def prepared(self, batch: DataFrame) -> DataFrame:
        """Transform what was read; rows that cannot be processed have an error."""
        rows = batch if self._stream_steps else self._spec.source.label(batch)
        rows = self._apply(rows, self._stream_steps, len(self._spec.steps))
        return strict(rows, self._advice) if self._spec.dead_letters.fails else rows

    def preview(self, sample: DataFrame) -> DataFrame:
        """Transform some rows outside of a query."""
        return self._apply(self._spec.source.label(sample), 0, len(self._spec.steps))

    def _apply(self, rows: DataFrame, first: int, end: int) -> DataFrame:
        for number in range(first, end):
            rows = self.apply_step(rows, number)
        return rows

    def apply_step(self, rows: DataFrame, number: int) -> DataFrame:
        """Run one transform.

        Raises:
            OptionError: it does not go with the rows; the message names its place in the file.
        """
        from pyspark.errors import AnalysisException, ParseException

        step = self._spec.steps[number]
        try:
            return step.apply(rows, self._spec.source.prefix)
        except (AnalysisException, ParseException, OptionError) as error:
            reason = str(error).strip().partition("\n")[0].partition(" SQLSTATE:")[0]
            place = self._spec.at("transform", number)
            raise OptionError(f"{place}{reason}; the transform is: {step.describe()}") from None

    def write(self, rows: DataFrame, context: BatchContext) -> None:
        """Write prepared rows to all outputs."""
        spec, letters = self._spec, self._spec.dead_letters
        keeps_origin = spec.source.has_stable_places or any(one.needs_origin for one in spec.sinks)
        if not keeps_origin:
            # What was read is only of use where it could not be processed.
            rows = rows.withColumn(ORIGIN, _only_of_errors())
        outputs_count = len(spec.sinks) + (not letters.fails)
        if outputs_count == 1:
            self._write_sinks(rows, context)
            return
        rows.persist()
        try:
            bad_count = 0 if letters.fails else rows.where(f"{ERROR} IS NOT NULL").count()
            self._write_sinks(rows if letters.fails else good_rows(rows), context)
            if bad_count:
                bad = rows.where(f"{ERROR} IS NOT NULL")
                letters.write(bad, replace(context, sink=LETTERS))
                self.dead_letters_count += bad_count
        finally:
            rows.unpersist()

    def _write_sinks(self, rows: DataFrame, context: BatchContext) -> None:
        for number, sink in enumerate(self._spec.sinks):
            here = replace(context, sink=number)
            rejected = sink.write(rows, here)
            if rejected is not None:
                self._write_rejected(rejected, replace(context, sink=REJECTED + number))

    def _write_rejected(self, rejected: DataFrame, context: BatchContext) -> None:
        """Write the rows that a target refused; reading them is what sends the rows."""
        letters = self._spec.dead_letters
        rejected.persist()
        try:
            count = rejected.count()
            if not count:
                return
            self.dead_letters_count += count
            if letters.fails:
                first: Any = rejected.first()
                raise OptionError(f"{count} rows were refused: {first[ERROR]}; {self._advice}")
            letters.write(rejected, context)
        finally:
            rejected.unpersist()


def _only_of_errors() -> Any:
    from pyspark.sql import functions as F

    return F.when(F.col(ERROR).isNotNull(), F.col(ORIGIN))
