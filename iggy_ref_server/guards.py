"""What keeps two servers apart: the lock of the data directory, and the claim on a port.

All shards of a server listen on one port with SO_REUSEPORT, which would let a second server share
it in silence. So the port is tried without that option first, and claimed under a name that only
one process of the machine can hold.

Owns descriptors that are let go when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["AlreadyRunning", "PortTaken", "bind_shared_port", "lock_data_directory"]

LOCK_NAME = ".lock"
BACKLOG = 1024


class AlreadyRunning(Exception):
    """Another server uses the data directory."""


class PortTaken(Exception):
    """Another program listens on the address."""


def lock_data_directory(directory: Path) -> int:
    """Take the data directory for this process and those it forks.

    Returns:
        The descriptor that holds the lock; keep it open.

    Raises:
        AlreadyRunning: another server has it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise AlreadyRunning(
            f"the data directory {directory} is in use by the server with process id {owner}; "
            "stop it, or set another IGGY_SYSTEM_PATH"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def bind_shared_port(host: str, port: int, count: int) -> tuple[list[socket.socket], int | None]:
    """Make ``count`` listening sockets that share one port, which nobody else has.

    Args:
        host: the address of an interface, IPv4 or IPv6.
        port: 0 lets the system choose.
        count: how many shards listen.

    Returns:
        The sockets, and the descriptor of the claim, to be kept open.

    Raises:
        PortTaken: somebody else listens there.
    """
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE
    )[0]
    if port:
        _try_alone(family, address, host, port)
    first = _bind(family, address, host, port)
    chosen = (address[0], first.getsockname()[1], *address[2:])
    claim = _claim(f"{host}:{chosen[1]}")
    sockets = [first]
    sockets += [_bind(family, chosen, host, chosen[1]) for _ in range(count - 1)]
    for listener in sockets:
        listener.listen(BACKLOG)
    return sockets, claim


def _try_alone(family: int, address: tuple[object, ...], host: str, port: int) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            # A bound port that nobody listens on can still be shared; a listening one cannot.
            probe.listen(1)
        except OSError as error:
            raise _taken(host, port, error) from error


def _bind(family: int, address: tuple[object, ...], host: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _taken(host, port, error) from error
    return listener


def _taken(host: str, port: int, error: OSError) -> Exception:
    if error.errno == errno.EADDRINUSE:
        return PortTaken(
            f"{host}:{port} is in use by another program; stop it, or set another "
            "IGGY_TCP_ADDRESS (port 0 takes a free one)"
        )
    return PortTaken(f"cannot listen on {host}:{port}: {error.strerror}")


def _claim(name: str) -> int | None:
    """Hold a name in the abstract Unix namespace, where the system has one."""
    if os.uname().sysname != "Linux":
        return None
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.ExitStack() as stack:
        stack.callback(holder.close)
        try:
            holder.bind(f"\0iggy-python-port-{name}")
        except OSError as error:
            raise PortTaken(f"{name} is in use by another server of this kind") from error
        stack.pop_all()
    return holder.detach()
