"""One scenario in each PySpark from 4.0 on: the oldest in the gate, those between in ``make slow``.

All other tests of this folder run with the newest. Each version has an environment of its own, of
``requirements/spark-*.txt``; the Makefile makes them before the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from spark_jobs import prepare_java

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("version_scenario.py")
VERSIONS = ("4.0", *(pytest.param(version, marks=pytest.mark.slow) for version in ("4.1", "4.2")))
SECONDS_MAX = 170
# Without admission control Spark tells of the last micro-batch of availableNow in the next run.
TELLS_LATE = ("4.0", "4.1")


def spark_python(version):
    """Return the interpreter that has a version; the gate makes it first, so it skips nothing."""
    interpreter = ROOT / ".venv-spark" / version / "bin" / "python"
    if not interpreter.exists():
        pytest.skip(f"PySpark {version} is not installed; make spark-versions does that")
    return interpreter


@pytest.fixture
def run(spark_server, stream, tmp_path):
    """Return a function that runs the scenario with a Python."""

    def run_scenario(python):
        prepare_java()
        done = subprocess.run(
            [python, PROGRAM, spark_server.url, stream, tmp_path],
            env={
                **{name: text for name, text in os.environ.items() if "SPARK" not in name},
                "PYTHONPATH": f"{ROOT}:{ROOT / 'protocol'}",
                "PYSPARK_PYTHON": str(python),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == 0, done.stderr[-5000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run_scenario


@pytest.mark.parametrize("version", VERSIONS)
def test_scenario_when_run_in_a_version_of_spark_then_nothing_is_lost_or_doubled(version, run):
    report = run(spark_python(version))

    assert report.pop("version").startswith(f"{version}.")
    assert "has no topic 'nowhere'" in report.pop("error")
    assert report == {
        "batch": [50, 4, 1],
        "ids": 40,
        "restart": {"sizes": [[50], [5]], "rows": 55, "distinct": 55},
        "lag": [29, 19 if version in TELLS_LATE else 24],
        "limited": [20, 20, 15],
        "copy": [55, 0],
        "each": 55,
        "job": [0, 55],
    }
