"""The limits of each QUIC connection, from the sections ``[quic]`` and ``[limits]``."""

from __future__ import annotations

import contextlib
import ipaddress
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE, QuicConfiguration

from iggy_protocol import Limits, record
from iggy_ref_server.client_limits import PROGRESS_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_protocol.quic import QuicServerCore
    from iggy_ref_server.certificates import CertificateFiles
    from iggy_ref_server.config.schema import QuicListenerConfig
    from iggy_ref_server.net.quic.stream import QuicRequestStream


# Enough to ping and to log in; each open stream adds a cost per packet.
UNAUTHENTICATED_STREAMS_MAX: Final = 16
# The idle timeout where the configuration disables it.
FOREVER_S: Final = 10 * 365 * 86_400.0
# On one machine a reply takes a millisecond, so a lost datagram can be repeated soon.
LOCAL_ROUND_TRIP_S: Final = 0.02
# The library's default for the initial estimate.
ROUND_TRIP_S: Final = 0.1


@record(kw_only=True)
class QuicConnectionLimits:
    """The limits of each connection.

    Attributes:
        request: the limits of the protocol.
        streams_max: concurrent requests after a login.
        unauthenticated_streams_max: concurrent requests before a login.
        window_bytes: the initial receive window of a stream.
        send_window_bytes: unacknowledged bytes of long replies.
        request_bytes_max: incomplete long requests in total; one is always allowed.
        reply_bytes_max: unsent replies in total, above which no request is processed.
        datagram_bytes: the size of datagrams within one machine.
        keep_alive_s: the interval without traffic after which a PING is sent; 0 disables it.
        handshake_timeout_s: the timeout of a handshake.
        stall_timeout_s: the timeout of a request or reply without progress.
        idle_timeout_s: the timeout of a client without requests; 0 disables it.
    """

    request: Limits
    streams_max: int
    unauthenticated_streams_max: int
    window_bytes: int
    send_window_bytes: int
    request_bytes_max: int
    reply_bytes_max: int
    datagram_bytes: int
    keep_alive_s: float
    handshake_timeout_s: float
    stall_timeout_s: float
    idle_timeout_s: float

    def datagram_bytes_to(self, address: Any) -> int:
        """Return the size of datagrams to a client.

        Between machines only the QUIC minimum is safe without path MTU discovery: a network drops
        every larger datagram.
        """
        return self.datagram_bytes if is_local(address) else SMALLEST_MAX_DATAGRAM_SIZE


def connection_limits(
    config: QuicListenerConfig,
    *,
    request: Limits,
    request_bytes_max: int,
    reply_bytes_max: int,
    handshake_timeout_s: float,
    stall_timeout_s: float,
    idle_timeout_s: float,
) -> QuicConnectionLimits:
    """Combine the two sections; the lower limit applies where both have one."""
    streams_max = min(config.max_concurrent_bidi_streams, request.pipelined_max)
    return QuicConnectionLimits(
        request=request,
        streams_max=streams_max,
        unauthenticated_streams_max=min(streams_max, UNAUTHENTICATED_STREAMS_MAX),
        window_bytes=config.receive_window_bytes,
        send_window_bytes=config.send_window_bytes,
        request_bytes_max=request_bytes_max,
        reply_bytes_max=reply_bytes_max,
        datagram_bytes=config.initial_mtu_bytes,
        keep_alive_s=config.keep_alive_interval_us / 1e6,
        handshake_timeout_s=handshake_timeout_s,
        stall_timeout_s=stall_timeout_s,
        idle_timeout_s=idle_timeout_s,
    )


def make_configuration(
    config: QuicListenerConfig, certificate: CertificateFiles, *, is_local: bool
) -> QuicConfiguration:
    """Make the library's configuration for clients on this machine, or for all others."""
    configuration = QuicConfiguration(
        is_client=False,
        idle_timeout=config.max_idle_timeout_us / 1e6 or FOREVER_S,
        initial_rtt=LOCAL_ROUND_TRIP_S if is_local else ROUND_TRIP_S,
        max_data=config.receive_window_bytes,
        max_stream_data=config.receive_window_bytes,
    )
    configuration.load_cert_chain(certificate.certificate, certificate.key)
    return configuration


def is_local(address: Any) -> bool:
    """Return whether an address is a loopback address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address[0]).is_loopback
    return False


# Detects stalled requests and replies of a QUIC connection.
#
# The state is sampled twice per timeout. Replies are stalled if no byte was acknowledged between
# two samples one timeout apart. A request is stalled if it is older than the timeout and all
# requests of the connection together grew by less than the minimum.


class StallDetector:
    """Samples the progress of one connection.

    Args:
        core: the connection.
        stall_timeout_s: the timeout.
        now: the time.

    Attributes:
        due_at: when to sample next.
        received_bytes: the received bytes of all requests; the connection counts them.
    """

    def __init__(self, core: QuicServerCore, stall_timeout_s: float, now: float) -> None:
        self._core = core
        self._stall_timeout_s = stall_timeout_s
        self._last_undelivered = core.undelivered
        self._last_delivery_at = now
        self.received_bytes = 0
        self._samples: deque[tuple[float, int]] = deque([(now, 0)])
        self.due_at = now + stall_timeout_s / 2

    def is_stalled(self, streams: Iterable[QuicRequestStream], now: float) -> bool:
        """Sample if it is time; return whether a request or a reply has stalled."""
        if now < self.due_at:
            return False
        self.due_at = now + self._stall_timeout_s / 2
        paused_streams = self._core.paused_streams
        is_too_slow = self._is_too_slow(now)
        for stream in streams:
            if stream.is_complete or stream.stream_id in paused_streams:
                continue
            since = stream.started_at if is_too_slow else stream.last_received_at
            if now >= since + self._stall_timeout_s:
                return True
        undelivered = self._core.undelivered
        if undelivered != self._last_undelivered or not undelivered[0]:
            self._last_undelivered, self._last_delivery_at = undelivered, now
        return now >= self._last_delivery_at + self._stall_timeout_s

    def _is_too_slow(self, now: float) -> bool:
        """Return whether less than the minimum has arrived within the timeout."""
        samples = self._samples
        samples.append((now, self.received_bytes))
        # Keep the newest sample that is at least one timeout old.
        while len(samples) > 1 and samples[1][0] <= now - self._stall_timeout_s:
            samples.popleft()
        started_at, received_bytes = samples[0]
        return started_at <= now - self._stall_timeout_s and (
            self.received_bytes - received_bytes < PROGRESS_BYTES_MIN
        )
