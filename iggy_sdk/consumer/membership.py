"""Group membership of a consumer, kept through reconnects.

The server ties it to a connection, or to the session of the client from 0.10 on. When the client
has another one, or the server lists no such member, the group is joined again before the next
request, and ``on_rejoin`` is called.
"""

from __future__ import annotations

import itertools
import logging
import random
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

import anyio

from iggy_protocol import (
    Command,
    ConsumerIdentity,
    CreateConsumerGroup,
    Identifier,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    StatusCode,
    SyncConsumerGroup,
)
from iggy_sdk.consumer.events import log_event
from iggy_sdk.consumer.subscription import Subscription
from iggy_sdk.errors import (
    ConfigurationError,
    ConnectionFailedError,
    ConsumerGroupExistsError,
    ConsumerGroupNotFoundError,
    IggyError,
    NotAMemberError,
    RequestTimeoutError,
    error_for_status,
)
from iggy_sdk.log_events import EVENT
from iggy_sdk.options import Backoff, ClientOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_protocol import ConsumerGroupAssignment, Dialect, PartitionContext
    from iggy_sdk.client_interface import ClientInterface


R = TypeVar("R")

logger = logging.getLogger("iggy_sdk.consumer")

REJOINS_MAX: Final = 5
"""How often one request may join again; more means that the server keeps evicting the member."""

RETRY_SECONDS_MAX: Final = 5.0
"""The longest wait between two attempts to join."""

_joined_groups: WeakKeyDictionary[ClientInterface, set[tuple[Identifier, ...]]] = (
    WeakKeyDictionary()
)
"""The groups that each client has joined, so that none is joined twice."""


class RequestWithdrawn(Exception):
    """A request became obsolete, because the group was joined again."""


def _always() -> bool:
    return True


class ConsumerMembership(Protocol):
    """How a consumer sends requests, as a member of a group or not."""

    async def request(
        self,
        command: Command[R],
        still_wanted: Callable[[], bool] = _always,
        *,
        context: PartitionContext | None = None,
        timeout: float | None = None,
    ) -> R:
        """Send a command, unless it became obsolete before it could be sent."""

    async def sync(self) -> ConsumerGroupAssignment:
        """Ask which partitions the group assigns to this member; servers from 0.9 on tell."""

    @property
    def dialect(self) -> Dialect:
        """What the server speaks."""

    @property
    def is_clustered(self) -> bool:
        """Whether the partitions are on several nodes."""

    async def join(self) -> None:
        """Join the group, if there is one."""

    async def leave(self) -> None:
        """Leave the group, if the connection still exists."""

    def forget(self) -> None:
        """Drop the local record of the membership."""

    @property
    def joins_count(self) -> int:
        """How often a group was joined."""


class NoMembership:
    """A standalone consumer, or one whose user joins and leaves the group."""

    joins_count = 0

    def __init__(self, client: ClientInterface, group: SyncConsumerGroup | None = None) -> None:
        """Take the client, and the question for the assignment of a group, if there is one."""
        self._client = client
        self._group = group

    @property
    def dialect(self) -> Dialect:
        """What the server speaks."""
        return self._client.dialect

    @property
    def is_clustered(self) -> bool:
        """Whether the partitions are on several nodes."""
        return self._client.is_clustered

    async def request(
        self,
        command: Command[R],
        still_wanted: Callable[[], bool] = _always,
        *,
        context: PartitionContext | None = None,
        timeout: float | None = None,
    ) -> R:
        """Send a command, unless it became obsolete."""
        if not still_wanted():
            raise RequestWithdrawn
        return await self._client.request(command, context=context, timeout=timeout)

    async def sync(self) -> ConsumerGroupAssignment:
        """Ask which partitions the group assigns to this client, whose user has joined it.

        Raises:
            NotAMemberError: nobody has joined.
        """
        assert self._group is not None, "a standalone consumer has no assignment"
        return _assigned(await self._client.request(self._group), self._group)

    async def join(self) -> None:
        """Do nothing: there is nothing to join."""

    async def leave(self) -> None:
        """Do nothing: there is nothing to leave."""

    def forget(self) -> None:
        """Do nothing: there is no record."""


