"""What the tests of the framing from 0.9 on share: frames, feeding, and connected pairs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from iggy_protocol import (
    NEED_DATA,
    V0_11,
    VSR_HEAD_BYTES,
    CommandCode,
    Dialect,
    ErrorReceived,
    LocalProtocolError,
    PasswordCredentials,
    Ping,
    RemoteProtocolError,
    RequestReceived,
    ResponseReceived,
    SessionDetails,
    VsrClientConnection,
    VsrClientSession,
    VsrServerConnection,
    VsrServerEvent,
    checksum,
    encode_reply,
)
from iggy_protocol.vsr.heads import ReplyHead, RequestHead, read_reply_head, read_request_head
from iggy_protocol.vsr.operations import NO_ERRORS, is_stamped
from tests.protocol.frame_oracle import joined, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from iggy_protocol import Buffer, Command

    E = TypeVar("E")

CLIENT = bytes(range(1, 17))
SESSION = 7
ROOT = PasswordCredentials("iggy", "iggy")


def frame(body: bytes = b"", **fields: Any) -> bytes:
    """Write a request of ``CLIENT``."""
    head = RequestHead(size=VSR_HEAD_BYTES + len(body), client=CLIENT)._replace(**fields)
    return head.encode() + body


def coded(code: int, body: bytes = b"", **fields: Any) -> bytes:
    """Write a request that its code names."""
    return frame(body, **{"operation": 2, "code": code, "session": SESSION, "number": 1, **fields})


def replicated(operation: int, body: bytes = b"", **fields: Any) -> bytes:
    """Write a request that its operation names."""
    return frame(body, **{"operation": operation, "session": SESSION, "number": 1, **fields})


def login_body(dialect: Dialect, rest: bytes = b"\4iggy\4iggy\0\0\0\0") -> bytes:
    """Write the body of a Register."""
    secret = b"" if dialect is V0_11 else bytes(32)
    return dialect.version.pack().to_bytes(4, "little") + b"\3sdk\0050.1.0" + secret + rest


def stamped(operation: int, body: bytes) -> bytes:
    """Return the identifier that a client of 0.9 gives to a request."""
    return (checksum(body) if is_stamped(operation) else 0).to_bytes(16, "little")


def bound_server(dialect: Dialect, **arguments: Any) -> VsrServerConnection:
    """Return the server's side after a login of ``CLIENT``."""
    server = VsrServerConnection(**arguments)
    server.receive_data(frame(login_body(dialect), operation=1))
    event = server.next_event()
    assert isinstance(event, RequestReceived), event
    server.bind(CLIENT, SESSION, 0)
    server.send(SessionDetails(0, SESSION, dialect.version, "test"), position=SESSION)
    return server


def replies_in(data: bytes) -> list[tuple[Any, bytes]]:
    """Cut what a server wrote into heads and bodies."""
    found = []
    while data:
        head = read_reply_head(data)
        found.append((head, data[VSR_HEAD_BYTES : head.size]))
        data = data[head.size :]
    return found


def the_reply(buffers: Iterable[Buffer]) -> tuple[Any, bytes]:
    """Read the one frame that a server wrote."""
    (reply,) = replies_in(joined(buffers))
    return reply


def new_session(dialect: Dialect, seed: int = 0) -> VsrClientSession:
    """Return a session whose random bytes follow from a seed."""
    source = random.Random(seed).randbytes
    return VsrClientSession(dialect, source, sdk_name="sdk", sdk_version="0.1.0")


def events_of(server: VsrServerConnection, data: bytes) -> list[VsrServerEvent]:
    """Feed bytes to a connection and return all events."""
    server.receive_data(data)
    events: list[VsrServerEvent] = []
    while (event := server.next_event()) is not NEED_DATA:
        events.append(event)
    return events


def event_of(server: VsrServerConnection, data: bytes) -> VsrServerEvent:
    """Feed the bytes of one frame and return its event."""
    (event,) = events_of(server, data)
    return event


# The client's side


