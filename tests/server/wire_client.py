"""A small blocking client for tests: typed questions in, typed answers out, over a real socket.

    client.ask(GetStream("orders"))           the reply, or Refused
    client.refusal(CreateStream("orders"))    the status of a request that must fail

It adds nothing to the wire: no retries, no reconnects, no heartbeats.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, TypeVar, cast

from iggy_protocol import (
    NEED_DATA,
    ClientConnection,
    ConnectionClosed,
    ErrorReceived,
    LoginUser,
    ResponseReceived,
    StatusCode,
)

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

    from iggy_protocol import ClientEvent, Command, Identity

R = TypeVar("R")

READ_BYTES = 1 << 18


class Refused(Exception):
    """The server answered with the status of an error."""

    def __init__(self, status: int, command: Command[Any] | None) -> None:
        known = status in StatusCode.__members__.values()
        super().__init__(f"{StatusCode(status).name if known else status} for {command}")
        self.status = status
        self.command = command


class ConnectionLost(Exception):
    """The server closed the connection."""


class WireClient:
    """One connection.

    Args:
        address: host and port of the server.
        tls: how to speak TLS, or None to speak plainly.
        timeout_s: how long any answer may take.
    """

    def __init__(
        self, address: tuple[str, int], *, tls: ssl.SSLContext | None = None, timeout_s: float = 10
    ) -> None:
        raw = socket.create_connection(address, timeout=timeout_s)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = raw if tls is None else tls.wrap_socket(raw, server_hostname="localhost")
        self._connection = ClientConnection()

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def local_address(self) -> str:
        """This end as the server names it."""
        host, port = self.socket.getsockname()[:2]
        return f"{host}:{port}"

    def login(self, username: str = "iggy", password: str = "iggy") -> Identity:
        """Log this connection in."""
        return self.ask(LoginUser(username, password))

    def ask(self, command: Command[R]) -> R:
        """Send a request and return the reply to it.

        Raises:
            Refused: the server answered with an error.
            ConnectionLost: the server closed the connection instead.
        """
        self.send(command)
        return cast("R", self.receive())

    def refusal(self, command: Command[Any]) -> StatusCode:
        """Send a request that must fail, and return why it did."""
        try:
            reply = self.ask(command)
        except Refused as refused:
            return StatusCode(refused.status)
        raise AssertionError(f"{command} was answered with {reply}")

    def send(self, *commands: Command[Any]) -> None:
        """Send requests without waiting for their answers."""
        for command in commands:
            for buffer in self._connection.send(command):
                self.socket.sendall(buffer)

    def receive(self) -> Any:
        """Return the reply to the oldest request that has none.

        Raises:
            Refused: it is an error.
            ConnectionLost: the server closed the connection instead.
        """
        event = self._next_event()
        if isinstance(event, ResponseReceived):
            return event.decode()
        if isinstance(event, ErrorReceived):
            raise Refused(event.status, event.command)
        raise ConnectionLost

    def is_closed_by_peer(self) -> bool:
        """Wait for the server to hang up, whatever it says before; False if it stays too long."""
        try:
            while not isinstance(self._next_event(), ConnectionClosed):
                continue
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def _next_event(self) -> ClientEvent:
        while (event := self._connection.next_event()) is NEED_DATA:
            self._connection.receive_data(self.socket.recv(READ_BYTES))
        return event
