"""What a request knows of its connection.

Tests call the application without a connection; then there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["WebConnection", "connection_of", "enter_connection"]

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
