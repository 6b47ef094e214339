"""Accepting the next connection of a listening socket, past errors of the one before."""

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
        listener: a listening socket.
        door: the name of the transport in the log.
    """
    while True:
        try:
            accepted, address = await listener.accept()
            if accepted.fileno() < connections_end():
                return accepted, address
            # The last descriptors are a reserve, so that files can still be opened for connected
            # clients.
            accepted.close()
            LOGGER.error(
                "refused a %s connection from %s: the remaining file descriptors are reserved for "
                "files; raise the limit of open files (ulimit -n)",
                door,
                address,
            )
            await trio.sleep(PAUSE_S)
        except OSError as error:
            # Any other error is about a client that disconnected before it was accepted.
            if error.errno in OUT_OF_RESOURCES:
                # The client stays in the kernel's queue; retrying without a pause would spin.
                LOGGER.error("cannot accept %s connections: %s", door, error.strerror)
                await trio.sleep(PAUSE_S)
