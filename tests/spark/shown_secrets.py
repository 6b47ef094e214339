"""A program whose queries log in with a secret; it keeps all that Spark shows of them.

usage: python -m tests.spark.shown_secrets SERVER PASSWORD FOLDER

SERVER has no credentials. In FOLDER it leaves plans, pages of the UI, event logs, checkpoints and
errors; its own output is the log of the driver. ``control.txt`` is what a session shows in which
``register`` was not called.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pytest

from spark_jobs import IggyDataSource, register
from tests.fix_spark import SESSION_SETTINGS, start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MODES: Final = ("simple", "extended", "codegen", "cost", "formatted")
FIRST_PAGES: Final = (
    *("/jobs/", "/stages/", "/storage/", "/environment/", "/executors/", "/SQL/"),
    "/StreamingQuery/",
)
PAGES_MAX: Final = 150
PAGE_SECONDS_MAX: Final = 30
USER: Final = "iggy"


def settings(folder: Path) -> dict[str, str]:
    """Return what differs from the session of the other tests."""
    (folder / "events").mkdir()
    return {
        "spark.log.level": "INFO",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(folder / "events"),
        "spark.hadoop.hadoop.security.credential.provider.path": (
            f"localjceks://file{folder}/secrets.jceks"
        ),
    }


def store_in_provider(spark: SparkSession, alias: str, secret: str) -> None:
    """Add an entry to Hadoop's credential provider."""
    context: Any = spark.sparkContext
    gateway, java = context._gateway, context._jvm
    characters = gateway.new_array(java.char, len(secret))
    for at, character in enumerate(secret):
        characters[at] = character
    factory = java.org.apache.hadoop.security.alias.CredentialProviderFactory
    (provider,) = factory.getProviders(context._jsc.hadoopConfiguration())
    provider.createCredentialEntry(alias, characters)
    provider.flush()


def ways(server: str, password: str, folder: Path) -> dict[str, dict[str, str]]:
    """Return the options of each way to log in."""
    whole = server.replace("iggy://", f"iggy://{USER}:{quote(password, safe='')}@")
    (folder / "password.txt").write_text(f"{password}\n")
    os.environ["IGGY_TEST_LOGIN"] = f"{USER}:{password}"
    return {
        "server": {"server": whole},
        "url": {"url": whole},
        "password": {"url": server, "user": USER, "password": password},
        "file": {"url": server, "user": USER, "credentials": f"file:{folder}/password.txt"},
        "env": {"url": server, "credentials": "env:IGGY_TEST_LOGIN"},
        "provider": {"credentials": "provider:iggy.test"},
    }


