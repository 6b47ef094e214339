"""Sending one batch, with retries.

Only retriable errors lead to another attempt. An attempt whose reply was lost may have succeeded,
so a repeated batch can be stored twice, unless its messages have ids and the server deduplicates.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import anyio

from iggy_protocol import SendMessages
from iggy_sdk.errors import IggyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_sdk.door import ClientDoor
    from iggy_sdk.options import Retry
    from iggy_sdk.producer.routing import Destination

__all__ = ["Delivery"]


class Delivery:
    """Sends batches and repeats failed requests.

    Args:
        client: sends the requests.
        retry: how often a request is repeated.
        timeout: how long one attempt may take, in seconds; None takes what the client says.
    """

    def __init__(self, client: ClientDoor, *, retry: Retry, timeout: float | None) -> None:
        self._client = client
        self._attempts = retry.attempts
        self._backoff = retry.schedule
        self._timeout = timeout
        self.batches_count = 0
        self.messages_count = 0
        self.retries_count = 0

    async def send(self, destination: Destination, messages: Sequence[Any]) -> None:
        """Send a batch and return when the server has acknowledged it.

        Raises:
            IggyError: the last attempt failed, or one failed with an error that is not retriable.
        """
        command = SendMessages(
            destination.stream,
            destination.topic,
            destination.partitioning,
            messages,
            origin_timestamp_us=time.time_ns() // 1_000,
        )
        for attempt in range(self._attempts + 1):
            try:
                await self._client.request(command, timeout=self._timeout)
                break
            except IggyError as error:
                if attempt == self._attempts or not error.retriable:
                    raise
            self.retries_count += 1
            await anyio.sleep(self._backoff.delay(attempt, random.random))
        self.batches_count += 1
        self.messages_count += len(messages)
