"""The state machine of one QUIC connection: ``aioquic`` with the limits of this server.

aioquic extends the receive window with every received byte, handled or not, and sends datagrams of
one size to all peers. What is different here:

    windows       the connection's window slides with the received bytes and never grows; a paused
                  stream gets no credit beyond its initial window
    streams       few before a login, more after it; no unidirectional ones
    datagrams     1200 bytes until the handshake is done, then as large as both ends and the path
                  take
    replies       carry the acknowledgement of their requests
    packets       none is started when nothing is left to write
    ids           have reset tokens that can be derived again after a crash

Holds all changes to the library and uses its private attributes, so its minor version is pinned.
Knows no sockets, no clock and no requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioquic._buffer import Buffer
from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE
from aioquic.quic.congestion.base import K_INITIAL_WINDOW
from aioquic.quic.connection import Limit, QuicConnection, QuicConnectionState
from aioquic.quic.packet import QuicFrameType, pull_quic_transport_parameters
from aioquic.quic.recovery import QuicPacketPacer
from aioquic.tls import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.events import ConnectionTerminated
    from aioquic.quic.packet_builder import QuicPacketBuilder
    from aioquic.quic.recovery import QuicPacketSpace
    from aioquic.quic.stream import QuicStream

__all__ = ["QuicServerCore"]

# The default of max_udp_payload_size (RFC 9000, section 18.2).
DATAGRAM_BYTES_MAX: Final = 65_527
# The delay of the acknowledgement of a single datagram, unless something is sent earlier. Less than
# half of the max_ack_delay that the library announces, and longer than most replies take.
ACKNOWLEDGE_AFTER_S: Final = 0.01
# So many datagrams are acknowledged at once, as RFC 9000, section 13.2.2 recommends.
UNACKNOWLEDGED_MAX: Final = 2


class _ConnectionWindow(Limit):
    """The flow control limit of a connection: the received bytes plus a fixed window."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._edge = size_bytes
        super().__init__(QuicFrameType.MAX_DATA, "max_data", size_bytes)

    @property
    def value(self) -> int:
        """The limit that is announced with MAX_DATA."""
        return self._edge

    @value.setter
    def value(self, doubled: int) -> None:
        """Ignore the new value: the library would double the window."""

    def slide(self) -> None:
        """Move the limit to one window beyond the received bytes."""
        # Half a window at a time, or every packet would carry a new limit.
        if self.used + self._size_bytes // 2 >= self._edge:
            self._edge = self.used + self._size_bytes


class _ServerPacer(QuicPacketPacer):
    """Stops the library when nothing is left to write.

    Without it the library builds an empty packet to find out, which takes a quarter of the time of
    sending a small datagram.
    """

    def __init__(self, core: QuicServerCore, datagram_bytes: int) -> None:
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
        """Record that a packet was written."""
        super().update_after_send(now)
        self.has_sent = True


