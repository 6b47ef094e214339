"""Accepting the next connection of a listening socket, whatever goes wrong with the one before.

A client that is gone before it was accepted is nobody's failure. When descriptors or memory run out
the client keeps its place in the kernel's queue, and a door that tried again at once would only
burn the core. A connection that would use up the reserve of descriptors is closed at once, so that
files can still be opened for those who are connected.

Owns that patience. Who is let in is the doors' affair.
"""

from __future__ import annotations

import errno
import logging
from typing import Any, Final

import trio

from iggy_ref_server.descriptor_limit import connections_end

__all__ = ["PAUSE_S", "accept_next"]

LOGGER = logging.getLogger(__name__)

PAUSE_S: Final = 0.1
OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


async def accept_next(
    listener: trio.socket.SocketType, door: str
) -> tuple[trio.socket.SocketType, Any]:
    """Wait for a connection, and return it with the address of its client.

    Args:
        listener: listens already.
        door: what the log calls such connections.
    """
    while True:
        try:
            accepted, address = await listener.accept()
            if accepted.fileno() < connections_end():
                return accepted, address
            accepted.close()
            LOGGER.error(
                "refused a %s connection of %s: the descriptors that are left are reserved for "
                "files; raise the limit of open files (ulimit -n)",
                door,
                address,
            )
            await trio.sleep(PAUSE_S)
        except OSError as error:
            if error.errno in OUT_OF_RESOURCES:
                LOGGER.error("cannot accept %s connections: %s", door, error.strerror)
                await trio.sleep(PAUSE_S)
