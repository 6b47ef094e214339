"""The common part of client and server connections.

It has the receive buffer, the queue of outstanding requests, the end of the stream, the final error
and the counters. ``connection`` and ``vsr`` add what frames mean on each side.
"""

from __future__ import annotations

from collections import deque
from dataclasses import fields
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from iggy_protocol.codes import CommandCode
from iggy_protocol.errors import FrameTooLarge, LocalProtocolError, RemoteProtocolError
from iggy_protocol.events import NEED_DATA, ConnectionClosed, Signal
from iggy_protocol.framing import size_of
from iggy_protocol.receive_buffer import RETAINED_BYTES_MAX, ReceiveBuffer
from iggy_protocol.records import record
from iggy_protocol.status_table import StatusCode

if TYPE_CHECKING:
    from typing import Literal

    from iggy_protocol.layout import Buffer


T = TypeVar("T")


@record(kw_only=True)
class ConnectionStatistics:
    """What a connection has done so far.

    Attributes:
        frames_in: frames received, refused ones included.
        frames_out: frames handed out for sending.
        bytes_in: bytes received.
        bytes_out: bytes handed out for sending.
        outstanding: requests without an answer.
        buffered_bytes: bytes received and not yet decoded.
        reserved_bytes: memory that is kept for receiving at present.
        chunk_allocations: how often memory was allocated for receiving.
        copied_bytes: how many of the received bytes were copied or moved.
    """

    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    outstanding: int
    buffered_bytes: int
    reserved_bytes: int
    chunk_allocations: int
    copied_bytes: int


def frame_too_large(size: int, limit: int) -> FrameTooLarge:
    """Make the error for a payload above its limit."""
    message = f"a payload of {size} bytes, where {limit} are allowed"
    return FrameTooLarge(message, field="length", need=size, have=limit)


