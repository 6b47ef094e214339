"""Request and reply that block: calls from any thread, handlers on worker threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, Unpack, overload

import anyio
import anyio.to_thread

from iggy_sdk.blocking.reader import ReceivedMessage
from iggy_sdk.blocking.wrapper import BlockingBase, BlockingClientBase, in_loop
from iggy_sdk.request_reply.responder import CONCURRENCY_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from iggy_protocol import Identifier
    from iggy_sdk import request_reply
    from iggy_sdk.blocking.loop_thread import EventLoopThread, HostedContext
    from iggy_sdk.durations import Seconds
    from iggy_sdk.message import Headers, Message
    from iggy_sdk.message import ReceivedMessage as AsyncReceivedMessage
    from iggy_sdk.request_reply import RequestReplySettings, ResponderSettings
    from iggy_sdk.serde import Serde


Q = TypeVar("Q")
P = TypeVar("P")

ReplyHandler: TypeAlias = "Callable[[ReceivedMessage[Q]], P | Message[P]]"
"""Answers a request, on a worker thread."""


class RequestReply(BlockingBase, Generic[Q, P]):
    """Calls a service; made by ``client.request_reply()`` and entered with ``with``.

    A request may be answered more than once, because responders read at least once. The first reply
    counts, and the others are ignored; what the handler does must bear to be done twice.
    """

    def __init__(
        self, loop_thread: EventLoopThread, inner: request_reply.RequestReply[Q, P]
    ) -> None:
        """Take the options as the async client collected them."""
        self._loop_thread = loop_thread
        self._inner = inner
        self._hosted: HostedContext[Any] | None = None

    @property
    def stream(self) -> Identifier:
        """The stream of requests and replies."""
        return self._inner.stream

    @property
    def topic(self) -> Identifier:
        """The topic of the requests."""
        return self._inner.topic

    @property
    def reply_topic(self) -> Identifier:
        """The topic of the replies."""
        return self._inner.reply_topic

    @property
    def reply_partition(self) -> int | None:
        """The partition of the replies to this caller; None until it is chosen on entry."""
        return self._inner.reply_partition

    def statistics(self) -> request_reply.RequestReplyStatistics:
        """Return the counters of the caller."""
        return self._inner.statistics()

    def call(
        self,
        value: Q | Message[Q],
        *,
        key: str | bytes | None = None,
        partition_id: int | None = None,
        headers: Headers | None = None,
        timeout: Seconds | None = None,
    ) -> P:
        """Send a request and return the value of the first reply; threads may call together.

        Args:
            value: a value, or a ``Message`` of one.
            key: requests with equal keys go to the same partition, and so to the same responder.
            partition_id: the partition of the request.
            headers: user headers, which the handler sees.
            timeout: how long all of it may take; None takes that of the caller.

        Raises:
            ReplyTimeoutError: there was no reply in time; ``sent`` says whether it was sent.
            RemoteHandlerError: the handler of the request raised.
            SendFailedError: the server did not take the request.
            SerdeError: the value cannot be written, or that of the reply not be read.
            ClientClosedError: the block was left.
            IggyError: the reply topic cannot be read.
        """
        return self._run(
            self._inner.call(
                value, key=key, partition_id=partition_id, headers=headers, timeout=timeout
            )
        )

    def call_message(
        self,
        value: Q | Message[Q],
        *,
        key: str | bytes | None = None,
        partition_id: int | None = None,
        headers: Headers | None = None,
        timeout: Seconds | None = None,
    ) -> ReceivedMessage[P]:
        """Send a request and return the first reply with its headers; otherwise as ``call``."""
        reply = self._run(
            self._inner.call_message(
                value, key=key, partition_id=partition_id, headers=headers, timeout=timeout
            )
        )
        return ReceivedMessage(reply, self._loop_thread)

    def __enter__(self) -> Self:
        """Find both topics and the end of the replies, and begin to read.

        Raises:
            StreamNotFoundError, TopicNotFoundError: there is none, and none was to be created.
            ConfigurationError: it is entered already.
            IggyError: the server refuses, or cannot be reached.
        """
        self._hosted, _ = self._loop_thread.host(self._inner)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the calls of other threads, and stop reading."""
        assert self._hosted is not None
        self._loop_thread.release(self._hosted)
        self._hosted.leave(kind, error, trace)

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"


