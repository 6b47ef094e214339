"""The builder that ``client.consumer()`` and ``client.consumer_group()`` return.

    builder = client.consumer_group("billing", "shop", "orders").batch_length(500)
    async with builder as consumer:
        async for message in consumer: ...

A builder is a value: every method returns another one, and one may be entered any number of times.
Each method is the keyword of the same name, and the other way round. Awaiting a builder gives a
consumer without a block, for programs that cannot nest; it has no background task, so time-based
commits happen when something is read, and its ``shutdown()`` has to be called.
"""

from __future__ import annotations

import warnings
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import anyio

from iggy_protocol import ConsumerIdentity, Identifier, PollingStrategy
from iggy_sdk.consumer.consumer import IggyConsumer
from iggy_sdk.consumer.core import check_transport, open_consumer_core
from iggy_sdk.consumer.options import (
    DEPRECATED_STARTS,
    ConsumerOptions,
    Partitions,
    apply_options,
)
from iggy_sdk.consumer.subscription import Subscription
from iggy_sdk.option_checks import check_identifiers

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from types import TracebackType
    from typing import Unpack

    from iggy_sdk.client_interface import ClientInterface
    from iggy_sdk.consumer.auto_commit import AutoCommit
    from iggy_sdk.consumer.handover import PartitionsCallback
    from iggy_sdk.consumer.options import ConsumerSettings
    from iggy_sdk.consumer.start import ReplayFrom, StartIfNew
    from iggy_sdk.durations import Seconds
    from iggy_sdk.encryption import Encryptor
    from iggy_sdk.serde import Serde
    from iggy_sdk.value_types import V


T = TypeVar("T")

_STANDALONE = ConsumerOptions(partition_id=0, connection="shared")
_GROUP = ConsumerOptions(connection="own")


