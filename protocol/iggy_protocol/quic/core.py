"""The state machine of one QUIC connection: that of ``aioquic`` with additions, for both ends.

    both      datagrams have 1200 bytes until the handshake is done, then as many as both ends and
              the path take; acknowledgements leave with requests and replies; no packet is begun
              when nothing is left to write; the end of a connection is known at once
    client    recognises a stateless reset, and the server may open no streams
    server    the connection's window slides with the received bytes and never grows; a paused
              stream gets no credit beyond its initial window; few streams before a login, more
              after it; ids have reset tokens that can be derived again after a crash

Uses private attributes of the library, which ``aioquic_internals`` lists. Knows no sockets, no
clock and no requests.
"""

from __future__ import annotations

import errno
import hmac
import struct
from typing import TYPE_CHECKING, Any, Final

from aioquic._buffer import Buffer
from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE
from aioquic.quic.congestion.base import K_INITIAL_WINDOW
from aioquic.quic.connection import Limit, QuicConnection, QuicConnectionState
from aioquic.quic.events import ConnectionTerminated
from aioquic.quic.packet import QuicErrorCode, QuicFrameType, pull_quic_transport_parameters
from aioquic.quic.recovery import QuicPacketPacer
from aioquic.tls import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.packet_builder import QuicPacketBuilder
    from aioquic.quic.recovery import QuicPacketSpace
    from aioquic.quic.stream import QuicStream


# The default of max_udp_payload_size (RFC 9000, section 18.2).
DATAGRAM_BYTES_MAX: Final = 65_527
# The delay of the acknowledgement of a single datagram, unless something is sent earlier. Less than
# half of the max_ack_delay that the library announces, and longer than most replies take.
ACKNOWLEDGE_AFTER_S: Final = 0.01
# So many datagrams are acknowledged at once, as RFC 9000, section 13.2.2 recommends.
UNACKNOWLEDGED_MAX: Final = 2
STREAM_CANCELLED: Final = 0
# The bit of a packet's first byte that tells packets with a long header.
LONG_HEADER: Final = 0x80
# A stateless reset looks like a short packet and ends with a token (RFC 9000, section 10.3).
RESET_BYTES_MIN: Final = 21
RESET_TOKEN_BYTES: Final = 16


class _WriteAllPacer(QuicPacketPacer):
    """Stops the library when nothing is left to write.

    Without it the library builds an empty packet to find out, which takes a quarter of the time of
    sending a small datagram.
    """

    def __init__(self, core: QuicCore, datagram_bytes: int) -> None:
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


class QuicCore(QuicConnection):
    """What both ends of a connection share.

    Args:
        configuration: the library's configuration.
        given: further arguments of the library's connection.
    """

    def __init__(self, configuration: QuicConfiguration, **given: Any) -> None:
        super().__init__(configuration=configuration, **given)
        self._peer_datagram_bytes_max = DATAGRAM_BYTES_MAX
        self._unacknowledged_count = 0
        self._pacer = self._loss._pacer = _WriteAllPacer(self, self._max_datagram_size)

    @property
    def termination(self) -> ConnectionTerminated | None:
        """Why the connection ends, as soon as either end has closed it."""
        return self._close_event

    def set_datagram_size(self, datagram_bytes: int) -> None:
        """Send datagrams of up to so many bytes, unless the peer accepts less."""
        # Only after the handshake, during which packets are acknowledged at once.
        self._ack_delay = ACKNOWLEDGE_AFTER_S
        size = max(SMALLEST_MAX_DATAGRAM_SIZE, min(datagram_bytes, self._peer_datagram_bytes_max))
        if size == self._max_datagram_size:
            return
        self._max_datagram_size = size
        control: Any = self._loss._cc
        self._pacer._max_datagram_size = control._max_datagram_size = size
        control.congestion_window = max(control.congestion_window, K_INITIAL_WINDOW * size)

    def acknowledge(self, now: float) -> None:
        """Acknowledge received packets with the next datagram."""
        self._unacknowledged_count = 0
        space = self._spaces.get(Epoch.ONE_RTT)
        if space is not None and space.ack_at is not None and space.ack_at > now:
            space.ack_at = now

    def schedule_acks(self, count: int, now: float, *, has_written: bool = False) -> None:
        """Acknowledge received datagrams together with written data, or when there are several."""
        self._unacknowledged_count += count
        if has_written or self._unacknowledged_count >= UNACKNOWLEDGED_MAX:
            self.acknowledge(now)

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
                if len(sender._pending) or sender._pending_eof:
                    return False
                # The library would set this when it looks for the next frame and finds none.
                sender.buffer_is_empty = True
        return True

    def _parse_transport_parameters(self, data: bytes, from_session_ticket: bool = False) -> None:
        super()._parse_transport_parameters(data, from_session_ticket)
        # The library reads the peer's limit as well, and drops it.
        announced = pull_quic_transport_parameters(Buffer(data=data)).max_udp_payload_size
        if announced is not None:
            self._peer_datagram_bytes_max = announced


