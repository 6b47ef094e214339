"""A pool of connections to one server. Idle ones are used again, the latest first."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from iggy_sdk.http.exchange import HttpConnection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from iggy_sdk.transport import Transport

__all__ = ["CONNECTIONS_MAX", "ConnectionPool"]

CONNECTIONS_MAX: Final = 16
"""How many exchanges run at once. One process of the server serves HTTP, and a few connections keep
it busy; more would only queue there instead of here."""

IDLE_SECONDS_MAX: Final = 30.0
"""How long a connection may be idle. Servers and middleboxes close idle connections, the slowest
after a minute, and a request may be in flight when that happens."""


class ConnectionPool:
    """Connections to one server.

    Args:
        dial: opens another connection.
        capacity: how many are in use at once.
    """

    def __init__(self, dial: Callable[[], Awaitable[Transport]], *, capacity: int) -> None:
        self._dial = dial
        self._room = anyio.Semaphore(capacity)
        self._idle: list[HttpConnection] = []
        self._lent: set[HttpConnection] = set()
        self._is_closed = False

    @asynccontextmanager
    async def lend(self, *, fresh: bool = False) -> AsyncIterator[HttpConnection]:
        """Use a connection for the length of a block; wait while all are in use.

        Args:
            fresh: open a new one, because a pooled one has failed.

        Raises:
            ConnectionFailedError: a new one cannot be opened.
        """
        async with self._room:
            connection = None if fresh else self._take()
            if connection is None:
                connection = HttpConnection(await self._dial())
            self._lent.add(connection)
            try:
                yield connection
            finally:
                self._lent.discard(connection)
                self._put_aside(connection)

    def _take(self) -> HttpConnection | None:
        stale_before = anyio.current_time() - IDLE_SECONDS_MAX
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since > stale_before and connection.is_usable:
                return connection
            connection.abort()
        return None

    def _put_aside(self, connection: HttpConnection) -> None:
        if self._is_closed or not connection.is_usable:
            connection.abort()
            return
        connection.idle_since = anyio.current_time()
        self._idle.append(connection)

    def abort(self) -> None:
        """Close all connections at once; may be called twice."""
        self._is_closed = True
        for connection in [*self._idle, *self._lent]:
            connection.abort()
        self._idle.clear()
