"""Finding the leader of the cluster; without metadata the client stays where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iggy_protocol import ClusterMetadata, ClusterNode, GetClusterMetadata, NodeRole, NodeStatus
from iggy_sdk.connection_string import Endpoint, TransportName
from iggy_sdk.errors import IggyError

if TYPE_CHECKING:
    from iggy_sdk.options import ClientOptions
    from iggy_sdk.session.interface import Session


# Host names and wildcards that mean an address of this machine.
_SAME_HOST: Final = {"localhost": "127.0.0.1", "::": "::1"}


async def find_leader(
    session: Session, endpoint: Endpoint, options: ClientOptions
) -> Endpoint | None:
    """Request the cluster metadata and return the leader; None means to stay with this server.

    Raises:
        IggyError: the connection ended meanwhile.
    """
    try:
        metadata = await session.request(GetClusterMetadata(), timeout=options.connect_timeout)
    except IggyError:
        if session.failure is not None:
            raise
        return None
    return choose_leader(metadata, endpoint, transport=options.transport)


def choose_leader(
    metadata: ClusterMetadata, endpoint: Endpoint, *, transport: TransportName
) -> Endpoint | None:
    """Return the healthy leader of a cluster, unless it is this endpoint or there is none."""
    if len(metadata.nodes) < 2:
        return None
    for node in metadata.nodes:
        if node.role is NodeRole.LEADER and node.status is NodeStatus.HEALTHY:
            leader = Endpoint(node.ip, _port_of_transport(node, transport))
            return None if _is_same_endpoint(leader, endpoint) else leader
    return None


def _port_of_transport(node: ClusterNode, transport: TransportName) -> int:
    ports: dict[TransportName, int] = {
        "tcp": node.tcp_port,
        "quic": node.quic_port,
        "http": node.http_port,
        "ws": node.websocket_port,
    }
    return ports[transport]


def _is_same_endpoint(left: Endpoint, right: Endpoint) -> bool:
    return left.port == right.port and _canonical_host(left.host) == _canonical_host(right.host)


def _canonical_host(host: str) -> str:
    bare = host.strip("[]").lower()
    return _SAME_HOST.get(bare, bare)
