"""The nodes of a cluster as a server describes them."""

from __future__ import annotations

from enum import IntEnum

from iggy_protocol.records import record

__all__ = ["ClusterMetadata", "ClusterNode", "NodeRole", "NodeStatus"]


class NodeRole(IntEnum):
    """Which part a node plays."""

    LEADER = 0
    FOLLOWER = 1


class NodeStatus(IntEnum):
    """How a node is doing."""

    HEALTHY = 0
    STARTING = 1
    STOPPING = 2
    UNREACHABLE = 3
    MAINTENANCE = 4
    UNKNOWN = 5


@record
class ClusterNode:
    """A node and the ports of its transports."""

    name: str
    ip: str
    tcp_port: int
    quic_port: int
    http_port: int
    websocket_port: int
    role: NodeRole
    status: NodeStatus


@record
class ClusterMetadata:
    """A cluster; one that does not cluster is one healthy leader."""

    name: str
    nodes: tuple[ClusterNode, ...]
