"""Both ends of a conversation, without a socket.

    connection.receive_data(bytes)      what came from the peer, cut in any way
    connection.next_event()             what it means, one thing at a time
    connection.send(...)                buffers to be written to the peer, in this order

``ServerConnection`` hears requests and answers them, ``ClientConnection`` asks and hears replies.
The classic wire has no request ids: answers belong to requests by their order alone, so both ends
keep a queue of what is outstanding, and an answer is always that to the oldest.

An error that leaves no way to find the next frame is final: ``next_event`` raises it, and raises it
again however often it is called, and what is received afterwards is dropped. A server may
still answer what it owes before it closes.

This module owns the order and keeps the limits. It does no I/O, and what payloads mean is the
registry's affair.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from iggy_protocol import registry
from iggy_protocol.codes import CommandCode
from iggy_protocol.errors import (
    FrameTooLarge,
    LocalProtocolError,
    MalformedFrame,
    RemoteProtocolError,
    UnknownCommand,
)
from iggy_protocol.events import (
    NEED_DATA,
    PAUSED,
    ConnectionClosed,
    ErrorReceived,
    RequestReceived,
    RequestRefused,
    ResponseReceived,
)
from iggy_protocol.framing import CLASSIC, HeadroomBuffer, join_small, size_of
from iggy_protocol.limits import DEFAULT_LIMITS, Limits
from iggy_protocol.receive_buffer import ReceiveBuffer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from iggy_protocol.events import ClientEvent, ServerEvent, Signal
    from iggy_protocol.framing import Framing
    from iggy_protocol.layout import Buffer
    from iggy_protocol.registry import Command

__all__ = ["ClientConnection", "ConnectionStatistics", "ServerConnection"]

SUCCESS = 0
STATUS_MAX = 2**32 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStatistics:
    """What a connection has done so far.

    Attributes:
        frames_in: frames received, refused ones included.
        frames_out: frames handed out for sending.
        bytes_in: bytes received.
        bytes_out: bytes handed out for sending.
        outstanding: requests without an answer.
        buffered_bytes: bytes received and not yet understood.
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


def _too_large(size: int, limit: int) -> FrameTooLarge:
    message = f"a payload of {size} bytes, where {limit} are allowed"
    return FrameTooLarge(message, field="length", need=size, have=limit)


