"""One measurement: load processes begin together, run for a while, and say what they saw.

The load processes and their figures. Which loads are worth comparing is decided
elsewhere.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from bench.machine import Clock, Noise
from bench.servers import STREAM, BenchFailed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.servers import BenchServer, Topic

__all__ = ["Figure", "Load", "drive", "fill", "median_of"]

RUN_S_MAX = 60.0
FILL_REQUESTS_IN_FLIGHT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a load process does.

    Attributes:
        work: ``send``, ``poll`` or ``ping``.
        messages: in one request.
        payload_bytes: of one message.
        connections: how many.
        window: requests in flight on each of them.
        partitions: how many of them the connections share out.
        stored: messages in each partition, for polls.
        pace_us: a pause before each request; 0 is none.
        dialect: the generation of the wire, as the load program calls it.
    """

    work: str
    messages: int = 1
    payload_bytes: int = 1000
    connections: int = 1
    window: int = 1
    partitions: int = 1
    stored: int = 0
    pace_us: int = 0
    dialect: str = "classic"

    @property
    def request_bytes(self) -> int:
        """Payload of a request."""
        return self.messages * self.payload_bytes


class Figure(NamedTuple):
    """What came out of one run.

    Attributes:
        requests_s: requests in a second.
        p50_us: how long half of them took at most.
        p99_us: how long all but a hundredth took at most.
        max_us: how long the slowest took.
        cpu_us: time of the server on its cores, for one request.
        cpu_by_process_us: the same for each of its processes.
        noise: what else happened.
    """

    requests_s: float
    p50_us: float
    p99_us: float
    max_us: float
    cpu_us: float
    cpu_by_process_us: dict[int, float]
    noise: Noise


class _Process:
    """A load process that waits for its start."""

    def __init__(
        self,
        program: Path,
        server: BenchServer,
        topic: Topic,
        load: Load,
        options: dict[str, object],
    ) -> None:
        told = {
            "port": server.port,
            "work": load.work,
            "stream": STREAM,
            "topic": topic.name,
            "messages": load.messages,
            "payload": load.payload_bytes,
            "connections": load.connections,
            "window": load.window,
            "partitions": load.partitions,
            "stored": load.stored,
            "pace_us": load.pace_us,
            "dialect": load.dialect,
            **options,
        }
        self._process = subprocess.Popen(
            [str(program), *(f"{name}={value}" for name, value in told.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def process_id(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise self._failure()

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, object]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        found: dict[str, object] = json.loads(line)
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _failure(self) -> BenchFailed:
        try:
            _, said = self._process.communicate(timeout=RUN_S_MAX)
        except subprocess.TimeoutExpired:
            said = "the load hangs"
        return BenchFailed(said.strip())


def drive(
    program: Path,
    server: BenchServer,
    topic: Topic,
    loads: Sequence[Load],
    seconds: float,
    **options: object,
) -> list[Figure]:
    """Run loads against a server at the same time; return what each saw.

    Args:
        program: the compiled load.
        server: a running server.
        topic: what they use.
        loads: what they do.
        seconds: for how long.
        options: more options of the load program, for all of them.

    Raises:
        BenchFailed: a load was refused or cut off.
    """
    options = {"seconds": seconds, "warm_seconds": min(0.1, seconds / 4), **options}
    running = [_Process(program, server, topic, load, options) for load in loads]
    try:
        for process in running:
            process.wait_ready()
        clock = Clock(server.processes(), [process.process_id for process in running])
        began = time.perf_counter()
        for process in running:
            process.begin()
        results = [process.result() for process in running]
        spent, noise = clock.stop(time.perf_counter() - began)
    finally:
        for process in running:
            process.end()
    return [_figure(result, spent, noise) for result in results]


def fill(program: Path, server: BenchServer, topic: Topic, load: Load) -> None:
    """Put as many messages into each partition as a load of polls expects."""
    window = FILL_REQUESTS_IN_FLIGHT
    batch = max(load.messages, 1000)
    sends = replace(
        load,
        work="send",
        messages=batch,
        window=window,
        connections=load.partitions,
        dialect="classic",
    )
    requests = load.stored // batch * load.partitions
    drive(program, server, topic, [sends], RUN_S_MAX, warm_seconds=0, requests_max=requests)


def _figure(result: dict[str, object], spent: dict[int, float], noise: Noise) -> Figure:
    requests, seconds, max_ns = (result[name] for name in ("requests", "seconds", "max_ns"))
    buckets = result["buckets"]
    assert isinstance(requests, int)
    assert isinstance(seconds, float)
    assert isinstance(max_ns, int)
    assert isinstance(buckets, list)
    if not requests:
        raise BenchFailed("nothing was answered in time")
    by_process = {process: used / requests * 1e6 for process, used in spent.items()}
    return Figure(
        requests_s=requests / seconds,
        p50_us=_quantile(buckets, requests, 0.50),
        p99_us=_quantile(buckets, requests, 0.99),
        max_us=max_ns / 1e3,
        cpu_us=sum(by_process.values()),
        cpu_by_process_us=by_process,
        noise=noise,
    )


def _quantile(buckets: list[list[int]], total: int, share: float) -> float:
    """Return the upper end of the bucket in which a share of all requests is reached, in us."""
    seen = 0
    for top_ns, count in buckets:
        seen += count
        if seen >= share * total:
            return top_ns / 1e3
    raise AssertionError("the buckets hold fewer requests than were counted")


def median_of(figures: Sequence[Figure]) -> Figure:
    """Return the median of each column."""
    processes = figures[0].cpu_by_process_us
    return Figure(
        requests_s=statistics.median(figure.requests_s for figure in figures),
        p50_us=statistics.median(figure.p50_us for figure in figures),
        p99_us=statistics.median(figure.p99_us for figure in figures),
        max_us=max(figure.max_us for figure in figures),
        cpu_us=statistics.median(figure.cpu_us for figure in figures),
        cpu_by_process_us={
            process: statistics.median(
                figure.cpu_by_process_us.get(process, 0.0) for figure in figures
            )
            for process in processes
        },
        noise=Noise(
            statistics.median(figure.noise.stolen for figure in figures),
            statistics.median(figure.noise.foreign for figure in figures),
        ),
    )
