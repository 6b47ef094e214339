"""Load, churn and restarts for as long as you like, with every promise checked.

    make soak MINUTES=60
    python -m tests.server.soak.run --minutes 3 --rate 500 --ack fsync

Producers, readers and a group work over all transports while topics, users and connections come
and go, and the server is stopped and killed again and again, with another acknowledgement level in
each life. The exit code is 1 if anything acknowledged is lost, anything read is not what was sent,
an offset is given twice, or memory, descriptors or the time for a ping exceed their bounds.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import trustme

from tests.certificates import Certificate
from tests.server.free_ports import free_ports
from tests.server.running import ServerFailed
from tests.server.soak import churn, load
from tests.server.soak.ledger import Ledger
from tests.server.soak.report import Bounds, Report, hold_to_bounds, measure
from tests.server.watching import (
    SAMPLE_EVERY_S,
    Pinger,
    Watch,
    leftovers,
    processes_of,
    unforeseen,
)
from tests.transports.servers import TransportServer

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVELS = ("written", "fsync", "memory")
PARTITIONS = 5
MEMBERS = 3
TOPIC_CHURNERS = 2
# The lengths of lives in a long run: short ones for restarts, a long one for trends.
LIVES_S = (30.0, 60.0, 20.0, 90.0, 300.0)
SHORT_RUN_LIVES = 4
PROGRESS_EVERY_S = 10.0
DRAIN_S = 60.0
LEFTOVERS_MAX = 4
"""How many more sockets than at its first rest a process may have at its last one."""
SETTINGS = {
    "IGGY_SYSTEM_SEGMENT_SIZE": "2 MiB",
    "IGGY_SYSTEM_LOGGING_LEVEL": "info",
}


@dataclass
class Plan:
    """What is asked of a run."""

    minutes: float = 1.0
    rate: float = 1_000.0
    shards: int = 2
    levels: tuple[str, ...] = LEVELS
    seed: int = 1
    bounds: Bounds = field(default_factory=Bounds)
    say: Callable[[str], object] = print

    def lives(self) -> Iterator[float]:
        """Yield how long each life is; a short run is cut into equal ones."""
        total = 60 * self.minutes
        if total < sum(LIVES_S):
            return iter([total / SHORT_RUN_LIVES] * SHORT_RUN_LIVES)
        lengths, left = [], total
        for length in cycle(LIVES_S):
            lengths.append(min(length, left))
            left -= length
            if left <= 0:
                return iter(lengths)
        raise AssertionError("a cycle does not end")


class Soak:
    """One run.

    Args:
        plan: what is asked.
        folder: where data and certificates go.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._chance = random.Random(plan.seed)
        self._ledger = Ledger(PARTITIONS)
        self._watch = Watch()
        self._restarts = {"orderly": 0, "killed": 0}
        self._start_max_s = self._stop_max_s = 0.0
        self._levels = cycle(plan.levels)
        # In turn, so that in six lives every level ends in both ways.
        self._kills = cycle(self._chance.sample([True, False], 2))
        self._leftovers_at_first: dict[str, int] = {}
        certificate = Certificate.make(trustme.CA(), folder)
        ports = zip(("TCP", "HTTP", "QUIC", "WEBSOCKET"), free_ports(4), strict=True)
        addresses = {f"IGGY_{name}_ADDRESS": f"127.0.0.1:{port}" for name, port in ports}
        self._transport_server = TransportServer.open(
            folder,
            shards=plan.shards,
            secured=False,
            certificate=certificate,
            settings={**SETTINGS, **addresses},
        )
        self._server = self._transport_server.server
        self._scene: load.Scene | None = None

    def close(self) -> None:
        """End the server."""
        self._server.close()

    async def run(self) -> Report:
        """Play all lives, settle the account, and write the report."""
        began = time.monotonic()
        scene = self._scene = load.Scene(self._transport_server, self._ledger, self._chance)
        await self._prepare()
        with Pinger(self._address) as pinger:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._sample)
                tasks.start_soon(self._tell, began)
                self._start_load(tasks, scene)
                for number, seconds in enumerate(self._plan.lives()):
                    if number:
                        await self._restart()
                    await anyio.sleep(seconds)
                await self._drain(scene)
                scene.is_over = True
                # Whoever waits for messages has no reason to look up again.
                await anyio.sleep(2.0)
                tasks.cancel_scope.cancel()
        await self._finish()
        return self._report(time.monotonic() - began, pinger)

    # ---- the lives of the server

    async def _prepare(self) -> None:
        """Make what all lives share; the first restart chooses the first level."""
        assert self._scene is not None
        async with self._scene.client() as client:
            await client.create_stream(load.STREAM)
            await client.create_topic(load.STREAM, load.TOPIC, PARTITIONS)
            await client.create_consumer_group(load.STREAM, load.TOPIC, load.GROUP)
        await self._in_thread(self._server.stop)
        await self._start_server()
        self._leftovers_at_first = self._leftovers()

    async def _restart(self) -> None:
        assert self._scene is not None
        is_killed = next(self._kills)
        self._scene.disturbances += 1
        self._scene.serving = anyio.Event()
        self._restarts["killed" if is_killed else "orderly"] += 1
        began = time.monotonic()
        if is_killed:
            await self._in_thread(self._server.kill)
        else:
            await self._in_thread(self._server.stop)
            self._stop_max_s = max(self._stop_max_s, time.monotonic() - began)
        self._ledger.end_life(is_killed=is_killed)
        await self._start_server()

    async def _start_server(self) -> None:
        assert self._scene is not None
        level = next(self._levels)
        self._server.settings["IGGY_SYSTEM_PARTITION_ACK"] = level
        began = time.monotonic()
        await anyio.to_thread.run_sync(self._server.start)
        self._start_max_s = max(self._start_max_s, time.monotonic() - began)
        if self._ledger.lives:
            await load.audit(self._scene)
        self._ledger.begin_life(level)
        self._scene.disturbances += 1
        self._scene.serving.set()

    async def _in_thread(self, action: Callable[[], None]) -> None:
        try:
            await anyio.to_thread.run_sync(action)
        except ServerFailed as failure:
            self._ledger.accuse(f"the server failed: {failure}")
            if not self._server.is_running:
                await anyio.to_thread.run_sync(self._server.close)

    def _address(self) -> tuple[str, int] | None:
        scene = self._scene
        if scene is None or not scene.serving.is_set() or not self._server.is_running:
            return None
        host, _, port = self._server.settings["IGGY_TCP_ADDRESS"].rpartition(":")
        return host, int(port)

    # ---- tasks

    def _start_load(self, tasks: Any, scene: load.Scene) -> None:
        pace = load.Pace(self._plan.rate)
        for track in self._ledger.tracks:
            tasks.start_soon(load.produce, scene, track, pace)
            tasks.start_soon(load.read, scene, track)
        for number in range(MEMBERS):
            tasks.start_soon(load.be_member, scene, number)
        for number in range(TOPIC_CHURNERS):
            tasks.start_soon(churn.TopicChurn(scene, number).run)
        tasks.start_soon(churn.UserChurn(scene).run)
        tasks.start_soon(churn.churn_connections, scene)

    async def _sample(self) -> None:
        while True:
            await anyio.sleep(SAMPLE_EVERY_S)
            if self._server.is_running:
                self._watch.sample(self._server.pid)

    async def _tell(self, began: float) -> None:
        while True:
            await anyio.sleep(PROGRESS_EVERY_S)
            counts = self._ledger.counts
            held = self._watch.highest(self._watch.memory) >> 20
            self._plan.say(
                f"{time.monotonic() - began:6.0f} s  life {len(self._ledger.lives)} "
                f"({self._ledger.lives[-1].level})  acknowledged {counts['acknowledged']:,}  "
                f"consumed {counts['consumed']:,}  lost {counts['lost']}  "
                f"churned {counts['topics churned']} topics, "
                f"{counts['connections churned']} connections  memory {held} MiB  "
                f"violations {counts['violations']}"
            )

    # ---- the end

    async def _drain(self, scene: load.Scene) -> None:
        """Let readers and the group come to the end of what was sent."""
        scene.is_loading = False
        deadline = time.monotonic() + DRAIN_S
        # A batch that is under way is settled, or given up, before anything is compared.
        await anyio.sleep(0.5)
        while not (self._ledger.is_read_up() and self._ledger.is_grouped_up()):
            if time.monotonic() > deadline:
                break
            await anyio.sleep(0.2)
        self._ledger.settle()

    async def _finish(self) -> None:
        """Look at the server at rest, stop it, and read what it has to say."""
        assert self._scene is not None
        await self._check_rest()
        began = time.monotonic()
        self._scene.serving = anyio.Event()
        await self._in_thread(self._server.stop)
        self._stop_max_s = max(self._stop_max_s, time.monotonic() - began)
        for sentence in unforeseen(self._server.output()):
            self._ledger.accuse(sentence)

    async def _check_rest(self) -> None:
        """See that nothing is held any more when everybody has gone."""
        left: dict[str, int] = {}
        for _ in range(50):
            left = self._leftovers()
            if not self._excess(left):
                return
            await anyio.sleep(0.2)
        for name in self._excess(left):
            self._ledger.accuse(
                f"{left[name]} {name} are open in a process although everybody has gone, "
                f"{self._leftovers_at_first[name]} were at the beginning"
            )

    def _excess(self, left: dict[str, int]) -> list[str]:
        first = self._leftovers_at_first
        return [name for name in left if left[name] > first[name] + LEFTOVERS_MAX]

    def _leftovers(self) -> dict[str, int]:
        """Count what is left in the process that has most of it."""
        most = {"sockets": 0, "deleted files": 0}
        for pid in processes_of(self._server.pid) if self._server.is_running else ():
            for name, count in leftovers(pid).items():
                most[name] = max(most[name], count)
        return most

    def _report(self, seconds: float, pinger: Pinger) -> Report:
        counts = {"lost": 0, "duplicates": 0, **self._ledger.counts}
        report = Report(
            seconds=round(seconds, 1),
            seed=self._plan.seed,
            rate=self._plan.rate,
            shards=self._plan.shards,
            counts=counts,
            restarts=self._restarts,
            errors=dict(self._ledger.errors),
            stop_max_s=round(self._stop_max_s, 3),
            start_max_s=round(self._start_max_s, 3),
            **measure(self._watch, pinger),  # type: ignore[arg-type]
        )
        hold_to_bounds(report, self._plan.bounds, self._ledger)
        return report


