"""Heartbeats: pings at an interval, so that the server does not evict the client.

Servers count pings alone, so they are sent however busy the connection is. A failed ping has
ended its session already, so it is only logged.
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
    """Pings the current session.

    Attributes:
        beats_count: how many pings were sent.
    """

    def __init__(
        self, present: Callable[[], Conversation | None], *, interval: float, timeout: float
    ) -> None:
        """Take a function that returns the session, the interval, and the timeout of a ping."""
        self._present = present
        self._interval = interval
        self._timeout = timeout
        self.beats_count = 0

    async def run(self) -> None:
        """Ping until this is cancelled; an interval of 0 sends none."""
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
            _LOGGER.warning("the heartbeat to %s failed: %s", session.peer, error)
