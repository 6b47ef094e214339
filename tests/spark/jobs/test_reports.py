"""What jobs say and how: progress, tables, windows, errors. Nothing here needs Spark."""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import threading

import pytest

from iggy_sdk import ConnectionFailedError
from spark_jobs.errors import OptionError
from spark_jobs.jobs.command import (
    SessionSettings,
    configuration,
    count,
    duration,
    error_summary,
    is_local,
    name_and_value,
)
from spark_jobs.jobs.metrics import (
    PartitionWindow,
    WindowTable,
    draw_windows,
    format_windows,
    write_csv,
)
from spark_jobs.jobs.queries import ProgressReport, lag_of
from spark_jobs.jobs.terminal import StopSignal, format_table
from spark_jobs.offsets import TopicPartition


def report(batch, rows, *, end=None, latest=None):
    """Make what Spark reports of a micro-batch."""
    source = {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}
    return {
        "batchId": batch,
        "numInputRows": rows,
        "processedRowsPerSecond": 1234.5,
        "sources": [source],
    }


def test_progress_when_spark_repeats_a_report_then_it_is_told_once():
    progress = ProgressReport("rows")
    known = [report(0, 10, end={"t": {"0": 5}}, latest={"t": {"0": 8, "1": 2}})]

    first = list(progress.lines(known))
    second = list(progress.lines([*known, report(1, 0), report(1, 7)]))

    assert first == ["rows: batch 0, 10 rows, 1,234 rows/s, 5 behind"]
    assert second == ["rows: batch 1, 7 rows, 1,234 rows/s"]
    assert progress.rows_count == 17


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ({"t": {"0": 5}}, {"t": {"0": 5}}, 0),
        ({"t": {"0": 5}}, None, None),
        ({"logOffset": 3}, {"logOffset": 4}, None),
        ({"t": {"0": 9}}, {"t": {"0": 5}}, 0),
    ],
)
def test_lag_when_the_source_tells_its_end_then_is_counted(end, latest, lag):
    assert lag_of(report(0, 1, end=end, latest=latest)) == lag


def test_table_when_aligned_then_numbers_stand_right_and_words_left():
    table = format_table(("name", "n"), [("a", 1000), ("long name", None)])

    assert table.splitlines() == ["name           n", "a          1,000", "long name      -"]


def part(start_s, number, *, first, last, size=10, delay=2.0):
    start_ms = round(1000 * start_s)
    return PartitionWindow(
        start_ms, TopicPartition("t", number), last - first + 1, size, delay, first, last
    )


def test_windows_when_partitions_are_summed_then_lag_is_what_the_consumer_has_not_read():
    table = WindowTable(windows_max=10)
    table.put([part(60, 0, first=0, last=9), part(60, 1, first=0, last=4, delay=5.0)])
    table.put([part(120, 0, first=10, last=12)])
    stored = {TopicPartition("t", 0): 7, TopicPartition("t", 1): None}

    first, second = table.windows(stored)

    assert (first.start, first.messages, first.bytes, first.delay_ms) == (
        "1970-01-01 00:01:00",
        15,
        20,
        3.0,
    )
    assert (first.behind, second.behind) == (2 + 5, 3)
    assert [window.behind for window in table.windows(None)] == [None, None]


def test_windows_when_a_part_is_counted_again_then_the_new_count_holds():
    table = WindowTable(windows_max=10)
    table.put([part(60, 0, first=0, last=3)])
    table.put([part(60, 0, first=0, last=9)])

    assert [window.messages for window in table.windows(None)] == [10]


def test_windows_when_there_are_too_many_then_the_oldest_go():
    table = WindowTable(windows_max=2)
    for start in (60, 180, 120):
        table.put([part(start, 0, first=0, last=1), part(start, 1, first=0, last=1)])

    assert [one.start[-5:] for one in table.windows(None)] == ["02:00", "03:00"]


def test_windows_when_shorter_than_a_second_then_none_takes_the_place_of_another():
    table = WindowTable(windows_max=10)
    table.put([part(start, 0, first=0, last=0) for start in (60.0, 60.5, 61.0)])

    assert [(one.start[-9:], one.messages) for one in table.windows(None)] == [
        (" 00:01:00", 1),
        ("01:00.500", 1),
        (" 00:01:01", 1),
    ]


