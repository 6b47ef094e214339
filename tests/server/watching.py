"""What is measured from outside while a server works: memory, descriptors, and how fast it answers.

A server whose loop stands still answers no ping; so the longest ping of a run is the longest
moment in which a shard did not come back to its loop, plus what the machine took.
"""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from iggy_protocol import Ping
from tests.server.wire_client import ConnectionLost, Refused, WireClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PING_EVERY_S = 0.05
PING_CONNECTIONS = 4
"""Connections are spread over the shards, so some of these reach each of two or three."""
SAMPLE_EVERY_S = 1.0
WARM_UP_S = 60.0
"""Memory that a server takes at first is no trend."""
TREND_S = 120.0
"""The shortest life of which a trend is told."""
UNFORESEEN = ("Traceback (most recent call last)", "unexpected error", "nobody foresaw")
NEVER_ANSWERED = (ConnectionLost, ConnectionError, TimeoutError, OSError, Refused)


def processes_of(group: int) -> Iterator[int]:
    """Find the living processes of a server by the id of its first one."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            state, _, found = path.read_text().rpartition(")")[2].split()[:3]
            if int(found) == group and state not in "ZX":
                yield int(path.parent.name)


def resident_bytes(pid: int) -> int:
    """Read how much memory a process holds; 0 if it is gone."""
    with suppress(OSError):
        for line in (Path("/proc") / str(pid) / "status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def descriptors(pid: int) -> int:
    """Count the open descriptors of a process; 0 if it is gone."""
    with suppress(OSError):
        return sum(1 for _ in (Path("/proc") / str(pid) / "fd").iterdir())
    return 0


def leftovers(pid: int) -> dict[str, int]:
    """Count what a process at rest should have few of: sockets, and files that were deleted."""
    found = {"sockets": 0, "deleted files": 0}
    with suppress(OSError):
        for path in (Path("/proc") / str(pid) / "fd").iterdir():
            with suppress(OSError):
                name = str(path.readlink())
                found["sockets"] += name.startswith("socket:")
                found["deleted files"] += name.startswith("/") and name.endswith(" (deleted)")
    return found


@dataclass
class Series:
    """One measure of one process over its life."""

    times: list[float] = field(default_factory=list)
    values: list[int] = field(default_factory=list)

    def add(self, value: int) -> None:
        """Note a sample."""
        self.times.append(time.monotonic())
        self.values.append(value)

    @property
    def highest(self) -> int:
        """The largest sample."""
        return max(self.values, default=0)

    def per_minute(self) -> float | None:
        """Fit a line to what came after the warm-up; None if the life was too short."""
        if not self.times or self.times[-1] - self.times[0] < WARM_UP_S + TREND_S:
            return None
        begin = self.times[0] + WARM_UP_S
        pairs = [
            (at - begin, value)
            for at, value in zip(self.times, self.values, strict=True)
            if at >= begin
        ]
        middle_at = sum(at for at, _ in pairs) / len(pairs)
        middle = sum(value for _, value in pairs) / len(pairs)
        spread = sum((at - middle_at) ** 2 for at, _ in pairs)
        rise = sum((at - middle_at) * (value - middle) for at, value in pairs)
        return 60 * rise / spread if spread else 0.0


class Watch:
    """Samples every process of a server, life after life."""

    def __init__(self) -> None:
        self.memory: dict[int, Series] = {}
        self.files: dict[int, Series] = {}

    def sample(self, group: int) -> None:
        """Measure all processes of the server that live now."""
        for pid in processes_of(group):
            held, opened = resident_bytes(pid), descriptors(pid)
            if held:
                self.memory.setdefault(pid, Series()).add(held)
            if opened:
                self.files.setdefault(pid, Series()).add(opened)

    @staticmethod
    def highest(measured: dict[int, Series]) -> int:
        """Return the largest sample of all processes."""
        return max((series.highest for series in measured.values()), default=0)

    @staticmethod
    def steepest(measured: dict[int, Series]) -> float | None:
        """Return the steepest trend of all lives that were long enough for one."""
        trends = [trend for each in measured.values() if (trend := each.per_minute()) is not None]
        return max(trends, default=None)


class Pinger:
    """Pings a server from a thread of its own, and takes the time of each answer.

    Args:
        address: asks where the server is now; None while it is away.
        login: whether connections log in first.
    """

    def __init__(
        self, address: Callable[[], tuple[str, int] | None], *, login: bool = True
    ) -> None:
        self.seconds: list[float] = []
        self._address = address
        self._login = login
        self._clients: list[WireClient] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pinger", daemon=True)

    def __enter__(self) -> Pinger:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._drop()

    def quantile(self, share: float) -> float:
        """Return the time that so large a share of the pings did not exceed."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(PING_EVERY_S):
            address = self._address()
            if address is None:
                self._drop()
                continue
            try:
                self._ping(address, number)
            except NEVER_ANSWERED:
                self._drop()
            number += 1

    def _ping(self, address: tuple[str, int], number: int) -> None:
        if len(self._clients) < PING_CONNECTIONS:
            client = WireClient(address, timeout_s=30)
            self._clients.append(client)
            if self._login:
                client.login()
        client = self._clients[number % len(self._clients)]
        began = time.monotonic()
        try:
            client.ask(Ping())
        except TimeoutError:
            self.seconds.append(time.monotonic() - began)
            raise
        self.seconds.append(time.monotonic() - began)

    def _drop(self) -> None:
        for client in self._clients:
            client.close()
        self._clients.clear()


def unforeseen(output: str) -> Iterator[str]:
    """Find the errors in what a server printed that nobody wrote words for, each kind once."""
    told: set[str] = set()
    lines = output.splitlines()
    at = 0
    while at < len(lines):
        line, said = lines[at], lines[max(0, at - 1)]
        at += 1
        if not any(words in line for words in UNFORESEEN):
            continue
        # A trace is indented below the line that was logged, and its last line says what it was.
        trace = list(itertools.takewhile(lambda text: text[:1] in " |+", lines[at:]))
        at += len(trace)
        last = next((text for text in reversed(trace) if text.strip(" |+-0123456789")), line)
        sentence = f"the server said: {said.strip()} ... {last.strip(' |')}"
        kind = sentence.partition("Z ")[2] or sentence
        if kind not in told:
            told.add(kind)
            yield sentence
