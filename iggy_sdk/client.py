"""The client: one connection to Iggy, all commands, producers and consumers.

async with IggyClient("iggy://user:secret@localhost:8090") as client:
    await client.create_stream("shop", exist_ok=True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import anyio

from iggy_sdk.consumer import ConsumerBuilder
from iggy_sdk.consumer.subscription import stored_lag
from iggy_sdk.deadline import within
from iggy_sdk.durations import Seconds, to_seconds
from iggy_sdk.families import AllFamilies
from iggy_sdk.options import ClientOptions, ClientSettings, resolve_options
from iggy_sdk.producer import ProducerBuilder
from iggy_sdk.request_reply import RequestReplyMethods
from iggy_sdk.session.reconnecting import ReconnectingSession
from iggy_sdk.transport import Dial, open_transport

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskGroup, TaskStatus

    from iggy_protocol import Command, Dialect, Identifier, PartitionContext
    from iggy_sdk.arrow import ArrowReadSettings, ArrowTopicReader
    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.consumer import ConsumerSettings
    from iggy_sdk.producer import ProducerSettings
    from iggy_sdk.serde import Serde
    from iggy_sdk.statistics import ClientStatistics
    from iggy_sdk.value_types import P, V


R = TypeVar("R")


class IggyClient(RequestReplyMethods, AllFamilies):
    """A client of Apache Iggy, on asyncio and on trio."""

    def __init__(self, url: str | None = None, **settings: Unpack[ClientSettings]) -> None:
        """Take an address and options; nothing is opened yet.

        Args:
            url: a connection string or a bare ``host:port``; None is the usual port of this
                machine, without a login.
            settings: options, which override those of the connection string.

        Raises:
            ConfigurationError: the connection string or an option is not valid.
        """
        self._initialise(resolve_options(url, **settings), open_transport)

    def _initialise(
        self, options: ClientOptions, dial: Dial, *, sibling: ReconnectingSession | None = None
    ) -> None:
        self._options = options
        self._dial = dial
        dialects = None if sibling is None else sibling.dialects
        self._session = ReconnectingSession(options, dial=dial, dialects=dialects)
        self._tasks: TaskGroup | None = None
        self._close_timeout: float | None = None

    @classmethod
    def from_connection_string(cls, connection_string: str) -> Self:
        """Make a client from a connection string alone."""
        return cls(connection_string)

    @classmethod
    def from_options(cls, options: ClientOptions, *, dial: Dial = open_transport) -> Self:
        """Make a client from options that are resolved already.

        Args:
            options: what ``resolve_options`` returns.
            dial: opens the byte stream to a server, for custom transports.
        """
        client = cls.__new__(cls)
        client._initialise(options, dial)
        return client

    def sibling(self) -> Self:
        """Make a client with the same options and login, and a connection of its own."""
        client = type(self).__new__(type(self))
        client._initialise(self._options, self._dial, sibling=self._session)
        client._session.login = self._session.login
        return client

    @property
    def options(self) -> ClientOptions:
        """The options of this client."""
        return self._options

    @property
    def epoch(self) -> int:
        """The number of the present connection; 0 before the first, and it only grows."""
        return self._session.epoch

    @property
    def session_epoch(self) -> int:
        """The number of the connection that began the present session at the server.

        Servers of 0.10 keep a session, and with it memberships in groups, when a connection is
        lost. With older ones this is the same as ``epoch``.
        """
        return self._session.session_epoch

    @property
    def dialect(self) -> Dialect:
        """What the server of the present or last connection speaks; 0.8 before the first one."""
        return self._session.dialect

    @property
    def is_clustered(self) -> bool:
        """Whether the server has told that it is one of several nodes."""
        return self._session.is_clustered

    @property
    def endpoint(self) -> Endpoint | None:
        """The endpoint of the present or last connection."""
        return self._session.endpoint

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that has not failed."""
        return self._session.is_connected

    async def answers_classic(self, *, timeout: Seconds | None = None) -> bool:
        """Tell whether the server answers in the protocol of 0.8, alone or beside a newer one.

        A client that only reads much data is faster in that protocol: see ``protocol``. It is False
        where the client may not speak it, and before the first connection.

        Args:
            timeout: how long to wait at most, in seconds; by default ``connect_timeout``.

        Raises:
            ConnectionFailedError: the server cannot be reached any more.
            RequestTimeoutError: it took longer.
        """
        return await within(timeout, "answers_classic", lambda _: self._session.answers_classic())

    def statistics(self) -> ClientStatistics:
        """Return the counters of the client."""
        return self._session.statistics()

    async def request(
        self,
        command: Command[R],
        *,
        timeout: Seconds | None = None,
        context: PartitionContext | None = None,
    ) -> R:
        """Send any command of ``iggy_protocol`` and return the reply.

        Args:
            command: any command of ``iggy_protocol``.
            timeout: seconds for all of it, a reconnect included; None takes ``request_timeout``.
            context: the state of the partition, as the reply to a poll told it. A server of 0.10
                refuses the request where it has changed; others never get to know it.

        Raises:
            UnsupportedByServerError: the server speaks a generation without this command.
            RequestTimeoutError: there was no reply in time.
            DisconnectedError: the connection broke, and the command may have been carried out.
            ClientClosedError: the client was closed.
            IggyError: the error of the server.
        """
        return await self._session.request(command, timeout=timeout, context=context)

    # Producers and consumers

    def producer(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        serde: Serde[P] | None = None,
        **options: Unpack[ProducerSettings],
    ) -> ProducerBuilder[P]:
        """Begin a producer: ``async with client.producer("shop", "orders") as producer``.

        Args:
            stream: name or id.
            topic: name or id.
            serde: turns values into payloads; without one, bytes and text are sent as they are.
            options: any option of ``ProducerBuilder``, which are its methods as well.

        Raises:
            ConfigurationError: an option has a value that cannot be used.
            TypeError: there is no such option.
        """
        return ProducerBuilder(self, stream, topic, serde=serde, **options)

    def consumer(
        self,
        name: Identifier,
        stream: Identifier,
        topic: Identifier,
        *,
        serde: Serde[V] | None = None,
        **options: Unpack[ConsumerSettings],
    ) -> ConsumerBuilder[V]:
        """Begin a standalone consumer, with stored offsets under its own name.

        Args:
            name: whose offsets are stored.
            stream: name or id.
            topic: name or id.
            serde: turns payloads into values; without one, a value is the payload.
            options: any option of ``ConsumerBuilder``, which are its methods as well.

        Raises:
            ConfigurationError: an option has a value that cannot be used.
            TypeError: there is no such option.
        """
        return ConsumerBuilder.standalone(self, name, stream, topic, serde=serde, **options)

    def consumer_group(
        self,
        name: Identifier,
        stream: Identifier,
        topic: Identifier,
        *,
        serde: Serde[V] | None = None,
        **options: Unpack[ConsumerSettings],
    ) -> ConsumerBuilder[V]:
        """Begin a member of a consumer group, which has a connection of its own.

        Args:
            name: name or id of the group.
            stream: name or id.
            topic: name or id.
            serde: turns payloads into values; without one, a value is the payload.
            options: any option of ``ConsumerBuilder``, which are its methods as well.

        Raises:
            ConfigurationError: an option has a value that cannot be used.
            TypeError: there is no such option.
        """
        return ConsumerBuilder.group(self, name, stream, topic, serde=serde, **options)

    # Arrow

    async def read_arrow(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        timeout: Seconds | None = None,
        **settings: Unpack[ArrowReadSettings],
    ) -> Any:
        """Read a topic, or a part of it, into a ``pyarrow.Table``; nothing is stored.

        Rows are in the order of partition and offset. ``arrow_batches()`` reads the same piece by
        piece, where a table would be too large for the memory.

        Args:
            stream: name or id.
            topic: name or id.
            timeout: seconds for all of it; None leaves each request its ``request_timeout``.
            settings: what to read: ``start``, ``end``, ``partitions``, ``limit``; which columns:
                ``columns``, ``headers``, ``schema``, ``on_error``; and ``batch_bytes``. See
                ``iggy_sdk.arrow.ArrowReadSettings``.

        Raises:
            StreamNotFoundError, TopicNotFoundError, PartitionNotFoundError: there is none.
            PayloadDecodeError: a payload is not what ``schema`` says.
            DecryptionError: a payload was not sealed with the key of this client.
            RequestTimeoutError: it took longer than ``timeout``.
            ConfigurationError: a setting has a value that cannot be used, or pyarrow is missing.
            TypeError: there is no such setting.
        """
        from iggy_sdk.arrow.reader import read_table
        from iggy_sdk.arrow.settings import read_options

        return await read_table(self, read_options(stream, topic, **settings), timeout=timeout)

    def arrow_batches(
        self, stream: Identifier, topic: Identifier, **settings: Unpack[ArrowReadSettings]
    ) -> ArrowTopicReader:
        """Begin to read a topic as record batches; enter it with ``async with``. Nothing is stored.

        The next poll is on its way while a batch is used; at most three polls of ``batch_bytes``
        are in memory.

        Args:
            stream: name or id.
            topic: name or id.
            settings: those of ``read_arrow``.

        Raises:
            ConfigurationError: a setting has a value that cannot be used, or pyarrow is missing.
            TypeError: there is no such setting.
        """
        from iggy_sdk.arrow import ArrowTopicReader
        from iggy_sdk.arrow.settings import read_options

        return ArrowTopicReader(self, read_options(stream, topic, **settings))

    async def consumer_lag(
        self,
        name: Identifier,
        stream: Identifier,
        topic: Identifier,
        *,
        is_group: bool = True,
        timeout: Seconds | None = None,
    ) -> dict[int, int]:
        """Ask how many messages a group is behind in each partition, without joining it.

        Args:
            name: name or id of the group, or of a standalone consumer.
            stream: name or id.
            topic: name or id.
            is_group: whether it is a group.
            timeout: how long it may take; None takes the ``request_timeout``.

        Raises:
            TopicNotFoundError: there is no such topic.
            IggyError: the server refuses, or cannot be reached.
        """
        return await within(
            *(timeout, "consumer_lag"),
            lambda _: stored_lag(self, name, stream, topic, is_group=is_group),
            default=self.options.request_timeout,
        )

    # Lifetime

    async def __aenter__(self) -> Self:
        """Connect, log in, and keep the connection alive until the block is left.

        Raises:
            ConnectionFailedError: no server can be reached.
            AuthenticationError: the server refuses the login.
            ConfigurationError: the client is entered already.
        """
        self._session.check_not_running()
        await self._session.connect()
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        tasks.start_soon(self._session.host)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client and wait for its tasks."""
        tasks, self._tasks = self._tasks, None
        assert tasks is not None
        try:
            await self._session.aclose(self._close_timeout)
        finally:
            tasks.cancel_scope.cancel()
            # The error of the block is the block's; in the group it would come out wrapped.
            await tasks.__aexit__(None, None, None)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the client in your own task group: ``await group.start(client.run)``.

        It connects before it reports to have started, and ends when the client is closed.
        """
        await self._session.run(task_status=task_status)

    async def connect(self, *, timeout: Seconds | None = None) -> None:
        """Connect and log in without a background task: no heartbeats, no reconnect in between.

        Args:
            timeout: seconds for all of it. None tries all endpoints, each within
                ``connect_timeout``, and begins no further round after ``connect_timeout``.

        Raises:
            ConnectionFailedError: no server can be reached, or not in time.
            AuthenticationError: the server refuses the login.
            ClientClosedError: the client was closed.
        """
        await self._session.connect(_given(timeout))

    async def disconnect(self, *, timeout: Seconds | None = None) -> None:
        """Close the connection; ``connect`` opens another one.

        Args:
            timeout: how long pending requests may take to finish; None takes ``close_timeout``.
        """
        await self._session.disconnect(_given(timeout))

    async def aclose(self, *, timeout: Seconds | None = None) -> None:
        """Close the client for good.

        Args:
            timeout: how long pending requests may take to finish; None takes ``close_timeout``.
        """
        await self._session.aclose(_given(timeout))

    async def shutdown(self, *, timeout: Seconds | None = None) -> None:
        """Close the client for good; the official name of ``aclose``."""
        await self.aclose(timeout=timeout)


def _given(timeout: Seconds | None) -> float | None:
    """Take the timeout of a call as seconds."""
    return None if timeout is None else to_seconds(timeout, name="timeout")
