"""hypercorn's HTTP/1.1 and HTTP/2, hardened against malicious clients.

    HTTP/1.1   ambiguous requests are refused: lines without a carriage return, folded headers, a
               content length beside chunks, unknown versions
    HTTP/2     the connection is closed when a client floods it with control frames, violates the
               protocol, or grants no window for its responses

Holds all changes to hypercorn's protocols.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import h2.errors
import h2.events
import h2.exceptions
import h11
import hyperframe.exceptions
import trio
from hypercorn.events import Closed, RawData
from hypercorn.protocol.events import Body
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.h11 import (
    H2CProtocolRequiredError,
    H2ProtocolAssumedError,
    H11Protocol,
)
from priority.priority import PriorityError

if TYPE_CHECKING:
    from hypercorn.events import Event
    from hypercorn.protocol.events import Event as StreamEvent


LOGGER = logging.getLogger(__name__)

# The slowest accepted reader: below this a client holds memory on purpose.
BYTES_PER_SECOND_MIN: Final = 1 << 14
# The end of a head for any parser, and bytes that parsers read in different ways.
END_OF_HEAD: Final = re.compile(rb"\n\r?\n")
AMBIGUOUS: Final = re.compile(rb"(?<!\r)\n|\r(?!\n|$)|\n[ \t]|\x00")
VERSIONS: Final = (b"1.0", b"1.1")
PREFACE: Final = (b"PRI", b"2.0")
# Control frames cause work and carry no data. A client needs a few; a flood has many.
CONTROL_FRAMES_PER_SECOND_MAX: Final = 500
CONTROL_EVENTS: Final = (
    h2.events.PingReceived,
    h2.events.PriorityUpdated,
    h2.events.RemoteSettingsChanged,
    h2.events.StreamReset,
)
# What comes of the settings in the head of a request that asks for HTTP/2.
BAD_UPGRADES: Final = (
    h2.exceptions.ProtocolError,
    hyperframe.exceptions.HyperframeError,
    ValueError,
)
# Requests under way on a connection, those included whose client has given them up: twice as many
# as it may have streams.
IN_FLIGHT_MAX: Final = 64


@dataclass(slots=True)
class HttpConnectionLimits:
    """The limits of a connection.

    Attributes:
        stall_timeout_s: the time for a response in addition to its time at the slowest speed.
        in_flight: returns the number of requests in progress.
    """

    stall_timeout_s: float
    in_flight: Callable[[], int]


class _StrictConnection(h11.Connection):
    """HTTP/1.1 without the leniency that enables request smuggling past a proxy."""

    def next_event(self) -> Any:
        """Return the next event.

        Raises:
            h11.RemoteProtocolError: the request is ambiguous or malformed.
        """
        if self.their_state is h11.IDLE:
            self._check_head(self.trailing_data[0])
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._check_request(event)
        return event

    def _check_head(self, data: bytes) -> None:
        end = END_OF_HEAD.search(data)
        head = data if end is None else data[: end.end()]
        if AMBIGUOUS.search(head):
            self._refuse(400, "the head has bare line ends, folded lines or NUL in it")

    def _check_request(self, request: h11.Request) -> None:
        version = request.http_version
        if version not in VERSIONS and (request.method, version) != PREFACE:
            self._refuse(505, f"there is no HTTP/{version.decode()}")
        names = {name for name, _ in request.headers}
        if {b"content-length", b"transfer-encoding"} <= names:
            self._refuse(400, "a length beside chunks")

    def _refuse(self, status: int, reason: str) -> None:
        self._process_error(h11.CLIENT)
        raise h11.RemoteProtocolError(reason, error_status_hint=status)


class _Http1(H11Protocol):
    """HTTP/1.1."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.connection = _StrictConnection(
            h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size
        )


