"""The metadata service of a shard: the current state, and the replication of changes.

Shard 0 is the writer: it logs a change, applies it and sends it to all shards. The request is
answered when every shard has applied the change, so that a client never sees an older state on
another connection. The other shards hold replicas that only go forward.

A failure before a change is in the log refuses the change, and no shard sees it. Once it is logged
it is final: all shards apply it, a partition that cannot be opened is retried later, and the reply
is a success. A shard that cannot apply it ends, and the server with it.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import trio

from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import GroupKey, GroupRegistry
from iggy_ref_server.metadata import changes
from iggy_ref_server.metadata.changes import Change
from iggy_ref_server.metadata.log import read_frame
from iggy_ref_server.metadata.recovery import apply_entry, decode_frame_change
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.shard import messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from iggy_ref_server.metadata.history import MetadataHistory
    from iggy_ref_server.metadata.position import MetadataPosition
    from iggy_ref_server.metadata.store import MetadataStore
    from iggy_ref_server.shard.channel import ShardChannel


LOGGER = logging.getLogger(__name__)

C = TypeVar("C", bound="Change | None")

# All shards open or purge the partitions of these changes before any shard shows them to clients:
# a client that sees a topic can use it on every shard.
PREPARED_BEFORE_PUBLISH = (
    changes.TopicCreated,
    changes.PartitionsAdded,
    changes.TopicPurged,
    changes.StreamPurged,
)


class _LoggedChange(NamedTuple):
    """A change that is in the log, and that the shards have not applied yet."""

    entry: bytes
    metadata: Metadata
    change: Change
    timestamp_us: int


class MetadataService:
    """The metadata of one shard.

    Args:
        channels: the channels to the other shards.
        apply_to_partitions: opens, purges and removes partitions to match the metadata.
        registry: the consumer groups, kept up to date on shard 0.
        on_user_changed: called on shard 0 when a user was changed or deleted.
        position: the position of the metadata, which shard 0 raises with each change.
        history: the newest changes, which shard 0 keeps for clients that follow them.

    Attributes:
        current: the state that clients of this shard see.
    """

    def __init__(
        self,
        current: Metadata,
        channels: Mapping[int, ShardChannel],
        apply_to_partitions: Callable[[Metadata], Awaitable[None]],
        registry: GroupRegistry,
        position: MetadataPosition,
        history: MetadataHistory,
        on_user_changed: Callable[[Metadata, int], None],
    ) -> None:
        self.current = current
        self.registry = registry
        self.history = history
        self._position = position
        self._on_user_changed = on_user_changed
        self._channels = channels
        self._apply_to_partitions = apply_to_partitions
        self._store: MetadataStore | None = None
        self._unpublished: deque[_LoggedChange] = deque()
        self._applied_version = current.version
        self._applied_changed = trio.lowlevel.ParkingLot()
        self._apply_lock = trio.Lock()
        self._snapshot_loaded = trio.Event()
        self._prepared: Metadata | None = None
        self._version_waiters = trio.lowlevel.ParkingLot()

    def _advance(self, metadata: Metadata) -> None:
        """Make a later state the current one."""
        assert metadata.version >= self.current.version, "replicas only go forward"
        self.current = metadata
        self._version_waiters.unpark_all()

    # Shard 0

    def become_writer(self, store: MetadataStore, now_us: int) -> None:
        """Become the writer; shard 0 only."""
        self._store = store
        self._position.start(store.current, now_us)
        self.history.start(now_us)
        self.registry.count_epochs_above(self._position.current)
        self._advance(store.current)
        self._applied_version = store.current.version
        store.subscribe(self._on_log_entry)
        for stream in self.current.streams:
            for topic in stream.topics:
                for group in topic.groups:
                    key = GroupKey(stream.id, topic.id, group.id)
                    self.registry.add_group(key, len(topic.partitions))

    def _on_log_entry(self, entry: bytes, metadata: Metadata) -> None:
        frame = read_frame(entry, 0)
        assert frame is not None
        change = decode_frame_change(frame, None)
        self._unpublished.append(_LoggedChange(entry, metadata, change, frame.timestamp_us))

    def snapshot_bytes(self) -> bytes:
        """Return the current state for a replica that starts."""
        assert self._store is not None
        return self._store.snapshot_bytes()

    async def change(self, plan: Callable[[Metadata], C], *, actor: int | None = None) -> C:
        """Plan and log a change, and wait until all shards have applied it.

        Changes share syncs of the log, but shards apply them one at a time, in log sequence. No
        later change becomes current on this shard before the caller's next checkpoint.

        Args:
            plan: returns the change.
            actor: the user who asks for it; None for the server itself.
        """
        store = self._store
        assert store is not None, "only shard 0 changes metadata"
        try:
            made = await store.change_at(plan)
        except ServerFault:
            # A refusal may depend on a change that some shard has not applied yet; wait for it.
            await self._wait_until_applied(store.current.version)
            raise
        with trio.CancelScope(shield=True):
            if made.change is None:
                await self._wait_until_applied(made.version)
            else:
                await self._wait_until_applied(made.version - 1)
                await self._publish(actor)
        return made.change

    async def _wait_until_applied(self, version: int) -> None:
        while self._applied_version < version:
            await self._applied_changed.park()

    async def _publish(self, actor: int | None) -> None:
        """Have all shards apply the next change of the log."""
        entry, metadata, change, timestamp_us = self._unpublished.popleft()
        before = self.current
        try:
            is_published = not isinstance(change, PREPARED_BEFORE_PUBLISH)
            if is_published:
                self._advance(metadata)
                self._update_members(change)
            message = messages.MetadataEntryCall(metadata.version, is_published)
            await self._call_all_shards(
                message, [entry], partial(self._apply_to_partitions, metadata)
            )
            if not is_published:
                self._advance(metadata)
                self._update_members(change)
                await self._call_all_shards(messages.PublishMetadataCall(metadata.version), [])
        finally:
            self._applied_version = metadata.version
            # Not before: a shard that tells a position has applied all changes up to it.
            self._position.advance()
            self._applied_changed.unpark_all()
        self.history.record_change(change, before, metadata, timestamp_us=timestamp_us, actor=actor)

    async def _call_all_shards(
        self,
        message: messages.ShardMessage,
        payload: list[bytes],
        local_work: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Call all other shards, and do the work of this one at the same time."""

        async def attempt(work: Callable[[], Awaitable[object]]) -> None:
            try:
                await work()
            except ServerFault as fault:
                # A shard that has ended has no clients, and the supervisor stops the server.
                LOGGER.error("a shard did not apply a metadata change: %s", fault)

        async with trio.open_nursery() as nursery:
            for channel in self._channels.values():
                nursery.start_soon(attempt, partial(channel.call, message, payload))
            if local_work is not None:
                nursery.start_soon(attempt, local_work)

    def _update_members(self, change: Change) -> None:
        """Update the consumer groups and the sessions of clients after a change."""
        registry = self.registry
        match change:
            case changes.UserUpdated() | changes.UserDeleted():
                self._on_user_changed(self.current, change.id)
            case changes.GroupCreated():
                topic = self.current.require_topic(change.stream_id, change.topic_id)
                key = GroupKey(change.stream_id, change.topic_id, change.id)
                registry.add_group(key, len(topic.partitions))
            case changes.GroupDeleted():
                registry.remove_group(GroupKey(change.stream_id, change.topic_id, change.id))
            case changes.TopicDeleted():
                registry.remove_topic(change.stream_id, change.id)
            case changes.StreamDeleted():
                registry.remove_stream(change.id)
            case changes.TopicPurged():
                registry.reset_progress(change.stream_id, change.id)
            case changes.StreamPurged():
                for topic in self.current.require_stream(change.id).topics:
                    registry.reset_progress(change.id, topic.id)
            case changes.PartitionsAdded() | changes.PartitionsRemoved():
                topic = self.current.require_topic(change.stream_id, change.topic_id)
                registry.set_partitions(topic.stream_id, topic.id, len(topic.partitions))

    # Every other shard

    async def load_snapshot(self, metadata: Metadata) -> None:
        """Start from a snapshot of shard 0."""
        async with self._apply_lock:
            await self._apply_to_partitions(metadata)
            self._advance(metadata)
            self._snapshot_loaded.set()

    async def apply_entry(self, entry: bytes, *, is_published: bool) -> None:
        """Apply an entry of shard 0's log; show it to clients only if ``is_published``."""
        # An entry may arrive before the snapshot that it builds upon.
        await self._snapshot_loaded.wait()
        async with self._apply_lock:
            metadata = apply_entry(self.current, entry)
            self._prepared = metadata
            if is_published:
                self._advance(metadata)
            await self._apply_to_partitions(metadata)

    def publish(self, version: int) -> None:
        """Show clients the change that all shards have applied."""
        assert self._prepared is not None
        assert self._prepared.version >= version
        self._advance(self._prepared)

    async def wait_for_version(self, version: int) -> None:
        """Wait until clients of this shard see at least this version."""
        while self.current.version < version:
            await self._version_waiters.park()
