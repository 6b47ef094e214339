"""Dead letters: messages that failed go to a producer, with headers that describe the failure.

The payload is sent as the consumer saw it, decrypted and decompressed where that was possible,
together with its headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from iggy_protocol import HeaderKey, HeaderScalar, HeaderValue
from iggy_sdk.compression import CONTENT_ENCODING
from iggy_sdk.errors import IggyError
from iggy_sdk.message import Message

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from iggy_sdk.message import ReceivedMessage

__all__ = ["DeadLetterProducer", "DeadLetters", "dead_letter"]

HEADER_BYTES_MAX: Final = 255
"""What a header value may hold on the wire."""


class DeadLetterProducer(Protocol):
    """The method of a producer that is used."""

    async def send(self, value: Any, /) -> Any:
        """Send a message; a receipt with ``delivered()`` is awaited."""


class DeadLetters:
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

    async def __aenter__(self) -> DeadLetters:
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
    told: dict[str, HeaderScalar] = {
        "iggy-dead-letter-stream": str(message.stream),
        "iggy-dead-letter-topic": str(message.topic),
        "iggy-dead-letter-partition": message.partition_id,
        "iggy-dead-letter-offset": message.offset,
        "iggy-dead-letter-attempts": attempts,
        "iggy-dead-letter-error": type(error).__name__,
        "iggy-dead-letter-reason": _cut(str(error)),
    }
    for name, value in told.items():
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


def _cut(text: str) -> str:
    """Truncate a text to the size of a header, without splitting a character."""
    return text.encode()[:HEADER_BYTES_MAX].decode(errors="ignore")
