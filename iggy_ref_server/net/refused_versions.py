"""The log of clients whose version of the protocol is not served.

They are told so in their own framing, with an error that names the versions. The log tells the
operator why they cannot connect: which version their SDK announces, and what this server speaks.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from iggy_protocol import CLASSIC, VERSION_WINDOWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol import VersionRefused
    from iggy_ref_server.session import ClientSession


LOGGER = logging.getLogger(__name__)

# A client that reconnects in a loop must not fill the log.
LOG_INTERVAL_S: Final = 600.0
# Addresses that are remembered; the one that was logged first is dropped first.
ADDRESSES_MAX: Final = 1024
# What the client says of its SDK has up to 255 bytes each; the log shows the beginning.
LOGGED_CHARACTERS_MAX: Final = 60


def _spoken() -> str:
    windows = [
        f"{window.lowest}"
        if window.lowest == window.highest
        else f"{window.lowest[0]}.{window.lowest[1]}"
        for window in VERSION_WINDOWS
    ]
    return f"{', '.join(windows)} and the protocol of Apache Iggy {CLASSIC.release} and earlier"


SPOKEN: Final = _spoken()
"""What this server speaks, for people."""


class RefusedVersionLog:
    """Logs refused clients, at most one line per address and interval.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_at_s: dict[str, float] = {}

    def note_version(self, session: ClientSession, refused: VersionRefused) -> None:
        """Log that a login was refused, because its version is not served."""
        sdk = f"{refused.sdk_name} {refused.sdk_version}"[:LOGGED_CHARACTERS_MAX]
        self._note(session, f"its client ({sdk!r}) announces the protocol {refused.version}")

    def note_framing(self, session: ClientSession) -> None:
        """Log that a client changed its framing within a connection, which has one to its end."""
        self._note(session, "it sends frames of 0.9 in a connection that began with those of 0.8")

    def _note(self, session: ClientSession, reason: str) -> None:
        host, now_s = session.address.rpartition(":")[0], self._clock()
        logged_at_s = self._logged_at_s.pop(host, None)
        if logged_at_s is not None and now_s - logged_at_s < LOG_INTERVAL_S:
            self._logged_at_s[host] = logged_at_s
            return
        while len(self._logged_at_s) >= ADDRESSES_MAX:
            del self._logged_at_s[next(iter(self._logged_at_s))]
        self._logged_at_s[host] = now_s
        LOGGER.warning(
            "refused %s over %s: %s; this server speaks %s; use a client of a release that speaks"
            " one of these (logged once in %.0f minutes per address)",
            session.address,
            session.transport.name,
            reason,
            SPOKEN,
            LOG_INTERVAL_S / 60,
        )