class BaseConnection(Generic[T]):
    """Input, end of stream, outstanding requests and counters of a connection.

    Args:
        payload_bytes_max: the largest payload that a frame of this connection can announce.
        limits: the bounds of this connection.
        keeps_spare: whether a chunk with live views is kept for later use.
    """

    def __init__(
        self, *, payload_bytes_max: int, limits: Limits, keeps_spare: bool = False
    ) -> None:
        self._payload_bytes_max = payload_bytes_max
        self._limits = limits
        self._buffer = ReceiveBuffer(
            unread_bytes_max=limits.unread_bytes_max,
            retained_bytes_max=limits.retained_bytes_max,
            keeps_spare=keeps_spare,
        )
        self._outstanding: deque[T] = deque()
        self._error: RemoteProtocolError | None = None
        self._is_ended = False
        self._discarding_bytes = 0
        self._frames_in = 0
        self._frames_out = 0
        self._bytes_in = 0
        self._bytes_out = 0

    @property
    def limits(self) -> Limits:
        """The current limits; new ones apply to every frame that is not complete yet."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = limits
        self._buffer.unread_bytes_max = limits.unread_bytes_max
        self._buffer.retained_bytes_max = limits.retained_bytes_max

    @property
    def outstanding(self) -> int:
        """The number of requests without an answer."""
        return len(self._outstanding)

    @property
    def frames_in(self) -> int:
        """The number of frames received so far."""
        return self._frames_in

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes received and not yet decoded."""
        return len(self._buffer)

    @property
    def is_mid_frame(self) -> bool:
        """Whether an incomplete frame has been received.

        Meaningful after NEED_DATA; before that the unread bytes may be a whole frame.
        """
        return self._discarding_bytes > 0 or len(self._buffer) > 0

    def statistics(self) -> ConnectionStatistics:
        """Return what the connection has done so far."""
        return ConnectionStatistics(
            frames_in=self._frames_in,
            frames_out=self._frames_out,
            bytes_in=self._bytes_in,
            bytes_out=self._bytes_out,
            outstanding=self.outstanding,
            buffered_bytes=len(self._buffer),
            reserved_bytes=self._buffer.reserved_bytes,
            chunk_allocations=self._buffer.chunk_allocations,
            copied_bytes=self._buffer.copied_bytes,
        )

    # Bytes in

    def receive_data(self, data: Buffer) -> None:
        """Take bytes from the peer.

        Args:
            data: any bytes; ``bytes`` are not copied, so do not build them from something else.
                No bytes at all mean that the peer has closed, as with ``socket.recv``.

        Raises:
            LocalProtocolError: too much is unread, or the peer has closed before.
        """
        if not len(data):
            self.receive_eof()
            return
        self._check_not_ended()
        if self._error is None:
            self._buffer.receive_data(data)
        self._bytes_in += size_of([data])

    def get_buffer(self, hint: int = -1) -> memoryview:
        """Return space for the peer's next bytes, as ``asyncio.BufferedProtocol`` wants it.

        Args:
            hint: the preferred size in bytes.

        Raises:
            LocalProtocolError: too much is unread, or the peer has closed.
        """
        self._check_not_ended()
        return self._buffer.get_buffer(hint)

    @property
    def missing_bytes(self) -> int:
        """How many bytes the next event still needs, if known after NEED_DATA; else 0.

        A reader may wait for so many at once instead of being woken for every packet.
        """
        return self._buffer.missing_bytes

    def buffer_updated(self, size: int) -> None:
        """Take ``size`` bytes that were read into the space of ``get_buffer``; 0 is the end.

        Raises:
            LocalProtocolError: no space of that size was offered.
        """
        self._buffer.buffer_updated(size)
        self._bytes_in += size
        if self._error is not None:
            self._buffer.skip(size)
        if size == 0:
            self.receive_eof()

    def receive_eof(self) -> None:
        """Note that the peer sends nothing more; may be called twice."""
        self._is_ended = True

    def _check_not_ended(self) -> None:
        if self._is_ended:
            raise LocalProtocolError("the peer has closed and cannot send more")

    # Events out

    def _no_event(self) -> ConnectionClosed | Literal[Signal.NEED_DATA]:
        """Return NEED_DATA, or ConnectionClosed after the end of the stream."""
        if not self._is_ended:
            return NEED_DATA
        return ConnectionClosed(mid_frame=bool(self._discarding_bytes or len(self._buffer)))

    def _discard(self, size: int) -> None:
        """Drop the next ``size`` bytes, including those not received yet."""
        self._discarding_bytes = size - self._buffer.skip(size)

    def _is_discarding(self) -> bool:
        """Return whether bytes must be dropped that are not received yet; raise the final error."""
        if self._error is not None:
            # The same object again, without the traceback of the time before.
            raise self._error.with_traceback(None)
        if self._discarding_bytes:
            self._discard(self._discarding_bytes)
        return self._discarding_bytes > 0

    def _fail(self, error: RemoteProtocolError) -> NoReturn:
        """Make an error final, drop the input, and raise the error."""
        self._error = error
        self._buffer.skip(len(self._buffer))
        raise error

    # Frames out

    def _check_payload(self, size: int) -> None:
        if not 0 <= size <= self._payload_bytes_max:
            raise LocalProtocolError(f"no frame can hold a payload of {size} bytes")

    def _count_out(self, size: int) -> None:
        self._frames_out += 1
        self._bytes_out += size


class BaseServerConnection(BaseConnection[T]):
    """What the server's side of a connection does whatever its framing.

    Attributes:
        is_authenticated: whether the client has logged in. While it has not, no request may
            be longer than ``limits.unauthenticated_bytes_max``. The server sets this at a login
            and at a logout; it applies to every frame that is not complete yet.
    """

    def __init__(self, *, payload_bytes_max: int, limits: Limits, is_authenticated: bool) -> None:
        super().__init__(payload_bytes_max=payload_bytes_max, limits=limits)
        self.is_authenticated = is_authenticated

    def _request_bytes_max(self, code: int) -> int:
        if self.is_authenticated:
            return self._limits.request_bytes_max(code)
        return min(self._limits.unauthenticated_bytes_max, self._limits.request_bytes_max(code))

    def _too_large(self, code: int, size: int) -> FrameTooLarge:
        """Make the error for a request above its limit."""
        error = frame_too_large(size, self._request_bytes_max(code))
        if size <= self._limits.request_bytes_max(code):
            error.status = int(StatusCode.UNAUTHENTICATED)
        return error

    @property
    def is_idle(self) -> bool:
        """Whether every request is answered and nothing is being skipped."""
        return not (self._outstanding or self._discarding_bytes or self._error or self._is_ended)

    @property
    def needs_data(self) -> bool:
        """Whether ``next_event`` would return NEED_DATA, because no unread bytes are left."""
        return not (self._buffer.start != self._buffer.end or self._is_ended or self._error)

    def unread(self) -> bytes:
        """Return a copy of the received bytes that are not part of a returned request.

        For a server that moves a client to another process, which feeds them to a new connection.

        Raises:
            LocalProtocolError: requests are outstanding, so replies would be lost.
        """
        if not self.is_idle:
            raise LocalProtocolError("a connection with outstanding requests cannot be moved")
        return self._copy_unread()

    def _copy_unread(self) -> bytes:
        buffer = self._buffer
        buffer.ensure(len(buffer))
        return bytes(buffer.view[buffer.start : buffer.start + len(buffer)])

    def _oldest(self) -> T:
        if not self._outstanding:
            raise LocalProtocolError("no request is waiting for an answer")
        return self._outstanding[0]


