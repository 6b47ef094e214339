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
from iggy_sdk.blocking.wrapper import outside_loops
from iggy_sdk.client import IggyClient as AsyncIggyClient
from iggy_sdk.transport import Dial, open_transport

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from iggy_protocol import Command, Dialect, Identifier, PartitionContext
    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.consumer import ConsumerSettings
    from iggy_sdk.durations import Seconds
    from iggy_sdk.options import ClientOptions, ClientSettings
    from iggy_sdk.statistics import ClientStatistics


R = TypeVar("R")


class IggyClient(AllFamilies):
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
        self, stream: Identifier, topic: Identifier, **options: Any
    ) -> ProducerBuilder[Any]:
        """Prepare a producer; enter it with ``with``. The options are those of its methods."""
        return ProducerBuilder(self._loop_thread, self._inner.producer(stream, topic, **options))

    def consumer(
        self,
        name: Identifier,
        stream: Identifier,
        topic: Identifier,
        **options: Unpack[ConsumerSettings],
    ) -> ConsumerBuilder[Any]:
        """Prepare a consumer of its own; enter it with ``with``."""
        return ConsumerBuilder(
            self._loop_thread,
            self._inner.consumer(name, stream, topic, **options),
        )

    def consumer_group(
        self,
        name: Identifier,
        stream: Identifier,
        topic: Identifier,
        **options: Unpack[ConsumerSettings],
    ) -> ConsumerBuilder[Any]:
        """Prepare a member of a consumer group; enter it with ``with``."""
        return ConsumerBuilder(
            self._loop_thread, self._inner.consumer_group(name, stream, topic, **options)
        )

    def consumer_lag(
        self, name: Identifier, stream: Identifier, topic: Identifier, *, is_group: bool = True
    ) -> dict[int, int]:
        """Ask how many messages a group is behind in each partition, without joining it.

        Args:
            name: name or id of the group, or of a standalone consumer.
            stream: name or id.
            topic: name or id.
            is_group: whether it is a group.

        Raises:
            TopicNotFound: there is no such topic.
            IggyError: the server refuses, or cannot be reached.
        """
        return self._run(self._inner.consumer_lag(name, stream, topic, is_group=is_group))

    # Lifetime

    def connect(self) -> None:
        """Connect, log in, and keep the connection alive until ``close()``.

        Raises:
            ConnectionFailedError: no server can be reached.
            AuthenticationError: the server refuses the login.
            ClientClosedError: the client was closed.
        """
        if self._hosted is not None:
            self._run(self._inner.connect())
            return
        self._loop_thread.open(self)
        try:
            self._hosted, _ = self._loop_thread.host(self._inner)
        except BaseException:
            self._loop_thread.close()
            raise

    def disconnect(self) -> None:
        """Close the connection; ``connect`` opens another one."""
        self._run(self._inner.disconnect())

    def close(self) -> None:
        """Close the client for good, with its producers and consumers; may be called again."""
        self._loop_thread.close()

    def shutdown(self) -> None:
        """Close the client for good; the official name of ``close``."""
        self.close()

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
