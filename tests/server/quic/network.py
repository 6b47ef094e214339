"""A network in memory that loses, doubles and delays datagrams as a seed says."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_ref_server.net.quic.udp_socket import Datagram

WAY_S = 0.002


class Network:
    """Carries datagrams between plugs.

    Args:
        nursery: holds what is on its way.
        seed: decides on everything.
        loss: the share that is lost.
        doubles: the share that comes twice.
        jitter_s: by how much one may be slower than another, which changes their order.

    Attributes:
        watch: shown every datagram that is sent, with its two addresses.
        sent_count: how many were sent.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        seed: int = 0,
        loss: float = 0.0,
        doubles: float = 0.0,
        jitter_s: float = 0.0,
    ) -> None:
        self._nursery = nursery
        self._luck = random.Random(seed)
        self._loss = loss
        self._doubles = doubles
        self._jitter_s = jitter_s
        self._plugs: dict[Any, Plug] = {}
        self.watch: Callable[[bytes, Any, Any], None] = lambda data, source, target: None
        self.sent_count = 0

    def plug(self, address: Any) -> Plug:
        """Give an address a place."""
        plug = self._plugs[address] = Plug(self, address)
        return plug

    def carry(self, data: bytes, source: Any, target: Any) -> None:
        """Take a datagram."""
        self.sent_count += 1
        self.watch(data, source, target)
        copies = 2 if self._luck.random() < self._doubles else 1
        for _ in range(copies):
            if self._luck.random() >= self._loss:
                delay_s = WAY_S + self._luck.random() * self._jitter_s
                self._nursery.start_soon(self._deliver, data, source, target, delay_s)

    async def _deliver(self, data: bytes, source: Any, target: Any, delay_s: float) -> None:
        await trio.sleep(delay_s)
        if target in self._plugs:
            self._plugs[target].take((data, source))


class Plug:
    """What one address sees of the network; a ``DatagramSocket``."""

    def __init__(self, network: Network, address: Any) -> None:
        self._network = network
        self.address = address
        self._came: list[Datagram] = []
        self._wakeup = trio.Event()

    def take(self, datagram: Datagram) -> None:
        """Be given a datagram."""
        self._came.append(datagram)
        self._wakeup.set()

    async def receive(self) -> list[Datagram]:
        """Wait for datagrams, and return what has come."""
        await self._wakeup.wait()
        self._wakeup = trio.Event()
        came, self._came = self._came, []
        return came

    def send(self, datagrams: list[Datagram]) -> None:
        """Send datagrams."""
        for data, target in datagrams:
            self._network.carry(data, self.address, target)

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""
