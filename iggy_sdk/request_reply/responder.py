"""The responder: reads requests as a member of a consumer group, and sends the replies.

    async with client.responder("shop", "prices", group="pricing") as responder:
        await responder.serve(price_of)

A request counts as done when its reply is stored. A responder that is killed before leaves it to
the next one of the group, so a handler may be called twice for one request.
"""

from __future__ import annotations

import inspect
import logging
import random
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import anyio

from iggy_protocol import Identifier, NewMessage, record
from iggy_sdk.consumer import ConsumerBuilder
from iggy_sdk.durations import to_seconds
from iggy_sdk.errors import (
    ClientClosedError,
    ConfigurationError,
    IggyError,
    ProducerClosedError,
    SendFailedError,
)
from iggy_sdk.log_events import EVENT
from iggy_sdk.message import Message, ReceivedMessage
from iggy_sdk.options import Retry
from iggy_sdk.producer import BackgroundMode, ProducerBuilder
from iggy_sdk.request_reply.envelope import (
    CORRELATION_ID,
    MICROSECONDS,
    REPLY_ERROR,
    RequestHeaders,
    error_reply,
    now_us,
    read_request,
)
from iggy_sdk.request_reply.options import raised_by_receipts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType
    from typing import Self

    from iggy_sdk.client_interface import ClientInterface
    from iggy_sdk.consumer import IggyConsumer
    from iggy_sdk.producer import Producer
    from iggy_sdk.request_reply.options import ResponderOptions


Q = TypeVar("Q")
P = TypeVar("P")

ReplyHandler: TypeAlias = (
    "Callable[[ReceivedMessage[Q]], Awaitable[P | Message[P]] | P | Message[P]]"
)
"""Answers a request; an async function, or a plain one that does not block."""

CONCURRENCY_DEFAULT: Final = 16
"""Requests that are handled at a time: enough to wait for other services, few enough to be
handled again after a crash."""

MALFORMED_PER_LINE: Final = 1_000
"""Messages that are no requests for each line in the log, the first one included."""

_LOGGER: Final = logging.getLogger("iggy_sdk.request_reply")

_CLOSED: Final = (ClientClosedError, ProducerClosedError)


@record(kw_only=True)
class ResponderStatistics:
    """The counters of a responder; all but ``in_progress`` only grow.

    Attributes:
        requests: requests that were given to the handler.
        in_progress: requests that the handler has, or whose replies are being sent.
        replies: replies that were stored, with values or errors.
        handler_failures: calls of the handler that raised.
        expired: requests that were dropped because nobody waits for them.
        malformed: messages in the topic that are no requests.
        undeliverable: replies that the server did not take.
    """

    requests: int
    in_progress: int
    replies: int
    handler_failures: int
    expired: int
    malformed: int
    undeliverable: int


