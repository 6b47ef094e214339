"""The iterator that ``iter_messages()`` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from iggy_sdk.consumer.handout import T

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Self

    from iggy_sdk.consumer.idle import EndWatch
    from iggy_sdk.message import ReceivedMessage

__all__ = ["MessageIterator"]


class MessageIterator(Generic[T]):
    """Iterates over the messages of a consumer; asking for the next acknowledges the one before."""

    def __init__(
        self,
        ask: Callable[[EndWatch | None], Awaitable[ReceivedMessage[T]]],
        end: EndWatch | None,
    ) -> None:
        self._ask = ask
        self._end = end
        self._is_closed = False

    def __aiter__(self) -> Self:
        """Iterate over messages."""
        return self

    async def __anext__(self) -> ReceivedMessage[T]:
        """Return the next message.

        Raises:
            IggyError: polling or storing failed for good; one may go on asking.
        """
        if self._is_closed:
            raise StopAsyncIteration
        return await self._ask(self._end)

    async def aclose(self) -> None:
        """End the iteration; the last message stays unacknowledged."""
        self._is_closed = True
