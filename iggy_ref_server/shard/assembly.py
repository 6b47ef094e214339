"""A shard: its components are made, opened, and closed in reverse.

    storage → metadata → channels → partitions → maintenance → listeners

A shard does not depend on processes. The supervisor runs one process per shard; tests and
simulations run many shards in one process, on one clock, with storage in memory.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from iggy_protocol import RequestReceived, StatusCode
from iggy_ref_server.client_limits import BufferBudget
from iggy_ref_server.clients import ClientEntry, ClientTable
from iggy_ref_server.dispatch.context import HandlerContext, SessionService
from iggy_ref_server.dispatch.conversion import Conversions
from iggy_ref_server.dispatch.deferred_slots import DeferredSlots
from iggy_ref_server.dispatch.dispatcher import Dispatcher, reply_for_error
from iggy_ref_server.dispatch.replies import CommandReply
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import GroupRegistry
from iggy_ref_server.host import Host
from iggy_ref_server.identity.credentials import Passwords
from iggy_ref_server.metadata.history import MetadataHistory
from iggy_ref_server.metadata.position import MetadataPosition
from iggy_ref_server.metadata.snapshot import decode_snapshot
from iggy_ref_server.metadata.state import Metadata, TopicRecord
from iggy_ref_server.net.pipeline import DRAIN_TIMEOUT_S, RequestPipeline
from iggy_ref_server.net.scheduler import RequestScheduler
from iggy_ref_server.net.socket_server import SocketServer
from iggy_ref_server.partitions.generation import (
    read_opened_generation,
    remove_partition_files,
    write_opened_generation,
)
from iggy_ref_server.partitions.partition import PartitionLog
from iggy_ref_server.shard import messages, settings
from iggy_ref_server.shard.call_handler import ShardCallHandler
from iggy_ref_server.shard.calls import (
    ShardClusterView,
    describe_request,
    describe_session,
)
from iggy_ref_server.shard.channel import ShardChannel
from iggy_ref_server.shard.group_calls import LocalGroups, RemoteGroups
from iggy_ref_server.shard.listener_table import ListenerContext, start_listeners
from iggy_ref_server.shard.maintenance import Maintenance
from iggy_ref_server.shard.membership_reports import MembershipReports
from iggy_ref_server.shard.metadata_service import MetadataService
from iggy_ref_server.shard.migration import ConnectionMigration, MigratedClient
from iggy_ref_server.shard.opening import open_metadata, prepare_logins
from iggy_ref_server.shard.partition_directory import PartitionDirectory, PartitionKey
from iggy_ref_server.shard.router import (
    PartitionRouter,
    RoundRobin,
    RoutingAppender,
    make_round_robin_memory,
    owner_shard,
)
from iggy_ref_server.shard.session_calls import (
    LocalSessions,
    RemoteSessions,
    end_on_this_shard,
)
from iggy_ref_server.shard.settings import buffer_budget_bytes
from iggy_ref_server.shard.stale_directories import remove_stale_directories

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

    from iggy_ref_server.partitions.lifecycle import UnsavedData
    from iggy_ref_server.session import ClientSession
    from iggy_ref_server.shard.spec import ShardSpec


LOGGER = logging.getLogger(__name__)


class Shard:
    """The components of one shard, connected to each other.

    Args:
        nursery: runs all tasks of the shard.

    Attributes:
        unsaved: the messages that could not be saved when the shard was closed.
    """

    def __init__(self, spec: ShardSpec, nursery: trio.Nursery) -> None:
        self._spec = spec
        self._nursery = nursery
        config = spec.config
        stored = settings.partition_settings(config)
        self._settings = replace(stored, writes_survived=spec.writes_survived)
        self.unsaved: dict[PartitionKey, UnsavedData] = {}
        shards_count = len(spec.peer_sockets) + 1
        self.budget = BufferBudget(
            buffer_budget_bytes(config.limits.memory_budget_bytes, shards_count)
        )
        self.clients = ClientTable(settings.unauthenticated_limits(config))
        self.directory = PartitionDirectory(
            self._is_local, self._open_partition, self._remove_files, self._note_opened
        )
        round_robin_memory = spec.round_robin_memory or make_round_robin_memory(shards_count)
        self._appender = RoutingAppender(
            lambda: self.metadata.current,
            RoundRobin(round_robin_memory, spec.shard_id),
            nursery,
            deduplicates=config.system.message_deduplication.enabled,
        )
        self._channels: dict[int, ShardChannel] = {}
        self._deferred = DeferredSlots()
        timeout_us = config.consumer_group.rebalancing_timeout_us
        registry = GroupRegistry(rebalancing_timeout_us=timeout_us)
        self._position = MetadataPosition(spec.position_memory)
        local_sessions = LocalSessions(
            self._position, spec.clock, registry, self._end_session, self._channels
        )
        self.metadata = self._make_metadata_service(registry, local_sessions)
        local_sessions.reports = MembershipReports(
            self.metadata.history,
            registry,
            local_sessions.table,
            lambda: self.metadata.current,
            spec.clock,
        )
        cluster_view = ShardClusterView(self.directory, self.clients, self._channels)
        self._call_handler = self._make_call_handler(cluster_view, local_sessions)
        for shard_id, peer_socket in spec.peer_sockets.items():
            self._channels[shard_id] = ShardChannel(peer_socket, self._call_handler, self.budget)
        self._router = PartitionRouter(
            spec.shard_id, self._channels, self.directory, self._appender.mark_uncommitted
        )
        self._appender.use_router(self._router)
        self._sessions: SessionService = (
            RemoteSessions(self._channels[0]) if spec.shard_id else local_sessions
        )
        self.handler_context = self._make_handler_context(registry, cluster_view)
        dispatcher = Dispatcher(self.handler_context, self._forward if spec.shard_id else None)
        self._call_handler.serve_requests(dispatcher.handle)
        self.scheduler = RequestScheduler(self._appender, dispatcher, nursery)
        self._migration = ConnectionMigration(
            spec.migration_sockets,
            self._last_seen_us,
            self._on_client_left,
            lambda: self.metadata.current.version,
        )
        self.socket_server = self._make_socket_server()

    def _make_call_handler(
        self, cluster_view: ShardClusterView, local_sessions: LocalSessions
    ) -> ShardCallHandler:
        """Make what carries out the calls of other shards."""
        return ShardCallHandler(
            self.directory,
            self._appender,
            cluster_view,
            self.metadata,
            self._nursery,
            self.budget.reply_allowance,
            self._end_session,
            None if self._spec.shard_id else local_sessions,
        )

    def _make_socket_server(self) -> SocketServer:
        """Make what serves the sockets of clients."""
        spec = self._spec
        return SocketServer(
            self.scheduler,
            settings.socket_limits(spec.config, self.budget.limit_bytes),
            self._nursery,
            self._on_client_gone,
            self._migration if spec.migration_sockets else None,
            self.budget,
        )

    def _make_metadata_service(
        self, registry: GroupRegistry, local_sessions: LocalSessions
    ) -> MetadataService:
        """Make the metadata of this shard; they are empty until it is opened."""
        spec = self._spec
        stored = settings.metadata_settings(spec.config)
        return MetadataService(
            Metadata.EMPTY,
            self._channels,
            self._apply_to_partitions,
            registry,
            self._position,
            MetadataHistory(self._position, stored, spec.random_bytes),
            local_sessions.follow_user,
        )

    def _make_handler_context(
        self, registry: GroupRegistry, cluster_view: ShardClusterView
    ) -> HandlerContext:
        """Make the context of the command handlers."""
        spec, config = self._spec, self._spec.config
        return HandlerContext(
            shard_id=spec.shard_id,
            config=config,
            settings=settings.metadata_settings(config),
            clock=spec.clock,
            passwords=spec.passwords
            or Passwords(waiting_max=config.limits.max_login_queue, cores=spec.cores),
            host=Host(
                clock=spec.clock,
                storage=spec.storage,
                ports=spec.ports,
                ip=spec.ip,
                is_follower=spec.is_follower,
                started_at_us=spec.clock.now_us(),
            ),
            clients=self.clients,
            groups=RemoteGroups(self._channels[0]) if spec.shard_id else LocalGroups(registry),
            cluster_view=cluster_view,
            metadata=lambda: self.metadata.current,
            partition_client=self._router.client_for,
            appender=self._appender,
            random_bytes=spec.random_bytes,
            change=self.metadata.change,
            registry=registry,
            position=self._position,
            history=self.metadata.history,
            sessions=self._sessions,
            deferred=self._deferred,
            conversions=Conversions(self.budget.hold_for_shards),
            poll_bytes_max=self.budget.reply_allowance,
        )

    # Opening and closing

    async def open(self) -> None:
        """Open metadata, channels and partitions; start the tasks of the shard.

        Calls of other shards about partitions, groups and clients are deferred until then.
        """
        if self._spec.shard_id == 0:
            passwords = self.handler_context.passwords
            store = await open_metadata(self._spec, self.handler_context.settings, passwords)
            self.metadata.become_writer(store, self._spec.clock.now_us())
            await remove_stale_directories(
                self._spec.storage, self._spec.config.system, store.current
            )
        opened_generation = await read_opened_generation(self._spec.storage)
        self._settings = replace(self._settings, opened_generation=opened_generation)
        for channel in self._channels.values():
            # It returns when the other shard ends; the supervisor acts on that.
            self._nursery.start_soon(channel.run)
        async with trio.open_nursery() as opening:
            if self._spec.shard_id == 0:
                opening.start_soon(self._prepare_logins, self.metadata.current)
                await self.directory.follow(self.metadata.current)
            else:
                _, snapshot = await self._channels[0].call(messages.SnapshotCall())
                metadata = decode_snapshot(bytes(snapshot))
                opening.start_soon(self._prepare_logins, metadata)
                await self.metadata.load_snapshot(metadata)
        self._call_handler.open()
        self._nursery.start_soon(self.socket_server.run)
        self._nursery.start_soon(self._migration.run, self._on_migrated)
        maintenance = Maintenance(
            self.handler_context, self.directory, self.socket_server, self._evict, self.budget
        )
        self._nursery.start_soon(maintenance.run)

    async def _prepare_logins(self, metadata: Metadata) -> None:
        await prepare_logins(self.handler_context.passwords, metadata, self._spec.given_root)

    async def listen(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run the listeners until cancelled."""
        listener_context = ListenerContext(
            config=self._spec.config,
            storage=self._spec.storage,
            scheduler=self.scheduler,
            socket_server=self.socket_server,
            handler_context=self.handler_context,
            clients=self.clients,
            budget=self.budget,
            nursery=self._nursery,
            on_connect=self._on_connected,
            on_disconnect=self._on_client_gone,
        )
        async with trio.open_nursery() as nursery:
            await start_listeners(self._spec.bound_by_listener, listener_context, nursery)
            task_status.started()

    def serve_socket(self, connected: socket.socket, session: ClientSession) -> None:
        """Serve a client on a connected socket, such as one end of a pair."""
        self._on_connected(self.socket_server.admit(connected, session))

    async def drain(self) -> None:
        """Send outstanding replies, and close all connections."""
        with trio.CancelScope(shield=True), trio.move_on_after(DRAIN_TIMEOUT_S):
            await self.socket_server.drain(StatusCode.DISCONNECTED)
        self.socket_server.close_all()

    async def aclose(self) -> None:
        """Flush and close the partitions."""
        await self.drain()
        self.unsaved = await self.directory.aclose()
        await self._spec.storage.aclose()

    # Partitions

    def _is_local(self, key: PartitionKey) -> bool:
        return owner_shard(key, len(self._spec.peer_sockets) + 1) == self._spec.shard_id

    async def _open_partition(
        self, key: PartitionKey, topic: TopicRecord, generation: int
    ) -> PartitionLog:
        spec = self._spec
        path = spec.config.system.partition_path(*key)
        stored = settings.topic_partition_settings(self._settings, topic)
        return await PartitionLog.open(
            spec.storage, spec.clock, stored, path, generation=generation
        )

    async def _note_opened(self, generation: int) -> None:
        spec = self._spec
        shards_count = len(spec.peer_sockets) + 1
        await write_opened_generation(
            spec.storage, spec.shard_id, shards_count=shards_count, generation=generation
        )

    async def _remove_files(self, key: PartitionKey) -> None:
        await remove_partition_files(
            self._spec.storage, self._spec.config.system.partition_path(*key)
        )

    async def _apply_to_partitions(self, metadata: Metadata) -> None:
        try:
            await self.directory.follow(metadata)
        except Exception as error:
            # The change is final, and the partitions of this shard do not match it. It must not
            # serve any client.
            LOGGER.critical("the shard cannot apply a metadata change and ends: %s", error)
            self._nursery.start_soon(_raise, error)
        self._router.invalidate()

    # Clients

    def _on_connected(self, pipeline: RequestPipeline) -> None:
        self._add_client(pipeline, self._spec.clock.now_us())

    def _add_client(self, pipeline: RequestPipeline, last_seen_us: int) -> None:
        self.clients.add(
            ClientEntry(
                pipeline.session, pipeline.end, last_seen_us, pipeline.abort, pipeline.close_with
            )
        )

    def _last_seen_us(self, session: ClientSession) -> int:
        client = self.clients.get(session.client_id)
        return self._spec.clock.now_us() if client is None else client.last_seen_us

    def _on_client_left(self, session: ClientSession) -> None:
        """Forget a client that has migrated; its group memberships stay."""
        self.clients.remove(session)

    def _on_migrated(self, connected: socket.socket, migrated: MigratedClient) -> None:
        self._nursery.start_soon(self._adopt_client, connected, migrated)

    async def _adopt_client(self, connected: socket.socket, migrated: MigratedClient) -> None:
        """Continue a client of another shard, once the metadata here are as new as there.

        Its session may have ended when neither shard had the connection, so shard 0 is asked.
        """
        session = migrated.session

        def admit() -> None:
            pipeline = self.socket_server.admit(
                connected, session, migrated.unread, is_vsr=migrated.is_vsr
            )
            self._add_client(pipeline, migrated.last_seen_us)

        try:
            await self.metadata.wait_for_version(migrated.metadata_version)
            if session.binding is None:
                admit()
            else:
                # The end of the channel ends the call, so nothing has to cancel it.
                with trio.CancelScope(shield=True):
                    await self._sessions.check(session.binding.session, admit)
        except ServerFault as fault:
            if fault.status != StatusCode.UNAUTHENTICATED:  # shard 0 has ended, and so will this
                connected.close()
                return
            session.log_out()
            admit()
        except BaseException:
            connected.close()
            raise

    def _on_client_gone(self, session: ClientSession) -> None:
        """Forget a client whose connection has ended, here, in its groups and in its session."""
        if session.attached_session:
            self._sessions.release(session.attached_session)
        if self.clients.remove(session):
            self._leave_groups(session.client_id)

    def _end_session(self, number: int) -> None:
        end_on_this_shard(self.clients, self._deferred, number)

    def _evict(self, client: ClientEntry) -> None:
        """Remove a client without heartbeats from its groups.

        A classic client keeps its connection and is told with its next request. From 0.9 on the
        server tells it at once, and closes.
        """
        session = client.session
        session.is_evicted = True
        self._leave_groups(session.client_id)
        if session.binding is not None:
            if client.close_with is None:
                client.close()
            else:
                client.close_with(StatusCode.STALE_CLIENT)

    def _leave_groups(self, client_id: int) -> None:
        if self._spec.shard_id == 0:
            self.handler_context.registry.remove_member(client_id)
        else:
            self._channels[0].call_nowait(
                messages.ClientGoneCall(client_id), (), lambda message, payload: None
            )

    # Requests that only shard 0 can handle

    async def _forward(self, session: ClientSession, request: RequestReceived) -> CommandReply:
        if session.user_id is not None:
            # A user that was deleted gets an error here, where the connection can be closed.
            session.user(self.metadata.current)
        try:
            request_id = request.request_id
            forwarded = messages.ForwardCall(
                describe_session(session),
                request.code,
                None if request_id is None else describe_request(request_id),
            )
            reply, payload = await self._channels[0].call(forwarded, [request.payload])
        except ServerFault as fault:
            return reply_for_error(fault)
        assert isinstance(reply, messages.ShardReply)
        # Shard 0 may be ahead of this replica; the client must not see an older state next.
        await self.metadata.wait_for_version(reply.version)
        parts = (payload,) if payload.nbytes else ()
        return CommandReply(reply.status, parts, reply.is_final, reply.position)


async def _raise(error: Exception) -> None:
    """End the shard: an error in its nursery cancels all tasks."""
    raise error


@asynccontextmanager
async def open_shard(spec: ShardSpec) -> AsyncIterator[Shard]:
    """Open a shard, and close it at the end of the block."""
    async with trio.open_nursery() as nursery:
        shard = Shard(spec, nursery)
        await shard.open()
        try:
            yield shard
        finally:
            with trio.CancelScope(shield=True):
                await shard.aclose()
            nursery.cancel_scope.cancel()
