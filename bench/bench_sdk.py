"""How fast the SDK is, as ratios to the official wheel on the same server, in one run.

    python bench/bench_sdk.py [--wheel VERSION] [--quick] [--only TEXT] [--json FILE]

Our SDK, on asyncio and on trio, the official client ``apache-iggy`` and, for batches, a load
program in C take turns in short rounds against the server of this repository; medians count. All
speak the protocol of the wheel, 0.8.0 unless another one is named.
The server runs on the first core and the clients on the second.

``ratio`` is ours on asyncio to the wheel, ``bar`` what it should be; for latencies less is better.
``trio`` is the same ratio on trio, ``raw`` ours to the load program. Request and reply, for which
the wheel has nothing, are shown alone; both ends are in one process. In the rows of prefetch ours
with it stands beside ours without it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT), str(ROOT / "protocol")]

from bench import servers  # noqa: E402  the path above comes first
from bench.load_runs import Load, drive, fill  # noqa: E402  the same
from bench.machine import LOAD_CORE, compile_c  # noqa: E402  the same
from bench.servers import BenchFailed, ServerPlan, Topic  # noqa: E402  the same

HERE = Path(__file__).parent
WHEELS = ROOT / ".venv-wheels"


class Generation(NamedTuple):
    """What our SDK and the load program call the protocol of a wheel."""

    protocol: str
    dialect: str


GENERATIONS = {
    "0.8.0": Generation("0.8", "classic"),
    "0.9.0": Generation("0.9", "0.11"),
    "0.9.1.dev5": Generation("0.10", "0.12.0"),
}
RUN_S_MAX = 120.0
HEAD = f"{'work':<46}{'ours':>13}{'wheel':>13}{'ratio':>7}{'bar':>7} {'':<6}{'trio':>6}{'raw':>6}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        name: what is done.
        work: what our client is told to do.
        messages: in one request.
        payload_bytes: of one message.
        shows: the figure that counts.
        bar: what the ratio to the wheel should be.
        raw_bar: what the ratio to the load program should be, if that is asked for.
        wheel_work: what the wheel is told to do, if that has another name.
        has_wheel: whether the wheel can do it at all.
        own_work: what our client is told to do in the place of the wheel; the ratio is to that.
        delay_ms: how much longer each round trip takes.
    """

    name: str
    work: str
    messages: int
    payload_bytes: int
    bar: float = 0.0
    shows: str = "messages_s"
    raw_bar: float | None = None
    wheel_work: str = ""
    has_wheel: bool = True
    own_work: str = ""
    delay_ms: float = 0.0

    @property
    def stored(self) -> int:
        """How many messages the topic has before."""
        return {"poll": 10_000, "consume": 10_000, "arrow": 50_000}.get(self.work, 0)

    @property
    def contenders(self) -> list[str]:
        """Who takes turns."""
        wheel = ["wheel"] if self.has_wheel else []
        return [*wheel, "asyncio", "trio", *([] if self.raw_bar is None else ["raw"])]

    @property
    def is_better_low(self) -> bool:
        """Whether less is better."""
        return self.shows.endswith("_us")


ROWS = (
    Row(name="send 1000 x 1000 B", work="send", messages=1000, payload_bytes=1000, bar=2.5,
        raw_bar=0.7),
    Row(name="send 1000 x 100 B", work="send", messages=1000, payload_bytes=100, bar=3.0),
    Row(name="poll 1000 x 1000 B, every payload read", work="poll", messages=1000,
        payload_bytes=1000, bar=1.3),
    Row(name="send 1 x 1000 B, awaited, p50", work="send", messages=1, payload_bytes=1000, bar=0.8,
        shows="p50_us"),
    Row(name="send 1 x 1000 B, awaited, p99", work="send", messages=1, payload_bytes=1000, bar=1.0,
        shows="p99_us"),
    Row(name="64 tasks send 1 x 1000 B, direct", work="crowd", messages=1, payload_bytes=1000,
        bar=3.0),
    Row(name="64 tasks send 1 x 1000 B, in the background", work="background", messages=1,
        payload_bytes=1000, bar=15.0, wheel_work="crowd"),
    Row(name="50,000 x 1000 B into Arrow, to a list", work="arrow", wheel_work="gather",
        messages=1000, payload_bytes=1000, bar=1.5),
    *(
        Row(name=f"{count} calls in flight, request and reply, {shown}", work="calls",
            messages=count, payload_bytes=100, shows=shows, has_wheel=False)
        for count in (1, 100)
        for shown, shows in (("each s", "messages_s"), ("p50", "p50_us"), ("p99", "p99_us"))
    ),
    Row(name="50 us each, batches of 1000", work="consume", messages=1000, payload_bytes=1000,
        bar=1.0),
    *(
        Row(name=f"50 us each, batches of {messages}{place}, to no prefetch", work="consume",
            own_work="consume_plainly", messages=messages, payload_bytes=1000, bar=bar,
            delay_ms=delay)
        for messages, delay, place, bar in (
            (1000, 0.0, "", 0.9), (100, 0.0, "", 0.9), (10, 0.0, "", 1.0),
            (1000, 20.0, ", 20 ms", 1.3), (100, 5.0, ", 5 ms", 1.5), (10, 5.0, ", 5 ms", 1.5),
        )
    ),
)  # fmt: skip


def wheel_python(wheel: str) -> Path:
    """Return the interpreter that has a wheel."""
    return WHEELS / f"apache-iggy-{wheel}" / "bin" / "python"


