"""A QUIC connection over UDP, with verified certificates unless the options say otherwise.

- ``step`` reads datagrams, serves timers and sends what is queued.
- ``hear`` does the same without timers, which the caller serves at ``due_at``.
- ``wait`` waits for datagrams or the next timer.
- ``watch`` has the event loop call a function for datagrams, where it can.

None of them is bound to a task. After a write to a stream the caller calls ``flush``. One task may
wait at a time, and no other task processes datagrams meanwhile.
"""

from __future__ import annotations

import math
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
from aioquic.quic.events import HandshakeCompleted

from iggy_sdk.engine import clock_of_engine
from iggy_sdk.errors import ConnectionFailedError
from iggy_sdk.options import TlsOptions
from iggy_sdk.transport.quic_core import ClientCore, configure
from iggy_sdk.transport.quic_datagrams import DatagramSender
from iggy_sdk.transport.quic_failures import SILENCE_ADVICE, handshake_failure
from iggy_sdk.transport.tcp import ADDRESS_SECONDS_MAX, call_when_readable, describe, woken

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.events import QuicEvent

    from iggy_sdk.options import ClientOptions, Endpoint
    from iggy_sdk.transport.quic_settings import QuicSettings

__all__ = ["TICK_SECONDS", "QuicTransport", "open_quic"]

# Datagrams of one call, before other tasks run.
DATAGRAMS_PER_STEP: Final = 64
DATAGRAM_BYTES_MAX: Final = 65_536
# More than a receive window; the kernel caps it at net.core.rmem_max.
RECEIVE_BUFFER_BYTES: Final = 2 << 20
NO_ERROR: Final = 0
# Timers are sums of floats: one that has fired may still be slightly ahead of the clock.
TICK_SECONDS: Final = 1e-6


class QuicTransport:
    """A connection and its connected UDP socket."""

    def __init__(
        self, dialled: socket.socket, core: ClientCore, settings: QuicSettings, *, peer: str
    ) -> None:
        self._socket = dialled
        self._address = dialled.getpeername()
        self._keep_alive_seconds = settings.keep_alive_seconds or math.inf
        self._space = bytearray(DATAGRAM_BYTES_MAX)
        self._peer = peer
        self._active_at = -math.inf
        self._pings_count = 0
        self._nap: anyio.CancelScope | None = None
        self._sender = DatagramSender(dialled)
        self._clock = clock_of_engine()
        self._stop_watching: Callable[[], object] | None = None
        self.core = core

    @property
    def peer(self) -> str:
        """Where the server is."""
        return self._peer

    @property
    def is_closed(self) -> bool:
        """Whether the socket is closed."""
        return self._socket.fileno() < 0

    def begin(self) -> None:
        """Send the first datagram."""
        now = self._clock()
        self.core.connect(self._address, now)
        self.flush(now)

    def step(self) -> list[QuicEvent]:
        """Read datagrams, serve timers, send what is queued; return the QUIC events.

        Raises:
            OSError: the server is out of reach.
        """
        now = self._clock()
        count = self._receive(now)
        is_due = self._do_what_is_due(now)
        return self._tell(now, count, is_due=is_due)

    def hear(self) -> list[QuicEvent]:
        """Read datagrams and send what is queued; return the QUIC events.

        Raises:
            OSError: the server is out of reach.
        """
        now = self._clock()
        return self._tell(now, self._receive(now), is_due=False)

    def _do_what_is_due(self, now: float) -> bool:
        core = self.core
        is_due = (due_at := core.get_timer()) is not None and due_at <= now
        if is_due:
            core.handle_timer(now)
        if now >= self._active_at + self._keep_alive_seconds:
            is_due = True
            self._active_at = now
            self._pings_count += 1
            core.send_ping(self._pings_count)
        return is_due

    def _tell(self, now: float, count: int, *, is_due: bool) -> list[QuicEvent]:
        core, happened = self.core, []
        while (event := core.next_event()) is not None:
            happened.append(event)
        if count:
            core.note_heard(count, now)
        # Building packets is the largest cost here, and writers flush by themselves.
        if is_due or (count and not core.may_wait_to_send(now)):
            self.flush(now)
        return happened

    def _receive(self, now: float) -> int:
        view = memoryview(self._space)
        for count in range(DATAGRAMS_PER_STEP):
            try:
                size = self._socket.recv_into(self._space)
            except BlockingIOError:
                return count
            self.core.receive_datagram(bytes(view[:size]), self._address, now)
            self._active_at = now
        return DATAGRAMS_PER_STEP

    def flush(self, now: float) -> None:
        """Send what is queued; QUIC retransmits what the kernel does not take.

        Raises:
            OSError: the server is out of reach.
        """
        datagrams = [data for data, _ in self.core.datagrams_to_send(now)]
        if datagrams:
            self._active_at = now
            self._sender.send(datagrams)
        if self._nap is not None:
            self._nap.deadline = self.due_at()

    def due_at(self) -> float:
        """Return when the next timer is due."""
        due_at = self.core.get_timer()
        return min(
            math.inf if due_at is None else due_at, self._active_at + self._keep_alive_seconds
        )

    async def wait(self) -> None:
        """Wait for datagrams or the next timer.

        Raises:
            OSError: the connection was closed on this side.
        """
        soon = self._clock() + TICK_SECONDS
        with anyio.CancelScope(deadline=max(self.due_at(), soon)) as self._nap:
            try:
                await anyio.wait_readable(self._socket)
            except (anyio.ClosedResourceError, ValueError) as error:
                raise woken(self._socket) from error
            finally:
                self._nap = None

    def watch(self, on_datagrams: Callable[[], None]) -> bool:
        """Have the event loop call a function for datagrams; False where it cannot.

        It is called outside of any task. ``wait`` must not be used meanwhile.
        """
        self._stop_watching = call_when_readable(self._socket, on_datagrams)
        return self._stop_watching is not None

    def unwatch(self) -> None:
        """Remove the callback."""
        if self._stop_watching is not None:
            self._stop_watching()
            self._stop_watching = None

    def interrupt(self) -> None:
        """Wake the task that waits."""
        if not self.is_closed:
            anyio.notify_closing(self._socket)

    def abort(self) -> None:
        """Send CONNECTION_CLOSE and close at once; may be called twice."""
        if self.is_closed:
            return
        self.unwatch()
        self.core.close(NO_ERROR)
        with suppress(OSError):
            self.flush(self._clock())
        anyio.notify_closing(self._socket)
        self._socket.close()


