"""Periodic tasks of a shard: save, retention, expiry of tokens, eviction, free space."""

from __future__ import annotations

import logging
import resource
from typing import TYPE_CHECKING

import trio

from iggy_protocol import NEVER_EXPIRES, UNLIMITED
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.plan_context import PlanContext
from iggy_ref_server.metadata.plan_tokens import plan_expire_tokens
from iggy_ref_server.shard.free_space import FreeSpace
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_ref_server.clients import Client
    from iggy_ref_server.data_plane.budget import BufferBudget
    from iggy_ref_server.data_plane.sockets import SocketRoom
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.metadata.records import TopicRecord
    from iggy_ref_server.shard.directory import PartitionDirectory

__all__ = ["Maintenance"]

LOGGER = logging.getLogger(__name__)

MANNERS_S = 1.0
RETRY_S = 1.0
# How late a segment may be sealed by its age, and space be reclaimed.
ROLL_S = 1.0
SPACE_S = 1.0
# After so many intervals without a sign of life a client loses its place in all groups. The real
# server allows 1.2 and looks once per interval, so that a client has between 1.2 and 2.2 of them as
# luck will have it. Here everybody has the most that anybody has there. Official clients sleep
# through that now and then and still ask for this and that, or never ping at all between requests
# that are seconds apart; so they keep the connection until nobody can be there any more.
HEARTBEAT_FACTOR = 2.2
LAST_HEARTBEAT_FACTOR = 5
# How often clients are looked at within an interval: none has much more time than another.
LOOKS_PER_INTERVAL = 10
# A topic is trimmed when it has grown to this part of its limit.
ALMOST_FULL = 0.9


class Maintenance:
    """The periodic tasks of one shard.

    Args:
        office: the context of the command handlers.
        directory: the partitions of the shard.
        room: the sockets of the shard.
        evict: removes a client without heartbeats from its groups.
        budget: the memory of all connections.
    """

    def __init__(
        self,
        office: Office,
        directory: PartitionDirectory,
        room: SocketRoom,
        evict: Callable[[Client], None],
        budget: BufferBudget,
    ) -> None:
        self._budget = budget
        self._office = office
        self._directory = directory
        self._room = room
        self._evict = evict
        self._space = FreeSpace(
            office.host.storage, directory, office.config.system.retention.min_free_space_bytes
        )

    async def run(self) -> None:
        """Run all enabled tasks, each at its interval, until cancelled."""
        config = self._office.config
        saver, cleaner = config.message_saver, config.data_maintenance.messages
        tokens, heartbeat = config.personal_access_token.cleaner, config.heartbeat
        is_first = self._office.shard_id == 0
        chores = [
            (saver.enabled, saver.interval_us, self._save),
            (cleaner.cleaner_enabled, cleaner.interval_us, self._clean),
            (heartbeat.enabled, heartbeat.interval_us / LOOKS_PER_INTERVAL, self._evict_silent),
            (tokens.enabled and is_first, tokens.interval_us, self._sweep_tokens),
            (is_first, config.consumer_group.rebalancing_check_interval_us, self._hand_over),
            (config.system.segment.max_age_us > 0, int(ROLL_S * 1e6), self._roll),
            (self._space.is_wanted, int(SPACE_S * 1e6), self._space.look),
            (True, int(MANNERS_S * 1e6), self._hang_up),
            (True, int(RETRY_S * 1e6), self._directory.retry),
            (
                config.system.logging.sysinfo_print_interval_us > 0,
                config.system.logging.sysinfo_print_interval_us,
                self._report,
            ),
        ]
        async with trio.open_nursery() as nursery:
            for is_wanted, interval_us, chore in chores:
                if is_wanted:
                    nursery.start_soon(self._repeat, interval_us / 1e6, chore)

    async def _repeat(self, interval_s: float, chore: Callable[[], Awaitable[None]]) -> None:
        while True:
            await trio.sleep(interval_s)
            try:
                await chore()
            except (ServerFault, StorageError) as error:
                LOGGER.warning(
                    "a maintenance task failed and is retried in %s s: %s", interval_s, error
                )

    async def _save(self) -> None:
        for _, partition in self._directory:
            await partition.save()

    async def _roll(self) -> None:
        for _, partition in self._directory:
            await partition.roll_aged(self._office.config.system.segment.max_age_us)

    async def _hang_up(self) -> None:
        self._room.hang_up_on_the_silent()
        self._office.clients.close_silent()
        self._budget.check()

    async def _report(self) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        LOGGER.info(
            "%d clients, %d partitions, %.1f s of CPU time, at most %.0f MiB resident",
            len(self._office.clients),
            len(dict(self._directory)),
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss / 1024,
        )

    async def _hand_over(self) -> None:
        self._office.registry.expire(self._office.clock.now_us())

    async def _sweep_tokens(self) -> None:
        context = PlanContext(now_us=self._office.clock.now_us(), settings=self._office.settings)
        await self._office.change(lambda metadata: plan_expire_tokens(metadata, context))

    async def _evict_silent(self) -> None:
        interval_us, clients = self._office.config.heartbeat.interval_us, self._office.clients
        now_us = self._office.clock.now_us()
        for client in clients.silent_since(now_us - round(interval_us * HEARTBEAT_FACTOR)):
            if not client.session.is_evicted:
                LOGGER.warning(
                    "client %s sent no heartbeat and loses its partitions", client.session.address
                )
                self._evict(client)
        for client in clients.silent_since(now_us - interval_us * LAST_HEARTBEAT_FACTOR):
            client.close()

    # Retention

    async def _clean(self) -> None:
        for stream in self._office.metadata().streams:
            for topic in stream.topics:
                if topic.message_expiry_us not in (0, NEVER_EXPIRES):
                    await self._expire(topic)
                if topic.max_size_bytes not in (0, UNLIMITED):
                    await self._trim(topic)

    async def _expire(self, topic: TopicRecord) -> None:
        for key, partition in self._directory:
            if key[:2] == (topic.stream_id, topic.id):
                await partition.expire_segments(topic.message_expiry_us)

    async def _trim(self, topic: TopicRecord) -> None:
        """Delete the oldest segments while the topic is almost full.

        The size is that of all shards. Only the shard with the oldest segment of the whole topic
        deletes one, so that shards together do not delete too much.
        """
        while True:
            figures = {
                key: partition
                for key, partition in (await self._office.census.figures()).items()
                if key[:2] == (topic.stream_id, topic.id)
            }
            size = sum(partition.size_bytes for partition in figures.values())
            if size < topic.max_size_bytes * ALMOST_FULL:
                return
            aged = [
                (partition.oldest_sealed_timestamp_us, key)
                for key, partition in figures.items()
                if partition.oldest_sealed_timestamp_us is not None
            ]
            mine = dict(self._directory)
            if not aged or (oldest := min(aged)[1]) not in mine:
                return
            if not await mine[oldest].delete_segments(1):
                return
