"""A session on one QUIC connection with a server from 0.9 on: numbered requests on their streams.

All streams share the numbers of one session, so there is one codec for all of them: a reply is
collected on its stream, and decoded when it is whole. A server of 0.9 gets one request at a time,
here as elsewhere, and one whose task has gone keeps its stream until the reply comes.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio

from iggy_protocol import (
    NO_CONTEXT,
    VSR_HEAD_BYTES,
    Buffer,
    ClientConnection,
    Command,
    ErrorReceived,
    EvictionReceived,
    Limits,
    LocalProtocolError,
    PartitionContext,
    Ping,
    PreparedRequest,
    ProbeVerdict,
    RemoteProtocolError,
    ResponseReceived,
    VsrClientConnection,
    judge_probe,
    vsr_probe,
)
from iggy_sdk.errors import (
    DisconnectedError,
    IggyError,
    ProtocolError,
    RequestTimeoutError,
    ServerError,
    describe_command,
    error_from_protocol,
)
from iggy_sdk.session.detection import PROBE_SECONDS_MAX
from iggy_sdk.session.quic import QuicSession, connect_quic
from iggy_sdk.session.quic_exchange import ExchangeOutcome, QuicExchange
from iggy_sdk.session.vsr_session import (
    PreparedPending,
    VsrSession,
    evicted_error,
    logout_request,
    prepare_request,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioquic.quic.events import QuicEvent

    from iggy_protocol import VsrClientSession
    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.options import ClientOptions
    from iggy_sdk.session.pending_requests import PendingRequest
    from iggy_sdk.statistics import SessionStatistics
    from iggy_sdk.transport.quic import QuicTransport
    from iggy_sdk.transport.quic_settings import QuicSettings


class VsrQuicExchange(QuicExchange):
    """A numbered request, its stream once it is open, and what came of its reply.

    Attributes:
        request: the number and the bytes of the request.
        is_outstanding: whether the codec still waits for the reply.
        loss: why the whole session ends with this reply, if it does.
    """

    __slots__ = (
        "_codec",
        "_received",
        "_response_bytes_max",
        "is_outstanding",
        "loss",
        "request",
    )

    def __init__(
        self, pending: PreparedPending, codec: VsrClientConnection, response_bytes_max: int
    ) -> None:
        super().__init__(pending, codec, ())
        self._response_bytes_max = response_bytes_max
        self.request: PreparedRequest = pending.request
        self.size_bytes: int = pending.request.head.size
        self.is_outstanding: bool = False
        self.loss: IggyError | None = None
        self._codec = codec
        self._received = bytearray()

    def take_parts(self) -> Sequence[Buffer]:
        """Return what to write to the stream."""
        try:
            parts = self._codec.send_prepared(self.request)
        except LocalProtocolError as error:
            raise error_from_protocol(error, command=self.pending.command) from error
        self.is_outstanding = True
        return parts

    def receive(self, data: bytes, *, is_last: bool, peer: str) -> ExchangeOutcome | None:
        """Collect bytes of the reply; decode it once the server has finished the stream."""
        self._received += data
        what = describe_command(self.pending.command)
        if len(self._received) > VSR_HEAD_BYTES + self._response_bytes_max:
            self._received.clear()
            limit = self._response_bytes_max
            return ProtocolError(f"{what}: {peer} sends more than the {limit} bytes of a reply")
        if not is_last:
            return None
        if not self._received:
            return ProtocolError(f"{what}: {peer} ended the stream without a reply")
        try:
            self._codec.receive_data(bytes(self._received))
            event = self._codec.next_event()
        except RemoteProtocolError as error:
            self.loss = error_from_protocol(error, command=self.pending.command)
            self.loss.__cause__ = error
            return self.loss
        if isinstance(event, ResponseReceived | ErrorReceived):
            if event.number == self.request.number:
                self.is_outstanding = False
                return event
        elif isinstance(event, EvictionReceived):
            self.loss = evicted_error(peer, event)
            return self.loss
        self.loss = ProtocolError(f"{what}: {peer} answered another request on its stream")
        return self.loss


class VsrQuicSession(VsrSession, QuicSession):
    """One connection to one server from 0.9 on; many tasks may send requests at the same time."""

    def __init__(
        self,
        transport: QuicTransport,
        options: ClientOptions,
        settings: QuicSettings,
        identity: VsrClientSession,
    ) -> None:
        """Take a connection whose handshake is done, and what it logs in as."""
        super().__init__(transport, options, settings)
        self.dialect = identity.dialect
        self.identity = identity
        if self.dialect.is_lockstep:
            self._streams_max = 1
        self._response_bytes_max = settings.response_bytes_max
        limits = Limits(
            outstanding_max=self._streams_max, response_bytes_max=self._response_bytes_max
        )
        self._codec = VsrClientConnection(identity, limits=limits)

    @property
    def is_bound(self) -> bool:
        """Whether a login was answered on this connection."""
        return self._codec.is_bound

    def statistics(self) -> SessionStatistics:
        """Return what the session has done so far."""
        return self._statistics([self._codec])

    def prepare(
        self, command: Command[Any], *, context: PartitionContext = NO_CONTEXT
    ) -> PreparedRequest:
        """Give a command its number and its bytes; nothing is sent yet."""
        return prepare_request(self._codec, command, context)

    async def exchange(
        self, request: PreparedRequest, *, seconds: float, deadline: float
    ) -> ResponseReceived[Any] | ErrorReceived:
        """Send a prepared request, for the first time or again, and return what is answered."""
        pending = PreparedPending(request, deadline)
        await self._carry(pending, seconds)
        outcome = pending.outcome
        if isinstance(outcome, ResponseReceived | ErrorReceived):
            return outcome
        assert outcome is not None, "a request without an outcome has timed out"
        raise outcome

    def _begin_exchange(self, pending: PendingRequest) -> QuicExchange:
        assert isinstance(pending, PreparedPending)
        return VsrQuicExchange(pending, self._codec, self._response_bytes_max)

    def _handle_event(self, event: QuicEvent) -> None:
        super()._handle_event(event)
        exchange = self._exchanges.get(getattr(event, "stream_id", -1))
        if not isinstance(exchange, VsrQuicExchange) or exchange.pending.outcome is None:
            return
        if exchange.loss is not None:
            self._note_loss(exchange.loss)
        elif exchange.pending.is_abandoned:
            # Nobody waits for it; the next request may have its turn.
            super()._finish_exchange(exchange)

    def _finish_exchange(self, exchange: QuicExchange) -> None:
        """Forget a request, unless the server has to answer it before the next one."""
        assert isinstance(exchange, VsrQuicExchange)
        is_waiting = exchange.is_outstanding and not self.is_closed
        if self.dialect.is_lockstep:
            if is_waiting and exchange.pending.outcome is None:
                self._abandon(exchange)
                return
            if is_waiting:
                self.abort(DisconnectedError(f"{self.peer} did not answer a request"))
            self._abort_if_unanswered()
        elif is_waiting:
            self._forget(exchange)
        super()._finish_exchange(exchange)

    def _forget(self, exchange: VsrQuicExchange) -> None:
        """Drop a reply that nobody waits for; tell the server, if it lets the request wait."""
        pending, core = exchange.pending, self._transport.core
        assert isinstance(pending, PreparedPending)
        exchange.is_outstanding = False
        if not (pending.is_deferred and pending.outcome is None and core.may_open_stream):
            self._codec.forget(exchange.request)
            return
        stream_id = core.get_next_available_stream_id()
        (frame,) = self._codec.cancel(exchange.request)
        core.send_stream_data(stream_id, bytes(frame), end_stream=True)

    def _abandon(self, exchange: VsrQuicExchange) -> None:
        """Keep the stream of a request to a server of 0.9 until the reply comes."""
        pending = exchange.pending
        assert exchange.stream_id is not None, "it is outstanding"
        pending.is_sent = self._transport.core.is_flushed(exchange.stream_id)
        pending.is_abandoned = True
        pending.deadline = max(pending.deadline, self._clock() + self._options.request_timeout)
        self._traffic.abandoned_count += 1
        self._pass_reading_on()

    def _abort_if_unanswered(self) -> None:
        """End a connection whose request was given up, and not answered in time either."""
        for exchange in self._exchanges.values():
            pending = exchange.pending
            if pending.is_abandoned and anyio.current_time() >= pending.deadline:
                what = describe_command(pending.command)
                self.abort(RequestTimeoutError(f"{self.peer} did not answer {what} in time"))
                return

    async def _say_goodbye(self) -> None:
        """End the session on the server, which would otherwise keep it for another connection."""
        request = logout_request(self._codec)
        if request is None:
            return
        exchange = self._begin_exchange(PreparedPending(request, math.inf))
        try:
            with suppress(IggyError):
                await self._exchange(exchange)
        finally:
            self._finish_exchange(exchange)
            self.identity.end()

    def _release(self, error: IggyError) -> None:
        super()._release(error)
        self.identity.lost()


# Asking a server which framing it speaks. Only the first stream is lost where the answer is no, so
# the same connection is used on.


class ProbeExchange(QuicExchange):
    """A first request in this framing, and what its answer says about the server."""

    __slots__ = ("_received", "verdict")

    def __init__(self, pending: PendingRequest) -> None:
        super().__init__(pending, ClientConnection(), [vsr_probe(uuid4().bytes)])
        self._received = bytearray()
        self.verdict: ProbeVerdict | None = None

    def receive(self, data: bytes, *, is_last: bool, peer: str) -> ExchangeOutcome | None:
        """Judge the answer; any end of the exchange is an outcome."""
        self._received += data
        self.verdict = judge_probe(self._received)
        if self.verdict is None and not is_last:
            return None
        return ProtocolError(f"{peer} has answered the first request")


class ProbingQuicSession(QuicSession):
    """A connection to a server of which nothing is known; it asks, and then makes way."""

    def __init__(
        self, transport: QuicTransport, options: ClientOptions, settings: QuicSettings
    ) -> None:
        super().__init__(transport, options, settings)
        self._settings = settings
        self._probe: ProbeExchange | None = None

    def _begin_exchange(self, pending: PendingRequest) -> QuicExchange:
        self._probe = ProbeExchange(pending)
        return self._probe

    async def ask(self) -> ProbeVerdict | None:
        """Return what the server speaks; None if it is silent, or ends the stream or all of it."""
        with suppress(DisconnectedError, ProtocolError, RequestTimeoutError, ServerError):
            await self.request(Ping(), timeout=PROBE_SECONDS_MAX)
        return None if self._probe is None else self._probe.verdict

    def make_way(self, identity: VsrClientSession | None) -> QuicSession | None:
        """Return the session that goes on with the connection; None if that has ended.

        Args:
            identity: what to log in as; None for a server of 0.8.
        """
        if self._transport.core.termination is not None:
            return None
        if identity is None:
            return QuicSession(self._transport, self._options, self._settings)
        return VsrQuicSession(self._transport, self._options, self._settings, identity)


async def open_unknown_quic(endpoint: Endpoint, options: ClientOptions) -> ProbingQuicSession:
    """Connect to a server within ``connect_timeout``, to ask what it speaks.

    Raises:
        ConnectionFailedError: no server answers at the endpoint, or the handshake failed.
        ConfigurationError: a setting of the connection string or a file is not valid.
    """
    transport, settings = await connect_quic(endpoint, options)
    return ProbingQuicSession(transport, options, settings)


async def open_vsr_quic(
    endpoint: Endpoint, options: ClientOptions, identity: VsrClientSession
) -> VsrQuicSession:
    """Connect to a server from 0.9 on, likewise."""
    transport, settings = await connect_quic(endpoint, options)
    return VsrQuicSession(transport, options, settings, identity)
