"""Measures a row of the table: the contenders take turns, round by round, and medians count."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from bench.load_runs import Figure, Load, drive, fill, median_of
from bench.machine import core_for_load, touch_memory
from bench.rows import FEW, Baseline, ClientShard, Row
from bench.servers import BenchServer
from iggy_protocol import pack_namespace, shard_for_namespace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.servers import Topic

__all__ = ["Outcome", "RunLength", "compare"]

# A producer of large batches fills the page cache at about this rate.
TOUCHED_BYTES_S = 1_500_000_000
PREPARED_PAYLOAD_BYTES = 100


class RunLength(NamedTuple):
    """How long everything takes."""

    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Contender:
    """One that takes turns with others."""

    label: str
    server: BenchServer
    load: Load
    place: ClientShard = ClientShard.ANY
    stored: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a row.

    Attributes:
        row: what it was about.
        figures: the medians by entrant; ours is the first, what it is held against the second.
        rounds: all that went into the medians.
        shards: processes that serve, of our server.
        owner: the one of them that owns the partition, where that matters.
    """

    row: Row
    figures: dict[str, Figure]
    rounds: dict[str, list[Figure]]
    shards: tuple[int, ...]
    owner: int | None = None


def compare(program: Path, row: Row, servers: Sequence[BenchServer], effort: RunLength) -> Outcome:
    """Measure a row.

    Args:
        program: the compiled load.
        row: what it is about.
        servers: those that run; ours is the first.
        effort: how long everything takes.

    Raises:
        BenchFailed: a server did not do what it was asked.
    """
    entrants = _contenders(row, servers)
    turns = [_Turn(program, row, entrant, effort) for entrant in entrants]
    rounds: dict[str, list[Figure]] = {entrant.label: [] for entrant in entrants}
    try:
        for _ in range(effort.rounds):
            for entrant, turn in zip(entrants, turns, strict=True):
                rounds[entrant.label].append(turn.take())
    finally:
        for turn in turns:
            turn.clean_up()
    figures = {label: median_of(taken) for label, taken in rounds.items()}
    return Outcome(row, figures, rounds, tuple(servers[0].shards()), turns[0].owner)


def _contenders(row: Row, servers: Sequence[BenchServer]) -> list[Contender]:
    mine = servers[0]
    match row.rival:
        case Baseline.SERVER:
            return [Contender(server.name, server, row.load) for server in servers]
        case Baseline.PLACE:
            return [
                Contender(place.value, mine, row.load, place)
                for place in (ClientShard.OTHER, ClientShard.OWNER)
            ]
        case Baseline.DIALECT:
            return [
                Contender(load.dialect, mine, load)
                for load in (row.load, replace(row.load, dialect="classic"))
            ]
        case Baseline.FILL:
            return [
                Contender(f"{stored} stored", mine, replace(row.load, stored=stored), stored=stored)
                for stored in (row.stored, FEW)
            ]


class _Turn:
    """What one entrant does whenever it is its turn."""

    def __init__(self, program: Path, row: Row, entrant: Contender, effort: RunLength) -> None:
        self._program = program
        self._row = row
        self._entrant = entrant
        self._effort = effort
        self._topic: Topic | None = None
        self.owner: int | None = None

    def take(self) -> Figure:
        """Run once, in a topic that is new unless it had to be filled."""
        entrant, row = self._entrant, self._row
        if self._topic is None:
            self._topic = self._prepare()
        options: dict[str, object] = {"core": core_for_load(row.plan.shards)}
        if entrant.place is not ClientShard.ANY:
            options["at_process"] = self._process(self._topic)
        loads = [entrant.load, row.beside] if row.beside else [entrant.load]
        self._touch(loads)
        seconds = self._effort.seconds
        figure, *_ = drive(self._program, entrant.server, self._topic, loads, seconds, **options)
        if not entrant.load.stored:
            self.clean_up()
        return figure

    def clean_up(self) -> None:
        """Remove the messages."""
        if self._topic is not None:
            self._entrant.server.delete_topic(self._topic)
            self._topic = None

    def _prepare(self) -> Topic:
        load = self._entrant.load
        beside = self._row.beside
        partitions = max(load.partitions, beside.partitions if beside else 0)
        topic = self._entrant.server.create_topic(partitions)
        if load.stored:
            # Many messages are many small ones, unless it is they that are polled.
            is_polled = load.work == "poll"
            size = load.payload_bytes if is_polled else PREPARED_PAYLOAD_BYTES
            filled = replace(load, payload_bytes=size)
            self._touch([filled])
            fill(self._program, self._entrant.server, topic, filled)
        return topic

    def _touch(self, loads: Sequence[Load]) -> None:
        if any(load.work == "send" and load.request_bytes > 100_000 for load in loads):
            touch_memory(int(TOUCHED_BYTES_S * self._effort.seconds))

    def _process(self, topic: Topic) -> int:
        """Find the process of the shard that the client shall be connected to."""
        shards = self._entrant.server.shards()
        packed = pack_namespace(stream_id=topic.stream_id, topic_id=topic.topic_id, partition_id=0)
        owner = shard_for_namespace(packed, shards_count=len(shards))
        self.owner = shards[owner]
        place = self._entrant.place
        return shards[owner] if place is ClientShard.OWNER else shards[(owner + 1) % len(shards)]
