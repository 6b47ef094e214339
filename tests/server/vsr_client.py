"""A small blocking client from 0.9 on for tests: typed questions in, typed answers out.

    client = VsrClient.connect(server.address, Dialect.V0_12_2)
    client.login()
    client.ask(GetStreams())
    client.refusal(GetStream("absent"))

It adds nothing to the wire: no retries, no reconnects, no heartbeats, no routes. A 0.12 client
names the state of a partition where a test gives it.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from iggy_protocol import (
    NEED_DATA,
    NO_CONTEXT,
    ConnectionClosed,
    Dialect,
    ErrorReceived,
    EvictionReceived,
    GetPartitionRoute,
    PartitionContext,
    PasswordCredentials,
    PreparedRequest,
    ResponseReceived,
    VsrClientConnection,
    VsrClientSession,
)
from tests.server.wire_client import ConnectionLost, Refused

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator
    from typing import Self

    from iggy_protocol import Command, Credentials, Identifier, SessionDetails, VsrClientEvent

R = TypeVar("R")

READ_BYTES = 1 << 18
VSR_DIALECTS = [dialect for dialect in Dialect if dialect.is_vsr]
CONTEXT_DIALECTS = [dialect for dialect in Dialect if dialect.binds_sessions]
# A server takes a client of 0.12.0 for one of 0.12.2 if its SDK is a release.
SDK_VERSIONS = {Dialect.V0_12_0: "0.11.1-edge.5"}


def dialect_name(dialect: Dialect) -> str:
    """Return the name of a dialect, for the names of tests."""
    return dialect.name


@contextmanager
def connections(address: tuple[str, int]) -> Iterator[Callable[..., VsrClient]]:
    """Open connections of any dialect, which end with the block; root is logged in."""
    opened: list[VsrClient] = []

    def connect(dialect: Dialect, *, is_logged_in: bool = True) -> VsrClient:
        client = VsrClient.connect(address, dialect)
        opened.append(client)
        if is_logged_in:
            client.login()
        return client

    yield connect
    for client in opened:
        client.close()


class Evicted(Exception):
    """The server ended the session."""

    def __init__(self, event: EvictionReceived) -> None:
        super().__init__(str(event))
        self.reason = event.reason
        self.event = event


def new_session(dialect: Dialect) -> VsrClientSession:
    """Make the session of a client that announces a dialect."""
    version = SDK_VERSIONS.get(dialect, str(dialect.version))
    return VsrClientSession(dialect, os.urandom, sdk_name="test", sdk_version=version)


class Wire(Protocol):
    """What carries the bytes of a client, as a socket does."""

    def sendall(self, data: Any, /) -> None:
        """Send all of some bytes."""

    def recv(self, size: int, /) -> bytes:
        """Receive some bytes; none at the end."""

    def close(self) -> None:
        """Hang up."""


class VsrClient:
    """One connection.

    Args:
        wire: carries its bytes.
        dialect: what to speak.
    """

    def __init__(self, wire: Wire, dialect: Dialect) -> None:
        self.wire = wire
        self.dialect = dialect
        self.session = new_session(dialect)
        self.connection = VsrClientConnection(self.session)

    @classmethod
    def connect(
        cls,
        address: tuple[str, int],
        dialect: Dialect,
        *,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 10,
    ) -> Self:
        """Connect to a server over TCP, with TLS or without."""
        raw = socket.create_connection(address, timeout=timeout_s)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(
            raw if tls is None else tls.wrap_socket(raw, server_hostname="localhost"), dialect
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def socket(self) -> socket.socket:
        """The socket of a client over TCP."""
        assert isinstance(self.wire, socket.socket)
        return self.wire

    @property
    def local_address(self) -> str:
        """This end as the server names it."""
        host, port = self.socket.getsockname()[:2]
        return f"{host}:{port}"

    def login(self, credentials: Credentials | None = None) -> SessionDetails:
        """Log this connection in."""
        return self.ask(self.session.register(credentials or PasswordCredentials("iggy", "iggy")))

    def route(self, stream: Identifier, topic: Identifier, partition_id: int) -> PartitionContext:
        """Return what requests to a partition name; nothing in 0.9."""
        if not self.dialect.binds_sessions:
            return NO_CONTEXT
        route = self.ask(GetPartitionRoute(stream, topic, partition_id))
        return PartitionContext(route.incarnation, 0, route.metadata_position)

    def ask(self, command: Command[R], context: PartitionContext = NO_CONTEXT) -> R:
        """Send a request and return the reply to it.

        Raises:
            Refused: the server answered with an error.
            Evicted: the server ended the session.
            ConnectionLost: the server closed the connection.
        """
        self.send(command, context)
        return cast("R", self.receive().decode())

    def refusal(self, command: Command[Any], context: PartitionContext = NO_CONTEXT) -> int:
        """Send a request that must fail, and return why it did."""
        try:
            reply = self.ask(command, context)
        except Refused as refused:
            return refused.status
        raise AssertionError(f"{command} was answered with {reply}")

    def eviction(self, command: Command[Any]) -> int:
        """Send a request that must end the session, and return the reason."""
        try:
            reply = self.ask(command)
        except Evicted as evicted:
            return evicted.reason
        raise AssertionError(f"{command} was answered with {reply}")

    def send(self, command: Command[Any], context: PartitionContext = NO_CONTEXT) -> None:
        """Send a request without waiting for its answer."""
        for buffer in self.connection.send(command, context=context):
            self.wire.sendall(buffer)

    def prepare(
        self, command: Command[Any], context: PartitionContext = NO_CONTEXT
    ) -> PreparedRequest:
        """Number a request that is sent once or several times."""
        return self.connection.prepare(command, context=context)

    def ask_prepared(self, request: PreparedRequest) -> ResponseReceived[Any]:
        """Send a request as it is, for the first time or once more, and return the reply."""
        self.send_prepared(request)
        return self.receive()

    def send_prepared(self, request: PreparedRequest) -> None:
        """Send a request as it is without waiting for its answer."""
        for buffer in self.connection.send_prepared(request):
            self.wire.sendall(buffer)

    def cancel(self, request: PreparedRequest) -> None:
        """Tell the server that a deferred request is not waited for."""
        for buffer in self.connection.cancel(request):
            self.wire.sendall(buffer)

    def another(self) -> Self:
        """Open another connection for the same session; it is not bound yet."""
        return type(self).connect(self.socket.getpeername()[:2], self.dialect).use(self.session)

    def use(self, session: VsrClientSession) -> Self:
        """Use this connection for a session."""
        self.session = session
        self.connection = VsrClientConnection(session)
        return self

    def bind(self) -> SessionDetails:
        """Bind this connection to the session."""
        return self.ask(self.session.bind())

    def receive(self) -> ResponseReceived[Any]:
        """Return the next reply.

        Raises:
            Refused, Evicted, ConnectionLost: it is none.
        """
        event = self.next_event()
        if isinstance(event, ErrorReceived):
            raise Refused(event.status, event.command)
        if isinstance(event, EvictionReceived):
            raise Evicted(event)
        if isinstance(event, ConnectionClosed):
            raise ConnectionLost
        assert isinstance(event, ResponseReceived)
        return event

    def next_event(self) -> VsrClientEvent:
        """Return what the server sends next."""
        while (event := self.connection.next_event()) is NEED_DATA:
            self.connection.receive_data(self.wire.recv(READ_BYTES))
        return event

    def close(self) -> None:
        """Hang up."""
        self.wire.close()
