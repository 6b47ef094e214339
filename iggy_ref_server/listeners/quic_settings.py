"""The limits of each QUIC connection, from the sections ``[quic]`` and ``[limits]``."""

from __future__ import annotations

import contextlib
import ipaddress
from typing import TYPE_CHECKING, Any, Final

from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE, QuicConfiguration

from iggy_protocol import Limits, record

if TYPE_CHECKING:
    from iggy_ref_server.certificates import CertificateFiles
    from iggy_ref_server.config import Quic

__all__ = ["LineLimits", "configure", "is_local", "line_limits"]

# Enough to ping and to log in; each open stream adds a cost per packet.
STRANGER_STREAMS_MAX: Final = 16
# The idle timeout where the configuration disables it.
FOREVER_S: Final = 10 * 365 * 86_400.0
# On one machine a reply takes a millisecond, so a lost datagram can be repeated soon.
LOCAL_ROUND_TRIP_S: Final = 0.02
# The library's default for the initial estimate.
ROUND_TRIP_S: Final = 0.1


@record(kw_only=True)
class LineLimits:
    """The limits of each connection.

    Attributes:
        request: the limits of the protocol.
        streams_max: concurrent requests after a login.
        stranger_streams_max: concurrent requests before a login.
        window_bytes: the initial receive window of a stream.
        send_window_bytes: unacknowledged bytes of long replies.
        request_bytes_max: incomplete long requests in total; one is always allowed.
        reply_bytes_max: unsent replies in total, above which no request is processed.
        datagram_bytes: the size of datagrams within one machine.
        keep_alive_s: the interval without traffic after which a PING is sent; 0 disables it.
        handshake_s: the timeout of a handshake.
        stalled_s: the timeout of a request or reply without progress.
        idle_s: the timeout of a client without requests; 0 disables it.
    """

    request: Limits
    streams_max: int
    stranger_streams_max: int
    window_bytes: int
    send_window_bytes: int
    request_bytes_max: int
    reply_bytes_max: int
    datagram_bytes: int
    keep_alive_s: float
    handshake_s: float
    stalled_s: float
    idle_s: float

    def datagram_bytes_to(self, address: Any) -> int:
        """Return the size of datagrams to a client.

        Between machines only the QUIC minimum is safe without path MTU discovery: a network drops
        every larger datagram.
        """
        return self.datagram_bytes if is_local(address) else SMALLEST_MAX_DATAGRAM_SIZE


def line_limits(
    config: Quic,
    *,
    request: Limits,
    request_bytes_max: int,
    reply_bytes_max: int,
    handshake_s: float,
    stalled_s: float,
    idle_s: float,
) -> LineLimits:
    """Combine the two sections; the lower limit applies where both have one."""
    streams_max = min(config.max_concurrent_bidi_streams, request.pipelined_max)
    return LineLimits(
        request=request,
        streams_max=streams_max,
        stranger_streams_max=min(streams_max, STRANGER_STREAMS_MAX),
        window_bytes=config.receive_window_bytes,
        send_window_bytes=config.send_window_bytes,
        request_bytes_max=request_bytes_max,
        reply_bytes_max=reply_bytes_max,
        datagram_bytes=config.initial_mtu_bytes,
        keep_alive_s=config.keep_alive_interval_us / 1e6,
        handshake_s=handshake_s,
        stalled_s=stalled_s,
        idle_s=idle_s,
    )


def configure(config: Quic, certificate: CertificateFiles, *, is_local: bool) -> QuicConfiguration:
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
