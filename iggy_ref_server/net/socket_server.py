"""The socket server of a shard: one task and one epoll for all connections over TCP.

A task per connection would cost a task switch per small request. Here trio wakes a single task when
any socket of the shard is ready. The task receives from each ready socket, has the scheduler handle
all requests, and sends the replies.

A connection is plain or has TLS, and may have a codec above that, as WebSocket has; one round
serves them all.

Owns descriptors and readiness. The scheduler interprets the bytes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from iggy_ref_server.client_limits import BufferBudget
from iggy_ref_server.net.busy_poll import BusyPoll
from iggy_ref_server.net.connection_state import ConnectionEvent
from iggy_ref_server.net.pipeline import RequestPipeline, lingering_close, silence_awaited
from iggy_ref_server.net.socket_connection import (
    SocketConnection,
    SocketLimits,
    TransportCodec,
    discard_input,
)
from iggy_ref_server.net.socket_io import pass_on, receive_input, send_output, set_low_mark
from iggy_ref_server.session import ClientSession
from iggy_ref_server.storage.interface import FileSlice, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_ref_server.net.scheduler import RequestScheduler
    from iggy_ref_server.net.tls_codec import TlsCodec


LOGGER = logging.getLogger(__name__)

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
HANGUP = select.EPOLLERR | select.EPOLLHUP
EVENTS_PER_ROUND = 256
# Rounds before the other tasks of the event loop run.
ROUNDS_MAX = 4
# Unread bytes that migrate with a connection; one shard message holds them.
MOVED_BYTES_MAX = 1 << 16
UNBOUNDED_BYTES = 1 << 63


class MovingClient(NamedTuple):
    """A client whose connection goes on at another shard.

    Attributes:
        session: the client.
        is_vsr: whether it uses the framing from 0.9 on.
        unread: bytes that it has sent ahead.
    """

    session: ClientSession
    is_vsr: bool
    unread: bytes


class ConnectionMigrator(Protocol):
    """Migrates connections to the shards that own their partitions."""

    def move(self, connected: socket.socket, client: MovingClient, shard_id: int) -> bool:
        """Hand a connection to another shard; False if it must stay."""


class SocketServer:
    """Serves all connections of a shard over TCP and WebSocket, with and without TLS.

    Args:
        scheduler: handles the requests.
        limits: the limits of each connection without a codec; a codec has its own.
        nursery: runs reads of file pages that are not cached.
        on_disconnect: called with the session of each closed connection.
        migrator: migrates plain connections to other shards; None disables migration.
        budget: the memory budget of all connections.

    Attributes:
        plain_count: the connections without a codec, with or without TLS, closing ones included.
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
        self._with_input: set[SocketConnection] = set()
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
        tls: TlsCodec | None = None,
        *,
        is_vsr: bool | None = None,
    ) -> RequestPipeline:
        """Take over a connected socket.

        Args:
            connected: the socket.
            session: the client.
            unread: bytes that were received from it before, and decrypted.
            codec: decodes its bytes, ``unread`` included; None for TCP.
            tls: decrypts its bytes after its handshake; None without TLS.
            is_vsr: whether the client uses the framing from 0.9 on; None if its first bytes tell.
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
        if is_vsr is not None:
            pipeline.resume(is_vsr=is_vsr)
        conn = SocketConnection(connected, pipeline, limits, codec, tls, READ)
        self._connections[connected.fileno()] = conn
        self._by_pipeline[pipeline] = conn
        pipeline.abort = partial(self._drop, conn)
        pipeline.account = self._budget.open(
            session.address, pipeline.abort, partial(self.wake, pipeline)
        )
        self._epoll.register(connected.fileno(), READ)
        if unread:
            pass_on(conn, unread)
            pipeline.note_requests_left()
            self.wake(pipeline)
        if tls is not None:
            # Requests may have come with the end of the handshake.
            self._note_tls(conn, tls)
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
        if self._with_input:
            self._receive_buffered()
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
                self._with_input.discard(conn)
                self._receive(conn)
            elif not pipeline.can_continue:
                self._set_interest(conn, conn.interest & ~READ)
        if mask & WRITE:
            self._woken.add(pipeline)

    def _receive_buffered(self) -> None:
        """Go on with TLS connections that have received more than they could read in a turn."""
        waiting, self._with_input = self._with_input, set()
        for conn in waiting:
            if conn.pipeline.can_read:
                self._receive(conn)

    def _receive(self, conn: SocketConnection) -> None:
        """Receive the bytes of a connection, and have its requests handled."""
        try:
            receive_input(conn, self._scheduler)
        except OSError as error:
            self._on_lost(conn, error)
            return
        if conn.has_eof:
            self._set_interest(conn, conn.interest & ~READ)
        if conn.tls is not None:
            self._note_tls(conn, conn.tls)

    def _note_tls(self, conn: SocketConnection, tls: TlsCodec) -> None:
        """Have a connection flushed if TLS has received more, or has something to send."""
        ciphertext = tls.take_ciphertext()
        if ciphertext:
            conn.pipeline.output_buffer.put_encoded(ciphertext)
        if ciphertext or tls.has_input:
            self._woken.add(conn.pipeline)

    def _on_lost(self, conn: SocketConnection, error: OSError) -> None:
        """Close a connection that the client has lost, or broken by bytes that are no TLS."""
        if isinstance(error, ssl.SSLError) and conn.tls is not None:
            LOGGER.info("lost the connection of %s: %s", conn.pipeline.session.address, error)
            # The alert says why, if the socket takes it.
            with contextlib.suppress(OSError):
                conn.socket.send(conn.tls.take_ciphertext())
        self._drop(conn)

    def _flush(self, conn: SocketConnection) -> None:
        """Send what the socket takes, and choose the events to wait for."""
        pipeline = conn.pipeline
        if conn.codec is not None and pipeline.is_done and not conn.has_eof:
            conn.codec.write_close()
        if pipeline.output_buffer and not conn.is_reading_file and not self._send(conn):
            return
        pipeline.update_account()
        if pipeline.is_finished and not self._send_close_notify(conn):
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
            if conn.tls is not None and conn.tls.has_input:
                self._with_input.add(conn)
                self._woken.add(pipeline)
        elif not pipeline.is_open:
            conn.interest &= ~READ
        self._set_interest(conn, wants | (conn.interest & READ))

    def _migrate(self, conn: SocketConnection) -> bool:
        """Migrate a connection if all replies are sent; until then start no new request."""
        pipeline, session = conn.pipeline, conn.pipeline.session
        if self._migrator is None or not conn.is_plain or not pipeline.is_open:
            return False
        if pipeline.has_detached:
            return False
        shard_id = session.preferred_shard
        is_small = pipeline.connection.statistics().buffered_bytes <= MOVED_BYTES_MAX
        if not pipeline.note_preference(wants_migration=shard_id is not None and is_small):
            return False
        if pipeline.has_unsent_replies or shard_id is None:
            return False
        if pipeline.connection.is_idle:
            session.clear_preference()
            set_low_mark(conn, 0)
            client = MovingClient(session, pipeline.is_vsr, pipeline.connection.unread())
            if self._migrator.move(conn.socket, client, shard_id):
                pipeline.advance(ConnectionEvent.MIGRATED)
                self._unregister(conn)
                self._close(conn)
                return True
        pipeline.note_preference(wants_migration=False)
        return False

    def _send_close_notify(self, conn: SocketConnection) -> bool:
        """Send the last message of TLS; return whether the connection must wait for that."""
        if conn.tls is None or not conn.tls.write_close():
            return False
        output_buffer = conn.pipeline.output_buffer
        output_buffer.put_encoded(conn.tls.take_ciphertext())
        return not self._send(conn) or bool(output_buffer)

    def _send(self, conn: SocketConnection) -> bool:
        """Send until the socket is full or the turn is over; False if the connection is closed."""
        try:
            piece = send_output(conn)
        except (OSError, StorageError):
            self._drop(conn)
            return False
        if piece is not None:
            conn.is_reading_file = True
            self._nursery.start_soon(self._load, conn, piece)
        elif conn.stalled_since is None:
            self._has_sent = True
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
        self._with_input.discard(conn)
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
                if conn.is_plain:
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
