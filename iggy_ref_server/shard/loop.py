"""A shard: its components are made, opened, and closed in reverse.

    storage → metadata → channels → partitions → maintenance → listeners

A shard does not depend on processes. The supervisor runs one process per shard; tests and
simulations run many shards in one process, on one clock, with storage in memory.
"""

from __future__ import annotations

import logging
import mmap
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING

import trio

from iggy_protocol import StatusCode, record
from iggy_ref_server.clients import Client, Clients
from iggy_ref_server.clock import Clock
from iggy_ref_server.config import RootCredentials, ServerConfig
from iggy_ref_server.data_plane.answers import Answer
from iggy_ref_server.data_plane.budget import BufferBudget
from iggy_ref_server.data_plane.lingering import STOP_CLIENTS_S
from iggy_ref_server.data_plane.plane import DataPlane
from iggy_ref_server.data_plane.sockets import SocketRoom
from iggy_ref_server.data_plane.streams import StreamRoom
from iggy_ref_server.dispatch import Dispatcher, answer_for
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.registry import GroupRegistry
from iggy_ref_server.handlers.office import Office
from iggy_ref_server.host import Host, Ports
from iggy_ref_server.identity.passwords import Passwords
from iggy_ref_server.metadata.importer import import_once
from iggy_ref_server.metadata.plan_context import PlanContext
from iggy_ref_server.metadata.plan_tokens import plan_expire_tokens
from iggy_ref_server.metadata.plan_users import plan_create_root
from iggy_ref_server.metadata.reading import demand_metadata
from iggy_ref_server.metadata.records import ROOT_USER_ID
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.metadata.store import MetadataStore
from iggy_ref_server.partitions import Partition, remove_files
from iggy_ref_server.partitions.opened import read_opened, write_opened
from iggy_ref_server.shard import letters, settings
from iggy_ref_server.shard.appends import SendAppends
from iggy_ref_server.shard.census import Census, caller_of
from iggy_ref_server.shard.directory import PartitionDirectory
from iggy_ref_server.shard.entrances import Entrance, Rooms, open_entrances
from iggy_ref_server.shard.group_desk import GroupsHere, GroupsThere
from iggy_ref_server.shard.handover import Arrival, Handover
from iggy_ref_server.shard.leftovers import remove_leftovers
from iggy_ref_server.shard.maintenance import Maintenance
from iggy_ref_server.shard.memory import budget_bytes
from iggy_ref_server.shard.metadata_desk import MetadataDesk
from iggy_ref_server.shard.post_office import PostOffice
from iggy_ref_server.shard.router import Router, owner_of
from iggy_ref_server.shard.turns import Turns, share_turns
from iggy_ref_server.shard.wall import Hatch
from iggy_ref_server.storage.interface import Storage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iggy_protocol import RequestReceived
    from iggy_ref_server.data_plane.link import Link
    from iggy_ref_server.partitions import Unsaved
    from iggy_ref_server.session import Session
    from iggy_ref_server.shard.directory import PartitionKey

__all__ = ["Shard", "ShardPlan", "open_shard"]

LOGGER = logging.getLogger(__name__)

DEFAULT_PORTS = Ports()


@record(kw_only=True)
class ShardPlan:
    """Everything that a shard is given.

    Attributes:
        shard_id: shard 0 writes the metadata.
        root: returns the credentials of the root user, where a new data directory needs them.
        neighbours: sockets of the channels to the other shards, by their ids.
        passages: sockets for connection migration; none where connections do not migrate.
        turns: the counters of balanced sends, shared by all shards.
        entrances: the bound sockets of this shard, by the name of the listener.
        ports: the ports of the server's listeners.
        ip: the address of the TCP listener.
        is_follower: whether this node reports itself as a follower.
        writes_survived: whether the machine has not rebooted since a server last used the data.
        random_bytes: the source of ids and tokens.
    """

    shard_id: int
    config: ServerConfig
    storage: Storage
    clock: Clock
    root: Callable[[], RootCredentials]
    neighbours: Mapping[int, trio.socket.SocketType] = field(default_factory=dict)
    passages: Mapping[int, socket.socket] = field(default_factory=dict)
    passwords: Passwords | None = None
    turns: mmap.mmap | None = None
    entrances: Mapping[str, Entrance] = field(default_factory=dict)
    ports: Ports = DEFAULT_PORTS
    ip: str = "127.0.0.1"
    is_follower: bool = False
    writes_survived: bool = False
    random_bytes: Callable[[int], bytes] = secrets.token_bytes


