"""One connection to the HTTP door of a server: a request goes out, its answer comes back.

A connection that was left in the middle of an exchange is never used again, whatever the reason.

Owns the bytes of HTTP/1.1, by way of ``h11``, and the bounds of an answer. It must not know what is
asked, nor who has the token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import h11

from iggy_protocol import Limits, record

if TYPE_CHECKING:
    from iggy_sdk.transport import Transport

__all__ = ["Answer", "AnswerTooLargeError", "HttpConnection", "HttpRequest", "Progress"]

ANSWER_BYTES_MAX: Final = Limits().response_bytes_max
"""The body of an answer, as wide as that of any reply: it is there for the peer that is no Iggy
server at all."""

HEAD_BYTES_MAX: Final = 65_536
"""The head of an answer; servers need a few hundred bytes, proxies sometimes a few thousand."""

SPACE_BYTES: Final = 131_072
"""What is read at once. A large poll takes few rounds then, and a pool of these little memory."""

BEGINNING: Final = b"HTTP/"

Headers = list[tuple[bytes, bytes]]


class AnswerTooLargeError(Exception):
    """The answer is larger than any of an Iggy server."""


@record
class HttpRequest:
    """A request as it goes out.

    Attributes:
        method: such as ``GET``.
        target: path and query.
        headers: all but the length of the body. They may hold the token, so nothing is shown.
        body: may be empty.
    """

    method: str
    target: str
    headers: Headers
    body: bytes

    def __repr__(self) -> str:
        return f"<HttpRequest {self.method} {self.target}>"


@record
class Answer:
    """An answer as it came in.

    Attributes:
        status: the HTTP status.
        headers: with names in small letters.
        body: all of it.
    """

    status: int
    headers: dict[bytes, bytes]
    body: bytes


@dataclass(slots=True)
class Progress:
    """How far a request has come.

    Attributes:
        is_sent: whether all of it has left.
        is_answered: whether anything has come back.
        bytes_out: how many bytes were handed to the transport.
        bytes_in: how many bytes have come.
    """

    is_sent: bool = False
    is_answered: bool = False
    bytes_out: int = 0
    bytes_in: int = 0


class HttpConnection:
    """One connection, for one exchange at a time.

    Attributes:
        is_reused: whether it has served before, so that its server may have closed it meanwhile.
        idle_since: when it was put aside.
    """

    def __init__(self, transport: Transport) -> None:
        """Take a connected transport; it is closed with the connection."""
        self._transport = transport
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._space = memoryview(bytearray(SPACE_BYTES))
        self.is_reused = False
        self.idle_since = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether another exchange may begin: the last one is over, and the server is there."""
        if self._http.our_state is not h11.IDLE:
            return False
        try:
            # Nobody has asked for anything, so whatever comes is an end or a mistake.
            return self._transport.receive_nowait(self._space) is None
        except OSError:
            return False

    async def exchange(self, request: HttpRequest, progress: Progress) -> Answer:
        """Send a request and return the answer.

        Raises:
            OSError: the connection broke.
            AnswerTooLargeError: the answer is larger than any that is due.
            h11.RemoteProtocolError: the peer does not speak HTTP.
        """
        try:
            await self._send(request, progress)
            answer = await self._receive(progress)
        except BaseException:
            self.abort()
            raise
        self._finish()
        return answer

    async def _send(self, request: HttpRequest, progress: Progress) -> None:
        headers = list(request.headers)
        if request.body:
            headers.append((b"content-length", str(len(request.body)).encode()))
        head = self._http.send(
            h11.Request(method=request.method, target=request.target, headers=headers)
        )
        assert head is not None
        # The state machine counts the body; the bytes go from where they are.
        if request.body:
            self._http.send_with_data_passthrough(h11.Data(data=request.body))
        self._http.send(h11.EndOfMessage())
        progress.bytes_out += len(head) + len(request.body)
        try:
            rest = self._transport.send_nowait([head, request.body] if request.body else [head])
            if rest:
                await self._transport.send(rest)
        except OSError:
            # A server may refuse a request, and close, before it has read all of it.
            return
        progress.is_sent = True

    async def _receive(self, progress: Progress) -> Answer:
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
                if size_bytes > ANSWER_BYTES_MAX:
                    raise AnswerTooLargeError
                pieces.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                assert response is not None
                return Answer(response.status_code, dict(response.headers), b"".join(pieces))

    async def _next_event(self, progress: Progress) -> h11.Event:
        while True:
            event = self._http.next_event()
            if event is h11.PAUSED:
                raise h11.RemoteProtocolError("the server changes the protocol")
            if event is not h11.NEED_DATA:
                assert isinstance(event, h11.Event)
                return event
            count = await self._transport.receive_into(self._space)
            data = bytes(self._space[:count])
            if data and not progress.is_answered:
                progress.is_answered = True
                _check_beginning(data)
            progress.bytes_in += count
            self._http.receive_data(data)
            if not count:
                return self._last_event()

    def _last_event(self) -> h11.Event:
        """Say what the end of the connection means: that of a body, or of all hope for one."""
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise ConnectionResetError("the server closed before the end of an answer") from error
        assert isinstance(event, h11.Event)
        return event

    def _finish(self) -> None:
        """Make ready for the next exchange, unless the server or its answer rule that out."""
        is_over = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        surplus, _ = self._http.trailing_data
        # What follows an answer would be taken for the answer to the next request.
        if is_over and not surplus:
            self._http.start_next_cycle()
            self.is_reused = True
        else:
            self.abort()

    def abort(self) -> None:
        """Close at once; whoever waits in here is woken with an error."""
        self._http.send_failed()
        self._transport.abort()


def _check_beginning(data: bytes) -> None:
    """Recognise another protocol by its first bytes, instead of waiting for a head of it."""
    if not data.startswith(BEGINNING[: len(data)]):
        raise h11.RemoteProtocolError("an answer begins otherwise")


def _check_length(response: h11.Response) -> None:
    """Refuse a body by its announced length, before any of it is read."""
    for name, value in response.headers:
        if name == b"content-length" and int(value) > ANSWER_BYTES_MAX:
            raise AnswerTooLargeError
