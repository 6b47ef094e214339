"""The TLS codec of a connection in the socket server, on OpenSSL with buffers in memory.

``recv_into`` and ``recv`` are those of a socket, and return decrypted bytes, so framing such as
WebSocket works on either. ``encrypt`` makes ciphertext of replies; the socket server sends it.

Has the socket for receiving only. Knows no requests and no replies.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


# The largest record on the wire: its head, 16 KiB of content, and what TLS 1.2 may add.
RECORD_BYTES_MAX: Final = 5 + (16 << 10) + 2048
# What one call receives: four records as OpenSSL writes them, each with its head, type and tag. The
# memory BIO keeps its largest size as long as the connection lives, so this is not larger. With
# whole records OpenSSL is rarely asked for a record whose end is missing, which costs an exception.
RECEIVE_BYTES: Final = 4 * (5 + (16 << 10) + 1 + 16)
# What one call of ``recv_into`` decrypts; then the next client has its turn. Records count as well:
# a client may put one byte into each, and a quarter of a million of them would take half a second.
DECRYPTED_BYTES_MAX: Final = 1 << 18
RECORDS_MAX: Final = 64
# What is encrypted at a time. A multiple of the content of a record; it stays in the processor's
# cache until the kernel copies it.
PLAINTEXT_BYTES_MAX: Final = 1 << 16


class TlsCodec:
    """The TLS state of one connection.

    Args:
        context: the certificate and the settings, without renegotiation.
        connected: the socket, non-blocking.

    Attributes:
        is_mid_record: whether the last read has found the beginning of a record only, or a message
            of TLS itself.
    """

    __slots__ = (
        "_has_ended",
        "_has_written_close",
        "_incoming",
        "_is_end_reported",
        "_outgoing",
        "_socket",
        "_tls",
        "is_mid_record",
    )

    def __init__(self, context: ssl.SSLContext, connected: socket.socket) -> None:
        # With renegotiation a write could have to wait for a read.
        assert context.options & ssl.OP_NO_RENEGOTIATION
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._socket = connected
        self._has_ended = False
        self._has_written_close = False
        self._is_end_reported = False
        self.is_mid_record = False

    def do_handshake(self) -> bool:
        """Continue the handshake with what was received; return whether it is done.

        Raises:
            ssl.SSLError: the client's bytes are no valid handshake.
        """
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def receive(self) -> bool:
        """Receive ciphertext once; return whether there was any before the end.

        Raises:
            BlockingIOError: nothing has arrived.
            OSError: the connection is lost.
        """
        data = self._socket.recv(RECEIVE_BYTES)
        self._incoming.write(data)
        return bool(data)

    # Reading

    @property
    def has_input(self) -> bool:
        """Whether another read finds something of which the kernel gives no notice any more.

        OpenSSL itself keeps the beginning of an incomplete record, so what a read leaves in the BIO
        is worth another one.
        """
        if self._has_ended:
            return not self._is_end_reported
        return bool(self._incoming.pending or self._tls.pending())

    @property
    def held_bytes(self) -> int:
        """How many received bytes were not read, at most."""
        return self._incoming.pending + self._tls.pending() + RECORD_BYTES_MAX

    def recv_into(self, space: memoryview) -> int:
        """Decrypt into a buffer; 0 at the end of the input.

        Raises:
            BlockingIOError: no record has arrived as a whole.
            OSError: the connection is lost, or the client's bytes are no TLS.
        """
        # Types for reading into a buffer are missing in typeshed.
        read_into = cast("Callable[[int, memoryview], int]", self._tls.read)
        incoming, size, filled = self._incoming, min(len(space), DECRYPTED_BYTES_MAX), 0
        for _ in range(RECORDS_MAX):
            if filled == size or not (incoming.pending or self._find_input()):
                break
            try:
                count = read_into(size - filled, space[filled:size])
            except ssl.SSLWantReadError:
                self.is_mid_record = True
                continue
            self.is_mid_record = False
            if not count:
                self._has_ended = True
                break
            filled += count
        return filled or self._report_end()

    def recv(self, size: int) -> bytes:
        """Return decrypted bytes; none at the end of the input.

        Raises:
            BlockingIOError: no record has arrived as a whole.
            OSError: the connection is lost, or the client's bytes are no TLS.
        """
        space = memoryview(bytearray(size))
        return bytes(space[: self.recv_into(space)])

    def _find_input(self) -> bool:
        """Return whether OpenSSL has decrypted more than was read, or ciphertext arrives now."""
        if self._has_ended:
            return False
        if self._tls.pending():
            return True
        try:
            # An end without ``close_notify`` is one too, as in HTTPS: requests say themselves how
            # long they are, so none is cut unnoticed. OpenSSL is not told of it; it would encrypt
            # no reply any more.
            self._has_ended = not self.receive()
        except BlockingIOError:
            return False
        return not self._has_ended

    def _report_end(self) -> int:
        """Tell the end behind the bytes that came before it."""
        if not self._has_ended:
            raise BlockingIOError
        self._is_end_reported = True
        return 0

    # Writing

    def encrypt(self, plaintext: memoryview | bytes) -> int:
        """Encrypt a part of the replies; return how much of it was taken.

        Raises:
            ssl.SSLError: the connection has failed before.
        """
        return self._tls.write(plaintext)

    def write_close(self) -> bool:
        """Write ``close_notify``; return whether that was not done before."""
        is_first, self._has_written_close = not self._has_written_close, True
        if is_first:
            # OpenSSL wants that of the client, which may never come.
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
        return is_first

    def take_ciphertext(self) -> bytes:
        """Return what must be sent: replies, and the messages of TLS itself."""
        return self._outgoing.read() if self._outgoing.pending else b""
