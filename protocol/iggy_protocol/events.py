"""What a connection has to say: one frozen record for each thing that can have happened.

Payloads are views on the received bytes and are not decoded until somebody asks, so that whoever
only passes them on never pays for it. A view stays valid as long as it lives; release or drop it,
and the memory behind it can receive the next frames.

This module knows the registry, to decode. It knows neither frames nor connections.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar, cast

from iggy_protocol import registry
from iggy_protocol.errors import RemoteProtocolError
from iggy_protocol.records import record
from iggy_protocol.registry import Command

__all__ = [
    "NEED_DATA",
    "PAUSED",
    "ClientEvent",
    "ConnectionClosed",
    "ErrorReceived",
    "ForeignRequestReceived",
    "RequestReceived",
    "RequestRefused",
    "ResponseReceived",
    "ServerEvent",
    "Signal",
]

R = TypeVar("R")


class Signal(Enum):
    """Why there is no event; members of an enum, so that type checkers can tell them apart."""

    NEED_DATA = "NEED_DATA"
    PAUSED = "PAUSED"


NEED_DATA: Final = Signal.NEED_DATA
"""Everything received is understood: read more from the peer."""

PAUSED: Final = Signal.PAUSED
"""As many requests wait for an answer as may: answer the oldest before reading on."""


@record
class RequestReceived:
    """A client asks for something; the next answer that is owed to nobody older is its answer.

    Attributes:
        code: the command's number, which may be one that no command has.
        payload: the request without its frame. It may be written to where ``readonly`` is False.
    """

    code: int
    payload: memoryview

    def decode(self) -> Command[Any]:
        """Read the command.

        Raises:
            RemoteProtocolError: the code or the payload is wrong; answer with ``status``.
        """
        return registry.decode_request(self.code, self.payload)


@record
class RequestRefused:
    """A client sent a frame that cannot be a request; answer with ``error.status`` and go on.

    The frame is skipped, so what follows it is read in its own right.

    Attributes:
        code: the number in its head.
        error: what is wrong with it.
    """

    code: int
    error: RemoteProtocolError


@record
class ForeignRequestReceived:
    """A client speaks the dialect of servers from 0.9 on; write the refusal, and expect no sense.

    It is skipped as a whole and not outstanding. Whatever the client asks next is told likewise.

    Attributes:
        refusal: what to write to the client, which understands it.
    """

    refusal: bytes


@record
class ResponseReceived(Generic[R]):
    """The server has done what the command asked for.

    Attributes:
        command: the oldest request that was not answered before.
        payload: the reply without its frame.
    """

    command: Command[R]
    payload: memoryview

    def decode(self) -> R:
        """Read the reply.

        Raises:
            RemoteProtocolError: the payload is not a reply to this command.
        """
        return cast("R", registry.decode_reply(self.command.CODE, self.payload))


@record
class ErrorReceived:
    """The server refuses a request, or says something without being asked.

    Attributes:
        command: the oldest request that was not answered before, or None when all were, as when
            a stopping server takes its leave with status 8.
        status: the number of the error; never 0.
    """

    command: Command[Any] | None
    status: int


@record
class ConnectionClosed:
    """The peer sends nothing more; what it sent before has been told.

    Attributes:
        mid_frame: whether it stopped inside a frame, the beginning of which is lost.
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
