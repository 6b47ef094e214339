"""The start of a group or consumer that has stored nothing: looked up once, and stored.

    look      before the group is joined: whether anything is stored
    settle    after it: store an offset for each partition that this member has

What is stored decides from then on, so a restart, a rebalance or a reconnect goes on there. A group
is new as a whole: once it has stored something, a partition without a stored offset was empty or
did not exist when it began, and is read from its oldest message. The ends of the partitions are
those before the join, so no message that is sent after the consumer was opened is passed over.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from iggy_protocol import ConsumerIdentity, PollingStrategy, PollMessages
from iggy_sdk.consumer.start import StartIfNew, microseconds_of
from iggy_sdk.errors import (
    InvalidOffsetError,
    NotAMemberError,
    PartitionNotFoundError,
    PartitionNotOwnedError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from iggy_protocol import Partition, TopicDetails
    from iggy_sdk.consumer.membership import ConsumerMembership
    from iggy_sdk.consumer.subscription import Subscription


T = TypeVar("T")
R = TypeVar("R")

REQUESTS_MAX: Final = 32
"""How many requests are under way at a time."""

READER: Final = ConsumerIdentity.single(1)
"""Looks for the first message of a time; it is no member, so the group does not notice."""


class NewStart:
    """Finds out where a new group or consumer starts, and stores it.

    Args:
        membership: sends the requests.
        subscription: the group or consumer.
        place: where it starts.
        topic: the topic as it was before the group was joined.
        partitions: the partitions that are read, or None for all of the topic.
    """

    def __init__(
        self,
        membership: ConsumerMembership,
        subscription: Subscription,
        place: StartIfNew,
        topic: TopicDetails,
        partitions: Sequence[int] | None,
    ) -> None:
        self._membership = membership
        self._subscription = subscription
        self._place = place
        self._partitions = {
            one.id: one for one in topic.partitions if partitions is None or one.id in partitions
        }
        # A new group reads from the oldest message by itself.
        self._is_wanted = place not in ("earliest", 0)

    async def look(self, ask: Callable[[int], Awaitable[object]]) -> None:
        """Find out whether anything is stored.

        Args:
            ask: asks for the stored offset of a partition.

        Raises:
            IggyError: the server refuses, or cannot be reached.
        """
        if self._is_wanted:
            found = await each(ask, self._partitions)
            self._is_wanted = not any(one is not None for one in found)

    async def settle(self, find_assigned: Callable[[], Awaitable[Iterable[int]]]) -> None:
        """Store where the partitions of this member start; a second call does nothing.

        Args:
            find_assigned: finds out which partitions this member has.

        Raises:
            IggyError: the server refuses, or cannot be reached.
        """
        if self._is_wanted:
            assigned = await find_assigned()
            await each(self._settle, [one for one in assigned if one in self._partitions])
            self._is_wanted = False

    async def _settle(self, partition_id: int) -> None:
        start = await self._find(self._partitions[partition_id])
        if start == 0:
            return
        subscription = self._subscription
        try:
            # Another member may have had the partition meanwhile.
            if await self._membership.request(subscription.get_offset_command(partition_id)):
                return
            await self._membership.request(subscription.store_command(partition_id, start - 1))
        except (
            InvalidOffsetError,
            NotAMemberError,
            PartitionNotFoundError,
            PartitionNotOwnedError,
        ):
            # It has another owner by now, who settles it, or was purged and has nothing to skip.
            return

    async def _find(self, partition: Partition) -> int:
        """Return the offset at which a partition starts; 0 is its oldest message."""
        end = 0
        if partition.messages_count or partition.current_offset:
            end = partition.current_offset + 1
        if isinstance(self._place, int):
            return min(self._place, end)
        if isinstance(self._place, datetime) and end:
            return await self._find_time(partition.id, microseconds_of(self._place), end)
        return end

    async def _find_time(self, partition_id: int, time_us: int, end: int) -> int:
        polled = await self._membership.request(
            PollMessages(
                READER,
                self._subscription.stream,
                self._subscription.topic,
                PollingStrategy.timestamp(time_us),
                1,
                partition_id,
            )
        )
        return next((message.offset for message in polled.messages), end)


async def each(ask: Callable[[T], Awaitable[R]], questions: Iterable[T]) -> list[R]:
    """Ask about several things at a time, and return the answers in any order.

    Raises:
        Exception: the first that was raised, once the others are cancelled.
    """
    answers: list[R] = []
    failures: list[Exception] = []
    limiter = anyio.CapacityLimiter(REQUESTS_MAX)

    async def worker(question: T) -> None:
        async with limiter:
            try:
                answers.append(await ask(question))
            except Exception as error:
                failures.append(error)
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for question in questions:
            tasks.start_soon(worker, question)
    if failures:
        raise failures[0]
    return answers
