"""Handlers with retries: attempts, waits between them, and the dead letter after the last one.

A handler that returns has succeeded; one that is cancelled has neither succeeded nor failed. A
message that cannot be decoded is not retried, as it would fail again.
"""

from __future__ import annotations

import inspect
import random
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio

from iggy_sdk.errors import DecryptionError, SerdeError
from iggy_sdk.options import Retry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_sdk.consumer.dead_letters import DeadLetters
    from iggy_sdk.message import ReceivedMessage

__all__ = ["Handler", "Handling"]

T = TypeVar("T")

Handler: TypeAlias = "Callable[[ReceivedMessage[T]], Awaitable[None] | None]"
"""Handles a message; an async function, or a plain one that does not block."""

NO_RETRY = Retry(attempts=0)


class Handling:
    """Calls the handler for a message, with retries.

    Args:
        handler: the user's function.
        retry: how often it is called again.
        dead_letters: where messages go that it cannot handle; None raises instead.
    """

    def __init__(
        self,
        handler: Handler[Any],
        *,
        retry: Retry | None = None,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self.failures_count = 0
        self.retries_count = 0
        self.dead_letters_count = 0
        self._handler = handler
        self._retry = retry or NO_RETRY
        self._dead_letters = dead_letters

    async def handle(self, message: ReceivedMessage[Any]) -> None:
        """Call the handler until it succeeds or the message became a dead letter.

        Raises:
            Exception: what the handler raised last, without a dead letter producer.
        """
        attempt = 0
        while True:
            try:
                result = self._handler(message)
                if inspect.isawaitable(result):
                    await result
                return
            except Exception as error:
                self.failures_count += 1
                if self._is_last(error, attempt):
                    await self._give_up(message, error, attempt + 1)
                    return
            await anyio.sleep(self._retry.schedule.delay(attempt, random.random))
            attempt += 1
            self.retries_count += 1

    def _is_last(self, error: Exception, attempt: int) -> bool:
        return attempt >= self._retry.attempts or isinstance(error, SerdeError | DecryptionError)

    async def _give_up(
        self, message: ReceivedMessage[Any], error: Exception, attempts: int
    ) -> None:
        if self._dead_letters is None:
            raise error
        await self._dead_letters.send(message, error, attempts)
        self.dead_letters_count += 1
