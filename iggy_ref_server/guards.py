"""Locks that keep two servers from sharing a data directory or a port by accident.

All shards of a server listen on one port with SO_REUSEPORT, which would let a second server share
the port without an error. So the port is first bound without that option, and then claimed by a
name in the abstract Unix namespace, which one process of the machine can hold. A port that an
ancestor of this process listens on counts as reserved for this server: test harnesses hold a port
until the server is ready.

All locks are descriptors, so the kernel releases them when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["AlreadyRunning", "PortTaken", "bind_shared_port", "lock_data_directory"]

LOCK_NAME = ".lock"
BACKLOG = 1024
PROC = Path("/proc")
# Columns of /proc/net/tcp and /proc/net/udp; the states are TCP_LISTEN and, for UDP, TCP_CLOSE.
ADDRESS_COLUMN, STATE_COLUMN, INODE_COLUMN = 1, 3, 9
SERVING = {socket.SOCK_STREAM: ("tcp", "0A"), socket.SOCK_DGRAM: ("udp", "07")}


class AlreadyRunning(Exception):
    """Another server uses the data directory."""


class PortTaken(Exception):
    """Another program listens on the address."""


def lock_data_directory(directory: Path) -> int:
    """Lock the data directory for this process and those it forks.

    Returns:
        The descriptor that holds the lock; keep it open.

    Raises:
        AlreadyRunning: another server holds the lock.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
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
    # A full disk may not hold the process id; the lock holds without it.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def bind_shared_port(
    host: str,
    port: int,
    count: int,
    *,
    setting: str = "IGGY_TCP_ADDRESS",
    kind: socket.SocketKind = socket.SOCK_STREAM,
) -> tuple[list[socket.socket], int | None]:
    """Bind ``count`` sockets to one port that no other program uses; TCP sockets listen.

    Args:
        host: the address of an interface, IPv4 or IPv6.
        port: 0 lets the kernel choose.
        count: how many shards listen.
        setting: the environment variable of the address, for error texts.
        kind: ``SOCK_STREAM`` for TCP, ``SOCK_DGRAM`` for UDP.

    Returns:
        The sockets, and the descriptor that claims the port; keep it open.

    Raises:
        PortTaken: another program listens on the port.
    """
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=kind, flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE
    )[0]
    place = _Place(family, kind, address, host, setting)
    if port:
        _try_alone(place)
    first = _bind(place)
    place = place._replace(address=(address[0], first.getsockname()[1], *address[2:]))
    claim = _claim(f"{'udp-' * (kind == socket.SOCK_DGRAM)}{host}:{place.port}")
    sockets = [first, *(_bind(place) for _ in range(count - 1))]
    if kind == socket.SOCK_STREAM:
        for listener in sockets:
            listener.listen(BACKLOG)
    return sockets, claim


class _Place(NamedTuple):
    """An address to bind, for the kernel and for error texts."""

    family: int
    kind: socket.SocketKind
    address: tuple[Any, ...]
    host: str
    setting: str

    @property
    def port(self) -> int:
        """The port, or 0 while the kernel has not chosen one."""
        return int(self.address[1])


def _try_alone(place: _Place) -> None:
    with socket.socket(place.family, place.kind) as probe:
        try:
            if place.kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place.address)
                # With SO_REUSEADDR two sockets may bind one port while neither listens.
                probe.listen(1)
            else:
                probe.bind(place.address)
        except OSError as error:
            if not _is_reserved(place):
                raise _taken(place, error) from error


def _is_reserved(place: _Place) -> bool:
    """Return whether only ancestors of this process listen on the port."""
    protocol, state = SERVING[place.kind]
    try:
        return _listeners(place.port, protocol, state) <= _sockets_of_ancestors()
    except OSError:
        return False


def _listeners(port: int, protocol: str, state: str) -> frozenset[str]:
    """Return the inodes of the sockets that listen on a port of this machine."""
    tables = [PROC / "self" / "net" / protocol, PROC / "self" / "net" / f"{protocol}6"]
    # A kernel without IPv6 has no second table. Without the first one, read_text() raises.
    texts = [path.read_text() for path in tables if path == tables[0] or path.exists()]
    rows = [line.split() for text in texts for line in text.splitlines()[1:]]
    return frozenset(
        row[INODE_COLUMN]
        for row in rows
        if row[STATE_COLUMN] == state and int(row[ADDRESS_COLUMN].rpartition(":")[2], 16) == port
    )


def _sockets_of_ancestors() -> frozenset[str]:
    inodes: set[str] = set()
    process = os.getppid()
    while process > 0:
        home = PROC / str(process)
        with contextlib.suppress(PermissionError):
            inodes.update(_inode(entry) for entry in (home / "fd").iterdir())
        process = int((home / "stat").read_text().rpartition(")")[2].split()[1])
    return frozenset(inodes)


def _inode(descriptor: Path) -> str:
    """Return the inode of an open socket; empty for any other descriptor."""
    try:
        target = str(descriptor.readlink())
    except FileNotFoundError:
        return ""
    return target.removeprefix("socket:[").removesuffix("]") if target.startswith("socket:") else ""


def _bind(place: _Place) -> socket.socket:
    bound = socket.socket(place.family, place.kind)
    if place.kind == socket.SOCK_STREAM:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind(place.address)
    except OSError as error:
        bound.close()
        raise _taken(place, error) from error
    return bound


def _taken(place: _Place, error: OSError) -> Exception:
    where = f"{place.host}:{place.port}"
    if error.errno == errno.EADDRINUSE:
        return PortTaken(
            f"{where} is in use by another program; stop that program, or set another "
            f"{place.setting} (port 0 takes a free one)"
        )
    return PortTaken(f"cannot listen on {where}: {error.strerror}; set another {place.setting}")


def _claim(name: str) -> int | None:
    """Hold a name in the abstract Unix namespace, which only Linux has."""
    if os.uname().sysname != "Linux":
        return None
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.ExitStack() as stack:
        stack.callback(holder.close)
        try:
            holder.bind(f"\0iggy-python-port-{name}")
        except OSError as error:
            raise PortTaken(f"{name} is in use by another iggy-server") from error
        stack.pop_all()
    return holder.detach()
