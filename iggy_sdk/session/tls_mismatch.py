"""Finding out that one side speaks TLS and the other does not, after a connection failed early.

Both sides then see bytes that mean nothing to them, and one of them hangs up or waits. So a client
that was never let in asks once more on a connection of its own: one without TLS begins a handshake,
and one with TLS asks without it. Neither sends a login.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio

from iggy_protocol import ProbeVerdict
from iggy_sdk.errors import (
    ConnectionFailedError,
    DisconnectedError,
    IggyError,
    ProtocolError,
    RequestTimeoutError,
)
from iggy_sdk.session.detection import PROBE_SECONDS_MAX, ask_classic, ask_framing
from iggy_sdk.transport import HandshakeEndedError, StreamTransport, open_transport

if TYPE_CHECKING:
    from iggy_sdk.connection_string import Endpoint, TransportName
    from iggy_sdk.options import ClientOptions
    from iggy_sdk.transport import Dial


SUSPICIOUS: Final = (DisconnectedError, ProtocolError, RequestTimeoutError, HandshakeEndedError)
"""What a client is told whose server speaks TLS and it does not, or the reverse."""

ASKING_SECONDS_MAX: Final = 2 * PROBE_SECONDS_MAX
"""How long connecting once more and two questions may take."""

TLS_RECORDS: Final = (b"\x16\x03", b"\x15\x03")
"""How answers to a handshake begin: a handshake record, or an alert."""

HTTP_ANSWER: Final = b"HTTP/"
HTTP_QUESTION: Final = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

ANSWER_BYTES: Final = 4_096

_USE_TLS: Final[dict[TransportName, str]] = {
    "tcp": "Add tls=true to the connection string, and tls_ca_file= for an authority of your own.",
    "ws": "Use iggy+wss:// for this port, and tls_ca_file= for an authority of your own.",
    "http": "Use iggy+https:// for this port, and tls_ca_file= for an authority of your own.",
}
_USE_NO_TLS: Final[dict[TransportName, str]] = {
    "tcp": "Leave out tls=true, or check that the server has TLS enabled on this port.",
    "ws": "Use iggy+ws://, or check that the server has TLS enabled on this port.",
    "http": "Use iggy+http://, or check that the server has TLS enabled on this port.",
}


async def find_tls_mismatch(
    endpoint: Endpoint, options: ClientOptions, *, dial: Dial
) -> ConnectionFailedError | None:
    """Ask a server that has let nobody in whether it speaks TLS, or speaks without.

    Returns:
        The error that says so; None if that is not what is wrong, or cannot be found out.
    """
    if options.transport not in _USE_TLS or dial is not open_transport:
        return None
    plain = replace(options, transport="tcp", tls=None)
    is_mismatch = False
    with anyio.move_on_after(ASKING_SECONDS_MAX):
        try:
            if options.tls is None:
                is_mismatch = await _speaks_tls(endpoint, plain)
            else:
                is_mismatch = await _speaks_plainly(endpoint, plain, options.transport)
        except (IggyError, OSError):
            return None
    if not is_mismatch:
        return None
    if options.tls is None:
        return ConnectionFailedError(
            f"{endpoint} speaks TLS, and this client connects without it",
            advice=_USE_TLS[options.transport],
            retriable=False,
        )
    return ConnectionFailedError(
        f"{endpoint} does not speak TLS, and this client connects with it",
        advice=_USE_NO_TLS[options.transport],
        retriable=False,
    )


async def _speaks_tls(endpoint: Endpoint, plain: ClientOptions) -> bool:
    return (await _answer_to(_client_hello(), endpoint, plain)).startswith(TLS_RECORDS)


async def _speaks_plainly(
    endpoint: Endpoint, plain: ClientOptions, transport_name: TransportName
) -> bool:
    if transport_name != "tcp":
        return (await _answer_to(HTTP_QUESTION, endpoint, plain)).startswith(HTTP_ANSWER)
    transport = await open_transport(endpoint, plain)
    try:
        verdict = await ask_framing(transport)
    finally:
        transport.abort()
    if verdict is not None and verdict is not ProbeVerdict.NEITHER:
        return True
    transport = await open_transport(endpoint, plain)
    try:
        return await ask_classic(transport) is True
    finally:
        transport.abort()


def _client_hello() -> bytes:
    """Return the first bytes of a handshake."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    handshake = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    with suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    return outgoing.read()


async def _answer_to(question: bytes, endpoint: Endpoint, plain: ClientOptions) -> bytes:
    """Send bytes on a connection of their own, and return how the answer begins."""
    transport: StreamTransport = await open_transport(endpoint, plain)
    answer = bytearray(ANSWER_BYTES)
    try:
        await transport.send([question])
        count = await transport.receive_into(memoryview(answer))
    finally:
        transport.abort()
    return bytes(answer[:count])
