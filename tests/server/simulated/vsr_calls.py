"""Clients from 0.9 on of a simulated server: many requests in flight, answered in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from iggy_protocol import (
    NEED_DATA,
    NO_CONTEXT,
    ConnectionClosed,
    ConsumerIdentity,
    Dialect,
    ErrorReceived,
    EvictionReceived,
    GetPartitionRoute,
    PartitionContext,
    PasswordCredentials,
    PreparedRequest,
    ResponseReceived,
    StoreConsumerOffset,
    VsrClientConnection,
    VsrClientSession,
)
from tests.server.simulated.server import ConnectionLost, Refused
from tests.server.vsr_client import new_session

if TYPE_CHECKING:
    from iggy_protocol import Command
    from tests.server.simulated.server import SimulatedServer


class VsrPeer:
    """One connection; a task reads its replies.

    Args:
        server: the server.
        nursery: runs the reader.
        shard_id: the shard that serves the connection.
        session: that of the client; connections of one client share it.
    """

    def __init__(
        self,
        server: SimulatedServer,
        nursery: trio.Nursery,
        shard_id: int,
        session: VsrClientSession,
    ) -> None:
        self.session = session
        self.connection = VsrClientConnection(session)
        self._stream = server.connect(shard_id).stream
        self._answers: dict[int, Any] = {}
        self._arrived = trio.lowlevel.ParkingLot()
        self._is_closed = False
        nursery.start_soon(self._read)

    async def login(self, username: str = "iggy", password: str = "iggy") -> None:
        """Register the session."""
        await self.ask(self.session.register(PasswordCredentials(username, password)))

    async def bind(self) -> None:
        """Bind the connection to the session, which is registered."""
        await self.ask(self.session.bind())

    async def route(self, stream: str, topic: str, partition_id: int) -> PartitionContext:
        """Return what requests to a partition name."""
        if not self.session.dialect.binds_sessions:
            return NO_CONTEXT
        route = await self.ask(GetPartitionRoute(stream, topic, partition_id))
        return PartitionContext(route.incarnation, 0, route.metadata_position)

    async def ask(self, command: Command[Any], context: PartitionContext = NO_CONTEXT) -> Any:
        """Send a request and wait for its reply."""
        return await self.answer(await self.send(command, context))

    async def refusal(self, command: Command[Any], context: PartitionContext = NO_CONTEXT) -> int:
        """Send a request that must fail, and return why it did."""
        try:
            reply = await self.ask(command, context)
        except Refused as refused:
            return refused.status
        raise AssertionError(f"{command} was answered with {reply}")

    async def send(
        self, command: Command[Any], context: PartitionContext = NO_CONTEXT
    ) -> PreparedRequest:
        """Send a request without waiting for its reply."""
        request = self.connection.prepare(command, context=context)
        await self._write(self.connection.send_prepared(request))
        return request

    async def resend(self, request: PreparedRequest) -> None:
        """Send a request as it is, which may have been sent over another connection."""
        await self._write(self.connection.send_prepared(request))

    async def commit(
        self, consumer: ConsumerIdentity, stream: str, topic: str, partition_id: int, polled: Any
    ) -> None:
        """Store the offset of the last polled message, under the ownership of the poll."""
        if polled.messages_count:
            offset = polled.messages.last_offset
            command = StoreConsumerOffset(consumer, stream, topic, offset, partition_id)
            await self.ask(command, polled.context)

    async def cancel(self, request: PreparedRequest) -> None:
        """Tell the server that a deferred request is not waited for."""
        await self._write(self.connection.cancel(request))

    def has_answer(self, request: PreparedRequest) -> bool:
        """Tell whether the reply to a request has arrived."""
        return request.number in self._answers

    async def answer(self, request: PreparedRequest) -> Any:
        """Wait for the reply to a request.

        Raises:
            Refused: it is an error.
            ConnectionLost: there will be none.
        """
        while request.number not in self._answers:
            if self._is_closed:
                raise ConnectionLost
            await self._arrived.park()
        event = self._answers.pop(request.number)
        if isinstance(event, ErrorReceived):
            raise Refused(event.status)
        return event.decode()

    async def aclose(self) -> None:
        """Hang up."""
        self._is_closed = True
        await self._stream.aclose()

    async def _write(self, buffers: list[Any]) -> None:
        try:
            await self._stream.send_all(b"".join(map(bytes, buffers)))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ConnectionLost from None

    async def _read(self) -> None:
        while True:
            event = self.connection.next_event()
            if event is NEED_DATA:
                try:
                    data = await self._stream.receive_some(65_536)
                except (trio.ClosedResourceError, trio.BrokenResourceError):
                    data = b""
                self.connection.receive_data(data)
                if not data and self._is_closed:
                    break
            elif isinstance(event, ResponseReceived | ErrorReceived):
                self._answers[event.number] = event
                self._arrived.unpark_all()
            elif isinstance(event, EvictionReceived | ConnectionClosed):
                break
        self._is_closed = True
        self._arrived.unpark_all()


def vsr_session(dialect: Dialect) -> VsrClientSession:
    """Make the session of a new client."""
    return new_session(dialect)
