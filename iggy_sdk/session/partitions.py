"""What requests to servers from 0.9 on must know of partitions, and where that is cached.

From 0.9 on the client chooses the partition of each batch, so it needs to know how many there are.
From 0.10 on a request to a partition also names its incarnation, which a route tells. Routes are
asked for once and again when metadata have changed as far as this client knows, or when a server
refuses what they said.
"""

from __future__ import annotations

import random
from itertools import count
from ssl import RAND_bytes
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import anyio

from iggy_protocol import (
    NO_CONTEXT,
    Command,
    ConsumerKind,
    DeleteConsumerOffset,
    FetchMessages,
    GetConsumerOffset,
    GetPartitionRoute,
    GetTopic,
    Identifier,
    PartitionContext,
    Partitioning,
    PartitioningKind,
    PartitionRoute,
    PollDeferred,
    PollMessages,
    SendMessages,
    StatusCode,
    StoreConsumerOffset,
    VsrClientSession,
    WaitForMessages,
    partition_for_key,
)
from iggy_sdk.errors import (
    InvalidRequestError,
    PermissionDeniedError,
    error_for_status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")

COUNT_SECONDS_MAX: Final = 10.0
"""How long the number of partitions is cached. Partitions are added by people, not by programs."""

ENTRIES_MAX: Final = 4_096
"""How many routes or topics are cached; a forgotten one costs a request."""

ID_BYTES: Final = 16
"""Random bytes for the id of a message; servers from 0.9 on want one in every message."""


class PartitionPlace(NamedTuple):
    """A partition as a request spells it."""

    stream: Identifier
    topic: Identifier
    partition_id: int


class PlannedRequest(NamedTuple):
    """A request as it is sent to a server from 0.9 on.

    Attributes:
        command: what is sent; in a send, the partition is chosen.
        place: the partition that it refers to, if any.
        context: the state of that partition.
        is_captured: whether the caller gave the context, so that a newer one would not do.
        primary_id: the node that serves the partition, where there are several.
    """

    command: Command[Any]
    place: PartitionPlace | None = None
    context: PartitionContext = NO_CONTEXT
    is_captured: bool = False
    primary_id: int | None = None


class Ask(Protocol):
    """Sends a command and returns the reply, before the deadline of the request that needs it."""

    async def __call__(self, command: Command[R]) -> R:
        """Send a command."""


class _CachedRoute(NamedTuple):
    """A route, and the newest change of metadata that it is known to cover."""

    route: PartitionRoute
    position: int


class _CachedCount(NamedTuple):
    """The number of partitions of a topic; None where the client may not know it."""

    partitions_count: int | None
    expires_at: float


class RequestPlanner:
    """The routes and the numbers of partitions that a client knows."""

    def __init__(self) -> None:
        self._routes: dict[PartitionPlace, _CachedRoute] = {}
        self._counts: dict[tuple[Identifier, Identifier], _CachedCount] = {}
        self._turns: dict[tuple[Identifier, Identifier], Iterator[int]] = {}

    async def plan(
        self,
        command: Command[Any],
        *,
        identity: VsrClientSession,
        context: PartitionContext | None,
        ask: Ask,
        is_clustered: bool = False,
    ) -> PlannedRequest:
        """Complete a request with what the client knows, or asks for.

        Args:
            command: any command.
            identity: the session that sends it.
            context: the state of the partition, if the caller knows it from an earlier reply.
            ask: sends what has to be known first.
            is_clustered: whether partitions are on several nodes.

        Raises:
            IggyError: the partition does not exist, or the server refuses to tell.
        """
        if isinstance(command, SendMessages):
            command = await self._prepare_send(command, identity, ask)
        if not identity.dialect.binds_sessions:
            return PlannedRequest(command)
        if isinstance(command, FetchMessages) and context is None:
            return PlannedRequest(command)
        place = place_of(command)
        is_captured = context is not None
        if place is None or (context is not None and not is_clustered):
            return PlannedRequest(command, place, context or NO_CONTEXT, is_captured)
        route = await self.route(place, identity=identity, ask=ask)
        if context is None:
            context = _context_of(route, identity)
        primary_id = route.primary_replica_id if is_clustered else None
        return PlannedRequest(command, place, context, is_captured, primary_id)

    async def route(
        self, place: PartitionPlace, *, identity: VsrClientSession, ask: Ask
    ) -> PartitionRoute:
        """Return the route of a partition; ask for it if none is known that is new enough.

        Raises:
            NotFoundError: there is no such partition.
        """
        cached = self._routes.get(place)
        if cached is not None and cached.position >= identity.watermark:
            return cached.route
        watermark = identity.watermark
        route = await ask(GetPartitionRoute(*place))
        # A server may tell a smaller position than it has told before; asking again does not help.
        position = max(route.metadata_position, watermark)
        _put(self._routes, place, _CachedRoute(route, position))
        return route

    def forget(self, place: PartitionPlace) -> None:
        """Ask for the route and the number of partitions again, because a server refused them."""
        self._routes.pop(place, None)
        self._counts.pop((place.stream, place.topic), None)

    def clear(self) -> None:
        """Forget everything, because the client talks to another server."""
        self._routes.clear()
        self._counts.clear()

    # Choosing partitions

    async def _prepare_send(
        self, command: SendMessages, identity: VsrClientSession, ask: Ask
    ) -> SendMessages:
        """Choose the partition of a batch, and give its messages ids."""
        partitioning = command.partitioning
        if partitioning.kind is not PartitioningKind.PARTITION_ID:
            partitioning = await self._choose(command, identity, ask)
        # Seven times as fast as ``os.urandom``, which takes 3 % of the time of a large batch.
        ids = command.random or RAND_bytes(ID_BYTES * len(command.messages))
        return SendMessages(
            command.stream,
            command.topic,
            partitioning,
            command.messages,
            command.origin_timestamp_us,
            random=ids,
            producer=command.producer,
        )

    async def _choose(
        self, command: SendMessages, identity: VsrClientSession, ask: Ask
    ) -> Partitioning:
        where = command.partitioning
        topic = (command.stream, command.topic)
        partitions_count = await self._count(topic, identity, ask)
        if partitions_count is None:
            # Whoever may send may not be allowed to look; the server chooses then.
            return where
        if where.kind is PartitioningKind.MESSAGES_KEY:
            return Partitioning.partition(partition_for_key(where.value, partitions_count))
        turns = self._turns.get(topic)
        if turns is None:
            # Many clients would all begin with the same partition.
            turns = count(random.randrange(partitions_count))
            _put(self._turns, topic, turns)
        return Partitioning.partition(next(turns) % partitions_count)

    async def _count(
        self, topic: tuple[Identifier, Identifier], identity: VsrClientSession, ask: Ask
    ) -> int | None:
        """Return how many partitions a topic has; None where the client may not know it.

        Raises:
            NotFoundError: there is no such topic, or it has no partitions.
        """
        cached = self._counts.get(topic)
        if cached is None or cached.expires_at <= anyio.current_time():
            found = await self._ask_count(topic, identity, ask)
            cached = _CachedCount(found, anyio.current_time() + COUNT_SECONDS_MAX)
            _put(self._counts, topic, cached)
        return cached.partitions_count

    async def _ask_count(
        self, topic: tuple[Identifier, Identifier], identity: VsrClientSession, ask: Ask
    ) -> int | None:
        if identity.dialect.binds_sessions:
            first = PartitionPlace(*topic, 0)
            self._routes.pop(first, None)
            return (await self.route(first, identity=identity, ask=ask)).partitions_count
        try:
            details = await ask(GetTopic(*topic))
        except PermissionDeniedError:
            return None
        if details is None:
            raise error_for_status(StatusCode.TOPIC_ID_NOT_FOUND, command=GetTopic(*topic))
        if not details.partitions_count:
            raise error_for_status(StatusCode.NO_PARTITIONS, command=GetTopic(*topic))
        return details.partitions_count


def _put(cache: dict[K, V], key: K, value: V) -> None:
    """Add to a cache; the oldest entry goes where there are too many."""
    if len(cache) >= ENTRIES_MAX and key not in cache:
        del cache[next(iter(cache))]
    cache[key] = value


def _context_of(route: PartitionRoute, identity: VsrClientSession) -> PartitionContext:
    position = max(route.metadata_position, identity.watermark)
    return PartitionContext(incarnation=route.incarnation, metadata_position=position)


def place_of(command: Command[Any]) -> PartitionPlace | None:
    """Return the partition that a command refers to; None for one that refers to none.

    Raises:
        InvalidRequestError: it has to name its partition, and does not.
    """
    find = _PLACES.get(type(command))
    return None if find is None else find(command)


def _place_of_send(command: SendMessages) -> PartitionPlace | None:
    partition_id = command.partitioning.partition_id
    if partition_id is None:
        return None
    return PartitionPlace(command.stream, command.topic, partition_id)


def _place_of_consumer(command: Any) -> PartitionPlace:
    """Return the partition of a consumer's request; a consumer by itself reads partition 0."""
    partition_id = command.partition_id
    if partition_id is None:
        is_group = command.consumer.kind is ConsumerKind.GROUP
        if is_group and not isinstance(command, GetConsumerOffset):
            raise InvalidRequestError(
                f"{type(command).__name__} of group {command.consumer.id!r} names no partition",
                advice="Name a partition that the group has assigned to this member.",
            )
        partition_id = 0
    return PartitionPlace(command.stream, command.topic, partition_id)


def _place_of_wait(command: WaitForMessages) -> PartitionPlace:
    return PartitionPlace(command.stream, command.topic, command.targets[0].partition_id)


_PLACES: Final[Mapping[type[Command[Any]], Callable[[Any], PartitionPlace | None]]] = {
    SendMessages: _place_of_send,
    PollMessages: _place_of_consumer,
    PollDeferred: _place_of_consumer,
    GetConsumerOffset: _place_of_consumer,
    StoreConsumerOffset: _place_of_consumer,
    DeleteConsumerOffset: _place_of_consumer,
    WaitForMessages: _place_of_wait,
}
