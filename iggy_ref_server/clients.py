"""The table of the clients connected to this shard.

Clients without a login are limited in total and per address. At a limit the client that has been
idle for longest is closed in favour of the new one, so that a few clients cannot lock out others.
A client is idle since it connected or since its last request was handled; it is not idle while a
request, such as a login, is being handled.

Owns the table, the time of each client's last heartbeat, and that choice.
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
from iggy_ref_server.session import ClientSession

if TYPE_CHECKING:
    from collections.abc import Iterator


LOGGER = logging.getLogger(__name__)

# One log line per interval for connections that were closed or refused, however many there are.
LOG_INTERVAL_S: Final = 10.0
# One household or machine has a whole /64 of IPv6 addresses, so the limit counts per /64.
IPV6_NETWORK_BITS: Final = 64


@record(kw_only=True)
class UnauthenticatedLimits:
    """The limits of clients without a login.

    Attributes:
        total_max: on this shard.
        per_address_max: of one address.
        login_timeout_s: how long such a client may be idle; 0 is no limit.
    """

    total_max: int = 1024
    per_address_max: int = 512
    login_timeout_s: float = 15.0


@dataclass(slots=True, eq=False)
class ClientEntry:
    """A connected client.

    Attributes:
        session: its state.
        close: closes the connection after all replies are sent.
        last_seen_us: when it connected or last pinged.
        abort: closes the connection at once.
        close_with: closes the connection after all replies and a status; None where none is sent.
        since: when it connected or logged out, on the clock of the loop.
    """

    session: ClientSession
    close: Callable[[], None]
    last_seen_us: int
    abort: Callable[[], None] | None = None
    close_with: Callable[[int], None] | None = None
    since: float = field(default_factory=trio.current_time)

    @property
    def idle_since(self) -> float:
        """When the last request was handled or the connection began; infinite during a request."""
        return max(self.since, self.session.last_served_at)

    @property
    def network(self) -> str:
        """The network whose limit this connection counts against."""
        return network_of(self.session.address)


def network_of(address: str) -> str:
    """Return the IPv4 address or the IPv6 /64 network of ``host:port``."""
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return host
    if number.version == 4:
        return host
    return str(ipaddress.ip_network((number, IPV6_NETWORK_BITS), strict=False))


class ClientTable:
    """All clients of a shard, by client id.

    Args:
        limits: for clients without a login.
    """

    def __init__(self, limits: UnauthenticatedLimits | None = None) -> None:
        self._limits = limits or UnauthenticatedLimits()
        self._clients: dict[int, ClientEntry] = {}
        # Clients without a login. A login does not remove a client from here; the next check does.
        self._unauthenticated: dict[ClientEntry, None] = {}
        self._per_network: Counter[str] = Counter()
        self._closed = _RateLimitedLog()

    def add(self, client: ClientEntry) -> None:
        """Add a client; it replaces an old one with the same id, whose address was reused."""
        earlier = self._clients.get(client.session.client_id)
        if earlier is not None:
            self._remove_unauthenticated(earlier)
        self._clients[client.session.client_id] = client
        if client.session.user_id is None:
            self._add_unauthenticated(client)

    def remove(self, session: ClientSession) -> bool:
        """Remove a client; False if another client has its id now."""
        client = self._clients.get(session.client_id)
        if client is None or client.session is not session:
            return False
        del self._clients[session.client_id]
        self._remove_unauthenticated(client)
        return True

    def get(self, client_id: int) -> ClientEntry | None:
        """Return the client with this id."""
        return self._clients.get(client_id)

    def note_heartbeat(self, client_id: int, now_us: int) -> None:
        """Record a heartbeat."""
        client = self._clients.get(client_id)
        if client is not None:
            client.last_seen_us = now_us

    def idle_since(self, before_us: int) -> list[ClientEntry]:
        """Return the clients whose last heartbeat is older than this."""
        return [client for client in self._clients.values() if client.last_seen_us < before_us]

    def __iter__(self) -> Iterator[ClientEntry]:
        return iter(list(self._clients.values()))

    def __len__(self) -> int:
        return len(self._clients)

    # Clients without a login

    def admit_unauthenticated(self, address: str) -> bool:
        """Admit a client without a login, and close an idle one if a limit is reached.

        Returns:
            False if no client is idle, because all of them have requests in progress.
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

    def evict_unauthenticated_of(self, transport: Transport, address: str, key: str) -> bool:
        """Close an idle client without a login when a transport is at its connection limit."""
        self._forget_authenticated()
        return self._close_oldest(address, key, transport=transport)

    def close_unauthenticated(self) -> None:
        """Close clients that were idle for too long without a login; call periodically."""
        now, login_timeout_s = trio.current_time(), self._limits.login_timeout_s
        for client in self._clients.values():
            if client.session.user_id is None and client not in self._unauthenticated:
                # It has logged out.
                client.since = now
                self._add_unauthenticated(client)
        self._forget_authenticated()
        for client in list(self._unauthenticated):
            if login_timeout_s and now - client.idle_since >= login_timeout_s:
                self._close(client)
                self._closed.note(client.session.address, f"no login within {login_timeout_s:g} s")
        self._closed.flush()

    def _is_full(self, network: str) -> bool:
        limits = self._limits
        return (
            len(self._unauthenticated) >= limits.total_max
            or self._per_network[network] >= limits.per_address_max
        )

    def _close_oldest(
        self,
        new_address: str,
        key: str,
        *,
        network: str | None = None,
        transport: Transport | None = None,
    ) -> bool:
        """Close the client that has been idle for longest; False if none is idle."""
        idle = [
            client
            for client in self._unauthenticated
            if client.idle_since < float("inf")
            and (network is None or client.network == network)
            and (transport is None or client.session.transport is transport)
        ]
        if not idle:
            self._closed.note(new_address, f"{key} is reached and no client is idle; refused")
            return False
        oldest = min(idle, key=lambda client: client.idle_since)
        self._close(oldest)
        self._closed.note(oldest.session.address, f"{key} is reached; closed for a new client")
        return True

    def _close(self, client: ClientEntry) -> None:
        self._remove_unauthenticated(client)
        (client.abort or client.close)()

    def _add_unauthenticated(self, client: ClientEntry) -> None:
        self._unauthenticated[client] = None
        self._per_network[client.network] += 1

    def _remove_unauthenticated(self, client: ClientEntry) -> None:
        if client in self._unauthenticated:
            del self._unauthenticated[client]
            network = client.network
            self._per_network[network] -= 1
            if not self._per_network[network]:
                del self._per_network[network]

    def _forget_authenticated(self) -> None:
        for client in [one for one in self._unauthenticated if one.session.user_id is not None]:
            self._remove_unauthenticated(client)


class _RateLimitedLog:
    """Logs many closed connections in few lines."""

    def __init__(self) -> None:
        self._count = 0
        self._last = ("", "")
        self._next_at = -float("inf")

    def note(self, address: str, reason: str) -> None:
        """Count one connection."""
        self._count += 1
        self._last = address, reason
        self.flush()

    def flush(self) -> None:
        """Write the log line, unless the last one is too recent."""
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
        self._count, self._next_at = 0, now + LOG_INTERVAL_S
