"""Runs a pipeline as one streaming query: each micro-batch is transformed once and written to all.

If more than one output needs the rows of a micro-batch, they are cached. A micro-batch counts as
done when every output has it; if one fails, all of them get it again, under the same number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.errors import OptionError
from spark_jobs.pipeline.connectors import (
    ERROR,
    ORIGIN,
    BatchContext,
    good_rows,
)
from spark_jobs.pipeline.dead_letters import strict
from spark_jobs.pipeline.specification import with_place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from spark_jobs.pipeline.specification import PipelineSpec

QUERY_FOLDER: Final = "rows"
"""The folder of the query below the checkpoint."""

QUERY_ID: Final = "sql.streaming.queryId"
"""The property in which Spark keeps the identity of a checkpoint while a micro-batch runs."""

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
        self._stream_steps = stateful[-1] + 1 if stateful else 0

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the query."""
        spec, run = self._spec, self._spec.run
        self.failure = None
        for number, sink in enumerate(spec.sinks):
            with_place(spec, ("sink", number), lambda sink=sink: sink.prepare(spark))  # type: ignore[misc]  # the default keeps its type
        load = spec.source.load
        rows = with_place(spec, ("source",), lambda: load(spark, run.max_rows))
        if self._stream_steps:
            rows = self._apply(spec.source.label(rows), 0, self._stream_steps)
        writer = rows.writeStream.foreachBatch(self.process).queryName(spec.name)
        folder = f"{run.checkpoint.rstrip('/')}/{QUERY_FOLDER}"
        writer = writer.option("checkpointLocation", folder)
        if run.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=run.every)
        spark.sparkContext.setLocalProperty(POOL, spec.name)
        try:
            return writer.start()
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
        query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        assert query is not None, "Spark says which query it runs"
        # A new checkpoint begins to count anew, and must not be taken for the old one.
        writer = f"{self._spec.name}-{query.partition('-')[0]}"
        self.write(
            self.prepared(batch), BatchContext(writer, batch_id, 0, self._spec.source.prefix)
        )

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
