"""The client as producers, consumers and command families see it.

These interfaces exist so that no module below the client imports it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol, TypeVar

from iggy_sdk.deadline import deadline_of
from iggy_sdk.errors import describe_command

if TYPE_CHECKING:
    from types import TracebackType

    from iggy_protocol import Command, Dialect, PartitionContext
    from iggy_sdk.deadline import Deadline
    from iggy_sdk.durations import Seconds
    from iggy_sdk.options import ClientOptions


R = TypeVar("R")


class ClientInterface(Protocol):
    """The methods of a client that producers and consumers use."""

    @property
    def options(self) -> ClientOptions:
        """The options of this client, which its producers and consumers inherit."""

    @property
    def epoch(self) -> int:
        """The number of the present connection; 0 before the first, and it only grows."""

    @property
    def session_epoch(self) -> int:
        """The number of the connection that began the present session; with it memberships end."""

    @property
    def dialect(self) -> Dialect:
        """What the server of the present or last connection speaks."""

    @property
    def is_clustered(self) -> bool:
        """Whether the server has told that it is one of several nodes."""

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that has not failed."""

    async def request(
        self,
        command: Command[R],
        *,
        timeout: Seconds | None = None,
        context: PartitionContext | None = None,
    ) -> R:
        """Send a command and return the reply."""

    async def connect(self) -> None:
        """Open the connection, unless it is open."""

    def sibling(self) -> ClientInterface:
        """Make a client with the same options and login, and a connection of its own."""

    async def aclose(self) -> None:
        """Close the connection for good."""

    async def __aenter__(self) -> ClientInterface:
        """Open the connection and keep it alive in the background."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection for good."""


# The base of the command families: the client's options and ``request``.
#
# Each family is a mixin, and the client composes them all. Their methods make commands, pass them
# to ``request`` and shape the reply.


class RequestSender(ABC):
    """An object that sends a command and waits for its reply."""

    @property
    @abstractmethod
    def options(self) -> ClientOptions:
        """The options of the client."""

    @property
    @abstractmethod
    def dialect(self) -> Dialect:
        """What the server of the present or last connection speaks."""

    @abstractmethod
    async def request(self, command: Command[R], *, timeout: Seconds | None = None) -> R:
        """Send a command and return the reply.

        Args:
            command: any command of the protocol.
            timeout: how long it may take, a reconnect included; None takes the client's
                ``request_timeout``.

        Raises:
            IggyError: the server refused, or could not be reached in time.
        """

    def _deadline(self, timeout: Seconds | None) -> Deadline:
        """Begin a call of several requests, which share its time."""
        return deadline_of(timeout, self.options.request_timeout)

    async def _request_by(self, deadline: Deadline, command: Command[R]) -> R:
        """Send a further command of a call, within what is left of its time."""
        rest = deadline.rest_for(describe_command(command))
        return await self.request(command, timeout=rest)
