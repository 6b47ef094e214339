"""A connected socket as a stream, with as few calls between a reply and the kernel as there can be.

``trio.SocketStream`` asks the kernel for bytes before it waits for them, and passes through several
layers to send some. For one small request after the other that is a third of the server's time.
TLS lies on this; a plain connection leaves it behind its handshake.

Owns the descriptor. Knows no frames.
"""

from __future__ import annotations

import contextlib
import socket

import trio

__all__ = ["BareSocket"]

RECEIVE_BYTES = 1 << 16


class BareSocket(trio.abc.HalfCloseableStream):
    """A non-blocking socket.

    Args:
        connected: the socket, which belongs to this object from now on.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected

    def detach(self) -> socket.socket:
        """Give the socket away; this object is closed afterwards."""
        return socket.socket(fileno=self._socket.detach())

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; none at the end."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._socket.recv(max_bytes or RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send everything; what fits goes without waiting."""
        await trio.lowlevel.checkpoint_if_cancelled()
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room for more."""
        await trio.lowlevel.wait_writable(self._socket)

    async def send_eof(self) -> None:
        """Say that nothing more will come."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close, and wake whoever waits here."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
        await trio.lowlevel.checkpoint()
