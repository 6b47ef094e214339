"""The table for people, and the same as JSON for programs.

Formats the table; measures nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.rows import Baseline, value_of

if TYPE_CHECKING:
    from bench.comparison import Outcome
    from bench.rows import Row, Target

__all__ = ["HEAD", "Bar", "line", "plain_line", "record", "shard_lines", "verdict"]

NAME_COLUMNS = 48
HEAD = (
    f"{'work':<{NAME_COLUMNS}}{'ours':>14}{'rival':>14}{'ratio':>7}{'bar':>8} {'':<6}"
    f"{'CPU us':>9}{'rival':>9}{'p50 us':>9}{'p99 us':>9}{'limit':>7}{'stolen':>7}{'others':>7}"
)
# Above this much noise a figure says little about the server.
STOLEN_MAX, FOREIGN_MAX = 0.03, 0.10


class Bar:
    """What a figure is held against.

    Args:
        target: what is asked for.
        rival: the name of the entrant that is compared with.
        is_better_low: whether less is better.
    """

    def __init__(self, target: Target, rival: str, *, is_better_low: bool) -> None:
        is_store = rival == "C store"
        self.ratio = target.of_apache / (target.store_of_apache if is_store else 1.0)
        self.bound = target.bound
        self.is_better_low = is_better_low

    def __str__(self) -> str:
        sign = "<" if self.is_better_low else ">"
        return f"{sign}{self.ratio if self.bound is None else self.bound:.2f}"

    def is_met(self, value: float, ratio: float) -> bool:
        """Tell whether that is good enough."""
        if self.bound is not None:
            return value <= self.bound
        return ratio <= self.ratio if self.is_better_low else ratio >= self.ratio


def _bar(row: Row, rival: str) -> Bar | None:
    if row.target is None:
        return None
    return Bar(row.target, rival, is_better_low=row.shows.is_better_low)


def _rival(outcome: Outcome) -> str:
    """Return the baseline: Apache Iggy where it runs."""
    _, *rivals = outcome.figures
    return "Apache" if "Apache" in rivals else rivals[0]


def _ratio(outcome: Outcome, rival: str) -> float:
    mine, *_ = outcome.figures.values()
    return value_of(mine, outcome.row) / value_of(outcome.figures[rival], outcome.row)


def verdict(outcome: Outcome) -> str:
    """Say whether the target is met; a question mark says that the machine was disturbed."""
    rival = _rival(outcome)
    mine, *_ = outcome.figures.values()
    bar = _bar(outcome.row, rival)
    if bar is None:
        return ""
    is_met = bar.is_met(value_of(mine, outcome.row), _ratio(outcome, rival))
    is_noisy = any(
        figure.noise.stolen > STOLEN_MAX or figure.noise.foreign > FOREIGN_MAX
        for figure in outcome.figures.values()
    )
    return ("met" if is_met else "short") + ("?" if is_noisy else "")


def line(outcome: Outcome, limits: dict[str, float]) -> str:
    """Write a row of the table."""
    row, rival = outcome.row, _rival(outcome)
    mine, *_ = outcome.figures.values()
    theirs = outcome.figures[rival]
    bar = _bar(row, rival)
    limit = limits.get(row.limit)
    # What the server does for a writer is not the price of the ping beside it.
    cpu = ("", "") if row.beside else (f"{mine.cpu_us:.1f}", f"{theirs.cpu_us:.1f}")
    return (
        f"{row.name:<{NAME_COLUMNS}}"
        f"{_shown(value_of(mine, row), row):>14}{_shown(value_of(theirs, row), row):>14}"
        f"{_ratio(outcome, rival):>7.2f}{bar or ''!s:>8} {verdict(outcome):<6}"
        f"{cpu[0]:>9}{cpu[1]:>9}{mine.p50_us:>9.0f}{mine.p99_us:>9.0f}"
        f"{f'{value_of(mine, row) / limit:.2f}' if limit else '':>7}"
        f"{mine.noise.stolen:>7.0%}{mine.noise.foreign:>7.0%}"
    )


def shard_lines(outcome: Outcome) -> list[str]:
    """Write what a request costs on each shard, where clients and partitions are apart."""
    if outcome.row.rival is not Baseline.PLACE:
        return []
    lines = []
    for label, figure in outcome.figures.items():
        costs = [
            f"{'owner' if shard == outcome.owner else 'other'} {cost:.1f}"
            for shard in outcome.shards
            if (cost := figure.cpu_by_process_us.get(shard)) is not None
        ]
        each = outcome.row.load.request_bytes
        total = sum(figure.cpu_by_process_us.get(shard, 0.0) for shard in outcome.shards)
        lines.append(
            f"  client on {label:<6} CPU us of a request: {', '.join(costs)};"
            f" {total / each * 1e3:.2f} ns for a byte"
        )
    return lines


def plain_line(name: str, value: float, unit: str, rest: str, bound: float | None = None) -> str:
    """Format a row without a baseline."""
    bar = "" if bound is None else f"<{bound:.2f}"
    word = "" if bound is None else ("met" if value < bound else "short")
    shown = f"{value:.3g} {unit}"
    return f"{name:<{NAME_COLUMNS}}{shown:>14}{'':>14}{'':>7}{bar:>8} {word:<6} {rest}".rstrip()


def record(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain values."""
    row, rival = outcome.row, _rival(outcome)
    bar = _bar(row, rival)
    return {
        "name": row.name,
        "shows": row.shows.value,
        "rival": rival,
        "ratio": _ratio(outcome, rival),
        "bar": bar and str(bar),
        "verdict": verdict(outcome),
        "entrants": {
            label: {
                "value": value_of(figure, row),
                "p50_us": figure.p50_us,
                "p99_us": figure.p99_us,
                "max_us": figure.max_us,
                "cpu_us": figure.cpu_us,
                "stolen": figure.noise.stolen,
                "foreign": figure.noise.foreign,
                "rounds": [value_of(taken, row) for taken in outcome.rounds[label]],
            }
            for label, figure in outcome.figures.items()
        },
    }


def _shown(value: float, row: Row) -> str:
    unit = row.shows.value
    if value >= 1e6:
        return f"{value / 1e6:.2f} M {unit}"
    if value >= 1e4:
        return f"{value / 1e3:.1f} k {unit}"
    return f"{value:.1f} {unit}" if value < 100 else f"{value:.0f} {unit}"
