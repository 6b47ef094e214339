"""The handshakes of a listener: TLS, and what follows it before the socket server takes over.

A handshake is a short task of its own: there is no client yet, so it has no pipeline, no account
and no turn, and a timeout and a limit of their own bound it. It ends with a socket and the state of
its TLS, which the socket server takes over.

Knows neither requests nor HTTP.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from iggy_ref_server.net.pipeline import lingering_close
from iggy_ref_server.net.socket_connection import discard_input
from iggy_ref_server.net.tls_codec import TlsCodec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


LOGGER = logging.getLogger(__name__)

Outcome = TypeVar("Outcome")


class HandshakeRefused(Exception):
    """The request of the client is no valid handshake."""


HANDSHAKE_ERRORS: Final = (
    HandshakeRefused,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    OSError,  # ssl.SSLError is one
)


@dataclass(slots=True, kw_only=True)
class Handshakes:
    """The unfinished handshakes of one listener.

    An attacker can leave many handshakes unfinished, so at the limit a new one cancels the oldest.

    Attributes:
        name: the kind of handshake in the log.
        count_max: the limit of unfinished handshakes.
        timeout_s: the timeout of one handshake.
    """

    name: str
    count_max: int
    timeout_s: float
    _scopes: dict[trio.CancelScope, None] = field(default_factory=dict)

    async def run(self, address: str, steps: Callable[[], Awaitable[Outcome]]) -> Outcome | None:
        """Do a handshake within its timeout; None if it fails, with a log line.

        Args:
            address: the client's address, for the log.
            steps: does the handshake.
        """
        if len(self._scopes) >= self.count_max:
            next(iter(self._scopes)).cancel()
        reason: object = "timed out, or cancelled for newer handshakes"
        with trio.move_on_after(self.timeout_s) as timeout:
            self._scopes[timeout] = None
            try:
                return await steps()
            except HANDSHAKE_ERRORS as error:
                reason = error
            finally:
                del self._scopes[timeout]
        LOGGER.info("the %s handshake with %s failed: %s", self.name, address, reason)
        return None


class HandshakeSocket:
    """An accepted socket during its handshake.

    Args:
        accepted: the socket, which this object closes unless it is detached.

    Attributes:
        tls: the state of TLS, once that is started.
    """

    def __init__(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        self._socket = accepted
        self._is_detached = False
        self.tls: TlsCodec | None = None

    async def start_tls(self, context: ssl.SSLContext) -> TlsCodec:
        """Do the TLS handshake; what follows is encrypted.

        Raises:
            ssl.SSLError: the client does not speak TLS, or no version that both know.
            OSError: the connection is lost.
        """
        tls = self.tls = TlsCodec(context, self._socket)
        try:
            while not tls.do_handshake():
                await self._send(tls.take_ciphertext())
                await self._receive(tls)
            await self._send(tls.take_ciphertext())
        except ssl.SSLError:
            # The alert says why, if the socket takes it.
            with contextlib.suppress(OSError):
                self._socket.send(tls.take_ciphertext())
            raise
        return tls

    async def _receive(self, tls: TlsCodec) -> None:
        await trio.lowlevel.wait_readable(self._socket)
        with contextlib.suppress(BlockingIOError):
            if not tls.receive():
                raise ConnectionError("the client disconnected")

    async def receive_some(self, size: int) -> bytes:
        """Wait for bytes; empty at the end of the input."""
        source = self._socket if self.tls is None else self.tls
        while True:
            try:
                return source.recv(size)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)

    async def send_all(self, data: bytes) -> None:
        """Send a small reply."""
        if self.tls is not None:
            self.tls.encrypt(data)
            data = self.tls.take_ciphertext()
        await self._send(data)

    async def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)

    async def linger(self) -> None:
        """Half-close, and let the client read the last bytes before the socket is closed."""
        with contextlib.suppress(OSError):
            if self.tls is not None and self.tls.write_close():
                self._socket.send(self.tls.take_ciphertext())
            self._socket.shutdown(socket.SHUT_WR)
            await lingering_close(partial(discard_input, self._socket))

    def detach(self) -> socket.socket:
        """Return the socket, which this object does not close any more."""
        self._is_detached = True
        return self._socket

    def close(self) -> None:
        """Close the socket, unless it was detached."""
        if not self._is_detached:
            self._socket.close()
