"""What keeps two servers apart: the lock of the data directory, and the claim on a port.

All shards of a server listen on one port with SO_REUSEPORT, which would let a second server share
it in silence. So the port is tried without that option first, and claimed under a name that only
one process of the machine can hold. A port that the program holds which started the server is
reserved for it, and not taken: test harnesses do so until the server says that it is ready.

Owns descriptors that are let go when the process ends, however it ends.
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
# Columns of /proc/net/tcp and /proc/net/udp, and the state in them that this is about.
ADDRESS_COLUMN, STATE_COLUMN, INODE_COLUMN = 1, 3, 9
SERVING = {socket.SOCK_STREAM: ("tcp", "0A"), socket.SOCK_DGRAM: ("udp", "07")}


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
    # The lock holds without the number, which a full disk may not take.
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
    """Make ``count`` sockets that share one port, which nobody else has; those of TCP listen.

    Args:
        host: the address of an interface, IPv4 or IPv6.
        port: 0 lets the system choose.
        count: how many shards listen.
        setting: names the address for people.
        kind: whether the port is of TCP or of UDP.

    Returns:
        The sockets, and the descriptor of the claim, to be kept open.

    Raises:
        PortTaken: somebody else listens there.
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
    """Where sockets are to be bound, as the system and as people call it."""

    family: int
    kind: socket.SocketKind
    address: tuple[Any, ...]
    host: str
    setting: str

    @property
    def port(self) -> int:
        """The port, or 0 while the system has not chosen one."""
        return int(self.address[1])


def _try_alone(place: _Place) -> None:
    with socket.socket(place.family, place.kind) as probe:
        try:
            if place.kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place.address)
                # A bound port that nobody listens on can still be shared; a listening one cannot.
                probe.listen(1)
            else:
                probe.bind(place.address)
        except OSError as error:
            if not _is_reserved(place):
                raise _taken(place, error) from error


def _is_reserved(place: _Place) -> bool:
    """Tell whether nobody listens on the port but those who started this process."""
    protocol, state = SERVING[place.kind]
    try:
        return _listeners(place.port, protocol, state) <= _sockets_of_ancestors()
    except OSError:
        return False


def _listeners(port: int, protocol: str, state: str) -> frozenset[str]:
    """Return the inodes of the sockets that listen on a port of this machine."""
    tables = [PROC / "self" / "net" / protocol, PROC / "self" / "net" / f"{protocol}6"]
    # Without IPv6 there is no second table; without the first nothing is known.
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
    """Return the inode of an open socket, or nothing for what is none."""
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
            f"{where} is in use by another program; stop it, or set another "
            f"{place.setting} (port 0 takes a free one)"
        )
    return PortTaken(f"cannot listen on {where}: {error.strerror}; set another {place.setting}")


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
