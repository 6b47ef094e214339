"""Lingering close: the server closes a connection, and the client can still read its last replies.

Closing a socket with unread input makes the kernel send a reset, and the client loses replies that
it has not read yet. So the server half-closes the socket after the last reply and discards input
until the client closes, is silent for a while, or the time is over (nginx: ``lingering_close``).
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["DISCARD_BYTES", "STOP_CLIENTS_S", "linger", "silence_awaited"]

SILENT_S = 0.25
# A client that is near, but has to wait for a processor.
SILENT_MIN_S = 0.05
ROUND_TRIPS = 4
# The smoothed round-trip time in microseconds, within what Linux tells of a TCP connection.
ROUND_TRIP = struct.Struct("68xI")
# A client that never stops sending does not keep us.
WHOLE_S = 1.0
DISCARD_BYTES = 1 << 16
# How long clients have for their last replies when the server stops, those of all listeners at the
# same time. Service managers and test harnesses kill after 5 s; the other half is for files.
STOP_CLIENTS_S = 2.5


async def linger(discard: Callable[[], Awaitable[bool]], silent_s: float = SILENT_S) -> None:
    """Discard what a client still sends, for a while.

    Args:
        discard: throws away what comes next; False when nothing will.
        silent_s: how long a client that says nothing is waited for.
    """
    with trio.move_on_after(WHOLE_S), trio.move_on_after(silent_s) as silence:
        while await discard():
            silence.deadline = trio.current_time() + silent_s


def silence_awaited(connected: socket.socket) -> float:
    """Tell for how many seconds a client that says nothing should be waited for.

    What it sent before it could know of the end arrives within one round trip. Within a machine
    that is no time at all, and nobody who restarts a server wants to wait for idle clients.
    """
    try:
        facts = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, ROUND_TRIP.size)
        (round_trip_us,) = ROUND_TRIP.unpack(facts)
    except (OSError, AttributeError, struct.error):
        return SILENT_S
    return float(min(SILENT_S, max(SILENT_MIN_S, ROUND_TRIPS * round_trip_us / 1e6)))
