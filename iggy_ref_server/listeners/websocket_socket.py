"""A connected socket as a trio stream, with few calls between a reply and the kernel.

``trio.SocketStream`` calls ``recv`` before it waits, and passes several layers to send. For small
requests one after the other that is a third of the server's time. TLS runs on this stream; a plain
connection detaches its socket after the handshake.
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
        connected: the socket, which this object closes.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected

    def detach(self) -> socket.socket:
        """Return the socket; this object is closed afterwards."""
        return socket.socket(fileno=self._socket.detach())

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; empty at the end of the input."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._socket.recv(max_bytes or RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send everything; waits only when the socket is full."""
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
        """Wait until the socket takes more."""
        await trio.lowlevel.wait_writable(self._socket)

    async def send_eof(self) -> None:
        """Half-close the socket."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close, and wake waiting tasks."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
        await trio.lowlevel.checkpoint()