async def _do_nothing() -> None:
    """Do nothing after the group was joined again."""


class GroupMembership:
    """Membership in a group.

    Args:
        client: its connection is the member.
        stream: the stream of the topic.
        topic: the topic of the group.
        group: the group.
        create: whether a missing group is created.
    """

    def __init__(
        self,
        client: ClientInterface,
        *,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        create: bool,
    ) -> None:
        self.on_rejoin: Callable[[], Awaitable[None]] = _do_nothing
        self.joins_count: int = 0
        self._client = client
        self._stream, self._topic, self._group = stream, topic, group
        self._subscription = Subscription(ConsumerIdentity.group(group), stream, topic)
        self._create = create
        self._key = (stream, topic, group)
        # The epoch of the session that is a member, or None.
        self._epoch: int | None = None
        self._joining = anyio.Lock()

    async def join(self) -> None:
        """Join the group; create it if it is missing and that is allowed.

        Raises:
            ConfigurationError: another consumer of this client is a member already.
            ConsumerGroupNotFoundError: there is no such group and none may be created.
            IggyError: the server refuses.
        """
        joined = _joined_groups.setdefault(self._client, set())
        if self._key in joined:
            raise ConfigurationError(
                f"this connection is a member of group {self._group!r} already",
                advice="Leave out connection='shared', so that each has an own connection.",
            )
        joined.add(self._key)
        try:
            await self._ensure_joined()
        except BaseException:
            self.forget()
            raise

    @property
    def dialect(self) -> Dialect:
        """What the server speaks."""
        return self._client.dialect

    @property
    def is_clustered(self) -> bool:
        """Whether the partitions are on several nodes."""
        return self._client.is_clustered

    async def sync(self) -> ConsumerGroupAssignment:
        """Ask which partitions the group assigns to this member; join again if it is none."""
        question = SyncConsumerGroup(self._stream, self._topic, self._group)

        async def ask() -> ConsumerGroupAssignment:
            return _assigned(await self._client.request(question), question)

        return await self._as_member(ask, _always)

    async def request(
        self,
        command: Command[R],
        still_wanted: Callable[[], bool] = _always,
        *,
        context: PartitionContext | None = None,
        timeout: float | None = None,
    ) -> R:
        """Send a command as a member; join again when the server lists no such member.

        Args:
            command: any command.
            still_wanted: called before each attempt; joining again may make the command obsolete.
            context: the state of the partition, if an earlier reply told it.
            timeout: seconds for all of it; None takes the timeout of the client.

        Raises:
            RequestWithdrawn: the command became obsolete.
            IggyError: the error of the server.
        """

        async def send() -> R:
            return await self._client.request(command, context=context, timeout=timeout)

        return await self._as_member(send, still_wanted)

    async def _as_member(
        self, send: Callable[[], Awaitable[R]], still_wanted: Callable[[], bool]
    ) -> R:
        for attempt in itertools.count():
            await self._ensure_joined()
            if not still_wanted():
                raise RequestWithdrawn
            joins = self.joins_count
            try:
                return await send()
            except (NotAMemberError, ConsumerGroupNotFoundError) as error:
                if attempt >= REJOINS_MAX:
                    raise
                log_event(
                    "membership_lost",
                    self._subscription,
                    f"the server no longer lists this consumer, joining again: {error}",
                )
                if self.joins_count == joins:
                    self._epoch = None
        raise AssertionError("itertools.count is endless")

    async def leave(self) -> None:
        """Leave the group; a closed connection has left already."""
        was_member = self._epoch is not None and self._epoch == self._client.session_epoch
        self._epoch = None
        try:
            if was_member and self._client.is_connected:
                command = LeaveConsumerGroup(self._stream, self._topic, self._group)
                await self._client.request(command)
        except IggyError as error:
            log_event(
                "leave_failed",
                self._subscription,
                f"leaving failed, the end of the connection removes the member: {error}",
            )
        finally:
            self.forget()

    def forget(self) -> None:
        """Let another consumer of this client join the group."""
        _joined_groups.get(self._client, set()).discard(self._key)

    async def _ensure_joined(self) -> None:
        if self._epoch == self._client.session_epoch:
            return
        async with self._joining:
            if self._epoch == self._client.session_epoch:
                return
            again = self.joins_count > 0
            await self._join()
            text = "joined again" if again else "joined"
            log_event("joined", self._subscription, text, joins=self.joins_count)
            if again:
                await self.on_rejoin()

    async def _join(self) -> None:
        """Join, with retries; the epoch is read after the reply, when it is that of the member."""
        retry_policy = RetryPolicy(
            self._client.options,
            longest=RETRY_SECONDS_MAX,
            what=f"joining group {self._group!r}",
        )
        while True:
            try:
                await self._join_once()
            except IggyError as error:
                await self._retry_or_raise_final(retry_policy, error)
            else:
                self._epoch = self._client.session_epoch
                self.joins_count += 1
                return

    async def _retry_or_raise_final(self, retry_policy: RetryPolicy, error: IggyError) -> None:
        try:
            await retry_policy.retry_or_raise(error)
        except IggyError:
            # The poll above must not start its own retries for this error.
            error.retriable = False
            raise

    async def _join_once(self) -> None:
        join = JoinConsumerGroup(self._stream, self._topic, self._group)
        try:
            await self._client.request(join)
        except ConsumerGroupNotFoundError:
            if not self._create or not isinstance(self._group, str):
                raise
            await self._create_group(self._group)
            await self._client.request(join)

    async def _create_group(self, name: str) -> None:
        try:
            await self._client.request(CreateConsumerGroup(self._stream, self._topic, name))
        except ConsumerGroupExistsError:
            logger.debug("another client has created group %r meanwhile", name)


