"""The client's end of a QUIC connection: that of ``aioquic``, with additions.

- It remembers the server's max_udp_payload_size, which the library reads and drops.
- It exposes why a connection ends as soon as that is decided, and whether a stream is flushed.
- It does not begin a packet when nothing is left to write.
- It recognises a stateless reset, by which a restarted server rejects the connection.

The additions use private attributes of the library, so its minor version is pinned.
"""

from __future__ import annotations

import hmac
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioquic._buffer import Buffer
from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE, QuicConfiguration
from aioquic.quic.congestion.base import K_INITIAL_WINDOW
from aioquic.quic.connection import QuicConnection, QuicConnectionState
from aioquic.quic.events import ConnectionTerminated
from aioquic.quic.packet import QuicErrorCode, pull_quic_transport_parameters
from aioquic.quic.recovery import QuicPacketPacer
from aioquic.tls import Epoch

from iggy_sdk.errors import ConfigurationError
from iggy_sdk.transport.tls import tls_context

if TYPE_CHECKING:
    from iggy_sdk.options import TlsOptions
    from iggy_sdk.transport.quic_settings import QuicSettings

__all__ = ["QuicClientConnection", "make_quic_configuration"]

# The default of max_udp_payload_size (RFC 9000, section 18.2).
DATAGRAM_BYTES_MAX: Final = 65_527
# A single datagram is acknowledged after this time, unless a packet is sent earlier. It is less
# than half of the max_ack_delay that the library announces, and longer than most replies take.
ACKNOWLEDGE_AFTER_SECONDS: Final = 0.01
# This many datagrams are acknowledged at once, as RFC 9000, section 13.2.2 recommends.
UNACKNOWLEDGED_MAX: Final = 2
# The initial RTT estimate; the first retransmission follows after twice that.
ROUND_TRIP_SECONDS: Final = 0.1
STREAM_CANCELLED: Final = 0
LONG_HEADER: Final = 0x80
# A stateless reset looks like a short packet and ends with a token (RFC 9000, section 10.3).
RESET_BYTES_MIN: Final = 21
RESET_TOKEN_BYTES: Final = 16


class _ClientPacer(QuicPacketPacer):
    """Stops the library when nothing is left to send.

    It would build an empty packet to find that out, a quarter of the cost of a small datagram.
    """

    def __init__(self, core: QuicClientConnection, datagram_bytes: int) -> None:
        super().__init__(max_datagram_size=datagram_bytes)
        self._core = core
        self.has_sent = self.has_stopped = False

    def next_send_time(self, now: float) -> float | None:  # type: ignore[override]
        """Return when the next packet may be sent; None is now."""
        held_until: float | None = super().next_send_time(now)
        if held_until is None and self.has_sent and self._core.has_written_all():
            self.has_stopped = True
            return now
        return held_until

    def update_after_send(self, now: float) -> None:
        """Record that a packet was built."""
        super().update_after_send(now)
        self.has_sent = True


