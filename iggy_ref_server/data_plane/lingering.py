"""The end of a connection that the server closes, so that the client can read its last answers.

Closing a socket with unread bytes in it makes the kernel throw away answers that the client has not
read yet. So the last of them is followed by an end of file, and what still comes is discarded until
the client hangs up, says nothing for a while, or the time is over.

Owns the patience, also that of the whole server when it stops. How to discard is told by whoever
owns the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["DISCARD_BYTES", "STOP_CLIENTS_S", "linger"]

SILENT_S = 0.25
# A client that never stops sending does not keep us.
WHOLE_S = 1.0
DISCARD_BYTES = 1 << 16
# How long clients have for their last answers when the server stops, those of all listeners at the
# same time. Service managers and test harnesses kill after 5 s; the rest is for files.
STOP_CLIENTS_S = 2.5


async def linger(discard: Callable[[], Awaitable[bool]]) -> None:
    """Discard what a client still sends, for a while.

    Args:
        discard: throws away what comes next; False when nothing will.
    """
    with trio.move_on_after(WHOLE_S), trio.move_on_after(SILENT_S) as silence:
        while await discard():
            silence.deadline = trio.current_time() + SILENT_S