def _assigned(
    assignment: ConsumerGroupAssignment | None, question: SyncConsumerGroup
) -> ConsumerGroupAssignment:
    """Return what a server answers to a member; others get no assignment."""
    if assignment is None:
        raise error_for_status(StatusCode.CONSUMER_GROUP_MEMBER_NOT_FOUND, command=question)
    return assignment


# Which errors a consumer retries, and how long it waits between attempts.
#
# A server that is out of reach is retried as long as the client's ``reconnect`` option allows; a
# retriable error reply is retried a few times. Every other error is raised at once.

logger = logging.getLogger("iggy_sdk.consumer")

ERROR_REPLIES_MAX: Final = 10
"""How many error replies in a row are retried before the last one is raised."""

WARNED_FAILURES: Final = 10
"""Of how many failures in a row one is a warning; the others are for debugging."""

RETRY_SECONDS_MIN: Final = 0.05
"""The first wait after an error; a short glitch is over by then."""


class RetryPolicy:
    """Waits before the next attempt, or raises the error.

    Args:
        options: those of the client.
        longest: the longest wait between two attempts, in seconds.
        what: the operation, for the log.
    """

    def __init__(self, options: ClientOptions, *, longest: float, what: str) -> None:
        reconnect = options.reconnect
        self._waits_for_server = reconnect.enabled and reconnect.retries is None
        self._backoff = Backoff(initial=min(RETRY_SECONDS_MIN, longest), maximum=longest)
        self._what = what
        self._failures = 0

    def reset(self) -> None:
        """Reset the count of failures after a success."""
        self._failures = 0

    async def retry_or_raise(self, error: IggyError) -> None:
        """Wait before the next attempt.

        Raises:
            IggyError: this error, when there should be no further attempt.
        """
        self._failures += 1
        if not self._may_retry(error):
            raise error
        delay = self._backoff.delay(self._failures - 1, random.random)
        is_seen = self._failures == 1 or self._failures % WARNED_FAILURES == 0
        logger.log(
            logging.WARNING if is_seen else logging.DEBUG,
            "%s failed, retrying in %.2f s: %s",
            *(self._what, delay, error),
            extra={EVENT: "retry", "attempt": self._failures, "delay_s": delay},
        )
        await anyio.sleep(delay)

    def _may_retry(self, error: IggyError) -> bool:
        if isinstance(error, ConnectionFailedError | RequestTimeoutError):
            return self._waits_for_server
        return error.retriable and self._failures < ERROR_REPLIES_MAX
