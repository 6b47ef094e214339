"""Clients of every transport that go on working while others attack, and take the time.

A canary pings, sends a message, polls it back and looks whether it is the one that it sent. An
error, a wrong answer or one that takes too long is a finding.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import anyio

from iggy_protocol import ConsumerIdentity, PollingStrategy
from iggy_sdk import IggyClient, IggyError

STREAM = "canaries"
PAUSE_S = 0.03
FINDINGS_KEPT = 20


@dataclass
class Canary:
    """One client.

    Attributes:
        transport: how it comes.
        protocol: which version it speaks; the answers to all must be right.
        seconds: how long each of its rounds took.
        findings: what was wrong, in words.
    """

    transport: str
    protocol: str = "0.8"
    seconds: list[float] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    _began: float | None = None

    @property
    def name(self) -> str:
        """What it sends to, and is called."""
        return f"{self.transport}-{self.protocol}"

    def accuse(self, sentence: str) -> None:
        """Note what was wrong."""
        if len(self.findings) < FINDINGS_KEPT:
            self.findings.append(f"the canary {self.name}: {sentence}")

    async def sing(self, url: str, *, bound_s: float) -> None:
        """Work until cancelled."""
        while True:
            try:
                async with IggyClient(url) as client:
                    await self._sing_on(client, bound_s)
            except IggyError as error:
                self.accuse(f"met {type(error).__name__}: {error}")
                await anyio.sleep(0.5)

    def finish(self, *, bound_s: float) -> None:
        """Note what an answer that never came cannot tell itself."""
        waiting = 0.0 if self._began is None else time.monotonic() - self._began
        if waiting > bound_s:
            self.accuse(f"has waited {waiting:.1f} s for an answer, in vain")
        if not self.seconds:
            self.accuse("was never answered")

    async def _sing_on(self, client: IggyClient, bound_s: float) -> None:
        topic = self.name
        while True:
            number = len(self.seconds)
            song = f"{topic} {number}".encode()
            began = self._began = time.monotonic()
            await client.ping()
            await client.send_messages(STREAM, topic, [song], partition_id=0)
            polled = await client.poll_messages(
                STREAM,
                topic,
                consumer=ConsumerIdentity.single("canary"),
                partition_id=0,
                strategy=PollingStrategy.last(),
                count=1,
            )
            took, self._began = time.monotonic() - began, None
            self.seconds.append(took)
            if polled.payloads() != [song]:
                self.accuse(f"sent {song!r} and polled {polled.payloads()!r}")
            if took > bound_s:
                self.accuse(f"waited {took:.1f} s for a ping, a send and a poll")
            await anyio.sleep(PAUSE_S)

    def quantile(self, share: float) -> float:
        """Return the time that so large a share of the rounds did not exceed."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