class Responder(BlockingBase, Generic[Q, P]):
    """Answers requests; made by ``client.responder()`` and entered with ``with``."""

    def __init__(self, loop_thread: EventLoopThread, inner: request_reply.Responder[Q, P]) -> None:
        """Take the options as the async client collected them."""
        self._loop_thread = loop_thread
        self._inner = inner
        self._hosted: HostedContext[Any] | None = None

    @property
    def stream(self) -> Identifier:
        """The stream of the requests."""
        return self._inner.stream

    @property
    def topic(self) -> Identifier:
        """The topic of the requests."""
        return self._inner.topic

    @property
    def group(self) -> Identifier:
        """The consumer group that shares the requests."""
        return self._inner.group

    def statistics(self) -> request_reply.ResponderStatistics:
        """Return the counters of the responder."""
        return self._inner.statistics()

    def serve(self, handler: ReplyHandler[Q, P], *, concurrency: int = CONCURRENCY_DEFAULT) -> None:
        """Answer requests with a handler on worker threads, until ``stop()`` or an interrupt.

        Args:
            handler: called with each request that somebody waits for.
            concurrency: how many requests are handled at a time, each on a thread.

        Raises:
            ConfigurationError: the responder is not entered, or ``concurrency`` is below 1.
            IggyError: reading or storing offsets failed for good.
        """
        self._run(self._serve(handler, concurrency))

    async def _serve(self, handler: ReplyHandler[Q, P], concurrency: int) -> None:
        limiter = anyio.CapacityLimiter(max(1, concurrency))

        async def handle(message: AsyncReceivedMessage[Q]) -> P | Message[P]:
            blocking = ReceivedMessage(message, self._loop_thread)
            return await anyio.to_thread.run_sync(handler, blocking, limiter=limiter)

        await self._inner.serve(handle, concurrency=concurrency)

    def stop(self) -> None:
        """Stop: ``serve`` returns when the requests in progress are answered."""
        self._run(in_loop(self._inner.stop))

    def __enter__(self) -> Self:
        """Find the topic, and join the group.

        Raises:
            StreamNotFoundError, TopicNotFoundError: there is none.
            ConfigurationError: it is entered already.
            IggyError: the server refuses, or cannot be reached.
        """
        self._hosted, _ = self._loop_thread.host(self._inner)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Store what is done, and leave the group."""
        assert self._hosted is not None
        self._loop_thread.release(self._hosted)
        self._hosted.leave(kind, error, trace)

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"


class RequestReplyMethods(BlockingClientBase):
    """The methods of a blocking client for request and reply."""

    @overload
    def request_reply(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        reply_topic: Identifier,
        request_serde: None = None,
        reply_serde: None = None,
        **settings: Unpack[RequestReplySettings],
    ) -> RequestReply[bytes | str, bytes]: ...
    @overload
    def request_reply(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        reply_topic: Identifier,
        request_serde: Serde[Q],
        reply_serde: Serde[P],
        **settings: Unpack[RequestReplySettings],
    ) -> RequestReply[Q, P]: ...
    def request_reply(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        reply_topic: Identifier,
        request_serde: Serde[Any] | None = None,
        reply_serde: Serde[Any] | None = None,
        **settings: Unpack[RequestReplySettings],
    ) -> RequestReply[Any, Any]:
        """Prepare a caller; enter it with ``with``. The options are those of the async client."""
        serdes: Any = {"request_serde": request_serde, "reply_serde": reply_serde}
        inner = self._inner.request_reply(
            stream, topic, reply_topic=reply_topic, **serdes, **settings
        )
        return RequestReply(self._loop_thread, inner)

    @overload
    def responder(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        request_serde: None = None,
        reply_serde: None = None,
        **settings: Unpack[ResponderSettings],
    ) -> Responder[bytes, bytes | str]: ...
    @overload
    def responder(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        request_serde: Serde[Q],
        reply_serde: Serde[P],
        **settings: Unpack[ResponderSettings],
    ) -> Responder[Q, P]: ...
    def responder(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        request_serde: Serde[Any] | None = None,
        reply_serde: Serde[Any] | None = None,
        **settings: Unpack[ResponderSettings],
    ) -> Responder[Any, Any]:
        """Prepare a responder; enter it with ``with``. The options are those of the async one."""
        serdes: Any = {"request_serde": request_serde, "reply_serde": reply_serde}
        inner = self._inner.responder(stream, topic, **serdes, **settings)
        return Responder(self._loop_thread, inner)
