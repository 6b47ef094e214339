"""The clients connected to this shard, as other clients may list them.

Owns the table and the time of each client's last sign of life. Group membership is the groups'
affair, sockets are the data plane's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iggy_ref_server.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["Client", "Clients"]


@dataclass(slots=True)
class Client:
    """A connection and how to end it.

    Attributes:
        session: its state.
        close: hangs up, after what is owed has been sent.
        last_seen_us: when it connected or last pinged.
    """

    session: Session
    close: Callable[[], None]
    last_seen_us: int


class Clients:
    """All connections of a shard, by client id."""

    def __init__(self) -> None:
        self._clients: dict[int, Client] = {}

    def add(self, client: Client) -> None:
        """Enter a connection; a recycled address takes the place of the old one."""
        self._clients[client.session.client_id] = client

    def remove(self, session: Session) -> bool:
        """Forget a connection; False where another one has taken its number."""
        client = self._clients.get(session.client_id)
        if client is None or client.session is not session:
            return False
        del self._clients[session.client_id]
        return True

    def get(self, client_id: int) -> Client | None:
        """Return the connection with this number."""
        return self._clients.get(client_id)

    def seen(self, client_id: int, now_us: int) -> None:
        """Note a sign of life."""
        client = self._clients.get(client_id)
        if client is not None:
            client.last_seen_us = now_us

    def silent_since(self, before_us: int) -> list[Client]:
        """Return those whose last sign of life is older than this."""
        return [client for client in self._clients.values() if client.last_seen_us < before_us]

    def count_strangers(self) -> int:
        """Count those who have not logged in."""
        return sum(client.session.user_id is None for client in self._clients.values())

    def __iter__(self) -> Iterator[Client]:
        return iter(list(self._clients.values()))

    def __len__(self) -> int:
        return len(self._clients)
