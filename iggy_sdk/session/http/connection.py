"""HTTP/1.1 connections by way of ``h11``: one exchange at a time, and a pool of them.

A connection on which an exchange was interrupted is never used again.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_origin

import anyio
import h11

from iggy_protocol import Command, Limits, RemoteProtocolError, StatusCode, record
from iggy_protocol.rest import ABSENT, Route, decode_rest_error, decode_rest_reply
from iggy_sdk.errors import (
    DisconnectedError,
    IggyError,
    InvalidRequestError,
    MessageTooLargeError,
    ProtocolError,
    RequestTimeoutError,
    ServerError,
    describe_command,
    error_for_status,
    error_from_protocol,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from iggy_sdk.transport import StreamTransport


RESPONSE_BYTES_MAX: Final = Limits().response_bytes_max
"""The limit of a body, as large as that of any reply: it bounds a peer that is no Iggy server."""

HEAD_BYTES_MAX: Final = 65_536
"""The limit of a header; servers need a few hundred bytes, proxies sometimes a few thousand."""

READ_BYTES: Final = 131_072
"""The size of one read: few reads for a large poll, and little memory for a full pool."""

HTTP_PREFIX: Final = b"HTTP/"

Headers = list[tuple[bytes, bytes]]


class ResponseTooLargeError(Exception):
    """The response is larger than those of an Iggy server."""


@record
class HttpRequest:
    """A request.

    Attributes:
        method: such as ``GET``.
        target: path and query.
        headers: all but content-length. They may hold the token, so ``repr`` leaves them out.
        body: may be empty.
    """

    method: str
    target: str
    headers: Headers
    body: bytes

    def __repr__(self) -> str:
        return f"<HttpRequest {self.method} {self.target}>"


@record
class HttpResponse:
    """A response.

    Attributes:
        status: the HTTP status.
        headers: with lower-case names.
        body: the whole body.
    """

    status: int
    headers: dict[bytes, bytes]
    body: bytes


@dataclass(slots=True)
class ExchangeProgress:
    """How far an exchange has come.

    Attributes:
        is_sent: whether the whole request was written.
        is_answered: whether any byte of the response was read.
        bytes_out: how many bytes were handed to the transport.
        bytes_in: how many bytes were read.
    """

    is_sent: bool = False
    is_answered: bool = False
    bytes_out: int = 0
    bytes_in: int = 0


class HttpClientConnection:
    """One connection, for one exchange at a time.

    Attributes:
        is_reused: whether it was used before, so that the server may have closed it meanwhile.
        idle_since: when it was returned to the pool.
    """

    def __init__(self, transport: StreamTransport) -> None:
        """Take a connected transport; it is closed with the connection."""
        self._transport = transport
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._read_buffer = memoryview(bytearray(READ_BYTES))
        self.is_reused: bool = False
        self.idle_since: float = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether another exchange may begin: the last one is complete, the server connected."""
        if self._http.our_state is not h11.IDLE:
            return False
        try:
            # No request is pending, so readable bytes mean the end or an error.
            return self._transport.receive_nowait(self._read_buffer) is None
        except OSError:
            return False

    async def exchange(self, request: HttpRequest, progress: ExchangeProgress) -> HttpResponse:
        """Send a request and return its response.

        Raises:
            OSError: the connection broke.
            ResponseTooLargeError: the response is above the limits.
            h11.RemoteProtocolError: the peer does not speak HTTP.
        """
        try:
            await self._send(request, progress)
            response = await self._receive(progress)
        except BaseException:
            self.abort()
            raise
        self._finish()
        return response

    async def _send(self, request: HttpRequest, progress: ExchangeProgress) -> None:
        headers = list(request.headers)
        if request.body:
            headers.append((b"content-length", str(len(request.body)).encode()))
        head = self._http.send(
            h11.Request(method=request.method, target=request.target, headers=headers)
        )
        assert head is not None
        # h11 counts the body without copying it; the transport writes it from the caller's buffer.
        if request.body:
            self._http.send_with_data_passthrough(h11.Data(data=request.body))
        self._http.send(h11.EndOfMessage())
        progress.bytes_out += len(head) + len(request.body)
        try:
            rest = self._transport.send_nowait([head, request.body] if request.body else [head])
            if rest:
                await self._transport.send(rest)
        except OSError:
            # The server may respond and close before it has read all; the response is read next.
            return
        progress.is_sent = True

    async def _receive(self, progress: ExchangeProgress) -> HttpResponse:
        response: h11.Response | None = None
        pieces: list[bytes] = []
        size_bytes = 0
        while True:
            event = await self._next_event(progress)
            if isinstance(event, h11.Response):
                response = event
                _check_length(response)
            elif isinstance(event, h11.Data):
                size_bytes += len(event.data)
                if size_bytes > RESPONSE_BYTES_MAX:
                    raise ResponseTooLargeError
                pieces.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                assert response is not None
                return HttpResponse(response.status_code, dict(response.headers), b"".join(pieces))

    async def _next_event(self, progress: ExchangeProgress) -> h11.Event:
        while True:
            event = self._http.next_event()
            if event is h11.PAUSED:
                raise h11.RemoteProtocolError("the server switches to another protocol")
            if event is not h11.NEED_DATA:
                assert isinstance(event, h11.Event)
                return event
            count = await self._transport.receive_into(self._read_buffer)
            data = bytes(self._read_buffer[:count])
            if data and not progress.is_answered:
                progress.is_answered = True
                _check_http_prefix(data)
            progress.bytes_in += count
            self._http.receive_data(data)
            if not count:
                return self._last_event()

    def _last_event(self) -> h11.Event:
        """Interpret the end of the connection: the end of a body, or a broken response."""
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise ConnectionResetError("the server closed before the end of a response") from error
        assert isinstance(event, h11.Event)
        return event

    def _finish(self) -> None:
        """Prepare for the next exchange, or close if the server does not keep the connection."""
        is_over = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        trailing, _ = self._http.trailing_data
        # Extra bytes would be taken for the response to the next request.
        if is_over and not trailing:
            self._http.start_next_cycle()
            self.is_reused = True
        else:
            self.abort()

    def abort(self) -> None:
        """Close at once; a task that waits in here gets an error."""
        self._http.send_failed()
        self._transport.abort()


