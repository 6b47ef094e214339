"""The ready jobs as pipelines: their options make the same parts that a pipeline file names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.errors import OptionError
from spark_jobs.jobs.queries import QueryRun, supervise
from spark_jobs.jobs.topic_source import server_of
from spark_jobs.pipeline.dead_letters import DeadLetters
from spark_jobs.pipeline.execution import PipelineExecution
from spark_jobs.pipeline.explain import preview_pipeline
from spark_jobs.pipeline.reading import Duration
from spark_jobs.pipeline.secrets import SecretReference
from spark_jobs.pipeline.specification import PipelineSpec, RunOptions, circles
from spark_jobs.pipeline.sql_steps import AddStep, JsonStep
from spark_jobs.pipeline.topic_sources import IggySource

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession

    from spark_jobs.jobs.terminal import StopSignal
    from spark_jobs.pipeline.connectors import PipelineStep

ADVICE: Final = "send such messages elsewhere with --dead-letter-topic or --dead-letter-path"


def given_server(given: argparse.Namespace) -> SecretReference:
    """Return the connection string as a secret.

    Raises:
        OptionError: there is none.
    """
    return SecretReference("given", value=server_of(given))


def topic_of(given: argparse.Namespace, *, include_headers: bool = False) -> IggySource:
    """Return the topic that a job reads."""
    return IggySource(
        stream=given.stream,
        topic=given.topic,
        server=given_server(given),
        starting_offsets=given.starting_offsets,
        starting_timestamp=given.starting_timestamp,
        consumer=given.consumer,
        fail_on_data_loss=not given.skip_lost,
        include_headers=include_headers,
    )


def row_steps(given: argparse.Namespace) -> tuple[PipelineStep, ...]:
    """Return how messages become rows."""
    if given.json_schema is not None:
        keeps = given.dead_letter_topic is None and given.dead_letter_path is None
        return (JsonStep(given.json_schema, unfit="keep" if keeps else "dead_letters"),)
    if given.payload_as == "text":
        return (AddStep({"payload": "make_valid_utf8(CAST(payload AS STRING))"}),)
    return ()


def folders_of(given: argparse.Namespace) -> tuple[str, ...]:
    """Return the columns of which folders are made."""
    names = tuple(filter(None, (name.strip() for name in given.partition_by.split(","))))
    return () if names == ("none",) else names


def letters_of(given: argparse.Namespace) -> DeadLetters:
    """Return where rows go that cannot be processed."""
    return DeadLetters(
        action="skip" if getattr(given, "skip_bad", False) else None,
        topic=given.dead_letter_topic,
        stream=given.stream,
        server=given_server(given),
        path=given.dead_letter_path,
    )


def run_options(given: argparse.Namespace, name: str, checkpoint: str) -> RunOptions:
    """Return how a job runs: as its command says, and without restarts."""
    return RunOptions(
        checkpoint=checkpoint,
        name=name,
        every=Duration(given.every),
        once=given.once,
        max_rows=getattr(given, "max_offsets", None),
        restarts=0,
    )


def check_preset(spec: PipelineSpec) -> None:
    """Find mistakes, and ask the server for the topics.

    Raises:
        OptionError: an option is wrong.
    """
    for _, text in circles(spec):
        raise OptionError(text)
    spec.check()


def run_preset(
    spec: PipelineSpec, given: argparse.Namespace, spark: SparkSession, stop: StopSignal
) -> str | None:
    """Run a job, or show what it would do.

    Returns:
        How many rows were read, and how many of them were bad; None after a dry run.

    Raises:
        StreamingQueryException: the query failed.
    """
    if given.dry_run:
        preview_pipeline(spec, spark)
        return None
    execution = PipelineExecution(spec, advice=ADVICE)
    run = QueryRun(spec.name, lambda: execution.start(spark))
    supervise([run], stop)
    if run.failure is not None:
        raise execution.failure or run.failure
    bad = execution.dead_letters_count
    read = f"{run.report.rows_count:,}"
    return f"{read} ({bad:,} bad: {spec.dead_letters.describe()})" if bad else read
