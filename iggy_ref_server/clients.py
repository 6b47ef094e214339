"""The clients connected to this shard, as other clients may list them.

Those that have not logged in are bounded, in all and per address, and a few of them cannot keep
others out: when the bound is reached, the one goes that has been silent for longest, and the
newcomer is taken. A client is silent since it connected, or since its last request was served;
while a request of it is worked on, such as a login, it is not.

Owns the table, the time of each client's last sign of life, and that choice. Group membership is
the groups' affair, sockets are the data plane's.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from iggy_protocol import Transport, record
from iggy_ref_server.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["Client", "Clients", "UnauthenticatedLimits"]

LOGGER = logging.getLogger(__name__)

# One line for a burst of connections that were closed or refused, however many there are.
LINES_APART_S: Final = 10.0
# What a household or a machine has of IPv6; a budget per address would be none.
IPV6_NETWORK_BITS: Final = 64


@record(kw_only=True)
class UnauthenticatedLimits:
    """How many clients may not have logged in, and how long.

    Attributes:
        total_max: on this shard.
        per_address_max: of one address.
        login_s: how long a client may be silent before it has logged in; 0 is for ever.
    """

    total_max: int = 1024
    per_address_max: int = 512
    login_s: float = 15.0


@dataclass(slots=True, eq=False)
class Client:
    """A connection and how to end it.

    Attributes:
        session: its state.
        close: hangs up, after what is owed has been sent.
        last_seen_us: when it connected or last pinged.
        abort: hangs up at once.
        since: when it connected or lost its login, on the clock of the loop.
    """

    session: Session
    close: Callable[[], None]
    last_seen_us: int
    abort: Callable[[], None] | None = None
    since: float = field(default_factory=trio.current_time)

    @property
    def silent_since(self) -> float:
        """When the last request was served, or the connection began; infinite within a request."""
        return max(self.since, self.session.served_at)

    @property
    def network(self) -> str:
        """Whose budget the connection counts for."""
        return network_of(self.session.address)


def network_of(address: str) -> str:
    """Return the part of ``host:port`` that a client cannot change at will."""
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return host
    if number.version == 4:
        return host
    return str(ipaddress.ip_network((number, IPV6_NETWORK_BITS), strict=False))


class Clients:
    """All connections of a shard, by client id.

    Args:
        limits: of those that have not logged in.
    """

    def __init__(self, limits: UnauthenticatedLimits | None = None) -> None:
        self._limits = limits or UnauthenticatedLimits()
        self._clients: dict[int, Client] = {}
        # Those without a login; whoever logs in is taken out when somebody looks.
        self._unauthenticated: dict[Client, None] = {}
        self._per_network: Counter[str] = Counter()
        self._closed = _BurstLog()

    def add(self, client: Client) -> None:
        """Enter a connection; a recycled address takes the place of the old one."""
        earlier = self._clients.get(client.session.client_id)
        if earlier is not None:
            self._discard(earlier)
        self._clients[client.session.client_id] = client
        if client.session.user_id is None:
            self._enter(client)

    def remove(self, session: Session) -> bool:
        """Forget a connection; False where another one has taken its number."""
        client = self._clients.get(session.client_id)
        if client is None or client.session is not session:
            return False
        del self._clients[session.client_id]
        self._discard(client)
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

    def __iter__(self) -> Iterator[Client]:
        return iter(list(self._clients.values()))

    def __len__(self) -> int:
        return len(self._clients)

    # Those without a login

    def make_room(self, address: str) -> bool:
        """Make room for a client that has not logged in, at the cost of one that is silent.

        Returns:
            False where nobody is silent: all of them have requests that are being served.
        """
        limits, network = self._limits, network_of(address)
        if not self._is_full(network):
            return True
        self._forget_authenticated()
        if self._per_network[network] >= limits.per_address_max and not self._close_oldest(
            address, "limits.max_unauthenticated_connections_per_address", network=network
        ):
            return False
        return len(self._unauthenticated) < limits.total_max or self._close_oldest(
            address, "limits.max_unauthenticated_connections"
        )

    def make_room_at(self, transport: Transport, address: str, key: str) -> bool:
        """Make room where all connections of a transport together are too many."""
        self._forget_authenticated()
        return self._close_oldest(address, key, transport=transport)

    def close_silent(self) -> None:
        """Close those that have been silent for too long without a login; call now and then."""
        now, login_s = trio.current_time(), self._limits.login_s
        for client in self._clients.values():
            if client.session.user_id is None and client not in self._unauthenticated:
                # It has logged out.
                client.since = now
                self._enter(client)
        self._forget_authenticated()
        for client in list(self._unauthenticated):
            if login_s and now - client.silent_since >= login_s:
                self._close(client)
                self._closed.note(client.session.address, f"no login within {login_s:g} s")
        self._closed.flush()

    def _is_full(self, network: str) -> bool:
        limits = self._limits
        return (
            len(self._unauthenticated) >= limits.total_max
            or self._per_network[network] >= limits.per_address_max
        )

    def _close_oldest(
        self,
        newcomer: str,
        key: str,
        *,
        network: str | None = None,
        transport: Transport | None = None,
    ) -> bool:
        """Close the client that has been silent for longest; False where nobody is."""
        silent = [
            client
            for client in self._unauthenticated
            if client.silent_since < float("inf")
            and (network is None or client.network == network)
            and (transport is None or client.session.transport is transport)
        ]
        if not silent:
            self._closed.note(newcomer, f"{key} is reached and nobody is silent: refused")
            return False
        oldest = min(silent, key=lambda client: client.silent_since)
        self._close(oldest)
        self._closed.note(oldest.session.address, f"{key} is reached and others want to log in")
        return True

    def _close(self, client: Client) -> None:
        self._discard(client)
        (client.abort or client.close)()

    def _enter(self, client: Client) -> None:
        self._unauthenticated[client] = None
        self._per_network[client.network] += 1

    def _discard(self, client: Client) -> None:
        if client in self._unauthenticated:
            del self._unauthenticated[client]
            network = client.network
            self._per_network[network] -= 1
            if not self._per_network[network]:
                del self._per_network[network]

    def _forget_authenticated(self) -> None:
        for client in [one for one in self._unauthenticated if one.session.user_id is not None]:
            self._discard(client)


class _BurstLog:
    """Tells of many connections in few lines."""

    def __init__(self) -> None:
        self._count = 0
        self._last = ("", "")
        self._next_at = -float("inf")

    def note(self, address: str, reason: str) -> None:
        """Note one connection."""
        self._count += 1
        self._last = address, reason
        self.flush()

    def flush(self) -> None:
        """Tell what was noted, unless the last line is too young."""
        now = trio.current_time()
        if not self._count or now < self._next_at:
            return
        address, reason = self._last
        LOGGER.warning(
            "closed %d connection(s) without a login, the last one from %s: %s",
            self._count,
            address,
            reason,
        )
        self._count, self._next_at = 0, now + LINES_APART_S
