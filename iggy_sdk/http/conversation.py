"""A session over REST: each request is one HTTP exchange on a connection of a small pool.

The session ends when the server cannot be reached, and the client above reconnects. A pooled
connection that the server closed while it was idle is replaced, if the request may be repeated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio
import h11

from iggy_protocol import (
    ConnectionStatistics,
    LoginUser,
    LoginWithPersonalAccessToken,
    LogoutUser,
    Ping,
    ProtocolError,
    RuleViolation,
    StatusCode,
)
from iggy_protocol.rest import RestRequest, encode_rest_request
from iggy_sdk import errors
from iggy_sdk.errors import (
    ClientClosedError,
    ConnectionFailedError,
    DisconnectedError,
    IggyError,
    RequestTimeoutError,
    class_for_status,
    describe_command,
    error_from_protocol,
)
from iggy_sdk.http.bearer import Bearer
from iggy_sdk.http.exchange import AnswerTooLargeError, HttpRequest, Progress
from iggy_sdk.http.pool import CONNECTIONS_MAX, ConnectionPool
from iggy_sdk.http.verdicts import PLACE_ADVICE, UNAUTHORISED, read_answer
from iggy_sdk.idempotence import is_repeatable
from iggy_sdk.session_statistics import SessionStatistics
from iggy_sdk.session_waiter import too_late, verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol import Command
    from iggy_sdk.http.exchange import Answer, Headers
    from iggy_sdk.options import ClientOptions, Endpoint
    from iggy_sdk.transport import Dial, Transport

__all__ = ["HttpConversation"]

R = TypeVar("R")

_LOGINS: Final = (LoginUser, LoginWithPersonalAccessToken)

HTTP_ADVICE: Final = (
    "Connect with iggy://, iggy+ws:// or iggy+quic:// for this, or do without it over HTTP."
)


class _Flight:
    """One request in progress, over one HTTP exchange or several.

    Attributes:
        scope: cancels it at its deadline or with the session.
        progress: of the current exchange.
    """

    __slots__ = ("command", "progress", "scope")

    def __init__(self, command: Command[Any], deadline: float) -> None:
        self.command = command
        self.scope = anyio.CancelScope(deadline=deadline)
        self.progress = Progress()


class _StaleConnection(Exception):
    """A pooled connection broke before any byte of the response."""


class HttpConversation:
    """One server, reached by HTTP; many tasks may send requests at the same time."""

    def __init__(self, endpoint: Endpoint, options: ClientOptions, *, dial: Dial) -> None:
        """Take the endpoint and how its connections are opened; no I/O yet."""
        self._endpoint = endpoint
        self._options = options
        self._dial = dial
        self._headers: Headers = [
            (b"host", _host_of(endpoint)),
            (b"accept-encoding", b"identity"),
            (b"user-agent", b"iggy-python"),
        ]
        capacity = min(options.max_outstanding, CONNECTIONS_MAX)
        self._pool = ConnectionPool(self._connect, capacity=capacity)
        self._bearer = Bearer(self._exchange_openly)
        self._flights: set[_Flight] = set()
        self._is_closing = False
        self._drained = anyio.Event()
        self._ended = anyio.Event()
        self._exchanges_count = 0
        self._answers_count = 0
        self._bytes_out = 0
        self._bytes_in = 0
        self._timeouts_count = 0
        self._abandoned_count = 0
        self.failure: IggyError | None = None
        self.is_ended_by_peer = False
        self.on_end: Callable[[], None] | None = None

    @classmethod
    async def open(
        cls, endpoint: Endpoint, options: ClientOptions, *, dial: Dial
    ) -> HttpConversation:
        """Ping the server within ``connect_timeout``, without a login.

        Raises:
            ConnectionFailedError: no server answers at the endpoint, or the handshake failed.
            ProtocolError: the response is not one of an Iggy server.
        """
        conversation = cls(endpoint, options, dial=dial)
        try:
            await conversation.request(Ping(), timeout=options.connect_timeout)
        except BaseException as error:
            failure = conversation.failure
            conversation.abort(DisconnectedError("the connection was closed before it was used"))
            if isinstance(error, RequestTimeoutError):
                raise ConnectionFailedError(
                    f"{endpoint} did not respond within {options.connect_timeout:g} s"
                ) from error
            if isinstance(error, DisconnectedError) and failure is not None:
                raise failure from None
            raise
        return conversation

    @property
    def is_closed(self) -> bool:
        """Whether the session has ended."""
        return self.failure is not None

    @property
    def peer(self) -> str:
        """Where the server is."""
        return str(self._endpoint)

    def statistics(self) -> SessionStatistics:
        """Return the counters; frames are requests and responses."""
        return SessionStatistics(
            connection=ConnectionStatistics(
                frames_in=self._answers_count,
                frames_out=self._exchanges_count,
                bytes_in=self._bytes_in,
                bytes_out=self._bytes_out,
                outstanding=len(self._flights),
                buffered_bytes=0,
                reserved_bytes=0,
                chunk_allocations=0,
                copied_bytes=self._bytes_in,
            ),
            answers=self._answers_count,
            timeouts=self._timeouts_count,
            abandoned=self._abandoned_count,
            waiting=len(self._flights),
        )

    # Requests

    async def request(self, command: Command[R], *, timeout: float) -> R:
        """Send a command and wait for the reply; see ``Conversation.request``.

        Raises:
            InvalidRequestError: HTTP does not offer this command; ``code`` is 5.
        """
        return await self.ask(command, seconds=timeout, deadline=anyio.current_time() + timeout)

    async def ask(self, command: Command[R], *, seconds: float, deadline: float) -> R:
        """Do what ``request`` does, for a caller that has computed the deadline already."""
        request = _encoded(command)
        self._check_open()
        flight = _Flight(command, deadline)
        self._flights.add(flight)
        try:
            with flight.scope:
                return cast("R", await self._perform(command, request, flight))
            raise self._cut_off(flight, seconds)
        except IggyError:
            raise
        except BaseException:
            self._abandoned_count += 1
            raise
        finally:
            self._flights.discard(flight)
            if not self._flights:
                self._drained.set()

    def _cut_off(self, flight: _Flight, seconds: float) -> IggyError:
        """Make the error of a request that was cancelled by its deadline or the session."""
        self._abandoned_count += 1
        if self.failure is not None:
            return verdict(self.failure, is_sent=flight.progress.is_sent)
        self._timeouts_count += 1
        is_sent = flight.progress.is_sent
        return too_late(flight.command, is_sent=is_sent, seconds=seconds, peer=self.peer)

    async def _perform(self, command: Command[Any], request: RestRequest, flight: _Flight) -> Any:
        if isinstance(command, _LOGINS):
            return await self._bearer.log_in(command)
        token = None if request.route.public else await self._bearer.token()
        answer = await self._exchange(request, token, flight)
        if isinstance(command, LogoutUser):
            if token is not None and answer.status in (request.route.success, UNAUTHORISED):
                # A token that is no longer valid counts as logged out.
                self._bearer.forget()
                return None
        elif answer.status == UNAUTHORISED and token is not None:
            fresh = await self._bearer.replace(token)
            if fresh is not None:
                answer = await self._exchange(request, fresh, flight)
        try:
            return read_answer(command, request.route, answer)
        except DisconnectedError as error:
            self.abort(error, by_peer=True)
            raise

    # Exchanges

    async def _exchange_openly(self, request: RestRequest) -> Answer:
        """Do an exchange without a token: a login or a refresh, which may be repeated."""
        return await self._exchange(request, None, None)

    async def _exchange(
        self, request: RestRequest, token: str | None, flight: _Flight | None
    ) -> Answer:
        """Send a request; use a new connection if the pooled one turns out to be closed."""
        headers = list(self._headers)
        if token is not None:
            headers.append((b"authorization", b"Bearer " + token.encode()))
        if request.body:
            headers.append((b"content-type", b"application/json"))
        dressed = HttpRequest(request.route.method, request.target, headers, request.body)
        try:
            return await self._attempt(dressed, flight, fresh=False)
        except _StaleConnection as stale:
            may_repeat = flight is None or (
                not flight.progress.is_sent or is_repeatable(flight.command)
            )
            if not may_repeat:
                raise DisconnectedError(
                    f"the connection to {self.peer} broke: {stale.__cause__}", sent=True
                ) from stale.__cause__
        return await self._attempt(dressed, flight, fresh=True)

    async def _attempt(
        self, request: HttpRequest, flight: _Flight | None, *, fresh: bool
    ) -> Answer:
        progress, is_reused = Progress(), False
        if flight is not None:
            flight.progress = progress
        self._exchanges_count += 1
        try:
            async with self._pool.lend(fresh=fresh) as connection:
                is_reused = connection.is_reused
                answer = await connection.exchange(request, progress)
        except ConnectionFailedError as error:
            raise self._lost(error, is_sent=False) from error
        except (AnswerTooLargeError, h11.RemoteProtocolError) as error:
            raise self._not_understood(error) from error
        except OSError as error:
            if is_reused and not progress.is_answered and self.failure is None:
                raise _StaleConnection from error
            lost = DisconnectedError(f"the connection to {self.peer} broke: {error}")
            raise self._lost(lost, is_sent=progress.is_sent) from error
        finally:
            self._bytes_out += progress.bytes_out
            self._bytes_in += progress.bytes_in
        self._answers_count += 1
        return answer

    async def _connect(self) -> Transport:
        """Open another connection."""
        with anyio.move_on_after(self._options.connect_timeout):
            return await self._dial(self._endpoint, replace(self._options, transport="tcp"))
        raise ConnectionFailedError(
            f"{self.peer} did not respond within {self._options.connect_timeout:g} s"
        )

    def _lost(self, error: IggyError, *, is_sent: bool) -> IggyError:
        """End the session, because the server is out of reach."""
        self.abort(error, by_peer=True)
        assert self.failure is not None
        return verdict(self.failure, is_sent=is_sent)

    def _not_understood(self, error: Exception) -> errors.ProtocolError:
        if isinstance(error, AnswerTooLargeError):
            what = "the response is larger than those of an Iggy server"
        else:
            what = f"{self.peer} does not speak HTTP: {error}"
        tls = "" if self._options.tls else " If the listener uses TLS, connect with iggy+https://."
        return errors.ProtocolError(what, advice=f"{PLACE_ADVICE}{tls}")

    # The end

    async def run(self) -> None:
        """Wait for the end of the session; there is no background work."""
        await self._ended.wait()

    def _check_open(self) -> None:
        if self._is_closing:
            raise ClientClosedError("the client was closed before the request was sent")
        if self.failure is not None:
            raise verdict(self.failure, is_sent=False)

    def abort(self, error: IggyError, *, by_peer: bool = False) -> None:
        """End the session at once and fail all pending requests; the first reason counts."""
        if self.failure is not None:
            return
        self.failure = error
        self.is_ended_by_peer = by_peer
        self._pool.abort()
        for flight in self._flights:
            flight.scope.cancel()
        self._ended.set()
        if self.on_end is not None:
            self.on_end()

    async def aclose(self) -> None:
        """Refuse new requests, let pending ones finish within ``close_timeout``, and close."""
        self._is_closing = True
        with anyio.move_on_after(self._options.close_timeout, shield=True):
            while self._flights and self.failure is None:
                self._drained = anyio.Event()
                await self._drained.wait()
        self.abort(ClientClosedError())


def _encoded(command: Command[Any]) -> RestRequest:
    """Encode a command, or raise why HTTP does not offer it."""
    try:
        return encode_rest_request(command)
    except RuleViolation as error:
        if error.status != StatusCode.FEATURE_UNAVAILABLE:
            raise error_from_protocol(error, command=command) from error
        raise class_for_status(error.status)(
            f"{describe_command(command)}: {error.message}", code=error.status, advice=HTTP_ADVICE
        ) from error
    except ProtocolError as error:
        raise error_from_protocol(error, command=command) from error


def _host_of(endpoint: Endpoint) -> bytes:
    """Write the Host header; the zone of an IPv6 address is left out."""
    host = endpoint.host.partition("%")[0]
    try:
        name = host.encode("idna").decode() if not host.isascii() else host
    except UnicodeError as error:
        raise ConnectionFailedError(f"{endpoint} has no address: {error}") from error
    return f"{f'[{name}]' if ':' in name else name}:{endpoint.port}".encode()
