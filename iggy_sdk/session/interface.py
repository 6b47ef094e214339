"""The interface of a session, one connection to one server, and the choice of its transport.

stream_session  requests in one stream of bytes, replies in the same order: TCP, TLS, WebSocket
quic_session    one stream per request, replies as they come
http            one exchange per request, on any of a few connections
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from iggy_sdk.errors import ConfigurationError
from iggy_sdk.session.stream import StreamSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol import Command
    from iggy_sdk.errors import IggyError
    from iggy_sdk.options import ClientOptions, Endpoint
    from iggy_sdk.session.http import HttpSession
    from iggy_sdk.session.quic import QuicSession
    from iggy_sdk.statistics import SessionStatistics
    from iggy_sdk.transport import Dial

__all__ = ["Session", "open_session"]

R = TypeVar("R")


class Session(Protocol):
    """One connection to one server; many tasks may send requests at the same time.

    Attributes:
        failure: why the session has ended; None while it is open.
        is_ended_by_peer: whether the server or the network has ended it.
        on_end: called once when it ends.
    """

    failure: IggyError | None
    is_ended_by_peer: bool
    on_end: Callable[[], None] | None

    @property
    def is_closed(self) -> bool:
        """Whether the session has ended."""

    @property
    def peer(self) -> str:
        """Where the server is, for messages to users."""

    def statistics(self) -> SessionStatistics:
        """Return what it has done so far."""

    async def request(self, command: Command[R], *, timeout: float) -> R:
        """Send a command and wait for the reply; ``timeout`` bounds all of it.

        Raises:
            DisconnectedError: the connection ended first; ``sent`` tells whether the whole
                request was written by then.
            RequestTimeoutError: there was no reply in time.
            IggyError: whatever the server answered.
        """

    async def request_until(self, command: Command[R], *, seconds: float, deadline: float) -> R:
        """Do what ``request`` does, for a caller that has computed the deadline already."""

    async def run(self) -> None:
        """Do the background work of the session; return when it has ended."""

    def abort(self, error: IggyError, *, by_peer: bool = False) -> None:
        """End the session at once and fail all pending requests; the first reason counts."""

    async def aclose(self) -> None:
        """Refuse new requests, let pending ones finish within ``close_timeout``, and close."""


async def open_session(endpoint: Endpoint, options: ClientOptions, *, dial: Dial) -> Session:
    """Connect to a server within ``connect_timeout``, without a login.

    Args:
        endpoint: where the server is.
        options: of the client; they name the transport.
        dial: opens a byte stream to a server; QUIC does not use it.

    Raises:
        ConnectionFailedError: no server answers at the endpoint, or the handshake failed.
        ConfigurationError: the transport needs a library that is not installed.
    """
    if options.transport == "quic":
        return await _quic_session_class().open(endpoint, options)
    if options.transport == "http":
        return await _http_session_class().open(endpoint, options, dial=dial)
    return await StreamSession.open(endpoint, options, dial=dial)


def _http_session_class() -> type[HttpSession]:
    """Import the class, whose library is an optional dependency."""
    try:
        import iggy_sdk.session.http as http_package
    except ImportError as error:
        raise ConfigurationError(
            "iggy+http:// needs a library that is not installed: h11",
            advice="Run: pip install 'iggy-python[http]'",
        ) from error
    return http_package.HttpSession


def _quic_session_class() -> type[QuicSession]:
    """Import the class, whose library is an optional dependency."""
    try:
        from iggy_sdk.session.quic import QuicSession
    except ImportError as error:
        raise ConfigurationError(
            "iggy+quic:// needs a library that is not installed: aioquic",
            advice="Run: pip install 'iggy-python[quic]'",
        ) from error
    return QuicSession
