"""The nodes of the cluster and their leader; without metadata the client stays where it is."""

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


NODES_MAX: Final = 64
"""How many nodes of a cluster are remembered; those of Apache Iggy have up to seven."""


class Cluster:
    """The nodes that a server has told last; none where it is the only one."""

    def __init__(self, options: ClientOptions) -> None:
        """Take the options of a client, which name the transport."""
        self._options = options
        self._nodes: tuple[ClusterNode, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether there are several nodes."""
        return bool(self._nodes)

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where the nodes are that have a port for the transport of the client."""
        found = [_endpoint_of(node, self._options.transport) for node in self._nodes]
        return [endpoint for endpoint in found if endpoint.port]

    async def find_leader(self, session: Session, endpoint: Endpoint) -> Endpoint | None:
        """Request the cluster metadata and return the leader; None means to stay with this server.

        Raises:
            IggyError: the connection ended meanwhile.
        """
        try:
            metadata = await session.request(
                GetClusterMetadata(), timeout=self._options.connect_timeout
            )
        except IggyError:
            if session.failure is not None:
                raise
            return None
        # A single node may tell an address that only itself can reach.
        self._nodes = metadata.nodes[:NODES_MAX] if len(metadata.nodes) > 1 else ()
        return choose_leader(metadata, endpoint, transport=self._options.transport)

    def find_node(self, replica_id: int, here: Endpoint) -> Endpoint | None:
        """Return where another node is; None if it is this one, or cannot be told from it."""
        places = {
            node.replica_id: _endpoint_of(node, self._options.transport) for node in self._nodes
        }
        found = places.get(replica_id)
        if found is None or not found.port or len(places) < len(self._nodes):
            return None
        is_member = any(_is_same_endpoint(place, here) for place in places.values())
        return found if is_member and not _is_same_endpoint(found, here) else None


def choose_leader(
    metadata: ClusterMetadata, endpoint: Endpoint, *, transport: TransportName
) -> Endpoint | None:
    """Return the healthy leader of a cluster, unless it is this endpoint or there is none."""
    if len(metadata.nodes) < 2:
        return None
    for node in metadata.nodes:
        if node.role is NodeRole.LEADER and node.status is NodeStatus.HEALTHY:
            leader = _endpoint_of(node, transport)
            return None if _is_same_endpoint(leader, endpoint) else leader
    return None


def _endpoint_of(node: ClusterNode, transport: TransportName) -> Endpoint:
    ports: dict[TransportName, int] = {
        "tcp": node.tcp_port,
        "quic": node.quic_port,
        "http": node.http_port,
        "ws": node.websocket_port,
    }
    return Endpoint(node.ip, ports[transport])


def _is_same_endpoint(left: Endpoint, right: Endpoint) -> bool:
    return left.port == right.port and _canonical_host(left.host) == _canonical_host(right.host)


def _canonical_host(host: str) -> str:
    bare = host.strip("[]").lower()
    return _SAME_HOST.get(bare, bare)
