"""A package that is made for another Spark: the answer names the pairs that work."""

from __future__ import annotations

import subprocess
import sys

import pyspark
import pytest

from spark_jobs import tables
from tests.lake.conftest import formats

SCRIPT = """
import sys, tempfile
from pathlib import Path
from spark_jobs import OptionError, tables
from tests.lake.session import lake_session
name, package = sys.argv[1:]
spark = lake_session(Path(tempfile.mkdtemp()), [name], [package])
table = {"delta": "default.t", "iceberg": "lake.db.t"}[name]
for act in (
    lambda: tables.check_format(spark, name),
    lambda: tables.write_batch(
        spark.range(1), tables.TableTarget(table, name), writer="w", batch_id=0
    ),
):
    try:
        act()
    except OptionError as error:
        print("ANSWER", error)
"""
WRONG = {
    ("delta", "4.0"): "4.1",
    ("delta", "4.1"): "4.2",
    ("delta", "4.2"): "4.1",
    ("delta", "4.3"): "4.2",
    ("iceberg", "4.0"): "4.1",
    ("iceberg", "4.2"): "4.1",
    ("iceberg", "4.3"): "4.1",
}
"""For a Spark the nearest one whose package does not work with it."""


@pytest.mark.parametrize("name", list(tables.FORMATS))
def test_package_when_it_is_made_for_another_spark_then_the_pairs_that_work_are_named(name):
    version = ".".join(pyspark.__version__.split(".")[:2])
    other = WRONG.get((name, version))
    if other is None:
        pytest.skip(f"every package of {name} that was tried works with Spark {version}")
    (package,) = tables.packages(name, other)

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, name, package],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    assert len(answers) == 2, done.stderr
    assert f"is made for Spark {other}, and this is Spark {pyspark.__version__}" in answers[0]
    assert f"made for another Spark than {pyspark.__version__} (java.lang." in answers[1]
    assert "these work: Spark 4.0 with" in answers[1]


def test_formats_when_a_spark_has_none_then_that_is_known():
    expected = {
        "4.0": ["delta", "iceberg"],
        "4.1": ["delta", "iceberg"],
        "4.2": ["delta"],
        "4.3": [],
    }

    assert formats() == expected[".".join(pyspark.__version__.split(".")[:2])]
