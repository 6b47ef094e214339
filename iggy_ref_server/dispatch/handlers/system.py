"""The server itself: ping, clients, statistics, snapshot, options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from iggy_protocol import (
    ClientDetails,
    ClientInfo,
    ClusterMetadata,
    ClusterNode,
    ConsumerGroupMembership,
    DescribeOptions,
    GetClient,
    GetClients,
    GetClusterMetadata,
    GetMe,
    GetMetadataChanges,
    GetSnapshot,
    GetStats,
    MetadataChanges,
    NodeRole,
    NodeStatus,
    OptionDescription,
    Ping,
    Snapshot,
    Stats,
    StatusCode,
)
from iggy_ref_server.diagnostics import make_snapshot
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.options import describe_options as describe_known_options
from iggy_ref_server.metadata.views import view_totals

if TYPE_CHECKING:
    from iggy_ref_server.config.schema import OtherNodeConfig
    from iggy_ref_server.dispatch.context import HandlerContext
    from iggy_ref_server.groups.group import GroupKey
    from iggy_ref_server.host import Ports
    from iggy_ref_server.session import ClientSession


async def ping(context: HandlerContext, session: ClientSession, command: Ping) -> None:
    """Record a heartbeat."""
    context.clients.note_heartbeat(session.client_id, context.clock.now_us())


def _client_details(session: ClientSession, groups: tuple[GroupKey, ...]) -> ClientDetails:
    return ClientDetails(
        client_id=session.client_id,
        user_id=session.user_id,
        transport=session.transport,
        address=session.address,
        consumer_groups_count=len(groups),
        consumer_groups=tuple(ConsumerGroupMembership(*key) for key in groups),
    )


async def get_me(context: HandlerContext, session: ClientSession, command: GetMe) -> ClientDetails:
    """Show a client how the server sees it."""
    if session.is_evicted:
        raise ServerFault(StatusCode.CLIENT_NOT_FOUND, "the client missed its heartbeats")
    groups = await context.groups.memberships([session.member_id])
    return _client_details(session, groups.get(session.member_id, ()))


async def get_client(
    context: HandlerContext, session: ClientSession, command: GetClient
) -> ClientDetails | None:
    """Show one client with its groups."""
    for found in await context.cluster_view.sessions():
        if found.client_id == command.client_id:
            groups = await context.groups.memberships([found.member_id])
            return _client_details(found, groups.get(found.member_id, ()))
    return None


async def get_clients(
    context: HandlerContext, session: ClientSession, command: GetClients
) -> tuple[ClientInfo, ...]:
    """List all clients of all shards."""
    sessions = await context.cluster_view.sessions()
    groups = await context.groups.memberships([found.member_id for found in sessions])
    return tuple(
        ClientInfo(
            client_id=found.client_id,
            user_id=found.user_id,
            transport=found.transport,
            address=found.address,
            consumer_groups_count=len(groups.get(found.member_id, ())),
        )
        for found in sessions
    )


async def get_stats(context: HandlerContext, session: ClientSession, command: GetStats) -> Stats:
    """Return the statistics of the server."""
    statistics = await context.cluster_view.statistics()
    sessions = await context.cluster_view.sessions()
    return await context.host.stats(
        view_totals(context.metadata(), statistics.of),
        clients_count=len(sessions),
        # Only these clients are told, and counting takes time where many files are open.
        counts_open_files=session.dialect.is_vsr,
    )


async def get_snapshot(
    context: HandlerContext, session: ClientSession, command: GetSnapshot
) -> Snapshot:
    """Pack diagnostic files into an archive, without secrets."""
    archive = await trio.to_thread.run_sync(
        make_snapshot, context.config, command.types, command.compression
    )
    return Snapshot(archive)


async def describe_options(
    context: HandlerContext, session: ClientSession, command: DescribeOptions
) -> tuple[OptionDescription, ...]:
    """List the options of a kind of resource."""
    return describe_known_options(command.scope, session.dialect, context.settings)


async def get_metadata_changes(
    context: HandlerContext, session: ClientSession, command: GetMetadataChanges
) -> MetadataChanges:
    """List changes of the metadata, or its current state."""
    return context.history.read(command, context.metadata())


# The cluster metadata. This server is a single node; other nodes come from the configuration.


SINGLE_CLUSTER, SINGLE_NODE = "single-node", "iggy-node"


async def get_cluster_metadata(
    context: HandlerContext, session: ClientSession, command: GetClusterMetadata
) -> ClusterMetadata:
    """Describe the nodes of the cluster."""
    session.user(context.metadata())
    cluster, ports = context.config.cluster, context.host.ports
    if not cluster.enabled:
        alone = _node(SINGLE_NODE, context.host.ip, ports, NodeRole.LEADER)
        return ClusterMetadata(SINGLE_CLUSTER, (alone,))
    current_name, current_ip = cluster.node.current.name, cluster.node.current.ip
    if session.dialect.is_vsr:
        # Of two nodes they would ask which one has a partition; here this one has all of them.
        alone = _node(current_name, current_ip, ports, NodeRole.LEADER)
        return ClusterMetadata(cluster.name, (alone,))
    is_follower = context.host.is_follower
    own = NodeRole.FOLLOWER if is_follower else NodeRole.LEADER
    current = _node(current_name, current_ip, ports, own)
    # As in Apache Iggy: a follower reports itself as follower and every other node as leader.
    others = [_other(node, ports, is_follower) for node in cluster.node.others]
    return ClusterMetadata(cluster.name, (current, *others))


def _other(node: OtherNodeConfig, ports: Ports, is_leader: bool) -> ClusterNode:
    """Describe another node; ports that are not configured are the same as here."""
    chosen = type(ports)(
        *(own if other is None else other for own, other in zip(ports, _ports(node), strict=True))
    )
    return _node(node.name, node.ip, chosen, NodeRole.LEADER if is_leader else NodeRole.FOLLOWER)


def _ports(node: OtherNodeConfig) -> tuple[int | None, ...]:
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
