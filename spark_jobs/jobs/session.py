"""The Spark session of a job: the active one, or a new one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spark_jobs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["SessionSettings", "open_session"]

DEFAULTS: Final[Mapping[str, str]] = {
    # Dates and hours in paths must not depend on the machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.ui.showConsoleProgress": "false",
}
LAUNCHED: Final = "PYSPARK_GATEWAY_PORT"
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

    if LAUNCHED not in os.environ:
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
