"""Metrics of streaming queries: the lag, the text for Prometheus, and both of a real query."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException

from spark_jobs import QueryMetrics
from spark_jobs.offsets import TopicPartition
from spark_jobs.prometheus import MetricsServer, metric_lines
from spark_jobs.query_metrics import (
    OTHER_TOPICS,
    QUERIES_MAX,
    TOPICS_MAX,
    ends_at,
    offsets_behind_latest,
)

PLACES = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 5))
OFFSETS = st.dictionaries(PLACES, st.integers(0, 1000))
SAMPLE = re.compile(r'(?P<name>[a-z_]+)\{(?P<labels>(?:[a-z]+="(?:[^"\\\n]|\\.)*",?)*)\} \S+')


@given(reached=OFFSETS, latest=OFFSETS)
def test_lag_when_offsets_are_compared_then_parts_make_the_whole(reached, latest):
    behind = offsets_behind_latest(reached, latest)

    assert behind.total == sum(max(0, latest[at] - reached.get(at, 0)) for at in latest)
    assert behind.min <= behind.avg <= behind.max <= behind.total
    assert set(behind.by_topic) == {at.topic for at in latest}


@given(value=st.text(max_size=30), number=st.floats(allow_nan=False))
def test_line_when_a_label_has_any_text_then_it_is_one_line(value, number):
    *comments, line = metric_lines("m", "gauge", "What it is.", [({"query": value}, number)])

    assert comments == ["# HELP m What it is.", "# TYPE m gauge"]
    assert "\n" not in line
    found = SAMPLE.fullmatch(line)
    assert found is not None
    assert re.sub(r"\\(.)", _unescaped, found["labels"][len('query="') : -1]) == value


def _unescaped(found):
    return "\n" if found[1] == "n" else found[1]


def event(**values):
    return SimpleNamespace(**{"name": "q", "id": "id", "runId": "run", "exception": None, **values})


def progress(name="q", end='{"t": {"0": 3}}', latest='{"t": {"0": 5}}', **values):
    source = SimpleNamespace(endOffset=end, latestOffset=latest)
    known = {
        "name": name,
        "id": "id",
        "batchId": 0,
        "numInputRows": 3,
        "inputRowsPerSecond": float("nan"),
        "processedRowsPerSecond": 30.0,
        "durationMs": {"triggerExecution": 100},
        "sources": [source],
    }
    return SimpleNamespace(progress=SimpleNamespace(**{**known, **values}))


def samples(text):
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_metrics_when_a_query_goes_on_then_rows_add_up_and_the_rest_is_the_last():
    metrics = QueryMetrics()

    metrics.onQueryStarted(event())
    metrics.onQueryProgress(progress())
    metrics.onQueryProgress(progress(batchId=1, numInputRows=2, end='{"t": {"0": 5}}'))

    found = samples(metrics.text())
    assert found['iggy_spark_query_input_rows_total{query="q"}'] == "5"
    assert found['iggy_spark_query_input_rows_per_second{query="q"}'] == "0.0"
    assert found['iggy_spark_query_processed_rows_per_second{query="q"}'] == "30.0"
    assert found['iggy_spark_query_batch_duration_seconds{query="q"}'] == "0.1"
    assert found['iggy_spark_query_batch_id{query="q"}'] == "1"
    assert found['iggy_spark_query_lag_messages{query="q"}'] == "0"
    assert metrics.offsets_behind_latest("q") == (0, 0, 0.0, {"t": 0})


def test_metrics_when_a_query_fails_and_starts_again_then_the_error_stays():
    metrics = QueryMetrics()
    metrics.onQueryStarted(event())
    metrics.onQueryTerminated(event(exception='no "topic"\nat line 1'))

    failed = samples(metrics.text())
    metrics.onQueryStarted(event(runId="another"))
    again = samples(metrics.text())

    error = r'iggy_spark_query_last_error_info{query="q",error="no \"topic\""}'
    assert (failed[error], again[error]) == ("1", "1")
    active = 'iggy_spark_query_active{query="q"}'
    assert (failed[active], again[active]) == ("0", "1")
    assert again['iggy_spark_query_errors_total{query="q"}'] == "1"


def test_metrics_when_spark_does_not_tell_the_ends_then_they_are_asked_for():
    asked = []

    def ends(reached):
        asked.append(reached)
        return {TopicPartition("t", 0): 9, TopicPartition("t", 1): 1}

    metrics = QueryMetrics(ends)
    metrics.onQueryProgress(progress(latest="null"))

    assert asked == [{TopicPartition("t", 0): 3}]
    assert metrics.offsets_behind_latest("q") == (6, 1, 3.5, {"t": 7})
    other = QueryMetrics(ends)
    other.onQueryProgress(progress(end='"a file"', latest="null"))
    assert (len(asked), other.offsets_behind_latest("q")) == (1, None)


def test_metrics_when_there_are_many_queries_and_topics_then_the_series_are_bounded():
    metrics = QueryMetrics()
    for number in range(QUERIES_MAX + 20):
        run = event(name=f"q{number}", runId=number)
        metrics.onQueryStarted(run)
        if number % 2:
            metrics.onQueryTerminated(run)
    many = ", ".join(f'"t{number}": {{"0": {number + 1}}}' for number in range(TOPICS_MAX + 5))
    metrics.onQueryProgress(progress(f"q{QUERIES_MAX}", latest=f"{{{many}}}"))

    found = samples(metrics.text())

    assert sum(name.startswith("iggy_spark_query_active") for name in found) == QUERIES_MAX
    assert 'iggy_spark_query_active{query="q1"}' not in found, "it ended first"
    lags = {name: int(value) for name, value in found.items() if "topic_lag" in name}
    assert len(lags) == TOPICS_MAX
    other = f'iggy_spark_topic_lag_messages{{query="q{QUERIES_MAX}",topic="{OTHER_TOPICS}"}}'
    assert lags[other] == sum(range(1, 7))


def test_server_when_asked_for_something_else_then_says_where_metrics_are():
    with MetricsServer(lambda: "text\n", "127.0.0.1", 0) as server:
        with urllib.request.urlopen(server.url, timeout=10) as reply:
            assert (reply.read(), reply.headers["Content-Type"]) == (
                b"text\n",
                "text/plain; version=0.0.4; charset=utf-8",
            )
        with pytest.raises(urllib.error.HTTPError, match="the metrics are at /metrics") as caught:
            urllib.request.urlopen(server.url.replace("metrics", "other"), timeout=10)
        caught.value.close()


def test_query_when_it_runs_and_fails_then_prometheus_gets_its_numbers(
    spark, client, stream, topic, options, tmp_path
):
    topic(counts=(10, 20))
    metrics = QueryMetrics(ends_at(options["server"], stream))
    spark.streams.addListener(metrics)

    def start(**more):
        given = {**options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "12", **more}
        rows = spark.readStream.format("iggy").options(**given).load()
        writer = rows.writeStream.format("noop").queryName("watched")
        return writer.option("checkpointLocation", str(tmp_path)).trigger(once=True).start()

    try:
        start().awaitTermination()
        client.delete_topic(stream, "t")
        topic(counts=(1, 1))
        failed = start()
        with pytest.raises(StreamingQueryException):
            failed.awaitTermination()
        with metrics.serve(port=0) as server:
            found = wait_for_error(server.url)
    finally:
        spark.streams.removeListener(metrics)

    assert found['iggy_spark_query_input_rows_total{query="watched"}'] == "30"
    assert found['iggy_spark_topic_lag_messages{query="watched",topic="t"}'] == "0"
    assert found['iggy_spark_query_active{query="watched"}'] == "0"
    assert any("last_error_info" in name and "made anew" in name for name in found)


def wait_for_error(url):
    """Ask until Spark has told its listeners of the end of the query, which it does later."""
    while True:
        with urllib.request.urlopen(url, timeout=10) as reply:
            found = samples(reply.read().decode())
        if found.get('iggy_spark_query_errors_total{query="watched"}') == "1":
            return found
