"""The sockets of a shard: one task, one epoll of its own, all that is ready in one wake.

A task per connection would cost a switch per small request. Here trio wakes a single task when
any socket of the shard is ready; it receives from each, lets the data plane serve them all, and
sends what is owed. Sockets are read once per round, so that nobody is served twice while another
waits; what is left makes the epoll ready again.

Connections are plain, or wrapped in an envelope as those of WebSocket are; one wake serves both.

Owns descriptors and readiness. What bytes mean is the data plane's affair.
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
# A wake costs about as much as receiving 64 KiB; more than the high mark would idle the core.
LOW_MARK_MIN, LOW_MARK_MAX = 1 << 16, 1 << 18
# How often a socket with a large frame is asked in one round; what comes while the last piece is
# copied costs no wake then. Enough for a batch of a megabyte, and little for those who wait.
READS_MAX = 8
# What one socket is sent in a round: a client that reads as fast as it is written to would keep the
# others waiting. Enough for four batches of a megabyte; the rest makes the epoll ready again.
SENT_BYTES_MAX = 4 << 20
# What is read for less than it costs to send it by itself.
LOADED_BYTES_MAX = 1 << 14
# How often the room goes round before everything else on the loop has its turn.
ROUNDS_MAX = 4
# Bytes of a next request that move with a connection; one packet between shards holds them.
MOVED_BYTES_MAX = 1 << 16
UNBOUNDED_BYTES = 1 << 63


class Mover(Protocol):
    """Takes connections to the shards that have what they ask for."""

    def move(
        self, connected: socket.socket, session: Session, unread: bytes, shard_id: int
    ) -> bool:
        """Have another shard go on with a connection; False when it must stay."""


class SocketRoom:
    """All connections of a shard that are sockets without TLS.

    Args:
        plane: serves the requests.
        limits: the bounds of each plain connection; an envelope brings its own.
        nursery: for reads of file pages that are not in memory.
        gone: told the session of each connection that has ended.
        mover: hands plain connections over to other shards, if they may move.
        budget: what all connections may hold together.

    Attributes:
        plain_count: the connections without an envelope, down to those that are being closed.
        enveloped_count: the others.
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
            unread: what somebody else has received from it.
            envelope: what its bytes are wrapped in, those that were received included.
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
        """Have the link looked at in this round or in the next."""
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
            self._is_rung = True  # nobody is there to hear it any more
            self._epoll.close()
            os.close(self._bell)

    def _round(self) -> None:
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
            # What is missing of a frame is known once somebody has looked for it.
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
        """Take what has come; None when nothing has, or the connection is gone."""
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
        """Take what has come in an envelope."""
        link = seat.link
        if link in self._woken:
            # What came before is looked at first, so that never more is unread than was received.
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
        """Pass on what was received, or the end."""
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
        """Send what can be sent, and see what to wait for next."""
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
            # Its next turn is in the next round, after those who came meanwhile.
            self._woken.add(link)
        elif link.can_read:
            wants |= READ
        elif not link.is_hearing:
            seat.interest &= ~READ
        self._watch(seat, wants | (seat.interest & READ))

    def _moves(self, seat: Seat) -> bool:
        """Hand a connection over if nothing is owed; until then have it begin nothing new."""
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
        """Write until the socket is full or a turn is over; False when the connection is gone."""
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
        """Read what is not in memory, while the others are served."""
        try:
            content = await piece.file.read(piece.size, piece.position)
            seat.link.outbox.load_head(content)
        except (StorageError, AssertionError):
            # The head of the reply is out already: the only honest thing left is to hang up.
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
        """Have nothing more to do with a socket."""
        descriptor = seat.socket.fileno()
        del self._by_link[seat.link]
        # The link must not keep itself alive, and with it what it has received.
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
        """Let the client read its last answers before the socket is closed."""
        connected = seat.socket
        try:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_WR)
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
                await linger(partial(discard, connected), silence_awaited(connected))
        finally:
            self._close(seat)

    # Manners

    def hang_up_on_the_silent(self) -> None:
        """Close what has said nothing, or read nothing, for too long; call this now and then."""
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
        """Hear nothing more, and wait until all that is owed has been sent, and a last word."""
        self._farewell = farewell
        for seat in list(self._seats.values()):
            seat.link.part_with(farewell)
        while len(self):
            await self._leavers.park()

    def hang_up(self) -> None:
        """Close what is left, whatever it is owed."""
        for seat in list(self._seats.values()):
            self._drop(seat)