def _check_http_prefix(data: bytes) -> None:
    """Recognise another protocol by its first bytes, instead of waiting for a whole header."""
    if not data.startswith(HTTP_PREFIX[: len(data)]):
        raise h11.RemoteProtocolError("the response does not begin with HTTP/")


def _check_length(response: h11.Response) -> None:
    """Refuse a body by its content-length, before it is read."""
    for name, value in response.headers:
        if name == b"content-length" and int(value) > RESPONSE_BYTES_MAX:
            raise ResponseTooLargeError


# A pool of connections to one server. Idle ones are used again, the latest first.


CONNECTIONS_MAX: Final = 16
"""How many exchanges run at once. One process of the server serves HTTP, and a few connections keep
it busy; more would only queue there instead of here."""

IDLE_SECONDS_MAX: Final = 30.0
"""How long a connection may be idle. Servers and middleboxes close idle connections, the slowest
after a minute, and a request may be in flight when that happens."""


class ConnectionPool:
    """Connections to one server.

    Args:
        dial: opens another connection.
        capacity: how many are in use at once.
    """

    def __init__(self, dial: Callable[[], Awaitable[StreamTransport]], *, capacity: int) -> None:
        self._dial = dial
        self._capacity = anyio.Semaphore(capacity)
        self._idle: list[HttpClientConnection] = []
        self._in_use: set[HttpClientConnection] = set()
        self._is_closed = False

    @asynccontextmanager
    async def acquire(self, *, fresh: bool = False) -> AsyncIterator[HttpClientConnection]:
        """Use a connection for the length of a block; wait while all are in use.

        Args:
            fresh: open a new one, because a pooled one has failed.

        Raises:
            ConnectionFailedError: a new one cannot be opened.
        """
        async with self._capacity:
            connection = None if fresh else self._take_idle()
            if connection is None:
                connection = HttpClientConnection(await self._dial())
            self._in_use.add(connection)
            try:
                yield connection
            finally:
                self._in_use.discard(connection)
                self._return_connection(connection)

    def _take_idle(self) -> HttpClientConnection | None:
        stale_before = anyio.current_time() - IDLE_SECONDS_MAX
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since > stale_before and connection.is_usable:
                return connection
            connection.abort()
        return None

    def _return_connection(self, connection: HttpClientConnection) -> None:
        if self._is_closed or not connection.is_usable:
            connection.abort()
            return
        connection.idle_since = anyio.current_time()
        self._idle.append(connection)

    def abort(self) -> None:
        """Close all connections at once; may be called twice."""
        self._is_closed = True
        for connection in [*self._idle, *self._in_use]:
            connection.abort()
        self._idle.clear()


# HTTP responses: the reply, the error of the server, or the error that this is no Iggy server.

UNAUTHORISED: Final = 401
SERVER_ERRORS: Final = range(500, 600)
REDIRECTS: Final = range(300, 400)