class Responder(Generic[Q, P]):
    """Answers requests; made by ``client.responder()`` and entered with ``async with``."""

    def __init__(
        self,
        client: ClientInterface,
        stream: Identifier,
        topic: Identifier,
        options: ResponderOptions,
    ) -> None:
        """Take what ``client.responder()`` collected; nothing is read yet."""
        self._client = client
        self._stream = stream
        self._topic = topic
        self._options = options
        self._tolerance_us = int(to_seconds(options.expiry_tolerance) * MICROSECONDS)
        self._backoff = Retry().schedule
        self._stack: AsyncExitStack | None = None
        self._consumer: IggyConsumer[Q] | None = None
        self._producer: Producer[Any] | None = None
        self._requests_count = 0
        self._in_progress_count = 0
        self._replies_count = 0
        self._handler_failures_count = 0
        self._expired_count = 0
        self._malformed_count = 0
        self._undeliverable_count = 0

    @property
    def stream(self) -> Identifier:
        """The stream of the requests."""
        return self._stream

    @property
    def topic(self) -> Identifier:
        """The topic of the requests."""
        return self._topic

    @property
    def group(self) -> Identifier:
        """The consumer group that shares the requests."""
        return self._options.group

    def statistics(self) -> ResponderStatistics:
        """Return the counters of the responder."""
        return ResponderStatistics(
            requests=self._requests_count,
            in_progress=self._in_progress_count,
            replies=self._replies_count,
            handler_failures=self._handler_failures_count,
            expired=self._expired_count,
            malformed=self._malformed_count,
            undeliverable=self._undeliverable_count,
        )

    # Serving

    async def serve(
        self, handler: ReplyHandler[Q, P], *, concurrency: int = CONCURRENCY_DEFAULT
    ) -> None:
        """Answer requests until ``stop()`` or cancellation.

        The handler gets the request as a received message, and returns the value of the reply, or a
        ``Message`` of it with headers. What it raises goes to the caller: the name of the class and
        the text, and the traceback only with ``send_tracebacks``.

        Args:
            handler: called with each request that somebody waits for.
            concurrency: how many requests are handled at a time.

        Raises:
            ConfigurationError: the responder is not entered, or ``concurrency`` is below 1.
            IggyError: reading or storing offsets failed for good.
        """
        consumer = self._consumer
        if consumer is None:
            raise ConfigurationError(
                "the responder is not entered",
                advice="Use `async with client.responder(...) as responder:`.",
            )

        async def answer(message: ReceivedMessage[Q]) -> None:
            await self._answer(message, handler)

        await consumer.run(answer, concurrency=concurrency)

    def stop(self) -> None:
        """Stop: ``serve`` returns when the requests in progress are answered."""
        if self._consumer is not None:
            self._consumer.stop()

    async def _answer(self, message: ReceivedMessage[Q], handler: ReplyHandler[Q, P]) -> None:
        request = read_request(message)
        if request is None or not self._may_reply_to(request.reply_to):
            self._note_malformed(message)
            return
        if self._has_expired(request):
            self._expired_count += 1
            return
        self._requests_count += 1
        self._in_progress_count += 1
        try:
            await self._deliver(request, await self._handled(request, message, handler))
        finally:
            self._in_progress_count -= 1

    def _note_malformed(self, message: ReceivedMessage[Q]) -> None:
        """Count what is no request, and say so now and then: whoever can send can send many."""
        if self._malformed_count % MALFORMED_PER_LINE == 0:
            _LOGGER.warning(
                "%s: message %d of partition %d is no request that may be answered",
                *(self, message.offset, message.partition_id),
                extra={EVENT: "request_malformed"},
            )
        self._malformed_count += 1

    def _may_reply_to(self, topic: Identifier) -> bool:
        return self._options.reply_topic is None or self._options.reply_topic == topic

    def _has_expired(self, request: RequestHeaders) -> bool:
        end_us = request.expires_at_us
        return end_us is not None and now_us() > end_us + self._tolerance_us

    async def _handled(
        self, request: RequestHeaders, message: ReceivedMessage[Q], handler: ReplyHandler[Q, P]
    ) -> Message[Any] | NewMessage:
        """Call the handler, and make the reply of what it returns or raises."""
        try:
            value: Any = handler(message)
            if inspect.isawaitable(value):
                value = await value
        except Exception as error:
            self._handler_failures_count += 1
            _LOGGER.exception(
                "%s: the handler failed at message %d of partition %d",
                *(self, message.offset, message.partition_id),
                extra={EVENT: "handler_failed"},
            )
            return self._error_reply(request, error)
        reply = value if isinstance(value, Message) else Message(value)
        headers: dict[Any, Any] = {**(reply.headers or {}), CORRELATION_ID: request.correlation_id}
        headers.pop(REPLY_ERROR, None)
        return replace(reply, headers=headers)

    def _error_reply(self, request: RequestHeaders, error: Exception) -> NewMessage:
        return error_reply(
            request.correlation_id, error, send_traceback=self._options.send_tracebacks
        )

    # Sending replies

    async def _deliver(self, request: RequestHeaders, reply: Message[Any] | NewMessage) -> None:
        """Send a reply, again and again while the server is away and somebody waits."""
        attempt = 0
        while True:
            try:
                await self._send(request, reply)
            except _CLOSED:
                # The next responder of the group answers.
                raise
            except IggyError as error:
                if isinstance(reply, Message) and not error.retriable:
                    # The caller shall know why there is no value, such as one too large to send.
                    cause = error.cause if isinstance(error, SendFailedError) else error
                    shown = cause if isinstance(cause, Exception) else error
                    reply = self._error_reply(request, shown)
                    continue
                if not error.retriable or self._has_expired(request):
                    self._give_up(request, error)
                    return
            else:
                self._replies_count += 1
                return
            await anyio.sleep(self._backoff.delay(attempt, random.random))
            attempt += 1

    async def _send(self, request: RequestHeaders, reply: Message[Any] | NewMessage) -> None:
        assert self._producer is not None
        receipt = await self._producer.send_to(
            self._stream, request.reply_to, [reply], partition_id=request.reply_partition
        )
        try:
            await receipt.delivered()
        except SendFailedError as error:
            if isinstance(error.cause, _CLOSED):
                raise error.cause from error
            raise

    def _give_up(self, request: RequestHeaders, error: IggyError) -> None:
        self._undeliverable_count += 1
        _LOGGER.warning(
            "%s: a reply to topic %r, partition %d, was not sent: %s",
            *(self, request.reply_to, request.reply_partition, error),
            extra={EVENT: "reply_undeliverable"},
        )

    # Lifetime

    async def __aenter__(self) -> Self:
        """Find the topic, and join the group.

        Raises:
            StreamNotFoundError, TopicNotFoundError: there is none.
            ConfigurationError: it is entered already.
            IggyError: the server refuses, or cannot be reached.
        """
        if self._stack is not None:
            raise ConfigurationError(
                "this responder is entered already",
                advice="Make another one, which shares the requests of the group.",
            )
        options = self._options
        async with AsyncExitStack() as stack:
            # Replies of many requests share a batch while the one before them is on its way.
            self._producer = await stack.enter_async_context(
                ProducerBuilder(
                    self._client,
                    self._stream,
                    self._topic,
                    serde=options.reply_serde,
                    background=BackgroundMode(linger_time=0.0, on_error=raised_by_receipts),
                )
            )
            self._consumer = await stack.enter_async_context(
                ConsumerBuilder.group(
                    self._client,
                    options.group,
                    self._stream,
                    self._topic,
                    serde=options.request_serde,
                )
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Store what is done, and leave the group."""
        stack, self._stack = self._stack, None
        assert stack is not None
        # The error of the block is not passed on: the task group would wrap it in a group.
        await stack.aclose()
        self._consumer = self._producer = None

    def __repr__(self) -> str:
        return f"<Responder {self.group!r} of {self._stream!r}/{self._topic!r}>"
