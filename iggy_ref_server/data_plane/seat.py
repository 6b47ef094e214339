"""The state of one socket connection, and the system calls that read and write its socket.

The socket server takes the decisions.
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

# Up to this size a copy costs less than handling small sends one by one.
COPIED_BYTES_MAX = 1 << 16
# A large reply is sent in pieces, so that other clients are served in between.
SENDFILE_BYTES_MAX = 1 << 20
COUNT = struct.Struct("i")


# The largest TCP segment of any network. A client that has more to send is not waiting for an ACK.
SEGMENT_BYTES_MAX = 1 << 16


@record(kw_only=True)
class SocketLimits:
    """The limits of a connection.

    Attributes:
        connection: the limits of the protocol.
        outbox_bytes_max: the unsent replies beyond which the client is not read any more.
        stalled_s: how long a client may leave replies unread, or a request incomplete.
        idle_s: how long a client may send nothing; 0 is no limit.
    """

    connection: Limits
    outbox_bytes_max: int
    stalled_s: float
    idle_s: float


class Seat:
    """A socket, its pipeline and its readiness.

    Args:
        connected: the socket.
        link: the requests and replies of the client.
        limits: the limits of the connection.
        envelope: decodes and encodes its bytes; None for plain TCP.
        interest: the epoll events that are waited for.
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
        """Record that ``size`` bytes were received."""
        self.last_heard = trio.current_time()
        self.heard_bytes += size

    def has_stalled(self, now: float) -> bool:
        """Return whether a reply stayed unread, or a request incomplete, for too long."""
        since = self.stalled_since
        if since is not None and now - since > self.limits.stalled_s:
            return True
        link, pace = self.link, self._pace
        if not link.can_read or not self._is_mid_request:
            pace.rest()
            return False
        # With a raised SO_RCVLOWAT the kernel does not report small amounts, which count as well.
        waiting = unread_bytes(self.socket) if self.low_mark > 1 else 0
        pace.note(now, link.connection.frames_in, self.heard_bytes + waiting)
        return now >= pace.due_at

    @property
    def _is_mid_request(self) -> bool:
        envelope = self.envelope
        return self.link.connection.is_mid_frame or (envelope is not None and envelope.is_mid_frame)

    def is_idle(self, now: float) -> bool:
        """Return whether the client sent nothing for too long and no request is being handled."""
        idle_s = self.limits.idle_s
        return bool(idle_s) and now - self.last_heard > idle_s and not self.link.is_busy


def acknowledge_early(
    connected: socket.socket | trio.socket.SocketType, missing_bytes: int
) -> None:
    """Make the kernel acknowledge received bytes now if the end of a frame is missing.

    Official clients leave Nagle's algorithm on and write the head and the body of a request in two
    calls. The client's kernel keeps the body until the head is acknowledged. The server's kernel
    delays the ACK for up to 40 ms to put it on a reply, which cannot exist without the body.
    TCP_QUICKACK is not sticky, so it is set for each incomplete frame. It is not set while a reply
    is pending, because the reply carries the ACK.
    """
    if 0 < missing_bytes < SEGMENT_BYTES_MAX and connected.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def fill(connection: ServerConnection, content: bytes) -> None:
    """Pass decoded bytes to the protocol.

    Small content is copied into the connection's own buffer, where a run of small sends can be
    taken as one batch.
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
    """Send as many bytes of the buffers as the socket takes."""
    return connected.send(buffers[0]) if len(buffers) == 1 else connected.sendmsg(buffers)


def send_file(connected: socket.socket, piece: FileSlice) -> int:
    """Have the kernel send as much of a file as the socket takes."""
    descriptor = piece.file.descriptor
    assert descriptor is not None
    size = min(piece.size, SENDFILE_BYTES_MAX)
    sent = os.sendfile(connected.fileno(), descriptor, piece.position, size)
    if sent == 0:
        raise OSError("the segment is shorter than its index says")
    return sent


def unread_bytes(connected: socket.socket) -> int:
    """Return how many bytes wait in the receive buffer of the kernel."""
    (size,) = COUNT.unpack(fcntl.ioctl(connected, termios.FIONREAD, bytes(COUNT.size)))
    return int(size)


async def discard(connected: socket.socket) -> bool:
    """Discard the next input; False at the end of the input."""
    await trio.lowlevel.wait_readable(connected)
    return bool(connected.recv(DISCARD_BYTES))
