"""What a soak tells at its end: a table for people, JSON for programs, and what was broken."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.server.soak.ledger import Ledger
    from tests.server.watching import Pinger, Watch

MIB = 1 << 20


@dataclass(frozen=True)
class Bounds:
    """What a server may take.

    Attributes:
        resident_bytes: memory of one process.
        resident_bytes_per_minute: growth in a life that is long enough for a trend.
        descriptors: open files and sockets of one process.
        descriptors_per_minute: growth of those.
        ping_s: the longest time for an answer to a ping; generous, machines are shared.
        stop_s: how long an orderly stop may take.
        start_s: how long a start may take.
    """

    resident_bytes: int = 512 * MIB
    resident_bytes_per_minute: int = 12 * MIB
    descriptors: int = 1_500
    descriptors_per_minute: int = 30
    ping_s: float = 5.0
    stop_s: float = 20.0
    start_s: float = 20.0


@dataclass
class Report:
    """All that was counted and measured."""

    seconds: float
    seed: int
    rate: float
    shards: int
    counts: dict[str, int]
    restarts: dict[str, int]
    errors: dict[str, int]
    resident_max_bytes: int
    resident_bytes_per_minute: float | None
    descriptors_max: int
    descriptors_per_minute: float | None
    ping_ms: dict[str, float]
    pings: int
    stop_max_s: float
    start_max_s: float
    violations: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether every promise was kept."""
        return not self.violations

    def write(self, path: Path) -> None:
        """Write all of it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    def table(self) -> str:
        """Write it for people."""
        rows = [("seconds", f"{self.seconds:.0f}"), ("seed", str(self.seed))]
        rows += [("rate asked for", f"{self.rate:.0f} messages/s"), ("shards", str(self.shards))]
        rows += [(name, f"{count:,}") for name, count in sorted(self.counts.items())]
        rows += [(f"restarts, {kind}", str(count)) for kind, count in self.restarts.items()]
        rows += [
            ("memory of a process, most", f"{self.resident_max_bytes / MIB:.0f} MiB"),
            ("memory, steepest trend", _trend(self.resident_bytes_per_minute, MIB, "MiB/min")),
            ("descriptors of a process, most", str(self.descriptors_max)),
            ("descriptors, steepest trend", _trend(self.descriptors_per_minute, 1, "/min")),
            ("pings", f"{self.pings:,}"),
            *((f"ping {name}", f"{value:.1f} ms") for name, value in self.ping_ms.items()),
            ("longest start", f"{self.start_max_s:.2f} s"),
            ("longest orderly stop", f"{self.stop_max_s:.2f} s"),
        ]
        rows += [(f"error: {kind}", str(count)) for kind, count in sorted(self.errors.items())]
        width = max(len(name) for name, _ in rows)
        lines = [f"  {name:<{width}}  {value}" for name, value in rows]
        lines += [f"VIOLATION {sentence}" for sentence in self.violations]
        verdict = "every promise was kept" if self.is_clean else "PROMISES WERE BROKEN"
        return "\n".join([*lines, verdict])


def _trend(per_minute: float | None, unit: float, name: str) -> str:
    return "no life was long enough" if per_minute is None else f"{per_minute / unit:+.2f} {name}"


def measure(watch: Watch, pinger: Pinger) -> dict[str, object]:
    """Gather what was measured from outside, by the names of the report."""
    quantiles = {"p50": pinger.quantile(0.5), "p99": pinger.quantile(0.99)}
    quantiles["max"] = pinger.quantile(1.0)
    return {
        "resident_max_bytes": watch.highest(watch.memory),
        "resident_bytes_per_minute": watch.steepest(watch.memory),
        "descriptors_max": watch.highest(watch.files),
        "descriptors_per_minute": watch.steepest(watch.files),
        "ping_ms": {name: round(1000 * value, 3) for name, value in quantiles.items()},
        "pings": len(pinger.seconds),
    }


def hold_to_bounds(report: Report, bounds: Bounds, ledger: Ledger) -> None:
    """Add whatever was exceeded to the violations."""
    measured: list[tuple[str, float | None, float]] = [
        ("bytes of memory in a process", report.resident_max_bytes, bounds.resident_bytes),
        (
            "bytes of memory more each minute",
            report.resident_bytes_per_minute,
            bounds.resident_bytes_per_minute,
        ),
        ("descriptors in a process", report.descriptors_max, bounds.descriptors),
        (
            "descriptors more each minute",
            report.descriptors_per_minute,
            bounds.descriptors_per_minute,
        ),
        ("s for a ping", report.ping_ms["max"] / 1000, bounds.ping_s),
        ("s for an orderly stop", report.stop_max_s, bounds.stop_s),
        ("s for a start", report.start_max_s, bounds.start_s),
    ]
    for name, value, most in measured:
        if value is not None and value > most:
            ledger.accuse(f"{value:.0f} {name}, {most:.0f} are allowed")
    report.violations = list(ledger.violations)
