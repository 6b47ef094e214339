"""A ping now and then, so that a server that counts silence keeps the client.

Servers count pings alone, so they go out however busy the connection is. Owns the rhythm. It must
not know how connections come and go; a failed ping has ended its session by then.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from iggy_protocol import Ping
from iggy_sdk.errors import IggyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_sdk.conversation import Conversation


__all__ = ["Heartbeat"]

_LOGGER: Final = logging.getLogger("iggy_sdk.heartbeat")


class Heartbeat:
    """Pings whichever session is alive.

    Attributes:
        beats_count: how many pings were sent.
    """

    def __init__(
        self, present: Callable[[], Conversation | None], *, interval: float, timeout: float
    ) -> None:
        """Take where the session is found, how often to ping it, and how long that may take."""
        self._present = present
        self._interval = interval
        self._timeout = timeout
        self.beats_count = 0

    async def run(self) -> None:
        """Ping for ever; an interval of 0 never does."""
        if not self._interval:
            return
        while True:
            await anyio.sleep(self._interval)
            session = self._present()
            if session is not None and not session.is_closed:
                await self._beat(session)

    async def _beat(self, session: Conversation) -> None:
        self.beats_count += 1
        try:
            await session.request(Ping(), timeout=self._timeout)
        except IggyError as error:
            _LOGGER.warning("the heartbeat of %s failed: %s", session.peer, error)
