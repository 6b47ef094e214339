"""From the body of a send to staged batches, with a cache of routes.

Most sends of a client name the same stream, topic and partitioning byte for byte. The route of
these bytes, with the user's permission, is cached until the metadata change. Afterwards a send
costs one dictionary look-up and the staging of its batch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import (
    CommandCode,
    PartitioningKind,
    StatusCode,
    decode_send_metadata,
    inspect_send,
    partition_for_key,
)
from iggy_ref_server.data_plane.plane import Staged
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.handlers.office import require_right
from iggy_ref_server.partitions.door import PartitionDoor
from iggy_ref_server.shard.turns import Turn

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from iggy_ref_server.metadata.records import UserRecord
    from iggy_ref_server.metadata.state import Metadata
    from iggy_ref_server.partitions import Partition
    from iggy_ref_server.session import Session
    from iggy_ref_server.shard.router import Router
    from iggy_ref_server.shard.turns import Turns

__all__ = ["SendAppends"]

ROUTES_MAX = 4096
# The bytes before the indexes: u32 length, identifiers and partitioning (the cache key), u32 count.
METADATA_AT, COUNT_BYTES = 4, 4


class _Route(NamedTuple):
    """The target of a send: one partition, or all partitions of a topic by round-robin."""

    doors: tuple[PartitionDoor, ...]
    turn: Turn | None = None


class SendAppends:
    """Stages the batches of sends, and commits them.

    Args:
        metadata: returns the current metadata.
        turns: chooses the partitions of balanced sends.
        nursery: for commits that have to wait.
    """

    def __init__(
        self,
        metadata: Callable[[], Metadata],
        turns: Turns,
        nursery: trio.Nursery,
    ) -> None:
        self._metadata = metadata
        self._nursery = nursery
        self._router: Router | None = None
        self._routes: dict[tuple[int, bytes], _Route] = {}
        self._routes_version = -1
        self._turns = turns
        self._touched: dict[Partition, None] = {}

    def use(self, router: Router) -> None:
        """Set the router."""
        self._router = router

    def touched(self, partition: Partition) -> None:
        """Mark a partition of this shard for the next commit."""
        self._touched[partition] = None

    def stage(self, session: Session, body: memoryview) -> Staged:
        """Stage a batch; the result is known after the commit.

        Raises:
            ServerFault: the batch is refused.
            InvalidBatch: the body is malformed.
        """
        metadata = self._metadata()
        user = session.user(metadata)
        shape = inspect_send(body)
        if metadata.version != self._routes_version or len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
            self._routes_version = metadata.version
        key = (user.id, bytes(body[METADATA_AT : shape.indexes_at - COUNT_BYTES]))
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = self._find(metadata, user, body)
        doors = route.doors
        if len(doors) == 1:
            door = doors[0]
            session.visit(door.shard_id)
            return Staged(door.stage(body, shape), door.is_clogged, key[1], door.stage)
        assert route.turn is not None
        door = doors[route.turn.take(len(doors))]
        return Staged(door.stage(body, shape), door.is_clogged)

    def _find(self, metadata: Metadata, user: UserRecord, body: memoryview) -> _Route:
        head = decode_send_metadata(body)
        topic = metadata.require_topic(head.stream, head.topic)
        require_right(user, CommandCode.SEND_MESSAGES, topic.stream_id, topic.id)
        assert self._router is not None
        count = len(topic.partitions)
        if head.partitioning.kind is PartitioningKind.PARTITION_ID:
            chosen = head.partitioning.partition_id
            assert chosen is not None
            return _Route((self._router.door(topic, chosen),))
        if not count:
            raise ServerFault(StatusCode.TOPIC_ID_NOT_FOUND, "the topic has no partitions")
        if head.partitioning.kind is PartitioningKind.MESSAGES_KEY:
            chosen = partition_for_key(head.partitioning.value, count)
            return _Route((self._router.door(topic, chosen),))
        doors = tuple(self._router.door(topic, partition) for partition in range(count))
        return _Route(doors, self._turns.of(topic))

    def commit(self) -> None:
        """Write all staged batches, or start to write those that have to wait."""
        if not self._touched:
            return
        touched, self._touched = self._touched, {}
        for partition in touched:
            self._commit(partition)

    def _commit(self, partition: Partition) -> None:
        if partition.commit_now() or partition.is_committing:
            return
        if not partition.commit_soon(partial(self._commit, partition)):
            self._nursery.start_soon(partition.commit)
