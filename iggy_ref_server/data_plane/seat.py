"""A place in the socket room: a socket, the bounds of its client, and what is known of both.

Owns no decisions: those are the room's. Has the calls that a socket is read and written with.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import termios
from typing import TYPE_CHECKING

import trio

from iggy_protocol import Limits, record
from iggy_ref_server.data_plane.lingering import DISCARD_BYTES
from iggy_ref_server.data_plane.pace import RequestPace

if TYPE_CHECKING:
    from iggy_protocol import ServerConnection
    from iggy_ref_server.data_plane.envelope import Envelope
    from iggy_ref_server.data_plane.link import Link
    from iggy_ref_server.storage.interface import FileSlice

__all__ = [
    "Seat",
    "SocketLimits",
    "acknowledge_early",
    "discard",
    "fill",
    "send_buffers",
    "send_file",
    "unread_bytes",
]

# What is copied for less than it costs to take sends one by one.
COPIED_BYTES_MAX = 1 << 16
# A large answer goes out in pieces, so that the others are served in between.
SENDFILE_BYTES_MAX = 1 << 20
COUNT = struct.Struct("i")


# What one segment of any network may hold: a client that has more to send is not waiting yet.
SEGMENT_BYTES_MAX = 1 << 16


@record(kw_only=True)
class SocketLimits:
    """The bounds of a connection.

    Attributes:
        connection: the bounds of the protocol.
        outbox_bytes_max: unsent answers of one client, beyond which it is not read any more.
        stalled_s: how long a client may leave its answers unread, or a request incomplete.
        idle_s: how long a client may say nothing; 0 is for ever.
    """

    connection: Limits
    outbox_bytes_max: int
    stalled_s: float
    idle_s: float


class Seat:
    """A socket and what is known of its readiness.

    Args:
        connected: the socket.
        link: the connection as the data plane sees it.
        limits: its bounds.
        envelope: what its bytes are wrapped in, or None where they come as they are.
        interest: what the room waits for.
    """

    __slots__ = (
        "_pace",
        "envelope",
        "heard_bytes",
        "interest",
        "is_deserted",
        "is_loading",
        "last_heard",
        "limits",
        "link",
        "low_mark",
        "socket",
        "stalled_since",
    )

    def __init__(
        self,
        connected: socket.socket,
        link: Link,
        limits: SocketLimits,
        envelope: Envelope | None,
        interest: int,
    ) -> None:
        self.socket = connected
        self.link = link
        self.limits = limits
        self.envelope = envelope
        self.interest = interest
        self.is_deserted = False
        self.is_loading = False
        self.low_mark = 1
        self.last_heard = trio.current_time()
        self.heard_bytes = 0
        self.stalled_since: float | None = None
        self._pace = RequestPace(limits.stalled_s)

    def hear(self, size: int) -> None:
        """Note that so many bytes were received."""
        self.last_heard = trio.current_time()
        self.heard_bytes += size

    def has_stalled(self, now: float) -> bool:
        """Tell whether the client leaves its answers unread, or a request incomplete, for long."""
        since = self.stalled_since
        if since is not None and now - since > self.limits.stalled_s:
            return True
        link, pace = self.link, self._pace
        if not link.can_read or not self._is_mid_request:
            pace.rest()
            return False
        # Where much is to come nobody is woken for a little of it, which then waits in the socket.
        waiting = unread_bytes(self.socket) if self.low_mark > 1 else 0
        pace.note(now, link.connection.frames_in, self.heard_bytes + waiting)
        return now >= pace.due_at

    @property
    def _is_mid_request(self) -> bool:
        envelope = self.envelope
        return self.link.connection.is_mid_frame or (envelope is not None and envelope.is_mid_frame)

    def is_idle(self, now: float) -> bool:
        """Tell whether the client has said nothing for too long, and nothing is done for it."""
        idle_s = self.limits.idle_s
        return bool(idle_s) and now - self.last_heard > idle_s and not self.link.is_busy


def acknowledge_early(
    connected: socket.socket | trio.socket.SocketType, missing_bytes: int
) -> None:
    """Have the kernel acknowledge what has come, where a client may hold back the end of a frame.

    Official clients leave Nagle's algorithm on and write the head and the body of a request by
    themselves. Their kernel then keeps the body until the head is acknowledged, and ours waits 40
    ms for an answer to put the acknowledgement on, which cannot come without the body. The kernel
    forgets this wish, so it is said for each incomplete frame; but not where an answer is owed to
    the client, which will carry the acknowledgement: a client that pipelines would only be cut up.
    """
    if 0 < missing_bytes < SEGMENT_BYTES_MAX and connected.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def fill(connection: ServerConnection, content: bytes) -> None:
    """Give a connection bytes that were unwrapped.

    A run of small sends is taken together where it lies in the connection's own space.
    """
    size = len(content)
    if size <= COPIED_BYTES_MAX:
        space = connection.get_buffer(size)
        if size <= len(space):
            space[:size] = content
            connection.buffer_updated(size)
            return
    connection.receive_data(content)


def send_buffers(connected: socket.socket, buffers: list[memoryview]) -> int:
    """Send as much of the buffers as fits."""
    return connected.send(buffers[0]) if len(buffers) == 1 else connected.sendmsg(buffers)


def send_file(connected: socket.socket, piece: FileSlice) -> int:
    """Have the kernel send as much of a file as fits."""
    descriptor = piece.file.descriptor
    assert descriptor is not None
    size = min(piece.size, SENDFILE_BYTES_MAX)
    sent = os.sendfile(connected.fileno(), descriptor, piece.position, size)
    if sent == 0:
        raise OSError("the segment is shorter than its index says")
    return sent


def unread_bytes(connected: socket.socket) -> int:
    """Count what has come and was not received."""
    (size,) = COUNT.unpack(fcntl.ioctl(connected, termios.FIONREAD, bytes(COUNT.size)))
    return int(size)


async def discard(connected: socket.socket) -> bool:
    """Throw away what comes next; False when nothing will."""
    await trio.lowlevel.wait_readable(connected)
    return bool(connected.recv(DISCARD_BYTES))
