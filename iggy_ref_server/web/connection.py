"""What a request knows of its connection.

Tests call the application without a connection; then there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from iggy_ref_server.client_limits import BufferAccount, BufferBudget


CONNECTION: Final = "iggy.connection"


class WebConnection(Protocol):
    """The connection of a request."""

    def abort(self) -> None:
        """Close at once, with everything that is under way."""

    def note_work(self) -> None:
        """Note that a request has come as a whole, and is worked on."""

    def note_login(self) -> None:
        """Note that the client has shown a token that counts."""


def enter_connection(scope: MutableMapping[str, Any], connection: WebConnection) -> None:
    """Tell a request where it came from."""
    scope[CONNECTION] = connection


def connection_of(scope: MutableMapping[str, Any]) -> WebConnection | None:
    """Return the connection of a request, if it has one."""
    connection: WebConnection | None = scope.get(CONNECTION)
    return connection


# What one HTTP request and its answer hold, counted in the budget of the shard.
#
#     up to 4 KiB             costs more to count than it is
#     up to 64 KiB            is counted, and never waits
#     a longer body           is let in only where all of it fits, and waits otherwise
#     of unknown length       is read as long as there is room, and waits otherwise
#
# A request has an account of its own, and the one that holds most is closed with its connection. So
# a client of HTTP/2 gains nothing by many requests on one connection.
#
# Owns the account of a request. What is read and sent is the affair of requests and answers.

COUNTED_BYTES_MIN: Final = 4 << 10
# What a body costs for each of its bytes: in pieces and as a whole while it is put together, as
# contents and as a batch afterwards, each of which is three quarters of the JSON.
BODY_COPIES: Final = 2


class RequestBuffers:
    """The account of a request, opened when there is something to count.

    Args:
        budget: of the shard.
        name: who asks, for the log.
        abort: closes the connection at once.

    Attributes:
        is_waiting: whether the rest of the request waits for room.
    """

    __slots__ = ("_abort", "_account", "_budget", "_name", "_room", "is_waiting")

    def __init__(self, budget: BufferBudget, name: str, abort: Callable[[], None]) -> None:
        self._budget = budget
        self._name = name
        self._abort = abort
        self._account: BufferAccount | None = None
        self._room: trio.Event | None = None
        self.is_waiting = False

    def hold(self, size_bytes: int, wanted_bytes: int = 0) -> None:
        """Say what is held now, and how much more is to come."""
        if self._account is None:
            if size_bytes + wanted_bytes < COUNTED_BYTES_MIN:
                return
            self._account = self._budget.open(self._name, self._abort, self._go_on)
        self._account.hold(size_bytes, wanted_bytes)
        if self._budget.is_over:
            self._budget.evict_over_limit()

    def hold_more(self, size_bytes: int) -> None:
        """Say what is held in addition."""
        held_bytes = 0 if self._account is None else self._account.size_bytes
        self.hold(held_bytes + size_bytes)

    @property
    def is_paused(self) -> bool:
        """Whether there is no room for more."""
        return self._account is not None and self._account.is_paused

    async def wait_for_room(self, size_bytes: int, wanted_bytes: int) -> None:
        """Wait until more may be read."""
        self.is_waiting = True
        while self.is_paused:
            self._room = trio.Event()
            await self._room.wait()
            self.hold(size_bytes, wanted_bytes)
        self.is_waiting = False

    def close(self) -> None:
        """Hold nothing any more."""
        if self._account is not None:
            self._account.close()

    def _go_on(self) -> None:
        if self._room is not None:
            self._room.set()
