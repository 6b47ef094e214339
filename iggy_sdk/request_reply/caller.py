"""The caller: sends requests, and reads the replies to them from one partition.

    async with client.request_reply("shop", "prices", reply_topic="price-replies") as prices:
        reply = await prices.call(b"tea", timeout=2.0)

Each caller reads one partition of the reply topic, from the end that it had on entry. No offset is
stored: a caller that is gone waits for nothing. The reader goes on by offsets, so replies that were
stored while the connection was lost are read afterwards.
"""

from __future__ import annotations

import copy
import math
import random
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio

from iggy_protocol import (
    CommandCode,
    ConsumerIdentity,
    GetTopic,
    Identifier,
    PollingStrategy,
    PollMessages,
    commands_of,
    record,
)
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.durations import to_seconds
from iggy_sdk.errors import ClientClosedError, ConfigurationError, IggyError, SendFailedError
from iggy_sdk.message import Headers, Message
from iggy_sdk.producer import BackgroundMode, ProducerBuilder
from iggy_sdk.request_reply.envelope import (
    CORRELATION_ID,
    EXPIRES_AT,
    MICROSECONDS,
    REPLY_PARTITION,
    REPLY_TO,
    now_us,
    remote_error,
)
from iggy_sdk.request_reply.errors import ReplyTimeoutError
from iggy_sdk.request_reply.options import positive_seconds, raised_by_receipts
from iggy_sdk.request_reply.pending import CallStage, PendingCall, PendingCalls

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from iggy_sdk.client_interface import ClientInterface
    from iggy_sdk.consumer import IggyConsumer
    from iggy_sdk.durations import Seconds
    from iggy_sdk.message import ReceivedMessage
    from iggy_sdk.producer import Producer
    from iggy_sdk.request_reply.options import RequestReplyOptions


Q = TypeVar("Q")
P = TypeVar("P")

READER_NAME: Final = "request-reply"
"""The consumer that reads replies. It stores no offset, so all callers may have the same name."""

_TIMEOUT_TEXTS: Final = {
    CallStage.WAITING: "was not sent: max_in_flight calls waited for their replies",
    CallStage.SENDING: "may have been sent: no server has acknowledged it",
    CallStage.SENT: "was stored, and nobody has answered it",
}
_TIMEOUT_ADVICE: Final = {
    CallStage.WAITING: "Raise max_in_flight, start more responders, or make fewer calls at a time.",
    CallStage.SENDING: "Look whether the server can be reached, then call again.",
    CallStage.SENT: "Look whether a responder runs and how long it takes, or raise timeout.",
}


@record(kw_only=True)
class RequestReplyStatistics:
    """The counters of a caller; all but ``in_flight`` only grow.

    Attributes:
        calls: calls that began.
        in_flight: calls that wait for their replies at the moment.
        replies: replies that calls have taken, with values or errors.
        remote_errors: replies that say that the handler raised.
        timeouts: calls that ended without a reply.
        ignored: replies that came twice, or when nobody waited any more.
        foreign: replies for other callers with the same partition.
        malformed: messages in the partition that are no replies.
        failed_sends: calls that ended because the server did not take the request.
    """

    calls: int
    in_flight: int
    replies: int
    remote_errors: int
    timeouts: int
    ignored: int
    foreign: int
    malformed: int
    failed_sends: int


