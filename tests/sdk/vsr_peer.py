"""Servers from 0.9 on that do as they are told: ``scripted_peer`` in the newer framing.

    async with scripted_server(script, peers=VsrPeers(V0_12_2)) as server: ...

A ``VsrPeer`` has the interface of a ``Peer``, so most scripts do for both. What a server keeps
beyond its connections, sessions and the position of the metadata, is in ``VsrPeers``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from iggy_protocol import (
    NEED_DATA,
    NO_CONTEXT,
    BindSession,
    CancelReceived,
    Command,
    ConnectionClosed,
    DetectingConnection,
    Dialect,
    EvictionReason,
    FramingDetected,
    GetClusterMetadata,
    GetStream,
    LogoutUser,
    MalformedFrame,
    PartitionContext,
    Ping,
    Register,
    RequestReceived,
    RequestRefused,
    SendConfirmation,
    SendMessages,
    SessionDetails,
    StatusCode,
    UnansweredRequest,
    VsrServerConnection,
    dialect_of,
    encode_reply,
)
from tests.sdk.scripted_peer import Peer, PeerGone

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol import RequestId
    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.transport import StreamTransport

USER_ID = 1
FIRST_SESSION = 1_000
CHUNK_BYTES = 4_096


@dataclass
class KnownSession:
    """A session as the server knows it."""

    number: int
    secret: bytes


@dataclass
class VsrPeers:
    """What all connections of a server share.

    Attributes:
        dialects: what the server accepts.
        position: the position of the metadata; it grows with every write.
        sessions: the sessions by the client's id.
        announced: the versions of all logins, in order.
        logins: every Register and BindSession whose version was accepted.
    """

    dialects: tuple[Dialect, ...]
    position: int = FIRST_SESSION
    sessions: dict[bytes, KnownSession] = field(default_factory=dict)
    announced: list[str] = field(default_factory=list)
    logins: list[Register | BindSession] = field(default_factory=list)
    roster: object = StatusCode.FEATURE_UNAVAILABLE

    def __call__(self, wire: StreamTransport, endpoint: Endpoint) -> VsrPeer:
        return VsrPeer(wire, endpoint, self)

    def advance(self) -> int:
        """Return the position of one more change."""
        self.position += 1
        return self.position

    def forget_sessions(self) -> None:
        """Forget all sessions, as a restart does."""
        self.sessions.clear()


def vsr_peers(*dialects: Dialect) -> VsrPeers:
    """Make a server that speaks these dialects."""
    return VsrPeers(dialects)


class VsrPeer:
    """The server's end of one connection.

    Attributes:
        request_id: what tells the last request that was heard from all others.
        cancelled: the numbers of the requests that the client has cancelled.
        on_cancel: called after each of them.
        numbers: those of all requests that were heard.
    """

    def __init__(
        self,
        wire: StreamTransport,
        endpoint: Endpoint,
        peers: VsrPeers,
        connection: VsrServerConnection | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.wire = wire
        self.peers = peers
        self.request_id: RequestId | None = None
        self.cancelled: list[int] = []
        self.numbers: list[int] = []
        self._connection = VsrServerConnection() if connection is None else connection
        self.on_cancel: Callable[[], None] = lambda: None

    @property
    def context(self) -> PartitionContext:
        """The state of the partition that the last request refers to."""
        return NO_CONTEXT if self.request_id is None else self.request_id.context

    @property
    def dialect(self) -> Dialect:
        """What the client speaks."""
        return self._connection.dialect

    async def hear(self) -> Any:
        """Return the next command; raises PeerGone when there are no more."""
        while True:
            try:
                event = self._connection.next_event()
            except MalformedFrame as error:
                raise PeerGone from error
            if isinstance(event, ConnectionClosed):
                raise PeerGone
            if isinstance(event, CancelReceived):
                self.cancelled.append(event.number)
                self.on_cancel()
            elif isinstance(event, RequestRefused):
                await self.write(*self._connection.send_error(event.error.status))
            elif isinstance(event, RequestReceived):
                assert event.request_id is not None
                command = event.decode()
                if not await self._refuses_version(command):
                    self.request_id = event.request_id
                    self.numbers.append(event.request_id.number)
                    return command
            else:
                assert event is NEED_DATA
                await self._receive()

    async def _receive(self) -> None:
        try:
            count = await self.wire.receive_into(self._connection.get_buffer())
        except OSError as error:
            raise PeerGone from error
        self._connection.buffer_updated(count)

    async def _refuses_version(self, command: Command[Any]) -> bool:
        if not isinstance(command, Register | BindSession):
            return False
        self.peers.announced.append(str(command.version))
        if dialect_of(command.version, command.sdk_version) in self.peers.dialects:
            self.peers.logins.append(command)
            return False
        lowest, highest = self.peers.dialects[0], self.peers.dialects[-1]
        frames = self._connection.send_eviction(EvictionReason.INCOMPATIBLE_PROTOCOL)
        await self.write(window(frames[0], lowest, highest))
        return True

    def detach(self) -> UnansweredRequest:
        """Answer the last request later, with ``reply_to``."""
        return self._connection.detach()

    def drop(self, request: UnansweredRequest) -> None:
        """Never answer a detached request."""
        self._connection.drop_detached(request)

    async def reply(self, value: object, *, position: int | None = None) -> None:
        """Answer the oldest request: a status refuses it, anything else is its reply.

        Args:
            value: the reply or the status.
            position: where it was committed; by default successes are, and errors are not.
        """
        if isinstance(value, StatusCode):
            await self.write(*self._connection.send_error(value, position=position or 0))
        else:
            where = self.peers.advance() if position is None else position
            await self.write(*self._connection.send(value, position=where))

    async def reply_to(self, request: UnansweredRequest, value: object) -> None:
        """Answer a detached request."""
        if isinstance(value, StatusCode):
            await self.write(*self._connection.send_detached_error(request, value))
        else:
            parts = encoded(request, value)
            position = self.peers.advance()
            await self.write(*self._connection.send_detached(request, parts, position=position))

    async def evict(self, reason: EvictionReason) -> None:
        """End the session in place of an answer to the oldest request."""
        await self.write(*self._connection.send_eviction(reason))

    async def push(self, status: int) -> None:
        """Say something that nobody asked for."""
        await self.write(*self._connection.push_error(status))

    async def write(self, *data: Any) -> None:
        """Write bytes, whatever they mean."""
        try:
            await self.wire.send(list(data))
        except OSError as error:
            raise PeerGone from error

    async def answer(self, command: Command[Any]) -> None:
        """Answer one request with good manners."""
        if isinstance(command, Register):
            await self._begin_session(command)
        elif isinstance(command, BindSession):
            await self._bind_session(command)
        elif isinstance(command, LogoutUser):
            await self.reply(None)
            assert self.request_id is not None
            self.peers.sessions.pop(self.request_id.client, None)
            self._connection.unbind()
        elif isinstance(command, GetClusterMetadata):
            await self.reply(self.peers.roster)
        else:
            await self.reply(VSR_MANNERS[type(command)])

    async def _begin_session(self, command: Register) -> None:
        assert self.request_id is not None
        client = self.request_id.client
        known = self.peers.sessions.get(client)
        if known is None:
            known = self.peers.sessions[client] = KnownSession(self.peers.advance(), command.secret)
        await self._welcome_session(client, known.number)

    async def _bind_session(self, command: BindSession) -> None:
        known = self.peers.sessions.get(command.client)
        is_right = known is not None and known.secret == command.secret
        if known is None or not is_right or command.session not in (0, known.number):
            await self.reply(StatusCode.UNAUTHENTICATED)
        else:
            await self._welcome_session(command.client, known.number)

    async def _welcome_session(self, client: bytes, session: int) -> None:
        self._connection.bind(client, session, USER_ID)
        version = self._connection.dialect.version
        await self.reply(SessionDetails(USER_ID, session, version, "test"), position=session)

    async def serve(self) -> None:
        """Answer everything with good manners until the client goes."""
        while True:
            await self.answer(await self.hear())

    async def welcome(self) -> None:
        """Answer what a client asks before it is ready: framing, login and leader."""
        while not isinstance(command := await self.hear(), GetClusterMetadata):
            await self.answer(command)
        await self.answer(command)


VSR_MANNERS: dict[type[Command[Any]], object] = {
    Ping: None,
    SendMessages: (SendConfirmation(1, 1, 0, 7),),
    GetStream: None,
}


def encoded(request: UnansweredRequest, value: object) -> list[Any]:
    """Write a reply as the dialect of its request wants it."""
    return list(encode_reply(request.code, value, request.dialect))


def window(frame: Any, lowest: Dialect, highest: Dialect) -> bytes:
    """Put other versions into the eviction that refuses a version."""
    changed = bytearray(frame)
    changed[144:148] = highest.version.pack().to_bytes(4, "little")
    changed[148:152] = lowest.version.pack().to_bytes(4, "little")
    return bytes(changed)


# Servers of all generations.


@dataclass
class EveryPeers:
    """What all connections of a server share that speaks 0.8 as well."""

    newer: VsrPeers

    def __call__(self, wire: StreamTransport, endpoint: Endpoint) -> UndetectedPeer:
        return UndetectedPeer(wire, endpoint, self.newer)


class UndetectedPeer:
    """The server's end of a connection whose client has not said anything yet."""

    def __init__(self, wire: StreamTransport, endpoint: Endpoint, newer: VsrPeers) -> None:
        self.wire = wire
        self._endpoint = endpoint
        self._newer = newer

    async def detect(self) -> Peer | VsrPeer:
        """Return the end for what the client speaks, once its first bytes have come."""
        undetected = DetectingConnection()
        while not isinstance(event := undetected.next_event(), FramingDetected):
            buffer = bytearray(CHUNK_BYTES)
            try:
                count = await self.wire.receive_into(memoryview(buffer))
            except OSError as error:
                raise PeerGone from error
            if not count:
                raise PeerGone
            undetected.receive_data(bytes(buffer[:count]))
        if isinstance(event.connection, VsrServerConnection):
            return VsrPeer(self.wire, self._endpoint, self._newer, event.connection)
        return Peer(self.wire, self._endpoint, event.connection)
