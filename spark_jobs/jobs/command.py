"""The command line of all jobs: options, sessions, exit codes and error messages."""

from __future__ import annotations

import argparse
import os
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spark_jobs.errors import OptionError, SchemaError, first_message, raised_message
from spark_jobs.jobs.terminal import StopSignal, print_status
from spark_jobs.pipeline.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession


# The Spark session of a job: the active one, or a new one.


DEFAULTS: Final[Mapping[str, str]] = {
    # Dates and hours in paths must not depend on the machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.ui.showConsoleProgress": "false",
}
GATEWAY_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which has started Java already."""


@dataclass(frozen=True)
class SessionSettings:
    """The settings of a Spark session.

    Attributes:
        name: the name of the application.
        master: where it runs; None leaves that to spark-submit, or means all cores of this machine.
        workers: cores of this machine to use, instead of a master.
        packages: Maven coordinates that Spark downloads.
        settings: any setting of Spark by its name.
        verbose: whether to show Spark's log.
    """

    name: str
    master: str | None = None
    workers: int | None = None
    packages: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.master is not None and self.workers is not None:
            raise OptionError(
                "--workers chooses cores of this machine, and --master another place; give one, "
                "and with a master set --conf spark.cores.max"
            )


def configuration(wanted: SessionSettings) -> dict[str, str]:
    """Return the settings of a new session; those of the user take precedence."""
    chosen = {**DEFAULTS, "spark.log.level": "WARN" if wanted.verbose else "OFF"}
    if wanted.packages:
        chosen["spark.jars.packages"] = ",".join(wanted.packages)
    if wanted.workers is not None:
        chosen["spark.master"] = f"local[{wanted.workers}]"
    elif wanted.master is not None:
        chosen["spark.master"] = wanted.master
    return {**chosen, **wanted.settings}


def is_local(wanted: SessionSettings) -> bool:
    """Return whether Spark runs on this machine only."""
    return configuration(wanted).get("spark.master", "local").startswith("local")


@contextmanager
def open_session(wanted: SessionSettings) -> Iterator[SparkSession]:
    """Use the session of this process, or start one and stop it at the end.

    Raises:
        RuntimeError: there is no Java; the message says what to install.
    """
    from pyspark.sql import SparkSession

    from spark_jobs.datasource import register

    present = SparkSession.getActiveSession()
    if present is not None:
        yield register(present)
        return
    spark = register(_start(wanted))
    try:
        yield spark
    finally:
        spark.stop()


def _start(wanted: SessionSettings) -> SparkSession:
    from pyspark.sql import SparkSession

    if GATEWAY_VARIABLE not in os.environ:
        from spark_jobs.java import prepare_java

        prepare_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if is_local(wanted):
            # A local Spark needs no address that other machines can reach.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(wanted.name)
    for name, value in configuration(wanted).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if TYPE_CHECKING:
    Work = Callable[[argparse.Namespace, SparkSession, StopSignal], int | None]

    Check = Callable[[argparse.Namespace], None]

EXIT_OK: Final = 0
EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
"""The code of shells for a program that SIGINT ended."""

SERVER_VARIABLE: Final = "IGGY_CONNECTION_STRING"

_DURATION_TEXT: Final = re.compile(r"[0-9]+ ?(ms|s|m|min|h)")
_SPARK_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}

NOTES: Final = """\
The first SIGINT (Ctrl+C) or SIGTERM finishes the current micro-batch, or drops it after 15 s,
and the command exits with 0; the next run continues from there. The second one stops at once.
Exit codes: 0 done or stopped, 1 failed, 2 the command line is wrong."""


def make_parser(command: str, description: str, example: str) -> argparse.ArgumentParser:
    """Make the parser of a job, with an example at the end of its help."""
    return argparse.ArgumentParser(
        prog=command,
        description=description,
        epilog=f"example:\n{example.strip()}\n\n{NOTES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_topic_options(parser: argparse.ArgumentParser, *, topic: str) -> None:
    """Add the options of the topic."""
    group = parser.add_argument_group("the topic")
    group.add_argument(
        "--server",
        metavar="URL",
        default=os.environ.get(SERVER_VARIABLE),
        help="connection string, iggy://user:password@host:8090; other users of the machine "
        f"can see it in the list of processes, so ${SERVER_VARIABLE} may hold it instead",
    )
    group.add_argument("--stream", required=True, help="name of the stream")
    group.add_argument("--topic", required=True, help=topic)


def add_json_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of rows."""
    group = parser.add_argument_group("rows")
    group.add_argument(
        "--json-schema",
        metavar="SCHEMA",
        help="read payloads as JSON objects with these fields, such as 'id BIGINT NOT NULL, item "
        "STRING', or the name of a file that holds such a text or Spark's JSON form of a schema",
    )
    group.add_argument(
        "--payload-as",
        choices=("binary", "text"),
        default="binary",
        help="type of the column payload where there is no schema",
    )
    group.add_argument(
        "--time-column",
        default="timestamp",
        metavar="NAME",
        help="where date and hour come from: timestamp, the server's (default), origin_timestamp, "
        "or a field of the schema",
    )
    group.add_argument(
        "--partition-by",
        default="date,hour",
        metavar="NAMES",
        help="columns of which folders are made (default date,hour); none for no folders",
    )


