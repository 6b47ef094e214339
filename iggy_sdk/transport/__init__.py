"""Byte streams to a server: the interface of a transport, and the choice among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from iggy_sdk.errors import ConfigurationError
from iggy_sdk.transport.tcp import open_tcp
from iggy_sdk.transport.tls import HandshakeEndedError, open_tls
from iggy_sdk.transport.websocket import open_websocket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from iggy_protocol import Buffer
    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.options import ClientOptions

__all__ = ["Dial", "HandshakeEndedError", "StreamTransport", "open_transport"]


class StreamTransport(Protocol):
    """A byte stream; one task may read while another one writes."""

    @property
    def peer(self) -> str:
        """Where the server is, for messages to users."""

    def send_nowait(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Write what the socket takes without waiting, and return the rest.

        Raises:
            OSError: the connection broke.
        """

    async def send(self, left: list[Buffer]) -> None:
        """Write everything; written buffers are removed from the list.

        What a cancelled call leaves in the list must be sent next.

        Raises:
            OSError: the connection broke.
        """

    async def receive_into(self, space: memoryview) -> int:
        """Wait for bytes, read at least one of them, and return their number; 0 at the end.

        Cancelling loses nothing.

        Raises:
            InterruptedError: ``interrupt`` was called; nothing is lost.
            OSError: the connection broke.
        """

    def receive_nowait(self, space: memoryview) -> int | None:
        """Read what is there; 0 at the end, None when there is nothing yet.

        Raises:
            OSError: the connection broke.
        """

    def add_reader(self, on_bytes: Callable[[], None]) -> bool:
        """Have the event loop call a function whenever ``receive_nowait`` has a result.

        It is called outside of any task. ``receive_into`` must not be used from here on.

        Returns:
            Whether the event loop can do that; if not, a task has to wait for bytes.
        """

    def remove_reader(self) -> None:
        """Remove the callback; may be called twice, and outside of any task."""

    def interrupt(self) -> None:
        """Wake the task that waits in ``receive_into``, and no other."""

    def abort(self) -> None:
        """Close at once; tasks that wait in here get an error. May be called twice."""

    async def aclose(self) -> None:
        """Send the closing message if it can be written at once, and close; may be called twice."""


Dial: TypeAlias = "Callable[[Endpoint, ClientOptions], Awaitable[StreamTransport]]"
"""Opens a byte stream to a server: ``open_transport``, or a custom transport."""


async def open_transport(endpoint: Endpoint, options: ClientOptions) -> StreamTransport:
    """Connect to a server; the caller limits the time.

    Raises:
        ConnectionFailedError: no server answers at the endpoint, or the handshake failed.
        ConfigurationError: the transport of the options is not a byte stream.
    """
    if options.transport == "ws":
        return await open_websocket(endpoint, options)
    if options.transport != "tcp":
        raise ConfigurationError(
            f"the transport {options.transport!r} is not supported here",
            advice="Use an address that begins with iggy://, iggy+ws:// or iggy+wss://.",
        )
    if options.tls is not None:
        return await open_tls(endpoint, options, options.tls)
    return await open_tcp(endpoint, options)
