"""Periodic tasks of a shard: save, retention, expiry of tokens, eviction, free space."""

from __future__ import annotations

import logging
import resource
from typing import TYPE_CHECKING, NamedTuple

import trio

from iggy_protocol import NEVER_EXPIRES, UNLIMITED
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.plan_users import plan_expire_tokens
from iggy_ref_server.metadata.state import PlanContext, TopicRecord
from iggy_ref_server.partitions.partition import PartitionLog
from iggy_ref_server.segments.segment import Segment
from iggy_ref_server.shard.partition_directory import PartitionDirectory, PartitionKey
from iggy_ref_server.storage.interface import Storage, StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_ref_server.client_limits import BufferBudget
    from iggy_ref_server.clients import ClientEntry
    from iggy_ref_server.dispatch.context import HandlerContext
    from iggy_ref_server.net.socket_server import SocketServer


LOGGER = logging.getLogger(__name__)


# Deletes old segments when free disk space falls below a limit; off by default.
#
# The oldest sealed segment of the shard is deleted, whatever its topic, until enough space is free:
# first segments that every consumer and group has read, then unread ones. Each deletion is logged
# with its offsets. Another shard may still have segments that were read, so a shard with only
# unread segments waits a few checks. Each shard decides alone, so all shards together may delete
# one segment each too many.


# One check deletes no more than this, so that other periodic tasks can run.
REMOVALS_MAX = 64
# Unread segments are deleted after so many checks in a row without more free space.
CHECKS_BEFORE_UNREAD = 3


class _DeletableSegment(NamedTuple):
    """A segment that may be deleted."""

    key: PartitionKey
    partition: PartitionLog
    segment: Segment
    is_unread: bool


class FreeSpaceReclaimer:
    """Keeps some space free.

    Args:
        storage: the disk.
        directory: the partitions of the shard.
        bytes_min: how many bytes to keep free; 0 is off.
    """

    def __init__(self, storage: Storage, directory: PartitionDirectory, bytes_min: int) -> None:
        self._storage = storage
        self._directory = directory
        self._bytes_min = bytes_min
        self._is_low = False
        self._is_exhausted = False
        self._checks_without_gain = 0
        self._last_free_bytes = 0

    @property
    def is_enabled(self) -> bool:
        """Whether a limit is configured."""
        return self._bytes_min > 0

    async def check(self) -> None:
        """Delete segments if too little space is free.

        Raises:
            StorageError: the free space cannot be read.
        """
        free_bytes, _ = await self._storage.free_bytes()
        if free_bytes >= self._bytes_min:
            if self._is_low:
                LOGGER.warning("enough disk space is free again: %d bytes", free_bytes)
            self._is_low = self._is_exhausted = False
            self._checks_without_gain = 0
            return
        self._is_low = True
        self._checks_without_gain = (
            0 if free_bytes > self._last_free_bytes else self._checks_without_gain + 1
        )
        self._last_free_bytes = free_bytes
        # The file system may free the blocks later, so the bytes are counted here.
        for _ in range(REMOVALS_MAX):
            if free_bytes >= self._bytes_min:
                return
            removed_bytes = await self._delete_oldest(free_bytes)
            if not removed_bytes:
                return
            free_bytes += removed_bytes

    async def _delete_oldest(self, free_bytes: int) -> int:
        """Delete the oldest segment that may be deleted; return its size, or 0."""
        candidate = self._oldest_deletable(is_unread=False)
        if candidate is None:
            if self._checks_without_gain < CHECKS_BEFORE_UNREAD:
                return 0
            candidate = self._oldest_deletable(is_unread=True)
        if candidate is None:
            if not self._is_exhausted:
                LOGGER.error(
                    "only %d of %d bytes are free, and no segment can be deleted; delete or purge "
                    "topics, or add disk space",
                    free_bytes,
                    self._bytes_min,
                )
            self._is_exhausted = True
            return 0
        segment = candidate.segment
        try:
            if not await candidate.partition.retention.reclaim(segment):
                return 0
        except ServerFault as fault:
            LOGGER.error("a segment cannot be deleted to free disk space: %s", fault)
            return 0
        LOGGER.warning(
            "only %d of %d bytes are free: stream %d, topic %d, partition %d: deleted the messages "
            "%d to %d (%d bytes)%s",
            free_bytes,
            self._bytes_min,
            *candidate.key,
            segment.start_offset,
            segment.next_offset - 1,
            segment.size_bytes,
            ", which some consumer or group had NOT read" if candidate.is_unread else "",
        )
        return segment.size_bytes

    def _oldest_deletable(self, *, is_unread: bool) -> _DeletableSegment | None:
        found = [
            _DeletableSegment(key, partition, segment, is_unread)
            for key, partition in self._directory
            if (segment := partition.retention.reclaimable(is_unread_allowed=is_unread)) is not None
        ]
        return min(found, key=lambda candidate: candidate.segment.last_timestamp_us, default=None)


