"""The events of a connection, one frozen record each.

Payloads are views on the received bytes, and only ``decode`` decodes them, so forwarding them is
cheap. A view stays valid as long as it exists; after it is released or dropped,
its memory can receive the next frames.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar, cast

from iggy_protocol import registry
from iggy_protocol.dialect import CLASSIC, Dialect
from iggy_protocol.errors import RemoteProtocolError
from iggy_protocol.records import record
from iggy_protocol.registry import Command

R = TypeVar("R")


class Signal(Enum):
    """Why there is no event; members of an enum, so that type checkers can tell them apart."""

    NEED_DATA = "NEED_DATA"
    PAUSED = "PAUSED"


NEED_DATA: Final = Signal.NEED_DATA
"""All received bytes are decoded: read more from the peer."""

PAUSED: Final = Signal.PAUSED
"""The limit of outstanding requests is reached: reply to the oldest before reading on."""


@record
class RequestReceived:
    """A request; it is answered after all older ones.

    Attributes:
        code: the command code, which may be unknown.
        payload: the request without its frame. It is writable where ``readonly`` is False.
        dialect: what the client speaks.
    """

    code: int
    payload: memoryview
    dialect: Dialect = CLASSIC

    def decode(self) -> Command[Any]:
        """Read the command.

        Raises:
            RemoteProtocolError: the code or the payload is wrong; answer with ``status``.
        """
        return registry.decode_request(self.code, self.payload, self.dialect)


@record
class RequestRefused:
    """A frame that is no valid request; reply with ``error.status`` and continue.

    The frame is skipped; the frames after it are decoded as usual.

    Attributes:
        code: the command code in its head.
        error: what is wrong with it.
    """

    code: int
    error: RemoteProtocolError


@record
class ForeignRequestReceived:
    """A client uses the protocol of 0.9 or later; write the refusal.

    The frame is skipped and not outstanding. Each further request of the client is such an event.

    Attributes:
        refusal: what to write to the client, in its protocol.
    """

    refusal: bytes


@record
class ResponseReceived(Generic[R]):
    """The server has executed the command.

    Attributes:
        command: the oldest outstanding request.
        payload: the reply without its frame.
        dialect: what the server speaks.
    """

    command: Command[R]
    payload: memoryview
    dialect: Dialect = CLASSIC

    def decode(self) -> R:
        """Read the reply.

        Raises:
            RemoteProtocolError: the payload is not a reply to this command.
        """
        return cast("R", registry.decode_reply(self.command.CODE, self.payload, self.dialect))


@record
class ErrorReceived:
    """The server refuses a request, or sends an error without a request.

    Attributes:
        command: the oldest outstanding request, or None when there is none, as when a stopping
            server sends status 8.
        status: the number of the error; never 0.
    """

    command: Command[Any] | None
    status: int


@record
class ConnectionClosed:
    """The peer sends nothing more; all events before the end were returned.

    Attributes:
        mid_frame: whether it stopped inside a frame, which is lost.
    """

    mid_frame: bool


ServerEvent = (
    RequestReceived
    | RequestRefused
    | ForeignRequestReceived
    | ConnectionClosed
    | Literal[Signal.NEED_DATA]
    | Literal[Signal.PAUSED]
)
ClientEvent = ResponseReceived[Any] | ErrorReceived | ConnectionClosed | Literal[Signal.NEED_DATA]