def add_dead_letter_options(
    parser: argparse.ArgumentParser, *, otherwise: str, can_skip: bool = False
) -> None:
    """Add the options of dead letters."""
    group = parser.add_argument_group("dead letters")
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "--dead-letter-topic",
        metavar="TOPIC",
        help="send messages that cannot be processed to this topic of the same stream, with the "
        f"reason and their source in headers; without it {otherwise}",
    )
    where.add_argument(
        "--dead-letter-path", metavar="PATH", help="or write them to Parquet files there"
    )
    if can_skip:
        where.add_argument(
            "--skip-bad", action="store_true", help="or leave them out, and print how many they are"
        )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of jobs that can run as a stream."""
    group = parser.add_argument_group("the run")
    group.add_argument(
        "--once",
        action="store_true",
        help="read what is there now and exit; default: run until stopped",
    )
    group.add_argument(
        "--every",
        type=duration,
        default="10s",
        metavar="TIME",
        help="start a micro-batch at this interval, such as 500ms, 30s or 5m (default 10s)",
    )


def add_spark_options(parser: argparse.ArgumentParser, *, can_be_dry: bool = True) -> None:
    """Add the options of Spark, and those of trying a job."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master", help="the master of Spark (default: that of spark-submit, or this machine)"
    )
    group.add_argument(
        "--workers", type=count, metavar="N", help="cores of this machine to use (default: all)"
    )
    group.add_argument(
        "--packages", default="", metavar="NAMES", help="Maven packages, separated by commas"
    )
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        type=name_and_value,
        metavar="NAME=VALUE",
        help="a Spark setting; may be repeated",
    )
    group.add_argument("--verbose", action="store_true", help="show Spark's log and tracebacks")
    if can_be_dry:
        group.add_argument(
            "--dry-run",
            action="store_true",
            help="connect, print plan, columns, offsets and first rows, and write nothing",
        )


def count(text: str) -> int:
    """Parse a positive number."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def duration(text: str) -> str:
    """Parse a duration and format it for Spark's triggers and windows."""
    match = _DURATION_TEXT.fullmatch(text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 500ms, 30s, 15m or 1h")
    unit = "m" if match[1] == "min" else match[1]
    return f"{int(match[0].removesuffix(match[1]))} {_SPARK_UNITS[unit]}"


def name_and_value(text: str) -> tuple[str, str]:
    """Read ``name=value``."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value


def run_command(
    parser: argparse.ArgumentParser,
    work: Work,
    arguments: Sequence[str] | None,
    *,
    check: Check,
    settings: Callable[[argparse.Namespace], Mapping[str, str]] | None = None,
) -> int:
    """Parse the command line, start Spark, run the job, and return the exit code.

    Args:
        parser: exits with 2 on wrong arguments.
        work: the job.
        arguments: those of the process if None.
        check: validates the arguments against the server, before Spark starts, which is slow.
        settings: settings of a new session, which the user can override.
    """
    given = parser.parse_args(arguments)
    return run_parsed(parser.prog, given, work, check=check, settings=settings)


def run_parsed(
    command: str,
    given: argparse.Namespace,
    work: Work,
    *,
    check: Check,
    settings: Callable[[argparse.Namespace], Mapping[str, str]] | None = None,
    packages: Callable[[argparse.Namespace], tuple[str, ...]] | None = None,
) -> int:
    """Start Spark, run a job whose command line is parsed, and return the exit code."""
    with StopSignal() as stop:
        try:
            check(given)
            extra = {} if settings is None else settings(given)
            needed = () if packages is None else packages(given)
            wanted = SessionSettings(
                name=command,
                master=given.master,
                workers=given.workers,
                packages=tuple(filter(None, (*needed, *given.packages.split(",")))),
                settings={**extra, **dict(given.conf)},
                verbose=given.verbose,
            )
            with open_session(wanted) as spark:
                stop.listen()
                code = EXIT_OK if stop.requested else work(given, spark, stop)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except Exception as error:
            return _fail(command, error, stop, verbose=given.verbose)
    return code or EXIT_OK


def without_spark(command: str, work: Callable[[], None]) -> int:
    """Run what needs no Spark, and return the exit code."""
    with StopSignal() as stop:
        try:
            work()
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except Exception as error:
            return _fail(command, error, stop, verbose=False)
    return EXIT_OK


def _fail(command: str, error: Exception, stop: StopSignal, *, verbose: bool) -> int:
    """Print the error and choose the exit code."""
    if stop.requested and _is_lost_gateway(error):
        # Under spark-submit Java gets the signal as well and may end before this process.
        return EXIT_OK
    if verbose:
        print_status(redact("".join(traceback.format_exception(error))))
    print_status(redact(f"{command}: {error_summary(error)}"))
    is_usage = isinstance(error, OptionError | SchemaError)
    if is_usage:
        print_status(f"{command} --help lists the options")
    return EXIT_USAGE if is_usage else EXIT_FAILURE


def _is_lost_gateway(error: Exception) -> bool:
    return isinstance(error, ConnectionError) or type(error).__module__.startswith("py4j")


def error_summary(error: Exception) -> str:
    """Return the message of an error, without Java and Python tracebacks."""
    text = str(error)
    if type(error).__module__.startswith(("pyspark", "py4j")):
        return _spark_error_summary(text)
    if isinstance(error, OptionError):
        return text
    advice = getattr(error, "advice", None)
    if isinstance(advice, str) and advice and advice not in text:
        return f"{text}; {advice}"
    return text.strip().partition("\n")[0] or type(error).__name__


def _spark_error_summary(text: str) -> str:
    raised = raised_message(text)
    if raised is not None:
        return raised
    return f"Spark failed: {first_message(text)}; run the command with --verbose for the traceback"
