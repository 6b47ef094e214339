"""One connection per server in each Python process, kept while the process lives.

Spark runs tasks in processes that it forks and uses again and again. A connection cannot be used
after a fork, so each belongs to the process that opened it.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import Final

from iggy_sdk.blocking import IggyClient

CLIENTS_MAX: Final = 8
"""Servers that one process is connected to at a time; the oldest connection is closed first."""

_clients: dict[tuple[int, str], IggyClient] = {}
_clients_lock = threading.Lock()


def connection(server: str) -> IggyClient:
    """Return the client of this process for a server, connected.

    Args:
        server: a connection string.

    Raises:
        ConfigurationError: the connection string cannot be read; it is not quoted.
        ConnectionFailedError: the server cannot be reached.
        AuthenticationError: the server refuses the login.
    """
    key = (os.getpid(), server)
    with _clients_lock:
        client = _clients.get(key)
        if client is None:
            client = IggyClient(server)
            client.connect()
            _evict_clients()
            _clients[key] = client
        return client


def close_all() -> None:
    """Close the clients of this process, and drop those of its parent."""
    with _clients_lock:
        for (pid, _), client in _clients.items():
            if pid == os.getpid():
                client.close()
        _clients.clear()


def _evict_clients() -> None:
    """Drop the clients of the parent process unclosed, and close the oldest of this one."""
    for key in [key for key in _clients if key[0] != os.getpid()]:
        del _clients[key]
    while len(_clients) >= CLIENTS_MAX:
        _clients.pop(next(iter(_clients))).close()


atexit.register(close_all)