QUOTED_CHARACTERS_MAX: Final = 200
"""How much of an unexpected response an error quotes; enough to recognise a proxy."""

HTTP_PORT_ADVICE: Final = (
    "Use the address of the server's HTTP listener, port 3000 by default, and check for a proxy"
    " in between."
)


def decode_response(command: Command[Any], route: Route, response: HttpResponse) -> Any:
    """Decode the reply in a response.

    Raises:
        DisconnectedError: a proxy cannot reach the server.
        ProtocolError: the response is not one of an Iggy server.
        IggyError: the error of the server.
    """
    encoding = response.headers.get(b"content-encoding", b"identity")
    if encoding != b"identity":
        raise _unexpected_response_error(
            command, "a response in an encoding that was not requested"
        )
    if response.status == route.success:
        try:
            return decode_rest_reply(command.CODE, response.body)
        except RemoteProtocolError as error:
            raise error_from_protocol(error, command=command) from error
    return _decode_error(command, route, response)


def _decode_error(command: Command[Any], route: Route, response: HttpResponse) -> Any:
    try:
        status = decode_rest_error(command.CODE, response.body)
    except RemoteProtocolError:
        raise _http_status_error(command, response) from None
    if status is ABSENT:
        return () if get_origin(route.reply) is list else None
    assert isinstance(status, int)
    raise error_for_status(status, command=command)


def _http_status_error(command: Command[Any], response: HttpResponse) -> IggyError:
    """Make an error of a response without an Iggy status."""
    if response.status in _ERROR_FOR_HTTP_STATUS:
        return _ERROR_FOR_HTTP_STATUS[response.status](command, response)
    if response.status in REDIRECTS:
        where = response.headers.get(b"location", b"another place").decode("latin-1")
        return ProtocolError(
            f"{describe_command(command)}: the response is a redirect to {where!r}, which is not"
            " followed",
            advice="Connect to that place itself, if you trust it.",
        )
    if response.status in SERVER_ERRORS:
        return ServerError(f"{describe_command(command)}: the server failed{_quote_body(response)}")
    return _unexpected_response_error(
        command, f"HTTP status {response.status}{_quote_body(response)}"
    )


def _unexpected_response_error(command: Command[Any], what: str) -> ProtocolError:
    return ProtocolError(
        f"{describe_command(command)}: {what} is not a response of an Iggy server",
        advice=HTTP_PORT_ADVICE,
    )


def _quote_body(response: HttpResponse) -> str:
    text = " ".join(response.body[: 4 * QUOTED_CHARACTERS_MAX].decode(errors="replace").split())
    return f": {text[:QUOTED_CHARACTERS_MAX]!r}" if text else ""


def _unauthenticated_error(command: Command[Any], response: HttpResponse) -> IggyError:
    return error_for_status(StatusCode.UNAUTHENTICATED, command=command)


def _server_unreachable_error(command: Command[Any], response: HttpResponse) -> IggyError:
    return DisconnectedError(
        f"{describe_command(command)}: a proxy reports that it cannot reach the server"
        f" (HTTP status {response.status})",
        advice="Check that the server runs and that the proxy knows where, then try again.",
    )


def _unreadable_request_error(command: Command[Any], response: HttpResponse) -> IggyError:
    # The server names fields and types only, so the quote cannot hold a secret.
    return InvalidRequestError(
        f"{describe_command(command)}: the server could not read the request{_quote_body(response)}"
    )


def _too_large_error(command: Command[Any], response: HttpResponse) -> IggyError:
    return MessageTooLargeError(
        f"{describe_command(command)}: the request has more bytes than the server takes over HTTP",
        advice="Send smaller batches, or raise http.max_request_size of the server.",
    )


def _too_slow_error(command: Command[Any], response: HttpResponse) -> IggyError:
    return RequestTimeoutError(
        f"{describe_command(command)}: the server did not wait for the rest of the request",
        sent=False,
    )


def _too_many_requests_error(command: Command[Any], response: HttpResponse) -> IggyError:
    return ServerError(
        f"{describe_command(command)}: there are too many requests (HTTP status 429)",
        advice="Ask less often, and try again after a while.",
        retriable=True,
    )


_ERROR_FOR_HTTP_STATUS: Final[Mapping[int, Callable[[Command[Any], HttpResponse], IggyError]]] = {
    400: _unreadable_request_error,
    UNAUTHORISED: _unauthenticated_error,
    408: _too_slow_error,
    413: _too_large_error,
    415: _unreadable_request_error,
    422: _unreadable_request_error,
    429: _too_many_requests_error,
    502: _server_unreachable_error,
    503: _server_unreachable_error,
    504: _server_unreachable_error,
}
