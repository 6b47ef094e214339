"""Runs pipelines side by side in one driver: one that fails leaves the others alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_jobs.errors import OptionError
from spark_jobs.jobs.command import error_summary
from spark_jobs.jobs.queries import QueryRun, supervise
from spark_jobs.jobs.terminal import print_status
from spark_jobs.pipeline.execution import PipelineExecution
from spark_jobs.pipeline.secrets import redact
from spark_jobs.pipeline.specification import read_pipeline
from spark_jobs.pipeline.status import StatusFile, held_locks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from spark_jobs.jobs.terminal import StopSignal
    from spark_jobs.pipeline.specification import PipelineSpec

PIPELINES_MAX = 64
"""Pipelines of one driver; each has threads and a Python of its own."""


def read_pipelines(paths: Sequence[Path]) -> list[PipelineSpec]:
    """Read files, and the files of folders.

    Raises:
        OptionError: one has mistakes, or two of them would disturb each other.
    """
    files = [file for path in paths for file in _files_of(path)]
    if len(files) > PIPELINES_MAX:
        raise OptionError(
            f"there are {len(files)} pipelines; one driver runs {PIPELINES_MAX}, so start another"
        )
    specs, mistakes = [], []
    for file in files:
        try:
            specs.append(read_pipeline(file))
        except OptionError as error:
            mistakes.append(str(error))
    mistakes += _conflicts(specs)
    if mistakes:
        raise OptionError("\n".join(mistakes))
    return specs


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.toml"))
    if not found:
        raise OptionError(f"{path} has no files *.toml; name a file or another folder")
    return found


def _conflicts(specs: Sequence[PipelineSpec]) -> list[str]:
    """Find pipelines with the same name or the same checkpoint."""
    found = []
    for key in ("name", "checkpoint"):
        first: dict[str, PipelineSpec] = {}
        for spec in specs:
            value = spec.name if key == "name" else _resolved(spec.run.checkpoint)
            other = first.setdefault(value, spec)
            if other is not spec:
                found.append(
                    f"{spec.at('pipeline', key)}the {key} {value} is also that of "
                    f"{other.at('pipeline', key).removesuffix(': ')}; give each pipeline its own"
                )
    return found


def _resolved(checkpoint: str) -> str:
    """Write a local path in full, so that two texts for one folder are the same."""
    is_local = "://" not in checkpoint and not checkpoint.startswith("file:")
    return str(Path(checkpoint).resolve()) if is_local else checkpoint.rstrip("/")


class PipelineRun:
    """A pipeline in a driver: its query, and its status file.

    Args:
        spec: the pipeline.
        spark: the session.
        status: its status file.
    """

    def __init__(self, spec: PipelineSpec, spark: SparkSession, status: StatusFile) -> None:
        self.spec = spec
        self._spark = spark
        self._status = status
        self._execution = PipelineExecution(spec)
        most = spec.run.restarts
        self.query = QueryRun(spec.name, self._start, restarts_max=most)
        self.queries = [self.query]
        if self._execution.needs_second_query:
            second = partial(self._execution.start_second, spark)
            self.queries.append(QueryRun(f"{spec.name}, dead letters", second, restarts_max=most))

    def _start(self) -> Any:
        self.spec.check()
        return self._execution.start(self._spark)

    @property
    def failed(self) -> bool:
        """Whether a query of it failed for good."""
        return any(query.failure is not None for query in self.queries)

    @property
    def error(self) -> str | None:
        """Why it failed last, without secrets."""
        errors = [query.error for query in self.queries if query.error is not None]
        if not errors:
            return None
        is_first = self.query.error is not None
        own = self._execution.failure if is_first else None
        return redact(error_summary(own or errors[0]))

    def put_status(self) -> None:
        """Write what it does now."""
        report = self.query.report
        self._status.put(
            error=self.error,
            state="failed" if self.failed else self.query.state,
            batch_id=report.batch_id,
            rows_count=report.rows_count,
            rows_per_second=report.rows_per_second,
            lag=report.lag,
            dead_letters_count=self._execution.dead_letters_count + report.bad_rows_count,
            late_rows_count=report.late_rows_count,
            restarts_count=self.query.restarts_count,
        )


def run_pipelines(
    specs: Sequence[PipelineSpec], spark: SparkSession, stop: StopSignal, state: Path
) -> Mapping[str, str]:
    """Run pipelines until all have ended or a stop is requested.

    Returns:
        The errors of those that failed.

    Raises:
        OptionError: another driver runs one of them.
    """
    names = [spec.name for spec in specs]
    with held_locks(state, names):
        runs = [PipelineRun(spec, spark, StatusFile(state, spec.name)) for spec in specs]
        for spec in specs:
            sinks = ", ".join(sink.describe() for sink in spec.sinks)
            print_status(redact(f"{spec.name}: {spec.source.describe()} to {sinks}"))

        def put_all() -> None:
            for run in runs:
                run.put_status()

        supervise([query for run in runs for query in run.queries], stop, on_change=put_all)
    failed = {run.spec.name: run.error or "" for run in runs if run.failed}
    for name, error in failed.items():
        print_status(f"{name}: failed: {error}")
    return failed
