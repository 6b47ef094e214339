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
from typing import TYPE_CHECKING, Protocol

import trio

from iggy_protocol import Limits, record
from iggy_ref_server.client_limits import RequestProgress
from iggy_ref_server.net.pipeline import DISCARD_BYTES, RequestPipeline

if TYPE_CHECKING:
    from iggy_ref_server.dispatch.replies import OutputBuffer
    from iggy_ref_server.net.pipeline import AnyServerConnection
    from iggy_ref_server.net.tls_codec import TlsCodec
    from iggy_ref_server.storage.interface import FileSlice


# Up to this size a copy costs less than handling small sends one by one.
COPIED_BYTES_MAX = 1 << 16
# A large reply is sent in pieces, so that other clients are served in between.
SENDFILE_BYTES_MAX = 1 << 20
INT = struct.Struct("i")


# The largest TCP segment of any network. A client that has more to send is not waiting for an ACK.
SEGMENT_BYTES_MAX = 1 << 16


@record(kw_only=True)
class SocketLimits:
    """The limits of a connection.

    Attributes:
        connection: the limits of the protocol.
        output_bytes_max: the unsent replies beyond which the client is not read any more.
        stall_timeout_s: how long a client may leave replies unread, or a request incomplete.
        idle_timeout_s: how long a client may send nothing; 0 is no limit.
    """

    connection: Limits
    output_bytes_max: int
    stall_timeout_s: float
    idle_timeout_s: float


class ByteSource(Protocol):
    """Where the bytes of a client come from: a non-blocking socket, or TLS on one.

    Both raise BlockingIOError while nothing is there, and another OSError for a lost connection.
    """

    def recv_into(self, space: memoryview, /) -> int:
        """Receive into a buffer; 0 at the end."""

    def recv(self, size: int, /) -> bytes:
        """Receive bytes; none at the end."""


class SocketConnection:
    """A socket, its pipeline and its readiness.

    Args:
        connected: the socket.
        pipeline: the requests and replies of the client.
        limits: the limits of the connection.
        codec: decodes and encodes the frames of its transport; None for TCP.
        tls: decrypts and encrypts its bytes; None without TLS.
        interest: the epoll events that are waited for.

    Attributes:
        space_hint: how much space to read into is asked for; -1 leaves it to the protocol.
    """

    __slots__ = (
        "_progress",
        "codec",
        "has_eof",
        "interest",
        "is_reading_file",
        "last_received_at",
        "limits",
        "low_mark",
        "pipeline",
        "received_bytes",
        "socket",
        "source",
        "space_hint",
        "stalled_since",
        "tls",
    )

    def __init__(
        self,
        connected: socket.socket,
        pipeline: RequestPipeline,
        limits: SocketLimits,
        codec: TransportCodec | None,
        tls: TlsCodec | None,
        interest: int,
    ) -> None:
        self.socket = connected
        self.tls = tls
        self.source: ByteSource = connected if tls is None else tls
        self.pipeline = pipeline
        self.limits = limits
        self.codec = codec
        self.interest = interest
        self.has_eof = False
        self.is_reading_file = False
        self.low_mark = 1
        self.space_hint = -1
        self.last_received_at = trio.current_time()
        self.received_bytes = 0
        self.stalled_since: float | None = None
        self._progress = RequestProgress(limits.stall_timeout_s)

    @property
    def is_plain(self) -> bool:
        """Whether the bytes of the client are those of the protocol."""
        return self.codec is None and self.tls is None

    def note_received(self, size: int) -> None:
        """Record that ``size`` bytes were received."""
        self.last_received_at = trio.current_time()
        self.received_bytes += size

    def has_stalled(self, now: float) -> bool:
        """Return whether a reply stayed unread, or a request incomplete, for too long."""
        since = self.stalled_since
        if since is not None and now - since > self.limits.stall_timeout_s:
            return True
        pipeline, progress = self.pipeline, self._progress
        if not pipeline.can_read or not self._is_mid_request:
            progress.reset()
            return False
        # With a raised SO_RCVLOWAT the kernel does not report small amounts, which count as well.
        waiting = unread_bytes(self.socket) if self.low_mark > 1 else 0
        progress.note(now, pipeline.connection.frames_in, self.received_bytes + waiting)
        return now >= progress.due_at

    @property
    def _is_mid_request(self) -> bool:
        codec = self.codec
        return self.pipeline.connection.is_mid_frame or (codec is not None and codec.is_mid_frame)

    def is_idle(self, now: float) -> bool:
        """Return whether the client sent nothing for too long and no request is being handled."""
        idle_timeout_s = self.limits.idle_timeout_s
        return (
            bool(idle_timeout_s)
            and now - self.last_received_at > idle_timeout_s
            and not self.pipeline.is_busy
            and not self.pipeline.has_detached
        )


def request_quick_ack(
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


def copy_into_connection(connection: AnyServerConnection, content: bytes) -> None:
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
    (size,) = INT.unpack(fcntl.ioctl(connected, termios.FIONREAD, bytes(INT.size)))
    return int(size)


async def discard_input(connected: socket.socket) -> bool:
    """Discard the next input; False at the end of the input."""
    await trio.lowlevel.wait_readable(connected)
    return bool(connected.recv(DISCARD_BYTES))


# The interface of a transport codec, such as WebSocket framing, on a socket connection.
#
# TCP has no frames and so no such codec. With a codec the socket server decodes what it receives,
# and replies are encoded as they are put into the codec's output buffer. TLS is below it: it
# decrypts what a codec decodes, and encrypts what the output buffer holds.


class TransportCodec(Protocol):
    """The framing of one connection, for both directions."""

    @property
    def limits(self) -> SocketLimits:
        """The limits of the connection."""

    @property
    def output_buffer(self) -> OutputBuffer:
        """Encodes everything that is put into it."""

    @property
    def receive_bytes(self) -> int:
        """How much to receive per call."""

    @property
    def missing_bytes(self) -> int:
        """How many bytes must follow, at most one receive call's worth; 0 when none are known."""

    @property
    def is_mid_frame(self) -> bool:
        """Whether a frame of the codec is incomplete."""

    @property
    def is_ended(self) -> bool:
        """Whether further input is ignored."""

    def decode(self, data: bytes) -> bytes:
        """Decode received bytes, split at any position, and return the payload.

        Replies of the codec itself, such as a pong, go into its output buffer.
        """

    def write_close(self) -> None:
        """Put the closing frame into the output buffer; may be called twice."""
