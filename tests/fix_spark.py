"""One Spark session and one server for all tests of the Spark source, because both start slowly.

Tests share them and leave each other's streams alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from iggy_sdk.testing import RunningServer

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "spark"
# The first query of a session starts a Java machine and several Pythons, on a busy machine.
SECONDS_MAX = 180

SERVER_SETTINGS = {
    "IGGY_SYSTEM_MESSAGE_DEDUPLICATION_ENABLED": "true",
    "IGGY_SYSTEM_MESSAGE_DEDUPLICATION_EXPIRY": "1 h",
    "IGGY_SYSTEM_SEGMENT_SIZE": "5 KiB",
}
SESSION_SETTINGS = {
    # Tests are over before thorough compilation pays.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.pollingDelay": "5ms",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the folder, and give them time."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(SECONDS_MAX))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Run one Spark session on two cores, with ``format("iggy")`` registered."""
    from spark_jobs import register

    with pytest.MonkeyPatch.context() as environment:
        session = start_session(environment, tmp_path_factory.mktemp("warehouse"))
    yield register(session)
    session.stop()


def start_session(
    environment: pytest.MonkeyPatch,
    folder: Path | str,
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Java with an environment in which its Pythons find this project."""
    from pyspark.sql import SparkSession

    from spark_jobs import prepare_java

    prepare_java()
    environment.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "protocol")]))
    environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    environment.setenv("PYSPARK_PYTHON", sys.executable)
    environment.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("tests")
    place = {"spark.sql.warehouse.dir": str(folder)}
    for name, value in {**SESSION_SETTINGS, **place, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@pytest.fixture(scope="session")
def spark_server() -> Iterator[RunningServer]:
    """Run one server with deduplication and small segments; a test may restart it."""
    from iggy_sdk.testing import RunningServer

    with RunningServer(settings=SERVER_SETTINGS) as server:
        yield server
