"""The metadata of a shard, and what a change of them sets in motion.

Shard 0 writes: log first, then apply, then tell all shards; a change is answered when every shard
has followed it, so that a client never sees it undone on another connection. The other shards hold
replicas that only go forward.

Owns the present state of the shard and the order of changes. Knows neither commands nor files.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

import trio

from iggy_ref_server.groups.registry import GroupKey, GroupRegistry
from iggy_ref_server.metadata import changes
from iggy_ref_server.metadata.frame import read_frame
from iggy_ref_server.metadata.replay import change_in, replay
from iggy_ref_server.metadata.snapshot import decode_snapshot
from iggy_ref_server.shard import letters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from iggy_ref_server.metadata.changes import Change
    from iggy_ref_server.metadata.state import Metadata
    from iggy_ref_server.metadata.store import MetadataStore
    from iggy_ref_server.shard.wall import Hatch

__all__ = ["MetadataDesk"]

C = TypeVar("C", bound="Change | None")


class MetadataDesk:
    """The metadata as one shard sees them.

    Args:
        hatches: the ways to the other shards.
        settle: makes the partitions of this shard what the metadata say.
        registry: the consumer groups, which follow the metadata on shard 0.

    Attributes:
        current: what exists, as far as this shard knows.
    """

    def __init__(
        self,
        current: Metadata,
        hatches: Mapping[int, Hatch],
        settle: Callable[[Metadata], Awaitable[None]],
        registry: GroupRegistry,
    ) -> None:
        self.current = current
        self.registry = registry
        self._hatches = hatches
        self._settle = settle
        self._store: MetadataStore | None = None
        self._entries: deque[tuple[bytes, Metadata, Change]] = deque()
        self._changing = trio.Lock()
        self._following = trio.Lock()

    # Shard 0

    def write_to(self, store: MetadataStore) -> None:
        """Become the one writer."""
        self._store = store
        self.current = store.current
        store.subscribe(self._log_changed)
        for stream in self.current.streams:
            for topic in stream.topics:
                for group in topic.groups:
                    key = GroupKey(stream.id, topic.id, group.id)
                    self.registry.add_group(key, len(topic.partitions))

    def _log_changed(self, entry: bytes, metadata: Metadata) -> None:
        frame = read_frame(entry, 0)
        assert frame is not None
        self._entries.append((entry, metadata, change_in(frame, None)))

    def snapshot_bytes(self) -> bytes:
        """Return the present state for a replica that starts."""
        assert self._store is not None
        return self._store.snapshot_bytes()

    async def change(self, plan: Callable[[Metadata], C]) -> C:
        """Plan and make a change, and wait until all shards have followed it."""
        assert self._store is not None, "only shard 0 changes metadata"
        # A refusal may rest on a change that not everybody has followed, so it waits as well.
        async with self._changing:
            with trio.CancelScope(shield=True):
                planned = await self._store.change(plan)
                await self._publish()
        return planned

    async def _publish(self) -> None:
        """Have everybody follow; one change at a time, in the order of the log."""
        async with self._following:
            while self._entries:
                entry, metadata, change = self._entries.popleft()
                self.current = metadata
                has_more = isinstance(change, changes.PartitionsAdded)
                if not has_more:
                    self._follow_with_groups(change)
                async with trio.open_nursery() as nursery:
                    for hatch in self._hatches.values():
                        nursery.start_soon(hatch.ask, letters.Entry(metadata.version), [entry])
                    nursery.start_soon(self._settle, metadata)
                if has_more:
                    # Only now can members read the new partitions.
                    self._follow_with_groups(change)

    def _follow_with_groups(self, change: Change) -> None:
        """Let the consumer groups be what the metadata say."""
        registry = self.registry
        match change:
            case changes.GroupCreated():
                topic = self.current.require_topic(change.stream_id, change.topic_id)
                key = GroupKey(change.stream_id, change.topic_id, change.id)
                registry.add_group(key, len(topic.partitions))
            case changes.GroupDeleted():
                registry.forget_group(GroupKey(change.stream_id, change.topic_id, change.id))
            case changes.TopicDeleted():
                registry.forget_topic(change.stream_id, change.id)
            case changes.StreamDeleted():
                registry.forget_stream(change.id)
            case changes.TopicPurged():
                registry.reset_progress(change.stream_id, change.id)
            case changes.StreamPurged():
                for topic in self.current.require_stream(change.id).topics:
                    registry.reset_progress(change.id, topic.id)
            case changes.PartitionsAdded() | changes.PartitionsRemoved():
                topic = self.current.require_topic(change.stream_id, change.topic_id)
                registry.set_partitions(topic.stream_id, topic.id, len(topic.partitions))

    # Every other shard

    def begin(self, snapshot: bytes) -> None:
        """Start from what shard 0 knows now."""
        self.current = decode_snapshot(snapshot, None)

    async def follow(self, entry: bytes, version: int) -> None:
        """Follow a change of shard 0."""
        async with self._following:
            metadata = replay(self.current, entry)
            self.current = metadata
            await self._settle(metadata)
