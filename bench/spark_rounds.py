"""Measures a row: the contenders take turns, and medians and ranges are shown, CPU time beside.

Knows neither Spark nor any server: a contender is something to call, and a process beside it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.machine import TICKS_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MINE", "Bar", "Contender", "Row", "Turn", "lines", "measure", "record"]

MINE = "ours"


class Turn(NamedTuple):
    """What one contender took in one round.

    Attributes:
        seconds: by the clock.
        spark_cpu_s: of the driver and all its Pythons.
        server_cpu_s: of the server or broker; None where there is none.
    """

    seconds: float
    spark_cpu_s: float
    server_cpu_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One that takes turns with others.

    Attributes:
        label: as it stands in the table; ``ours`` is what the others are compared with.
        run: what is measured.
        prepare: what comes before it and is not measured.
        clean_up: what comes after it; it also raises if the work was not done.
        server: the process that is measured beside Spark's.
    """

    label: str
    run: Callable[[], None]
    prepare: Callable[[], None] = lambda: None
    clean_up: Callable[[], None] = lambda: None
    server: int | None = None


class Bar(NamedTuple):
    """What ours shall reach beside another: so many times its rate, or so many seconds more."""

    rival: str
    rate_ratio: float | None = None
    seconds_more: float | None = None

    def __str__(self) -> str:
        if self.rate_ratio is not None:
            return f">={self.rate_ratio:.2f}"
        return f"<=+{self.seconds_more:.1f} s"

    def is_met(self, mine_s: float, theirs_s: float, ratio: float) -> bool:
        """Tell whether these medians are good enough."""
        if self.rate_ratio is not None:
            return ratio >= self.rate_ratio
        return mine_s - theirs_s <= (self.seconds_more or 0.0)


@dataclass(slots=True, kw_only=True)
class Row:
    """A row of the table.

    Attributes:
        name: what is done.
        contenders: who does it; ours is the first.
        rows_count: how many rows one turn has; 0 where its time alone is shown.
        size_bytes: of a row's payload.
        bars: what ours shall reach.
        turns: what was measured, by contender.
    """

    name: str
    contenders: Sequence[Contender]
    rows_count: int = 0
    size_bytes: int = 0
    bars: Sequence[Bar] = ()
    turns: dict[str, list[Turn]] = field(default_factory=dict)


def measure(row: Row, *, rounds: int, warm_ups: int) -> None:
    """Let the contenders take turns; each round begins with another of them.

    Args:
        row: gets the turns.
        rounds: how many of each count.
        warm_ups: how many come before and do not count.
    """
    row.turns = {one.label: [] for one in row.contenders}
    servers = [one.server for one in row.contenders if one.server is not None]
    for number in range(warm_ups + rounds):
        first = number % len(row.contenders)
        for one in [*row.contenders[first:], *row.contenders[:first]]:
            turn = _take_turn(one, servers)
            if number >= warm_ups:
                row.turns[one.label].append(turn)


def _take_turn(one: Contender, servers: Iterable[int]) -> Turn:
    one.prepare()
    roots = [os.getpid(), *servers]
    before = _cpu_of_trees(roots)
    start = time.perf_counter()
    one.run()
    seconds = time.perf_counter() - start
    after = _cpu_of_trees(roots)
    one.clean_up()
    spent = {root: after[root] - before[root] for root in roots}
    server_cpu_s = None if one.server is None else spent[one.server]
    return Turn(seconds, spent[os.getpid()], server_cpu_s)


def _cpu_of_trees(roots: Sequence[int]) -> dict[int, float]:
    """Add up what processes and all that came from them have used, those that ended included.

    A root below another is counted for itself alone.
    """
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:  # it has ended meanwhile
            continue
        values = text.rpartition(")")[2].split()
        process = int(entry.name)
        parents[process] = int(values[1])
        # Its own user and system time, and that of children it has waited for.
        used[process] = sum(int(value) for value in values[11:15])
    totals = dict.fromkeys(roots, 0.0)
    for process, ticks in used.items():
        at = process
        while at not in totals and at in parents:
            at = parents[at]
        if at in totals:
            totals[at] += ticks / TICKS_PER_SECOND
    return totals


# The table


def lines(row: Row) -> list[str]:
    """Write a row for people: a line for each contender, with the ratio of ours to it."""
    return [row.name, *(_line(row, label) for label in row.turns)]


def _line(row: Row, label: str) -> str:
    seconds = [turn.seconds for turn in row.turns[label]]
    text = f"  {label:<13}{_speed(row, seconds):<44}{_cpu(row, label):<36}"
    if label == MINE or MINE not in row.turns:
        return text.rstrip()
    ratios = _ratios(row, label)
    ratio = statistics.median(ratios)
    text += f"{ratio:>6.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
    for bar in row.bars:
        if bar.rival == label:
            mine_s = statistics.median(turn.seconds for turn in row.turns[MINE])
            is_met = bar.is_met(mine_s, statistics.median(seconds), ratio)
            text += f"  {bar!s:<9}{'met' if is_met else 'short'}"
    return text


def _speed(row: Row, seconds: list[float]) -> str:
    middle, low, high = statistics.median(seconds), min(seconds), max(seconds)
    if not row.rows_count:
        return f"{middle:>8.2f} s      ({low:.2f}-{high:.2f})"
    thousands = row.rows_count / 1000
    rate = f"{thousands / middle:>8.0f} k rows/s ({thousands / high:.0f}-{thousands / low:.0f})"
    return f"{rate:<32}{row.rows_count * row.size_bytes / middle / 1e6:>6.0f} MB/s"


def _cpu(row: Row, label: str) -> str:
    """Write the CPU seconds of a million rows, or of one turn, of Spark and of the server."""
    scale = 1e6 / row.rows_count if row.rows_count else 1.0
    turns = row.turns[label]
    text = f"Spark {scale * statistics.median(turn.spark_cpu_s for turn in turns):>6.2f} s"
    served = [turn.server_cpu_s for turn in turns if turn.server_cpu_s is not None]
    return text + (f"  server {scale * statistics.median(served):>5.2f} s" if served else "")


def _ratios(row: Row, label: str) -> list[float]:
    """Return how many times as fast ours was, round by round."""
    pairs = zip(row.turns[MINE], row.turns[label], strict=True)
    return [theirs.seconds / mine.seconds for mine, theirs in pairs]


def record(row: Row) -> dict[str, Any]:
    """Return a row as plain values."""
    return {
        "name": row.name,
        "rows_count": row.rows_count,
        "size_bytes": row.size_bytes,
        "turns": {label: [turn._asdict() for turn in turns] for label, turns in row.turns.items()},
        "ratios": {
            label: _ratios(row, label) for label in row.turns if MINE in row.turns and label != MINE
        },
        "bars": {bar.rival: str(bar) for bar in row.bars},
    }
