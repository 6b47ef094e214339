"""Attack a running server over every transport, and see that nobody else notices.

    python -m tests.server.hostile.attack_run --frames 1000000
    python -m tests.server.hostile.attack_run --seed 7 --transports quic --seconds 10

Frames come from a process of its own, before a login and after those of users with few rights.
Meanwhile clients of every transport must get right answers in time, and the memory of the server
stays within a bound. Afterwards its data are what they were, its log has no error that nobody
foresaw, and it stops in order.
"""

from __future__ import annotations

import argparse
import json
import random
import ssl
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import trustme

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    CreateUser,
    GetConsumerOffset,
    GetStreams,
    GetTopics,
    GetUsers,
    Partitioning,
    Permissions,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StoreConsumerOffset,
    StreamPermissions,
    UserStatus,
)
from tests.certificates import Certificate
from tests.server.hostile.attacker import SANDBOX, TOPIC
from tests.server.hostile.canaries import STREAM as CANARIES
from tests.server.hostile.canaries import Canary
from tests.server.running import ROOT, ServerFailed
from tests.server.watching import processes_of, resident_bytes, unforeseen
from tests.transports.servers import TransportServer

if TYPE_CHECKING:
    from tests.server.wire_client import WireClient

MIB = 1 << 20
# How many frames of a million go over which transport: those that carry most get most.
SHARES = {"tcp": 0.55, "ws": 0.25, "tls": 0.1, "quic": 0.06, "http": 0.04}
SECURED = frozenset({"tls"})
# Every transport, and every version over two of them.
CANARIES_OF = {
    False: (
        ("tcp", "0.8"),
        ("tcp", "0.9"),
        ("tcp", "0.10"),
        ("ws", "0.8"),
        ("ws", "0.10"),
        ("quic", "0.8"),
        ("quic", "0.9"),
        ("http", "0.8"),
    ),
    True: (("tls", "0.8"), ("tls", "0.9"), ("tls", "0.10"), ("quic", "0.10")),
}
PROTECTED = "protected"
MESSAGES = [b"protected %d " % number + bytes(400) for number in range(400)]
# By a name, which no change of a request of others can hit.
READER = ConsumerIdentity.single("protected reader")
SAMPLE_EVERY_S = 0.2
SETTLE_S = 2.0
SETTINGS = {"IGGY_SYSTEM_SEGMENT_SIZE": "1 MiB", "IGGY_SYSTEM_PARTITION_ACK": "fsync"}


@dataclass
class Plan:
    """What is asked of a attack_run.

    Attributes:
        seed: decides what is thrown.
        frames: how many frames in all; each transport has its share.
        seconds: how long one transport may be attacked at most.
        transports: which ones are attacked, in turn.
        answer_s: how long a canary may wait; generous, machines are shared.
        growth_bytes: how much memory a process may take on top of what it has at rest.
        shards: of the server.
        say: tells a person one line.
    """

    seed: int = 1
    frames: int = 20_000
    seconds: float = 3.0
    transports: tuple[str, ...] = tuple(SHARES)
    answer_s: float = 10.0
    growth_bytes: int = 256 * MIB
    shards: int = 2
    say: Callable[[str], object] = print


@dataclass
class Outcome:
    """What came of it."""

    thrown: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    canaries: dict[str, Canary] = field(default_factory=dict)
    growth_bytes: int = 0

    @property
    def frames(self) -> int:
        """How many frames were thrown."""
        return sum(self.thrown.values())

    def table(self) -> str:
        """Write it for people."""
        lines = [f"  {name:<34} {count:>9,}" for name, count in sorted(self.thrown.items())]
        for name, canary in self.canaries.items():
            lines.append(
                f"  canary over {name:<22} {len(canary.seconds):>9,} rounds, "
                f"p50 {1000 * canary.quantile(0.5):.0f} ms, p99 {1000 * canary.quantile(0.99):.0f}"
                f" ms, max {1000 * canary.quantile(1):.0f} ms"
            )
        lines.append(f"  memory more than at rest, most: {self.growth_bytes / MIB:.0f} MiB")
        lines += [f"FINDING {finding}" for finding in self.findings]
        lines.append(f"{self.frames:,} frames, {len(self.findings)} findings")
        return "\n".join(lines)


