"""What Spark is measured at: each row, with the queries of ours and of those beside it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.machine import touch_memory
from bench.spark_rounds import MINE, Bar, Contender, Row
from bench.spark_sources import PARTITIONS
from bench.spark_topics import KAFKA, TUNED, Bench, Volume, WrongCount, with_body

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PlannedRow", "planned_rows"]

FEW = Volume(2_000, 100)
"""So few that what is measured is the price of a query; its rows show seconds."""

SHORT_ROUNDS = 3
"""So many times the rounds of other rows: short ones scatter."""

FIRST_ROW_SECONDS_MAX = 60.0
MICRO_BATCHES = 10


class PlannedRow(NamedTuple):
    """A row that may be measured.

    Attributes:
        name: as it stands in the table.
        build: makes the row of that name with those contenders that are wanted.
        rounds_factor: how many times as often as others it is measured.
    """

    name: str
    build: Callable[[str, Bench, Sequence[str]], Row]
    rounds_factor: int = 1


def planned_rows(*, quick: bool) -> list[PlannedRow]:
    """List all rows, in the order of the table."""
    scale = 10 if quick else 1
    large, small = Volume(1_000_000 // scale, 1000), Volume(3_000_000 // scale, 100)
    return [
        *(
            PlannedRow(
                f"read {volume.size_bytes} B to {target}",
                partial(_read_row, volume=volume, target=target),
            )
            for volume in (large, small)
            for target in ("noop", "parquet")
        ),
        *(
            PlannedRow(
                f"stream {volume.size_bytes} B to {how}",
                partial(_stream_row, volume=volume, how=how),
            )
            for volume, how in (
                (large, "noop"),
                (large, f"noop in {MICRO_BATCHES} micro-batches"),
                (large, "foreachBatch count"),
                (small, "noop"),
            )
        ),
        *(
            PlannedRow(
                f"sink {volume.size_bytes} B{how}", partial(_sink_row, volume=volume, how=how)
            )
            for volume, how in (
                (Volume(400_000 // scale, 1000), ""),
                (Volume(400_000 // scale, 1000), " as a stream"),
                (Volume(2_000_000 // scale, 100), ""),
                (Volume(2_000_000 // scale, 100), " with keys"),
            )
        ),
        PlannedRow(
            "read few rows to noop", partial(_read_row, volume=FEW, target="noop"), SHORT_ROUNDS
        ),
        PlannedRow(
            "stream few rows to noop", partial(_stream_row, volume=FEW, how="noop"), SHORT_ROUNDS
        ),
        PlannedRow("sink few rows", partial(_sink_row, volume=FEW, how=""), SHORT_ROUNDS),
        PlannedRow("first row of a stream", _first_row, SHORT_ROUNDS),
    ]


def _row(name: str, volume: Volume, contenders: Sequence[Contender], *bars: Bar) -> Row:
    if volume is FEW:
        return Row(name=name, contenders=contenders)
    return Row(name=name, contenders=contenders, **volume._asdict(), bars=bars)


def _contender(
    bench: Bench,
    label: str,
    run: Callable[[], None],
    prepare: Callable[[], None] | None = None,
    clean_up: Callable[[], None] = lambda: None,
) -> Contender:
    def prepare_all() -> None:
        if prepare is not None:
            prepare()
        # Otherwise one would clear up in its turn what another has left.
        bench.collect_garbage()

    server = bench.process_of(label)
    return Contender(label=label, run=run, prepare=prepare_all, clean_up=clean_up, server=server)


def _read_row(
    name: str, bench: Bench, wanted: Sequence[str], *, volume: Volume, target: str
) -> Row:
    topic = bench.topic(volume)
    sources: dict[str, Callable[[], DataFrame]] = {
        MINE: partial(bench.load, MINE, topic),
        KAFKA: partial(bench.load, KAFKA, topic),
        "arrow": partial(bench.prebuilt, volume),
        "parquet": partial(bench.parquet, volume),
    }
    if "parquet" in wanted:
        bench.parquet(volume)
    path = bench.path("out")

    def run(load: Callable[[], DataFrame]) -> None:
        writer = load().write.format(target).mode("overwrite")
        writer.save(*([path] if target == "parquet" else []))

    contenders = [
        _contender(bench, label, partial(run, load))
        for label, load in sources.items()
        if label in wanted
    ]
    return _row(name, volume, contenders, *([Bar("arrow", 0.85)] if target == "noop" else []))


def _stream_row(name: str, bench: Bench, wanted: Sequence[str], *, volume: Volume, how: str) -> Row:
    topic = bench.topic(volume)
    is_limited, is_counted = "micro-batches" in how, how == "foreachBatch count"
    limit = {"maxOffsetsPerTrigger": volume.rows_count // MICRO_BATCHES} if is_limited else {}

    def run(label: str) -> None:
        source = bench.load(label, topic, streaming=True, **limit)
        counts: list[int] = []
        if is_counted:
            target = source.writeStream.foreachBatch(lambda rows, _: counts.append(rows.count()))
        else:
            target = source.writeStream.format("noop")
        query = target.trigger(availableNow=True).start()
        query.awaitTermination()
        if not is_counted:
            counts += [progress["numInputRows"] for progress in query.recentProgress]
        if sum(counts) != volume.rows_count:
            raise WrongCount(f"{label}: {sum(counts)} rows in a stream of {volume.rows_count}")

    contenders = [
        _contender(bench, label, partial(run, label)) for label in (MINE, KAFKA) if label in wanted
    ]
    return _row(name, volume, contenders, Bar(KAFKA, 1.3))


def _first_row(name: str, bench: Bench, wanted: Sequence[str]) -> Row:
    topic = bench.topic(FEW)
    sources: dict[str, Callable[[], DataFrame]] = {
        MINE: partial(bench.load, MINE, topic, streaming=True),
        KAFKA: partial(bench.load, KAFKA, topic, streaming=True),
        "idle": lambda: bench.spark.readStream.format("idle").load(),
    }

    def run(load: Callable[[], DataFrame]) -> None:
        is_seen = threading.Event()

        def see(rows: DataFrame, _: int) -> None:
            # All of them, because Spark ends Pythons that have not been read to the end.
            if rows.count():
                is_seen.set()

        load().writeStream.foreachBatch(see).start()
        if not is_seen.wait(FIRST_ROW_SECONDS_MAX):
            raise WrongCount("a stream gave no row")

    def stop() -> None:
        for query in bench.spark.streams.active:
            query.stop()

    contenders = [
        _contender(bench, label, partial(run, load), clean_up=stop)
        for label, load in sources.items()
        if label in wanted
    ]
    return Row(name=name, contenders=contenders, bars=[Bar("idle", seconds_more=0.3)])


class _SinkTurn:
    """Writes the same rows to a new topic in each turn."""

    def __init__(self, bench: Bench, label: str, volume: Volume, how: str) -> None:
        self._bench = bench
        self._label = label
        self._volume = volume
        self._is_stream = "stream" in how
        payload = "body AS payload" if label == MINE else "body AS value"
        self._columns = [payload, "key"] if "keys" in how else [payload]
        self._topic = ""

    def prepare(self) -> None:
        self._topic = self._bench.new_name()
        self._bench.create(self._label, self._topic)
        # Otherwise the machine would look for pages meanwhile, and longer for the first.
        touch_memory(self._volume.rows_count * self._volume.size_bytes)

    def run(self) -> None:
        bench, label = self._bench, self._label
        options = bench.options(label, self._topic)
        if self._is_stream:
            rows = self._generated().selectExpr(*self._columns)
            options["checkpointLocation"] = self._checkpoint()
            query = rows.writeStream.format(bench.format_of(label)).options(**options)
            query.trigger(availableNow=True).start().awaitTermination()
        else:
            rows = bench.cached(self._volume).selectExpr(*self._columns)
            rows.write.format(bench.format_of(label)).mode("append").options(**options).save()

    def _generated(self) -> DataFrame:
        """Make the rows on the way: what Spark holds in memory is no stream."""
        source = self._bench.spark.readStream.format("rate-micro-batch")
        given: Any = {"rowsPerBatch": self._volume.rows_count, "numPartitions": PARTITIONS}
        return with_body(source.options(**given).load(), "value", self._volume.size_bytes)

    def clean_up(self) -> None:
        self._bench.check(self._label, self._topic, self._volume.rows_count)
        self._bench.delete(self._label, self._topic)
        shutil.rmtree(self._checkpoint(), ignore_errors=True)

    def _checkpoint(self) -> str:
        return self._bench.path(f"{self._topic}-checkpoint")


def _sink_row(name: str, bench: Bench, wanted: Sequence[str], *, volume: Volume, how: str) -> Row:
    bench.cached(volume)
    turns = {
        label: _SinkTurn(bench, label, volume, how)
        for label in (MINE, KAFKA, TUNED)
        if label in wanted
    }
    contenders = [
        _contender(bench, label, turn.run, turn.prepare, turn.clean_up)
        for label, turn in turns.items()
    ]
    return _row(name, volume, contenders, Bar(KAFKA, 1.2))