class _Http2(H2Protocol):
    """HTTP/2."""

    def __init__(self, limits: HttpConnectionLimits, *args: Any) -> None:
        super().__init__(*args)
        self._limits = limits
        self._second = 0
        self._control_count = 0

    async def initiate(
        self, headers: list[tuple[bytes, bytes]] | None = None, settings: bytes | None = None
    ) -> None:
        """Say what is said first, and answer the request that asked for HTTP/2, if one did."""
        try:
            await super().initiate(headers, settings)
        except BAD_UPGRADES as error:
            self.closed = True
            await self._close_connection(f"asked for HTTP/2 with settings that are none: {error}")

    async def handle(self, event: Event) -> None:
        """Take in what has come, or the end."""
        if not isinstance(event, RawData):
            await super().handle(event)
            return
        try:
            events = self.connection.receive_data(event.data)
        except h2.exceptions.ProtocolError as error:
            await self._close_connection(f"violated the protocol: {error}")
            return
        if self._is_flooded(events):
            self.connection.close_connection(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
            await self._close_connection("sent too many control frames")
            return
        for one in events:
            if self.closed:
                return
            await self._take(one)

    def _is_flooded(self, events: list[h2.events.Event]) -> bool:
        second = int(trio.current_time())
        if second != self._second:
            self._second, self._control_count = second, 0
        self._control_count += sum(isinstance(one, CONTROL_EVENTS) for one in events)
        if self._control_count > CONTROL_FRAMES_PER_SECOND_MAX:
            return True
        new_count = sum(isinstance(one, h2.events.RequestReceived) for one in events)
        return self._limits.in_flight() + new_count > IN_FLIGHT_MAX

    async def _take(self, event: h2.events.Event) -> None:
        try:
            await self._handle_events([event])
        except (KeyError, h2.exceptions.ProtocolError, PriorityError):
            # The stream has ended meanwhile.
            await self._flush()
        except (UnicodeError, UnboundLocalError):
            # hypercorn fails on a path or method that is missing or not ASCII.
            stream_id = getattr(event, "stream_id", 0)
            with suppress(h2.exceptions.ProtocolError):
                self.connection.reset_stream(stream_id, h2.errors.ErrorCodes.PROTOCOL_ERROR)
            self.streams.pop(stream_id, None)
            await self._flush()

    async def _close_connection(self, reason: str) -> None:
        LOGGER.info("closed the HTTP/2 connection of %s: it %s", self.client, reason)
        await self._flush()
        await self.send(Closed())

    async def _send_data(self, stream_id: int) -> None:
        try:
            await super()._send_data(stream_id)
        except (KeyError, PriorityError):
            buffer = self.stream_buffers.pop(stream_id, None)
            if buffer is not None:
                await buffer.close()
            with suppress(PriorityError):
                self.priority.remove_stream(stream_id)

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of a response; close the connection if the client grants no window for it."""
        buffer = self.stream_buffers.get(event.stream_id)
        size = len(event.data) if isinstance(event, Body) else 0
        size += 0 if buffer is None else len(buffer.buffer)
        with trio.move_on_after(self._limits.stall_timeout_s + size / BYTES_PER_SECOND_MIN):
            await super().stream_send(event)
            return
        await self._close_connection("granted no window for its responses")


class NegotiatedProtocol:
    """The protocol of a connection, which may switch from HTTP/1.1 to HTTP/2.

    Args:
        limits: the limits of the connection.
        is_http2: whether ALPN has chosen HTTP/2.
        arguments: the arguments of hypercorn's protocols.
    """

    def __init__(self, limits: HttpConnectionLimits, is_http2: bool, *arguments: Any) -> None:
        self._limits = limits
        self._arguments = arguments
        self._protocol: _Http1 | _Http2 = _Http1(*arguments)
        if is_http2:
            self._protocol = _Http2(limits, *arguments)

    @property
    def is_http2(self) -> bool:
        """Whether the protocol is HTTP/2."""
        return isinstance(self._protocol, _Http2)

    async def initiate(self) -> None:
        """Send the preface of the protocol."""
        await self._protocol.initiate()

    async def handle(self, event: Event) -> None:
        """Take in what has come, or the end."""
        try:
            await self._protocol.handle(event)
        except H2ProtocolAssumedError as error:
            await self._upgrade(error.data, ())
        except H2CProtocolRequiredError as error:
            await self._upgrade(error.data, (error.headers, error.settings))

    async def _upgrade(self, data: bytes, asked: tuple[Any, ...]) -> None:
        self._protocol = _Http2(self._limits, *self._arguments)
        await self._protocol.initiate(*asked)
        if data and not self._protocol.closed:
            await self._protocol.handle(RawData(data))
