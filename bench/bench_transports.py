"""How fast each transport is, as ratios to TCP on the same server, in one run.

    python bench/bench_transports.py [--quick] [--only TEXT] [--over tcp,tls] [--backend trio]
        [--json FILE]

The SDK sends and polls over every transport of the server of this repository; they take turns in
short rounds, and medians count. The server runs on the first core and the client on the second.

``of TCP`` is the rate as a share of that over TCP. ``server`` and ``client`` are how long each was
on its core for a request, polling for the next one included. ``ceiling`` is what the machinery
below reaches without an Iggy server: for HTTP the same client against hypercorn and Starlette that
answer constants, for QUIC two connections of aioquic in one process without sockets. ``bar`` is
what the last ratio of the row should be, or the one before it where there is no ceiling.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trustme

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT), str(ROOT / "protocol")]

from bench.machine import LOAD_CORE, SERVER_CORE  # noqa: E402  the same
from bench.quic_ceiling import measure_ceiling  # noqa: E402  the same
from bench.servers import STREAM, BenchFailed  # noqa: E402  the same
from iggy_sdk.blocking import IggyClient  # noqa: E402  the path above comes first
from tests.certificates import Certificate  # noqa: E402  the same
from tests.transports.servers import SECURED, TRANSPORTS, TransportServer  # noqa: E402  the same

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
RUN_S_MAX = 120.0
PAYLOAD_BYTES = 1000
STORED = 1000
# What a message weighs on the wire beside its payload, and a request or a reply beside those.
MESSAGE_BYTES = PAYLOAD_BYTES + 64
INDEX_BYTES, HEAD_BYTES = 16, 60
HEAD = (
    f"{'work':<24}{'over':<7}{'rate':>12}{'p99':>11}{'server':>9}{'client':>9}{'of TCP':>8}"
    f"{'ceiling':>12}{'of it':>7}{'bar':>7}"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of work.

    Attributes:
        name: what is done.
        work: what the client is told to do.
        messages: in one request.
        bars: what the ratio of a transport should be.
    """

    name: str
    work: str
    messages: int
    bars: dict[str, float]

    @property
    def request_bytes(self) -> int:
        """What a request weighs over QUIC."""
        return HEAD_BYTES + (
            self.messages * (MESSAGE_BYTES + INDEX_BYTES) if self.work == "send" else 0
        )

    @property
    def reply_bytes(self) -> int:
        """What a reply weighs over QUIC."""
        return 8 if self.work == "send" else HEAD_BYTES + self.messages * MESSAGE_BYTES


# The last ratio of a row is held against these: WebSocket and TLS to TCP, others to their ceilings.
SINGLES = {"ws": 0.6, "quic": 0.3, "http": 0.6}
BATCHES = {"ws": 0.35, "quic": 0.3, "http": 0.6, "tls": 0.5}
ROWS = (
    Row("send 1 x 1000 B", "send", 1, SINGLES),
    Row("send 1000 x 1000 B", "send", 1000, BATCHES),
    Row("poll 1 x 1000 B", "poll", 1, SINGLES),
    Row("poll 1000 x 1000 B", "poll", 1000, BATCHES),
)


