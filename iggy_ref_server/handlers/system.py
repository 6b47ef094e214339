"""The server itself: ping, clients, statistics, snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from iggy_protocol import (
    ClientDetails,
    ClientInfo,
    ConsumerGroupMembership,
    GetClient,
    GetClients,
    GetMe,
    GetSnapshot,
    GetStats,
    Ping,
    Snapshot,
    StatusCode,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.handlers.table import handles
from iggy_ref_server.metadata.views import view_totals
from iggy_ref_server.snapshots import make_snapshot

if TYPE_CHECKING:
    from iggy_protocol import Stats
    from iggy_ref_server.groups.registry import GroupKey
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.session import Session


@handles(Ping, is_public=True)
async def ping(office: Office, session: Session, command: Ping) -> None:
    """Record a heartbeat."""
    office.clients.seen(session.client_id, office.clock.now_us())


def _details(session: Session, groups: tuple[GroupKey, ...]) -> ClientDetails:
    return ClientDetails(
        client_id=session.client_id,
        user_id=session.user_id,
        transport=session.transport,
        address=session.address,
        consumer_groups_count=len(groups),
        consumer_groups=tuple(ConsumerGroupMembership(*key) for key in groups),
    )


@handles(GetMe)
async def get_me(office: Office, session: Session, command: GetMe) -> ClientDetails:
    """Show a client how the server sees it."""
    if session.is_evicted:
        raise ServerFault(StatusCode.CLIENT_NOT_FOUND, "the client missed its heartbeats")
    groups = await office.groups.memberships([session.client_id])
    return _details(session, groups.get(session.client_id, ()))


@handles(GetClient, right_first=True)
async def get_client(office: Office, session: Session, command: GetClient) -> ClientDetails | None:
    """Show one client with its groups."""
    for found in await office.census.sessions():
        if found.client_id == command.client_id:
            groups = await office.groups.memberships([found.client_id])
            return _details(found, groups.get(found.client_id, ()))
    return None


@handles(GetClients, right_first=True)
async def get_clients(
    office: Office, session: Session, command: GetClients
) -> tuple[ClientInfo, ...]:
    """List all clients of all shards."""
    sessions = await office.census.sessions()
    groups = await office.groups.memberships([found.client_id for found in sessions])
    return tuple(
        ClientInfo(
            client_id=found.client_id,
            user_id=found.user_id,
            transport=found.transport,
            address=found.address,
            consumer_groups_count=len(groups.get(found.client_id, ())),
        )
        for found in sessions
    )


@handles(GetStats, right_first=True)
async def get_stats(office: Office, session: Session, command: GetStats) -> Stats:
    """Return the statistics of the server."""
    figures = await office.census.figures()
    sessions = await office.census.sessions()
    return await office.host.stats(
        view_totals(office.metadata(), figures.of), clients_count=len(sessions)
    )


@handles(GetSnapshot, right_first=True)
async def get_snapshot(office: Office, session: Session, command: GetSnapshot) -> Snapshot:
    """Pack diagnostic files into an archive, without secrets."""
    archive = await trio.to_thread.run_sync(
        make_snapshot, office.config, command.types, command.compression
    )
    return Snapshot(archive)