async def open_quic(
    endpoint: Endpoint, options: ClientOptions, settings: QuicSettings
) -> QuicTransport:
    """Connect to an endpoint and do the handshake; the caller limits the time.

    Raises:
        ConnectionFailedError: no server answers there, or its certificate is not trusted.
        ConfigurationError: a file of the options cannot be read.
    """
    tls = options.tls or TlsOptions()
    configuration = await anyio.to_thread.run_sync(
        lambda: configure(tls, settings, host=endpoint.host)
    )
    try:
        found = await anyio.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise ConnectionFailedError(f"{describe(endpoint)} has no address: {error}") from error
    failures: list[str] = []
    for index, (family, _, _, _, address) in enumerate(found):
        is_last = index == len(found) - 1
        with anyio.move_on_after(None if is_last else ADDRESS_SECONDS_MAX):
            try:
                return await _dial(family, address, endpoint, configuration, settings)
            except OSError as error:
                if isinstance(error, ConnectionFailedError):
                    raise
                failures.append(error.strerror or str(error))
    reasons = ", ".join(dict.fromkeys(failures)) or "no address answered in time"
    raise ConnectionFailedError(
        f"cannot connect to {describe(endpoint)}: {reasons}", advice=SILENCE_ADVICE
    )


async def _dial(
    family: int,
    address: Any,
    endpoint: Endpoint,
    configuration: QuicConfiguration,
    settings: QuicSettings,
) -> QuicTransport:
    dialled = socket.socket(family, socket.SOCK_DGRAM)
    try:
        dialled.setblocking(False)
        dialled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        dialled.connect(address)
        core = ClientCore(configuration)
        transport = QuicTransport(dialled, core, settings, peer=describe(endpoint))
        transport.begin()
        await _shake_hands(transport, endpoint)
        core.fit(settings.datagram_bytes_to(address[0]))
    except BaseException:
        dialled.close()
        raise
    return transport


async def _shake_hands(transport: QuicTransport, endpoint: Endpoint) -> None:
    core = transport.core
    while True:
        for event in transport.step():
            if isinstance(event, HandshakeCompleted):
                return
        if core.verdict is not None:
            raise handshake_failure(endpoint, core.verdict, by_peer=core.is_ended_by_peer)
        await transport.wait()
