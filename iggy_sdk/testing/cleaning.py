"""Emptying a server between two tests over a blocking socket, in milliseconds, without a restart.

Streams go with their topics, messages, groups and offsets; then every user but the first, and the
tokens of the first. The settings of the server stay.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, TypeVar

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

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["CleaningFailedError", "empty_server"]

R = TypeVar("R")

ANSWER_SECONDS_MAX = 10.0
READ_BYTES = 65_536
ROOT_USER_ID = 0


class CleaningFailedError(RuntimeError):
    """The server could not be emptied, so it has to be replaced."""


class Wire:
    """A connection with one request at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=ANSWER_SECONDS_MAX)
        self._connection = ClientConnection()

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def ask(self, command: Command[R]) -> R:
        """Send a command and return its reply."""
        for buffer in self._connection.send(command):
            self._socket.sendall(buffer)
        while (event := self._connection.next_event()) is NEED_DATA:
            self._connection.receive_data(self._socket.recv(READ_BYTES))
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
    with Wire(address) as wire:
        wire.ask(LoginUser(username, password))
        for stream in wire.ask(GetStreams()):
            wire.ask(DeleteStream(stream.id))
        for user in wire.ask(GetUsers()):
            if user.id != ROOT_USER_ID:
                wire.ask(DeleteUser(user.id))
        for token in wire.ask(GetPersonalAccessTokens()):
            wire.ask(DeletePersonalAccessToken(token.name))