def explained(*frames: DataFrame) -> str:
    """Return what ``explain`` prints, in all modes."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for frame in frames:
            for mode in MODES:
                frame.explain(mode=mode)
    return printed.getvalue()


def run_batches(spark: SparkSession, name: str, login: dict[str, str], folder: Path) -> None:
    """Read and write in batches, as a view too, and keep the plans."""
    source = {**login, "stream": "s", "topic": "t"}
    batch = spark.read.format("iggy").options(**source).load()
    assert batch.count() == 10, name
    target = {**login, "stream": "s", "topic": "out"}
    batch.select("payload").write.format("iggy").mode("append").options(**target).save()
    view = ", ".join(f"`{option}` '{value}'" for option, value in source.items())
    spark.sql(f"CREATE TEMPORARY VIEW view_{name} USING iggy OPTIONS ({view})")
    plans = explained(batch, spark.table(f"view_{name}"), read_grown(spark, login))
    (folder / f"plans-{name}.txt").write_text(plans)


def read_grown(spark: SparkSession, login: dict[str, str]) -> DataFrame:
    """Read the topic as it grows."""
    options = {**login, "stream": "s", "topic": "t", "startingOffsets": "earliest"}
    return spark.readStream.format("iggy").options(**options).load()


def run_streams(spark: SparkSession, name: str, login: dict[str, str], folder: Path) -> None:
    """Copy in a stream, by the sink and by ``foreachBatch``, and keep plans and progress."""
    target = {**login, "stream": "s", "topic": "out"}
    checkpoint = f"{folder}/checkpoints/{name}"
    grown = read_grown(spark, login)
    writer = grown.select("payload").writeStream.format("iggy").queryName(f"copy_{name}")
    writer = writer.options(**target, checkpointLocation=checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        query.explain(True)
    plans = [printed.getvalue(), *map(str, query.recentProgress)]

    def copy(rows: DataFrame, _: int) -> None:
        plans.append(explained(rows))
        rows.select("payload").write.format("iggy").mode("append").options(**target).save()

    each = grown.writeStream.foreachBatch(copy).option("checkpointLocation", f"{checkpoint}-each")
    each.trigger(availableNow=True).start().awaitTermination()
    (folder / f"streams-{name}.txt").write_text("\n".join(plans))


def errors_of(spark: SparkSession, login: dict[str, str]) -> list[str]:
    """Return what is raised when the server is not there, and when it refuses the password."""
    nowhere = {
        name: re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", value) + "?request_timeout=200ms"
        if "://" in value
        else value
        for name, value in login.items()
    }
    refused = {name: re.sub(rf"{USER}\b(?=:|$)", "ann", value) for name, value in login.items()}
    found: list[str] = []
    for wrong in (nowhere, refused, {**login, "tokn": "x"}, {**login, "token": "x"}):
        for query in (read_batch, write_batch, read_stream):
            try:
                query(spark, {**wrong, "stream": "s", "topic": "t"})
            except Exception as error:
                found += [str(error), repr(error)]
            else:
                found.append("no error")
    return found


def read_batch(spark: SparkSession, options: dict[str, str]) -> None:
    """Read a topic."""
    spark.read.format("iggy").options(**options).load().count()


def write_batch(spark: SparkSession, options: dict[str, str]) -> None:
    """Write a row."""
    rows = spark.range(1).selectExpr("CAST(id AS STRING) AS payload")
    rows.write.format("iggy").mode("append").options(**options).save()


def read_stream(spark: SparkSession, options: dict[str, str]) -> None:
    """Read a topic as a stream."""
    grown = spark.readStream.format("iggy").options(**options).load()
    grown.writeStream.format("noop").start().awaitTermination()


def save_pages(spark: SparkSession, folder: Path) -> None:
    """Save every page of the UI, following links."""
    address = spark.sparkContext.uiWebUrl
    application = f"/api/v1/applications/{spark.sparkContext.applicationId}"
    waiting = [
        *FIRST_PAGES,
        f"{application}/sql?details=true&planDescription=true&length=1000",
        f"{application}/environment",
        f"{application}/jobs",
        f"{application}/stages",
    ]
    known = set(waiting)
    folder.mkdir()
    while waiting and len(known) < PAGES_MAX:
        path = waiting.pop()
        with urllib.request.urlopen(f"{address}{path}", timeout=PAGE_SECONDS_MAX) as answer:
            page = answer.read().decode()
        (folder / f"{re.sub(r'[^A-Za-z0-9]+', '_', path)}.html").write_text(page)
        for link in re.findall(r'href="(/[^"#]+)"', page):
            path = link.replace("&amp;", "&")
            if path not in known and not re.search(r"/static/|kill|executors/thread", path):
                known.add(path)
                waiting.append(path)


def main(server: str, password: str, folder: str) -> None:
    """Run everything once."""
    place = Path(folder)
    logins = ways(server, password, place)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in settings(place).items():
            environment.setitem(SESSION_SETTINGS, name, value)
        spark = start_session(environment, place / "warehouse")
    store_in_provider(spark, "iggy.test", logins["server"]["server"])
    spark.dataSource.register(IggyDataSource)
    (place / "control.txt").write_text(explained(read_grown(spark, logins["server"])))
    register(spark)
    for name, login in logins.items():
        run_batches(spark, name, login, place)
    for name in ("server", "password"):
        run_streams(spark, name, logins[name], place)
    errors = [errors_of(spark, logins[name]) for name in ("server", "password")]
    (place / "errors.json").write_text(json.dumps(errors))
    save_pages(spark, place / "pages")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
