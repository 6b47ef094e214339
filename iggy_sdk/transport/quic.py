"""A QUIC connection over UDP, with verified certificates unless the options say otherwise.

- ``process`` reads datagrams, serves timers and sends what is queued.
- ``receive`` does the same without timers, which the caller serves at ``due_at``.
- ``wait`` waits for datagrams or the next timer.
- ``add_reader`` has the event loop call a function for datagrams, where it can.

None of them is bound to a task. After a write to a stream the caller calls ``flush``. One task may
wait at a time, and no other task processes datagrams meanwhile.
"""

from __future__ import annotations

import errno
import math
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
from aioquic.quic.events import HandshakeCompleted
from aioquic.quic.packet import QuicErrorCode
from aioquic.tls import AlertDescription

from iggy_protocol.quic import (
    SEGMENTATION_ERRNOS,
    QuicClientCore,
    segment_option,
    split_runs,
)
from iggy_sdk.errors import ConnectionFailedError
from iggy_sdk.event_loop import event_loop_clock
from iggy_sdk.options import ClientOptions, TlsOptions
from iggy_sdk.transport.quic_settings import QuicSettings, make_quic_configuration
from iggy_sdk.transport.tcp import (
    ADDRESS_SECONDS_MAX,
    add_reader_callback,
    format_endpoint,
    wait_interrupted_error,
)
from iggy_sdk.transport.tls import (
    CERTIFICATE_ADVICE,
    EXPIRED,
    NAME_MISMATCH,
    NOT_YET_VALID,
    UNTRUSTED_ADVICE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.events import ConnectionTerminated, QuicEvent

    from iggy_sdk.connection_string import Endpoint


# A full queue or a route that may come back: treated as a lost datagram, which QUIC resends.
TRANSIENT_ERRNOS: Final = frozenset(
    {errno.ENOBUFS, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EPERM, errno.EMSGSIZE}
)


class DatagramSender:
    """Sends through a connected UDP socket, and never waits."""

    def __init__(self, sock: socket.socket) -> None:
        """Take the socket, which the caller closes."""
        self._socket = sock
        self._can_segment = True

    def send(self, datagrams: Sequence[bytes]) -> None:
        """Send what can be sent; QUIC repeats the rest.

        Raises:
            OSError: the server is out of reach.
        """
        for run in split_runs(datagrams):
            if len(run) == 1 or not self._can_segment or not self._send_run(run):
                for data in run:
                    self._send_one(data)

    def _send_run(self, run: list[bytes]) -> bool:
        """Send datagrams of one size in one call; False where the kernel does not support that."""
        try:
            self._socket.sendmsg(run, segment_option(run))
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno in SEGMENTATION_ERRNOS:
                self._can_segment = False
                return False
            if error.errno not in TRANSIENT_ERRNOS:
                raise
        return True

    def _send_one(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno not in TRANSIENT_ERRNOS:
                raise


# Errors of a failed QUIC handshake.


SILENCE_ADVICE: Final = (
    "Check host and port, that the server serves QUIC, and that nothing on the way blocks UDP."
)
REFUSED_ADVICE: Final = "Try again later, or raise limits.quic on the server."
OTHER_ADVICE: Final = "Check that an Iggy server of version 0.8 serves QUIC on this port."
CLIENT_CERTIFICATE_ADVICE: Final = "Set tls_client_cert and tls_client_key: the server asks for it."

# aioquic raises one of these alerts when it rejects the certificate of the server.
CERTIFICATE_ALERTS: Final = frozenset(
    {
        AlertDescription.bad_certificate,
        AlertDescription.certificate_expired,
        AlertDescription.unsupported_certificate,
    }
)


def quic_handshake_error(
    endpoint: Endpoint, termination: ConnectionTerminated, *, by_peer: bool
) -> ConnectionFailedError:
    """Make the error of a failed handshake, with advice."""
    where, reason = format_endpoint(endpoint), termination.reason_phrase
    alert = termination.error_code - QuicErrorCode.CRYPTO_ERROR
    if not by_peer and alert in CERTIFICATE_ALERTS:
        return ConnectionFailedError(
            f"the certificate of {where} is not accepted: {reason}",
            advice=_certificate_advice(alert, reason),
            retriable=False,
        )
    if termination.error_code == QuicErrorCode.CONNECTION_REFUSED:
        return ConnectionFailedError(
            f"{where} refuses the connection: {reason or 'its connection limit is reached'}",
            advice=REFUSED_ADVICE,
        )
    if reason == "Idle timeout":
        return ConnectionFailedError(f"{where} did not answer", advice=SILENCE_ADVICE)
    if by_peer and alert == AlertDescription.certificate_required:
        return ConnectionFailedError(
            f"{where} refuses the QUIC handshake: it wants a client certificate",
            advice=CLIENT_CERTIFICATE_ADVICE,
            retriable=False,
        )
    reason = reason or _error_code_name(termination.error_code)
    return ConnectionFailedError(
        f"the QUIC handshake with {where} failed: {reason}",
        advice=OTHER_ADVICE,
        retriable=False,
    )


def _certificate_advice(alert: int, reason: str) -> str:
    if alert == AlertDescription.certificate_expired:
        return CERTIFICATE_ADVICE[NOT_YET_VALID if "not valid yet" in reason else EXPIRED]
    return CERTIFICATE_ADVICE[NAME_MISMATCH] if "hostname" in reason else UNTRUSTED_ADVICE


def _error_code_name(code: int) -> str:
    alert = code - QuicErrorCode.CRYPTO_ERROR
    try:
        return AlertDescription(alert).name.replace("_", " ")
    except ValueError:
        return f"error {code:#x}"


# Datagrams of one call, before other tasks run.
DATAGRAMS_PER_STEP: Final = 64
RECEIVE_BYTES_MAX: Final = 65_536
# More than a receive window; the kernel caps it at net.core.rmem_max.
RECEIVE_BUFFER_BYTES: Final = 2 << 20
NO_ERROR: Final = 0
# Timers are sums of floats: one that has fired may still be slightly ahead of the clock.
TICK_SECONDS: Final = 1e-6


class QuicTransport:
    """A connection and its connected UDP socket."""

    def __init__(
        self, sock: socket.socket, core: QuicClientCore, settings: QuicSettings, *, peer: str
    ) -> None:
        self._socket = sock
        self._address = sock.getpeername()
        self._keep_alive_seconds = settings.keep_alive_seconds or math.inf
        self._read_buffer = bytearray(RECEIVE_BYTES_MAX)
        self._peer = peer
        self._active_at = -math.inf
        self._pings_count = 0
        self._wait_scope: anyio.CancelScope | None = None
        self._sender = DatagramSender(sock)
        self._clock = event_loop_clock()
        self._remove_reader: Callable[[], object] | None = None
        self.core = core

    @property
    def peer(self) -> str:
        """Where the server is."""
        return self._peer

    @property
    def is_closed(self) -> bool:
        """Whether the socket is closed."""
        return self._socket.fileno() < 0

    def start(self) -> None:
        """Send the first datagram."""
        now = self._clock()
        self.core.connect(self._address, now)
        self.flush(now)

    def process(self) -> list[QuicEvent]:
        """Read datagrams, serve timers, send what is queued; return the QUIC events.

        Raises:
            OSError: the server is out of reach.
        """
        now = self._clock()
        count = self._receive(now)
        is_due = self._run_due_timers(now)
        return self._collect_events(now, count, is_due=is_due)

    def receive(self) -> list[QuicEvent]:
        """Read datagrams and send what is queued; return the QUIC events.

        Raises:
            OSError: the server is out of reach.
        """
        now = self._clock()
        return self._collect_events(now, self._receive(now), is_due=False)

    def _run_due_timers(self, now: float) -> bool:
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

    def _collect_events(self, now: float, count: int, *, is_due: bool) -> list[QuicEvent]:
        core, events = self.core, []
        while (event := core.next_event()) is not None:
            events.append(event)
        if count:
            core.schedule_acks(count, now)
        # Building packets is the largest cost here, and writers flush by themselves.
        if is_due or (count and not core.may_wait_to_send(now)):
            self.flush(now)
        return events

    def _receive(self, now: float) -> int:
        view = memoryview(self._read_buffer)
        for count in range(DATAGRAMS_PER_STEP):
            try:
                size = self._socket.recv_into(self._read_buffer)
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
        if self._wait_scope is not None:
            self._wait_scope.deadline = self.due_at()

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
        with anyio.CancelScope(deadline=max(self.due_at(), soon)) as self._wait_scope:
            try:
                await anyio.wait_readable(self._socket)
            except (anyio.ClosedResourceError, ValueError) as error:
                raise wait_interrupted_error(self._socket) from error
            finally:
                self._wait_scope = None

    def add_reader(self, on_datagrams: Callable[[], None]) -> bool:
        """Have the event loop call a function for datagrams; False where it cannot.

        It is called outside of any task. ``wait`` must not be used meanwhile.
        """
        self._remove_reader = add_reader_callback(self._socket, on_datagrams)
        return self._remove_reader is not None

    def remove_reader(self) -> None:
        """Remove the callback."""
        if self._remove_reader is not None:
            self._remove_reader()
            self._remove_reader = None

    def interrupt(self) -> None:
        """Wake the task that waits."""
        if not self.is_closed:
            anyio.notify_closing(self._socket)

    def abort(self) -> None:
        """Send CONNECTION_CLOSE and close at once; may be called twice."""
        if self.is_closed:
            return
        self.remove_reader()
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
        lambda: make_quic_configuration(tls, settings, host=endpoint.host)
    )
    try:
        found = await anyio.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise ConnectionFailedError(
            f"{format_endpoint(endpoint)} has no address: {error}"
        ) from error
    failures: list[str] = []
    for index, (family, _, _, _, address) in enumerate(found):
        is_last = index == len(found) - 1
        with anyio.move_on_after(None if is_last else ADDRESS_SECONDS_MAX):
            try:
                return await _connect_address(family, address, endpoint, configuration, settings)
            except OSError as error:
                if isinstance(error, ConnectionFailedError):
                    raise
                failures.append(error.strerror or str(error))
    reasons = ", ".join(dict.fromkeys(failures)) or "no address answered in time"
    raise ConnectionFailedError(
        f"cannot connect to {format_endpoint(endpoint)}: {reasons}", advice=SILENCE_ADVICE
    )


async def _connect_address(
    family: int,
    address: Any,
    endpoint: Endpoint,
    configuration: QuicConfiguration,
    settings: QuicSettings,
) -> QuicTransport:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        sock.connect(address)
        core = QuicClientCore(configuration)
        transport = QuicTransport(sock, core, settings, peer=format_endpoint(endpoint))
        transport.start()
        await _run_handshake(transport, endpoint)
        core.set_datagram_size(settings.datagram_bytes_to(address[0]))
    except BaseException:
        sock.close()
        raise
    return transport


async def _run_handshake(transport: QuicTransport, endpoint: Endpoint) -> None:
    core = transport.core
    while True:
        for event in transport.process():
            if isinstance(event, HandshakeCompleted):
                return
        if core.termination is not None:
            raise quic_handshake_error(endpoint, core.termination, by_peer=core.is_ended_by_peer)
        await transport.wait()