class ConsumerBuilder(Generic[T]):
    """Options of a consumer; enter it with ``async with``."""

    __slots__ = ("_client", "_entered", "_options", "_subscription")

    def __init__(
        self, client: ClientInterface, subscription: Subscription, options: ConsumerOptions
    ) -> None:
        """Take what was collected; ``standalone`` and ``group`` are the ways to begin.

        Raises:
            ConfigurationError: the options do not go together.
        """
        options.check_against(client.options.encryptor)
        self._client = client
        self._subscription = subscription
        self._options = options
        # The consumers of this builder that are entered, by task: each task leaves its own.
        self._entered: dict[int, list[AsyncExitStack]] = {}

    @classmethod
    def standalone(
        cls,
        client: ClientInterface,
        name: Identifier,
        stream: Identifier,
        topic: Identifier,
        /,
        *,
        serde: Serde[V] | None = None,
        **options: Unpack[ConsumerSettings],
    ) -> ConsumerBuilder[V]:
        """Begin a consumer that reads by itself.

        Raises:
            ConfigurationError: an option has a value that cannot be used.
            TypeError: there is no such option.
        """
        subscription = _subscription(ConsumerIdentity.single, name, stream, topic)
        chosen = apply_options(_STANDALONE, {"serde": serde, **options})
        _warn_of_start(options, stacklevel=4)
        return ConsumerBuilder(client, subscription, chosen)

    @classmethod
    def group(
        cls,
        client: ClientInterface,
        name: Identifier,
        stream: Identifier,
        topic: Identifier,
        /,
        *,
        serde: Serde[V] | None = None,
        **options: Unpack[ConsumerSettings],
    ) -> ConsumerBuilder[V]:
        """Begin a member of a consumer group.

        Raises:
            ConfigurationError: an option has a value that cannot be used.
            TypeError: there is no such option.
        """
        subscription = _subscription(ConsumerIdentity.group, name, stream, topic)
        chosen = apply_options(_GROUP, {"serde": serde, **options})
        _warn_of_start(options, stacklevel=4)
        return ConsumerBuilder(client, subscription, chosen)

    @property
    def options(self) -> ConsumerOptions:
        """What was collected so far."""
        return self._options

    # Options

    def partition_id(self, partition_id: Partitions) -> ConsumerBuilder[T]:
        """Read one partition, several, or ``"all"``."""
        return self._with("partition_id", partition_id)

    def start_if_new(self, start_if_new: StartIfNew) -> ConsumerBuilder[T]:
        """Start here where nothing is stored yet."""
        return self._with("start_if_new", start_if_new)

    def replay_from(self, replay_from: ReplayFrom | None) -> ConsumerBuilder[T]:
        """Read again from here, once, whatever is stored."""
        return self._with("replay_from", replay_from)

    def commit_backwards(self, commit_backwards: bool = True) -> ConsumerBuilder[T]:
        """Let commits during a replay move back what is stored."""
        return self._with("commit_backwards", commit_backwards)

    def start(self, start: PollingStrategy) -> ConsumerBuilder[T]:
        """Start the first poll of each partition here; use ``replay_from`` instead."""
        builder: ConsumerBuilder[T] = self._with("start", start)
        _warn_of_start({"start": start}, stacklevel=3)
        return builder

    def polling_strategy(self, polling_strategy: PollingStrategy | None) -> ConsumerBuilder[T]:
        """Start the first poll of each partition here; use ``replay_from`` instead."""
        builder: ConsumerBuilder[T] = self._with("polling_strategy", polling_strategy)
        _warn_of_start({"polling_strategy": polling_strategy}, stacklevel=3)
        return builder

    def commit(self, commit: AutoCommit) -> ConsumerBuilder[T]:
        """Store offsets in this way."""
        return self._with("commit", commit)

    def auto_commit(self, auto_commit: AutoCommit | None) -> ConsumerBuilder[T]:
        """Store offsets in this way; the official name."""
        return self._with("auto_commit", auto_commit)

    def batch_length(self, batch_length: int) -> ConsumerBuilder[T]:
        """Ask for so many messages with one poll."""
        return self._with("batch_length", batch_length)

    def prefetch_messages(self, prefetch_messages: int) -> ConsumerBuilder[T]:
        """Fetch no more messages ahead than this; 0 fetches none."""
        return self._with("prefetch_messages", prefetch_messages)

    def prefetch_bytes(self, prefetch_bytes: int) -> ConsumerBuilder[T]:
        """Fetch no more bytes ahead than this; 0 fetches none."""
        return self._with("prefetch_bytes", prefetch_bytes)

    def poll_interval(self, poll_interval: Seconds | None) -> ConsumerBuilder[T]:
        """Leave at least this time between two polls."""
        return self._with("poll_interval", poll_interval)

    def polling_retry_interval(self, polling_retry_interval: Seconds) -> ConsumerBuilder[T]:
        """Wait no longer than this before a failed poll is made again."""
        return self._with("polling_retry_interval", polling_retry_interval)

    def init_retries(
        self, init_retries: int, init_retry_interval: Seconds | None = None
    ) -> ConsumerBuilder[T]:
        """Look so often again for a stream or topic that is not there yet."""
        builder: ConsumerBuilder[T] = self._with("init_retries", init_retries)
        if init_retry_interval is None:
            return builder
        return builder.init_retry_interval(init_retry_interval)

    def init_retry_interval(self, init_retry_interval: Seconds) -> ConsumerBuilder[T]:
        """Wait this long between two looks."""
        return self._with("init_retry_interval", init_retry_interval)

    def allow_replay(self, allow_replay: bool = True) -> ConsumerBuilder[T]:
        """Deliver again what the server sends again."""
        return self._with("allow_replay", allow_replay)

    def until_end(self, until_end: bool = True) -> ConsumerBuilder[T]:
        """End once every partition was read to its end."""
        return self._with("until_end", until_end)

    def create_consumer_group_if_not_exists(self, create: bool = True) -> ConsumerBuilder[T]:
        """Make the group if it is missing."""
        return self._with("create_consumer_group_if_not_exists", create)

    def auto_join_consumer_group(self, join: bool = True) -> ConsumerBuilder[T]:
        """Join the group, and join it again when that is needed."""
        return self._with("auto_join_consumer_group", join)

    def on_assigned(self, on_assigned: PartitionsCallback | None) -> ConsumerBuilder[T]:
        """Call this with partitions that the consumer gets."""
        return self._with("on_assigned", on_assigned)

    def on_revoked(self, on_revoked: PartitionsCallback | None) -> ConsumerBuilder[T]:
        """Call this with partitions that go, before they are handed over where that is known."""
        return self._with("on_revoked", on_revoked)

    def connection(self, connection: Literal["own", "shared"]) -> ConsumerBuilder[T]:
        """Use a connection of its own, or that of the client."""
        return self._with("connection", connection)

    def close_timeout(self, close_timeout: Seconds | None) -> ConsumerBuilder[T]:
        """Take no longer than this to close."""
        return self._with("close_timeout", close_timeout)

    def serde(self, serde: Serde[V] | None) -> ConsumerBuilder[V]:
        """Read values in this way; None takes bytes as they are."""
        return self._with("serde", serde)

    def encryptor(self, encryptor: Encryptor | None) -> ConsumerBuilder[T]:
        """Open sealed messages; None opens nothing, whatever the client does."""
        return self._with("encryptor", encryptor)

    def _with(self, name: str, value: Any) -> ConsumerBuilder[Any]:
        options = apply_options(self._options, {name: value})
        return ConsumerBuilder(self._client, self._subscription, options)

    # Entering

    async def __aenter__(self) -> IggyConsumer[T]:
        """Connect if need be, look for the topic, and join the group.

        Raises:
            StreamNotFoundError, TopicNotFoundError, ConsumerGroupNotFoundError: there is none.
            IggyError: the server refuses, or cannot be reached.
        """
        check_transport(self._client, self._subscription)
        async with AsyncExitStack() as stack:
            client = self._client
            if self._options.connection == "own":
                client = await stack.enter_async_context(client.sibling())
            core = await open_consumer_core(
                client, self._subscription, self._options, owns_client=False
            )
            consumer: IggyConsumer[T] = IggyConsumer(core)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(core.run_commit_timer)
            tasks.start_soon(core.run_prefetch)
            stack.callback(tasks.cancel_scope.cancel)
            stack.push_async_callback(core.aclose)
            self._entered.setdefault(_task_id(), []).append(stack.pop_all())
        return consumer

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Store what is due, leave the group, and close an own connection."""
        stacks = self._entered[_task_id()]
        stack = stacks.pop()
        if not stacks:
            del self._entered[_task_id()]
        # The error of the block is not passed on: the task group would wrap it in a group.
        await stack.aclose()

    def __await__(self) -> Generator[Any, Any, IggyConsumer[T]]:
        """Make a consumer without a block; its ``shutdown()`` has to be called."""
        return self._open().__await__()

    async def _open(self) -> IggyConsumer[T]:
        check_transport(self._client, self._subscription)
        if self._options.connection == "shared":
            core = await open_consumer_core(
                self._client, self._subscription, self._options, owns_client=False
            )
            return IggyConsumer(core)
        client = self._client.sibling()
        try:
            await client.connect()
            core = await open_consumer_core(
                client, self._subscription, self._options, owns_client=True
            )
        except BaseException:
            with anyio.CancelScope(shield=True):
                await client.aclose()
            raise
        return IggyConsumer(core)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerBuilder):
            return NotImplemented
        return (self._client, self._subscription, self._options) == (
            other._client,
            other._subscription,
            other._options,
        )

    def __hash__(self) -> int:
        return hash((id(self._client), self._subscription))

    def __repr__(self) -> str:
        return f"<ConsumerBuilder of {self._subscription}: {self._options}>"


def _subscription(
    kind: Callable[[Identifier], ConsumerIdentity],
    name: Identifier,
    stream: Identifier,
    topic: Identifier,
) -> Subscription:
    check_identifiers(name=name, stream=stream, topic=topic)
    return Subscription(kind(name), stream, topic)


def _warn_of_start(options: Mapping[str, Any], *, stacklevel: int) -> None:
    """Warn of an option that overrides what is stored."""
    for name in DEPRECATED_STARTS & options.keys():
        if options[name] is not None:
            warnings.warn(
                f"{name}= overrides the stored offsets at every start. Leave it out to go on where "
                "the group is, say with start_if_new= where a new group starts, or read again "
                "with replay_from=.",
                DeprecationWarning,
                stacklevel=stacklevel,
            )


def _task_id() -> int:
    return anyio.get_current_task().id
