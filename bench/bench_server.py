"""How fast the server is, as ratios to other servers and to the bare machine, in one run.

    python bench/bench_server.py [--quick] [--only TEXT] [--json FILE] [--directory DIRECTORY]

A load in C drives our server and a C program that stores the same messages, in turn and in short
rounds; medians count. Where ``IGGY_RUST_SERVER`` names a binary of Apache Iggy it takes
part as well, and is what ours is held against. The server runs on the first core and the load on
the second.

Read it like this. ``ratio`` is ours to the rival, ``bar`` what the ratio (or, for pings, the value)
should be. ``CPU us`` is the time of the server's processes for one request, which noise on the
machine hardly touches. ``limit`` is the share of what the machine can do without a server.
``stolen`` was taken by the host, ``others`` used by foreign processes; a verdict with a question
mark was reached beside too much of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT), str(ROOT / "protocol")]

from bench import servers, table  # noqa: E402  the path first
from bench.comparison import RunLength, compare  # noqa: E402  the path first
from bench.footprint import measure_footprint  # noqa: E402  the path first
from bench.machine import LOAD_CORE, SERVER_CORE, compile_c  # noqa: E402  the path first
from bench.rows import ROWS, Baseline  # noqa: E402  the path first
from bench.servers import BenchFailed, ServerPlan  # noqa: E402  the path first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.rows import Row
    from bench.servers import BenchServer

HERE = Path(__file__).parent
DEFAULT, QUICK = RunLength(rounds=3, seconds=0.6), RunLength(rounds=1, seconds=0.2)
FAILURES = (BenchFailed, OSError)


class Bench:
    """One run of everything that was asked for.

    Args:
        folder: for data and programs.
        effort: how long everything takes.
        pattern: a text that the names of wanted rows contain.
    """

    def __init__(self, folder: Path, effort: RunLength, pattern: str) -> None:
        self._folder = folder
        self._effort = effort
        self._pattern = pattern.lower()
        programs = folder / "programs"
        programs.mkdir()
        self._load = compile_c(HERE / "load" / "load.c", programs)
        self._store = compile_c(HERE / "store.c", programs)
        self._limits_program = compile_c(HERE / "limits.c", programs)
        self._original = os.environ.get("IGGY_RUST_SERVER", "")
        self.limits: dict[str, float] = {}
        self.records: list[dict[str, Any]] = []
        self.failures_count = 0

    def run(self) -> None:
        """Measure and print everything."""
        self._measure_limits()
        print(table.HEAD)
        wanted = [row for row in ROWS if self._pattern in row.name.lower()]
        for plan, rows in groupby(wanted, key=lambda row: row.plan):
            self._run_rows(plan, list(rows))
        if self._pattern in "idle memory start":
            self._run_rest()

    def _measure_limits(self) -> None:
        """Find out what the machine can do by itself."""
        command = [str(self._limits_program), str(self._folder), str(SERVER_CORE), str(LOAD_CORE)]
        runs = [
            json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for _ in range(self._effort.rounds)
        ]
        self.limits = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        shown = ", ".join(f"{name} {value:.0f}" for name, value in self.limits.items())
        print(f"The bare machine: {shown}\n", flush=True)

    def _servers(self, plan: ServerPlan, rows: Sequence[Row]) -> Iterator[BenchServer]:
        yield servers.ours(plan, self._folder)
        if any(row.rival is Baseline.SERVER for row in rows):
            yield servers.raw_store(self._store, plan, self._folder)
            if self._original:
                yield servers.apache_server(self._original, plan, self._folder)

    def _run_rows(self, plan: ServerPlan, rows: Sequence[Row]) -> None:
        servers = list(self._servers(plan, rows))
        try:
            for server in servers:
                server.start()
            for row in rows:
                self._run_row(row, servers)
        except FAILURES as error:
            self._fail(f"{plan}", error)
        finally:
            for server in servers:
                server.stop()
                server.clear()

    def _run_row(self, row: Row, servers: Sequence[BenchServer]) -> None:
        try:
            outcome = compare(self._load, row, servers, self._effort)
        except FAILURES as error:
            self._fail(row.name, error)
            return
        print(table.line(outcome, self.limits))
        for line in table.shard_lines(outcome):
            print(line)
        sys.stdout.flush()
        self.records.append(table.record(outcome))

    def _run_rest(self) -> None:
        server = servers.ours(ServerPlan(), self._folder)
        try:
            for finding in measure_footprint(self._load, server, self._effort):
                print(table.plain_line(*finding), flush=True)
                self.records.append(finding._asdict())
        except FAILURES as error:
            self._fail("idle memory and start", error)
        finally:
            server.stop()
            server.clear()

    def _fail(self, what: str, error: Exception) -> None:
        self.failures_count += 1
        print(f"{what}: FAILED: {error}", flush=True)


def _describe() -> str:
    control = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    return (
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, "
        f"{len(os.sched_getaffinity(0))} cores, {control}; "
        f"server on core {SERVER_CORE}, load on core {LOAD_CORE}"
    )


def main() -> int:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure the server.")
    parser.add_argument("--quick", action="store_true", help="one short round: under a minute")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows that contain the text")
    parser.add_argument("--json", metavar="FILE", help="write all figures there as well")
    parser.add_argument("--directory", help="where data lies; decides which disk is measured")
    parser.add_argument("--rounds", type=int, help="how often all take turns")
    parser.add_argument("--seconds", type=float, help="how long a turn is")
    chosen = parser.parse_args()
    effort = QUICK if chosen.quick else DEFAULT
    effort = RunLength(chosen.rounds or effort.rounds, chosen.seconds or effort.seconds)
    print(_describe())
    with tempfile.TemporaryDirectory(dir=chosen.directory) as folder:
        bench = Bench(Path(folder), effort, chosen.only)
        bench.run()
    if chosen.json:
        found = {"machine": _describe(), "limits": bench.limits, "rows": bench.records}
        Path(chosen.json).write_text(json.dumps(found, indent=2) + "\n")
    return int(bench.failures_count > 0)


if __name__ == "__main__":
    sys.exit(main())
