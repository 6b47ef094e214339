"""``iggy-spark``: run, check and explain pipelines, and see what they do."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_jobs.jobs.command import (
    EXIT_FAILURE,
    EXIT_OK,
    NOTES,
    add_spark_options,
    make_parser,
    run_parsed,
    without_spark,
)
from spark_jobs.jobs.terminal import StopSignal, print_result, print_status
from spark_jobs.pipeline.driver import read_pipelines, run_pipelines
from spark_jobs.pipeline.explain import explain_pipeline, preview_pipeline
from spark_jobs.pipeline.file_source import SPLIT_SETTINGS
from spark_jobs.pipeline.status import (
    STATE_FOLDER,
    format_statuses,
    read_statuses,
    write_statuses,
)
from spark_jobs.pipeline.table_sink import TableSink
from spark_jobs.tables import settings as table_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

EXAMPLE: Final = """
  iggy-spark check pipelines/
  iggy-spark run pipelines/ --dry-run
  iggy-spark run pipelines/
  iggy-spark status --watch
"""
SETTINGS: Final = {
    # Otherwise a large micro-batch of one pipeline would hold up all others.
    "spark.scheduler.mode": "FAIR",
    **SPLIT_SETTINGS,
}
WATCH_INTERVAL_S: Final = 2.0
CLEAR_SCREEN: Final = "\x1b[H\x1b[2J"


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command."""
    made = make_parser("iggy-spark", "Run pipelines that are described in files.", EXAMPLE)
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    texts = {
        "run": "run pipelines until they are stopped, or have read what is there",
        "check": "find mistakes, and ask servers for topics; Spark is not started",
        "explain": "say what a pipeline does, its SQL, its guarantees, and Spark's plan",
        "status": "show rows per second, lag and last error of each pipeline",
    }
    parsers = {
        name: commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=NOTES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for name, text in texts.items()
    }
    for name in ("run", "check", "explain"):
        parsers[name].add_argument(
            "paths", nargs="+", type=Path, metavar="FILE", help="a pipeline, or a folder of *.toml"
        )
    parsers["check"].add_argument(
        "--offline", action="store_true", help="look at the files only, and ask no server"
    )
    parsers["run"].add_argument(
        "--state",
        type=Path,
        default=Path(STATE_FOLDER),
        help=f"folder of status files (default {STATE_FOLDER})",
    )
    add_spark_options(parsers["run"])
    add_spark_options(parsers["explain"], can_be_dry=False)
    _add_status_options(parsers["status"])
    return made


def _add_status_options(status: argparse.ArgumentParser) -> None:
    status.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path(STATE_FOLDER),
        help=f"folder of status files (default {STATE_FOLDER})",
    )
    status.add_argument(
        "--watch", action="store_true", help=f"show it again every {WATCH_INTERVAL_S:g} s"
    )
    status.add_argument(
        "--output", choices=("table", "json"), default="table", help="default: table"
    )


def _read(given: argparse.Namespace) -> None:
    given.specs = read_pipelines(given.paths)


def packages_of(given: argparse.Namespace) -> tuple[str, ...]:
    """Return the Maven packages that sources and sinks need, unless others are given."""
    if given.packages:
        return ()
    parts = [part for spec in given.specs for part in (spec.source, *spec.sinks)]
    return tuple(dict.fromkeys(name for part in parts for name in needed_packages(part)))


def needed_packages(part: object) -> tuple[str, ...]:
    """Return the Maven packages of a source or sink; most need none."""
    packages = getattr(part, "packages", None)
    return () if packages is None else tuple(packages())


def settings_of(given: argparse.Namespace) -> Mapping[str, str]:
    """Return the settings that the pipelines need; those of users take precedence."""
    sinks = (sink for spec in given.specs for sink in spec.sinks)
    formats = dict.fromkeys(sink.format for sink in sinks if isinstance(sink, TableSink))
    return {**SETTINGS, **table_settings(*formats)}


def _run(given: argparse.Namespace, spark: SparkSession, stop: StopSignal) -> int:
    if given.dry_run:
        for spec in given.specs:
            print_result(f"--- {spec.name}")
            spec.check()
            preview_pipeline(spec, spark)
        return EXIT_OK
    failed = run_pipelines(given.specs, spark, stop, given.state)
    return EXIT_FAILURE if failed else EXIT_OK


def _explain(given: argparse.Namespace, spark: SparkSession, stop: StopSignal) -> int:
    for spec in given.specs:
        print_result(f"--- {spec.name}")
        spec.check()
        explain_pipeline(spec, spark)
    return EXIT_OK


def _check(given: argparse.Namespace) -> None:
    _read(given)
    for spec in given.specs:
        if not given.offline:
            spec.check()
        print_status(f"{spec.name}: no mistakes")


def _status(given: argparse.Namespace) -> None:
    write = write_statuses if given.output == "json" else format_statuses
    if not given.watch:
        print_result(write(read_statuses(given.folder)))
        return
    with StopSignal() as stop:
        while not stop.requested:
            clear = CLEAR_SCREEN if sys.stdout.isatty() else ""
            print_result(f"{clear}{write(read_statuses(given.folder))}")
            stop.wait(WATCH_INTERVAL_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = parser().parse_args(arguments)
    if given.command in ("check", "status"):
        work = _check if given.command == "check" else _status
        return without_spark("iggy-spark", lambda: work(given))
    return run_parsed(
        "iggy-spark",
        given,
        _run if given.command == "run" else _explain,
        check=_read,
        settings=settings_of,
        packages=packages_of,
    )


if __name__ == "__main__":
    sys.exit(main())
