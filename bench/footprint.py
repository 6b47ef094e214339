"""The cost of an idle server: memory, and the time until it answers.

These figures have no baseline.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

from bench.load_runs import Load, fill
from bench.machine import memory_of
from bench.rows import FEW, MANY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.comparison import RunLength
    from bench.servers import BenchServer

__all__ = ["FootprintFigure", "measure_footprint"]

MEMORY_MB_MAX = 60.0
START_S_MAX = 0.5
STORED_PAYLOAD_BYTES = 100


class FootprintFigure(NamedTuple):
    """A figure and what there is to say about it."""

    name: str
    value: float
    unit: str
    rest: str
    bound: float | None = None


def measure_footprint(
    program: Path, server: BenchServer, effort: RunLength
) -> Iterator[FootprintFigure]:
    """Measure an idle server, from empty to well filled.

    Raises:
        BenchFailed: it did not start or fill up.
    """
    server.start()  # compiles modules, as an installation does
    server.stop()
    yield _start(server, effort, "an empty server")
    yield _memory(server)
    topic = server.create_topic(1)
    filled = 0
    for stored in (FEW, MANY):
        load = Load(work="send", payload_bytes=STORED_PAYLOAD_BYTES, stored=stored - filled)
        fill(program, server, topic, load)
        filled = stored
        server.stop()
        yield _start(server, effort, f"{stored} messages stored")


def _start(server: BenchServer, effort: RunLength, what: str) -> FootprintFigure:
    seconds = []
    for number in range(effort.rounds):
        if number:
            server.stop()
        seconds.append(server.time_to_first_answer())
    name = f"start to first answer, {what}"
    each = ", ".join(f"{taken:.3f}" for taken in seconds)
    return FootprintFigure(name, statistics.median(seconds), "s", each, START_S_MAX)


def _memory(server: BenchServer) -> FootprintFigure:
    shard, supervisor = memory_of(server.shards()[0]), memory_of(server.processes()[0])
    rest = (
        f"resident; proportional {shard.proportional:.1f}, private {shard.private:.1f};"
        f" supervisor {supervisor.resident:.1f} / {supervisor.proportional:.1f}"
        f" / {supervisor.private:.1f}"
    )
    return FootprintFigure("memory of an idle shard", shard.resident, "MB", rest, MEMORY_MB_MAX)
