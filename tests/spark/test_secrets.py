"""No secret is shown: plans, pages, event logs, checkpoints, logs and errors are searched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from iggy_sdk.blocking import IggyClient
from iggy_sdk.testing import RunningServer

ROOT = Path(__file__).resolve().parents[2]
CANARY = "C4n4ry, =s3cret]@/x"
# Its beginning and its end, as options have it and as connection strings do.
SOUGHT = (b"C4n4ry", b"s3cret")
KEPT_BY_US = {"password.txt", "control.txt"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Run all queries in a process of their own; return the folder with all that it left."""
    folder = tmp_path_factory.mktemp("shown")
    with RunningServer() as server:
        with IggyClient(server.url) as client:
            client.create_stream("s")
            for topic in ("t", "out"):
                client.create_topic("s", topic, 2)
            client.send_messages("s", "t", [b"x"] * 10, partition_id=0)
            client.change_password("iggy", "iggy", CANARY)
        host, port = server.address
        with (folder / "driver.log").open("wb") as log:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "tests.spark.shown_secrets"),
                    *(f"iggy://{host}:{port}", CANARY, str(folder)),
                ],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'protocol'}"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
    assert done.returncode == 0, (folder / "driver.log").read_text()[-5000:]
    return folder


def files_with_secret(folder):
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file()
        and path.name not in KEPT_BY_US
        and any(part in path.read_bytes() for part in SOUGHT)
    )


def test_secret_when_queries_ran_then_it_is_in_nothing_that_spark_left(shown):
    assert files_with_secret(shown) == []


def test_search_when_a_session_is_not_registered_then_would_find_the_secret(shown):
    assert "C4n4ry" in (shown / "control.txt").read_text()


def test_search_when_it_finds_nothing_then_there_was_something_to_search(shown):
    plans = [path.read_text() for path in shown.glob("plans-*.txt")]
    streams = [path.read_text() for path in shown.glob("streams-*.txt")]
    pages = {path.name: path.read_text() for path in (shown / "pages").iterdir()}

    assert len(plans) == 6
    assert all("~StreamingRelationV2" in text and "BatchScan iggy" in text for text in plans)
    assert any("password=*********(redacted)" in text for text in plans)
    assert {"_SQL_.html", "_StreamingQuery_.html", "_environment_.html"} <= set(pages)
    assert sum("BatchScan iggy" in page for page in pages.values()) >= 6
    assert any("iggy" in path.read_text() for path in (shown / "events").rglob("events_*"))
    assert len(streams) == 2
    assert all("WriteToDataSourceV2" in text for text in streams)
    assert len(list((shown / "checkpoints").glob("*/offsets/0"))) == 4
    assert "iggy" in (shown / "driver.log").read_text()


def test_errors_when_queries_fail_then_each_says_why_and_none_shows_the_secret(shown):
    errors = json.loads((shown / "errors.json").read_text())

    for found in errors:
        text = "\n".join(found)
        assert "no error" not in found
        assert "cannot connect to 127.0.0.1:1" in text
        assert "InvalidCredentials" in text or "credentials" in text
        assert "did you mean token?" in text
