"""The stream server: connections that are trio streams, with TLS or in memory.

The same scheduler handles their requests. Each connection has a reader task and a writer task.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

import trio

from iggy_ref_server.client_limits import BufferBudget, RequestProgress
from iggy_ref_server.net.pipeline import DISCARD_BYTES, RequestPipeline, lingering_close
from iggy_ref_server.net.socket_connection import request_quick_ack
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_ref_server.net.scheduler import RequestScheduler
    from iggy_ref_server.net.socket_server import SocketLimits
    from iggy_ref_server.session import ClientSession

__all__ = ["StreamServer"]

RECEIVE_BYTES = 65_536
LOAD_BYTES_MAX = 1 << 20
UNBOUNDED_BYTES = 1 << 63
# Up to this size a synchronous file read costs less than an awaited one.
SMALL_BYTES_MAX = 1 << 16
BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError)


class _StreamOwner:
    """Wakes the two tasks of a connection."""

    def __init__(self) -> None:
        self._wakeup = trio.Event()
        self.readers = trio.lowlevel.ParkingLot()

    def wake(self, pipeline: RequestPipeline) -> None:
        """Wake the writer task."""
        self._wakeup.set()

    async def wait(self) -> None:
        """Wait for the next wake."""
        await self._wakeup.wait()
        self._wakeup = trio.Event()


class StreamServer:
    """Serves all connections of a shard that are streams.

    Args:
        scheduler: handles the requests.
        limits: the limits of each connection.
        connected: called with each new pipeline.
        receive_bytes: how much to receive per call.
        budget: the memory budget of all connections.
    """

    def __init__(
        self,
        scheduler: RequestScheduler,
        limits: SocketLimits,
        connected: Callable[[RequestPipeline], None],
        *,
        receive_bytes: int = RECEIVE_BYTES,
        budget: BufferBudget | None = None,
    ) -> None:
        self._budget = budget or BufferBudget(UNBOUNDED_BYTES)
        self._scheduler = scheduler
        self._limits = limits
        self._on_connect = connected
        self._receive_bytes = receive_bytes
        self._scopes: dict[RequestPipeline, trio.CancelScope] = {}
        self._drain_waiters = trio.lowlevel.ParkingLot()
        self._closing_status = 0

    def __len__(self) -> int:
        return len(self._scopes)

    async def serve(self, stream: trio.abc.Stream, session: ClientSession) -> None:
        """Serve one client until its connection ends, and close the stream."""
        owner, limits, scheduler = _StreamOwner(), self._limits, self._scheduler
        pipeline = RequestPipeline(
            session, owner, limits.connection, output_bytes_max=limits.output_bytes_max
        )
        try:
            async with stream:
                async with trio.open_nursery() as nursery:
                    scope = self._scopes[pipeline] = nursery.cancel_scope
                    pipeline.abort = scope.cancel
                    pipeline.account = self._budget.open(
                        session.address, scope.cancel, partial(owner.wake, pipeline)
                    )
                    self._on_connect(pipeline)
                    if self._closing_status:
                        # The server began to stop during the handshake.
                        pipeline.close_with(self._closing_status)
                    nursery.start_soon(_write, stream, owner, pipeline, scheduler, limits, scope)
                    await _read(stream, owner, pipeline, scheduler, limits, self._receive_bytes)
                await _linger_below_tls(stream)
        finally:
            if pipeline.account is not None:
                pipeline.account.close()
                pipeline.account = None
            self._scopes.pop(pipeline, None)
            self._drain_waiters.unpark_all()

    async def drain(self, closing_status: int) -> None:
        """Stop reading, and wait until all replies and the closing status are sent."""
        self._closing_status = closing_status
        for pipeline in list(self._scopes):
            pipeline.close_with(closing_status)
        while self._scopes:
            await self._drain_waiters.park()

    def close_all(self) -> None:
        """Close the remaining connections at once."""
        for scope in self._scopes.values():
            scope.cancel()


async def _read(
    stream: trio.abc.Stream,
    owner: _StreamOwner,
    pipeline: RequestPipeline,
    scheduler: RequestScheduler,
    limits: SocketLimits,
    receive_bytes: int,
) -> None:
    progress, connection, received_bytes = (
        RequestProgress(limits.stall_timeout_s),
        pipeline.connection,
        0,
    )
    transport = _transport_of(stream)
    connected = None if transport is None else transport.socket
    while pipeline.is_open:
        if not pipeline.can_read:
            progress.reset()
            await owner.readers.park()
            continue
        now = trio.current_time()
        if connection.is_mid_frame:
            progress.note(now, connection.frames_in, received_bytes)
        else:
            progress.reset()
        try:
            with trio.fail_at(min(progress.due_at, now + (limits.idle_timeout_s or float("inf")))):
                data = await stream.receive_some(receive_bytes)
        except (*BROKEN, trio.TooSlowError):
            data = b""
        received_bytes += len(data)
        connection.receive_data(data)
        scheduler.serve(pipeline)
        scheduler.flush()
        pipeline.update_account()
        if (
            connected is not None
            and pipeline.connection.missing_bytes
            and not pipeline.has_unsent_replies
        ):
            request_quick_ack(connected, pipeline.connection.missing_bytes)


async def _write(
    stream: trio.abc.Stream,
    owner: _StreamOwner,
    pipeline: RequestPipeline,
    scheduler: RequestScheduler,
    limits: SocketLimits,
    scope: trio.CancelScope,
) -> None:
    """Send replies until the pipeline is finished, then cancel the reader."""
    try:
        while not pipeline.is_finished:
            await owner.wait()
            scheduler.serve(pipeline)
            scheduler.flush()
            pipeline.update_account()
            while pipeline.output_buffer:
                with trio.fail_after(limits.stall_timeout_s):
                    await _send_head(stream, pipeline)
                pipeline.update_account()
            if pipeline.can_continue:
                # The output buffer has space again, and nothing else would wake this task.
                owner.wake(pipeline)
            owner.readers.unpark_all()
    except (*BROKEN, trio.TooSlowError, StorageError):
        pipeline.end()
        pipeline.output_buffer.clear()
    scope.cancel()


def _transport_of(stream: trio.abc.Stream) -> trio.SocketStream | None:
    """Return the connection below TLS, if there is one."""
    transport = stream.transport_stream if isinstance(stream, trio.SSLStream) else None
    return transport if isinstance(transport, trio.SocketStream) else None


async def _linger_below_tls(stream: trio.abc.Stream) -> None:
    """Let the client read its last replies; a stream in memory needs no time for that."""
    transport = _transport_of(stream)
    if transport is None:
        return

    async def discard() -> bool:
        return bool(await transport.receive_some(DISCARD_BYTES))

    with contextlib.suppress(*BROKEN):
        await transport.send_eof()
        await lingering_close(discard)


async def _send_head(stream: trio.abc.Stream, pipeline: RequestPipeline) -> None:
    output_buffer = pipeline.output_buffer
    output_buffer.load_small(SMALL_BYTES_MAX)
    piece = output_buffer.head_slice()
    if piece is None:
        buffers = output_buffer.head_buffers()
        await stream.send_all(buffers[0] if len(buffers) == 1 else b"".join(buffers))
        output_buffer.sent(sum(map(len, buffers)))
        return
    content = await piece.file.read(min(piece.size, LOAD_BYTES_MAX), piece.position)
    if not content:
        raise StorageError("read", piece.file.path, "the segment is shorter than its index says")
    await stream.send_all(content)
    output_buffer.sent(len(content))
