"""TLS over a non-blocking socket, with verified certificates unless the options say otherwise."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from iggy_sdk.errors import ConfigurationError, ConnectionFailedError
from iggy_sdk.transport.tcp import (
    connect_socket,
    format_endpoint,
    wait_interrupted_error,
    wait_until_writable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iggy_protocol import Buffer
    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.options import ClientOptions, TlsOptions


# OpenSSL's X509_V_ERR_* codes, which Python passes on without names.
EXPIRED = 10
NOT_YET_VALID = 9
NAME_MISMATCH = 62
ADDRESS_MISMATCH = 64

CERTIFICATE_ADVICE = {
    EXPIRED: "Renew the certificate of the server, and check the clock of this machine.",
    NOT_YET_VALID: "Check the clocks of this machine and of the one that made the certificate.",
    NAME_MISMATCH: "Connect by a name that the certificate has, or set tls_domain to it.",
    ADDRESS_MISMATCH: "Connect by a name that the certificate has, or set tls_domain to it.",
}
UNTRUSTED_ADVICE = "Set tls_ca_file to the certificate of the authority that signed the server's."


NO_TLS_REASON = "WRONG_VERSION_NUMBER"
"""What OpenSSL says of an answer that is no TLS record."""


class HandshakeEndedError(ConnectionFailedError):
    """The server ended a handshake early, or never answered it, and did not say why."""


class TlsTransport:
    """A connected non-blocking socket whose handshake is done."""

    def __init__(self, connected: ssl.SSLSocket, *, peer: str) -> None:
        self._socket = connected
        self._peer = peer

    @property
    def peer(self) -> str:
        """Where the server is."""
        return self._peer

    def send_nowait(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Write what the socket takes without waiting, and return the rest."""
        left = list(buffers)
        while left:
            if not len(left[0]):
                del left[0]
                continue
            try:
                written = self._socket.send(left[0])
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                # OpenSSL requires the same bytes in the next call; callers send the rest first.
                return left
            if written == len(left[0]):
                del left[0]
            else:
                left[0] = memoryview(left[0])[written:]
        return left

    async def send(self, left: list[Buffer]) -> None:
        """Write everything."""
        while left:
            await wait_until_writable(self._socket)
            left[:] = self.send_nowait(left)

    async def receive_into(self, space: memoryview) -> int:
        """Wait for bytes and read them."""
        # OpenSSL may hold decrypted bytes while the socket itself is not readable.
        while (count := self.receive_nowait(space)) is None:
            try:
                await anyio.wait_readable(self._socket)
            except (anyio.ClosedResourceError, ValueError) as error:
                raise wait_interrupted_error(self._socket) from error
        return count

    def receive_nowait(self, space: memoryview) -> int | None:
        """Read what is there."""
        try:
            return self._socket.recv_into(space)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLEOFError:
            return 0

    def add_reader(self, on_bytes: Callable[[], None]) -> bool:
        """Refuse: decrypted bytes may be buffered where the event loop does not see them."""
        return False

    def remove_reader(self) -> None:
        """Do nothing: there is no callback."""

    def interrupt(self) -> None:
        """Wake the task that waits for bytes."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)

    def abort(self) -> None:
        """Close at once."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()

    async def aclose(self) -> None:
        """Send close_notify without waiting for that of the server, and close."""
        if self._socket.fileno() >= 0:
            with suppress(OSError, ValueError):
                self._socket.unwrap()
        self.abort()


def tls_context(tls: TlsOptions) -> ssl.SSLContext:
    """Make the context of a client.

    Raises:
        ConfigurationError: a file of the options cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"the authorities in {tls.ca_file} cannot be read: {error}",
            advice="Point tls_ca_file at a PEM file with at least one certificate.",
        ) from error
    if not tls.validate:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.client_cert is not None:
        try:
            context.load_cert_chain(tls.client_cert, tls.client_key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"the client certificate {tls.client_cert} cannot be used: {error}",
                advice="Give PEM files of a certificate and of the key that belongs to it.",
            ) from error
    return context


async def open_tls(endpoint: Endpoint, options: ClientOptions, tls: TlsOptions) -> TlsTransport:
    """Connect to an endpoint and do the TLS handshake.

    Raises:
        ConnectionFailedError: no server answers there, or its certificate is not trusted.
        ConfigurationError: a file of the options cannot be read.
    """
    # Reading the authorities of the system takes milliseconds and would block other tasks.
    context = await anyio.to_thread.run_sync(tls_context, tls)
    plain = await connect_socket(endpoint, options)
    try:
        secured = context.wrap_socket(
            plain, server_hostname=tls.domain or endpoint.host, do_handshake_on_connect=False
        )
    except BaseException:
        plain.close()
        raise
    try:
        await run_tls_handshake(secured)
    except (OSError, ValueError) as error:
        secured.close()
        raise tls_handshake_error(endpoint, tls, error) from error
    except BaseException:
        secured.close()
        raise
    return TlsTransport(secured, peer=format_endpoint(endpoint))


async def run_tls_handshake(secured: ssl.SSLSocket) -> None:
    """Do the handshake of the client."""
    while True:
        try:
            secured.do_handshake()
        except ssl.SSLWantReadError:
            await anyio.wait_readable(secured)
        except ssl.SSLWantWriteError:
            await anyio.wait_writable(secured)
        else:
            return


def tls_handshake_error(
    endpoint: Endpoint, tls: TlsOptions, error: Exception
) -> ConnectionFailedError:
    """Make the error of a failed handshake, with advice."""
    where = format_endpoint(endpoint)
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = CERTIFICATE_ADVICE.get(error.verify_code, UNTRUSTED_ADVICE)
        return ConnectionFailedError(
            f"the certificate of {where} is not accepted: {error.verify_message}",
            advice=advice,
            retriable=False,
        )
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return HandshakeEndedError(
            f"{where} ended the TLS handshake: {error.strerror or error}",
            advice="Check that the server has TLS enabled on this port, and whether it asks for"
            " a client certificate.",
        )
    reason = getattr(error, "reason", None) or error
    if reason == NO_TLS_REASON:
        return HandshakeEndedError(
            f"the TLS handshake with {where} failed: the server does not speak TLS ({reason})",
            advice="Check that the server has TLS enabled on this port, or leave out tls=true.",
            retriable=False,
        )
    return ConnectionFailedError(
        f"the TLS handshake with {where} failed: {reason}",
        advice="Check that the server has TLS enabled on this port, or leave out tls=true.",
        retriable=False,
    )
