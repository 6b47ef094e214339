"""What the families of verbs stand on: a way to ask the server, and the client's options.

Each family is a mixin; the client composes them all. They make commands, give them to ``request``
and shape the reply. They know no connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iggy_protocol import Command
    from iggy_sdk.door import R
    from iggy_sdk.durations import Seconds
    from iggy_sdk.options import ClientOptions

__all__ = ["Asking"]


class Asking(ABC):
    """Whoever can send a command and wait for its reply."""

    @property
    @abstractmethod
    def options(self) -> ClientOptions:
        """The options of the client."""

    @abstractmethod
    async def request(self, command: Command[R], *, timeout: Seconds | None = None) -> R:
        """Send a command and return what the server answers.

        Args:
            command: any command of the protocol.
            timeout: how long the answer may take; None takes the client's ``request_timeout``.

        Raises:
            IggyError: the server refused, or could not be reached in time.
        """