@contextmanager
def delay_relay(port: int, delay_ms: float) -> Iterator[int]:
    """Yield a port from which each round trip takes longer; without a delay, the server's."""
    if not delay_ms:
        yield port
        return
    command = [sys.executable, str(HERE / "clients" / "delay_relay.py"), str(port), str(delay_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as relay:
        assert relay.stdout is not None
        try:
            yield int(relay.stdout.readline())
        finally:
            relay.kill()


class Bench:
    """One run of everything that was asked for."""

    def __init__(self, folder: Path, wheel: str, rounds: int, seconds: float) -> None:
        self._generation = GENERATIONS[wheel]
        self._wheel = wheel_python(wheel)
        self._rounds = rounds
        self._seconds = seconds
        self._load = compile_c(HERE / "load" / "load.c", folder)
        self._server = servers.ours(ServerPlan(), folder)
        self.records: list[dict[str, Any]] = []

    def run(self, pattern: str) -> None:
        """Measure and print all rows whose names contain a text."""
        self._server.start()
        try:
            print(HEAD)
            for row in ROWS:
                if pattern in row.name:
                    print(self._measure(row), flush=True)
        finally:
            self._server.stop()

    def _measure(self, row: Row) -> str:
        figures: dict[str, list[float]] = {"asyncio": [], "trio": [], "wheel": [], "raw": []}
        for _ in range(self._rounds):
            for name in row.contenders:
                figures[name].append(self._turn(row, name))
        medians = {name: statistics.median(seen) for name, seen in figures.items() if seen}
        self.records.append({"row": row.name, "shows": row.shows, **medians})
        return _line(row, medians)

    def _turn(self, row: Row, name: str) -> float:
        """Let one client work on a topic of its own."""
        topic = self._server.create_topic(1)
        try:
            if row.stored:
                stored = Load(work="poll", messages=1000, payload_bytes=1000, stored=row.stored)
                fill(self._load, self._server, topic, stored)
            if name == "raw":
                load = Load(
                    work="send",
                    messages=row.messages,
                    payload_bytes=row.payload_bytes,
                    dialect=self._generation.dialect,
                )
                (figure,) = drive(
                    self._load, self._server, topic, [load], self._seconds, core=LOAD_CORE
                )
                return figure.requests_s * row.messages
            with delay_relay(self._server.port, row.delay_ms) as port:
                return self._client(row, name, port, topic)
        finally:
            self._server.delete_topic(topic)

    def _client(self, row: Row, name: str, port: int, topic: Topic) -> float:
        if name == "wheel" and row.own_work:
            command = [sys.executable, str(HERE / "clients" / "sdk.py")]
            name, work = "asyncio", row.own_work
        elif name == "wheel":
            command = [str(self._wheel), str(HERE / "clients" / "official_wheel.py")]
            work = row.wheel_work or row.work
        else:
            command = [sys.executable, str(HERE / "clients" / "sdk.py")]
            work = row.work
        command += [f"127.0.0.1:{port}", topic.name, work]
        command += [str(row.messages), str(row.payload_bytes), str(self._seconds), str(LOAD_CORE)]
        command += [] if name == "wheel" else [name, self._generation.protocol]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
        )
        if not done.stdout:
            raise BenchFailed(f"{name} failed at {row.name}: {done.stderr[-2000:]}")
        value: float = json.loads(done.stdout)[row.shows]
        return value


def _line(row: Row, medians: dict[str, float]) -> str:
    if not row.has_wheel:
        trio = f"on trio {_shown(row, medians['trio'])}"
        return f"{row.name:<46}{_shown(row, medians['asyncio']):>13}{'none':>13}   {trio}"
    ratio = medians["asyncio"] / medians["wheel"]
    is_met = ratio <= row.bar if row.is_better_low else ratio >= row.bar
    raw = f"{medians['asyncio'] / medians['raw']:.2f}" if "raw" in medians else ""
    if row.raw_bar is not None:
        is_met = is_met and medians["asyncio"] / medians["raw"] >= row.raw_bar
    sign = "<" if row.is_better_low else ">"
    return (
        f"{row.name:<46}{_shown(row, medians['asyncio']):>13}{_shown(row, medians['wheel']):>13}"
        f"{ratio:>7.2f}{sign + format(row.bar, '.1f'):>7} {'met' if is_met else 'short':<6}"
        f"{medians['trio'] / medians['wheel']:>6.2f}{raw:>6}"
    )


def _shown(row: Row, value: float) -> str:
    if row.is_better_low:
        return f"{value:.0f} us"
    if row.messages > 1 and row.payload_bytes >= 1000:
        return f"{value * row.payload_bytes / 1e6:.0f} MB/s"
    return f"{value / 1e3:.1f} k/s"


def main() -> int:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure the SDK against the official wheel.")
    parser.add_argument("--wheel", choices=GENERATIONS, default="0.8.0", help="the official client")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows that contain the text")
    parser.add_argument("--json", metavar="FILE", help="write all figures there as well")
    chosen = parser.parse_args()
    if not wheel_python(chosen.wheel).exists():
        print("The official wheel is not installed: run `make wheels` first.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        rounds, seconds = (1, 0.4) if chosen.quick else (3, 1.0)
        bench = Bench(Path(folder), chosen.wheel, rounds, seconds)
        bench.run(chosen.only)
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(bench.records, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
