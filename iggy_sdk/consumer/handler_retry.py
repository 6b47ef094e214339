"""Handlers with retries: attempts, waits between them, and the dead letter after the last one.

A handler that returns has succeeded; one that is cancelled has neither succeeded nor failed. A
message that cannot be decoded is not retried, as it would fail again.
"""

from __future__ import annotations

import inspect
import logging
import random
import time
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import anyio

from iggy_protocol import HeaderKey, HeaderScalar, HeaderValue
from iggy_sdk.compression import CONTENT_ENCODING
from iggy_sdk.consumer.events import log_event
from iggy_sdk.consumer.latency import LatencyHistogram
from iggy_sdk.errors import DecryptionError, IggyError, SerdeError
from iggy_sdk.message import Message, ReceivedMessage
from iggy_sdk.options import Retry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from iggy_sdk.consumer.subscription import Subscription


T = TypeVar("T")

Handler: TypeAlias = "Callable[[ReceivedMessage[T]], Awaitable[None] | None]"
"""Handles a message; an async function, or a plain one that does not block."""

NO_RETRY = Retry(attempts=0)


class HandlerLog:
    """Logs what handlers could not do; never what is in a message.

    Args:
        subscription: whose messages they are.
    """

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def failed(self, message: ReceivedMessage[Any], error: Exception, attempt: int) -> None:
        """Log a call of the handler that raised, with its traceback."""
        self._write("handler_failed", "handling failed", message, attempt, error, logging.ERROR)

    def dead_lettered(self, message: ReceivedMessage[Any], error: Exception, attempts: int) -> None:
        """Log a message that was sent to the dead letters."""
        text = f"sent to the dead letters after {type(error).__name__}"
        self._write("dead_lettered", text, message, attempts, None, logging.WARNING)

    def _write(
        self,
        event: str,
        text: str,
        message: ReceivedMessage[Any],
        attempt: int,
        error: Exception | None,
        level: int,
    ) -> None:
        place = f"message {message.offset} of partition {message.partition_id}"
        log_event(
            event,
            self._subscription,
            f"{place}, attempt {attempt}: {text}",
            level=level,
            error=error,
            partition=message.partition_id,
            offset=message.offset,
            attempt=attempt,
        )


class HandlerRetry:
    """Calls the handler for a message, with retries.

    Args:
        handler: the user's function.
        retry: how often it is called again.
        dead_letters: where messages go that it cannot handle; None raises instead.
        log: told of failures and dead letters.
    """

    def __init__(
        self,
        handler: Handler[Any],
        *,
        retry: Retry | None = None,
        dead_letters: DeadLetterSink | None = None,
        log: HandlerLog | None = None,
    ) -> None:
        self.latency: LatencyHistogram = LatencyHistogram()
        self.failures_count: int = 0
        self.retries_count: int = 0
        self.dead_letters_count: int = 0
        self._handler = handler
        self._retry = retry or NO_RETRY
        self._dead_letters = dead_letters
        self._log = log

    async def handle(self, message: ReceivedMessage[Any]) -> None:
        """Call the handler until it succeeds or the message became a dead letter.

        Raises:
            Exception: what the handler raised last, without a dead letter producer.
        """
        attempt = 0
        while True:
            began = time.perf_counter()
            try:
                result = self._handler(message)
                if inspect.isawaitable(result):
                    await result
                self.latency.add(time.perf_counter() - began)
                return
            except Exception as error:
                self.latency.add(time.perf_counter() - began)
                self.failures_count += 1
                if self._log is not None:
                    self._log.failed(message, error, attempt + 1)
                if self._is_last(error, attempt):
                    await self._send_to_dead_letters(message, error, attempt + 1)
                    return
            await anyio.sleep(self._retry.schedule.delay(attempt, random.random))
            attempt += 1
            self.retries_count += 1

    def _is_last(self, error: Exception, attempt: int) -> bool:
        return attempt >= self._retry.attempts or isinstance(error, SerdeError | DecryptionError)

    async def _send_to_dead_letters(
        self, message: ReceivedMessage[Any], error: Exception, attempts: int
    ) -> None:
        if self._dead_letters is None:
            raise error
        await self._dead_letters.send(message, error, attempts)
        self.dead_letters_count += 1
        if self._log is not None:
            self._log.dead_lettered(message, error, attempts)


# Dead letters: messages that failed go to a producer, with headers that describe the failure.
#
# The payload is sent as the consumer saw it, decrypted and decompressed where that was possible,
# together with its headers.


HEADER_BYTES_MAX: Final = 255
"""What a header value may hold on the wire."""


class DeadLetterProducer(Protocol):
    """The method of a producer that is used."""

    async def send(self, value: Any, /) -> Any:
        """Send a message; a receipt with ``delivered()`` is awaited."""


class DeadLetterSink:
    """Sends failed messages. Used with ``async with``.

    Args:
        producer: an open producer, or a builder that is entered and left.
    """

    def __init__(
        self, producer: DeadLetterProducer | AbstractAsyncContextManager[DeadLetterProducer]
    ) -> None:
        self._given = producer
        self._producer: DeadLetterProducer | None = None
        self._is_ours = not hasattr(producer, "send")

    async def __aenter__(self) -> DeadLetterSink:
        given: Any = self._given
        self._producer = await given.__aenter__() if self._is_ours else given
        return self

    async def __aexit__(self, *details: Any) -> None:
        given: Any = self._given
        if self._is_ours:
            await given.__aexit__(*details)

    async def send(self, message: ReceivedMessage[Any], error: Exception, attempts: int) -> None:
        """Send a failed message, and wait until the server has stored it.

        Raises:
            IggyError: it could not be sent.
        """
        assert self._producer is not None
        receipt = await self._producer.send(dead_letter(message, error, attempts))
        delivered = getattr(receipt, "delivered", None)
        if delivered is not None:
            await delivered()


def dead_letter(message: ReceivedMessage[Any], error: Exception, attempts: int) -> Message[bytes]:
    """Make the dead letter of a failed message."""
    headers = _own_headers(message)
    details: dict[str, HeaderScalar] = {
        "iggy-dead-letter-stream": str(message.stream),
        "iggy-dead-letter-topic": str(message.topic),
        "iggy-dead-letter-partition": message.partition_id,
        "iggy-dead-letter-offset": message.offset,
        "iggy-dead-letter-attempts": attempts,
        "iggy-dead-letter-error": type(error).__name__,
        "iggy-dead-letter-reason": _truncate_to_header(str(error)),
    }
    for name, value in details.items():
        if value != "":
            headers[HeaderKey.string(name)] = HeaderValue.of(value)
    return Message(
        message.payload,
        headers=headers,
        id=message.id,
        key=message.key,
        origin_timestamp_us=message.origin_timestamp_us,
    )


def _own_headers(message: ReceivedMessage[Any]) -> dict[HeaderKey, HeaderValue]:
    try:
        headers = dict(message.typed_headers)
    except IggyError:
        return {}
    if message.error is None:
        # The payload is decompressed, so the header must not claim otherwise.
        headers.pop(HeaderKey.string(CONTENT_ENCODING), None)
    return headers


def _truncate_to_header(text: str) -> str:
    """Truncate a text to the size of a header, without splitting a character."""
    return text.encode()[:HEADER_BYTES_MAX].decode(errors="ignore")
