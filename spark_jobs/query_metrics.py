"""What streaming queries do, for dashboards: rows, lag, durations and errors in Prometheus' format.

    metrics = QueryMetrics()
    spark.streams.addListener(metrics)
    metrics.serve(port=9102)

Spark's progress reports of a source in Python have no ``offsetsBehindLatest``, because that API has
no metrics of sources. They do have the ends of the topics from Spark 4.2 on; before, give the
listener a server to ask.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from spark_jobs.errors import first_message, raised_message
from spark_jobs.offsets import Offsets, read_offsets
from spark_jobs.options import TopicSelection
from spark_jobs.prometheus import MetricsServer, metric_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
    )


_LOGGER: Final = logging.getLogger("spark_jobs")

PREFIX: Final = "iggy_spark"
PORT: Final = 9102

QUERIES_MAX: Final = 100
"""Queries that are shown; of more, those that ended first are forgotten first."""

TOPICS_MAX: Final = 100
"""Topics of a query that are shown; those with the smallest lag count as one."""

OTHER_TOPICS: Final = "(other)"
ERROR_CHARACTERS_MAX: Final = 200


class OffsetsBehindLatest(NamedTuple):
    """How many messages the topics hold that a query has not read, as Kafka's source reports it.

    Attributes:
        max: of the partition that is furthest behind.
        min: of the partition that is least behind.
        avg: of all partitions.
        by_topic: of each topic, its partitions together.
    """

    max: int
    min: int
    avg: float
    by_topic: Mapping[str, int]

    @property
    def total(self) -> int:
        """Messages of all partitions together."""
        return sum(self.by_topic.values())


def offsets_behind_latest(reached: Offsets, latest: Offsets) -> OffsetsBehindLatest:
    """Compare what a query has reached with the ends of its topics."""
    behind = {at: max(0, end - reached.get(at, 0)) for at, end in latest.items()}
    by_topic: Counter[str] = Counter()
    for at, count in behind.items():
        by_topic[at.topic] += count
    counts = list(behind.values()) or [0]
    return OffsetsBehindLatest(
        max(counts), min(counts), sum(counts) / len(counts), dict(sorted(by_topic.items()))
    )


@dataclass
class QueryState:
    """What is known of one query."""

    is_active: bool = True
    input_rows_count: int = 0
    input_rows_per_second: float = 0.0
    processed_rows_per_second: float = 0.0
    batch: int = -1
    batch_seconds: float = 0.0
    behind: OffsetsBehindLatest | None = None
    errors_count: int = 0
    last_error: str = ""


class QueryMetrics(StreamingQueryListener):
    """Follows all streaming queries of a session.

    Args:
        latest: asks for the ends of the topics of a query, where Spark does not tell them; it gets
            the offsets that the query has reached. ``ends_at`` makes one.
    """

    def __init__(self, latest: Callable[[Offsets], Offsets] | None = None) -> None:
        self._latest = latest
        self._names: dict[str, str] = {}
        self._queries: dict[str, QueryState] = {}
        self._lock = threading.Lock()

    # What Spark calls

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Begin to show a query; a name that is used again goes on."""
        name = event.name or str(event.id)
        with self._lock:
            self._names[str(event.runId)] = name
            state = self._queries.pop(name, QueryState())
            state.is_active = True
            self._queries[name] = state
            self._forget_old()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Take the numbers of a micro-batch."""
        progress = event.progress
        behind = self._behind(progress.sources)
        with self._lock:
            state = self._queries.setdefault(progress.name or str(progress.id), QueryState())
            state.input_rows_count += progress.numInputRows
            state.batch = progress.batchId
            state.input_rows_per_second = _number(progress.inputRowsPerSecond)
            state.processed_rows_per_second = _number(progress.processedRowsPerSecond)
            state.batch_seconds = progress.durationMs.get("triggerExecution", 0) / 1000
            state.behind = behind if behind is not None else state.behind

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: what was reported last still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Note how a query ended."""
        with self._lock:
            name = self._names.pop(str(event.runId), str(event.id))
            state = self._queries.setdefault(name, QueryState())
            state.is_active = False
            if event.exception:
                state.errors_count += 1
                state.last_error = _summary(event.exception)
            self._forget_old()

    def _behind(self, sources: Iterable[SourceProgress]) -> OffsetsBehindLatest | None:
        reached: Offsets = {}
        latest: Offsets = {}
        for source in sources:
            ends = _offsets(source.endOffset)
            if ends is not None:
                reached.update(ends)
                told = _offsets(source.latestOffset)
                if told is None and self._latest is not None:
                    told = self._latest(ends)
                latest.update(told or {})
        return offsets_behind_latest(reached, latest) if latest else None

    def _forget_old(self) -> None:
        ended = [name for name, state in self._queries.items() if not state.is_active]
        running = [name for name, state in self._queries.items() if state.is_active]
        for name in (*ended, *running)[: max(0, len(self._queries) - QUERIES_MAX)]:
            del self._queries[name]

    # What others ask for

    def offsets_behind_latest(self, query: str) -> OffsetsBehindLatest | None:
        """Return the lag of a query after its last micro-batch; None if it is not known.

        Args:
            query: its name, or its id as text if it has none.
        """
        with self._lock:
            state = self._queries.get(query)
            return None if state is None else state.behind

    def text(self) -> str:
        """Return all metrics in the format of Prometheus."""
        with self._lock:
            lines = list(_lines(self._queries))
        return "\n".join([*lines, ""])

    def serve(self, port: int = PORT, host: str = "127.0.0.1") -> MetricsServer:
        """Serve the metrics over HTTP, at ``/metrics``, until the server is closed.

        Args:
            port: where; 0 takes a free one.
            host: the address to listen at; others than this machine reach it only if it is one
                of the network. There is no login.

        Raises:
            OSError: the port is taken.
        """
        return MetricsServer(self.text, host, port)


