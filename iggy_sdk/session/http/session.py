"""A session over REST: each request is one HTTP exchange on a connection of a small pool.

The session ends when the server cannot be reached, and the client above reconnects. A pooled
connection that the server closed while it was idle is replaced, if the request may be repeated.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio
import h11

from iggy_protocol import (
    Command,
    ConnectionStatistics,
    Identity,
    LoginUser,
    LoginWithPersonalAccessToken,
    LogoutUser,
    Ping,
    ProtocolError,
    RemoteProtocolError,
    RuleViolation,
    StatusCode,
)
from iggy_protocol.rest import (
    IdentityShape,
    RestRequest,
    decode_json,
    encode_refresh,
    encode_rest_request,
)
from iggy_sdk import errors
from iggy_sdk.deadline import Deadline
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
from iggy_sdk.session.http.connection import (
    CONNECTIONS_MAX,
    HTTP_PORT_ADVICE,
    UNAUTHORISED,
    ConnectionPool,
    ExchangeProgress,
    Headers,
    HttpRequest,
    HttpResponse,
    ResponseTooLargeError,
    decode_response,
)
from iggy_sdk.session.interface import Session
from iggy_sdk.session.pending_requests import (
    is_repeatable,
    request_timeout_error,
    session_ended_error,
)
from iggy_sdk.session.states import SessionEvent
from iggy_sdk.statistics import SessionStatistics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.options import ClientOptions
    from iggy_sdk.transport import Dial, StreamTransport


R = TypeVar("R")

_LOGINS: Final = (LoginUser, LoginWithPersonalAccessToken)

HTTP_ADVICE: Final = (
    "Connect with iggy://, iggy+ws:// or iggy+quic:// for this, or do without it over HTTP."
)


class _RequestInFlight:
    """One request in progress, over one HTTP exchange or several.

    Attributes:
        scope: cancels it at its deadline or with the session.
        progress: of the current exchange.
        was_sent: whether an earlier exchange was sent, whose response is not known.
    """

    __slots__ = ("command", "progress", "scope", "was_sent")

    def __init__(self, command: Command[Any], deadline: float) -> None:
        self.command = command
        self.scope = anyio.CancelScope(deadline=deadline)
        self.progress = ExchangeProgress()
        self.was_sent = False

    @property
    def is_sent(self) -> bool:
        """Whether the server may have carried it out."""
        return self.was_sent or self.progress.is_sent


class _StaleConnection(Exception):
    """A pooled connection broke before any byte of the response."""


class HttpSession(Session):
    """One server, reached by HTTP; many tasks may send requests at the same time."""

    def __init__(self, endpoint: Endpoint, options: ClientOptions, *, dial: Dial) -> None:
        """Take the endpoint and how its connections are opened; no I/O yet."""
        super().__init__()
        self._endpoint = endpoint
        self._options = options
        self._dial = dial
        self._headers: Headers = [
            (b"host", _host_header(endpoint)),
            (b"accept-encoding", b"identity"),
            (b"user-agent", b"iggy-python"),
        ]
        capacity = min(options.max_outstanding, CONNECTIONS_MAX)
        self._pool = ConnectionPool(self._connect, capacity=capacity)
        self._token_source = AccessTokenSource(self._exchange_without_token)
        self._in_flight: set[_RequestInFlight] = set()
        self._drained = anyio.Event()
        self._ended = anyio.Event()
        self._exchanges_count = 0
        self._responses_count = 0
        self._bytes_out = 0
        self._bytes_in = 0
        self._timeouts_count = 0
        self._abandoned_count = 0

    @classmethod
    async def open(cls, endpoint: Endpoint, options: ClientOptions, *, dial: Dial) -> HttpSession:
        """Ping the server within ``connect_timeout``, without a login.

        Raises:
            ConnectionFailedError: no server answers at the endpoint, or the handshake failed.
            ProtocolError: the response is not one of an Iggy server.
        """
        session = cls(endpoint, options, dial=dial)
        try:
            await session.request(Ping(), timeout=options.connect_timeout)
        except BaseException as error:
            failure = session.failure
            session.abort(DisconnectedError("the connection was closed before it was used"))
            if isinstance(error, RequestTimeoutError):
                raise ConnectionFailedError(
                    f"{endpoint} did not respond within {options.connect_timeout:g} s"
                ) from error
            if isinstance(error, DisconnectedError) and failure is not None:
                raise failure from None
            raise
        return session

    @property
    def peer(self) -> str:
        """Where the server is."""
        return str(self._endpoint)

    def statistics(self) -> SessionStatistics:
        """Return the counters; frames are requests and responses."""
        return SessionStatistics(
            connection=ConnectionStatistics(
                frames_in=self._responses_count,
                frames_out=self._exchanges_count,
                bytes_in=self._bytes_in,
                bytes_out=self._bytes_out,
                outstanding=len(self._in_flight),
                buffered_bytes=0,
                reserved_bytes=0,
                chunk_allocations=0,
                copied_bytes=self._bytes_in,
            ),
            answers=self._responses_count,
            timeouts=self._timeouts_count,
            abandoned=self._abandoned_count,
            waiting=len(self._in_flight),
        )

    # Requests

    async def request_until(self, command: Command[R], *, seconds: float, deadline: float) -> R:
        """Do what ``request`` does, for a caller that has computed the deadline already.

        Raises:
            InvalidRequestError: HTTP does not offer this command; ``code`` is 5.
        """
        request = _encode_command(command)
        self._check_open()
        in_flight = _RequestInFlight(command, deadline)
        self._in_flight.add(in_flight)
        try:
            with in_flight.scope:
                return cast("R", await self._perform(command, request, in_flight))
            raise self._cancelled_error(in_flight, seconds)
        except IggyError:
            raise
        except BaseException:
            self._abandoned_count += 1
            raise
        finally:
            self._in_flight.discard(in_flight)
            if not self._in_flight:
                self._drained.set()

    def _cancelled_error(self, in_flight: _RequestInFlight, seconds: float) -> IggyError:
        """Make the error of a request that was cancelled by its deadline or the session."""
        self._abandoned_count += 1
        if self.failure is not None:
            return session_ended_error(self.failure, self.state, is_sent=in_flight.is_sent)
        self._timeouts_count += 1
        return request_timeout_error(
            in_flight.command, is_sent=in_flight.is_sent, seconds=seconds, peer=self.peer
        )

    async def _perform(
        self, command: Command[Any], request: RestRequest, in_flight: _RequestInFlight
    ) -> Any:
        if isinstance(command, _LOGINS):
            return await self._token_source.log_in(command)
        token = None if request.route.public else await self._token_source.token()
        response = await self._exchange(request, token, in_flight)
        if isinstance(command, LogoutUser):
            if token is not None and response.status in (request.route.success, UNAUTHORISED):
                # A token that is no longer valid counts as logged out.
                self._token_source.forget()
                return None
        elif response.status == UNAUTHORISED and token is not None:
            fresh = await self._token_source.replace(token)
            if fresh is not None:
                response = await self._exchange(request, fresh, in_flight)
        try:
            return decode_response(command, request.route, response)
        except DisconnectedError as error:
            self.abort(error, by_peer=True)
            raise

    # Exchanges

    async def _exchange_without_token(self, request: RestRequest) -> HttpResponse:
        """Do an exchange without a token: a login or a refresh, which may be repeated."""
        return await self._exchange(request, None, None)

    async def _exchange(
        self, request: RestRequest, token: str | None, in_flight: _RequestInFlight | None
    ) -> HttpResponse:
        """Send a request; use a new connection if the pooled one turns out to be closed."""
        headers = list(self._headers)
        if token is not None:
            headers.append((b"authorization", b"Bearer " + token.encode()))
        if request.body:
            headers.append((b"content-type", b"application/json"))
        http_request = HttpRequest(request.route.method, request.target, headers, request.body)
        try:
            return await self._attempt(http_request, in_flight, fresh=False)
        except _StaleConnection as stale:
            may_repeat = in_flight is None or (
                not in_flight.progress.is_sent or is_repeatable(in_flight.command)
            )
            if not may_repeat:
                raise DisconnectedError(
                    f"the connection to {self.peer} broke: {stale.__cause__}", sent=True
                ) from stale.__cause__
            if in_flight is not None:
                in_flight.was_sent = in_flight.is_sent
        return await self._attempt(http_request, in_flight, fresh=True)

    async def _attempt(
        self, request: HttpRequest, in_flight: _RequestInFlight | None, *, fresh: bool
    ) -> HttpResponse:
        progress, is_reused = ExchangeProgress(), False
        if in_flight is not None:
            in_flight.progress = progress
        self._exchanges_count += 1
        try:
            async with self._pool.acquire(fresh=fresh) as connection:
                is_reused = connection.is_reused
                response = await connection.exchange(request, progress)
        except ConnectionFailedError as error:
            was_sent = in_flight is not None and in_flight.was_sent
            raise self._end_as_lost(error, is_sent=was_sent) from error
        except (ResponseTooLargeError, h11.RemoteProtocolError) as error:
            raise self._protocol_error(error) from error
        except OSError as error:
            if is_reused and not progress.is_answered and self.failure is None:
                raise _StaleConnection from error
            lost = DisconnectedError(f"the connection to {self.peer} broke: {error}")
            is_sent = progress.is_sent if in_flight is None else in_flight.is_sent
            raise self._end_as_lost(lost, is_sent=is_sent) from error
        finally:
            self._bytes_out += progress.bytes_out
            self._bytes_in += progress.bytes_in
        self._responses_count += 1
        return response

    async def _connect(self) -> StreamTransport:
        """Open another connection."""
        with anyio.move_on_after(self._options.connect_timeout):
            return await self._dial(self._endpoint, replace(self._options, transport="tcp"))
        raise ConnectionFailedError(
            f"{self.peer} did not respond within {self._options.connect_timeout:g} s"
        )

    def _end_as_lost(self, error: IggyError, *, is_sent: bool) -> IggyError:
        """End the session, because the server is out of reach."""
        self.abort(error, by_peer=True)
        assert self.failure is not None
        return session_ended_error(self.failure, self.state, is_sent=is_sent)

    def _protocol_error(self, error: Exception) -> errors.ProtocolError:
        if isinstance(error, ResponseTooLargeError):
            what = "the response is larger than those of an Iggy server"
        else:
            what = f"{self.peer} does not speak HTTP: {error}"
        tls = "" if self._options.tls else " If the listener uses TLS, connect with iggy+https://."
        return errors.ProtocolError(what, advice=f"{HTTP_PORT_ADVICE}{tls}")

    # The end

    async def run(self) -> None:
        """Wait for the end of the session; there is no background work."""
        await self._ended.wait()

    def _release(self, error: IggyError) -> None:
        self._pool.abort()
        for in_flight in self._in_flight:
            in_flight.scope.cancel()
        self._ended.set()

    async def aclose(self, timeout: float | None = None) -> None:
        """Refuse new requests, let pending ones finish within ``close_timeout``, and close."""
        deadline = Deadline(self._options.close_timeout if timeout is None else timeout)
        self._advance(SessionEvent.CLOSE)
        with anyio.move_on_after(deadline.rest(), shield=True):
            while self._in_flight and self.failure is None:
                self._drained = anyio.Event()
                await self._drained.wait()
        self.abort(ClientClosedError())


def _encode_command(command: Command[Any]) -> RestRequest:
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


def _host_header(endpoint: Endpoint) -> bytes:
    """Write the Host header; the zone of an IPv6 address is left out."""
    host = endpoint.host.partition("%")[0]
    try:
        name = host.encode("idna").decode() if not host.isascii() else host
    except UnicodeError as error:
        raise ConnectionFailedError(f"{endpoint} has no address: {error}") from error
    return f"{f'[{name}]' if ':' in name else name}:{endpoint.port}".encode()


# The access token of an HTTP session: from a login, refreshed before it expires.
#
# A token that the server refuses is replaced by logging in again. If many requests need that at
# once, one of them does it and the others wait.

RENEWED_BEFORE_SECONDS: Final = 60.0
"""How long before its expiry a token is refreshed: longer than a request takes."""

RENEWED_BEFORE_SHARE: Final = 0.2
"""The same as a fraction of the lifetime, for tokens that live only a few minutes."""


class AccessTokenSource:
    """Holds the token and refreshes it.

    Args:
        exchange: sends a request without a token and returns the response.

    Attributes:
        renewals_count: how often a token was replaced.
    """

    def __init__(self, exchange: Callable[[RestRequest], Awaitable[HttpResponse]]) -> None:
        self._exchange = exchange
        self._login: Command[Any] | None = None
        self._token: str | None = None
        self._renew_at = math.inf
        self._renewing = anyio.Lock()
        self.renewals_count: int = 0

    async def log_in(self, command: Command[Any]) -> Identity:
        """Log in, and remember how.

        Raises:
            AuthenticationError: the server refuses.
        """
        request = encode_rest_request(command)
        response = await self._exchange(request)
        identity: Identity = decode_response(command, request.route, response)
        self._store_token(response)
        self._login = command
        return identity

    def forget(self) -> None:
        """Forget the token and the login."""
        self._login, self._token, self._renew_at = None, None, math.inf

    async def token(self) -> str | None:
        """Return the token, a new one if it expires soon; None without a login."""
        token = self._token
        if token is None or anyio.current_time() < self._renew_at:
            return token
        async with self._renewing:
            if self._token is token and anyio.current_time() >= self._renew_at:
                await self._renew(token)
        return self._token

    async def replace(self, refused: str) -> str | None:
        """Log in again, because a token was refused; None without a remembered login.

        Raises:
            AuthenticationError: the server refuses the login as well.
        """
        async with self._renewing:
            if self._token == refused and self._login is not None:
                await self._log_in_again(self._login)
        return self._token if self._token != refused else None

    async def _renew(self, token: str) -> None:
        """Refresh the token; if that fails, it is replaced once the server refuses it."""
        # If this is cancelled or fails, requests go on with the old token.
        self._renew_at = math.inf
        request = encode_refresh(token)
        response = await self._exchange(request)
        if response.status == request.route.success and self._token is token:
            self._store_token(response)
            self.renewals_count += 1

    async def _log_in_again(self, login: Command[Any]) -> None:
        request = encode_rest_request(login)
        response = await self._exchange(request)
        decode_response(login, request.route, response)
        if self._login is login:
            self._store_token(response)
            self.renewals_count += 1

    def _store_token(self, response: HttpResponse) -> None:
        try:
            access = decode_json(response.body, IdentityShape).access_token
        except RemoteProtocolError as error:
            raise error_from_protocol(error) from error
        self._token = access.token
        life = access.expiry - _server_time(response)
        if life <= 0:
            # The clocks disagree too much; wait until the server refuses the token.
            self._renew_at = math.inf
            return
        margin = min(RENEWED_BEFORE_SECONDS, life * RENEWED_BEFORE_SHARE)
        self._renew_at = anyio.current_time() + life - margin


def _server_time(response: HttpResponse) -> float:
    """Read the clock of the server from the Date header; the local clock without one."""
    try:
        return parsedate_to_datetime(response.headers[b"date"].decode("latin-1")).timestamp()
    except (KeyError, ValueError):
        return time.time()
