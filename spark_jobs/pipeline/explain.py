"""Says what a pipeline does, in words, as SQL, and with the first rows; nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_jobs.jobs.terminal import (
    preview_plan,
    preview_rows,
    preview_schema_guess,
    print_result,
)
from spark_jobs.pipeline.connectors import ERROR, ORIGIN, good_rows, public_columns
from spark_jobs.pipeline.execution import PipelineExecution
from spark_jobs.pipeline.secrets import redact
from spark_jobs.pipeline.sql_steps import JsonStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.pipeline.specification import PipelineSpec


def plan_of(spec: PipelineSpec) -> dict[str, str]:
    """Return what a pipeline does, part by part."""
    sinks = "; ".join(sink.describe() for sink in spec.sinks)
    run = spec.run
    return {
        "read": redact(spec.source.describe()),
        "transforms": "; ".join(step.describe() for step in spec.steps) or "none",
        "write": redact(sinks),
        "dead letters": spec.dead_letters.describe(),
        "run": "once, what is there" if run.once else f"every {run.every}, until stopped",
        "checkpoint": run.checkpoint,
    }


def preview_pipeline(spec: PipelineSpec, spark: SparkSession) -> None:
    """Print the plan, the offsets, and the first rows as they would be written."""
    preview_plan(spec.source.spans(), plan_of(spec))
    found = spec.source.sample(spark)
    # Read once: what follows would read it several times, and CSV not in every way.
    sample = spark.createDataFrame(found.collect(), found.schema)
    execution = PipelineExecution(spec)
    execution.prepare(spark, sample)
    made = execution.preview(sample)
    preview_rows("rows", public_columns(good_rows(made)))
    bad = made.where(f"{ERROR} IS NOT NULL")
    if spec.dead_letters.writes:
        kind: Any = made.schema[ORIGIN].dataType
        place = [f"{ORIGIN}.{one}" for one in kind.fieldNames() if one in ("partition", "offset")]
        preview_rows("dead letters", bad.selectExpr(*place, f"{ERROR} AS error"))
    if not any(isinstance(step, JsonStep) for step in spec.steps) and "payload" in sample.columns:
        preview_schema_guess(sample)


def explain_pipeline(spec: PipelineSpec, spark: SparkSession) -> None:
    """Print what a pipeline does, its SQL, Spark's plan, and what each output guarantees."""
    print_result("\n".join(f"{name + ':':<14}{text}" for name, text in plan_of(spec).items()))
    execution = PipelineExecution(spec)
    rows = spec.source.label(spec.source.sample(spark))
    for number, step in enumerate(spec.steps, start=1):
        print_result(redact(f"\ntransform {number}: {step.describe()}"))
        text = step.sql(rows, spec.source.prefix)
        if text is not None:
            print_result(redact(text))
        rows = execution.apply_step(rows, number - 1)
    print_result("\nguarantees:")
    print_result("  source: each message at least once, in order of its partition")
    for number, sink in enumerate(spec.sinks, start=1):
        print_result(redact(f"  sink {number}, {sink.describe()}: {sink.guarantee}"))
    print_result(f"  dead letters, {spec.dead_letters.describe()}: {spec.dead_letters.guarantee}")
    if execution.needs_second_query:
        print_result(
            "  a second query over the source finds them: their times would make rows late"
        )
    print_result(redact(f"\nSpark's plan of a micro-batch:\n{plan_text(rows)}"))


def plan_text(rows: DataFrame) -> str:
    """Return the plan of Spark as text."""
    java: Any = rows._jdf
    return str(java.queryExecution().explainString(_mode(rows.sparkSession)))


def _mode(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
