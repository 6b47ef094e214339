"""The stream server: connections that are trio streams, with TLS or in memory.

The same scheduler handles their requests. Each connection has a reader task and a writer task.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

import trio

from iggy_ref_server.data_plane.budget import BufferBudget
from iggy_ref_server.data_plane.lingering import DISCARD_BYTES, linger
from iggy_ref_server.data_plane.link import Link
from iggy_ref_server.data_plane.pace import RequestPace
from iggy_ref_server.data_plane.seat import acknowledge_early
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_ref_server.data_plane.plane import DataPlane
    from iggy_ref_server.data_plane.sockets import SocketLimits
    from iggy_ref_server.session import Session

__all__ = ["StreamRoom"]

RECEIVE_BYTES = 65_536
LOAD_BYTES_MAX = 1 << 20
UNBOUNDED_BYTES = 1 << 63
# Up to this size a synchronous file read costs less than an awaited one.
SMALL_BYTES_MAX = 1 << 16
BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError)


class _StreamWire:
    """Wakes the two tasks of a connection."""

    def __init__(self) -> None:
        self._bell = trio.Event()
        self.readers = trio.lowlevel.ParkingLot()

    def wake(self, link: Link) -> None:
        """Wake the writer task."""
        self._bell.set()

    async def wait(self) -> None:
        """Wait for the next wake."""
        await self._bell.wait()
        self._bell = trio.Event()


class StreamRoom:
    """Serves all connections of a shard that are streams.

    Args:
        plane: handles the requests.
        limits: the limits of each connection.
        connected: called with each new pipeline.
        receive_bytes: how much to receive per call.
        budget: the memory budget of all connections.
    """

    def __init__(
        self,
        plane: DataPlane,
        limits: SocketLimits,
        connected: Callable[[Link], None],
        *,
        receive_bytes: int = RECEIVE_BYTES,
        budget: BufferBudget | None = None,
    ) -> None:
        self._budget = budget or BufferBudget(UNBOUNDED_BYTES)
        self._plane = plane
        self._limits = limits
        self._connected = connected
        self._receive_bytes = receive_bytes
        self._lives: dict[Link, trio.CancelScope] = {}
        self._leavers = trio.lowlevel.ParkingLot()
        self._farewell = 0

    def __len__(self) -> int:
        return len(self._lives)

    async def serve(self, stream: trio.abc.Stream, session: Session) -> None:
        """Serve one client until its connection ends, and close the stream."""
        wire, limits, plane = _StreamWire(), self._limits, self._plane
        link = Link(session, wire, limits.connection, outbox_bytes_max=limits.outbox_bytes_max)
        try:
            async with stream:
                async with trio.open_nursery() as nursery:
                    life = self._lives[link] = nursery.cancel_scope
                    link.abort = life.cancel
                    link.account = self._budget.open(
                        session.address, life.cancel, partial(wire.wake, link)
                    )
                    self._connected(link)
                    if self._farewell:
                        # The server began to stop during the handshake.
                        link.part_with(self._farewell)
                    nursery.start_soon(_write, stream, wire, link, plane, limits, life)
                    await _read(stream, wire, link, plane, limits, self._receive_bytes)
                await _linger(stream)
        finally:
            if link.account is not None:
                link.account.close()
                link.account = None
            self._lives.pop(link, None)
            self._leavers.unpark_all()

    async def drain(self, farewell: int) -> None:
        """Stop reading, and wait until all replies and the closing status are sent."""
        self._farewell = farewell
        for link in list(self._lives):
            link.part_with(farewell)
        while self._lives:
            await self._leavers.park()

    def hang_up(self) -> None:
        """Close the remaining connections at once."""
        for life in self._lives.values():
            life.cancel()


async def _read(
    stream: trio.abc.Stream,
    wire: _StreamWire,
    link: Link,
    plane: DataPlane,
    limits: SocketLimits,
    receive_bytes: int,
) -> None:
    pace, connection, received_bytes = RequestPace(limits.stalled_s), link.connection, 0
    transport = _transport_of(stream)
    connected = None if transport is None else transport.socket
    while link.is_hearing:
        if not link.can_read:
            pace.rest()
            await wire.readers.park()
            continue
        now = trio.current_time()
        if connection.is_mid_frame:
            pace.note(now, connection.frames_in, received_bytes)
        else:
            pace.rest()
        try:
            with trio.fail_at(min(pace.due_at, now + (limits.idle_s or float("inf")))):
                data = await stream.receive_some(receive_bytes)
        except (*BROKEN, trio.TooSlowError):
            data = b""
        received_bytes += len(data)
        connection.receive_data(data)
        plane.serve(link)
        plane.finish()
        link.note_held()
        if connected is not None and link.connection.missing_bytes and not link.owes:
            acknowledge_early(connected, link.connection.missing_bytes)


async def _write(
    stream: trio.abc.Stream,
    wire: _StreamWire,
    link: Link,
    plane: DataPlane,
    limits: SocketLimits,
    life: trio.CancelScope,
) -> None:
    """Send replies until the pipeline is finished, then cancel the reader."""
    try:
        while not link.is_finished:
            await wire.wait()
            plane.serve(link)
            plane.finish()
            link.note_held()
            while link.outbox:
                with trio.fail_after(limits.stalled_s):
                    await _send_head(stream, link)
                link.note_held()
            if link.can_go_on:
                # The output buffer has space again, and nothing else would wake this task.
                wire.wake(link)
            wire.readers.unpark_all()
    except (*BROKEN, trio.TooSlowError, StorageError):
        link.is_hearing = False
        link.outbox.clear()
    life.cancel()


def _transport_of(stream: trio.abc.Stream) -> trio.SocketStream | None:
    """Return the connection below TLS, if there is one."""
    transport = stream.transport_stream if isinstance(stream, trio.SSLStream) else None
    return transport if isinstance(transport, trio.SocketStream) else None


async def _linger(stream: trio.abc.Stream) -> None:
    """Let the client read its last replies; a stream in memory needs no time for that."""
    transport = _transport_of(stream)
    if transport is None:
        return

    async def discard() -> bool:
        return bool(await transport.receive_some(DISCARD_BYTES))

    with contextlib.suppress(*BROKEN):
        await transport.send_eof()
        await linger(discard)


async def _send_head(stream: trio.abc.Stream, link: Link) -> None:
    outbox = link.outbox
    outbox.load_small(SMALL_BYTES_MAX)
    piece = outbox.head_slice()
    if piece is None:
        buffers = outbox.head_buffers()
        await stream.send_all(buffers[0] if len(buffers) == 1 else b"".join(buffers))
        outbox.sent(sum(map(len, buffers)))
        return
    content = await piece.file.read(min(piece.size, LOAD_BYTES_MAX), piece.position)
    if not content:
        raise StorageError("read", piece.file.path, "the segment is shorter than its index says")
    await stream.send_all(content)
    outbox.sent(len(content))
