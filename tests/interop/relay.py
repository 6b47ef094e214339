"""Stands between a client from 0.9 on and a server, and meddles with single frames.

    with Relay(server.address, request=changed) as relay:
        ...                      # the client connects to relay.address

A rule gets each whole frame of one direction and returns what is passed on, or None to end the
connection without passing the frame on.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

from iggy_protocol import VSR_HEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    Rule = Callable[[bytes], bytes | None]

SIZE = slice(48, 52)
IDENTIFIER = slice(144, 160)
REQUEST_OPERATION = 176
REPLY_OPERATION = 208
READ_BYTES = 1 << 16

REGISTER, CREATE_STREAM, SEND_MESSAGES = 1, 128, 160


def unchanged(frame: bytes) -> bytes:
    """Pass a frame on as it is."""
    return frame


class Once:
    """A rule that loses the first frame with an operation, and the connection with it.

    Args:
        at: where the operation is in the head, which differs by direction.
    """

    def __init__(self, operation: int, at: int) -> None:
        self.operation = operation
        self.at = at
        self.lost = threading.Event()

    def __call__(self, frame: bytes) -> bytes | None:
        """Lose the frame if it is the one."""
        if frame[self.at] == self.operation and not self.lost.is_set():
            self.lost.set()
            return None
        return frame


class Relay:
    """Passes the frames of any number of connections on."""

    def __init__(
        self, target: tuple[str, int], *, request: Rule = unchanged, reply: Rule = unchanged
    ) -> None:
        self._target = target
        self._rules = (request, reply)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connected: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect to."""
        host, port = self._listener.getsockname()
        return host, port

    def __enter__(self) -> Relay:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Closing alone does not wake a thread that waits on the socket.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()
        for each in self._connected:
            each.close()

    def cut(self) -> None:
        """End all connections, as a network that breaks; clients may come again."""
        for each in self._connected:
            _end(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._connected += [client, server]
            for source, sink, rule in zip(
                (client, server), (server, client), self._rules, strict=True
            ):
                thread = threading.Thread(target=_pass_on, args=(source, sink, rule))
                self._threads.append(thread)
                thread.start()


def _pass_on(source: socket.socket, sink: socket.socket, rule: Rule) -> None:
    """Pass whole frames on, one way, until either end is gone."""
    waiting = b""
    try:
        while data := source.recv(READ_BYTES):
            waiting += data
            while len(waiting) >= VSR_HEAD_BYTES:
                size = int.from_bytes(waiting[SIZE], "little")
                if len(waiting) < size:
                    break
                frame, waiting = waiting[:size], waiting[size:]
                passed = rule(frame)
                if passed is None:
                    return
                sink.sendall(passed)
    except OSError:
        return
    finally:
        _end(source)
        _end(sink)


def _end(connected: socket.socket) -> None:
    """End a connection both ways, which wakes whoever reads from it."""
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
