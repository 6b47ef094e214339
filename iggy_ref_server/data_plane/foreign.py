"""The log of clients with an unsupported protocol, limited to one line per address and interval.

Clients from 0.9 on frame their requests differently. The server replies with an eviction that they
understand and that names the versions. The log tells the operator why they cannot connect.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_ref_server.session import Session

__all__ = ["ForeignClients"]

LOGGER = logging.getLogger(__name__)

# A client that reconnects in a loop must not fill the log.
SILENCE_S: Final = 600.0
# Addresses that are remembered; the one that was logged first is dropped first.
ADDRESSES_MAX: Final = 1024


class ForeignClients:
    """Logs clients that speak an unsupported protocol.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_s: dict[str, float] = {}

    def note(self, session: Session) -> None:
        """Log that a client was refused, unless its address was logged recently."""
        host, now_s = session.address.rpartition(":")[0], self._clock()
        told_s = self._told_s.pop(host, None)
        if told_s is not None and now_s - told_s < SILENCE_S:
            self._told_s[host] = told_s
            return
        while len(self._told_s) >= ADDRESSES_MAX:
            del self._told_s[next(iter(self._told_s))]
        self._told_s[host] = now_s
        LOGGER.warning(
            "refused %s over %s: it speaks the protocol of Apache Iggy 0.9 and later (VSR framing),"
            " this server speaks that of 0.8 and earlier; use a client of 0.8, such as"
            " apache-iggy 0.8.0, or iggy_sdk (logged once in %.0f minutes per address)",
            session.address,
            session.transport.name,
            SILENCE_S / 60,
        )
