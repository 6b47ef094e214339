"""Drivers with several pipelines: failures, signals, kills in the middle, locks, and plugins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from spark_jobs.errors import OptionError
from spark_jobs.jobs import terminal
from spark_jobs.pipeline.status import held_locks, read_statuses
from tests.spark.jobs.test_commands import ENVIRONMENT, QUICK
from tests.spark.jobs.test_jobs import messages_of
from tests.spark.pipeline.conftest import BAD, SCHEMA, SERVER
from tests.spark.pipeline.search_server import search_server

JSON = f'[[transform]]\ntype = "json"\nschema = "{SCHEMA}"\n'
LAKE = '[[sink]]\ntype = "parquet"\npath = "FOLDER/lake-{name}"\n'


def state_of(tmp_path):
    return {one.name: one for one in read_statuses(tmp_path / "status")}


def test_folder_when_one_pipeline_fails_then_the_others_go_on(
    spark, orders, pipeline, iggy_spark, tmp_path, capsys
):
    orders()
    for name in ("a", "b"):
        pipeline(JSON + LAKE.format(name=name), name)
    broken = pipeline(JSON + LAKE.format(name="c"), "c")
    text = broken.read_text().replace('topic = "orders"', 'topic = "gone"')
    broken.write_text(text.replace("once = true", "once = true\nrestarts = 1"))

    assert iggy_spark("run", broken.parent) == 1

    for name in ("a", "b"):
        assert spark.read.parquet(str(tmp_path / f"lake-{name}")).count() == 40
    states = state_of(tmp_path)
    assert [states[name].state for name in "abc"] == ["done", "done", "failed"]
    assert states["c"].restarts_count == 1
    assert "has no topic 'gone'" in states["c"].last_error
    assert "c: failed, restart in 1 s" in capsys.readouterr().err


def test_driver_when_a_signal_comes_then_the_batch_is_finished_and_the_next_run_goes_on(
    spark, orders, pipeline, iggy_spark, tmp_path, monkeypatch
):
    orders()
    path = pipeline(JSON + LAKE.format(name="a"))
    whole = path.read_text()
    path.write_text(whole.replace("once = true", 'every = "1s"\nmax_rows = 30'))

    def say(text):
        """Send the signal when the first micro-batch is reported."""
        terminal.print_status(text)
        if "orders: batch 0" in text:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr("spark_jobs.jobs.queries.print_status", say)
        assert iggy_spark("run", path) == 0
    assert state_of(tmp_path)["orders"].state == "stopped"
    path.write_text(whole)
    assert iggy_spark("run", path) == 0

    rows = spark.read.parquet(str(tmp_path / "lake-a"))
    assert sorted(row["id"] for row in rows.collect()) == list(range(40))


SINKS = f"""
{LAKE.format(name="a")}
[[sink]]
type = "iggy"
stream = "STREAM"
topic = "copies"
server = {{ env = "SERVER" }}
create_topic = 2
[[sink]]
type = "elasticsearch"
url = "URL"
index = "orders"
[dead_letters]
topic = "dead"
"""


def test_driver_when_killed_in_the_middle_then_each_row_is_in_each_sink_once(
    spark, spark_server, client, stream, orders, pipeline, iggy_spark, tmp_path
):
    orders(bad=True)
    with search_server() as server:
        path = pipeline(JSON + SINKS.replace("URL", server.url))
        whole = path.read_text().replace("once = true", "once = true\nmax_rows = 8")
        path.write_text(whole)
        command = [sys.executable, "-m", "spark_jobs.pipeline.command", "run", str(path)]
        command += ["--state", str(tmp_path / "killed"), "--workers", "1", "--conf", QUICK]
        with subprocess.Popen(
            command,
            env={**ENVIRONMENT, SERVER: spark_server.url},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as driver:

            def kill(number):
                """Kill it when files and a topic have a micro-batch and the last sink has not."""
                if number == 3 and driver.poll() is None:
                    os.killpg(driver.pid, signal.SIGKILL)

            server.on_request = kill
            driver.wait()
        assert driver.returncode == -signal.SIGKILL
        (killed,) = read_statuses(tmp_path / "killed")
        assert killed.state == "lost"

        assert iggy_spark("run", path) == 0

        documents = sorted(document["id"] for document in server.documents.values())
    # The server refuses one row; it is a dead letter, and the other sinks have it.
    assert documents == [number for number in range(40) if number != 13]
    rows = spark.read.parquet(str(tmp_path / "lake-a"))
    assert sorted(row["id"] for row in rows.collect()) == list(range(40))
    copies = [one for part in messages_of(client, stream, "copies") for one in part]
    assert sorted(json.loads(one.payload)["id"] for one in copies) == list(range(40))
    (letters,) = messages_of(client, stream, "dead")
    dead = sorted(letter.payload for letter in letters)
    assert dead == sorted([*BAD * 2, b'{"id": 13, "item": "tea", "cups": "3"}'])


def test_lock_when_another_driver_holds_it_then_the_pipeline_is_refused(tmp_path):
    with (
        held_locks(tmp_path, ["a", "b"]),
        pytest.raises(OptionError, match="another driver runs the pipeline b"),
        held_locks(tmp_path, ["c", "b"]),
    ):
        pass
    with held_locks(tmp_path, ["b"]):
        pass


PLUGIN = '''
from pathlib import Path


class LinesSource:
    """Streams the lines of files."""

    def __init__(self, folder, token):
        self.folder = folder
        assert token == "c4nary-in-a-mine"

    def read(self, spark):
        return spark.readStream.format("text").load(self.folder)


class CountSink:
    """Writes how many rows each micro-batch has."""

    guarantee = "each micro-batch once"

    def __init__(self, folder):
        self.folder = Path(folder)

    def write(self, rows, batch_id):
        (self.folder / f"{batch_id}.count").write_text(f"{rows.columns} {rows.count()}")
'''
ENTRIES = """
[iggy_spark.sources]
lines = counting:LinesSource
[iggy_spark.sinks]
count = counting:CountSink
broken = counting:NoSuchClass
"""
USES_PLUGIN = """
[pipeline]
checkpoint = "FOLDER/state"
once = true
[source]
type = "lines"
folder = "FOLDER/in"
token = { env = "LINES_TOKEN" }
[[sink]]
type = "count"
folder = "FOLDER"
"""


def test_plugin_when_a_package_offers_one_then_it_reads_and_writes(
    pipeline, iggy_spark, tmp_path, monkeypatch, capsys
):
    site = tmp_path / "site"
    (site / "counting-1.0.dist-info").mkdir(parents=True)
    (site / "counting.py").write_text(PLUGIN)
    (site / "counting-1.0.dist-info" / "entry_points.txt").write_text(ENTRIES)
    (site / "counting-1.0.dist-info" / "METADATA").write_text("Name: counting\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("LINES_TOKEN", "c4nary-in-a-mine")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a\nb\nc\n")

    path = pipeline(USES_PLUGIN)
    assert iggy_spark("run", path) == 0
    assert (tmp_path / "0.count").read_text() == "['value'] 3"
    assert iggy_spark("explain", path) == 0
    said = capsys.readouterr()
    assert "the plugin count (counting.CountSink): each micro-batch once" in said.out
    assert "c4nary" not in said.out + said.err

    assert iggy_spark("check", pipeline(USES_PLUGIN.replace('"count"', '"broken"'))) == 2
    assert "orders.toml:9: the plugin broken cannot be loaded" in capsys.readouterr().err
    assert iggy_spark("check", pipeline(USES_PLUGIN.replace("folder", "foldr"))) == 2
    assert "the plugin lines refuses its options" in capsys.readouterr().err