def soak(plan: Plan, folder: Path) -> Report:
    """Run one soak in a folder."""
    # A client says at the level of warnings that its connection broke, which is the point here.
    logging.getLogger("iggy_sdk").setLevel(logging.ERROR)
    running = Soak(plan, folder)
    try:
        return anyio.run(running.run)
    finally:
        running.close()


def plan_from(arguments: list[str]) -> tuple[Plan, Path]:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=1_000.0, help="messages a second in all")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--ack", choices=("in-turn", *LEVELS), default="in-turn")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--report", type=Path, default=Path("soak-report.json"))
    asked = parser.parse_args(arguments)
    levels = LEVELS if asked.ack == "in-turn" else (asked.ack,)
    say = partial(print, flush=True)
    return Plan(asked.minutes, asked.rate, asked.shards, levels, asked.seed, say=say), asked.report


def main(arguments: list[str]) -> int:
    """Soak, write the report, and say whether every promise was kept."""
    plan, path = plan_from(arguments)
    with tempfile.TemporaryDirectory(prefix="iggy-soak-") as folder:
        report = soak(plan, Path(folder))
        if not report.is_clean:
            shutil.copy(Path(folder) / "output.txt", path.with_suffix(".log"))
    report.write(path)
    plan.say(report.table())
    return 0 if report.is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
