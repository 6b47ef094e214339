"""Messages in the official shape: every field of a received one is a method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import SendConfirmation, record
from iggy_sdk.compat.headers import UserHeaders, user_headers_of
from iggy_sdk.compat.records import (
    ConsumerPosition,
    PartitionContext,
    Reported,
    Told,
    context_of,
)
from iggy_sdk.message import Headers, Message, ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    import iggy_protocol


class SendMessage(Message[str | bytes]):
    """A message to be sent.

    Args:
        data: the payload; text is written as UTF-8.
        user_headers: user headers.
        id: 0 or None lets the server choose one.
    """

    def __init__(
        self,
        data: str | bytes,
        user_headers: Headers | None = None,
        id: int | None = None,  # noqa: A002  official name
    ) -> None:
        super().__init__(data, headers=user_headers, id=id or 0)


class ReceiveMessage:
    """A message that was received; every field is a method."""

    __slots__ = ("_context", "own")

    def __init__(
        self, own: ReceivedMessage[bytes], context: iggy_protocol.PartitionContext
    ) -> None:
        """Take the message of this SDK, which stays at hand as ``own``.

        Args:
            own: the message.
            context: the state of its partition, as the poll told it.
        """
        self.own: ReceivedMessage[bytes] = own
        self._context = context

    def payload(self) -> bytes:
        """Return the payload."""
        return self.own.payload

    def offset(self) -> int:
        """Return the place in the partition."""
        return self.own.offset

    def timestamp(self) -> int:
        """Return when the server stored it, in microseconds since 1970."""
        return self.own.timestamp_us

    def origin_timestamp(self) -> int:
        """Return when the producer sent it, in microseconds since 1970."""
        return self.own.origin_timestamp_us

    def id(self) -> int:
        """Return the id, a number of 128 bits."""
        return self.own.id

    def checksum(self) -> int:
        """Return the checksum that the server stored."""
        return self.own.checksum

    def length(self) -> int:
        """Return the length of the payload."""
        return len(self.own.payload)

    def partition_id(self) -> int:
        """Return the partition it came from."""
        return self.own.partition_id

    def context(self) -> PartitionContext:
        """Return the state of the partition when the client polled it.

        Zeros from servers before 0.10, and in messages of a consumer, which keeps it by itself.
        """
        return context_of(self._context)

    def position(self) -> ConsumerPosition:
        """Return where the message stands, and the state of the partition then."""
        return ConsumerPosition(self.partition_id(), self.offset(), self.context())

    def user_headers(self) -> UserHeaders | None:
        """Return the user headers; None if there are none."""
        headers = self.own.typed_headers
        return user_headers_of(headers) if headers else None

    def __repr__(self) -> str:
        return f"<ReceiveMessage {self.own!r}>"


# Where sent messages went.


class SendMessagesConfirmation(Reported[SendConfirmation]):
    """Where a batch went: the partition, and the offset of its first message."""

    __slots__ = ()
    stream_id: Told[int] = Told[int]()
    topic_id: Told[int] = Told[int]()
    partition_id: Told[int] = Told[int]()
    base_offset: Told[int] = Told[int]()


@record
class SendMessagesResponse:
    """Where messages went; servers before 0.9 do not tell, and nobody does in the background."""

    confirmations: list[SendMessagesConfirmation]


def confirmations_of(told: Sequence[SendConfirmation]) -> list[SendMessagesConfirmation]:
    """Return the confirmations of a server in the official shape."""
    return [SendMessagesConfirmation(one) for one in told]
