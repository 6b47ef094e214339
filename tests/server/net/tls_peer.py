"""A TLS client on one end of a pair of sockets, and the codec of the server on the other.

    peer, theirs, tls = connect_tls()
    socket_server.admit(theirs, session, tls=tls)
    await peer.send(frame_of(Ping()))

``encrypt`` and ``socket`` are for tests that send ciphertext in their own way.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl

import trio
import trustme

from iggy_ref_server.net.tls_codec import TlsCodec


@functools.cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server and of a client that trusts it."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.options |= ssl.OP_NO_RENEGOTIATION
    authority.issue_cert("localhost").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


class TlsPeer:
    """The client's end of a connection, with the calls of a trio socket.

    Attributes:
        raw: carries the ciphertext.
        tls: the state of the client.
        is_cut: whether the server has closed without ``close_notify``.
    """

    def __init__(self, end: socket.socket, context: ssl.SSLContext) -> None:
        end.setblocking(False)
        self.raw = end
        self.is_cut = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    @functools.cached_property
    def socket(self) -> trio.socket.SocketType:
        """The socket for tests that run in trio."""
        return trio.socket.from_stdlib_socket(self.raw)

    def do_handshake(self) -> bytes:
        """Go on with the handshake, and return what must be sent for it."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._outgoing.read()

    def feed(self, ciphertext: bytes) -> None:
        """Take ciphertext of the server."""
        self._incoming.write(ciphertext)

    def encrypt(self, data: bytes) -> bytes:
        """Return the records of some bytes, without sending them."""
        if data:
            self.tls.write(data)
        return self._outgoing.read()

    def close_notify(self) -> bytes:
        """Return the record that ends the client's input."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self._outgoing.read()

    async def send(self, data: bytes) -> int:
        """Encrypt and send everything."""
        await self.send_raw(self.encrypt(data))
        return len(data)

    async def send_raw(self, ciphertext: bytes) -> None:
        """Send any bytes."""
        while ciphertext:
            ciphertext = ciphertext[await self.socket.send(ciphertext) :]

    async def recv(self, size: int) -> bytes:
        """Return decrypted bytes; none at the end."""
        while True:
            try:
                return self.tls.read(size)
            except ssl.SSLEOFError:
                self.is_cut = True
                return b""
            except ssl.SSLWantReadError:
                data = await self.socket.recv(1 << 16)
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()

    async def read_exactly(self, size: int) -> bytes:
        """Return so many decrypted bytes."""
        data = b""
        while len(data) < size:
            piece = await self.recv(size - len(data))
            assert piece, data
            data += piece
        return data

    def shutdown(self, how: int) -> None:
        """Half-close the socket without a word of TLS."""
        self.socket.shutdown(how)

    def close(self) -> None:
        """Close the socket without a word of TLS."""
        self.socket.close()


def connect_tls(
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> tuple[TlsPeer, socket.socket, TlsCodec]:
    """Make a connection whose handshake is done; return the client and what the server has."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    server, client = contexts()
    client.maximum_version = version
    peer, tls = TlsPeer(ours, client), TlsCodec(server, theirs)
    is_done = False
    while not is_done:
        ours.send(peer.do_handshake())
        tls.receive()
        is_done = tls.do_handshake()
        peer.feed(tls.take_ciphertext())
    peer.do_handshake()
    return peer, theirs, tls
