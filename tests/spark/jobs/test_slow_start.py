"""Queries whose Python process did not start in time, which only a busy machine makes happen."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest

from spark_jobs.jobs.queries import SLOW_START, STARTS_MAX, run_query
from spark_jobs.jobs.terminal import StopSignal

TOO_SLOW = RuntimeError(f"[STREAM_FAILED] Query terminated with exception: {SLOW_START}.")
READ = {"batchId": 0, "numInputRows": 7, "sources": []}


def ended(error: Exception | None = None, reports: tuple[dict[str, object], ...] = ()):
    """Return a query that has ended, as far as a job looks at it."""
    return SimpleNamespace(
        isActive=False, exception=lambda: error, recentProgress=reports, stop=lambda: None
    )


def starter(*queries):
    """Return what starts one query after the other."""
    waiting = deque(queries)
    return waiting.popleft, waiting


def test_query_when_python_starts_too_slowly_then_starts_again(capsys):
    start, waiting = starter(ended(TOO_SLOW), ended(reports=(READ,)))

    assert run_query("messages", start, StopSignal()) == 7
    assert not waiting
    assert "messages: the Python process of Spark was too slow; starting again" in (
        capsys.readouterr().err
    )


def test_query_when_python_is_always_too_slow_then_the_job_fails():
    start, waiting = starter(*[ended(TOO_SLOW)] * STARTS_MAX)

    with pytest.raises(RuntimeError, match=SLOW_START):
        run_query("messages", start, StopSignal())
    assert not waiting


def test_query_when_it_fails_otherwise_then_is_not_started_again():
    start, waiting = starter(ended(ValueError("no such topic")), ended())

    with pytest.raises(ValueError, match="no such topic"):
        run_query("messages", start, StopSignal())
    assert len(waiting) == 1