class QuicClientCore(QuicCore):
    """The client's end; nothing is sent before ``connect``."""

    def __init__(self, configuration: QuicConfiguration) -> None:
        super().__init__(configuration)
        for limit in (self._local_max_streams_bidi, self._local_max_streams_uni):
            limit.value = limit.sent = 0

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


class QuicServerCore(QuicCore):
    """The server's end, from the first datagram on.

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
            configuration,
            original_destination_connection_id=original_cid,
            retry_source_connection_id=retry_cid,
        )
        self._reset_token = reset_token
        self._host_cids[0].stateless_reset_token = reset_token(self.host_cid)
        self.paused_streams: set[int] = set()
        self._window = _ConnectionWindow(configuration.max_data)
        self._local_max_data = self._window
        self._local_max_streams_bidi.value = streams_max
        self._local_max_streams_bidi.sent = streams_max
        self._local_max_streams_uni.value = self._local_max_streams_uni.sent = 0

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

    def _write_stream_limits(
        self, builder: QuicPacketBuilder, space: QuicPacketSpace, stream: QuicStream
    ) -> None:
        if stream.stream_id not in self.paused_streams:
            super()._write_stream_limits(builder, space, stream)


# Datagrams of one size in one system call, which the kernel segments (``UDP_SEGMENT``).
#
# That takes a tenth of the time of a call for each. The callers own the sockets: they send a run
# with ``socket.sendmsg(run, segment_option(run))``, and each datagram by itself once the call has
# failed with one of ``SEGMENTATION_ERRNOS``.

# Of the Linux kernel: the socket option, and the limits of one call (UDP_MAX_SEGMENTS, 64 KiB).
SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
SEGMENTS_MAX: Final = 64
RUN_BYTES_MAX: Final = 65_000
SEGMENT_SIZE: Final = struct.Struct("=H")
# Errors of a kernel, a device or a route without segmentation.
SEGMENTATION_ERRNOS: Final = frozenset(
    {errno.EINVAL, errno.EIO, errno.ENOPROTOOPT, errno.EOPNOTSUPP}
)


def split_runs(datagrams: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Split a list into runs for one call each: of one size, except a shorter last datagram."""
    run: list[bytes] = []
    for data in datagrams:
        is_full = bool(run) and len(run) >= min(SEGMENTS_MAX, RUN_BYTES_MAX // len(run[0]))
        if run and (is_full or len(run[-1]) < len(run[0]) or len(data) > len(run[0])):
            yield run
            run = []
        run.append(data)
    if run:
        yield run


def segment_option(run: Sequence[bytes]) -> list[tuple[int, int, bytes]]:
    """Return the ancillary data of ``sendmsg`` for a run."""
    return [(SOL_UDP, UDP_SEGMENT, SEGMENT_SIZE.pack(len(run[0])))]
