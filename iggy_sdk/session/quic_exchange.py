"""Requests over QUIC: one request on one stream, a pool of codecs, and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from iggy_protocol import (
    Buffer,
    ClientConnection,
    ConnectionStatistics,
    ErrorReceived,
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
    ResponseReceived,
    VsrClientConnection,
)
from iggy_sdk.errors import IggyError, ProtocolError, describe_command, error_from_protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iggy_sdk.session.pending_requests import PendingRequest


ExchangeOutcome: TypeAlias = ResponseReceived[Any] | ErrorReceived | IggyError

POOLED_CONNECTIONS_MAX: Final = 4
"""How many codecs are pooled; each may hold the memory of a large reply."""


class QuicExchange:
    """A request, its stream once it is open, and the task that waits for the reply."""

    __slots__ = ("_parts", "connection", "pending", "size_bytes", "stream_id")

    def __init__(
        self,
        pending: PendingRequest,
        connection: ClientConnection | VsrClientConnection,
        parts: Sequence[Buffer],
    ) -> None:
        self.pending: PendingRequest = pending
        self.connection: ClientConnection | VsrClientConnection = connection
        self._parts = parts
        self.size_bytes: int = sum(map(len, parts))
        self.stream_id: int | None = None

    def take_parts(self) -> Sequence[Buffer]:
        """Return what to write to the stream, and keep it no longer."""
        parts, self._parts = self._parts, ()
        return parts

    def receive(self, data: bytes, *, is_last: bool, peer: str) -> ExchangeOutcome | None:
        """Decode bytes of the reply; return the outcome once it is complete.

        Args:
            data: the bytes.
            is_last: whether the server has finished the stream.
            peer: the name of the server, for errors.
        """
        command = self.pending.command
        try:
            if data:
                self.connection.receive_data(data)
            event = self.connection.next_event()
        except RemoteProtocolError as error:
            failure = error_from_protocol(error, command=command)
            failure.__cause__ = error
            return failure
        if isinstance(event, ResponseReceived | ErrorReceived):
            return event
        if not is_last:
            return None
        text = f"{describe_command(command)}: {peer} ended the stream without a reply"
        return ProtocolError(text)

    def resolve(self, outcome: ExchangeOutcome) -> None:
        """Set the outcome and wake the task of the request; the first outcome counts."""
        pending = self.pending
        if pending.outcome is None:
            pending.outcome = outcome
            if pending.wake is not None:
                pending.wake.set()


class QuicExchangePool:
    """Encodes requests, with codecs that are used again."""

    __slots__ = ("_idle", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._idle: list[ClientConnection] = []

    def begin(self, pending: PendingRequest) -> QuicExchange:
        """Encode a request; nothing is sent yet.

        Raises:
            InvalidRequestError: a field does not fit the wire, or the request is too large.
        """
        connection = self._idle.pop() if self._idle else ClientConnection(limits=self._limits)
        try:
            return QuicExchange(pending, connection, connection.send(pending.command))
        except LocalProtocolError as error:
            raise error_from_protocol(error, command=pending.command) from error

    def end(self, exchange: QuicExchange) -> None:
        """Pool the codec of a finished request, if it holds no rest of a reply."""
        codec = exchange.connection
        if len(self._idle) >= POOLED_CONNECTIONS_MAX or not isinstance(codec, ClientConnection):
            return
        if codec.is_idle:
            self._idle.append(codec)


# Counters of one QUIC connection, finished streams included.


class TrafficCounters:
    """Counters of one connection.

    Attributes:
        frames_in: replies and errors that the server gave.
        frames_out: requests that were given a stream.
        bytes_in: bytes of replies.
        bytes_out: bytes of requests.
        timeouts_count: requests whose reply did not arrive in time.
        abandoned_count: requests that were cancelled or timed out before the reply.
    """

    __slots__ = (
        "abandoned_count",
        "bytes_in",
        "bytes_out",
        "frames_in",
        "frames_out",
        "timeouts_count",
    )

    def __init__(self) -> None:
        self.frames_in: int = 0
        self.frames_out: int = 0
        self.bytes_in: int = 0
        self.bytes_out: int = 0
        self.timeouts_count: int = 0
        self.abandoned_count: int = 0

    def statistics(
        self, connections: Iterable[ClientConnection | VsrClientConnection]
    ) -> ConnectionStatistics:
        """Return the counters, and the memory that open streams hold."""
        counters = [one.statistics() for one in connections]
        return ConnectionStatistics(
            frames_in=self.frames_in,
            frames_out=self.frames_out,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            outstanding=sum(one.outstanding for one in counters),
            buffered_bytes=sum(one.buffered_bytes for one in counters),
            reserved_bytes=sum(one.reserved_bytes for one in counters),
            chunk_allocations=sum(one.chunk_allocations for one in counters),
            copied_bytes=sum(one.copied_bytes for one in counters),
        )
