"""The events of a connection, one frozen record each.

Payloads are views on the received bytes, and only ``decode`` decodes them, so forwarding them is
cheap. A view stays valid as long as it exists; after it is released or dropped,
its memory can receive the next frames.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, cast

from iggy_protocol import registry
from iggy_protocol.batch import SendRun
from iggy_protocol.dialect import CLASSIC, V0_11, Dialect, Version
from iggy_protocol.errors import RemoteProtocolError
from iggy_protocol.model.stream import PartitionContext
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


NO_CONTEXT: Final = PartitionContext()
"""That of a request which refers to no partition."""


class RequestId(NamedTuple):
    """What tells a request from all others, from 0.9 on; repeats of it carry the same.

    Attributes:
        client: sixteen bytes that the client has chosen for its session.
        session: the number that the server gave to the session; 0 before a login.
        number: counts the requests of the session. Reads of a client of 0.9 share one number.
        identifier: sixteen bytes: a checksum of the body in 0.9, later random, or zeros.
        context: the state of the partition that it refers to; from 0.10 on.
        dialect: what the client spoke when it sent the request.
    """

    client: bytes
    session: int
    number: int
    identifier: bytes
    context: PartitionContext = NO_CONTEXT
    dialect: Dialect = V0_11


@record
class RequestReceived:
    """A request; it is answered after all older ones.

    Attributes:
        code: the command code, which may be unknown.
        payload: the request without its frame. It is writable where ``readonly`` is False.
        dialect: what the client speaks.
        request_id: what repeats of the request share; None in the classic dialect.
    """

    code: int
    payload: memoryview
    dialect: Dialect = CLASSIC
    request_id: RequestId | None = None

    @property
    def context(self) -> PartitionContext:
        """The state of the partition that the request refers to; empty before 0.10."""
        return NO_CONTEXT if self.request_id is None else self.request_id.context

    def decode(self) -> Command[Any]:
        """Read the command.

        Raises:
            RemoteProtocolError: the code or the payload is wrong; answer with ``status``.
        """
        return registry.decode_request(self.code, self.payload, self.dialect)


@record
class SendsReceived:
    """Sends from 0.9 on that say the same but for their messages; each of them is answered.

    Attributes:
        run: how many they are, and the number of each.
        messages: of all of them, in the classic form and back to back.
        metadata: what all of them name, from the stream to the message count.
        request_id: that of the first such send; only the numbers differ.
    """

    run: SendRun
    messages: memoryview
    metadata: bytes
    request_id: RequestId


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
class VersionRefused(RequestRefused):
    """A login announces a version that is not supported; answer it as a RequestRefused.

    The answer is an eviction with the versions that are supported.

    Attributes:
        version: what the client announces.
        sdk_name: how its SDK calls itself, for the log.
        sdk_version: the version of the SDK, for the log.
    """

    version: Version
    sdk_name: str
    sdk_version: str


@record
class CancelReceived:
    """A client no longer waits for a deferred request; this event is not answered.

    Attributes:
        number: that of the request, which is not answered either.
    """

    number: int


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
        number: that of the request, from 0.9 on.
        is_committed: whether the server says that this is the final result of a write; from 0.10.
    """

    command: Command[R]
    payload: memoryview
    dialect: Dialect = CLASSIC
    number: int = 0
    is_committed: bool = False

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
        number: that of the request, from 0.9 on.
        is_committed: whether the server says that a write was refused for good; from 0.10 on.
    """

    command: Command[Any] | None
    status: int
    number: int = 0
    is_committed: bool = False


@record
class EvictionReceived:
    """The server ends the session; every request that was sent on this connection has failed.

    Attributes:
        reason: why; an ``EvictionReason``, or a number that it does not have.
        status: the error that the requests fail with.
        lowest: the oldest version that the server accepts, if it refuses ours.
        highest: the newest one.
    """

    reason: int
    status: int
    lowest: Version | None = None
    highest: Version | None = None


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
VsrServerEvent = ServerEvent | SendsReceived | CancelReceived
VsrClientEvent = ClientEvent | EvictionReceived