class QuicServerCore(QuicConnection):
    """One connection, from its first datagram on.

    Args:
        configuration: the library's configuration.
        streams_max: the limit of open streams before a login.
        original_cid: the destination id of the client's first datagram.
        retry_cid: the id in the retry that the client was sent, if any.
        reset_token: returns the stateless reset token of a connection id.

    Attributes:
        paused_streams: ids of streams that get no further credit.
    """

    def __init__(
        self,
        configuration: QuicConfiguration,
        *,
        streams_max: int,
        original_cid: bytes,
        retry_cid: bytes | None = None,
        reset_token: Callable[[bytes], bytes],
    ) -> None:
        super().__init__(
            configuration=configuration,
            original_destination_connection_id=original_cid,
            retry_source_connection_id=retry_cid,
        )
        self._reset_token = reset_token
        self._host_cids[0].stateless_reset_token = reset_token(self.host_cid)
        self.paused_streams: set[int] = set()
        self._peer_datagram_bytes_max = DATAGRAM_BYTES_MAX
        self._unacknowledged_count = 0
        self._pacer = self._loss._pacer = _ServerPacer(self, self._max_datagram_size)
        self._window = _ConnectionWindow(configuration.max_data)
        self._local_max_data = self._window
        self._local_max_streams_bidi.value = streams_max
        self._local_max_streams_bidi.sent = streams_max
        self._local_max_streams_uni.value = self._local_max_streams_uni.sent = 0

    @property
    def termination(self) -> ConnectionTerminated | None:
        """Why the connection ends, once either end has closed it."""
        return self._close_event

    @property
    def has_decrypted(self) -> bool:
        """Whether a received packet could be decrypted."""
        return self._state is not QuicConnectionState.FIRSTFLIGHT

    def allow_streams(self, count: int) -> None:
        """Raise the limit of open streams by ``count``."""
        self._local_max_streams_bidi.value += count

    def slide_window(self) -> None:
        """Extend the connection's flow control limit by what was received."""
        self._window.slide()

    def set_datagram_size(self, datagram_bytes: int) -> None:
        """Send datagrams of up to so many bytes, unless the client accepts less."""
        # Only after the handshake, during which packets are acknowledged at once.
        self._ack_delay = ACKNOWLEDGE_AFTER_S
        size = max(SMALLEST_MAX_DATAGRAM_SIZE, min(datagram_bytes, self._peer_datagram_bytes_max))
        if size == self._max_datagram_size:
            return
        self._max_datagram_size = size
        control: Any = self._loss._cc
        self._pacer._max_datagram_size = control._max_datagram_size = size
        control.congestion_window = max(control.congestion_window, K_INITIAL_WINDOW * size)

    def schedule_acks(self, count: int, now: float, *, has_written: bool) -> None:
        """Acknowledge datagrams together with a reply, or when there are several."""
        self._unacknowledged_count += count
        if not has_written and self._unacknowledged_count < UNACKNOWLEDGED_MAX:
            return
        self._unacknowledged_count = 0
        space = self._spaces.get(Epoch.ONE_RTT)
        if space is not None and space.ack_at is not None and space.ack_at > now:
            space.ack_at = now

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Any]]:
        """Return the datagrams to send with their addresses."""
        pacer = self._pacer
        pacer.has_sent = pacer.has_stopped = False
        datagrams: list[tuple[bytes, Any]] = super().datagrams_to_send(now)
        if pacer.has_stopped:
            self._pacing_at = None
        return datagrams

    def has_written_all(self) -> bool:
        """Return whether nothing is left for another packet after the one just written.

        MAX_STREAMS may be left: it goes with the next packet, which follows the acknowledgement of
        this one at the latest.
        """
        if not self._handshake_confirmed:
            return False
        tickets = self._crypto_streams[Epoch.ONE_RTT]
        for stream in (tickets, *self._streams_queue):
            sender = stream.sender
            if not sender.buffer_is_empty:
                if len(sender._pending) or sender._pending_eof or sender.reset_pending:
                    return False
                # The library would set this when it looks for the next frame and finds none.
                sender.buffer_is_empty = True
        return True

    def undelivered_bytes(self, stream_id: int) -> int:
        """Return the bytes of a stream that were written and not acknowledged."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None else len(stream.sender._buffer)

    @property
    def buffered_bytes(self) -> int:
        """How much the library holds: what came out of order, and what is not acknowledged.

        Measured, a stream costs 0.2 us, and one alone 0.6 us; the library itself looks at each of
        them for every packet that it writes.
        """
        return sum(
            len(stream.receiver._buffer) + len(stream.sender._buffer)
            for stream in self._streams.values()
        )

    @property
    def undelivered(self) -> tuple[int, int]:
        """The number of streams with unacknowledged data, and the number of these bytes."""
        senders = [stream.sender for stream in self._streams.values()]
        left = [
            len(sender._buffer)
            for sender in senders
            if sender._buffer or (sender._buffer_fin is not None and not sender.is_finished)
        ]
        return len(left), sum(left)

    def _replenish_connection_ids(self) -> None:
        known_count = len(self._host_cids)
        super()._replenish_connection_ids()
        for made in self._host_cids[known_count:]:
            made.stateless_reset_token = self._reset_token(made.cid)

    def _parse_transport_parameters(self, data: bytes, from_session_ticket: bool = False) -> None:
        super()._parse_transport_parameters(data, from_session_ticket)
        told = pull_quic_transport_parameters(Buffer(data=data)).max_udp_payload_size
        if told is not None:
            self._peer_datagram_bytes_max = told

    def _write_stream_limits(
        self, builder: QuicPacketBuilder, space: QuicPacketSpace, stream: QuicStream
    ) -> None:
        if stream.stream_id not in self.paused_streams:
            super()._write_stream_limits(builder, space, stream)
