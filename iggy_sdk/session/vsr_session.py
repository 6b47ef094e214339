"""A session with a server from 0.9 on: what streams of bytes and QUIC share.

A request is prepared first and sent then, so that the same bytes can be sent again on this or on
another connection. When that is done, and what else a request needs, is decided above.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, TypeVar

from iggy_protocol import (
    NO_CONTEXT,
    Command,
    CommandCode,
    ErrorReceived,
    EvictionReceived,
    LocalProtocolError,
    LogoutUser,
    PartitionContext,
    PreparedRequest,
    ResponseReceived,
    StatusCode,
)
from iggy_sdk.errors import EvictedError, error_for_status, error_from_protocol
from iggy_sdk.session.interface import Session
from iggy_sdk.session.pending_requests import PendingRequest, read_reply

if TYPE_CHECKING:
    from iggy_protocol import VsrClientConnection, VsrClientSession


R = TypeVar("R")

UNBOUND_CODES: Final = frozenset({CommandCode.PING, CommandCode.REGISTER, CommandCode.BIND_SESSION})
"""What servers from 0.9 on take before a login."""

DEFERRED_CODES: Final = frozenset(
    {CommandCode.POLL_DEFERRED, CommandCode.WAIT_FOR_MESSAGES, CommandCode.FETCH_MESSAGES}
)
"""Requests that may wait on the server, and that it can be told to drop."""


class PreparedPending(PendingRequest):
    """A prepared request that has no reply yet.

    Attributes:
        request: its number and its bytes.
        is_deferred: whether the server may let it wait.
    """

    __slots__ = ("is_deferred", "request")

    def __init__(self, request: PreparedRequest, deadline: float) -> None:
        super().__init__(request.command, deadline)
        self.request: PreparedRequest = request
        self.is_deferred: bool = request.command.CODE in DEFERRED_CODES


class VsrSession(Session):
    """One connection to one server from 0.9 on, where requests have numbers.

    Attributes:
        identity: the session of the client as the server knows it; from 0.10 on it outlives its
            connections, and several may use it.
        is_resumed: whether the connection goes on with a session that another one began.
    """

    identity: VsrClientSession
    is_resumed = False

    @property
    @abstractmethod
    def is_bound(self) -> bool:
        """Whether a login was answered on this connection."""

    @abstractmethod
    def prepare(
        self, command: Command[Any], *, context: PartitionContext = NO_CONTEXT
    ) -> PreparedRequest:
        """Give a command its number and its bytes; nothing is sent yet.

        Args:
            command: any command.
            context: the state of the partition that it refers to, from 0.10 on.

        Raises:
            AuthenticationError: nobody has logged in.
            UnsupportedByServerError: the server has no such command.
            InvalidRequestError: a field does not fit the wire, or the request is too large.
        """

    @abstractmethod
    async def exchange(
        self, request: PreparedRequest, *, seconds: float, deadline: float
    ) -> ResponseReceived[Any] | ErrorReceived:
        """Send a prepared request, for the first time or again, and return what is answered.

        Raises:
            DisconnectedError: the connection ended first; ``sent`` tells whether the whole
                request was written by then.
            EvictedError: the server has ended the session.
            RequestTimeoutError: there was no answer in time.
        """

    async def request_until(self, command: Command[R], *, seconds: float, deadline: float) -> R:
        """Do what ``request`` does, for a caller that has computed the deadline already."""
        self._report_loss()
        self._check_open()
        outcome = await self.exchange(self.prepare(command), seconds=seconds, deadline=deadline)
        if isinstance(outcome, ResponseReceived):
            reply: R = read_reply(command, outcome)
            return reply
        raise error_for_status(outcome.status, command=command)


def prepare_request(
    connection: VsrClientConnection, command: Command[Any], context: PartitionContext
) -> PreparedRequest:
    """Do what ``VsrSession.prepare`` does."""
    if not connection.is_bound and command.CODE not in UNBOUND_CODES:
        raise error_for_status(StatusCode.UNAUTHENTICATED, command=command)
    try:
        return connection.prepare(command, context=context)
    except LocalProtocolError as error:
        raise error_from_protocol(error, command=command) from error


def evicted_error(peer: str, eviction: EvictionReceived) -> EvictedError:
    """Make the error for a session that the server has ended."""
    return EvictedError(
        f"{peer} has ended the session (reason {eviction.reason})", eviction=eviction
    )


def logout_request(connection: VsrClientConnection) -> PreparedRequest | None:
    """Return what ends a session that outlives its connections; None if there is none.

    A client that closes sends it and does not wait for the answer.
    """
    session = connection.session
    if not (session.dialect.binds_sessions and connection.is_bound):
        return None
    return connection.prepare(LogoutUser())