class QuicClientConnection(QuicConnection):
    """One connection, handshake included."""

    def __init__(self, configuration: QuicConfiguration) -> None:
        """Take the configuration; nothing is sent before ``connect``."""
        super().__init__(configuration=configuration)
        self._peer_datagram_bytes_max = DATAGRAM_BYTES_MAX
        self._unacknowledged_count = 0
        self._pacer = self._loss._pacer = _ClientPacer(self, self._max_datagram_size)
        # The server opens no streams of its own.
        for limit in (self._local_max_streams_bidi, self._local_max_streams_uni):
            limit.value = limit.sent = 0

    @property
    def termination(self) -> ConnectionTerminated | None:
        """Why the connection ends, as soon as either end has closed it."""
        return self._close_event

    @property
    def is_ended_by_peer(self) -> bool:
        """Whether the server has closed the connection."""
        return self._state is QuicConnectionState.DRAINING

    def receive_datagram(self, data: bytes, addr: Any, now: float) -> None:
        """Process a datagram, which may be a stateless reset."""
        super().receive_datagram(data, addr, now)
        token = self._peer_cid.stateless_reset_token
        if (
            token
            and len(data) >= RESET_BYTES_MIN
            and not data[0] & LONG_HEADER
            and hmac.compare_digest(data[-RESET_TOKEN_BYTES:], token)
            and self._close_event is None
        ):
            self._close_event = ConnectionTerminated(
                error_code=QuicErrorCode.NO_ERROR,
                frame_type=None,
                reason_phrase="the server does not know the connection; it was restarted",
            )
            self._close_begin(is_initiator=False, now=now)

    def set_datagram_size(self, datagram_bytes: int) -> None:
        """Set the datagram size after the handshake, capped by the server's limit."""
        # During the handshake everything is acknowledged at once.
        self._ack_delay = ACKNOWLEDGE_AFTER_SECONDS
        size = max(SMALLEST_MAX_DATAGRAM_SIZE, min(datagram_bytes, self._peer_datagram_bytes_max))
        self._max_datagram_size = size
        control: Any = self._loss._cc
        self._pacer._max_datagram_size = control._max_datagram_size = size
        control.congestion_window = max(control.congestion_window, K_INITIAL_WINDOW * size)

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Any]]:
        """Return the datagrams to send and their addresses."""
        pacer = self._pacer
        pacer.has_sent = pacer.has_stopped = False
        datagrams: list[tuple[bytes, Any]] = super().datagrams_to_send(now)
        if pacer.has_stopped:
            self._pacing_at = None
        return datagrams

    def has_written_all(self) -> bool:
        """Tell whether nothing is left to send after the packet that was just built."""
        if not self._handshake_confirmed:
            return False
        tickets = self._crypto_streams[Epoch.ONE_RTT]
        for stream in (tickets, *self._streams_queue):
            sender = stream.sender
            if not sender.buffer_is_empty:
                if len(sender._pending) or sender._pending_eof or sender.reset_pending:
                    return False
                # The library would set this when it finds no further frame.
                sender.buffer_is_empty = True
        return True

    def acknowledge(self, now: float) -> None:
        """Acknowledge received packets with the next datagram."""
        self._unacknowledged_count = 0
        space = self._spaces.get(Epoch.ONE_RTT)
        if space is not None and space.ack_at is not None and space.ack_at > now:
            space.ack_at = now

    def note_received(self, count: int, now: float) -> None:
        """Acknowledge several datagrams at once; a single one may wait for the next request."""
        self._unacknowledged_count += count
        if self._unacknowledged_count >= UNACKNOWLEDGED_MAX:
            self.acknowledge(now)

    def may_wait_to_send(self, now: float) -> bool:
        """Say whether sending may wait for the ACK timer or the next request.

        That is so when all stream data is flushed: only an acknowledgement and flow-control
        credit are pending then, and neither is urgent.
        """
        space = self._spaces.get(Epoch.ONE_RTT)
        if space is None or space.ack_at is None or space.ack_at <= now or not self._is_established:
            return False
        return all(stream.sender.buffer_is_empty for stream in self._streams_queue)

    @property
    def _is_established(self) -> bool:
        """Whether the handshake is confirmed and the connection is open."""
        return self._handshake_confirmed and self._state is QuicConnectionState.CONNECTED

    def is_flushed(self, stream_id: int) -> bool:
        """Tell whether all data of a stream was sent once."""
        stream = self._streams.get(stream_id)
        return stream is None or bool(stream.sender.buffer_is_empty)

    @property
    def may_open_stream(self) -> bool:
        """Whether the stream limit of the server allows another stream."""
        return self._local_next_stream_id_bidi // 4 < self._remote_max_streams_bidi

    def cancel_stream(self, stream_id: int) -> None:
        """Reset a stream in both directions."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        self.reset_stream(stream_id, STREAM_CANCELLED)
        if not stream.receiver.is_finished:
            self.stop_stream(stream_id, STREAM_CANCELLED)

    def _parse_transport_parameters(self, data: bytes, from_session_ticket: bool = False) -> None:
        super()._parse_transport_parameters(data, from_session_ticket)
        announced = pull_quic_transport_parameters(Buffer(data=data)).max_udp_payload_size
        if announced is not None:
            self._peer_datagram_bytes_max = announced


def make_quic_configuration(
    tls: TlsOptions, settings: QuicSettings, *, host: str
) -> QuicConfiguration:
    """Make the configuration of ``aioquic``; this reads files.

    Raises:
        ConfigurationError: a file of the options cannot be read.
    """
    # The library would read these files during the handshake and fail without a usable error.
    tls_context(tls)
    configuration = QuicConfiguration(
        is_client=True,
        idle_timeout=settings.idle_seconds,
        initial_rtt=ROUND_TRIP_SECONDS,
        max_data=settings.receive_window_bytes,
        max_stream_data=settings.receive_window_bytes,
        server_name=tls.domain or host,
        verify_mode=ssl.CERT_REQUIRED if tls.validate else ssl.CERT_NONE,
    )
    if tls.ca_file is not None:
        configuration.load_verify_locations(cafile=tls.ca_file)
    else:
        _load_system_authorities(configuration)
    if tls.client_cert is not None:
        _load_client_certificate(configuration, tls.client_cert, tls.client_key)
    return configuration


def _load_system_authorities(configuration: QuicConfiguration) -> None:
    """Use the authorities of the system, as TLS over TCP does, instead of the library's list."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        configuration.load_verify_locations(cafile=paths.cafile, capath=paths.capath)


def _load_client_certificate(
    configuration: QuicConfiguration, certificate: str, key: str | None
) -> None:
    try:
        configuration.load_cert_chain(Path(certificate), None if key is None else Path(key))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"the client certificate {certificate} cannot be used: {error}",
            advice="Give PEM files of a certificate and of the key that belongs to it.",
        ) from error
    if configuration.private_key is None:
        raise ConfigurationError(
            f"the client certificate {certificate} has no key",
            advice="Set tls_client_key to the file of the key.",
        )
