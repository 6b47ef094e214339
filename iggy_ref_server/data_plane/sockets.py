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

from iggy_ref_server.data_plane.budget import BufferBudget
from iggy_ref_server.data_plane.lingering import linger, silence_awaited
from iggy_ref_server.data_plane.link import Link
from iggy_ref_server.data_plane.patience import Patience
from iggy_ref_server.data_plane.seat import (
    SENDFILE_BYTES_MAX,
    Seat,
    SocketLimits,
    acknowledge_early,
    discard,
    fill,
    send_buffers,
    send_file,
)
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_ref_server.data_plane.envelope import Envelope
    from iggy_ref_server.data_plane.plane import DataPlane
    from iggy_ref_server.session import Session
    from iggy_ref_server.storage.interface import FileSlice

__all__ = ["Mover", "SocketLimits", "SocketRoom"]

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
GONE = select.EPOLLERR | select.EPOLLHUP
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


class Mover(Protocol):
    """Migrates connections to the shards that own their partitions."""

    def move(
        self, connected: socket.socket, session: Session, unread: bytes, shard_id: int
    ) -> bool:
        """Hand a connection to another shard; False if it must stay."""


class SocketRoom:
    """Serves all connections of a shard without TLS.

    Args:
        plane: handles the requests.
        limits: the limits of each plain connection; a codec has its own.
        nursery: runs reads of file pages that are not cached.
        gone: called with the session of each closed connection.
        mover: migrates plain connections to other shards; None disables migration.
        budget: the memory budget of all connections.

    Attributes:
        plain_count: the connections without a codec, closing ones included.
        enveloped_count: the connections with a codec.
    """

    def __init__(
        self,
        plane: DataPlane,
        limits: SocketLimits,
        nursery: trio.Nursery,
        gone: Callable[[Session], None],
        mover: Mover | None = None,
        budget: BufferBudget | None = None,
    ) -> None:
        self._budget = budget or BufferBudget(UNBOUNDED_BYTES)
        self._plane = plane
        self._limits = limits
        self._nursery = nursery
        self._gone = gone
        self._mover = mover
        self._farewell = 0
        self._seats: dict[int, Seat] = {}
        self._by_link: dict[Link, Seat] = {}
        self._woken: set[Link] = set()
        self._in_round = False
        self._has_answered = False
        self._patience = Patience(lambda: bool(self._epoll.poll(0, 1)))
        self.plain_count = 0
        self.enveloped_count = 0
        self._leavers = trio.lowlevel.ParkingLot()
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_rung = False
        self._epoll.register(self._bell, READ)

    def __len__(self) -> int:
        return self.plain_count + self.enveloped_count

    def admit(
        self,
        connected: socket.socket,
        session: Session,
        unread: bytes = b"",
        envelope: Envelope | None = None,
    ) -> Link:
        """Take over a connected socket.

        Args:
            connected: the socket.
            session: the client.
            unread: bytes that were received from it before.
            envelope: decodes its bytes, ``unread`` included; None for plain TCP.
        """
        connected.setblocking(False)
        limits, outbox = self._limits, None
        if envelope is None:
            self.plain_count += 1
        else:
            self.enveloped_count += 1
            limits, outbox = envelope.limits, envelope.outbox
        bytes_max = limits.outbox_bytes_max
        link = Link(session, self, limits.connection, outbox_bytes_max=bytes_max, outbox=outbox)
        seat = Seat(connected, link, limits, envelope, READ)
        self._seats[connected.fileno()] = seat
        self._by_link[link] = seat
        link.abort = partial(self._drop, seat)
        link.account = self._budget.open(session.address, link.abort, partial(self.wake, link))
        self._epoll.register(connected.fileno(), READ)
        if unread:
            self._take(seat, unread)
            self.wake(link)
        if self._farewell:
            link.part_with(self._farewell)
        return link

    def wake(self, link: Link) -> None:
        """Schedule a pipeline in this round or in the next."""
        self._woken.add(link)
        if not self._in_round and not self._is_rung:
            self._is_rung = True
            os.eventfd_write(self._bell, 1)

    async def run(self) -> None:
        """Serve until cancelled, then close everything."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                for _ in range(ROUNDS_MAX):
                    self._has_answered = False
                    self._round()
                    if not self._has_answered or not self._patience.pays():
                        break
        finally:
            for seat in list(self._seats.values()):
                self._drop(seat)
            self._is_rung = True  # a later wake must not write to the closed eventfd
            self._epoll.close()
            os.close(self._bell)

    def _round(self) -> None:
        # Each socket is read in one place per round, so that no client is served twice while
        # another waits. Unread bytes make the level-triggered epoll ready again.
        self._in_round = True
        for descriptor, mask in self._epoll.poll(0, EVENTS_PER_ROUND):
            seat = self._seats.get(descriptor)
            if seat is not None:
                self._ready(seat, mask)
            elif descriptor == self._bell:
                os.eventfd_read(self._bell)
                self._is_rung = False
        woken, self._woken = self._woken, set()
        for link in woken:
            self._plane.serve(link)
        self._plane.finish()
        woken |= self._woken
        self._woken = set()
        for link in woken:
            woken_seat = self._by_link.get(link)
            if woken_seat is not None:
                self._tend(woken_seat)
        self._in_round = False
        if self._budget.is_over:
            self._budget.relieve()
        if self._woken:
            self.wake(self._woken.pop())

    # One socket

    def _ready(self, seat: Seat, mask: int) -> None:
        link = seat.link
        if mask & GONE:
            self._drop(seat)
            return
        if mask & READ:
            if link.can_read:
                if seat.envelope is None:
                    self._receive(seat)
                else:
                    self._unwrap(seat, seat.envelope)
            elif not link.can_go_on:
                self._watch(seat, seat.interest & ~READ)
        if mask & WRITE:
            self._woken.add(link)

    def _receive(self, seat: Seat) -> None:
        link, missing_bytes = seat.link, 0
        for _ in range(READS_MAX):
            size = self._read(seat)
            if size is None:
                break
            # The missing size of a frame is known only after the scheduler has parsed its head.
            if not size or not missing_bytes or not link.connection.missing_bytes:
                self._plane.serve(link)
            missing_bytes = link.connection.missing_bytes
            if missing_bytes < LOW_MARK_MIN:
                break
            link.note_held()
            if not link.can_read:
                break
        self._wait_for(seat, missing_bytes)

    def _read(self, seat: Seat) -> int | None:
        """Receive once; None if nothing has arrived or the connection is closed."""
        connection = seat.link.connection
        try:
            size = seat.socket.recv_into(connection.get_buffer())
        except BlockingIOError:
            return None
        except OSError:
            self._drop(seat)
            return None
        connection.buffer_updated(size)
        seat.hear(size)
        if size == 0:
            seat.is_deserted = True
            self._watch(seat, seat.interest & ~READ)
        return size

    def _unwrap(self, seat: Seat, envelope: Envelope) -> None:
        """Receive and decode the bytes of a connection with a codec."""
        link = seat.link
        if link in self._woken:
            # Handle earlier requests first, so that unhandled bytes stay within one receive.
            self._plane.serve(link)
        for _ in range(READS_MAX):
            if not link.can_read:
                break
            try:
                data = seat.socket.recv(envelope.receive_bytes)
            except BlockingIOError:
                break
            except OSError:
                self._drop(seat)
                return
            seat.hear(len(data))
            seat.is_deserted = not data
            self._take(seat, data)
            self._plane.serve(link)
            if envelope.missing_bytes < LOW_MARK_MIN:
                break
            link.note_held()
        self._wait_for(seat, envelope.missing_bytes)

    def _take(self, seat: Seat, data: bytes) -> None:
        """Pass received bytes, or the end of the input, to the protocol."""
        connection, envelope = seat.link.connection, seat.envelope
        if envelope is None:
            connection.receive_data(data)
            return
        content = envelope.unwrap(data)
        if content:
            fill(connection, content)
        if envelope.is_ended or seat.is_deserted:
            connection.receive_eof()

    def _wait_for(self, seat: Seat, missing_bytes: int) -> None:
        """Be woken once for much of a large frame, not for every packet of it."""
        seat.link.note_held()
        if missing_bytes and not seat.link.owes:
            acknowledge_early(seat.socket, missing_bytes)
        low_mark = min(missing_bytes, LOW_MARK_MAX) if missing_bytes >= LOW_MARK_MIN else 1
        if low_mark != seat.low_mark and seat.link in self._by_link:
            seat.low_mark = low_mark
            seat.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_mark)

    def _tend(self, seat: Seat) -> None:
        """Send what the socket takes, and choose the events to wait for."""
        link = seat.link
        if seat.envelope is not None and link.is_done and not seat.is_deserted:
            seat.envelope.seal()
        if link.outbox and not seat.is_loading and not self._send(seat):
            return
        link.note_held()
        if link.is_finished:
            self._drop(seat, lingers=not seat.is_deserted)
            return
        if link.session.drawn_to is not None and self._moves(seat):
            return
        wants = WRITE if link.outbox and not seat.is_loading else 0
        if link.can_go_on:
            # Its next turn is in the next round, after the sockets that became ready meanwhile.
            self._woken.add(link)
        elif link.can_read:
            wants |= READ
        elif not link.is_hearing:
            seat.interest &= ~READ
        self._watch(seat, wants | (seat.interest & READ))

    def _moves(self, seat: Seat) -> bool:
        """Migrate a connection if all replies are sent; until then start no new request."""
        link, session = seat.link, seat.link.session
        if self._mover is None or seat.envelope is not None or not link.is_hearing:
            return False
        link.is_moving = link.connection.statistics().buffered_bytes <= MOVED_BYTES_MAX
        if not link.is_moving or link.owes:
            return False
        assert session.drawn_to is not None
        if not link.connection.is_at_rest:
            link.is_moving = False
            return False
        shard_id = session.drawn_to
        session.stay()
        self._wait_for(seat, 0)
        if not self._mover.move(seat.socket, session, link.connection.unread(), shard_id):
            link.is_moving = False
            return False
        self._forget(seat)
        self._close(seat)
        return True

    def _send(self, seat: Seat) -> bool:
        """Write until the socket is full or the turn is over; False if the connection is closed."""
        outbox = seat.link.outbox
        unsent_bytes = outbox.size_bytes
        try:
            if unsent_bytes <= LOADED_BYTES_MAX:
                outbox.load_small(LOADED_BYTES_MAX)
            while outbox and unsent_bytes - outbox.size_bytes < SENT_BYTES_MAX:
                piece = outbox.head_slice()
                if piece is None:
                    size = send_buffers(seat.socket, outbox.head_buffers())
                elif piece.file.descriptor is None or not piece.file.is_cached(
                    min(piece.size, SENDFILE_BYTES_MAX), piece.position
                ):
                    seat.is_loading = True
                    piece = outbox.cut_head(SENDFILE_BYTES_MAX)
                    self._nursery.start_soon(self._load, seat, piece)
                    return True
                else:
                    size = send_file(seat.socket, piece)
                outbox.sent(size)
            seat.stalled_since = None
            self._has_answered = True
        except BlockingIOError:
            if seat.stalled_since is None or outbox.size_bytes < unsent_bytes:
                seat.stalled_since = trio.current_time()
        except (OSError, StorageError):
            self._drop(seat)
            return False
        return True

    async def _load(self, seat: Seat, piece: FileSlice) -> None:
        """Read a piece of a file that is not cached, while other clients are served."""
        try:
            content = await piece.file.read(piece.size, piece.position)
            seat.link.outbox.load_head(content)
        except (StorageError, AssertionError):
            # The head of the reply is sent already, so no error status can follow: close.
            self._drop(seat)
        seat.is_loading = False
        self.wake(seat.link)

    def _watch(self, seat: Seat, interest: int) -> None:
        if interest != seat.interest and seat.link in self._by_link:
            seat.interest = interest
            self._epoll.modify(seat.socket.fileno(), interest)

    def _drop(self, seat: Seat, *, lingers: bool = False) -> None:
        if seat.link not in self._by_link:
            return
        self._forget(seat)
        if lingers:
            self._nursery.start_soon(self._linger, seat)
        else:
            self._close(seat)
        seat.link.is_hearing = False
        seat.link.outbox.clear()
        if seat.link.is_busy:
            seat.link.when_idle = lambda: self._gone(seat.link.session)
        else:
            self._gone(seat.link.session)

    def _forget(self, seat: Seat) -> None:
        """Remove a socket from the epoll and from all tables."""
        descriptor = seat.socket.fileno()
        del self._by_link[seat.link]
        # ``abort`` refers to this object's pipeline: break the cycle, which would keep its buffers
        # alive.
        seat.link.abort = seat.socket.close
        if seat.link.account is not None:
            seat.link.account.close()
            seat.link.account = None
        del self._seats[descriptor]
        self._epoll.unregister(descriptor)

    def _close(self, seat: Seat) -> None:
        seat.socket.close()
        if seat.envelope is None:
            self.plain_count -= 1
        else:
            self.enveloped_count -= 1
        self._leavers.unpark_all()

    async def _linger(self, seat: Seat) -> None:
        """Let the client read its last replies before the socket is closed."""
        connected = seat.socket
        try:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_WR)
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
                await linger(partial(discard, connected), silence_awaited(connected))
        finally:
            self._close(seat)

    # Timeouts and shutdown

    def hang_up_on_the_silent(self) -> None:
        """Close connections that sent nothing, or read nothing, for too long; call periodically."""
        now = trio.current_time()
        for seat in list(self._seats.values()):
            if seat.has_stalled(now):
                self._drop(seat)
            elif seat.is_idle(now):
                if seat.envelope is None:
                    self._drop(seat)
                else:
                    seat.link.end()

    async def drain(self, farewell: int) -> None:
        """Stop reading, and wait until all replies and the closing status are sent."""
        self._farewell = farewell
        for seat in list(self._seats.values()):
            seat.link.part_with(farewell)
        while len(self):
            await self._leavers.park()

    def hang_up(self) -> None:
        """Close the remaining connections at once."""
        for seat in list(self._seats.values()):
            self._drop(seat)
