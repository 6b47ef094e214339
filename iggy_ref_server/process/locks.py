"""Locks that keep two servers from sharing a data directory or a port, and the files of one run.

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
import logging
import os
import shutil
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from iggy_ref_server.config.sources import write_private
from iggy_ref_server.storage.posix import free_bytes

LOCK_NAME = ".lock"
BACKLOG = 1024
CHOICES_MAX = 16
"""So often another program may take the port that the kernel has chosen before this one does."""
PROC = Path("/proc")
# Columns of /proc/net/tcp and /proc/net/udp; the states are TCP_LISTEN and, for UDP, TCP_CLOSE.
ADDRESS_COLUMN, STATE_COLUMN, INODE_COLUMN = 1, 3, 9
LISTENING_STATES = {socket.SOCK_STREAM: ("tcp", "0A"), socket.SOCK_DGRAM: ("udp", "07")}


class AlreadyRunning(Exception):
    """Another server uses the data directory."""


class PortInUse(Exception):
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
        PortInUse: another program listens on the port.
    """
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=kind, flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE
    )[0]
    target = _BindTarget(family, kind, address, host, setting)
    if port:
        _probe_exclusively(target)
        return _bind_all(target, count)
    for _ in range(CHOICES_MAX):
        with contextlib.suppress(PortInUse):
            return _bind_all(_with_free_port(target), count)
    return _bind_all(_with_free_port(target), count)


class _BindTarget(NamedTuple):
    """An address to bind, for the kernel and for error texts."""

    family: int
    kind: socket.SocketKind
    address: tuple[Any, ...]
    host: str
    setting: str

    @property
    def port(self) -> int:
        """The port; 0 leaves it to the kernel."""
        return int(self.address[1])


def _with_free_port(target: _BindTarget) -> _BindTarget:
    """Let the kernel choose a port.

    For a socket with SO_REUSEPORT it may choose one that another server of this user listens on.
    """
    with socket.socket(target.family, target.kind) as probe:
        try:
            probe.bind(target.address)
        except OSError as error:
            raise _bind_error(target, error) from error
        host, _, *rest = target.address
        return target._replace(address=(host, probe.getsockname()[1], *rest))


def _bind_all(target: _BindTarget, count: int) -> tuple[list[socket.socket], int | None]:
    """Bind the sockets, claim the port, and only then take connections."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(_bind_reusable(target)) for _ in range(count)]
        prefix = "udp-" if target.kind == socket.SOCK_DGRAM else ""
        port_claim = _claim_port_name(f"{prefix}{target.host}:{target.port}")
        stack.pop_all()
    if target.kind == socket.SOCK_STREAM:
        for listener in sockets:
            listener.listen(BACKLOG)
    return sockets, port_claim


def _probe_exclusively(target: _BindTarget) -> None:
    with socket.socket(target.family, target.kind) as probe:
        try:
            if target.kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(target.address)
                # With SO_REUSEADDR two sockets may bind one port while neither listens.
                probe.listen(1)
            else:
                probe.bind(target.address)
        except OSError as error:
            if not _is_held_by_ancestors(target):
                raise _bind_error(target, error) from error


def _is_held_by_ancestors(target: _BindTarget) -> bool:
    """Return whether only ancestors of this process listen on the port."""
    protocol, state = LISTENING_STATES[target.kind]
    try:
        return _listening_inodes(target.port, protocol, state) <= _ancestor_socket_inodes()
    except OSError:
        return False


def _listening_inodes(port: int, protocol: str, state: str) -> frozenset[str]:
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


def _ancestor_socket_inodes() -> frozenset[str]:
    inodes: set[str] = set()
    process = os.getppid()
    while process > 0:
        process_directory = PROC / str(process)
        with contextlib.suppress(PermissionError):
            inodes.update(_socket_inode(entry) for entry in (process_directory / "fd").iterdir())
        process = int((process_directory / "stat").read_text().rpartition(")")[2].split()[1])
    return frozenset(inodes)


def _socket_inode(descriptor: Path) -> str:
    """Return the inode of an open socket; empty for any other descriptor."""
    try:
        target = str(descriptor.readlink())
    except FileNotFoundError:
        return ""
    return target.removeprefix("socket:[").removesuffix("]") if target.startswith("socket:") else ""


def _bind_reusable(target: _BindTarget) -> socket.socket:
    bound = socket.socket(target.family, target.kind)
    if target.kind == socket.SOCK_STREAM:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind(target.address)
    except OSError as error:
        bound.close()
        raise _bind_error(target, error) from error
    return bound


def _bind_error(target: _BindTarget, error: OSError) -> Exception:
    where = f"{target.host}:{target.port}"
    if error.errno == errno.EADDRINUSE:
        return PortInUse(
            f"{where} is in use by another program; stop that program, or set another "
            f"{target.setting} (port 0 takes a free one)"
        )
    return PortInUse(f"cannot listen on {where}: {error.strerror}; set another {target.setting}")


def _claim_port_name(name: str) -> int | None:
    """Hold a name in the abstract Unix namespace, which only Linux has."""
    if os.uname().sysname != "Linux":
        return None
    claim_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.ExitStack() as stack:
        stack.callback(claim_socket.close)
        try:
            claim_socket.bind(f"\0iggy-python-port-{name}")
        except OSError as error:
            raise PortInUse(f"{name} is in use by another iggy-server") from error
        stack.pop_all()
    return claim_socket.detach()


# Files of the data directory that belong to a run: the boot id, and the runtime directory.
#
# The boot id tells whether the machine has rebooted since a server last used the data directory.
# Without a reboot, everything that a server has written is in its files, even if the server was
# killed: the page cache holds what is not on the disk yet. Only a reboot or a power loss can lose
# it. So a hole in a file is damage in the first case and may be a lost write in the second.
#
# The number of the machine's present run is noted in the file ``.boot`` of the data directory when
# all shards have opened their partitions. Where that is not known, and where the disk has refused
# one of them, a loss of power is assumed.
#
# Owns that file.

LOGGER = logging.getLogger(__name__)


GROUP_AND_OTHER_BITS = 0o077
BOOT_ID_NAME = ".boot"
BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


def writes_survived(directory: Path, boot_id_path: Path = BOOT_ID_PATH) -> bool:
    """Return whether the machine has run without a reboot since the last server was ready."""
    try:
        noted = (directory / BOOT_ID_NAME).read_text().strip()
        return bool(noted) and noted == boot_id_path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return False


def record_boot_id(directory: Path, boot_id_path: Path = BOOT_ID_PATH) -> None:
    """Write the kernel's boot id to the data directory."""
    # A full disk must not prevent a start; the next one then assumes a power loss.
    with suppress(OSError):
        (directory / BOOT_ID_NAME).write_text(boot_id_path.read_text())