def ends_at(server: str, stream: str) -> Callable[[Offsets], Offsets]:
    """Return what asks a server for the ends of topics, for ``QueryMetrics(latest=...)``.

    Spark calls it after each micro-batch, so give the connection string a short
    ``request_timeout``. While the server is away the lag stays as it was.

    Args:
        server: the connection string.
        stream: the stream that the queries read.
    """

    def ask(reached: Offsets) -> Offsets:
        from iggy_sdk import IggyError
        from spark_jobs.topics import end_offsets

        topics = tuple(sorted({at.topic for at in reached}))
        try:
            return end_offsets(TopicSelection(server, stream, topics))
        except IggyError as error:
            _LOGGER.warning("the lag of %s is not known: %s", ", ".join(topics), error)
            return {}

    return ask


def _number(value: float | None) -> float:
    """Return a rate; Spark has none, or no number, before it knows two micro-batches."""
    return value if value is not None and math.isfinite(value) else 0.0


def _summary(text: str) -> str:
    return (raised_message(text) or first_message(text))[:ERROR_CHARACTERS_MAX]


def _offsets(written: str | None) -> Offsets | None:
    """Read offsets of topics; None for those of other sources."""
    try:
        value = json.loads(written or "null")
        return read_offsets(value) if isinstance(value, dict) else None
    except ValueError:
        return None


# Which metrics there are.


class _Metric(NamedTuple):
    name: str
    kind: str
    help: str
    value: Callable[[QueryState], float | None]


def _of_behind(
    value: Callable[[OffsetsBehindLatest], float],
) -> Callable[[QueryState], float | None]:
    return lambda state: None if state.behind is None else value(state.behind)


_METRICS: Final = (
    _Metric("active", "gauge", "Whether the query runs.", lambda state: int(state.is_active)),
    _Metric(
        "input_rows_total", "counter", "Rows that were read.", lambda state: state.input_rows_count
    ),
    _Metric(
        *("input_rows_per_second", "gauge", "Rows that arrived in a second."),
        lambda state: state.input_rows_per_second,
    ),
    _Metric(
        *("processed_rows_per_second", "gauge", "Rows that were processed in a second."),
        lambda state: state.processed_rows_per_second,
    ),
    _Metric("batch_id", "gauge", "The number of the last micro-batch.", lambda state: state.batch),
    _Metric(
        *("batch_duration_seconds", "gauge", "How long the last micro-batch took."),
        lambda state: state.batch_seconds,
    ),
    _Metric("lag_messages", "gauge", "Unread messages.", _of_behind(lambda one: one.total)),
    _Metric(
        *("offsets_behind_latest_max", "gauge", "Unread messages of the slowest partition."),
        _of_behind(lambda one: one.max),
    ),
    _Metric(
        *("offsets_behind_latest_min", "gauge", "Unread messages of the fastest partition."),
        _of_behind(lambda one: one.min),
    ),
    _Metric(
        *("offsets_behind_latest_avg", "gauge", "Unread messages of a partition on average."),
        _of_behind(lambda one: one.avg),
    ),
    _Metric(
        *("errors_total", "counter", "How often the query has failed."),
        lambda state: state.errors_count,
    ),
)


def _lines(queries: Mapping[str, QueryState]) -> Iterator[str]:
    for metric in _METRICS:
        values = [(name, metric.value(state)) for name, state in queries.items()]
        samples = [({"query": name}, value) for name, value in values if value is not None]
        yield from metric_lines(f"{PREFIX}_query_{metric.name}", metric.kind, metric.help, samples)
    lags = [
        ({"query": name, "topic": topic}, count)
        for name, state in queries.items()
        if state.behind is not None
        for topic, count in _largest(state.behind.by_topic)
    ]
    yield from metric_lines(
        f"{PREFIX}_topic_lag_messages", "gauge", "Unread messages of a topic.", lags
    )
    errors = [
        ({"query": name, "error": state.last_error}, 1)
        for name, state in queries.items()
        if state.last_error
    ]
    yield from metric_lines(
        f"{PREFIX}_query_last_error_info", "gauge", "Why the query failed last.", errors
    )


def _largest(by_topic: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Limit the number of topics."""
    ordered = sorted(by_topic.items(), key=lambda one: (-one[1], one[0]))
    if len(ordered) > TOPICS_MAX:
        rest = ordered[TOPICS_MAX - 1 :]
        ordered = [*ordered[: TOPICS_MAX - 1], (OTHER_TOPICS, sum(count for _, count in rest))]
    yield from ordered
