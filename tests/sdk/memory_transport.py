"""A transport in memory for tests: two connected ends in one process, without a socket or a clock.

Each direction has a limited buffer; a full one takes no more until the other end reads, as a
socket does.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from iggy_sdk.transport.tcp import unwritten_buffers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iggy_protocol import Buffer

__all__ = ["MemoryTransport", "memory_pair"]

CAPACITY_BYTES = 65_536
"""The buffer of one direction; about that of a socket."""


class MemoryPipe:
    """Bytes between one end and the other."""

    def __init__(self, capacity_bytes: int) -> None:
        self.under_way = bytearray()
        self.capacity_bytes = capacity_bytes
        self.is_ended = False
        self.is_broken = False
        self._change = anyio.Event()

    @property
    def room_bytes(self) -> int:
        """How many bytes may be written at once."""
        return self.capacity_bytes - len(self.under_way)

    def notify(self) -> None:
        """Wake both ends."""
        self._change.set()
        self._change = anyio.Event()

    async def wait(self) -> None:
        """Wait until something is different."""
        await self._change.wait()


class MemoryTransport:
    """One end of a pair."""

    def __init__(self, incoming: MemoryPipe, outgoing: MemoryPipe, *, peer: str) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._peer = peer
        self._is_closed = False
        self._interrupts_count = 0

    @property
    def peer(self) -> str:
        """What the other end is called."""
        return self._peer

    def send_nowait(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Write what fits, and return what is left."""
        outgoing = self._outgoing
        if self._is_closed or outgoing.is_broken:
            raise BrokenPipeError(errno.EPIPE, "the other end is closed")
        written = 0
        for buffer in buffers:
            piece = memoryview(buffer)[: outgoing.room_bytes]
            outgoing.under_way += piece
            written += len(piece)
        outgoing.notify()
        return unwritten_buffers(buffers, written)

    async def send(self, left: list[Buffer]) -> None:
        """Write everything."""
        await checkpoint()
        left[:] = self.send_nowait(left)
        while left:
            await self._outgoing.wait()
            left[:] = self.send_nowait(left)

    async def receive_into(self, space: memoryview) -> int:
        """Wait for bytes and take them."""
        incoming = self._incoming
        interrupts_count = self._interrupts_count
        await checkpoint()
        while (count := self.receive_nowait(space)) is None:
            if interrupts_count != self._interrupts_count:
                raise InterruptedError(errno.EINTR, "the wait was interrupted")
            await incoming.wait()
        return count

    def receive_nowait(self, space: memoryview) -> int | None:
        """Take what is there."""
        incoming = self._incoming
        if self._is_closed:
            raise OSError(errno.EBADF, "the connection was closed on this side")
        if not incoming.under_way and not incoming.is_ended:
            return None
        count = min(len(space), len(incoming.under_way))
        space[:count] = incoming.under_way[:count]
        del incoming.under_way[:count]
        incoming.notify()
        return count

    def add_reader(self, on_bytes: Callable[[], None]) -> bool:
        """Refuse: no event loop knows of these bytes."""
        return False

    def remove_reader(self) -> None:
        """Do nothing: there is no callback."""

    def interrupt(self) -> None:
        """Wake the task that waits for bytes."""
        self._interrupts_count += 1
        self._incoming.notify()

    def abort(self) -> None:
        """Close at once."""
        self._is_closed = True
        self._outgoing.is_ended = True
        self._incoming.is_broken = True
        self._outgoing.notify()
        self._incoming.notify()

    async def aclose(self) -> None:
        """Close."""
        self.abort()


def memory_pair(
    *, peer: str = "memory", capacity_bytes: int = CAPACITY_BYTES
) -> tuple[MemoryTransport, MemoryTransport]:
    """Make two ends that are connected to each other."""
    there, back = MemoryPipe(capacity_bytes), MemoryPipe(capacity_bytes)
    return (
        MemoryTransport(back, there, peer=peer),
        MemoryTransport(there, back, peer=f"the client of {peer}"),
    )
