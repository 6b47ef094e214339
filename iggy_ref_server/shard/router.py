"""Routing: from a send to its partitions, and from a partition to the shard that owns it.

A partition belongs to the shard that the mmh3 hash of its packed ids gives. Its client, local or
remote, is made once and kept until the metadata change.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import (
    HAS_PRODUCERS,
    CommandCode,
    PartitioningKind,
    StatusCode,
    classic_send_body,
    decode_send_metadata,
    inspect_send,
    pack_namespace,
    partition_for_key,
    shard_for_namespace,
)
from iggy_ref_server.dispatch.context import (
    StagedAppend,
    StagedWrite,
    require_permission,
)
from iggy_ref_server.dispatch.partition_context import require_incarnation
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.state import TopicRecord
from iggy_ref_server.partitions.partition_client import LocalPartition, PartitionClient
from iggy_ref_server.partitions.steps import run_in_background
from iggy_ref_server.partitions.write_receipts import NEVER_REPEATED, WriteId
from iggy_ref_server.shard import messages
from iggy_ref_server.shard.calls import RemotePartition
from iggy_ref_server.shard.partition_directory import PartitionDirectory, PartitionKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import trio

    from iggy_protocol import RequestReceived, SendsReceived
    from iggy_ref_server.metadata.state import Metadata, PartitionRecord, UserRecord
    from iggy_ref_server.partitions.partition import PartitionLog
    from iggy_ref_server.session import ClientSession
    from iggy_ref_server.shard.channel import ShardChannel


# Round-robin of balanced sends over the partitions of a topic, shared by all shards.
#
# Each shard increments a counter of its own in shared memory, and the sum of a topic's counters
# chooses the partition. There is no lock: sends one after another go to one partition after
# another, and sends at the same moment may choose the same partition, which does no harm. This is
# the only memory that shards share, because a call to another shard would cost more than the send
# itself.
#
# When a topic gets more or fewer partitions, the sequence continues at the same partition if it
# still exists. So the number of partitions at the last send is stored as well.


# Two topics with the same hash share a counter, so one may skip a partition; no more than that.
SLOTS = 4096
COUNTER_BYTES = 8


def make_round_robin_memory(shards_count: int) -> mmap.mmap:
    """Make the shared memory; processes that are forked later inherit it."""
    return mmap.mmap(-1, SLOTS * (shards_count + 1) * COUNTER_BYTES)


class TopicRoundRobin:
    """The round-robin of one topic, on one shard."""

    __slots__ = ("_counts", "_own_slot", "_partitions_slot", "_slot")

    def __init__(self, counts: memoryview, slot: int, own: int) -> None:
        self._counts = counts
        self._slot = slot
        self._own_slot = own
        self._partitions_slot = len(counts) - SLOTS + slot

    def next_index(self, count: int) -> int:
        """Return the index of the next partition, and advance."""
        counts = self._counts
        total: int = sum(counts[self._slot : self._partitions_slot : SLOTS])
        last_count = counts[self._partitions_slot]
        if last_count != count:
            counts[self._partitions_slot] = count
            if last_count:
                shift = (total % last_count - total) % count
                counts[self._own_slot] += shift
                total += shift
        counts[self._own_slot] += 1
        return total % count


class RoundRobin:
    """The round-robin of all topics, on one shard.

    Args:
        memory: made by ``make_round_robin_memory``.
        shard_id: this shard.
    """

    def __init__(self, memory: mmap.mmap, shard_id: int) -> None:
        self._counts = memoryview(memory).cast("Q")
        self._shard_id = shard_id

    def for_topic(self, topic: TopicRecord) -> TopicRoundRobin:
        """Return the round-robin of a topic; a new topic starts at its first partition."""
        slot = hash((topic.stream_id, topic.id, topic.created_at_us)) % SLOTS
        return TopicRoundRobin(self._counts, slot, self._shard_id * SLOTS + slot)


def owner_shard(key: PartitionKey, shards_count: int) -> int:
    """Return the shard that owns a partition."""
    namespace = pack_namespace(
        stream_id=key.stream_id, topic_id=key.topic_id, partition_id=key.partition_id
    )
    return shard_for_namespace(namespace, shards_count=shards_count)


class PartitionRouter:
    """Finds the client of a partition.

    Args:
        shard_id: this shard.
        channels: the channels to the other shards, by their ids.
        directory: the partitions of this shard.
        mark_uncommitted: called with each local partition that has a staged batch.
    """

    def __init__(
        self,
        shard_id: int,
        channels: Mapping[int, ShardChannel],
        directory: PartitionDirectory,
        mark_uncommitted: Callable[[PartitionLog], None],
    ) -> None:
        self._shard_id = shard_id
        self._channels = channels
        self._directory = directory
        self._mark_uncommitted = mark_uncommitted
        self._clients: dict[tuple[PartitionKey, int], PartitionClient] = {}

    def client_for(self, topic: TopicRecord, partition_id: int) -> PartitionClient:
        """Return the client of a partition.

        Raises:
            ServerFault: the topic has no such partition, or it is quarantined.
        """
        record = topic.require_partition(partition_id)
        key = PartitionKey(topic.stream_id, topic.id, partition_id)
        client = self._clients.get((key, record.generation))
        if client is None:
            client = self._clients[key, record.generation] = self._make_client(key, record)
        return client

    def _make_client(self, key: PartitionKey, record: PartitionRecord) -> PartitionClient:
        owner = owner_shard(key, len(self._channels) + 1)
        if owner == self._shard_id:
            return LocalPartition(self._directory.get(key), self._mark_uncommitted)
        partition = messages.PartitionRef(*key, record.generation, record.created_at_us)
        return RemotePartition(owner, self._channels[owner], partition)

    def invalidate(self) -> None:
        """Drop all clients, because the metadata have changed."""
        self._clients.clear()


# From the body of a send to staged batches, with a cache of routes.
#
# Most sends of a client name the same stream, topic and partitioning byte for byte. The route of
# these bytes, with the user's permission, is cached until the metadata change. Afterwards a send
# costs one dictionary look-up and the staging of its batch.


ROUTES_MAX = 4096
# The bytes before the indexes: u32 length, identifiers and partitioning (the cache key), u32 count.
SEND_METADATA_POSITION, MESSAGES_COUNT_BYTES = 4, 4


class _SendRoute(NamedTuple):
    """The target of a send: one partition, or all partitions of a topic by round-robin.

    Attributes:
        clients: those of the partitions.
        topic: the topic.
        first_partition_id: the partition of the first client; the others follow it.
        round_robin: chooses one of the clients; None where there is one.
    """

    clients: tuple[PartitionClient, ...]
    topic: TopicRecord
    first_partition_id: int = 0
    round_robin: TopicRoundRobin | None = None


class RoutingAppender:
    """Stages the batches of sends, and commits them.

    Args:
        metadata: returns the current metadata.
        round_robin: chooses the partitions of balanced sends.
        nursery: for commits that have to wait.
        deduplicates: whether partitions drop messages whose id they know. A run of sends has then
            no offsets that follow from the first one, so each send is staged by itself.
    """

    def __init__(
        self,
        metadata: Callable[[], Metadata],
        round_robin: RoundRobin,
        nursery: trio.Nursery,
        *,
        deduplicates: bool = False,
    ) -> None:
        self._deduplicates = deduplicates
        self._metadata = metadata
        self._nursery = nursery
        self._router: PartitionRouter | None = None
        self._routes: dict[tuple[int, bytes], _SendRoute] = {}
        self._routes_version = -1
        self._round_robin = round_robin
        self._uncommitted: dict[PartitionLog, None] = {}

    def use_router(self, router: PartitionRouter) -> None:
        """Set the router."""
        self._router = router

    def mark_uncommitted(self, partition: PartitionLog) -> None:
        """Mark a partition of this shard for the next commit."""
        self._uncommitted[partition] = None

    def stage(self, session: ClientSession, body: memoryview) -> StagedAppend:
        """Stage a batch; the result is known after the commit.

        Raises:
            ServerFault: the batch is refused.
            InvalidBatch: the body is malformed.
        """
        metadata = self._metadata()
        user = session.user(metadata)
        shape = inspect_send(body)
        destination = bytes(body[SEND_METADATA_POSITION : shape.indexes_at - MESSAGES_COUNT_BYTES])
        # Looked up here as well, because the call costs a tenth of staging a single message.
        is_cached = metadata.version == self._routes_version
        route = self._routes.get((user.id, destination)) if is_cached else None
        if route is None:
            route = self._route(metadata, user, destination)
        clients = route.clients
        if len(clients) == 1:
            client = clients[0]
            session.count_owner(client.shard_id)
            return StagedAppend(
                client.stage(body, shape), client.is_backlogged, destination, client.stage
            )
        assert route.round_robin is not None
        client = clients[route.round_robin.next_index(len(clients))]
        return StagedAppend(client.stage(body, shape), client.is_backlogged)

    def stage_confirmed(self, session: ClientSession, body: memoryview) -> StagedWrite:
        """Stage a batch whose client is told where its messages are, and which is never repeated.

        Raises:
            ServerFault: the batch is refused.
            InvalidBatch: the body is malformed.
        """
        metadata, shape = self._metadata(), inspect_send(body)
        destination = bytes(body[SEND_METADATA_POSITION : shape.indexes_at - MESSAGES_COUNT_BYTES])
        route = self._route(metadata, session.user(metadata), destination)
        index = 0 if route.round_robin is None else route.round_robin.next_index(len(route.clients))
        client = route.clients[index]
        return StagedWrite(
            client.stage_confirmed(body, shape, NEVER_REPEATED),
            client.is_backlogged,
            len(body),
            session.dialect,
            route.topic.stream_id,
            route.topic.id,
            route.first_partition_id + index,
        )

    def stage_write(self, session: ClientSession, request: RequestReceived) -> StagedWrite:
        """Stage the batch of a send from 0.9 on, in the classic form.

        Raises:
            ServerFault: the batch is refused.
            InvalidBatch: the body is malformed.
        """
        assert request.request_id is not None
        metadata = self._metadata()
        user = session.user(metadata)
        body, producer = classic_send_body(
            request.payload, producers_allowed=HAS_PRODUCERS[request.dialect]
        )
        view, shape = memoryview(body), inspect_send(body)
        destination = bytes(body[SEND_METADATA_POSITION : shape.indexes_at - MESSAGES_COUNT_BYTES])
        route = self._route(metadata, user, destination)
        number = request.request_id.number
        client, partition_id = self._write_target(session, route, number)
        require_incarnation(request.request_id, route.topic, partition_id)
        if producer is not None:
            _require_partitioning(view)
        write = WriteId(request.request_id.session, number)
        pending = client.stage_confirmed(view, shape, write, producer)
        # What follows a new send of the session is new as well: its numbers are higher.
        may_follow = len(route.clients) == 1 and pending.is_new and not self._deduplicates
        return StagedWrite(
            pending,
            client.is_backlogged,
            len(body),
            request.dialect,
            route.topic.stream_id,
            route.topic.id,
            partition_id,
            destination if may_follow else b"",
        )

    def stage_run(self, session: ClientSession, sends: SendsReceived) -> StagedWrite:
        """Stage sends from 0.9 on that were taken together, as one batch.

        Raises:
            ServerFault: the batch is refused, and all sends with it.
        """
        metadata, request_id, run = self._metadata(), sends.request_id, sends.run
        route = self._route(metadata, session.user(metadata), sends.metadata)
        if len(route.clients) > 1:
            # The topic has more partitions since the first of these sends, which is for all clients
            # to repeat. Each of them belongs to a partition of its own now.
            raise ServerFault(StatusCode.TRANSIENT_NOT_ACCEPTED, "the topic has more partitions")
        _, last_number, _ = run.ends
        client, partition_id = self._write_target(session, route, last_number)
        require_incarnation(request_id, route.topic, partition_id)
        if isinstance(client, LocalPartition):
            pending = client.stage_run(sends.messages, run, session=request_id.session)
        else:
            last = WriteId(request_id.session, last_number)
            pending = client.stage_confirmed(sends.messages, run.shape, last)
        return StagedWrite(
            pending,
            client.is_backlogged,
            len(sends.messages),
            request_id.dialect,
            route.topic.stream_id,
            route.topic.id,
            partition_id,
            sends.metadata,
        )

    def _write_target(
        self, session: ClientSession, route: _SendRoute, number: int
    ) -> tuple[PartitionClient, int]:
        """Choose the partition of a send by its number: a repeat goes to the same partition."""
        index = number % len(route.clients)
        client = route.clients[index]
        if len(route.clients) == 1:
            session.count_owner(client.shard_id)
        return client, route.first_partition_id + index

    def _route(self, metadata: Metadata, user: UserRecord, destination: bytes) -> _SendRoute:
        """Return the route of a send, from the cache if possible."""
        if metadata.version != self._routes_version or len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
            self._routes_version = metadata.version
        key = (user.id, destination)
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = self._resolve_route(metadata, user, destination)
        return route

    def _resolve_route(
        self, metadata: Metadata, user: UserRecord, destination: bytes
    ) -> _SendRoute:
        size = len(destination) + MESSAGES_COUNT_BYTES
        length = size.to_bytes(SEND_METADATA_POSITION, "little")
        # The route does not depend on the count.
        head = decode_send_metadata(length + destination + bytes(MESSAGES_COUNT_BYTES))
        topic = metadata.require_topic(head.stream, head.topic)
        require_permission(user, CommandCode.SEND_MESSAGES, topic.stream_id, topic.id)
        assert self._router is not None
        count = len(topic.partitions)
        if head.partitioning.kind is PartitioningKind.PARTITION_ID:
            chosen = head.partitioning.partition_id
            assert chosen is not None
            return _SendRoute((self._router.client_for(topic, chosen),), topic, chosen)
        if not count:
            raise ServerFault(StatusCode.TOPIC_ID_NOT_FOUND, "the topic has no partitions")
        if head.partitioning.kind is PartitioningKind.MESSAGES_KEY:
            chosen = partition_for_key(head.partitioning.value, count)
            return _SendRoute((self._router.client_for(topic, chosen),), topic, chosen)
        clients = tuple(self._router.client_for(topic, partition) for partition in range(count))
        return _SendRoute(clients, topic, 0, self._round_robin.for_topic(topic))

    def commit(self) -> None:
        """Write all staged batches, or start to write those that have to wait."""
        if not self._uncommitted:
            return
        uncommitted, self._uncommitted = self._uncommitted, {}
        for partition in uncommitted:
            run_in_background(partition.commit(), self._nursery)


def _require_partitioning(body: memoryview) -> None:
    """Check that the batch of an idempotent producer names its partition.

    Raises:
        ServerFault: the producer counts its messages to each partition, and names none.
    """
    if decode_send_metadata(body).partitioning.kind is not PartitioningKind.PARTITION_ID:
        raise ServerFault(
            StatusCode.PRODUCER_PARTITION_REQUIRED, "the batch of a producer names no partition"
        )