# The runtime directory: cleared at a start, and written to even when the disk is full.
#
# Programs read ``current_config.toml`` to learn that the server is ready, and its addresses. A
# spare file keeps blocks allocated, so that the file can be written on a full disk.


# With less than this the disk counts as full: a batch may not fit.
FREE_BYTES_MIN = 1 << 20
SPARE_NAME = "spare"
SPARE_BYTES = 64 << 10


def clear_runtime_directory(runtime: Path) -> None:
    """Remove the files of the last run, but not the spare file, whose blocks are needed."""
    runtime.mkdir(parents=True, exist_ok=True)
    for path in runtime.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != SPARE_NAME:
            path.unlink(missing_ok=True)


def write_runtime_file(path: Path, text: str) -> None:
    """Write a file of the runtime directory; on a full disk, use the blocks of the spare file."""
    spare = path.with_name(SPARE_NAME)
    try:
        write_private(path, text)
    except OSError:
        spare.unlink(missing_ok=True)
        try:
            write_private(path, text)
        except OSError as error:
            LOGGER.warning("%s cannot be written; the server runs without it: %s", path, error)
    with contextlib.suppress(OSError):
        _reserve_spare(spare)


def _reserve_spare(spare: Path) -> None:
    descriptor = os.open(spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size < SPARE_BYTES:
            os.posix_fallocate(descriptor, 0, SPARE_BYTES)
    finally:
        os.close(descriptor)


def full_disk_warnings(directory: Path) -> list[str]:
    """Return a warning if there is no space for messages."""
    free, _ = free_bytes(str(directory))
    if free >= FREE_BYTES_MIN:
        return []
    state = f"the disk of {directory} is full ({free} bytes free): the server is read-only."
    advice = "Polls, deletes and purges work; sends fail with status 10006 until there is space"
    return [f"{state} {advice}"]


def permission_warnings(directory: Path) -> list[str]:
    """Return a warning if other users may read the data directory."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    if not mode & GROUP_AND_OTHER_BITS:
        return []
    return [
        (
            f"other users may enter the data directory {directory} (mode {mode:o}); "
            f"run `chmod -R go= {directory}` to keep messages and metadata private"
        )
    ]


def clear_data_directory(directory: Path) -> None:
    """Remove everything but the lock file."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != ".lock":
            path.unlink()
