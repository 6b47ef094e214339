"""What tests of tables share: a session with the packages of its Spark, PostgreSQL and S3.

They run with ``make test-lake``, because they download hundreds of megabytes. What cannot be had
is an error that names it; with ``IGGY_LAKE_SKIP=1`` its tests are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyspark
import pytest

from iggy_sdk.blocking import IggyClient
from spark_jobs import OptionError, jdbc, register, tables
from spark_jobs.topics import close_all
from tests.lake.servers import Missing, run_postgres, run_s3
from tests.lake.session import lake_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from iggy_sdk.testing import RunningServer

FOLDER = Path(__file__).parent
SECONDS_MAX = 900
"""Downloads included."""

IGNORED = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"

collect_ignore_glob = [] if os.environ.get("IGGY_LAKE") else ["test_*.py"]


def formats() -> list[str]:
    """Return the table formats that have a package for this Spark."""
    found = []
    for name in tables.FORMATS:
        try:
            tables.packages(name, pyspark.__version__)
        except OptionError:
            continue
        found.append(name)
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder time."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.timeout(SECONDS_MAX))
            # PySpark 4.1 leaves the sockets that it reads results from to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings(IGNORED))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try each format that this Spark has a package for."""
    if "table_format" in metafunc.fixturenames:
        metafunc.parametrize("table_format", formats())


def give_up(missing: Exception) -> NoReturn:
    """Fail, or skip if that was asked for, because something cannot be had."""
    text = f"{missing}; set IGGY_LAKE_SKIP=1 to run what needs none of it"
    if os.environ.get("IGGY_LAKE_SKIP"):
        pytest.skip(text)
    pytest.fail(text, pytrace=False)


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Run a server of S3 with the bucket ``lake``; return its address."""
    try:
        with run_s3() as address:
            yield address
    except Missing as missing:
        give_up(missing)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a PostgreSQL server; return the URL of a database, where user ``lake`` logs in."""
    try:
        with run_postgres(tmp_path_factory.mktemp("postgres")) as url:
            yield url
    except Missing as missing:
        give_up(missing)


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all tables that are not in S3."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def spark(lake: Path, s3: str) -> Iterator[SparkSession]:
    """Run one session with all packages, because each takes long to start and much memory."""
    names = formats()
    needed = [
        *(one for name in names for one in tables.packages(name, pyspark.__version__)),
        *tables.storage_packages("s3a", pyspark.__version__),
        *jdbc.packages("jdbc:postgresql:"),
        *jdbc.packages("jdbc:h2:"),
    ]
    try:
        session = lake_session(lake, names, needed, s3=s3)
    except Missing as missing:
        give_up(missing)
    yield register(session)
    session.stop()


@pytest.fixture(autouse=True, scope="session")
def closed_connections() -> Iterator[None]:
    """Close what readers opened in this process, before their server goes."""
    yield
    close_all()


@pytest.fixture
def name(table_format: str, request: pytest.FixtureRequest) -> str:
    """Return the name of a table for one test."""
    catalog = {"delta": "default", "iceberg": "lake.db"}[table_format]
    return f"{catalog}.{''.join(filter(str.isalnum, request.node.name))[-60:].lower()}"


@pytest.fixture
def orders(spark_server: RunningServer, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return a function that sends JSON payloads to a topic, and its stream."""
    stream = "".join(filter(str.isalnum, request.node.name))[-60:]
    with IggyClient(spark_server.url) as client:
        client.create_stream(stream)
        client.create_topic(stream, "orders", 1)

        def send(*payloads: str) -> str:
            client.send_messages(
                stream, "orders", [one.encode() for one in payloads], partition_id=0
            )
            return stream

        yield send


@pytest.fixture
def send_more(spark_server: RunningServer) -> Callable[..., None]:
    """Return a function that sends more to topic ``orders`` of a stream."""

    def send(stream: str, *payloads: str) -> None:
        with IggyClient(spark_server.url) as client:
            texts = [one.encode() for one in payloads]
            client.send_messages(stream, "orders", texts, partition_id=0)

    return send


@pytest.fixture
def run(spark: SparkSession, spark_server: RunningServer) -> Callable[..., int]:
    """Return a function that runs a job on topic ``orders`` of a stream, once."""

    def run_job(job: Any, stream: str, *arguments: object) -> int:
        place = ["--server", spark_server.url, "--stream", stream, "--topic", "orders", "--once"]
        code: int = job.main([*place, *map(str, arguments)])
        return code

    return run_job
