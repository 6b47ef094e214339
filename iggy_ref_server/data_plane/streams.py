"""Connections that are trio streams: TLS, and streams in memory.

They are served by the same data plane as plain sockets, with a reader and a writer task each.

Owns the two tasks. What bytes mean is the data plane's affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from iggy_ref_server.data_plane.link import Link
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_ref_server.data_plane.plane import DataPlane
    from iggy_ref_server.data_plane.sockets import SocketLimits
    from iggy_ref_server.session import Session

__all__ = ["serve_stream"]

RECEIVE_BYTES = 65_536
LOAD_BYTES_MAX = 1 << 20
BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError)


class _StreamWire:
    """Lets a link wake the tasks that serve it."""

    def __init__(self) -> None:
        self._bell = trio.Event()
        self.readers = trio.lowlevel.ParkingLot()

    def wake(self, link: Link) -> None:
        """Note that there is something to do."""
        self._bell.set()

    async def wait(self) -> None:
        """Wait for the next wake."""
        await self._bell.wait()
        self._bell = trio.Event()


async def serve_stream(
    stream: trio.abc.Stream,
    session: Session,
    plane: DataPlane,
    limits: SocketLimits,
    connected: Callable[[Link], None],
) -> None:
    """Serve one client from here to the end of its connection.

    Args:
        stream: the connection, ready to be used; it is closed at the end.
        session: the client.
        plane: serves the requests.
        limits: the bounds of the connection.
        connected: told the link as soon as there is one.
    """
    wire = _StreamWire()
    link = Link(session, wire, limits.connection, outbox_bytes_max=limits.outbox_bytes_max)
    connected(link)
    async with stream, trio.open_nursery() as nursery:
        nursery.start_soon(_write, stream, wire, link, plane, limits, nursery.cancel_scope)
        await _read(stream, wire, link, plane, limits)


async def _read(
    stream: trio.abc.Stream,
    wire: _StreamWire,
    link: Link,
    plane: DataPlane,
    limits: SocketLimits,
) -> None:
    while link.is_hearing:
        if not link.is_ready or link.is_paused:
            await wire.readers.park()
            continue
        try:
            with trio.fail_after(limits.idle_s or float("inf")):
                data = await stream.receive_some(RECEIVE_BYTES)
        except (*BROKEN, trio.TooSlowError):
            data = b""
        link.connection.receive_data(data)
        plane.serve(link)
        plane.finish()


async def _write(
    stream: trio.abc.Stream,
    wire: _StreamWire,
    link: Link,
    plane: DataPlane,
    limits: SocketLimits,
    life: trio.CancelScope,
) -> None:
    """Send what is owed until the link is finished, then end the reader as well."""
    try:
        while not link.is_finished:
            await wire.wait()
            plane.serve(link)
            plane.finish()
            while link.outbox:
                with trio.fail_after(limits.stalled_s):
                    await _send_head(stream, link)
            wire.readers.unpark_all()
    except (*BROKEN, trio.TooSlowError, StorageError):
        link.is_hearing = False
        link.outbox.clear()
    life.cancel()


async def _send_head(stream: trio.abc.Stream, link: Link) -> None:
    outbox = link.outbox
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
