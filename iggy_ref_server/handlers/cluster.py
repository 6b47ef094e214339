"""The cluster metadata. This server is a single node; other nodes come from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import (
    ClusterMetadata,
    ClusterNode,
    GetClusterMetadata,
    NodeRole,
    NodeStatus,
)
from iggy_ref_server.handlers.table import handles

if TYPE_CHECKING:
    from iggy_ref_server.config import OtherNode
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.host import Ports
    from iggy_ref_server.session import Session

SINGLE_CLUSTER, SINGLE_NODE = "single-node", "iggy-node"


@handles(GetClusterMetadata)
async def get_cluster_metadata(
    office: Office, session: Session, command: GetClusterMetadata
) -> ClusterMetadata:
    """Describe the nodes of the cluster."""
    session.user(office.metadata())
    cluster, ports = office.config.cluster, office.host.ports
    if not cluster.enabled:
        alone = _node(SINGLE_NODE, office.host.ip, ports, NodeRole.LEADER)
        return ClusterMetadata(SINGLE_CLUSTER, (alone,))
    is_follower = office.host.is_follower
    own = NodeRole.FOLLOWER if is_follower else NodeRole.LEADER
    current = _node(cluster.node.current.name, cluster.node.current.ip, ports, own)
    # As in Apache Iggy: a follower reports itself as follower and every other node as leader.
    others = [_other(node, ports, is_follower) for node in cluster.node.others]
    return ClusterMetadata(cluster.name, (current, *others))


def _other(node: OtherNode, ports: Ports, is_leader: bool) -> ClusterNode:
    """Describe another node; ports that are not configured are the same as here."""
    chosen = type(ports)(
        *(own if other is None else other for own, other in zip(ports, _ports(node), strict=True))
    )
    return _node(node.name, node.ip, chosen, NodeRole.LEADER if is_leader else NodeRole.FOLLOWER)


def _ports(node: OtherNode) -> tuple[int | None, ...]:
    return (node.ports.tcp, node.ports.quic, node.ports.http, node.ports.websocket)


def _node(name: str, ip: str, ports: Ports, role: NodeRole) -> ClusterNode:
    return ClusterNode(
        name=name,
        ip=ip,
        tcp_port=ports.tcp,
        quic_port=ports.quic,
        http_port=ports.http,
        websocket_port=ports.websocket,
        role=role,
        status=NodeStatus.HEALTHY,
    )