class _Connection(Generic[T]):
    """What both ends have in common: the way in, the end, the queue and the counters.

    Args:
        dialect: the framing of this connection.
        limits: the bounds of this connection.
    """

    def __init__(self, *, dialect: Framing, limits: Limits) -> None:
        self._dialect = dialect
        self._limits = limits
        self._buffer = ReceiveBuffer(
            unread_bytes_max=limits.unread_bytes_max,
            retained_bytes_max=limits.retained_bytes_max,
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
        """The bounds in force; new ones count for every frame that is not complete yet."""
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

    def statistics(self) -> ConnectionStatistics:
        """Return what the connection has done so far."""
        return ConnectionStatistics(
            frames_in=self._frames_in,
            frames_out=self._frames_out,
            bytes_in=self._bytes_in,
            bytes_out=self._bytes_out,
            outstanding=len(self._outstanding),
            buffered_bytes=len(self._buffer),
            reserved_bytes=self._buffer.reserved_bytes,
            chunk_allocations=self._buffer.chunk_allocations,
            copied_bytes=self._buffer.copied_bytes,
        )

    # Bytes in

    def receive_data(self, data: Buffer) -> None:
        """Take what came from the peer.

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
            hint: a wish for at least so many bytes.

        Raises:
            LocalProtocolError: too much is unread, or the peer has closed.
        """
        self._check_not_ended()
        return self._buffer.get_buffer(hint)

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
        """Note that the peer sends nothing more; may be said twice."""
        self._is_ended = True

    def _check_not_ended(self) -> None:
        if self._is_ended:
            raise LocalProtocolError("the peer has closed and cannot send more")

    # Events out

    def _starved(self) -> ConnectionClosed | Literal[Signal.NEED_DATA]:
        """Return what there is to say when the bytes at hand make no event."""
        if not self._is_ended:
            return NEED_DATA
        return ConnectionClosed(mid_frame=bool(self._discarding_bytes or len(self._buffer)))

    def _discard(self, size: int) -> None:
        """Drop the next ``size`` bytes, those included that are still to come."""
        self._discarding_bytes = size - self._buffer.skip(size)

    def _is_stuck(self) -> bool:
        """Say whether bytes must be dropped that did not come yet; raise the final error if any."""
        if self._error is not None:
            # The same object again, without the traceback of the time before.
            raise self._error.with_traceback(None)
        if self._discarding_bytes:
            self._discard(self._discarding_bytes)
        return self._discarding_bytes > 0

    def _fail(self, error: RemoteProtocolError) -> NoReturn:
        """Enter the state that nothing leads out of."""
        self._error = error
        self._buffer.skip(len(self._buffer))
        raise error

    # Frames out

    def _check_payload(self, size: int) -> None:
        if not 0 <= size <= self._dialect.payload_bytes_max:
            raise LocalProtocolError(f"no frame can hold a payload of {size} bytes")

    def _count_out(self, size: int) -> None:
        self._frames_out += 1
        self._bytes_out += size


class ServerConnection(_Connection[int]):
    """The server's end: requests come in, answers go out in the same order."""

    def __init__(self, *, dialect: Framing = CLASSIC, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(dialect=dialect, limits=limits)
        self._head_bytes = dialect.request_head_bytes

    def next_event(self) -> ServerEvent:
        """Return the next thing that happened, or why there is none.

        Every RequestReceived and RequestRefused must be answered, in their order.

        Raises:
            FrameTooLarge: a request other than SendMessages is above its limit. Its payload is
                not waited for, so nothing after it can be understood. Answer what is outstanding;
                the last answer is ``send_error(error.status)`` for this request. Then close.
        """
        if self._is_stuck():
            return self._starved()
        if len(self._outstanding) >= self._limits.pipelined_max:
            return PAUSED
        buffer, head_bytes = self._buffer, self._head_bytes
        if not buffer.ensure(head_bytes):
            return self._starved()
        code, size = self._dialect.read_request_head(buffer.view, buffer.start)
        if not 0 <= size <= self._limits.request_bytes_max(code):
            return self._refuse(code, size)
        if not buffer.ensure(head_bytes + size):
            return self._starved()
        payload = buffer.take(head_bytes, head_bytes + size)
        self._accept(code)
        return RequestReceived(code, payload)

    def _accept(self, code: int) -> None:
        self._frames_in += 1
        self._outstanding.append(code)

    def _refuse(self, code: int, size: int) -> RequestRefused:
        """Skip a frame that cannot be a request, or fail where skipping is no use.

        A SendMessages above the limit is skipped: its client is sound and would only reconnect to
        send the same again. The refusal is told at once and the body dropped as it comes, so
        that a server may also choose to hang up instead of receiving all of it.
        """
        self._accept(code)
        if size < 0:
            self._discard(self._head_bytes)
            error = MalformedFrame("a frame's length counts at least the code", field="length")
            return RequestRefused(code, error)
        too_large = _too_large(size, self._limits.request_bytes_max(code))
        if code != CommandCode.SEND_MESSAGES:
            self._fail(too_large)
        self._discard(self._head_bytes + size)
        return RequestRefused(code, too_large)

    def send(self, reply: object) -> list[Buffer]:
        """Answer the oldest outstanding request with success.

        Args:
            reply: the reply of that command; None for those that have none to give.

        Returns:
            What to write to the client, in order.

        Raises:
            LocalProtocolError: nothing is outstanding, or the reply does not fit the command.
        """
        code = self._oldest()
        try:
            payload = registry.encode_reply(code, reply)
        except UnknownCommand:
            raise LocalProtocolError(f"{code} is no command: answer it with an error") from None
        return self.send_payload(payload)

    def send_payload(self, parts: Sequence[Buffer]) -> list[Buffer]:
        """Answer the oldest outstanding request with a reply that is encoded already.

        Args:
            parts: the payload in pieces; the large ones are passed on and not copied.

        Raises:
            LocalProtocolError: nothing is outstanding, or no frame can hold the payload.
        """
        head = self.send_head(size_of(parts))
        return join_small([head, *parts]) if parts else [head]

    def send_head(self, payload_bytes: int) -> bytes:
        """Answer the oldest outstanding request with a reply that the caller sends by itself.

        For payloads that never pass through this process, such as a file given to ``sendfile``.

        Args:
            payload_bytes: how many bytes the caller is going to write after the returned ones.

        Raises:
            LocalProtocolError: nothing is outstanding, or no frame can hold the payload.
        """
        self._oldest()
        if payload_bytes == 1:
            raise LocalProtocolError("a reply cannot be one byte: official clients do not read it")
        self._check_payload(payload_bytes)
        self._outstanding.popleft()
        head = self._dialect.response_head(SUCCESS, payload_bytes)
        self._count_out(len(head) + payload_bytes)
        return head

    def send_error(self, status: int) -> list[Buffer]:
        """Answer the oldest outstanding request with an error.

        Raises:
            LocalProtocolError: nothing is outstanding, or the status is not one of an error.
        """
        self._oldest()
        frame = self.push_error(status)
        self._outstanding.popleft()
        return frame

    def push_error(self, status: int) -> list[Buffer]:
        """Tell the client something it did not ask for, as a server does that stops.

        A client with outstanding requests takes it for the answer to the oldest of them.

        Raises:
            LocalProtocolError: the status is not one of an error.
        """
        if not SUCCESS < status <= STATUS_MAX:
            raise LocalProtocolError(f"{status} is no status of an error")
        head = self._dialect.response_head(status, 0)
        self._count_out(len(head))
        return [head]

    def _oldest(self) -> int:
        if not self._outstanding:
            raise LocalProtocolError("no request is waiting for an answer")
        return self._outstanding[0]


class ClientConnection(_Connection["Command[Any]"]):
    """The client's end: commands go out, replies come in, in the same order."""

    def __init__(self, *, dialect: Framing = CLASSIC, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(dialect=dialect, limits=limits)
        self._head_bytes = dialect.response_head_bytes

    def send(self, command: Command[Any]) -> list[Buffer]:
        """Ask for something.

        Returns:
            What to write to the server, in order. Nothing large was copied to make it.

        Raises:
            LocalProtocolError: a field does not fit the wire, the request is above its limit, too
                many are outstanding, or the connection is at its end.
        """
        self._check_not_ended()
        if self._error is not None:
            raise LocalProtocolError(f"the connection has failed: {self._error.message}")
        if len(self._outstanding) >= self._limits.outstanding_max:
            raise LocalProtocolError(f"{len(self._outstanding)} requests are unanswered already")
        parts = registry.encode_request(command)
        prepared = parts[0] if len(parts) == 1 else None
        if isinstance(prepared, HeadroomBuffer):
            frame = self._frame_in_place(command.CODE, prepared)
        else:
            frame = self._frame(command.CODE, parts)
        self._outstanding.append(command)
        self._count_out(size_of(frame))
        return frame

    def _frame(self, code: int, parts: Sequence[Buffer | HeadroomBuffer]) -> list[Buffer]:
        payload = [part for part in parts if not isinstance(part, HeadroomBuffer)]
        assert len(payload) == len(parts), "a buffer with headroom is a payload of its own"
        size = size_of(payload)
        self._check_request(code, size)
        return join_small([self._dialect.request_head(code, size), *payload])

    def _frame_in_place(self, code: int, prepared: HeadroomBuffer) -> list[Buffer]:
        buffer, headroom = prepared.buffer, prepared.headroom
        size = len(buffer) - headroom
        self._check_request(code, size)
        start = headroom - self._dialect.request_head_bytes
        if start < 0:
            return [self._dialect.request_head(code, size), memoryview(buffer)[headroom:]]
        self._dialect.write_request_head(buffer, start, code, size)
        return [memoryview(buffer)[start:] if start else buffer]

    def _check_request(self, code: int, size: int) -> None:
        self._check_payload(size)
        limit = self._limits.request_bytes_max(code)
        if size > limit:
            raise LocalProtocolError(f"a payload of {size} bytes, where {limit} are allowed")

    def next_event(self) -> ClientEvent:
        """Return the next thing that happened, or why there is none.

        Raises:
            RemoteProtocolError: the server's bytes make no sense. Close the connection.
        """
        if self._is_stuck():
            return self._starved()
        buffer, head_bytes = self._buffer, self._head_bytes
        if not buffer.ensure(head_bytes):
            return self._starved()
        status, size = self._dialect.read_response_head(buffer.view, buffer.start)
        if size > self._limits.response_bytes_max:
            self._fail(_too_large(size, self._limits.response_bytes_max))
        if status != SUCCESS:
            return self._hear_error(status, size)
        if not self._outstanding:
            self._fail(RemoteProtocolError("a reply came that nobody asked for", have=size))
        if not buffer.ensure(head_bytes + size):
            return self._starved()
        payload = buffer.take(head_bytes, head_bytes + size)
        self._frames_in += 1
        return ResponseReceived(self._outstanding.popleft(), payload)

    def _hear_error(self, status: int, size: int) -> ErrorReceived:
        # Errors have no payload. If one has, the next frame is behind it all the same.
        self._discard(self._head_bytes + size)
        self._frames_in += 1
        return ErrorReceived(self._outstanding.popleft() if self._outstanding else None, status)
