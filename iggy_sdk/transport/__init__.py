"""Bytes to and from one server, whatever carries them.

Owns the face that every transport has and the choice among them. It must not know frames,
requests or logins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from iggy_sdk.errors import ConfigurationError
from iggy_sdk.transport.tcp import open_tcp
from iggy_sdk.transport.tls import open_tls
from iggy_sdk.transport.websocket import open_websocket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from iggy_protocol import Buffer
    from iggy_sdk.options import ClientOptions, Endpoint

__all__ = ["Dial", "Transport", "open_transport"]


class Transport(Protocol):
    """Two directions of bytes; one task may read while another one writes."""

    @property
    def peer(self) -> str:
        """Where the other end is, for people."""

    def send_nowait(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Write what goes without waiting, and return what is left.

        Raises:
            OSError: the connection is gone.
        """

    async def send(self, left: list[Buffer]) -> None:
        """Write everything, and take from the list what is written.

        What a cancelled call leaves in the list must be the next thing to be sent.

        Raises:
            OSError: the connection is gone.
        """

    async def receive_into(self, space: memoryview) -> int:
        """Wait for bytes, read at least one of them, and return their number; 0 at the end.

        Cancelling loses nothing.

        Raises:
            InterruptedError: somebody called ``interrupt``; nothing is lost.
            OSError: the connection is gone.
        """

    def receive_nowait(self, space: memoryview) -> int | None:
        """Read what is there; 0 at the end, None when there is nothing yet.

        Raises:
            OSError: the connection is gone.
        """

    def watch(self, on_bytes: Callable[[], None]) -> bool:
        """Have a function called by the engine whenever ``receive_nowait`` has something to say.

        It is called outside of any task. Nobody may wait in ``receive_into`` from here on.

        Returns:
            Whether that is possible; if not, somebody has to wait for bytes.
        """

    def unwatch(self) -> None:
        """Have it called no longer; may be called twice, and outside of any task."""

    def interrupt(self) -> None:
        """Wake whoever waits in ``receive_into``, and nobody else."""

    def abort(self) -> None:
        """Close at once and wake whoever waits in here with an error; may be called twice."""

    async def aclose(self) -> None:
        """Take leave if that takes no time, and close; may be called twice."""


Dial: TypeAlias = "Callable[[Endpoint, ClientOptions], Awaitable[Transport]]"
"""How a server is reached: ``open_transport``, or another wire in its place."""


async def open_transport(endpoint: Endpoint, options: ClientOptions) -> Transport:
    """Dial a server; the caller bounds the time.

    Raises:
        ConnectionFailedError: nobody answers there, or the handshake failed.
        ConfigurationError: the options ask for a transport that this client does not speak.
    """
    if options.transport == "ws":
        return await open_websocket(endpoint, options)
    if options.transport != "tcp":
        raise ConfigurationError(
            f"this client does not speak {options.transport!r}",
            advice="Use an address that begins with iggy://, iggy+ws:// or iggy+wss://.",
        )
    if options.tls is not None:
        return await open_tls(endpoint, options, options.tls)
    return await open_tcp(endpoint, options)
