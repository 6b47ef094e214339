"""The cluster: its nodes, the leader and the ports."""

from __future__ import annotations

from iggy_protocol.codes import CommandCode
from iggy_protocol.fields import Counted, Record
from iggy_protocol.model.cluster import ClusterMetadata, ClusterNode, NodeRole, NodeStatus
from iggy_protocol.primitives import TEXT, U16, discriminant
from iggy_protocol.records import record
from iggy_protocol.registry import Command, command, one

__all__ = ["GetClusterMetadata"]

NODE = Record(
    ClusterNode,
    "name" / TEXT,
    "ip" / TEXT,
    "tcp_port" / U16,
    "quic_port" / U16,
    "http_port" / U16,
    "websocket_port" / U16,
    "role" / discriminant(NodeRole),
    "status" / discriminant(NodeStatus),
)

CLUSTER_METADATA = Record(ClusterMetadata, "name" / TEXT, "nodes" / Counted(NODE, count_size=4))


@command(CommandCode.GET_CLUSTER_METADATA, reply=one(CLUSTER_METADATA, "ClusterMetadata"))
@record
class GetClusterMetadata(Command[ClusterMetadata]):
    """Ask for the nodes of the cluster; clients do so after each login."""
