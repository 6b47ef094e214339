"""Clients that speak another protocol: each is refused, and the log says so once in a while.

Clients from 0.9 on frame their requests in another way. They are answered what they understand, an
eviction that names the versions, and whoever runs the server reads why they do not get in. A client
that tries again and again fills no log: one line for an address in ten minutes.

Owns the lines. What the bytes look like is the protocol's affair.
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

# Often enough to be found by who looks for it.
SILENCE_S: Final = 600.0
# Addresses that are remembered; the one that was told of first is forgotten first.
ADDRESSES_MAX: Final = 1024


class ForeignClients:
    """Tells of clients that speak another protocol.

    Args:
        clock: tells the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_s: dict[str, float] = {}

    def note(self, session: Session) -> None:
        """Log that a client was refused, unless its address was told of a short while ago."""
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
            " apache-iggy 0.8.0, or iggy_sdk (said once in %.0f minutes for an address)",
            session.address,
            session.transport.name,
            SILENCE_S / 60,
        )
