"""A session on one byte stream with a server of 0.8: replies come in the order of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from iggy_protocol import (
    NEED_DATA,
    Buffer,
    ClientConnection,
    Command,
    ConnectionClosed,
    Limits,
    RemoteProtocolError,
)
from iggy_sdk.errors import DisconnectedError, error_from_protocol
from iggy_sdk.session.byte_stream import ByteStreamSession, dial_within_timeout
from iggy_sdk.session.pending_requests import (
    PendingRequest,
    PendingRequests,
    is_shutdown_notice,
    read_outcome,
)
from iggy_sdk.transport import Dial, StreamTransport, open_transport

if TYPE_CHECKING:
    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.options import ClientOptions


R = TypeVar("R")


class StreamSession(ByteStreamSession):
    """One connection to one server; many tasks may send requests at the same time."""

    def __init__(self, transport: StreamTransport, options: ClientOptions) -> None:
        """Take a connected transport; the session closes it."""
        outstanding_max = options.max_outstanding
        self._connection = ClientConnection(limits=Limits(outstanding_max=outstanding_max))
        pending = PendingRequests(outstanding_max)
        super().__init__(transport, options, codec=self._connection, pending=pending)

    @classmethod
    async def open(
        cls, endpoint: Endpoint, options: ClientOptions, *, dial: Dial = open_transport
    ) -> StreamSession:
        """Connect to a server within ``connect_timeout``, without a login.

        Raises:
            ConnectionFailedError: no server answers at the endpoint, or the handshake failed.
        """
        return cls(await dial_within_timeout(endpoint, options, dial=dial), options)

    async def request_until(self, command: Command[R], *, seconds: float, deadline: float) -> R:
        """Do what ``request`` does, for a caller that has computed the deadline already."""
        pending = PendingRequest(command, deadline)
        await self._carry(pending, seconds)
        reply: R = read_outcome(pending)
        return reply

    def _register(self, pending: PendingRequest) -> list[Buffer]:
        buffers = self._connection.send(pending.command)
        self._pending.requests.append(pending)
        return buffers

    def _dispatch_replies(self) -> None:
        """Match decoded replies to pending requests, in their order."""
        try:
            while (event := self._connection.next_event()) is not NEED_DATA:
                if isinstance(event, ConnectionClosed) or is_shutdown_notice(event):
                    self._note_loss(DisconnectedError(f"{self.peer} has closed the connection"))
                    break
                self._pending.resolve(event)
        except RemoteProtocolError as error:
            failure = error_from_protocol(error)
            failure.__cause__ = error
            self._note_loss(failure)
        self._pending.notify()