IDLE_CHECK_S = 1.0
# Sessions without connections live for half a minute.
SESSION_CHECK_S = 1.0
PARTITION_RETRY_S = 1.0
# How late a segment may be sealed by its age, and space be reclaimed.
SEGMENT_AGE_CHECK_S = 1.0
FREE_SPACE_CHECK_S = 1.0
# After so many intervals without a heartbeat a client loses its memberships. Apache Iggy allows 1.2
# and checks once per interval, so a client has between 1.2 and 2.2 of them, by chance. Here each
# client has the most that any client has there. Official clients that send no heartbeats between
# requests keep their connection for longer, because they come back with the next request.
EVICT_AFTER_INTERVALS = 2.2
DISCONNECT_AFTER_INTERVALS = 5
# How often clients are checked within an interval, so that none has much more time than another.
LOOKS_PER_INTERVAL = 10
# A topic is trimmed when it has grown to this part of its limit.
TRIM_THRESHOLD = 0.9


class Maintenance:
    """The periodic tasks of one shard.

    Args:
        handler_context: the context of the command handlers.
        directory: the partitions of the shard.
        socket_server: the sockets of the shard.
        evict: removes a client without heartbeats from its groups.
        budget: the memory of all connections.
    """

    def __init__(
        self,
        handler_context: HandlerContext,
        directory: PartitionDirectory,
        socket_server: SocketServer,
        evict: Callable[[ClientEntry], None],
        budget: BufferBudget,
    ) -> None:
        self._budget = budget
        self._handler_context = handler_context
        self._directory = directory
        self._socket_server = socket_server
        self._evict = evict
        self._free_space = FreeSpaceReclaimer(
            handler_context.host.storage,
            directory,
            handler_context.config.system.retention.min_free_space_bytes,
        )

    async def run(self) -> None:
        """Run all enabled tasks, each at its interval, until cancelled."""
        config = self._handler_context.config
        saver, cleaner = config.message_saver, config.data_maintenance.messages
        tokens, heartbeat = config.personal_access_token.cleaner, config.heartbeat
        is_first = self._handler_context.shard_id == 0
        tasks = [
            (saver.enabled, saver.interval_us, self._save_partitions),
            (cleaner.cleaner_enabled, cleaner.interval_us, self._apply_retention),
            (
                heartbeat.enabled,
                heartbeat.interval_us / LOOKS_PER_INTERVAL,
                self._evict_unresponsive,
            ),
            (tokens.enabled and is_first, tokens.interval_us, self._expire_tokens),
            (
                is_first,
                config.consumer_group.rebalancing_check_interval_us,
                self._expire_rebalances,
            ),
            (is_first, int(SESSION_CHECK_S * 1e6), self._expire_sessions),
            (
                config.system.segment.max_age_us > 0,
                int(SEGMENT_AGE_CHECK_S * 1e6),
                self._roll_aged_segments,
            ),
            (self._free_space.is_enabled, int(FREE_SPACE_CHECK_S * 1e6), self._free_space.check),
            (True, int(IDLE_CHECK_S * 1e6), self._close_idle),
            (True, int(PARTITION_RETRY_S * 1e6), self._directory.retry),
            (
                config.system.logging.sysinfo_print_interval_us > 0,
                config.system.logging.sysinfo_print_interval_us,
                self._log_usage,
            ),
        ]
        async with trio.open_nursery() as nursery:
            for is_wanted, interval_us, task in tasks:
                if is_wanted:
                    nursery.start_soon(self._repeat, interval_us / 1e6, task)

    async def _repeat(self, interval_s: float, task: Callable[[], Awaitable[None]]) -> None:
        while True:
            await trio.sleep(interval_s)
            try:
                await task()
            except (ServerFault, StorageError) as error:
                LOGGER.warning(
                    "a maintenance task failed and is retried in %s s: %s", interval_s, error
                )

    async def _save_partitions(self) -> None:
        for _, partition in self._directory:
            await partition.save()

    async def _roll_aged_segments(self) -> None:
        for _, partition in self._directory:
            await partition.roll_aged(self._handler_context.config.system.segment.max_age_us)

    async def _close_idle(self) -> None:
        self._socket_server.close_idle()
        self._handler_context.clients.close_unauthenticated()
        self._budget.check()

    async def _log_usage(self) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        LOGGER.info(
            "%d clients, %d partitions, %.1f s of CPU time, at most %.0f MiB resident",
            len(self._handler_context.clients),
            len(dict(self._directory)),
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss / 1024,
        )

    async def _expire_rebalances(self) -> None:
        self._handler_context.registry.expire(self._handler_context.clock.now_us())

    async def _expire_sessions(self) -> None:
        self._handler_context.sessions.expire()

    async def _expire_tokens(self) -> None:
        context = PlanContext(
            now_us=self._handler_context.clock.now_us(), settings=self._handler_context.settings
        )
        await self._handler_context.change(lambda metadata: plan_expire_tokens(metadata, context))

    async def _evict_unresponsive(self) -> None:
        interval_us, clients = (
            self._handler_context.config.heartbeat.interval_us,
            self._handler_context.clients,
        )
        now_us = self._handler_context.clock.now_us()
        for client in clients.idle_since(now_us - round(interval_us * EVICT_AFTER_INTERVALS)):
            if not client.session.is_evicted:
                LOGGER.warning(
                    "client %s sent no heartbeat and loses its partitions", client.session.address
                )
                self._evict(client)
        for client in clients.idle_since(now_us - interval_us * DISCONNECT_AFTER_INTERVALS):
            client.close()

    # Retention

    async def _apply_retention(self) -> None:
        for stream in self._handler_context.metadata().streams:
            for topic in stream.topics:
                if topic.message_expiry_us not in (0, NEVER_EXPIRES):
                    await self._expire_topic(topic)
                if topic.max_size_bytes not in (0, UNLIMITED):
                    await self._trim_topic(topic)

    async def _expire_topic(self, topic: TopicRecord) -> None:
        for key, partition in self._directory:
            if key[:2] == (topic.stream_id, topic.id):
                await partition.expire_segments(topic.message_expiry_us)

    async def _trim_topic(self, topic: TopicRecord) -> None:
        """Delete the oldest segments while the topic is almost full.

        The size is that of all shards. Only the shard with the oldest segment of the whole topic
        deletes one, so that shards together do not delete too much.
        """
        while True:
            statistics = {
                key: partition
                for key, partition in (
                    await self._handler_context.cluster_view.statistics()
                ).items()
                if key[:2] == (topic.stream_id, topic.id)
            }
            size = sum(partition.size_bytes for partition in statistics.values())
            if size < topic.max_size_bytes * TRIM_THRESHOLD:
                return
            candidates = [
                (partition.oldest_sealed_timestamp_us, key)
                for key, partition in statistics.items()
                if partition.oldest_sealed_timestamp_us is not None
            ]
            local_partitions = dict(self._directory)
            if not candidates or (oldest := min(candidates)[1]) not in local_partitions:
                return
            if not await local_partitions[oldest].delete_segments(1):
                return