class AttackRun:
    """One server under attack.

    Args:
        plan: what is asked.
        secured: whether its listeners speak TLS.
        folder: where its data go.
        outcome: takes what is found.
    """

    def __init__(self, plan: Plan, folder: Path, outcome: Outcome, *, secured: bool) -> None:
        self._plan = plan
        self._outcome = outcome
        self._secured = secured
        folder.mkdir()
        # Recorded logins name the usual root; they shall not be root here.
        chance = random.Random(plan.seed)
        self._password = f"root-{chance.getrandbits(64):x}"
        settings = {**SETTINGS, "IGGY_ROOT_PASSWORD": self._password}
        self._transport_server = TransportServer.open(
            folder,
            shards=plan.shards,
            secured=secured,
            certificate=Certificate.make(trustme.CA(), folder),
            settings=settings,
        )
        self._server = self._transport_server.server
        self._users = (("nobody", "nobody-1"), ("reader", "reader-1"), ("sender", "sender-1"))
        self._before: dict[str, Any] = {}
        self._rest: dict[int, int] = {}

    def close(self) -> None:
        """End the server."""
        self._server.close()

    async def run(self) -> None:
        """Attack over the transports of this server, and judge."""
        await anyio.to_thread.run_sync(self._prepare)
        self._rest = {pid: resident_bytes(pid) for pid in processes_of(self._server.pid)}
        attacked = [name for name in self._plan.transports if (name in SECURED) == self._secured]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            canaries: list[Canary] = []
            for transport, protocol in CANARIES_OF[self._secured]:
                canary = Canary(transport, protocol)
                key = f"{canary.name} (TLS server)" if self._secured else canary.name
                self._outcome.canaries[key] = canary
                canaries.append(canary)
                options = {} if transport == "http" else {"protocol": protocol}
                url = self._transport_server.url(
                    transport, login=f"iggy:{self._password}@", **options
                )
                tasks.start_soon(partial(canary.sing, url, bound_s=self._plan.answer_s))
            await anyio.sleep(0.5)
            for transport in attacked:
                await anyio.to_thread.run_sync(self._attack, transport)
            await anyio.sleep(SETTLE_S)
            # Not those of the other server, whose last answers were not waited for.
            for canary in canaries:
                canary.finish(bound_s=self._plan.answer_s)
            tasks.cancel_scope.cancel()
        await anyio.to_thread.run_sync(self._judge)

    # ---- before

    def _prepare(self) -> None:
        root = self._root()
        ids = {name: root.ask(CreateStream(name)).id for name in (PROTECTED, SANDBOX, CANARIES)}
        for stream in (PROTECTED, SANDBOX):
            root.ask(CreateTopic(stream, TOPIC, 2))
        for transport, protocol in CANARIES_OF[self._secured]:
            root.ask(CreateTopic(CANARIES, Canary(transport, protocol).name, 1))
        for partition in range(2):
            where = Partitioning.partition(partition)
            root.ask(SendMessages(PROTECTED, TOPIC, where, MESSAGES))
            root.ask(StoreConsumerOffset(READER, PROTECTED, TOPIC, 17, partition))
        rights = {
            "nobody": Permissions(),
            "reader": Permissions(streams=(StreamPermissions(ids[PROTECTED], poll_messages=True),)),
            "sender": Permissions(
                streams=(StreamPermissions(ids[SANDBOX], poll_messages=True, send_messages=True),)
            ),
        }
        for name, password in self._users:
            root.ask(CreateUser(name, password, UserStatus.ACTIVE, rights[name]))
        root.close()
        self._before = self._inventory()

    def _root(self) -> WireClient:
        tls = self._context() if self._secured else None
        client = self._server.connect(tls=tls, timeout_s=30)
        client.login("iggy", self._password)
        return client

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._transport_server.certificate.ca_file)

    def _inventory(self) -> dict[str, Any]:
        """Write down everything that no attacker may change."""
        root = self._root()
        found: dict[str, Any] = {"users": sorted(user.username for user in root.ask(GetUsers()))}
        for stream in root.ask(GetStreams()):
            found[stream.name] = [
                (topic.name, topic.partitions_count) for topic in root.ask(GetTopics(stream.name))
            ]
        for partition in range(2):
            start = PollingStrategy.offset(0)
            poll = PollMessages(
                ConsumerIdentity.single(9), PROTECTED, TOPIC, start, 10_000, partition
            )
            found[f"messages {partition}"] = root.ask(poll).messages.payloads()
            stored = root.ask(GetConsumerOffset(READER, PROTECTED, TOPIC, partition))
            found[f"offset {partition}"] = None if stored is None else stored.stored_offset
        root.close()
        return found

    # ---- during

    def _attack(self, transport: str) -> None:
        section = {"tcp": "tcp", "tls": "tcp", "ws": "websocket"}.get(transport, transport)
        host, _, port = self._server.settings[f"IGGY_{section.upper()}_ADDRESS"].rpartition(":")
        order = {
            "transport": transport,
            "address": [host, int(port)],
            "users": self._users,
            "readable": PROTECTED,
            "seed": f"{self._plan.seed}/{transport}",
            "seconds": self._plan.seconds,
            "frames": int(self._plan.frames * SHARES[transport]),
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.server.hostile.attack"],
            input=json.dumps(order) + "\n",
            capture_output=True,
            cwd=ROOT,
            env={"PYTHONPATH": f"{ROOT}:{ROOT / 'protocol'}", "PATH": ""},
            text=True,
            timeout=self._plan.seconds + 120,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"the attacker over {transport} failed: {done.stderr[-2000:]}")
        told = json.loads(done.stdout)
        self._plan.say(f"{transport}: {sum(told['thrown'].values()):,} in {told['seconds']} s")
        for kind, count in told["thrown"].items():
            self._outcome.thrown[f"{transport}: {kind}"] += count

    async def _watch(self) -> None:
        accused = False
        while True:
            await anyio.sleep(SAMPLE_EVERY_S)
            for pid, rest in self._rest.items():
                growth = resident_bytes(pid) - rest
                self._outcome.growth_bytes = max(self._outcome.growth_bytes, growth)
                if growth > self._plan.growth_bytes and not accused:
                    accused = True
                    self._accuse(f"a process holds {growth / MIB:.0f} MiB more than at rest")

    def _accuse(self, sentence: str) -> None:
        self._outcome.findings.append(sentence)
        self._plan.say(f"FINDING {sentence}")

    # ---- after

    def _judge(self) -> None:
        try:
            self._judge_data()
        except (OSError, TimeoutError) as error:
            self._accuse(f"the server does not answer any more: {error!r}")
        with suppress(AssertionError):
            self._judge_end()
        for sentence in unforeseen(self._server.output()):
            self._accuse(sentence)

    def _judge_data(self) -> None:
        after = self._inventory()
        for name, value in self._before.items():
            if after.get(name) != value:
                self._accuse(f"{name} was {str(value)[:200]} and is {str(after.get(name))[:200]}")
        for name in sorted(after.keys() - self._before.keys()):
            self._accuse(f"{name} is there, and nobody who may had made it")

    def _judge_end(self) -> None:
        try:
            self._server.stop()
        except ServerFailed as failure:
            self._accuse(f"the server did not stop in order: {str(failure)[:200]}")
            raise


def run_attack(plan: Plan, folder: Path) -> Outcome:
    """Attack both servers, the plain one and the one behind TLS."""
    outcome = Outcome()
    for secured in (False, True):
        if not any((name in SECURED) == secured for name in plan.transports):
            continue
        attack_run = AttackRun(
            plan, folder / ("secured" if secured else "plain"), outcome, secured=secured
        )
        try:
            anyio.run(attack_run.run)
        finally:
            attack_run.close()
    for canary in outcome.canaries.values():
        outcome.findings += canary.findings
    return outcome


def main(arguments: list[str]) -> int:
    """Attack as asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument(
        "--seconds", type=float, default=3_600.0, help="for each transport, at most"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transports", nargs="+", default=tuple(SHARES), choices=tuple(SHARES))
    asked = parser.parse_args(arguments)
    say = partial(print, flush=True)
    plan = Plan(asked.seed, asked.frames, asked.seconds, tuple(asked.transports), say=say)
    with tempfile.TemporaryDirectory(prefix="iggy-hostile-") as folder:
        outcome = run_attack(plan, Path(folder))
    say(outcome.table())
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
