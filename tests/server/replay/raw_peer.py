"""One end of a connection: any bytes go out, whole reply frames come in, or their absence."""

from __future__ import annotations

import socket
import time
from enum import Enum

HEAD_BYTES = 8
READ_BYTES = 1 << 18


class Absence(Enum):
    """Why no frame came."""

    SILENCE = "nothing"
    CLOSED = "the end of the connection"


class RawPeer:
    """A connection to a server, without any idea of what is said on it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._is_ended = False

    @property
    def local_address(self) -> str:
        """This end as the server names it."""
        host, port = self._socket.getsockname()[:2]
        return f"{host}:{port}"

    def send(self, data: bytes) -> None:
        """Send bytes; a server that has hung up is found out by the next read."""
        try:
            self._socket.sendall(data)
        except ConnectionError:
            self._is_ended = True

    def read_frame(self, within_s: float) -> bytes | Absence:
        """Return the next reply frame, head included, or what came in its place."""
        deadline = time.monotonic() + within_s
        while (frame := self._take_frame()) is None:
            if self._is_ended:
                return Absence.CLOSED
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not self._receive(left_s):
                return Absence.SILENCE
        return frame

    def read_unasked(self) -> bytes | None:
        """Return a frame that has arrived already, or None."""
        while not self._is_ended and self._receive(0):
            continue
        return self._take_frame()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _take_frame(self) -> bytes | None:
        if len(self._received) < HEAD_BYTES:
            return None
        size = HEAD_BYTES + int.from_bytes(self._received[4:8], "little")
        if len(self._received) < size:
            return None
        frame = bytes(self._received[:size])
        del self._received[:size]
        return frame

    def _receive(self, within_s: float) -> bool:
        """Read once; False if nothing came in time."""
        self._socket.settimeout(within_s)
        try:
            data = self._socket.recv(READ_BYTES)
        except (TimeoutError, BlockingIOError):
            return False
        except ConnectionError:
            data = b""
        self._received += data
        self._is_ended = not data
        return True
