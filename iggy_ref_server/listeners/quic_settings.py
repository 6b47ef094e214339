"""From the sections ``[quic]`` and ``[limits]`` to the bounds of each QUIC connection.

Owns the translation and the reasons for what the original has no key for.
"""

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

# Enough to ping and to log in; each open stream costs a little with every packet.
STRANGER_STREAMS_MAX: Final = 16
# A connection without traffic is never given up where the configuration says so.
FOREVER_S: Final = 10 * 365 * 86_400.0
# On one machine an answer takes a millisecond, so a lost datagram need not be waited for long.
LOCAL_ROUND_TRIP_S: Final = 0.02
# The library's own number for the first guess anywhere else.
ROUND_TRIP_S: Final = 0.1


@record(kw_only=True)
class LineLimits:
    """The bounds of every connection.

    Attributes:
        request: the bounds of the protocol.
        streams_max: how many requests may be under way.
        stranger_streams_max: how many before a login.
        window_bytes: how much a stream may send before anybody has looked at it.
        send_window_bytes: how much of long replies may be unacknowledged.
        request_bytes_max: long requests that are not complete, together; one is always allowed.
        reply_bytes_max: replies that are not sent, together, beyond which no request is taken.
        datagram_bytes: how large datagrams may be on one machine.
        keep_alive_s: how long nothing is sent before a sign of life is; 0 never sends one.
        handshake_s: how long a handshake may take.
        stalled_s: how long a request or a reply may stand still.
        idle_s: how long a client may ask for nothing; 0 is for ever.
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
        """Say how large datagrams to a client may be.

        Whatever lies between two machines is only known to pass what everything passes: a datagram
        that is too large for a network on its way vanishes, and so do all others after it.
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
    """Join the two sections; the narrower bound counts where there are two."""
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
    """Tell the library how to speak to clients on this machine, or to all others."""
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
    """Tell whether the other end of a datagram is on this machine for sure."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address[0]).is_loopback
    return False