class BaseClientConnection(BaseConnection[T]):
    """What the client's side of a connection does whatever its framing."""

    def __init__(self, *, payload_bytes_max: int, limits: Limits) -> None:
        super().__init__(payload_bytes_max=payload_bytes_max, limits=limits, keeps_spare=True)
        self._last_reply_bytes = 0

    def get_buffer(self, hint: int = -1) -> memoryview:
        """Return space for the server's next bytes.

        A client that polls one large reply after the other can read each with one call. That needs
        no copy as long as nothing can follow a reply, so only with one request outstanding.

        Args:
            hint: a wish for at least so many bytes.

        Raises:
            LocalProtocolError: too much is unread, or the server has closed.
        """
        self._check_not_ended()
        if hint < 0 and self.outstanding == 1:
            hint = self._last_reply_bytes
        return self._buffer.get_buffer(hint)

    @property
    def is_idle(self) -> bool:
        """Whether no request is outstanding and no bytes are unread."""
        is_silent = not (self.outstanding or self._discarding_bytes or len(self._buffer))
        return is_silent and self._error is None and not self._is_ended


# The limits of one connection, with the reasons for their numbers.


SEND_MESSAGES = int(CommandCode.SEND_MESSAGES)
"""A plain number, because every frame is compared with it."""


@record(kw_only=True)
class Limits:
    """The bounds of one connection; assign ``connection.limits`` to change them later.

    Attributes:
        control_bytes_max: payload of any request but SendMessages; the number of Apache Iggy 0.8.
        send_bytes_max: payload of SendMessages, for which Apache Iggy 0.8 has no limit. One
            message may have 64,000,000 bytes and 100,000 of user headers; both fit.
        unauthenticated_bytes_max: payload of any request of a client that a server has not
            authenticated. A login is two names, a password and two short texts, a few hundred
            bytes; this leaves a margin for longer texts.
        pipelined_max: requests that a server accepts before it answers the first; enough for
            clients that pipeline single messages, and a limit for what a slow server buffers.
        outstanding_max: requests that a client sends before the first is answered.
        response_bytes_max: payload of a reply. A poll has no limit in bytes, so this limit is
            large; it protects against a peer that is no Iggy server.
        unread_bytes_max: received bytes that may be buffered while the caller does not call
            ``next_event``, or while that returns PAUSED. It counts neither the frame that
            ``next_event`` waits for nor one input of the caller, so it need not be larger than a
            few socket reads.
        retained_bytes_max: the largest receive buffer that is kept when it is empty.
    """

    control_bytes_max: int = 10_485_760
    send_bytes_max: int = 67_108_864
    unauthenticated_bytes_max: int = 16_384
    pipelined_max: int = 4_096
    outstanding_max: int = 4_096
    response_bytes_max: int = 268_435_456
    unread_bytes_max: int = 1_048_576
    retained_bytes_max: int = RETAINED_BYTES_MAX

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise LocalProtocolError("a limit is at least 1", field=field.name)

    def request_bytes_max(self, code: int) -> int:
        """Return the limit for the payload of a request."""
        return self.send_bytes_max if code == SEND_MESSAGES else self.control_bytes_max


DEFAULT_LIMITS = Limits()
