"""The base of the command families: the client's options and ``request``.

Each family is a mixin, and the client composes them all. Their methods make commands, pass them
to ``request`` and shape the reply.
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
    """An object that sends a command and waits for its reply."""

    @property
    @abstractmethod
    def options(self) -> ClientOptions:
        """The options of the client."""

    @abstractmethod
    async def request(self, command: Command[R], *, timeout: Seconds | None = None) -> R:
        """Send a command and return the reply.

        Args:
            command: any command of the protocol.
            timeout: how long the reply may take; None takes the client's ``request_timeout``.

        Raises:
            IggyError: the server refused, or could not be reached in time.
        """
