"""Which errors a consumer retries, and how long it waits between attempts.

A server that is out of reach is retried as long as the client's ``reconnect`` option allows; a
retriable error reply is retried a few times. Every other error is raised at once.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Final

import anyio

from iggy_sdk.errors import ConnectionFailedError, RequestTimeoutError
from iggy_sdk.options import Backoff

if TYPE_CHECKING:
    from iggy_sdk.errors import IggyError
    from iggy_sdk.options import ClientOptions

__all__ = ["RetryPolicy"]

logger = logging.getLogger("iggy_sdk.consumer")

ERROR_REPLIES_MAX: Final = 10
"""How many error replies in a row are retried before the last one is raised."""

RETRY_SECONDS_MIN: Final = 0.05
"""The first wait after an error; a short glitch is over by then."""


class RetryPolicy:
    """Waits before the next attempt, or raises the error.

    Args:
        options: those of the client.
        longest: the longest wait between two attempts, in seconds.
        what: the operation, for the log.
    """

    def __init__(self, options: ClientOptions, *, longest: float, what: str) -> None:
        reconnect = options.reconnect
        self._waits_for_server = reconnect.enabled and reconnect.retries is None
        self._backoff = Backoff(initial=min(RETRY_SECONDS_MIN, longest), maximum=longest)
        self._what = what
        self._failures = 0

    def reset(self) -> None:
        """Reset the count of failures after a success."""
        self._failures = 0

    async def retry_or_raise(self, error: IggyError) -> None:
        """Wait before the next attempt.

        Raises:
            IggyError: this error, when there should be no further attempt.
        """
        self._failures += 1
        if not self._may_retry(error):
            raise error
        delay = self._backoff.delay(self._failures - 1, random.random)
        logger.warning("%s failed, retrying in %.2f s: %s", self._what, delay, error)
        await anyio.sleep(delay)

    def _may_retry(self, error: IggyError) -> bool:
        if isinstance(error, ConnectionFailedError | RequestTimeoutError):
            return self._waits_for_server
        return error.retriable and self._failures < ERROR_REPLIES_MAX
