"""The core of a consumer: its parts, its timer task, opening and closing.

Closing has an order: stop polling, store what is due, leave the group, close an own connection. It
is shielded from cancellation and limited in time, so that leaving a block neither loses commits
nor hangs.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio

from iggy_protocol import (
    GetStream,
    GetTopic,
    PolledMessages,
    PollingStrategy,
    StatusCode,
    SyncConsumerGroup,
    TopicDetails,
)
from iggy_sdk.consumer.assignment import PartitionRotation
from iggy_sdk.consumer.commit_scheduler import CommitScheduler
from iggy_sdk.consumer.cursor import PartitionCursors
from iggy_sdk.consumer.delivery import MessageDelivery
from iggy_sdk.consumer.events import log_event
from iggy_sdk.consumer.fetch_buffer import FetchBuffer
from iggy_sdk.consumer.handover import Handover
from iggy_sdk.consumer.membership import (
    ConsumerMembership,
    GroupMembership,
    NoMembership,
    RetryPolicy,
)
from iggy_sdk.consumer.new_start import NewStart
from iggy_sdk.consumer.poller import Poller
from iggy_sdk.consumer.server_wait import ServerWait
from iggy_sdk.consumer.start import StartPlan
from iggy_sdk.consumer.tracker import OffsetTrackers
from iggy_sdk.durations import to_seconds
from iggy_sdk.errors import (
    ClientClosedError,
    IggyError,
    InvalidRequestError,
    StreamNotFoundError,
    TopicNotFoundError,
)
from iggy_sdk.hooks import Hooks
from iggy_sdk.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_sdk.client_interface import ClientInterface
    from iggy_sdk.consumer.options import ConsumerOptions
    from iggy_sdk.consumer.subscription import Subscription
    from iggy_sdk.message import Committer, ReceivedBatch
    from iggy_sdk.options import ClientOptions


T = TypeVar("T")

logger: logging.Logger = logging.getLogger("iggy_sdk.consumer")


class ConsumerCore(Generic[T]):
    """The parts of a consumer.

    Args:
        rotation: the partitions to read, or None when the server chooses.
        owns_client: whether the connection is closed with the consumer.
    """

    def __init__(
        self,
        client: ClientInterface,
        *,
        membership: ConsumerMembership,
        subscription: Subscription,
        options: ConsumerOptions,
        rotation: PartitionRotation | None,
        owns_client: bool,
    ) -> None:
        inherited = client.options
        self.options: ConsumerOptions = options
        self.subscription: Subscription = subscription
        self.membership: ConsumerMembership = membership
        self.hooks: Hooks = Hooks(inherited.hooks)
        self.is_closed: bool = False
        self._is_closing = False
        self.committer: Committer | None = None
        self.request_timeout: float = inherited.request_timeout
        own = options.close_timeout
        self.close_timeout: float = inherited.close_timeout if own is None else to_seconds(own)
        self._client = client
        self._owns_client = owns_client
        self._failure: IggyError | None = None
        self._pipeline: Pipeline[T] = Pipeline(
            options.serde, encryptor=options.encryptor_of(inherited.encryptor)
        )
        self.trackers: OffsetTrackers = OffsetTrackers(options.commit)
        plan = StartPlan(
            options.start, options.replay_from, commit_backwards=options.commit_backwards
        )
        self.cursors: PartitionCursors = PartitionCursors(plan, allow_replay=options.allow_replay)
        self.poller: Poller = Poller(
            membership=membership,
            subscription=subscription,
            options=options,
            cursors=self.cursors,
            trackers=self.trackers,
            rotation=rotation,
            make_batch=self._make_batch,
        )
        self.fetch_buffer: FetchBuffer[T] = self._make_fetch_buffer(inherited)
        self.commits: CommitScheduler = CommitScheduler(
            membership=membership,
            subscription=subscription,
            trackers=self.trackers,
            cursors=self.cursors,
            mode=options.commit,
            on_lost=self._on_lost,
        )
        self.delivery: MessageDelivery[T] = MessageDelivery(
            fetch_buffer=self.fetch_buffer,
            commits=self.commits,
            mode=options.commit,
            hooks=self.hooks,
        )
        self.handover: Handover = self._make_handover()
        self.poller.on_gained = self._compare_with_stored
        if isinstance(membership, GroupMembership):
            membership.on_rejoin = self._on_rejoin

    def _make_handover(self) -> Handover:
        """Make what tells the application of its partitions."""
        options = self.options
        handover = Handover(
            subscription=self.subscription,
            trackers=self.trackers,
            on_assigned=options.on_assigned,
            on_revoked=options.on_revoked,
            stores_all=options.commit.stores_all,
        )
        self.commits.before_store = handover.before_store
        self.poller.on_assignment = handover.update
        self.poller.before_poll = handover.tell_lost
        return handover

    def _make_fetch_buffer(self, inherited: ClientOptions) -> FetchBuffer[T]:
        """Make what polls ahead of the application, or lets the server wait for it."""
        longest = to_seconds(self.options.polling_retry_interval)
        what = f"{self.subscription}: polling"
        return FetchBuffer(
            poller=self.poller,
            cursors=self.cursors,
            trackers=self.trackers,
            options=self.options,
            retry_policy=RetryPolicy(inherited, longest=longest, what=what),
            server_wait=ServerWait(
                membership=self.membership,
                subscription=self.subscription,
                options=self.options,
                poller=self.poller,
            ),
        )

    def _make_batch(self, polled: PolledMessages) -> ReceivedBatch[Any]:
        subscription = self.subscription
        return self._pipeline.batch(
            polled, stream=subscription.stream, topic=subscription.topic, committer=self.committer
        )

    # Position

    async def seek(
        self, strategy: PollingStrategy, partition_id: int | None, *, guards: bool
    ) -> None:
        """Continue elsewhere, after storing what is acknowledged."""
        await self._let_go(partition_id)
        self.cursors.seek(strategy, partition_id, guards=guards)
        self.fetch_buffer.notify_change()

    async def step_back(self, partition_id: int, offset: int) -> None:
        """Go back to a message that was delivered to somebody who has not used it."""
        await self._let_go(partition_id)
        self.fetch_buffer.rewind_to(partition_id, offset)
        self.fetch_buffer.notify_change()

    async def _let_go(self, partition_id: int | None) -> None:
        self.delivery.record_taken()
        await self.commits.flush()
        self.fetch_buffer.rewind_buffer(partition_id)
        for tracker in self.trackers:
            if partition_id in (None, tracker.partition_id):
                self.trackers.forget(tracker.partition_id)

    def pause(self, partition_ids: Iterable[int]) -> None:
        """Stop polling some partitions, or all."""
        wanted = frozenset(partition_ids)
        if not wanted:
            self.fetch_buffer.is_paused = True
            self.fetch_buffer.rewind_buffer()
        self.poller.paused |= wanted
        for partition_id in wanted:
            self.fetch_buffer.rewind_buffer(partition_id)
        self.fetch_buffer.notify_change()

    def resume(self, partition_ids: Iterable[int]) -> None:
        """Poll partitions again, or all of them."""
        wanted = frozenset(partition_ids)
        self.fetch_buffer.is_paused = False
        self.poller.paused = self.poller.paused - wanted if wanted else frozenset()
        self.fetch_buffer.notify_change()

    def stop(self) -> None:
        """Stop reading."""
        self.fetch_buffer.is_stopped = True
        self.fetch_buffer.end_prefetch()
        self.fetch_buffer.rewind_buffer()
        self.fetch_buffer.notify_change()

    async def delete_offset(self, partition_id: int, *, timeout: float | None = None) -> None:
        """Delete a stored offset."""
        command = self.subscription.delete_offset_command(partition_id)
        await self.membership.request(command, timeout=timeout)
        self.cursors.lift_floor(partition_id)
        tracker = self.trackers.find(partition_id)
        if tracker is not None:
            tracker.stored = None

    def last_partition(self) -> int | None:
        """Tell the partition of the message that was delivered last."""
        return None if self.fetch_buffer.tracker is None else self.fetch_buffer.tracker.partition_id

    def named_or_last(self, partition_id: int | None) -> int:
        """Return a partition, or that of the message that was delivered last if none is named.

        Raises:
            InvalidRequestError: there is no such message.
        """
        found = self.last_partition() if partition_id is None else partition_id
        if found is None:
            raise InvalidRequestError(
                "no partition was named, and no message was read", advice="Name the partition."
            )
        return found

    def last_delivered(self, partition_id: int) -> int | None:
        """Tell the offset of the last message of a partition that was delivered."""
        self.delivery.record_taken()
        tracker = self.trackers.find(partition_id)
        return None if tracker is None else tracker.delivered

    # Rejoining the group

    async def _on_rejoin(self) -> None:
        """Drop state that another member may have advanced meanwhile.

        The buffer is polled again.
        """
        self.fetch_buffer.rewind_buffer()
        self.poller.forget_assignment()
        self.handover.lose_all()
        await self._compare_with_stored(frozenset(self.positions()))

    async def _compare_with_stored(self, partitions: frozenset[int]) -> None:
        """Continue from the stored offsets that are beyond the position of this consumer."""
        for partition_id, position in self.positions().items():
            if partition_id not in partitions:
                continue
            self.poller.forget_context(partition_id)
            try:
                stored = await self._client.request(
                    self.subscription.get_offset_command(partition_id)
                )
            except IggyError as error:
                logger.info("%s: reading the stored offsets failed: %s", self.subscription, error)
                return
            floor = self.cursors.floor(partition_id)
            if floor is not None and (stored is None or stored.stored_offset <= floor):
                # It is read again from before the stored offset, and nobody else has read on.
                continue
            if stored is not None and stored.stored_offset >= position:
                self.fetch_buffer.reset_to_stored(partition_id)

    def _on_lost(self, partition_id: int) -> None:
        """Forget a partition whose offset the server did not store for this member."""
        self.poller.refused(partition_id)
        self.handover.lose(partition_id)
        self.fetch_buffer.reset_to_stored(partition_id)

    def positions(self) -> dict[int, int]:
        """Tell the offset that is delivered next, for all partitions where it is known."""
        return {**self.cursors.positions(), **self.fetch_buffer.firsts()}

    # Background

    async def run_commit_timer(self) -> None:
        """Store offsets at the commit interval, until this is cancelled."""
        seconds = self.options.commit.pulse
        if seconds is None:
            return
        self.delivery.use_timer_task()
        self.commits.has_timer_task = True
        while True:
            with anyio.move_on_after(seconds):
                await self.commits.wait_for_request()
            self.delivery.record_taken()
            try:
                await self.commits.on_timer()
            except Exception as error:
                self._record_failure(error)

    async def run_prefetch(self) -> None:
        """Poll ahead of the application, until this is cancelled."""
        if self.fetch_buffer.can_prefetch:
            self.commits.leaves_to_timer = True
            await self.fetch_buffer.run_prefetch()

    def check(self) -> None:
        """Raise a failure of the timer task, or that the consumer is closed.

        Raises:
            ClientClosedError: it is.
            IggyError: the server refuses to store offsets.
        """
        if self.is_closed:
            raise ClientClosedError(
                "the consumer was closed", advice="Make another one with client.consumer_group()."
            )
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise the failure of the timer task since the last call.

        Raises:
            IggyError: the server refuses to store offsets.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _record_failure(self, error: Exception) -> None:
        if not isinstance(error, IggyError):
            logger.exception("%s: storing offsets failed", self.subscription)
            return
        logger.warning("%s: storing offsets failed: %s", self.subscription, error)
        if not self.is_closed:
            self._failure = error

    # Closing

    async def aclose(self, timeout: float | None = None) -> None:
        """Store what is due, leave, and close; a second call does nothing."""
        seconds = self.close_timeout if timeout is None else timeout
        if self._is_closing:
            return
        self._is_closing = True
        self.stop()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(seconds) as scope:
                await self._tell_end()
                self.is_closed = True
                await self._commit_and_leave()
            self.is_closed = True
            if scope.cancelled_caught:
                logger.warning("%s: closing took longer than %s s", self.subscription, seconds)
            self.membership.forget()
            if self._owns_client:
                await self._client.aclose()

    async def _tell_end(self) -> None:
        """Tell the application that its partitions go; it may still commit."""
        self.delivery.record_taken()
        try:
            await self.handover.end()
        except Exception as error:
            text = "on_revoked failed while the consumer closed"
            log_event("callback_failed", self.subscription, text, level=logging.ERROR, error=error)

    async def _commit_and_leave(self) -> None:
        try:
            await self.commits.finish()
        except IggyError as error:
            logger.warning("%s: the last offsets are not stored: %s", self.subscription, error)
        await self.membership.leave()


# Opening a consumer: find the topic, join the group, assemble the parts.


def check_transport(client: ClientInterface, subscription: Subscription) -> None:
    """Refuse a group over HTTP at once.

    Raises:
        InvalidRequestError: a group is wanted over HTTP.
    """
    if subscription.is_group and client.options.transport == "http":
        raise InvalidRequestError(
            "a member of a consumer group needs a lasting connection, which HTTP does not have",
            code=StatusCode.FEATURE_UNAVAILABLE,
            advice="Use consumer() with partitions of its own, or connect with iggy://.",
        )


async def open_consumer_core(
    client: ClientInterface,
    subscription: Subscription,
    options: ConsumerOptions,
    *,
    owns_client: bool,
) -> ConsumerCore[Any]:
    """Find the topic, join the group if there is one, and assemble a consumer.

    Raises:
        StreamNotFoundError, TopicNotFoundError, ConsumerGroupNotFoundError: there is none.
        IggyError: the server refuses.
    """
    topic = await _await_topic(client, subscription, options)
    membership = _choose_membership(client, subscription, options)
    new_start = NewStart(membership, subscription, options.start_if_new, topic, options.partitions)
    await new_start.look(lambda one: client.request(subscription.get_offset_command(one)))
    await membership.join()
    rotation = None
    if options.partitions is not None:
        rotation = PartitionRotation(options.partitions)
    elif not subscription.is_group or options.partition_id == "all":
        rotation = PartitionRotation(range(topic.partitions_count))
    core: ConsumerCore[Any] = ConsumerCore(
        client,
        membership=membership,
        subscription=subscription,
        options=options,
        rotation=rotation,
        owns_client=owns_client,
    )
    core.poller.before_first = partial(new_start.settle, core.poller.find_assigned)
    if not subscription.is_group or options.auto_join_consumer_group:
        try:
            await core.poller.before_first()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await core.aclose()
            raise
    return core


def _choose_membership(
    client: ClientInterface, subscription: Subscription, options: ConsumerOptions
) -> ConsumerMembership:
    if not subscription.is_group:
        return NoMembership(client)
    if not options.auto_join_consumer_group:
        group = SyncConsumerGroup(subscription.stream, subscription.topic, subscription.consumer.id)
        return NoMembership(client, group)
    return GroupMembership(
        client,
        stream=subscription.stream,
        topic=subscription.topic,
        group=subscription.consumer.id,
        create=options.create_consumer_group_if_not_exists,
    )


async def _await_topic(
    client: ClientInterface, subscription: Subscription, options: ConsumerOptions
) -> TopicDetails:
    """Request the topic, with ``init_retries`` retries."""
    for _ in range(options.init_retries):
        topic = await client.request(GetTopic(subscription.stream, subscription.topic))
        if topic is not None:
            return topic
        await anyio.sleep(to_seconds(options.init_retry_interval))
    topic = await client.request(GetTopic(subscription.stream, subscription.topic))
    if topic is not None:
        return topic
    advice = "Create it first, or let the consumer wait for it with init_retries."
    if await client.request(GetStream(subscription.stream)) is None:
        raise StreamNotFoundError(f"there is no stream {subscription.stream!r}", advice=advice)
    raise TopicNotFoundError(
        f"{subscription.stream!r} has no topic {subscription.topic!r}", advice=advice
    )