def head_of(buffers: Iterable[Buffer]) -> RequestHead:
    """Read the head of what a client wrote."""
    return read_request_head(joined(buffers))


def reply(request: RequestHead, body: bytes = b"", **fields: Any) -> bytes:
    """Write the reply to a request as a server does."""
    head = ReplyHead(
        size=VSR_HEAD_BYTES + len(body),
        client=request.client,
        identifier=request.identifier,
        number=request.number,
        operation=request.operation,
        incarnation=request.incarnation,
    )
    return head._replace(**fields).encode() + body


def details_of(client: VsrClientConnection, session: int = SESSION) -> bytes:
    """Write the payload that answers a login."""
    version = client.session.dialect.version
    payload = encode_reply(CommandCode.REGISTER, SessionDetails(3, session, version, "x"), V0_11)
    return joined(payload)


def log_in(client: VsrClientConnection, session: int = SESSION) -> ResponseReceived[Any]:
    """Register, and answer as a server does."""
    head = head_of(client.send(client.session.register(ROOT)))
    marker = 0 if client.session.dialect is V0_11 else 1
    body = NO_ERRORS + details_of(client, session)
    client.receive_data(reply(head, body, op=session, commit=session, marker=marker))
    return expect(client.next_event(), ResponseReceived)


def bound_client(dialect: Dialect, **arguments: Any) -> VsrClientConnection:
    """Return a client's side after a login."""
    client = VsrClientConnection(new_session(dialect), **arguments)
    log_in(client)
    return client


def fails(
    client: VsrClientConnection, data: bytes, error: type[Exception] = RemoteProtocolError
) -> None:
    """Check that bytes end the connection for good."""
    client.receive_data(data)
    for _ in range(2):
        with pytest.raises(error):
            client.next_event()
    with pytest.raises(LocalProtocolError, match="has failed"):
        client.send(Ping())


class VsrPair:
    """A client and a server of one dialect, wired back to back."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        cut: Callable[[bytes], Iterator[bytes]] = whole,
        session: VsrClientSession | None = None,
    ) -> None:
        self.client = VsrClientConnection(session or new_session(dialect))
        self.server = VsrServerConnection()
        self.position = 1
        self.cut = cut

    def to_server(self, buffers: Iterable[Buffer]) -> None:
        """Carry what the client wrote."""
        for piece in self.cut(joined(buffers)):
            self.server.receive_data(piece)

    def to_client(self, buffers: Iterable[Buffer]) -> None:
        """Carry what the server wrote."""
        for piece in self.cut(joined(buffers)):
            self.client.receive_data(piece)

    def log_in(self) -> SessionDetails:
        """Register, and return what the client learns."""
        request = self.ask(self.client.session.register(ROOT))
        assert request.request_id is not None
        self.position += 1
        self.server.bind(request.request_id.client, self.position, 0)
        details = SessionDetails(0, self.position, request.dialect.version, "test")
        response = self.answer(details)
        decoded = response.decode()
        assert isinstance(decoded, SessionDetails)
        return decoded

    def ask(self, command: Command[Any], **arguments: Any) -> RequestReceived:
        """Send a command and return what the server reads."""
        self.to_server(self.client.send(command, **arguments))
        return expect(self.server.next_event(), RequestReceived)

    def answer(self, reply: object) -> ResponseReceived[Any]:
        """Answer the oldest request and return what the client reads."""
        self.to_client(self.server.send(reply, position=self.position))
        return expect(self.client.next_event(), ResponseReceived)

    def answer_error(self, status: int, **arguments: Any) -> ErrorReceived:
        """Refuse the oldest request and return what the client reads."""
        self.to_client(self.server.send_error(status, **arguments))
        return expect(self.client.next_event(), ErrorReceived)

    def assert_quiet(self) -> None:
        """Check that neither side has more to tell."""
        assert self.client.next_event() is NEED_DATA
        assert self.server.next_event() is NEED_DATA


def expect(event: object, kind: type[E]) -> E:
    """Check what an event is."""
    assert isinstance(event, kind), event
    return event