class RequestReply(Generic[Q, P]):
    """Calls a service; made by ``client.request_reply()`` and entered with ``async with``.

    A request may be answered more than once, because responders read at least once. The first reply
    counts, and the others are ignored; what the handler does must bear to be done twice.
    """

    def __init__(
        self,
        client: ClientInterface,
        stream: Identifier,
        topic: Identifier,
        options: RequestReplyOptions,
    ) -> None:
        """Take what ``client.request_reply()`` collected; nothing is sent yet."""
        self._client = client
        self._stream = stream
        self._topic = topic
        self._options = options
        timeout = options.timeout
        self._timeout = client.options.request_timeout if timeout is None else to_seconds(timeout)
        self._pending = PendingCalls()
        self._stack: AsyncExitStack | None = None
        self._producer: Producer[Any] | None = None
        self._consumer: IggyConsumer[Any] | None = None
        self._reply_partition: int | None = options.reply_partition
        self._slots: anyio.Semaphore | None = None
        self._failure: IggyError | None = None
        # Set by calls; the reader waits for it after an error.
        self._called: anyio.Event | None = None
        self._calls_count = 0
        self._timeouts_count = 0
        self._remote_errors_count = 0
        self._failed_sends_count = 0

    # Identity

    @property
    def stream(self) -> Identifier:
        """The stream of requests and replies."""
        return self._stream

    @property
    def topic(self) -> Identifier:
        """The topic of the requests."""
        return self._topic

    @property
    def reply_topic(self) -> Identifier:
        """The topic of the replies."""
        return self._options.reply_topic

    @property
    def reply_partition(self) -> int | None:
        """The partition of the replies to this caller; None until it is chosen on entry."""
        return self._reply_partition

    def statistics(self) -> RequestReplyStatistics:
        """Return the counters of the caller."""
        pending = self._pending
        return RequestReplyStatistics(
            calls=self._calls_count,
            in_flight=len(pending),
            replies=pending.replies_count,
            remote_errors=self._remote_errors_count,
            timeouts=self._timeouts_count,
            ignored=pending.ignored_count,
            foreign=pending.foreign_count,
            malformed=pending.malformed_count,
            failed_sends=self._failed_sends_count,
        )

    # Calling

    async def call(
        self,
        value: Q | Message[Q],
        *,
        key: str | bytes | None = None,
        partition_id: int | None = None,
        headers: Headers | None = None,
        timeout: Seconds | None = None,
    ) -> P:
        """Send a request and return the value of the first reply.

        Any number of tasks may call at the same time.

        Args:
            value: a value, or a ``Message`` of one.
            key: requests with equal keys go to the same partition, and so to the same responder.
            partition_id: the partition of the request.
            headers: user headers, which the handler sees.
            timeout: how long all of it may take, waiting for a free place and sending included;
                None takes that of the caller, and ``math.inf`` waits as long as it takes.

        Raises:
            ReplyTimeoutError: there was no reply in time; ``sent`` says whether it was sent.
            RemoteHandlerError: the handler of the request raised.
            SendFailedError: the server did not take the request.
            SerdeError: the value cannot be written, or that of the reply not be read.
            ClientClosedError: the block was left.
            IggyError: the reply topic cannot be read.
        """
        message = await self.call_message(
            value, key=key, partition_id=partition_id, headers=headers, timeout=timeout
        )
        return message.value

    async def call_message(
        self,
        value: Q | Message[Q],
        *,
        key: str | bytes | None = None,
        partition_id: int | None = None,
        headers: Headers | None = None,
        timeout: Seconds | None = None,
    ) -> ReceivedMessage[P]:
        """Send a request and return the first reply with its headers; otherwise as ``call``."""
        self._check()
        seconds = self._timeout if timeout is None else positive_seconds("timeout", timeout)
        deadline = anyio.current_time() + seconds
        call = self._pending.new()
        self._calls_count += 1
        assert self._slots is not None
        with anyio.CancelScope(deadline=deadline):
            async with self._slots:
                # While this call waited for its place, the caller may have ended.
                self._check()
                request = value if isinstance(value, Message) else Message(value)
                merged: dict[Any, Any] = {**(headers or {}), **(request.headers or {})}
                request = replace(request, headers=merged)
                await self._exchange(call, request, key, partition_id, deadline)
        if call.failure is not None:
            raise copy.copy(call.failure) from call.failure
        if call.reply is None:
            self._timeouts_count += 1
            raise _timeout_error(call, seconds)
        error = remote_error(call.reply)
        if error is not None:
            self._remote_errors_count += 1
            raise error
        return call.reply

    async def _exchange(
        self,
        call: PendingCall,
        request: Message[Any],
        key: str | bytes | None,
        partition_id: int | None,
        deadline: float,
    ) -> None:
        """Send a request, and wait for the end of the call."""
        headers: Any = request.headers
        headers[CORRELATION_ID] = self._pending.add(call)
        headers[REPLY_TO] = self._options.reply_topic
        headers[REPLY_PARTITION] = self._reply_partition
        if not math.isinf(deadline):
            left = deadline - anyio.current_time()
            headers[EXPIRES_AT] = now_us() + int(left * MICROSECONDS)
        assert self._producer is not None
        try:
            if self._called is not None:
                self._called.set()
            call.stage = CallStage.SENDING
            receipt = await self._producer.send(request, key=key, partition_id=partition_id)
            try:
                await receipt.delivered()
            except SendFailedError:
                # A request whose acknowledgement was lost may have been answered.
                if call.reply is None:
                    self._failed_sends_count += 1
                    raise
            call.stage = CallStage.SENT
            self._expect_reply()
            await call.wait()
        finally:
            self._pending.remove(call)

    def _expect_reply(self) -> None:
        """Poll at once where the server cannot wait, because the pauses grow while all is quiet."""
        is_first = len(self._pending) == 1
        if is_first and CommandCode.POLL_DEFERRED not in commands_of(self._client.dialect):
            assert self._consumer is not None
            self._consumer.resume()

    def _check(self) -> None:
        if self._failure is not None:
            raise copy.copy(self._failure) from self._failure
        if self._stack is None:
            raise ClientClosedError(
                "calls are possible inside the block of request_reply() only",
                advice="Use `async with client.request_reply(...) as calls:`.",
            )

    # Reading replies

    async def _read_replies(self, consumer: IggyConsumer[Any]) -> None:
        """Give each reply to its call, until this is cancelled.

        An error ends the calls that wait. If it may go away, the next call makes this read again;
        otherwise the calls to come fail at once.
        """
        while self._failure is None:
            try:
                async for batch in consumer.batches():
                    for message in batch:
                        self._pending.take(message)
                return
            except IggyError as error:
                called = self._called = anyio.Event()
                self._failure = None if error.retriable else error
                self._pending.fail(error)
                if error.retriable:
                    await called.wait()

    # Lifetime

    async def __aenter__(self) -> Self:
        """Find both topics and the end of the replies, and begin to read.

        Raises:
            StreamNotFoundError, TopicNotFoundError: there is none, and none was to be created.
            ConfigurationError: it is entered already.
            IggyError: the server refuses, or cannot be reached.
        """
        if self._stack is not None:
            raise ConfigurationError(
                "this request_reply() is entered already",
                advice="Share what `as` named among tasks, or make another one.",
            )
        self._failure, self._called = None, None
        self._slots = anyio.Semaphore(self._options.max_in_flight)
        async with AsyncExitStack() as stack:
            partition_id = await self._choose_partition()
            consumer = await stack.enter_async_context(self._reader(partition_id))
            end = await self._end_of_replies(partition_id)
            await consumer.seek(PollingStrategy.offset(end), partition_id)
            self._consumer = consumer
            self._producer = await stack.enter_async_context(self._sender())
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(self._read_replies, consumer)
            stack.callback(tasks.cancel_scope.cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the calls of other tasks, and stop reading."""
        stack, self._stack = self._stack, None
        assert stack is not None
        self._pending.fail(ClientClosedError("the block of request_reply() was left"))
        # The error of the block is not passed on: the task group would wrap it in a group.
        await stack.aclose()

    def _reader(self, partition_id: int) -> ConsumerBuilder[Any]:
        # A connection of its own, so that no request waits behind a poll.
        return ConsumerBuilder.standalone(
            self._client,
            READER_NAME,
            self._stream,
            self._options.reply_topic,
            partition_id=partition_id,
            commit=AutoCommit.disabled(),
            connection="own",
            serde=self._options.reply_serde,
        )

    def _sender(self) -> ProducerBuilder[Any]:
        # Requests of many calls share a batch while the one before them is on its way.
        return ProducerBuilder(
            self._client,
            self._stream,
            self._topic,
            serde=self._options.request_serde,
            background=BackgroundMode(linger_time=0.0, on_error=raised_by_receipts),
        )

    async def _choose_partition(self) -> int:
        """Choose the partition of the replies, so that callers spread over all of them."""
        options = self._options
        # Entering a producer finds the topic, or creates it.
        async with ProducerBuilder[Any](
            self._client,
            self._stream,
            options.reply_topic,
            create_topic_if_not_exists=options.new_reply_topic,
        ):
            if options.reply_partition is None:
                topic = await self._client.request(GetTopic(self._stream, options.reply_topic))
                count = 0 if topic is None else topic.partitions_count
                self._reply_partition = random.randrange(max(1, count))
        assert self._reply_partition is not None
        return self._reply_partition

    async def _end_of_replies(self, partition_id: int) -> int:
        """Return the offset of the next reply in a partition."""
        polled = await self._client.request(
            PollMessages(
                ConsumerIdentity.single(READER_NAME),
                self._stream,
                self._options.reply_topic,
                PollingStrategy.last(),
                1,
                partition_id,
            )
        )
        last = polled.messages.last_offset
        if last is not None:
            return last + 1
        # Without a message the offset is that of the last one that was deleted, or 0.
        return polled.current_offset + 1 if polled.current_offset else 0

    def __repr__(self) -> str:
        return f"<RequestReply over {self._stream!r}/{self._topic!r}, {self.reply_topic!r}>"


def _timeout_error(call: PendingCall, seconds: float) -> ReplyTimeoutError:
    return ReplyTimeoutError(
        f"no reply within {seconds:g} s; the request {_TIMEOUT_TEXTS[call.stage]}",
        sent=call.stage is not CallStage.WAITING,
        advice=_TIMEOUT_ADVICE[call.stage],
    )
