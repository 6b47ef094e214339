"""Messages in the official shape: what is sent, and what was received with methods for fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iggy_sdk.message import Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iggy_protocol import HeaderKey, HeaderScalar, HeaderValue
    from iggy_sdk.message import Headers, ReceivedMessage

__all__ = ["ReceiveMessage", "SendMessage", "UserHeaders"]


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


class UserHeaders(dict["HeaderKey", "HeaderValue"]):
    """User headers with the kinds that the producer gave them."""

    def to_scalar_dict(self) -> dict[HeaderScalar, HeaderScalar]:
        """Show keys and values as Python sees them."""
        return {key.value: value.value for key, value in self.items()}


class ReceiveMessage:
    """A message that was received; every field is a method."""

    __slots__ = ("_message",)

    def __init__(self, message: ReceivedMessage[Any]) -> None:
        self._message = message

    def payload(self) -> bytes:
        """Return the payload."""
        return self._message.payload

    def offset(self) -> int:
        """Return the place in the partition."""
        return self._message.offset

    def timestamp(self) -> int:
        """Return when the server stored it, in microseconds since 1970."""
        return self._message.timestamp_us

    def origin_timestamp(self) -> int:
        """Return when the producer sent it, in microseconds since 1970."""
        return self._message.origin_timestamp_us

    def id(self) -> int:
        """Return the id, a number of 128 bits."""
        return self._message.id

    def checksum(self) -> int:
        """Return the checksum that the server stored."""
        return self._message.checksum

    def length(self) -> int:
        """Return the length of the payload."""
        return len(self._message.payload)

    def partition_id(self) -> int:
        """Return the partition it came from."""
        return self._message.partition_id

    def user_headers(self) -> UserHeaders:
        """Return the user headers."""
        headers: Mapping[HeaderKey, HeaderValue] = self._message.typed_headers
        return UserHeaders(headers)

    def __repr__(self) -> str:
        return f"<ReceiveMessage {self._message!r}>"
