"""A server for tests: its process, and a proxy in front that injects faults.

    with RunningServer() as server:
        client = IggyClient(server.url)

All its methods block; inside an async test call the slow ones
(``restart``, ``stop``, ``start``) as ``await anyio.to_thread.run_sync(server.restart)``.
"""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from iggy_protocol import (
    NEED_DATA,
    ClientConnection,
    Command,
    DeletePersonalAccessToken,
    DeleteStream,
    DeleteUser,
    GetPersonalAccessTokens,
    GetStreams,
    GetUsers,
    LoginUser,
    ResponseReceived,
)
from iggy_sdk.testing.faults import Faults
from iggy_sdk.testing.process import ServerFailedError, ServerProcess, server_command
from iggy_sdk.testing.proxy import HOST, Proxy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType


# Emptying a server between two tests over a blocking socket, in milliseconds, without a restart.
#
# Streams go with their topics, messages, groups and offsets; then every user but the first, and the
# tokens of the first. The settings of the server stay.


R = TypeVar("R")

ANSWER_SECONDS_MAX = 10.0
CLEANING_READ_BYTES = 65_536
ROOT_USER_ID = 0


class CleaningFailedError(RuntimeError):
    """The server could not be emptied, so it has to be replaced."""


class BlockingConnection:
    """A connection with one request at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=ANSWER_SECONDS_MAX)
        self._connection = ClientConnection()

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def request(self, command: Command[R]) -> R:
        """Send a command and return its reply."""
        for buffer in self._connection.send(command):
            self._socket.sendall(buffer)
        while (event := self._connection.next_event()) is NEED_DATA:
            self._connection.receive_data(self._socket.recv(CLEANING_READ_BYTES))
        if not isinstance(event, ResponseReceived):
            raise CleaningFailedError(f"{type(command).__name__} was answered with {event}")
        reply: R = event.decode()
        return reply


def empty_server(address: tuple[str, int], *, username: str, password: str) -> None:
    """Delete what tests have left on a server.

    Raises:
        CleaningFailedError: the server refused something, or the password was changed.
        OSError: the server cannot be reached.
    """
    with BlockingConnection(address) as connection:
        connection.request(LoginUser(username, password))
        for stream in connection.request(GetStreams()):
            connection.request(DeleteStream(stream.id))
        for user in connection.request(GetUsers()):
            if user.id != ROOT_USER_ID:
                connection.request(DeleteUser(user.id))
        for token in connection.request(GetPersonalAccessTokens()):
            connection.request(DeletePersonalAccessToken(token.name))


class NotOursError(RuntimeError):
    """The server is external: it was not started by the test, so the test cannot stop it."""


class RunningServer:
    """A server on a free port, whose data are deleted with it.

    Args:
        directory: where its data and its output go, and stay; a temporary one if None.
        settings: ``IGGY_*`` names of the server's configuration; an empty text removes a default.
        shards: how many processes serve.
        username: the root user.
        password: of the root user.
        command: what starts the server; found by itself if None.
        address: host and port of an external server. It is used instead of starting
            one, with the same proxy in front; it can be emptied, but neither stopped nor killed.

    Attributes:
        faults: injects faults between the clients of ``url`` and the server.
        settings: read at each start, so change them and ``restart()``.

    Raises:
        ServerNotFoundError: there is no server to start; the message says what to install.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        shards: int = 1,
        username: str = "iggy",
        password: str = "iggy",
        command: Sequence[str] | None = None,
        address: tuple[str, int] | None = None,
    ) -> None:
        self.username = username
        self.password = password
        self.settings: dict[str, str] = {
            "IGGY_ROOT_USERNAME": username,
            "IGGY_ROOT_PASSWORD": password,
            "IGGY_SYSTEM_SHARDING_CPU_ALLOCATION": str(shards),
            **(settings or {}),
        }
        self._directory = directory
        self._external_address = address
        self._command: tuple[str, ...] = ()
        if address is None:
            self._command = tuple(command) if command is not None else server_command()
        self._stack = ExitStack()
        self._process: ServerProcess | None = None
        self._address: tuple[str, int] | None = None
        self._proxy = Proxy()
        self.faults: Faults = Faults(self._proxy)

    def __enter__(self) -> RunningServer:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Addresses

    @property
    def url(self) -> str:
        """The connection string, login included; it stays the same when the server restarts."""
        return self._url(*self.address)

    @property
    def address(self) -> tuple[str, int]:
        """The host and port that clients connect to; the same over all restarts."""
        return HOST, self._proxy.port

    @property
    def direct_url(self) -> str:
        """The connection string without the proxy, where faults do not reach.

        For TLS, and for measuring; it changes with each start.
        """
        return self._url(*self.direct_address)

    @property
    def direct_address(self) -> tuple[str, int]:
        """The host and port of the server itself.

        Raises:
            RuntimeError: the server is not running.
        """
        if self._address is None:
            raise RuntimeError("the server is not running: call start() first")
        return self._address

    @property
    def is_running(self) -> bool:
        """Whether the process runs, or the external server is in use."""
        if self._external_address is not None:
            return self._address is not None
        return self._process is not None and self._process.is_running

    # Lifetime

    def start(self) -> None:
        """Start the server and wait until it serves; its data are as they were left.

        Raises:
            ServerFailedError: it died, or took too long; the message ends with what it printed.
        """
        if self.is_running:
            return
        if self._external_address is not None:
            self._proxy.open()
            self._address = self._external_address
        else:
            self._address = self._prepare().start()
        self._proxy.attach(self._address)

    def stop(self) -> None:
        """Stop the server in good order, as a service manager does.

        Raises:
            ServerFailedError: it took too long or its exit status is not 0.
            NotOursError: the server is external.
        """
        self._check_owned("stopped")
        self._stop_accepting()
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """Kill the server, as ``kill -9`` does.

        Raises:
            NotOursError: the server is external.
        """
        self._check_owned("killed")
        self._stop_accepting()
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Stop the server, if it runs, and start it on the same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the server and the proxy; the data go too, unless the directory was given."""
        try:
            if self._process is not None:
                self._process.kill()
            self._address = None
        finally:
            self._proxy.close()
            self._process = None
            self._stack.close()

    def reset(self) -> None:
        """Give back an empty server without faults or connections, started if it was stopped.

        Raises:
            CleaningFailedError: the server could not be emptied.
            OSError: the server cannot be reached.
        """
        self.start()
        self.faults.heal()
        self.faults.drop_connections()
        empty_server(self.direct_address, username=self.username, password=self.password)
        self._proxy.rule(lambda rules: rules.forget())

    def output(self) -> str:
        """Return all that the server has printed."""
        return "" if self._process is None else self._process.output()

    def _prepare(self) -> ServerProcess:
        if self._process is None:
            folder = self._directory
            if folder is None:
                folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="iggy-"))
            self._process = ServerProcess(
                Path(folder), command=self._command, settings=self.settings
            )
            self._proxy.open()
        self._process.kill()
        return self._process

    def _check_owned(self, done: str) -> None:
        if self._external_address is not None:
            raise NotOursError(f"an external server cannot be {done} by a test")

    def _stop_accepting(self) -> None:
        """Stop accepting; open connections see the server end as they would without the proxy."""
        self._address = None
        if self._process is not None:
            self._proxy.detach()

    def _url(self, host: str, port: int) -> str:
        login = f"{quote(self.username, safe='')}:{quote(self.password, safe='')}"
        return in_test_protocol(f"iggy://{login}@{host}:{port}")


def in_test_protocol(url: str) -> str:
    """Add the protocol that ``IGGY_TEST_PROTOCOL`` names to a connection string, if it is set."""
    protocol = os.environ.get("IGGY_TEST_PROTOCOL", "")
    if not protocol or "protocol=" in url or url.startswith("iggy+http"):
        return url
    return f"{url}{'&' if '?' in url else '?'}protocol={protocol}"


# One server for many tests: emptied between them, and replaced when that fails.


def external_server_address() -> tuple[str, int] | None:
    """Return the address of the external server in ``IGGY_TEST_SERVER``, if it is set."""
    text = os.environ.get("IGGY_TEST_SERVER", "")
    host, _, port = text.rpartition(":")
    if not text:
        return None
    if not host or not port.isdigit():
        raise ValueError(f"IGGY_TEST_SERVER is host:port of a server, not {text!r}")
    return host.strip("[]"), int(port)


class SharedServer:
    """Provides the same server to one test after another.

    Args:
        settings: of the server, ``IGGY_*`` names.
    """

    def __init__(self, *, settings: Mapping[str, str] | None = None) -> None:
        self._settings = dict(settings or {})
        self._server: RunningServer | None = None

    def __enter__(self) -> SharedServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._discard()

    def fresh(self) -> RunningServer:
        """Return a running, empty server without faults or connections."""
        if self._server is not None:
            try:
                self._server.reset()
            except (CleaningFailedError, ServerFailedError, OSError):
                # A test may leave a server with another password, or one that does not start.
                self._discard()
        if self._server is None:
            server = RunningServer(settings=self._settings, address=external_server_address())
            self._server = server.__enter__()
        return self._server

    def _discard(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
