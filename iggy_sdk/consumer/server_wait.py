"""Waiting for messages on the server, which it can from 0.10 on, instead of polling now and then.

A consumer whose last round of polls was empty leaves one request with the server, which answers it
when there is a message, or when the wait is over. For one partition that is a poll that waits; it
brings the messages at once. For several, and where the server commits what it hands out, it only
tells which partitions have messages, and a plain poll fetches them.

An answer that nobody waits for any more must not move offsets, so none of these requests commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iggy_protocol import (
    Command,
    CommandCode,
    FetchMessages,
    FetchTarget,
    PartitionContext,
    PollDeferred,
    PollingKind,
    PollingStrategy,
    WaitForMessages,
    WaitTarget,
    commands_of,
)
from iggy_sdk.consumer.poller import FetchedMessages
from iggy_sdk.errors import PartitionNotOwnedError, PartitionRestartedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_sdk.consumer.membership import ConsumerMembership
    from iggy_sdk.consumer.options import ConsumerOptions
    from iggy_sdk.consumer.poller import Poller
    from iggy_sdk.consumer.subscription import Subscription


WAIT_SECONDS_MAX: Final = 20.0
"""How long one request waits on the server; official servers allow half a minute."""

WAIT_SECONDS_MIN: Final = 0.01
"""A shorter wait is not worth a request."""

ANSWER_SECONDS: Final = 10.0
"""How much longer than its wait a request may take before the server counts as dead."""

TARGETS_MAX: Final = 1_000
"""Partitions in one request; of more, the others are polled when this wait is over."""

REPLY_BYTES_MAX: Final = 2**28
"""As large as a reply may be anyway; a poll has no limit in bytes either."""

MICROSECONDS: Final = 1_000_000

# Where an empty partition was asked for its first or last message, the next one is what is waited
# for; a time may lie in the future, and so be that of a later message.
_FROM_THE_FIRST: Final = PollingStrategy.offset(0)
_EMPTY_KINDS: Final = frozenset({PollingKind.FIRST, PollingKind.LAST})
_PLACE_KINDS: Final = frozenset({PollingKind.OFFSET, PollingKind.NEXT})


class ServerWait:
    """Leaves requests with the server for one consumer."""

    def __init__(
        self,
        *,
        membership: ConsumerMembership,
        subscription: Subscription,
        options: ConsumerOptions,
        poller: Poller,
    ) -> None:
        self._membership = membership
        self._subscription = subscription
        self._options = options
        self._poller = poller
        self._by_server = options.commit.by_server

    @property
    def is_possible(self) -> bool:
        """Whether the server can wait for the partitions that are polled at the moment."""
        if CommandCode.POLL_DEFERRED not in commands_of(self._membership.dialect):
            return False
        partitions = self._partitions()
        if len(partitions) == 1 and not self._by_server:
            return True
        if self._membership.is_clustered:
            # One node cannot wait for the partitions of another one.
            return False
        return bool(partitions) and all(self._start(one) is not None for one in partitions)

    async def wait(self, seconds: float) -> FetchedMessages:
        """Wait for messages so long; where there are any, the next polls take them.

        Raises:
            IggyError: the request failed; nothing has changed.
        """
        partitions = self._partitions()
        first = partitions[0]
        seconds = min(seconds, WAIT_SECONDS_MAX)
        try:
            if len(partitions) == 1 and not self._by_server:
                return await self._poll(first, seconds)
            ready = await self._ready(partitions, seconds)
        except PartitionNotOwnedError:
            return self._poller.refused(first)
        except PartitionRestartedError:
            return self._poller.restarted(first)
        self._poller.prefer(ready)
        return FetchedMessages(first, at_end=not ready)

    def _partitions(self) -> list[int]:
        rotation = self._poller.rotation
        if rotation is None:
            return []
        excluded = self._poller.excluded
        wanted = [one for one in rotation.partitions if one not in excluded]
        return wanted[:TARGETS_MAX]

    def _start(self, partition_id: int) -> PollingStrategy | None:
        """Return where a partition goes on, if a request for several of them can say so."""
        strategy = self._poller.strategy(partition_id)
        if strategy.kind in _PLACE_KINDS:
            return strategy
        return _FROM_THE_FIRST if strategy.kind in _EMPTY_KINDS else None

    async def _poll(self, partition_id: int, seconds: float) -> FetchedMessages:
        """Poll one partition, and wait if it has nothing."""
        subscription = self._subscription
        wait_us, timeout_us, timeout = _times(seconds)
        command = PollDeferred(
            subscription.consumer,
            subscription.stream,
            subscription.topic,
            self._poller.strategy(partition_id),
            self._options.batch_length,
            wait_us,
            timeout_us,
            bytes_max=REPLY_BYTES_MAX,
            partition_id=partition_id,
        )
        context = self._poller.context(partition_id)
        moves = self._poller.moves(partition_id)
        polled = await self._poller.send(command, context=context, timeout=timeout)
        if self._poller.moves(partition_id) != moves:
            return FetchedMessages(partition_id, at_end=False)
        return self._poller.take_reply(partition_id, self._poller.read(polled))

    async def _ready(self, partitions: Sequence[int], seconds: float) -> list[int]:
        """Return the partitions that have messages, once one of them has."""
        subscription = self._subscription
        place = (subscription.consumer, subscription.stream, subscription.topic)
        wait_us, timeout_us, timeout = _times(seconds)
        starts = [(one, self._start(one) or _FROM_THE_FIRST) for one in partitions]
        if CommandCode.WAIT_FOR_MESSAGES in commands_of(self._membership.dialect):
            waits = tuple(WaitTarget(one, strategy) for one, strategy in starts)
            asking: Command[tuple[int, ...]] = WaitForMessages(*place, wait_us, timeout_us, waits)
            context = self._poller.plain_context(partitions[0])
            return list(await self._poller.send(asking, context=context, timeout=timeout))
        # One message is enough to know; the poll that follows brings it and all others.
        targets = tuple(self._target(one, strategy) for one, strategy in starts)
        fetching = FetchMessages(
            *place, wait_us, timeout_us, targets, count=1, bytes_max=REPLY_BYTES_MAX
        )
        sections = await self._poller.send(fetching, context=None, timeout=timeout)
        # The poll finds out what is wrong with a partition that cannot be read.
        return [one.partition_id for one in sections if one.messages_count or one.status]

    def _target(self, partition_id: int, strategy: PollingStrategy) -> FetchTarget:
        context = self._poller.context(partition_id) or PartitionContext()
        return FetchTarget(
            partition_id,
            strategy,
            REPLY_BYTES_MAX,
            context.incarnation,
            context.owner_generation,
        )


def _times(seconds: float) -> tuple[int, int, float]:
    """Return the wait and the timeout of a request as the wire wants them, and the timeout here."""
    wait_us = int(seconds * MICROSECONDS)
    timeout = seconds + ANSWER_SECONDS
    return wait_us, int(timeout * MICROSECONDS), timeout
