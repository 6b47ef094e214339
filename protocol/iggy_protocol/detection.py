"""A server's connection before its framing is known: the first bytes of the client decide.

    connection = DetectingConnection(limits=...)
    connection.receive_data(...)          as any other connection
    event = connection.next_event()       FramingDetected: go on with event.connection

A server that speaks all dialects starts every client with this, and so holds the right connection
afterwards; all that was received is in it. Neither side changes the framing later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iggy_protocol.base_connection import DEFAULT_LIMITS, BaseServerConnection, Limits
from iggy_protocol.connection import ServerConnection
from iggy_protocol.errors import MalformedFrame
from iggy_protocol.framing import CLASSIC_FRAMING
from iggy_protocol.records import record
from iggy_protocol.vsr.recognition import (
    RECOGNISED_BYTES,
    WORD_BYTES,
    WireFraming,
    framing_of,
)
from iggy_protocol.vsr.server_connection import VsrServerConnection

if TYPE_CHECKING:
    from typing import Literal

    from iggy_protocol.events import ConnectionClosed, Signal
    from iggy_protocol.layout import Buffer


@record
class FramingDetected:
    """The first bytes of a client tell its framing.

    Attributes:
        connection: what to use from here on; it has all that was received.
    """

    connection: ServerConnection | VsrServerConnection


CONNECTIONS: Final = {WireFraming.CLASSIC: ServerConnection, WireFraming.VSR: VsrServerConnection}


class DetectingConnection(BaseServerConnection[int]):
    """The server side of a connection whose client has not told its framing yet."""

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS, is_authenticated: bool = False) -> None:
        super().__init__(
            payload_bytes_max=CLASSIC_FRAMING.payload_bytes_max,
            limits=limits,
            is_authenticated=is_authenticated,
        )

    def next_event(self) -> FramingDetected | ConnectionClosed | Literal[Signal.NEED_DATA]:
        """Return FramingDetected, or the reason why the framing is not known yet.

        Raises:
            MalformedFrame: no framing begins like this. Close the connection.
        """
        buffer = self._buffer
        if self._is_discarding() or not buffer.ensure(WORD_BYTES):
            return self._no_event()
        size = min(len(buffer), RECOGNISED_BYTES)
        buffer.ensure(size)
        try:
            framing = framing_of(buffer.view[buffer.start : buffer.start + size])
        except MalformedFrame as error:
            self._fail(error)
        if framing is None:
            return self._no_event()
        connection = CONNECTIONS[framing](
            limits=self._limits, is_authenticated=self.is_authenticated
        )
        connection.receive_data(self._copy_unread())
        if self._is_ended:
            connection.receive_eof()
        self._buffer.skip(len(self._buffer))
        return FramingDetected(connection)

    def push_error(self, status: int) -> list[Buffer]:
        """Tell a client that has said nothing why its connection ends, in the classic framing.

        A client of the other framing finds a head that is not complete, and then the end: for it
        the connection is lost, which is true.
        """
        return ServerConnection(limits=self._limits).push_error(status)
