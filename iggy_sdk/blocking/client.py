"""The client that blocks, for scripts, notebooks and Spark.

    with IggyClient("iggy://user:secret@localhost:8090") as client:
        client.create_stream("shop", exist_ok=True)

The async client does the work on a thread of its own; this one hands calls over and waits. Threads
may share it. A process that was forked needs another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from iggy_sdk.blocking.consumer_builder import ConsumerBuilder
from iggy_sdk.blocking.families import AllFamilies
from iggy_sdk.blocking.loop_thread import EventLoopThread, HostedContext
from iggy_sdk.blocking.producer_builder import ProducerBuilder
from iggy_sdk.blocking.request_reply import RequestReplyMethods
from iggy_sdk.blocking.wrapper import outside_loops
from iggy_sdk.client import IggyClient as AsyncIggyClient
from iggy_sdk.durations import to_seconds
from iggy_sdk.transport import Dial, open_transport

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from iggy_protocol import Command, Dialect, Identifier, PartitionContext
    from iggy_sdk.arrow import ArrowReadSettings
    from iggy_sdk.arrow.settings import ArrowReadOptions
    from iggy_sdk.blocking.arrow import ArrowTopicReader
    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.consumer import ConsumerSettings
    from iggy_sdk.durations import Seconds
    from iggy_sdk.options import ClientOptions, ClientSettings
    from iggy_sdk.producer import ProducerSettings
    from iggy_sdk.serde import Serde
    from iggy_sdk.statistics import ClientStatistics
    from iggy_sdk.value_types import P, V


R = TypeVar("R")


class IggyClient(RequestReplyMethods, AllFamilies):
    """A client of Apache Iggy whose calls block."""

    def __init__(self, url: str | None = None, **settings: Unpack[ClientSettings]) -> None:
        """Take an address and options; nothing is opened yet.

        Args:
            url: a connection string or a bare ``host:port``; None is the usual port of this
                machine, without a login.
            settings: options, which override those of the connection string.

        Raises:
            ConfigurationError: the connection string or an option is not valid.
        """
        self._initialise(outside_loops(lambda: AsyncIggyClient(url, **settings)))

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
        return cls._wrapping(
            outside_loops(lambda: AsyncIggyClient.from_options(options, dial=dial))
        )

    def sibling(self) -> Self:
        """Make a client with the same options and login, and a connection of its own."""
        return self._wrapping(outside_loops(self._inner.sibling))

    @classmethod
    def _wrapping(cls, inner: AsyncIggyClient) -> Self:
        client = cls.__new__(cls)
        client._initialise(inner)
        return client

    def _initialise(self, inner: AsyncIggyClient) -> None:
        self._inner = inner
        self._loop_thread = EventLoopThread()
        self._hosted: HostedContext[AsyncIggyClient] | None = None

    @property
    def options(self) -> ClientOptions:
        """The options of this client."""
        return self._inner.options

    @property
    def epoch(self) -> int:
        """The number of the present connection; 0 before the first, and it only grows."""
        return self._inner.epoch

    @property
    def session_epoch(self) -> int:
        """The number of the connection that began the present session at the server."""
        return self._inner.session_epoch

    @property
    def dialect(self) -> Dialect:
        """What the server of the present or last connection speaks; 0.8 before the first one."""
        return self._inner.dialect

    @property
    def is_clustered(self) -> bool:
        """Whether the server has told that it is one of several nodes."""
        return self._inner.is_clustered

    @property
    def endpoint(self) -> Endpoint | None:
        """The endpoint of the present or last connection."""
        return self._inner.endpoint

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that has not failed."""
        return self._inner.is_connected

    def answers_classic(self, *, timeout: Seconds | None = None) -> bool:
        """Tell whether the server answers in the protocol of 0.8, alone or beside a newer one.

        A client that only reads much data is faster in that protocol: see ``protocol``. It is False
        where the client may not speak it, and before the first connection.

        Args:
            timeout: how long to wait at most, in seconds; by default ``connect_timeout``.

        Raises:
            ConnectionFailedError: the server cannot be reached any more.
            RequestTimeoutError: it took longer.
        """
        return self._run(self._inner.answers_classic(timeout=timeout))

    def statistics(self) -> ClientStatistics:
        """Return the counters of the client."""
        return self._inner.statistics()

    def request(
        self,
        command: Command[R],
        *,
        timeout: Seconds | None = None,
        context: PartitionContext | None = None,
    ) -> R:
        """Send any command of ``iggy_protocol`` and return the reply.

        ``request(PollMessages(...))`` is the shortest way to messages: its ``PolledMessages`` are
        views on the bytes that the socket brought.

        Args:
            command: any command of ``iggy_protocol``.
            timeout: seconds for all of it, a reconnect included; None takes ``request_timeout``.
            context: the state of the partition, as the reply to a poll told it. A server of 0.10
                refuses the request where it has changed; others never get to know it.

        Raises:
            UnsupportedByServerError: the server speaks a generation without this command.
            RequestTimeoutError: there was no reply in time.
            DisconnectedError: the connection broke, and the command may have been carried out.
            ClientClosedError: the client is not open.
            IggyError: the error of the server.
        """
        return self._run(self._inner.request(command, timeout=timeout, context=context))

    # Producers and consumers

    def producer(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        serde: Serde[P] | None = None,
        **options: Unpack[ProducerSettings],
    ) -> ProducerBuilder[P]:
        """Prepare a producer; enter it with ``with``. The options are those of its methods."""
        return ProducerBuilder(
            self._loop_thread, self._inner.producer(stream, topic, serde=serde, **options)
        )

    def consumer(
        self,
        name: Identifier,
        stream: Identifier,
        topic: Identifier,
        *,
        serde: Serde[V] | None = None,
        **options: Unpack[ConsumerSettings],
    ) -> ConsumerBuilder[V]:
        """Prepare a consumer of its own; enter it with ``with``."""
        return ConsumerBuilder(
            self._loop_thread,
            self._inner.consumer(name, stream, topic, serde=serde, **options),
        )

    def consumer_group(
        self,
        name: Identifier,
        stream: Identifier,
        topic: Identifier,
        *,
        serde: Serde[V] | None = None,
        **options: Unpack[ConsumerSettings],
    ) -> ConsumerBuilder[V]:
        """Prepare a member of a consumer group; enter it with ``with``."""
        return ConsumerBuilder(
            self._loop_thread,
            self._inner.consumer_group(name, stream, topic, serde=serde, **options),
        )

    # Arrow

    def read_arrow(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        timeout: Seconds | None = None,
        **settings: Unpack[ArrowReadSettings],
    ) -> Any:
        """Read a topic, or a part of it, into a ``pyarrow.Table``; nothing is stored.

        Rows are in the order of partition and offset.

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
        return self._run(self._inner.read_arrow(stream, topic, timeout=timeout, **settings))

    def arrow_batches(
        self, stream: Identifier, topic: Identifier, **settings: Unpack[ArrowReadSettings]
    ) -> ArrowTopicReader:
        """Begin to read a topic as record batches; enter it with ``with``. Nothing is stored.

        Args:
            stream: name or id.
            topic: name or id.
            settings: those of ``read_arrow``.

        Raises:
            ConfigurationError: a setting has a value that cannot be used, or pyarrow is missing.
            TypeError: there is no such setting.
        """
        from iggy_sdk.arrow.settings import read_options

        return self._read_arrow_batches(read_options(stream, topic, **settings))

    def _read_arrow_batches(self, options: ArrowReadOptions) -> ArrowTopicReader:
        """Begin to read a topic with settings that were checked."""
        from iggy_sdk.arrow import ArrowTopicReader as AsyncArrowTopicReader
        from iggy_sdk.blocking.arrow import ArrowTopicReader

        inner = outside_loops(lambda: AsyncArrowTopicReader(self._inner, options))
        return ArrowTopicReader(self._loop_thread, inner)

    def consumer_lag(
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
        return self._run(
            self._inner.consumer_lag(name, stream, topic, is_group=is_group, timeout=timeout)
        )

    # Lifetime

    def connect(self, *, timeout: Seconds | None = None) -> None:
        """Connect, log in, and keep the connection alive until ``close()``.

        Args:
            timeout: seconds for all of it. None tries all endpoints, each within
                ``connect_timeout``, and begins no further round after ``connect_timeout``.

        Raises:
            ConnectionFailedError: no server can be reached, or not in time.
            AuthenticationError: the server refuses the login.
            ClientClosedError: the client was closed.
        """
        if self._hosted is not None:
            self._run(self._inner.connect(timeout=timeout))
            return
        self._loop_thread.open(self)
        try:
            if timeout is not None:
                self._run(self._inner.connect(timeout=timeout))
            self._hosted, _ = self._loop_thread.host(self._inner)
        except BaseException:
            self._loop_thread.close()
            raise

    def disconnect(self, *, timeout: Seconds | None = None) -> None:
        """Close the connection; ``connect`` opens another one.

        Args:
            timeout: how long pending requests may take to finish; None takes ``close_timeout``.
        """
        self._run(self._inner.disconnect(timeout=timeout))

    def close(self, *, timeout: Seconds | None = None) -> None:
        """Close the client for good, with its producers and consumers; may be called again.

        Args:
            timeout: how long pending requests may take to finish once producers and consumers are
                closed; None takes ``close_timeout``.
        """
        if timeout is not None:
            self._inner._close_timeout = to_seconds(timeout, name="timeout")
        self._loop_thread.close()

    def shutdown(self, *, timeout: Seconds | None = None) -> None:
        """Close the client for good; the official name of ``close``."""
        self.close(timeout=timeout)

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "open" if self._loop_thread.is_open else "closed"
        ends = ", ".join(str(endpoint) for endpoint in self.options.endpoints)
        return f"<blocking IggyClient to {ends}, {state}>"