class Bench:
    """One run of everything that was asked for."""

    def __init__(
        self, folder: Path, transports: list[str], *, rounds: int, seconds: float, backend: str
    ) -> None:
        self._folder = folder
        self._transports = transports
        self._rounds = rounds
        self._seconds = seconds
        self._backend = backend
        self._topics = 0
        self.records: list[dict[str, Any]] = []

    def run(self, pattern: str) -> None:
        """Measure and print all rows whose names contain a text."""
        certificate = Certificate.make(trustme.CA(), self._folder)
        with ExitStack() as stack:
            servers_by_tls: dict[bool, TransportServer] = {}
            for secured in (False, True):
                servers_by_tls[secured] = TransportServer.open(
                    self._folder / str(secured), shards=1, secured=secured, certificate=certificate
                )
                stack.callback(servers_by_tls[secured].server.close)
                with IggyClient(servers_by_tls[secured].url("tls" if secured else "tcp")) as client:
                    client.create_stream(STREAM)
            constant = None
            if "http" in self._transports:
                constant = stack.enter_context(constant_server())
            print(HEAD)
            for row in ROWS:
                if pattern in row.name:
                    self._measure(row, servers_by_tls, constant)

    def _measure(
        self,
        row: Row,
        servers_by_tls: dict[bool, TransportServer],
        constant: tuple[str, int] | None,
    ) -> None:
        figures: dict[str, list[dict[str, float]]] = {}
        for _ in range(self._rounds):
            for name in self._transports:
                taken = self._turn(row, name, servers_by_tls[name in SECURED])
                figures.setdefault(name, []).append(taken)
            if constant is not None:
                taken = self._client(row, constant[0], "none", constant[1])
                figures.setdefault("constant", []).append(taken)
        medians = {
            name: {key: statistics.median(one[key] for one in seen) for key in seen[0]}
            for name, seen in figures.items()
        }
        ceilings = {}
        if "constant" in medians:
            ceilings["http"] = medians.pop("constant")["messages_s"]
        if "quic" in medians:
            library = measure_ceiling(
                request_bytes=row.request_bytes, reply_bytes=row.reply_bytes, seconds=self._seconds
            )
            ceilings["quic"] = library.requests_per_s * row.messages
        self.records.append({"row": row.name, "ceilings": ceilings, "transports": medians})
        for name, figure in medians.items():
            ratio = figure["messages_s"] / medians["tcp"]["messages_s"]
            print(line(row, name, figure, ratio, ceilings.get(name)), flush=True)

    def _turn(self, row: Row, transport: str, server: TransportServer) -> dict[str, float]:
        """Run the client over one transport on its own topic."""
        topic = f"topic-{self._topics}"
        self._topics += 1
        with IggyClient(server.url("tls" if transport in SECURED else "tcp")) as client:
            client.create_topic(STREAM, topic, 1)
            if row.work == "poll":
                stored = [bytes(PAYLOAD_BYTES)] * STORED
                client.send_messages(STREAM, topic, stored, partition_id=0)
            try:
                return self._client(row, server.url(transport), topic, server.server.pid)
            finally:
                client.delete_topic(STREAM, topic)

    def _client(self, row: Row, url: str, topic: str, server: int) -> dict[str, float]:
        command = [sys.executable, str(HERE / "clients" / "sdk_over_url.py"), url, topic, row.work]
        command += [str(row.messages), str(PAYLOAD_BYTES), str(self._seconds), str(LOAD_CORE)]
        done = subprocess.run(
            [*command, self._backend, str(server)],
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
        if not done.stdout:
            raise BenchFailed(f"{row.name} failed at {url}: {done.stderr[-2000:]}")
        figure: dict[str, float] = json.loads(done.stdout)
        return figure


@contextmanager
def constant_server() -> Iterator[tuple[str, int]]:
    """Run the server of constants, and tell where, and its process."""
    command = [sys.executable, str(HERE / "constant_http.py"), str(SERVER_CORE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        try:
            yield f"iggy+http://iggy:iggy@127.0.0.1:{port}", process.pid
        finally:
            process.terminate()


def line(
    row: Row, transport: str, figure: dict[str, float], ratio: float, ceiling: float | None
) -> str:
    """Write a row of the table."""
    share = None if ceiling is None else figure["messages_s"] / ceiling
    bar = row.bars.get(transport)
    last = f"{'':>19}" if share is None else f"{_rate(row, ceiling or 0):>12}{share:>7.2f}"
    end = ""
    if bar is not None:
        end = f"{'>' + format(bar, '.2f'):>7} "
        end += "met" if (ratio if share is None else share) >= bar else "short"
    return (
        f"{row.name:<24}{transport:<7}{_rate(row, figure['messages_s']):>12}"
        f"{figure['p99_us']:>8.0f} us{figure['server_us']:>6.0f} us{figure['client_us']:>6.0f} us"
        f"{ratio:>8.2f}{last}{end}"
    )


def _rate(row: Row, messages_s: float) -> str:
    if row.messages > 1:
        return f"{messages_s * PAYLOAD_BYTES / 1e6:.0f} MB/s"
    return f"{messages_s:.0f} /s"


def main() -> int:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure all transports against TCP.")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows that contain the text")
    parser.add_argument(
        "--over",
        default=",".join(TRANSPORTS),
        metavar="NAMES",
        help="transports, with commas between; TCP is always measured",
    )
    parser.add_argument("--backend", default="asyncio", choices=["asyncio", "trio"])
    parser.add_argument("--json", metavar="FILE", help="write all figures there as well")
    chosen = parser.parse_args()
    transports = [name for name in TRANSPORTS if name in ("tcp", *chosen.over.split(","))]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(
            Path(folder),
            transports,
            rounds=1 if chosen.quick else 3,
            seconds=0.4 if chosen.quick else 1.0,
            backend=chosen.backend,
        )
        bench.run(chosen.only)
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(bench.records, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
