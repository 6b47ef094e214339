"""One QUIC connection to one server: every request has a stream of its own.

Requests are under way side by side and replies come in any order. Nobody waits behind another, and
one who leaves without his reply gives up his stream and disturbs nobody.

``run`` takes in what comes, for all. Without it whoever waits for a reply does so, also for those
who wait beside him, and hands that over when he has his own.

Owns the streams, who takes in, and the deadlines. It must not know logins, addresses or other
connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
from aioquic.quic.events import StreamDataReceived, StreamReset
from anyio.lowlevel import checkpoint

from iggy_protocol import (
    ClientConnection,
    ErrorReceived,
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
    ResponseReceived,
)
from iggy_sdk.errors import (
    ClientClosedError,
    ConnectionFailedError,
    DisconnectedError,
    IggyError,
    ProtocolError,
    ServerError,
    describe_command,
    error_from_protocol,
)
from iggy_sdk.quic_traffic import Traffic
from iggy_sdk.session_statistics import SessionStatistics
from iggy_sdk.session_waiter import Waiter, read_outcome, verdict
from iggy_sdk.transport.quic import open_quic
from iggy_sdk.transport.quic_failures import SILENCE_ADVICE
from iggy_sdk.transport.quic_settings import quic_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioquic.quic.events import QuicEvent

    from iggy_protocol import Buffer, Command
    from iggy_sdk.options import ClientOptions, Endpoint
    from iggy_sdk.transport.quic import QuicTransport
    from iggy_sdk.transport.quic_settings import QuicSettings

__all__ = ["QuicSession"]

R = TypeVar("R")


class _Exchange:
    """A request, its stream once it has one, and who waits for the reply."""

    __slots__ = ("connection", "parts", "size_bytes", "stream_id", "waiter")

    def __init__(
        self, waiter: Waiter, connection: ClientConnection, parts: Sequence[Buffer]
    ) -> None:
        self.waiter = waiter
        self.connection = connection
        self.parts = parts
        self.size_bytes = sum(map(len, parts))
        self.stream_id: int | None = None


class QuicSession:
    """One connection to one server; many tasks may ask at the same time.

    Attributes:
        failure: why the connection is at its end; None while it lives.
        is_ended_by_peer: whether the server or the network has ended it.
        on_end: called once when it ends.
    """

    def __init__(
        self, transport: QuicTransport, options: ClientOptions, settings: QuicSettings
    ) -> None:
        """Take a connection behind its handshake; the session closes it."""
        self._transport = transport
        self._options = options
        self._limits = Limits(outstanding_max=1, response_bytes_max=settings.response_bytes_max)
        self._streams_max = min(options.max_outstanding, settings.streams_max)
        self._send_window_bytes = settings.send_window_bytes
        self._exchanges: dict[int, _Exchange] = {}
        self._under_way_bytes = 0
        self._traffic = Traffic()
        self._is_closing = False
        self._is_pumped = self._is_gathering = False
        self._host_call: anyio.Event | None = None
        self._sleepers: dict[anyio.Event, None] = {}
        self._queue: dict[anyio.Event, None] = {}
        self.failure: IggyError | None = None
        self.is_ended_by_peer = False
        self.on_end: Callable[[], None] | None = None

    @classmethod
    async def open(cls, endpoint: Endpoint, options: ClientOptions) -> QuicSession:
        """Dial a server, within ``connect_timeout``; nobody is logged in.

        Raises:
            ConnectionFailedError: nobody answers there, or the handshake failed.
            ConfigurationError: a setting of the connection string or a file is not valid.
        """
        settings = quic_settings(options.transport_settings)
        with anyio.move_on_after(options.connect_timeout):
            return cls(await open_quic(endpoint, options, settings), options, settings)
        raise ConnectionFailedError(
            f"{endpoint} did not answer over UDP within {options.connect_timeout:g} s",
            advice=SILENCE_ADVICE,
        )

    @property
    def is_closed(self) -> bool:
        """Whether the connection is at its end."""
        return self.failure is not None

    @property
    def peer(self) -> str:
        """Where the server is."""
        return self._transport.peer

    def statistics(self) -> SessionStatistics:
        """Return what the session has done so far."""
        traffic = self._traffic
        return SessionStatistics(
            connection=traffic.statistics([one.connection for one in self._exchanges.values()]),
            answers=traffic.frames_in,
            timeouts=traffic.timeouts_count,
            abandoned=traffic.abandoned_count,
            waiting=len(self._exchanges),
        )

    # Asking

    async def request(self, command: Command[R], *, timeout: float) -> R:
        """Send a command and wait for the reply.

        Args:
            command: what to ask.
            timeout: how many seconds all of it may take.

        Raises:
            DisconnectedError: the connection ended first; ``sent`` tells whether the whole
                request had left by then.
            RequestTimeoutError: there was no reply in time.
            IggyError: whatever the server answered.
        """
        return await self.ask(command, seconds=timeout, deadline=anyio.current_time() + timeout)

    async def ask(self, command: Command[R], *, seconds: float, deadline: float) -> R:
        """Do what ``request`` does, for one who has looked at the clock already."""
        waiter = Waiter(command, deadline)
        self._look()
        self._check_open()
        exchange = self._prepare(waiter)
        try:
            with anyio.CancelScope(deadline=deadline):
                while not self._has_room_for(exchange):
                    await self._take_part(self._queue)
                    self._check_open()
                self._begin(exchange)
                while waiter.outcome is None:
                    await self._take_part(self._sleepers, waiter)
        finally:
            self._leave(exchange)
        return cast("R", self._result(waiter, seconds))

    def _result(self, waiter: Waiter, seconds: float) -> object:
        if waiter.outcome is None:
            self._traffic.timeouts_count += 1
        return read_outcome(waiter, seconds=seconds, peer=self.peer)

    def _check_open(self) -> None:
        if self._is_closing:
            raise ClientClosedError("the client was closed before the request was sent")
        if self.failure is not None:
            raise verdict(self.failure, is_sent=False)

    def _prepare(self, waiter: Waiter) -> _Exchange:
        connection = ClientConnection(limits=self._limits)
        try:
            return _Exchange(waiter, connection, connection.send(waiter.command))
        except LocalProtocolError as error:
            raise error_from_protocol(error, command=waiter.command) from error

    def _has_room_for(self, exchange: _Exchange) -> bool:
        if len(self._exchanges) >= self._streams_max or not self._transport.core.may_open_stream:
            return False
        total = self._under_way_bytes + exchange.size_bytes
        return not self._under_way_bytes or total <= self._send_window_bytes

    def _begin(self, exchange: _Exchange) -> None:
        """Give a request a stream, and send what can be sent of it."""
        core = self._transport.core
        exchange.stream_id = stream_id = core.get_next_available_stream_id()
        *parts, last = exchange.parts
        for part in parts:
            core.send_stream_data(stream_id, part)  # type: ignore[arg-type]
        core.send_stream_data(stream_id, last, end_stream=True)  # type: ignore[arg-type]
        core.acknowledge(anyio.current_time())
        exchange.parts = ()
        self._exchanges[stream_id] = exchange
        self._under_way_bytes += exchange.size_bytes
        self._traffic.frames_out += 1
        self._traffic.bytes_out += exchange.size_bytes
        if not self._is_gathering:
            self._flush()
        self._call_next()

    def _leave(self, exchange: _Exchange) -> None:
        """Have nothing more to do with a request, whatever became of it."""
        stream_id, waiter = exchange.stream_id, exchange.waiter
        if stream_id is not None:
            del self._exchanges[stream_id]
            self._under_way_bytes -= exchange.size_bytes
            if waiter.outcome is None:
                waiter.is_sent = self._transport.core.has_left(stream_id)
                self._transport.core.give_up(stream_id)
                self._flush()
        if waiter.outcome is None:
            self._traffic.abandoned_count += 1
        if self._is_closing:
            self._wake(self._sleepers)
        self._call_next()
        self._hand_over()

    def _flush(self) -> None:
        if self.failure is None:
            try:
                self._transport.flush(anyio.current_time())
            except OSError as error:
                self.abort(self._lost(error), by_peer=True)

    # Taking in

    async def _take_part(
        self, place: dict[anyio.Event, None], waiter: Waiter | None = None
    ) -> None:
        """Take in for all, once, or sleep while somebody else does it."""
        if not self._is_pumped:
            await self._pump()
            return
        call = anyio.Event()
        place[call] = None
        if waiter is not None:
            waiter.wake = call
        try:
            await call.wait()
        finally:
            place.pop(call, None)

    async def _pump(self) -> None:
        """Wait for what comes, and take it in."""
        self._is_pumped = True
        try:
            await self._transport.wait()
        except OSError as error:
            self.abort(self._lost(error), by_peer=True)
        finally:
            self._is_pumped = False
        told_count = self._traffic.frames_in
        self._look()
        has_told = self._traffic.frames_in > told_count
        if has_told and len(self._exchanges) > 1 and self.failure is None:
            await self._gather()

    async def _gather(self) -> None:
        """Let those who were told go on, and send together what they ask for next."""
        self._is_pumped = self._is_gathering = True
        try:
            # On one engine tasks that were woken together take their turns in no order.
            await checkpoint()
            await checkpoint()
        finally:
            self._is_pumped = self._is_gathering = False
            self._flush()

    def _look(self) -> None:
        """Take in what has come, unless somebody waits for it."""
        if self.failure is not None or self._is_pumped:
            return
        try:
            happened = self._transport.step()
        except OSError as error:
            self.abort(self._lost(error), by_peer=True)
            return
        for event in happened:
            self._note(event)
        core = self._transport.core
        if core.verdict is not None:
            reason = core.verdict.reason_phrase
            text = f"{self.peer} has closed the connection" if core.is_ended_by_peer else ""
            text = text or f"the connection to {self.peer} is lost"
            self.abort(DisconnectedError(f"{text}: {reason}" if reason else text), by_peer=True)
        elif self._queue:
            self._call_next()

    def _hand_over(self) -> None:
        """Have somebody go on taking in who has something to wait for."""
        if self._is_pumped or self.failure is not None:
            return
        if self._host_call is not None:
            self._host_call.set()
        elif self._sleepers or self._queue:
            next(iter(self._sleepers or self._queue)).set()
        else:
            # Nobody listens from here on, so what is owed to the server goes now.
            self._transport.core.acknowledge(anyio.current_time())
            self._flush()

    def _wake(self, place: dict[anyio.Event, None]) -> None:
        for call in place:
            call.set()

    def _call_next(self) -> None:
        """Let the next one begin who waits for room."""
        if self._queue and len(self._exchanges) < self._streams_max:
            next(iter(self._queue)).set()

    def _note(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived):
            exchange = self._exchanges.get(event.stream_id)
            if exchange is not None and exchange.waiter.outcome is None:
                self._hear(exchange, event)
        elif isinstance(event, StreamReset):
            exchange = self._exchanges.get(event.stream_id)
            if exchange is not None:
                command = describe_command(exchange.waiter.command)
                self._tell(exchange, ServerError(f"{command}: {self.peer} gave up its reply"))

    def _hear(self, exchange: _Exchange, event: StreamDataReceived) -> None:
        connection, command = exchange.connection, exchange.waiter.command
        try:
            if event.data:
                self._traffic.bytes_in += len(event.data)
                connection.receive_data(event.data)
            heard = connection.next_event()
        except RemoteProtocolError as error:
            told = error_from_protocol(error, command=command)
            told.__cause__ = error
            self._tell(exchange, told)
            return
        if isinstance(heard, ResponseReceived | ErrorReceived):
            self._traffic.frames_in += 1
            self._tell(exchange, heard)
        elif event.end_stream:
            text = f"{describe_command(command)}: {self.peer} ended the stream without an answer"
            self._tell(exchange, ProtocolError(text))

    def _tell(
        self, exchange: _Exchange, outcome: ResponseReceived[Any] | ErrorReceived | IggyError
    ) -> None:
        waiter = exchange.waiter
        if waiter.outcome is None:
            waiter.outcome = outcome
            if waiter.wake is not None:
                waiter.wake.set()

    async def run(self) -> None:
        """Take in whatever comes; return when the connection is at its end."""
        try:
            while self.failure is None:
                self._host_call = anyio.Event()
                if self._is_pumped:
                    await self._host_call.wait()
                else:
                    await self._pump()
        finally:
            self._host_call = None
            self._hand_over()

    # Leaving

    def _lost(self, error: OSError) -> DisconnectedError:
        lost = DisconnectedError(f"the connection to {self.peer} broke: {error}")
        lost.__cause__ = error
        return lost

    def abort(self, error: IggyError, *, by_peer: bool = False) -> None:
        """End the session at once; everybody who waits is told why. The first reason counts.

        Args:
            error: the reason.
            by_peer: whether it is the server or the network that ended it.
        """
        if self.failure is not None:
            return
        self.failure = error
        self.is_ended_by_peer = by_peer
        core = self._transport.core
        for stream_id, exchange in self._exchanges.items():
            exchange.waiter.is_sent = core.has_left(stream_id)
            self._tell(exchange, verdict(error, is_sent=exchange.waiter.is_sent))
        self._transport.abort()
        self._wake(self._sleepers)
        self._wake(self._queue)
        if self._host_call is not None:
            self._host_call.set()
        if self.on_end is not None:
            self.on_end()

    async def aclose(self) -> None:
        """Take no more requests, give those on their way ``close_timeout`` to end, and close."""
        self._is_closing = True
        self._wake(self._queue)
        self._look()
        with anyio.move_on_after(self._options.close_timeout, shield=True):
            while self.failure is None and self._exchanges:
                await self._take_part(self._sleepers)
        self._hand_over()
        self.abort(ClientClosedError())
