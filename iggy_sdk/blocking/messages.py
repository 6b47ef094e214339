"""Received messages whose ``commit()`` blocks; everything else is that of the async SDK.

A message is wrapped, not copied: both read the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from iggy_sdk.message import ReceivedMessage as AsyncReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_sdk.blocking.bridge import Bridge

__all__ = ["MessageList", "ReceivedMessage"]

T = TypeVar("T")


class ReceivedMessage(AsyncReceivedMessage[T]):
    """A message that was received; everything beside its header is read when it is asked for."""

    __slots__ = ("_bridge",)

    def __init__(self, message: AsyncReceivedMessage[T], bridge: Bridge) -> None:
        """Take a message of the async SDK and its event loop."""
        super().__init__(message, message._source)
        self._bridge = bridge

    def commit(self) -> None:  # type: ignore[override]
        """Store that this message, and all before it in its partition, are done."""
        self._bridge.run(super().commit())


class MessageList(list[ReceivedMessage[T]]):
    """Messages that are handled together; those of one partition are in their order."""

    __slots__ = ()

    @classmethod
    def of(cls, messages: Iterable[AsyncReceivedMessage[T]], bridge: Bridge) -> MessageList[T]:
        """Wrap the messages of the async SDK."""
        return cls(ReceivedMessage(message, bridge) for message in messages)

    def payloads(self) -> list[bytes]:
        """Read all payloads."""
        return [message.payload for message in self]

    def values(self) -> list[T]:
        """Read all values; the first that cannot be read raises."""
        return [message.value for message in self]

    def last_offsets(self) -> dict[int, int]:
        """Tell the last offset of each partition."""
        return {message.partition_id: message.offset for message in self}

    def commit(self) -> None:
        """Store that all of it is done, without waiting for the next batch to be asked for."""
        last = {message.partition_id: message for message in self}
        for message in last.values():
            message.commit()