def test_windows_when_written_then_people_and_programs_can_read_them(tmp_path):
    table = WindowTable(windows_max=2)
    table.put([part(60, 0, first=0, last=1999)])
    windows = table.windows({TopicPartition("t", 0): 0})

    write_csv(windows, tmp_path / "metrics.csv")
    draw_windows(windows, tmp_path / "deep" / "metrics.svg", title="a title", window_s=60)

    assert "2,000" in format_windows(windows)
    with (tmp_path / "metrics.csv").open() as file:
        assert list(csv.DictReader(file)) == [
            {
                "start": "1970-01-01 00:01:00",
                "messages": "2000",
                "bytes": "10",
                "delay_ms": "2.0",
                "behind": "1999",
            }
        ]
    assert (tmp_path / "deep" / "metrics.svg").read_text().count("</svg>") == 1


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("500ms", "500 milliseconds"),
        ("30 s", "30 seconds"),
        ("5min", "5 minutes"),
        ("1h", "1 hours"),
    ],
)
def test_duration_when_given_then_is_as_spark_wants_it(text, time):
    assert duration(text) == time


@pytest.mark.parametrize(
    ("read", "text"),
    [(duration, "soon"), (duration, "5"), (count, "0"), (count, "x"), (name_and_value, "x")],
)
def test_value_when_it_cannot_be_read_then_is_refused(read, text):
    with pytest.raises(argparse.ArgumentTypeError, match=text):
        read(text)


class JavaError(Exception):
    """Stands for what Spark raises."""

    __module__ = "pyspark.errors"


FAILED_TASK = """[STREAM_FAILED] Query [id = 1] terminated with exception:
Traceback (most recent call last):
  File "reader.py", line 1, in read
spark_jobs.errors.DataLossError: offsets 5 to 9 are gone;
 set failOnDataLoss to false SQLSTATE: 38000

\tat org.apache.spark.Something
=== Streaming Query ==="""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (JavaError(FAILED_TASK), "offsets 5 to 9 are gone; set failOnDataLoss to false"),
        (
            JavaError(
                "Job aborted\nCaused by: [USER_RAISED_EXCEPTION] f.json is bad SQLSTATE: P01"
            ),
            "f.json is bad",
        ),
        (
            JavaError(
                "o1.save\n: java: [PATH_NOT_FOUND] Path does not exist: x. SQLSTATE: 42K03\n at"
            ),
            (
                "Spark failed: [PATH_NOT_FOUND] Path does not exist: x.; run the command with "
                "--verbose for the traceback"
            ),
        ),
        (OptionError("give one"), "give one"),
        (ValueError(), "ValueError"),
    ],
)
def test_error_when_told_then_has_the_words_that_help(error, expected):
    assert error_summary(error) == expected


def test_error_of_the_sdk_when_told_then_says_what_to_do():
    error = ConnectionFailedError("no server at 127.0.0.1:1")

    assert error_summary(error).count(error.advice) == 1


def test_session_when_cores_are_chosen_then_spark_runs_here():
    chosen = configuration(SessionSettings("x", workers=3, settings={"spark.a": "b"}))

    assert (chosen["spark.master"], chosen["spark.a"]) == ("local[3]", "b")
    assert chosen["spark.sql.session.timeZone"] == "UTC"


def test_session_when_a_master_is_named_then_it_is_not_local():
    settings = SessionSettings("x", master="spark://host:7077", packages=("a:b:1", "c:d:2"))

    assert not is_local(settings)
    assert is_local(SessionSettings("x"))
    assert configuration(settings)["spark.jars.packages"] == "a:b:1,c:d:2"
    assert "spark.master" not in configuration(SessionSettings("x"))


def test_session_when_master_and_cores_are_given_then_is_refused():
    with pytest.raises(OptionError, match=r"--workers .* give one"):
        SessionSettings("x", master="yarn", workers=2)


def test_stopping_when_a_signal_comes_then_the_wish_is_heard_and_the_second_one_ends_it(capsys):
    before = signal.getsignal(signal.SIGTERM)
    with StopSignal() as stop:
        assert not stop.requested
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(5)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    assert signal.getsignal(signal.SIGTERM) is before
    assert "SIGTERM: stopping" in capsys.readouterr().err


def test_stopping_when_entered_in_another_thread_then_leaves_signals_alone():
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def enter():
        with StopSignal():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()

    assert seen == [before]
