"""Heartbeats: pings at an interval, so that the server does not evict the client.

Servers of 0.8 count pings alone, so they are sent however busy the connection is. They also tell a
connection that has silently died from one on which requests only wait.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from iggy_protocol import Ping
from iggy_sdk.errors import ClientClosedError, IggyError, RequestTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_sdk.session.interface import Session


_LOGGER: Final = logging.getLogger("iggy_sdk.session")


class HeartbeatTask:
    """Pings the current session.

    Attributes:
        pings_count: how many pings were sent.
    """

    def __init__(
        self, current_session: Callable[[], Session | None], *, interval: float, timeout: float
    ) -> None:
        """Take a function that returns the session, the interval, and the timeout of a ping."""
        self._current_session = current_session
        self._interval = interval
        self._timeout = timeout
        self.pings_count: int = 0

    async def run(self) -> None:
        """Ping until this is cancelled; an interval of 0 sends none."""
        if not self._interval:
            return
        while True:
            await anyio.sleep(self._interval)
            session = self._current_session()
            if session is not None and not session.is_closed:
                await self._ping(session)

    async def _ping(self, session: Session) -> None:
        self.pings_count += 1
        try:
            await session.request(Ping(), timeout=self._timeout)
        except ClientClosedError:
            return
        except IggyError as error:
            _LOGGER.warning("the heartbeat to %s failed: %s", session.peer, error)
            # Where replies come in order, a reply that is missing has ended the session already.
            if isinstance(error, RequestTimeoutError) and session.dialect.binds_sessions:
                session.abort(error, by_peer=True)
