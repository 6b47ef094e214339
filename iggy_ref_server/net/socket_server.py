"""The socket server of a shard: one task and one epoll for all connections without TLS.

A task per connection would cost a task switch per small request. Here trio wakes a single task when
any socket of the shard is ready. The task receives from each ready socket, has the scheduler handle
all requests, and sends the replies.

A connection is plain TCP or has a codec, as WebSocket has; one round serves both.

Owns descriptors and readiness. The scheduler interprets the bytes.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from iggy_ref_server.client_limits import BufferBudget
from iggy_ref_server.net.busy_poll import BusyPoll
from iggy_ref_server.net.connection_state import ConnectionEvent
from iggy_ref_server.net.pipeline import RequestPipeline, lingering_close, silence_awaited
from iggy_ref_server.net.socket_connection import (
    SENDFILE_BYTES_MAX,
    SocketConnection,
    SocketLimits,
    copy_into_connection,
    discard_input,
    request_quick_ack,
    send_buffers,
    send_file,
)
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_ref_server.net.scheduler import RequestScheduler
    from iggy_ref_server.net.socket_connection import TransportCodec
    from iggy_ref_server.session import ClientSession
    from iggy_ref_server.storage.interface import FileSlice

__all__ = ["ConnectionMigrator", "SocketLimits", "SocketServer"]

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
HANGUP = select.EPOLLERR | select.EPOLLHUP
EVENTS_PER_ROUND = 256
# The bounds of SO_RCVLOWAT. A wake-up costs about as much as receiving 64 KiB; with a higher upper
# bound the core would idle.
LOW_MARK_MIN, LOW_MARK_MAX = 1 << 16, 1 << 18
# How often a socket with a large frame is read in one round: bytes that arrive during a read then
# cost no wake-up. Enough for a batch of 1 MB, and a short wait for other clients.
READS_MAX = 8
# What one socket is sent in a round: a client that reads as fast as the server writes would block
# the others. Enough for four batches of 1 MB; the remainder makes the epoll ready again.
SENT_BYTES_MAX = 4 << 20
# Up to this size reading a piece of a file costs less than a separate sendfile call.
LOADED_BYTES_MAX = 1 << 14
# Rounds before the other tasks of the event loop run.
ROUNDS_MAX = 4
# Unread bytes that migrate with a connection; one shard message holds them.
MOVED_BYTES_MAX = 1 << 16
UNBOUNDED_BYTES = 1 << 63


class ConnectionMigrator(Protocol):
    """Migrates connections to the shards that own their partitions."""

    def move(
        self, connected: socket.socket, session: ClientSession, unread: bytes, shard_id: int
    ) -> bool:
        """Hand a connection to another shard; False if it must stay."""


class SocketServer:
    """Serves all connections of a shard without TLS.

    Args:
        scheduler: handles the requests.
        limits: the limits of each plain connection; a codec has its own.
        nursery: runs reads of file pages that are not cached.
        on_disconnect: called with the session of each closed connection.
        migrator: migrates plain connections to other shards; None disables migration.
        budget: the memory budget of all connections.

    Attributes:
        plain_count: the connections without a codec, closing ones included.
        codec_count: the connections with a codec.
    """

    def __init__(
        self,
        scheduler: RequestScheduler,
        limits: SocketLimits,
        nursery: trio.Nursery,
        on_disconnect: Callable[[ClientSession], None],
        migrator: ConnectionMigrator | None = None,
        budget: BufferBudget | None = None,
    ) -> None:
        self._budget = budget or BufferBudget(UNBOUNDED_BYTES)
        self._scheduler = scheduler
        self._limits = limits
        self._nursery = nursery
        self._on_disconnect = on_disconnect
        self._migrator = migrator
        self._closing_status = 0
        self._connections: dict[int, SocketConnection] = {}
        self._by_pipeline: dict[RequestPipeline, SocketConnection] = {}
        self._woken: set[RequestPipeline] = set()
        self._in_round = False
        self._has_sent = False
        self._busy_poll = BusyPoll(lambda: bool(self._epoll.poll(0, 1)))
        self.plain_count = 0
        self.codec_count = 0
        self._drain_waiters = trio.lowlevel.ParkingLot()
        self._epoll = select.epoll()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_signalled = False
        self._epoll.register(self._wakeup, READ)

    def __len__(self) -> int:
        return self.plain_count + self.codec_count

    def admit(
        self,
        connected: socket.socket,
        session: ClientSession,
        unread: bytes = b"",
        codec: TransportCodec | None = None,
    ) -> RequestPipeline:
        """Take over a connected socket.

        Args:
            connected: the socket.
            session: the client.
            unread: bytes that were received from it before.
            codec: decodes its bytes, ``unread`` included; None for plain TCP.
        """
        connected.setblocking(False)
        limits, output_buffer = self._limits, None
        if codec is None:
            self.plain_count += 1
        else:
            self.codec_count += 1
            limits, output_buffer = codec.limits, codec.output_buffer
        bytes_max = limits.output_bytes_max
        pipeline = RequestPipeline(
            session,
            self,
            limits.connection,
            output_bytes_max=bytes_max,
            output_buffer=output_buffer,
        )
        conn = SocketConnection(connected, pipeline, limits, codec, READ)
        self._connections[connected.fileno()] = conn
        self._by_pipeline[pipeline] = conn
        pipeline.abort = partial(self._drop, conn)
        pipeline.account = self._budget.open(
            session.address, pipeline.abort, partial(self.wake, pipeline)
        )
        self._epoll.register(connected.fileno(), READ)
        if unread:
            self._pass_on(conn, unread)
            pipeline.note_requests_left()
            self.wake(pipeline)
        if self._closing_status:
            pipeline.close_with(self._closing_status)
        return pipeline

    def wake(self, pipeline: RequestPipeline) -> None:
        """Schedule a pipeline in this round or in the next."""
        self._woken.add(pipeline)
        if not self._in_round and not self._is_signalled:
            self._is_signalled = True
            os.eventfd_write(self._wakeup, 1)

    async def run(self) -> None:
        """Serve until cancelled, then close everything."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                for _ in range(ROUNDS_MAX):
                    self._has_sent = False
                    self._round()
                    if not self._has_sent or not self._busy_poll.poll():
                        break
        finally:
            for conn in list(self._connections.values()):
                self._drop(conn)
            self._is_signalled = True  # a later wake must not write to the closed eventfd
            self._epoll.close()
            os.close(self._wakeup)

    def _round(self) -> None:
        # Each socket is read in one place per round, so that no client is served twice while
        # another waits. Unread bytes make the level-triggered epoll ready again.
        self._in_round = True
        for descriptor, mask in self._epoll.poll(0, EVENTS_PER_ROUND):
            conn = self._connections.get(descriptor)
            if conn is not None:
                self._on_ready(conn, mask)
            elif descriptor == self._wakeup:
                os.eventfd_read(self._wakeup)
                self._is_signalled = False
        woken, self._woken = self._woken, set()
        for pipeline in woken:
            self._scheduler.serve(pipeline)
        self._scheduler.flush()
        woken |= self._woken
        self._woken = set()
        for pipeline in woken:
            woken_conn = self._by_pipeline.get(pipeline)
            if woken_conn is not None:
                self._flush(woken_conn)
        self._in_round = False
        if self._budget.is_over:
            self._budget.evict_over_limit()
        if self._woken:
            self.wake(self._woken.pop())

    # One socket

    def _on_ready(self, conn: SocketConnection, mask: int) -> None:
        pipeline = conn.pipeline
        if mask & HANGUP:
            self._drop(conn)
            return
        if mask & READ:
            if pipeline.can_read:
                if conn.codec is None:
                    self._receive(conn)
                else:
                    self._receive_encoded(conn, conn.codec)
            elif not pipeline.can_continue:
                self._set_interest(conn, conn.interest & ~READ)
        if mask & WRITE:
            self._woken.add(pipeline)

    def _receive(self, conn: SocketConnection) -> None:
        pipeline, missing_bytes = conn.pipeline, 0
        for _ in range(READS_MAX):
            size = self._read(conn)
            if size is None:
                break
            # The missing size of a frame is known only after the scheduler has parsed its head.
            if not size or not missing_bytes or not pipeline.connection.missing_bytes:
                self._scheduler.serve(pipeline)
            missing_bytes = pipeline.connection.missing_bytes
            if missing_bytes < LOW_MARK_MIN:
                break
            pipeline.update_account()
            if not pipeline.can_read:
                break
        self._set_low_mark(conn, missing_bytes)

    def _read(self, conn: SocketConnection) -> int | None:
        """Receive once; None if nothing has arrived or the connection is closed."""
        connection = conn.pipeline.connection
        try:
            size = conn.socket.recv_into(connection.get_buffer())
        except BlockingIOError:
            return None
        except OSError:
            self._drop(conn)
            return None
        connection.buffer_updated(size)
        conn.note_received(size)
        if size == 0:
            conn.has_eof = True
            self._set_interest(conn, conn.interest & ~READ)
        return size

    def _receive_encoded(self, conn: SocketConnection, codec: TransportCodec) -> None:
        """Receive and decode the bytes of a connection with a codec."""
        pipeline = conn.pipeline
        for _ in range(READS_MAX):
            if not pipeline.can_read:
                break
            try:
                data = conn.socket.recv(codec.receive_bytes)
            except BlockingIOError:
                break
            except OSError:
                self._drop(conn)
                return
            conn.note_received(len(data))
            conn.has_eof = not data
            self._pass_on(conn, data)
            self._scheduler.serve(pipeline)
            if codec.missing_bytes < LOW_MARK_MIN:
                break
            pipeline.update_account()
        self._set_low_mark(conn, codec.missing_bytes)

    def _pass_on(self, conn: SocketConnection, data: bytes) -> None:
        """Pass received bytes, or the end of the input, to the protocol."""
        connection, codec = conn.pipeline.connection, conn.codec
        if codec is None:
            connection.receive_data(data)
            return
        content = codec.decode(data)
        if content:
            copy_into_connection(connection, content)
        if codec.is_ended or conn.has_eof:
            connection.receive_eof()

    def _set_low_mark(self, conn: SocketConnection, missing_bytes: int) -> None:
        """Be woken once for much of a large frame, not for every packet of it."""
        conn.pipeline.update_account()
        if missing_bytes and not conn.pipeline.has_unsent_replies:
            request_quick_ack(conn.socket, missing_bytes)
        low_mark = min(missing_bytes, LOW_MARK_MAX) if missing_bytes >= LOW_MARK_MIN else 1
        if low_mark != conn.low_mark and conn.pipeline in self._by_pipeline:
            conn.low_mark = low_mark
            conn.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_mark)

    def _flush(self, conn: SocketConnection) -> None:
        """Send what the socket takes, and choose the events to wait for."""
        pipeline = conn.pipeline
        if conn.codec is not None and pipeline.is_done and not conn.has_eof:
            conn.codec.write_close()
        if pipeline.output_buffer and not conn.is_reading_file and not self._send(conn):
            return
        pipeline.update_account()
        if pipeline.is_finished:
            self._finish(conn)
            return
        wants_migration = pipeline.session.preferred_shard is not None or pipeline.is_migrating
        if wants_migration and self._migrate(conn):
            return
        wants = WRITE if pipeline.output_buffer and not conn.is_reading_file else 0
        if pipeline.can_continue:
            # Its next turn is in the next round, after the sockets that became ready meanwhile.
            self._woken.add(pipeline)
        elif pipeline.can_read:
            wants |= READ
        elif not pipeline.is_open:
            conn.interest &= ~READ
        self._set_interest(conn, wants | (conn.interest & READ))

    def _migrate(self, conn: SocketConnection) -> bool:
        """Migrate a connection if all replies are sent; until then start no new request."""
        pipeline, session = conn.pipeline, conn.pipeline.session
        if self._migrator is None or conn.codec is not None or not pipeline.is_open:
            return False
        shard_id = session.preferred_shard
        is_small = pipeline.connection.statistics().buffered_bytes <= MOVED_BYTES_MAX
        if not pipeline.note_preference(wants_migration=shard_id is not None and is_small):
            return False
        if pipeline.has_unsent_replies or shard_id is None:
            return False
        if pipeline.connection.is_idle:
            session.clear_preference()
            self._set_low_mark(conn, 0)
            unread = pipeline.connection.unread()
            if self._migrator.move(conn.socket, session, unread, shard_id):
                pipeline.advance(ConnectionEvent.MIGRATED)
                self._unregister(conn)
                self._close(conn)
                return True
        pipeline.note_preference(wants_migration=False)
        return False

    def _send(self, conn: SocketConnection) -> bool:
        """Write until the socket is full or the turn is over; False if the connection is closed."""
        output_buffer = conn.pipeline.output_buffer
        unsent_bytes = output_buffer.size_bytes
        try:
            if unsent_bytes <= LOADED_BYTES_MAX:
                output_buffer.load_small(LOADED_BYTES_MAX)
            while output_buffer and unsent_bytes - output_buffer.size_bytes < SENT_BYTES_MAX:
                piece = output_buffer.head_slice()
                if piece is None:
                    size = send_buffers(conn.socket, output_buffer.head_buffers())
                elif piece.file.descriptor is None or not piece.file.is_cached(
                    min(piece.size, SENDFILE_BYTES_MAX), piece.position
                ):
                    conn.is_reading_file = True
                    piece = output_buffer.cut_head(SENDFILE_BYTES_MAX)
                    self._nursery.start_soon(self._load, conn, piece)
                    return True
                else:
                    size = send_file(conn.socket, piece)
                output_buffer.sent(size)
            conn.stalled_since = None
            self._has_sent = True
        except BlockingIOError:
            if conn.stalled_since is None or output_buffer.size_bytes < unsent_bytes:
                conn.stalled_since = trio.current_time()
        except (OSError, StorageError):
            self._drop(conn)
            return False
        return True

    async def _load(self, conn: SocketConnection, piece: FileSlice) -> None:
        """Read a piece of a file that is not cached, while other clients are served."""
        try:
            content = await piece.file.read(piece.size, piece.position)
            conn.pipeline.output_buffer.load_head(content)
        except (StorageError, AssertionError):
            # The head of the reply is sent already, so no error status can follow: close.
            self._drop(conn)
        conn.is_reading_file = False
        self.wake(conn.pipeline)

    def _set_interest(self, conn: SocketConnection, interest: int) -> None:
        if interest != conn.interest and conn.pipeline in self._by_pipeline:
            conn.interest = interest
            self._epoll.modify(conn.socket.fileno(), interest)

    def _drop(self, conn: SocketConnection) -> None:
        """Close a connection at once; its unsent replies are lost."""
        if conn.pipeline not in self._by_pipeline:
            return
        self._unregister(conn)
        self._close(conn)
        conn.pipeline.drop(partial(self._on_disconnect, conn.pipeline.session))

    def _finish(self, conn: SocketConnection) -> None:
        """Close a connection whose replies are sent; the client may still have to read them."""
        if conn.has_eof:
            self._drop(conn)
            return
        self._unregister(conn)
        conn.pipeline.advance(ConnectionEvent.REPLIES_SENT)
        self._nursery.start_soon(self._lingering_close, conn)
        self._on_disconnect(conn.pipeline.session)

    def _unregister(self, conn: SocketConnection) -> None:
        """Remove a socket from the epoll and from all tables."""
        descriptor = conn.socket.fileno()
        del self._by_pipeline[conn.pipeline]
        # ``abort`` refers to this object's pipeline: break the cycle, which would keep its buffers
        # alive.
        conn.pipeline.abort = conn.socket.close
        if conn.pipeline.account is not None:
            conn.pipeline.account.close()
            conn.pipeline.account = None
        del self._connections[descriptor]
        self._epoll.unregister(descriptor)

    def _close(self, conn: SocketConnection) -> None:
        conn.socket.close()
        if conn.codec is None:
            self.plain_count -= 1
        else:
            self.codec_count -= 1
        self._drain_waiters.unpark_all()

    async def _lingering_close(self, conn: SocketConnection) -> None:
        """Let the client read its last replies before the socket is closed."""
        connected = conn.socket
        try:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_WR)
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
                await lingering_close(partial(discard_input, connected), silence_awaited(connected))
        finally:
            conn.pipeline.advance(ConnectionEvent.DROPPED)
            self._close(conn)

    # Timeouts and shutdown

    def close_idle(self) -> None:
        """Close connections that sent nothing, or read nothing, for too long; call periodically."""
        now = trio.current_time()
        for conn in list(self._connections.values()):
            if conn.has_stalled(now):
                self._drop(conn)
            elif conn.is_idle(now):
                if conn.codec is None:
                    self._drop(conn)
                else:
                    conn.pipeline.end()

    async def drain(self, closing_status: int) -> None:
        """Stop reading, and wait until all replies and the closing status are sent."""
        self._closing_status = closing_status
        for conn in list(self._connections.values()):
            conn.pipeline.close_with(closing_status)
        while len(self):
            await self._drain_waiters.park()

    def close_all(self) -> None:
        """Close the remaining connections at once."""
        for conn in list(self._connections.values()):
            self._drop(conn)
