"""A TCP connection on a non-blocking socket, without a stream object around it.

The event loop only reports that the socket is ready. Reads and writes are one system call each,
into and out of the connection's own memory; that makes a single request cheap.
"""

from __future__ import annotations

import errno
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio.lowlevel import current_token

from iggy_sdk.errors import ConnectionFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iggy_protocol import Buffer
    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.options import ClientOptions


ADDRESS_SECONDS_MAX = 2.0
"""How long one address of a name may stay silent before the next one is tried; the last address
has all the remaining time."""

BUFFERS_MAX = 512
"""Buffers of one ``sendmsg``; the kernel takes 1024 (IOV_MAX) at most."""


class TcpTransport:
    """A connected non-blocking socket."""

    def __init__(self, connected: socket.socket, *, peer: str) -> None:
        self._socket = connected
        self._peer = peer
        self._remove_reader: Callable[[], object] | None = None

    @property
    def peer(self) -> str:
        """Where the server is."""
        return self._peer

    def send_nowait(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Write what the socket takes without waiting, and return the rest."""
        try:
            if len(buffers) == 1:
                written = self._socket.send(buffers[0])
                if written == len(buffers[0]):
                    return []
            else:
                written = self._socket.sendmsg(buffers[:BUFFERS_MAX])
        except BlockingIOError:
            return list(buffers)
        return unwritten_buffers(buffers, written)

    async def send(self, left: list[Buffer]) -> None:
        """Write everything."""
        while left:
            await wait_until_writable(self._socket)
            left[:] = self.send_nowait(left)

    async def receive_into(self, space: memoryview) -> int:
        """Wait for bytes and read them."""
        while True:
            # A reply has hardly ever arrived when a task begins to wait for it, so a read before
            # the wait would be a wasted system call.
            try:
                await anyio.wait_readable(self._socket)
                return self._socket.recv_into(space)
            except BlockingIOError:
                continue
            except (anyio.ClosedResourceError, ValueError) as error:
                raise wait_interrupted_error(self._socket) from error

    def receive_nowait(self, space: memoryview) -> int | None:
        """Read what is there."""
        try:
            return self._socket.recv_into(space)
        except BlockingIOError:
            return None

    def add_reader(self, on_bytes: Callable[[], None]) -> bool:
        """Have the event loop call a function whenever there are bytes, where it can.

        asyncio can. ``anyio.wait_readable`` would register the socket with the loop and remove it
        again for every reply, which takes longer than all the rest of a small request.
        """
        self._remove_reader = add_reader_callback(self._socket, on_bytes)
        return self._remove_reader is not None

    def remove_reader(self) -> None:
        """Remove the callback."""
        if self._remove_reader is not None:
            self._remove_reader()
            self._remove_reader = None

    def interrupt(self) -> None:
        """Wake the task that waits for bytes."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)

    def abort(self) -> None:
        """Close at once."""
        self.remove_reader()
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()

    async def aclose(self) -> None:
        """Close."""
        self.abort()


def add_reader_callback(
    watched: socket.socket, function: Callable[[], None]
) -> Callable[[], object] | None:
    """Have the event loop call a function whenever a socket is readable.

    Returns:
        A function that ends that; None where the event loop has no readers.
    """
    loop: Any = current_token().native_token
    try:
        loop.add_reader(watched.fileno(), function)
    except (AttributeError, RuntimeError):
        return None  # trio has no add_reader; the proactor loop of asyncio raises.
    return partial(loop.remove_reader, watched.fileno())


def unwritten_buffers(buffers: Sequence[Buffer], written: int) -> list[Buffer]:
    """Return what is left of the buffers after their first bytes were written."""
    for index, buffer in enumerate(buffers):
        size = len(buffer)
        if written < size:
            return [memoryview(buffer)[written:] if written else buffer, *buffers[index + 1 :]]
        written -= size
    return []


async def wait_until_writable(watched: socket.socket) -> None:
    """Wait until the socket is writable; one that is closed meanwhile raises OSError."""
    try:
        await anyio.wait_writable(watched)
    except (anyio.ClosedResourceError, ValueError) as error:
        if watched.fileno() < 0:
            raise wait_interrupted_error(watched) from error
        # ``interrupt`` woke the reading task, and notify_closing wakes both directions.


def wait_interrupted_error(watched: socket.socket) -> OSError:
    """Make the error of a task that was woken while it waited for a socket."""
    if watched.fileno() >= 0:
        return InterruptedError(errno.EINTR, "the wait was interrupted")
    return OSError(errno.EBADF, "the connection was closed on this side")


async def open_tcp(endpoint: Endpoint, options: ClientOptions) -> TcpTransport:
    """Connect to an endpoint.

    Raises:
        ConnectionFailedError: no server answers there.
    """
    connected = await connect_socket(endpoint, options)
    return TcpTransport(connected, peer=format_endpoint(endpoint))


async def connect_socket(endpoint: Endpoint, options: ClientOptions) -> socket.socket:
    """Connect a non-blocking socket to the first address of an endpoint that answers.

    Raises:
        ConnectionFailedError: none does, or the name has no address.
    """
    try:
        found = await anyio.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConnectionFailedError(
            f"{format_endpoint(endpoint)} has no address: {error}"
        ) from error
    failures: list[str] = []
    for index, (family, _, _, _, address) in enumerate(found):
        is_last = index == len(found) - 1
        with anyio.move_on_after(None if is_last else ADDRESS_SECONDS_MAX):
            try:
                return await connect_address(family, address, nodelay=options.nodelay)
            except OSError as error:
                failures.append(error.strerror or str(error))
    reasons = ", ".join(dict.fromkeys(failures)) or "no address answered in time"
    raise ConnectionFailedError(f"cannot connect to {format_endpoint(endpoint)}: {reasons}")


async def connect_address(family: int, address: tuple[str, int], *, nodelay: bool) -> socket.socket:
    """Connect a non-blocking socket to one address."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(nodelay))
        try:
            sock.connect(address)
        except BlockingIOError:
            await anyio.wait_writable(sock)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
    except BaseException:
        sock.close()
        raise
    return sock


def format_endpoint(endpoint: Endpoint) -> str:
    """Write an endpoint as ``host:port``."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"