class Shard:
    """The components of one shard, connected to each other.

    Args:
        nursery: runs all tasks of the shard.

    Attributes:
        unsaved: the messages that could not be saved when the shard was closed.
    """

    def __init__(self, plan: ShardPlan, nursery: trio.Nursery) -> None:
        self._plan = plan
        self._nursery = nursery
        config = plan.config
        self._settings = replace(
            settings.partition_settings(config), writes_survived=plan.writes_survived
        )
        self.unsaved: dict[PartitionKey, Unsaved] = {}
        shards_count = len(plan.neighbours) + 1
        self.budget = BufferBudget(budget_bytes(config.limits.memory_budget_bytes, shards_count))
        self.clients = Clients(settings.unauthenticated_limits(config))
        self.directory = PartitionDirectory(
            self._is_mine, self._open_partition, self._remove_files, self._note_opened
        )
        self._appends = SendAppends(
            lambda: self.metadata.current,
            Turns(plan.turns or share_turns(shards_count), plan.shard_id),
            nursery,
        )
        self._hatches: dict[int, Hatch] = {}
        registry = GroupRegistry(
            rebalancing_timeout_us=config.consumer_group.rebalancing_timeout_us
        )
        self.metadata = MetadataDesk(Metadata.EMPTY, self._hatches, self._settle, registry)
        census = Census(self.directory, self.clients, self._hatches)
        self._post = PostOffice(
            self.directory, self._appends, census, self.metadata, nursery, self.budget.share
        )
        for shard_id, neighbour in plan.neighbours.items():
            self._hatches[shard_id] = Hatch(neighbour, self._post, self.budget)
        self._router = Router(plan.shard_id, self._hatches, self.directory, self._appends.touched)
        self._appends.use(self._router)
        self.office = self._handler_context(registry, census)
        dispatcher = Dispatcher(self.office, self._forward if plan.shard_id else None)
        self._post.serve_requests(dispatcher.answer)
        self.plane = DataPlane(self._appends, dispatcher, nursery)
        limits = settings.socket_limits(config, self.budget.limit_bytes)
        self._handover = Handover(
            plan.passages, self._last_seen_us, self._left, lambda: self.metadata.current.version
        )
        mover = self._handover if plan.passages else None
        self.room = SocketRoom(self.plane, limits, nursery, self._gone, mover, self.budget)
        self.streams = StreamRoom(self.plane, limits, self._connected, budget=self.budget)
        self.websockets = self._websocket_room()

    def _handler_context(self, registry: GroupRegistry, census: Census) -> Office:
        """Make the context of the command handlers."""
        plan, config = self._plan, self._plan.config
        return Office(
            shard_id=plan.shard_id,
            config=config,
            settings=settings.metadata_settings(config),
            clock=plan.clock,
            passwords=plan.passwords or Passwords(waiting_max=config.limits.max_login_queue),
            host=Host(
                clock=plan.clock,
                storage=plan.storage,
                ports=plan.ports,
                ip=plan.ip,
                is_follower=plan.is_follower,
                started_at_us=plan.clock.now_us(),
            ),
            clients=self.clients,
            groups=GroupsThere(self._hatches[0]) if plan.shard_id else GroupsHere(registry),
            census=census,
            metadata=lambda: self.metadata.current,
            door=self._router.door,
            random_bytes=plan.random_bytes,
            change=self.metadata.change,
            registry=registry,
            poll_bytes_max=self.budget.share,
        )

    def _websocket_room(self) -> StreamRoom:
        config = self._plan.config
        return StreamRoom(
            self.plane,
            settings.websocket_limits(config, self.budget.limit_bytes),
            self._connected,
            receive_bytes=settings.websocket_receive_bytes(config),
            budget=self.budget,
        )

    # Opening and closing

    async def open(self) -> None:
        """Open metadata, channels and partitions; start the tasks of the shard.

        Calls of other shards about partitions, groups and clients are deferred until then.
        """
        if self._plan.shard_id == 0:
            await self._open_metadata()
        opened_generation = await read_opened(self._plan.storage)
        self._settings = replace(self._settings, opened_generation=opened_generation)
        for hatch in self._hatches.values():
            self._nursery.start_soon(self._carry, hatch)
        if self._plan.shard_id == 0:
            await self.directory.follow(self.metadata.current)
        else:
            _, snapshot = await self._hatches[0].ask(letters.Hello())
            await self.metadata.begin(bytes(snapshot))
        self._post.open()
        self._nursery.start_soon(self.room.run)
        self._nursery.start_soon(self._handover.run, self._arrived)
        chores = Maintenance(self.office, self.directory, self.room, self._evict, self.budget)
        self._nursery.start_soon(chores.run)

    async def _open_metadata(self) -> None:
        plan, cipher = self._plan, settings.cipher_of(self._plan.config)
        await demand_metadata(plan.storage, plan.config.system.stream.path)
        store = await MetadataStore.open(plan.storage, plan.clock, encryptor=cipher)
        await import_once(store, plan.storage, self.office.settings, encryptor=cipher)
        context = PlanContext(now_us=plan.clock.now_us(), settings=self.office.settings)
        try:
            await store.change(lambda metadata: plan_expire_tokens(metadata, context))
        except ServerFault as fault:  # such as a full disk; logins check the expiry themselves
            LOGGER.warning("expired tokens cannot be removed now: %s", fault)
        if store.current.users.find(ROOT_USER_ID) is None:
            await self._make_root(store, context)
        self.metadata.write_to(store)
        await remove_leftovers(plan.storage, plan.config.system, store.current)

    async def _make_root(self, store: MetadataStore, context: PlanContext) -> None:
        """Create the root user: in a new data directory, or where it was lost."""
        root, users = self._plan.root(), store.current.users
        name = root.username
        while name in users.id_by_name:
            name += "-root"
        if users:
            LOGGER.warning("the root user is missing: %r is created", name)
        password_hash = await self.office.passwords.hash(root.password)
        await store.change(
            lambda metadata: plan_create_root(metadata, name, password_hash, context)
        )

    async def listen(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run the listeners until cancelled."""
        rooms = Rooms(
            config=self._plan.config,
            storage=self._plan.storage,
            plane=self.plane,
            room=self.room,
            streams=self.streams,
            websockets=self.websockets,
            office=self.office,
            appends=self._appends,
            clients=self.clients,
            budget=self.budget,
            nursery=self._nursery,
            connected=self._connected,
            gone=self._gone,
        )
        async with trio.open_nursery() as nursery:
            await open_entrances(self._plan.entrances, rooms, nursery)
            task_status.started()

    async def serve_stream(self, stream: trio.abc.Stream, session: Session) -> None:
        """Serve a client over a trio stream, such as one in memory."""
        try:
            await self.streams.serve(stream, session)
        finally:
            self._gone(session)

    async def drain(self) -> None:
        """Send outstanding replies, and close all connections."""
        with trio.CancelScope(shield=True), trio.move_on_after(STOP_CLIENTS_S):
            async with trio.open_nursery() as nursery:
                for room in (self.room, self.streams, self.websockets):
                    nursery.start_soon(room.drain, StatusCode.DISCONNECTED)
        for room in (self.room, self.streams, self.websockets):
            room.hang_up()

    async def aclose(self) -> None:
        """Flush and close the partitions."""
        await self.drain()
        self.unsaved = await self.directory.aclose()
        await self._plan.storage.aclose()

    async def _carry(self, hatch: Hatch) -> None:
        """Run a channel; when the other shard ends, the supervisor acts."""
        await hatch.run()

    # Partitions

    def _is_mine(self, key: PartitionKey) -> bool:
        return owner_of(key, len(self._plan.neighbours) + 1) == self._plan.shard_id

    async def _open_partition(self, key: PartitionKey, incarnation: int) -> Partition:
        path = self._plan.config.system.partition_path(*key)
        plan = self._plan
        return await Partition.open(
            plan.storage, plan.clock, self._settings, path, incarnation=incarnation
        )

    async def _note_opened(self, generation: int) -> None:
        plan = self._plan
        shards_count = len(plan.neighbours) + 1
        await write_opened(
            plan.storage, plan.shard_id, shards_count=shards_count, generation=generation
        )

    async def _remove_files(self, key: PartitionKey) -> None:
        await remove_files(self._plan.storage, self._plan.config.system.partition_path(*key))

    async def _settle(self, metadata: Metadata) -> None:
        try:
            await self.directory.follow(metadata)
        except Exception as error:
            # The change is final, and the partitions of this shard do not match it. It must not
            # serve any client.
            LOGGER.critical("the shard cannot apply a metadata change and ends: %s", error)
            self._nursery.start_soon(_fail, error)
        self._router.forget()

    # Clients

    def _connected(self, link: Link) -> None:
        now_us = self._plan.clock.now_us()
        self.clients.add(Client(link.session, link.end, now_us, link.abort))

    def _last_seen_us(self, session: Session) -> int:
        client = self.clients.get(session.client_id)
        return self._plan.clock.now_us() if client is None else client.last_seen_us

    def _left(self, session: Session) -> None:
        """Forget a client that has migrated; its group memberships stay."""
        self.clients.remove(session)

    def _arrived(self, connected: socket.socket, arrival: Arrival) -> None:
        self._nursery.start_soon(self._take_in, connected, arrival)

    async def _take_in(self, connected: socket.socket, arrival: Arrival) -> None:
        """Continue a client of another shard, once the metadata here are as new as there."""
        try:
            await self.metadata.reach(arrival.metadata_version)
        except BaseException:
            connected.close()
            raise
        link = self.room.admit(connected, arrival.session, arrival.unread)
        self.clients.add(Client(link.session, link.end, arrival.last_seen_us, link.abort))

    def _gone(self, session: Session) -> None:
        """Forget a client whose connection has ended, here and in its groups."""
        if self.clients.remove(session):
            self._leave_groups(session.client_id)

    def _evict(self, client: Client) -> None:
        """Remove a client without heartbeats from its groups; the connection stays."""
        client.session.is_evicted = True
        self._leave_groups(client.session.client_id)

    def _leave_groups(self, client_id: int) -> None:
        if self._plan.shard_id == 0:
            self.office.registry.client_gone(client_id)
        else:
            self._hatches[0].post(letters.Gone(client_id), (), lambda letter, payload: None)

    # Requests that only shard 0 can handle

    async def _forward(self, session: Session, request: RequestReceived) -> Answer:
        if session.user_id is not None:
            # A user that was deleted gets an error here, where the connection can be closed.
            session.user(self.metadata.current)
        try:
            reply, payload = await self._hatches[0].ask(
                letters.Ask(caller_of(session), request.code), [request.payload]
            )
        except ServerFault as fault:
            return answer_for(fault)
        assert isinstance(reply, letters.Reply)
        # Shard 0 may be ahead of this replica; the client must not see an older state next.
        await self.metadata.reach(reply.version)
        return Answer(reply.status, (payload,) if payload.nbytes else (), reply.is_final)


async def _fail(error: Exception) -> None:
    """End the shard: an error in its nursery cancels all tasks."""
    raise error


@asynccontextmanager
async def open_shard(plan: ShardPlan) -> AsyncIterator[Shard]:
    """Open a shard, and close it at the end of the block."""
    async with trio.open_nursery() as nursery:
        shard = Shard(plan, nursery)
        await shard.open()
        try:
            yield shard
        finally:
            with trio.CancelScope(shield=True):
                await shard.aclose()
            nursery.cancel_scope.cancel()
