"""The metadata of a shard, and what a change of them sets in motion.

Shard 0 writes: log first, then apply, then tell all shards; a change is answered when every shard
has followed it, so that a client never sees it undone on another connection. The other shards hold
replicas that only go forward. Partitions are added and emptied on all shards before any shard shows
that, so that whoever sees a topic can use it.

What fails before a change is in the log is refused, and the change is nowhere. Once it is there it
has happened: all shards follow, a partition that is not ready yet is made ready later, and the
answer is a success. A shard that cannot follow at all ends, and the server with it.

Owns the present state of the shard and the order of changes. Knows neither commands nor files.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from iggy_ref_server.faults import ServerFault
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

LOGGER = logging.getLogger(__name__)

C = TypeVar("C", bound="Change | None")

# What is made ready everywhere before it is shown anywhere.
PREPARED = (
    changes.TopicCreated,
    changes.PartitionsAdded,
    changes.TopicPurged,
    changes.StreamPurged,
)


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
        self._followed_version = current.version
        self._turns = trio.lowlevel.ParkingLot()
        self._following = trio.Lock()
        self._begun = trio.Event()
        self._prepared: Metadata | None = None
        self._waiting = trio.lowlevel.ParkingLot()

    def _advance(self, metadata: Metadata) -> None:
        """Show clients of this shard a later state."""
        assert metadata.version >= self.current.version, "replicas only go forward"
        self.current = metadata
        self._waiting.unpark_all()

    # Shard 0

    def write_to(self, store: MetadataStore) -> None:
        """Become the one writer."""
        self._store = store
        self._advance(store.current)
        self._followed_version = store.current.version
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
        """Plan and make a change, and wait until all shards have followed it.

        Changes share syncs of the log, but are followed one at a time, in the order of the log. No
        later change is shown on this shard before the caller awaits something else.
        """
        store = self._store
        assert store is not None, "only shard 0 changes metadata"
        try:
            made = await store.change_at(plan)
        except ServerFault:
            # A refusal may rest on a change that not everybody has followed, so it waits as well.
            await self._until_followed(store.current.version)
            raise
        with trio.CancelScope(shield=True):
            if made.change is None:
                await self._until_followed(made.version)
            else:
                await self._until_followed(made.version - 1)
                await self._publish()
        return made.change

    async def _until_followed(self, version: int) -> None:
        while self._followed_version < version:
            await self._turns.park()

    async def _publish(self) -> None:
        """Have everybody follow the next change of the log."""
        entry, metadata, change = self._entries.popleft()
        try:
            is_shown = not isinstance(change, PREPARED)
            if is_shown:
                self._advance(metadata)
                self._follow_with_groups(change)
            letter = letters.Entry(metadata.version, is_shown)
            await self._with_all(letter, [entry], partial(self._settle, metadata))
            if not is_shown:
                self._advance(metadata)
                self._follow_with_groups(change)
                await self._with_all(letters.Show(metadata.version), [])
        finally:
            self._followed_version = metadata.version
            self._turns.unpark_all()

    async def _with_all(
        self,
        letter: letters.Letter,
        payload: list[bytes],
        own: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Have all shards do their part, this one included."""

        async def attempt(work: Callable[[], Awaitable[object]]) -> None:
            try:
                await work()
            except ServerFault as fault:
                # A shard that is gone has no clients, and the supervisor stops the server.
                LOGGER.error("a shard did not follow a change of the metadata: %s", fault)

        async with trio.open_nursery() as nursery:
            for hatch in self._hatches.values():
                nursery.start_soon(attempt, partial(hatch.ask, letter, payload))
            if own is not None:
                nursery.start_soon(attempt, own)

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

    async def begin(self, snapshot: bytes) -> None:
        """Start from what shard 0 knows now."""
        async with self._following:
            metadata = decode_snapshot(snapshot, None)
            await self._settle(metadata)
            self._advance(metadata)
            self._begun.set()

    async def follow(self, entry: bytes, *, is_shown: bool) -> None:
        """Follow a change of shard 0, or only make ready for it."""
        # A change may be on its way before the state that it changes has come.
        await self._begun.wait()
        async with self._following:
            metadata = replay(self.current, entry)
            self._prepared = metadata
            if is_shown:
                self._advance(metadata)
            await self._settle(metadata)

    def show(self, version: int) -> None:
        """Show clients the change for which everybody is ready now."""
        assert self._prepared is not None
        assert self._prepared.version >= version
        self._advance(self._prepared)

    async def reach(self, version: int) -> None:
        """Wait until clients of this shard see at least this version."""
        while self.current.version < version:
            await self._waiting.park()
