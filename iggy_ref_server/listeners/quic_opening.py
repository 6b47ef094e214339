"""Makes the QUIC listener from the configuration of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iggy_ref_server.data_plane.budget import BufferBudget
from iggy_ref_server.listeners.quic import QuicDoor
from iggy_ref_server.listeners.quic_reset import StatelessResets
from iggy_ref_server.listeners.quic_settings import configure, line_limits
from iggy_ref_server.listeners.quic_socket import UdpSocket

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from iggy_ref_server.certificates import CertificateFiles
    from iggy_ref_server.clients import Clients
    from iggy_ref_server.config import Quic, ServerConfig
    from iggy_ref_server.data_plane.plane import DataPlane
    from iggy_ref_server.data_plane.sockets import SocketLimits
    from iggy_ref_server.listeners.quic_socket import DatagramSocket
    from iggy_ref_server.session import Session

__all__ = ["open_quic_door", "use_socket"]

UNBOUNDED_BYTES: Final = 1 << 63


def use_socket(bound: socket.socket, config: Quic) -> UdpSocket:
    """Wrap a bound UDP socket, with the buffer sizes of the configuration."""
    udp, chosen = UdpSocket(bound), config.socket
    if chosen.override_defaults:
        udp.set_options(
            receive_bytes=chosen.recv_buffer_size_bytes,
            send_bytes=chosen.send_buffer_size_bytes,
            keepalive=chosen.keepalive,
        )
    else:
        udp.set_options()
    return udp


def open_quic_door(
    datagrams: DatagramSocket,
    certificate: CertificateFiles,
    *,
    config: ServerConfig,
    bounds: SocketLimits,
    plane: DataPlane,
    clients: Clients,
    connected: Callable[[Session, Callable[[], None]], None],
    gone: Callable[[Session], None],
    reset_key: bytes,
    budget: BufferBudget | None = None,
) -> QuicDoor:
    """Make the listener; its ``serve`` runs it."""
    quic, limits = config.quic, config.limits
    return QuicDoor(
        socket=datagrams,
        local=configure(quic, certificate, is_local=True),
        remote=configure(quic, certificate, is_local=False),
        limits=line_limits(
            quic,
            request=bounds.connection,
            request_bytes_max=limits.quic.max_request_backlog_bytes,
            reply_bytes_max=bounds.outbox_bytes_max,
            handshake_s=limits.quic.handshake_timeout_us / 1e6,
            stalled_s=bounds.stalled_s,
            idle_s=bounds.idle_s,
        ),
        plane=plane,
        connections_max=limits.quic.max_connections,
        handshakes_max=limits.quic.max_handshakes,
        connected=connected,
        gone=gone,
        clients=clients,
        resets=StatelessResets(reset_key),
        budget=budget or BufferBudget(UNBOUNDED_BYTES),
    )
