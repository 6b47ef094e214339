"""Sending one batch, with retries.

Only retriable errors lead to another attempt, and all attempts share the deadline of the call. An
attempt whose reply was lost may have succeeded, so a repeated batch can be stored twice, unless its
messages have ids and the server deduplicates.
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Any, Final

import anyio

from iggy_protocol import SendMessages
from iggy_sdk.errors import IggyError, SendFailedError, describe_command
from iggy_sdk.log_events import SEND_GIVEN_UP, log_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_protocol import SendConfirmation
    from iggy_sdk.client_interface import ClientInterface
    from iggy_sdk.deadline import Deadline
    from iggy_sdk.options import Retry
    from iggy_sdk.producer.routing import Destination


_LOGGER: Final = logging.getLogger("iggy_sdk.producer")


class RetryingSender:
    """Sends batches and repeats failed requests.

    Args:
        client: sends the requests.
        retry: how often a request is repeated.
        attempt_seconds_max: how long one attempt may take, where a call may take longer.
    """

    def __init__(
        self, client: ClientInterface, *, retry: Retry, attempt_seconds_max: float
    ) -> None:
        self._client = client
        self._attempts = retry.attempts
        self._backoff = retry.schedule
        self._attempt_seconds_max = attempt_seconds_max
        self.batches_count: int = 0
        self.messages_count: int = 0
        self.retries_count: int = 0

    async def send(
        self, destination: Destination, messages: Sequence[Any], deadline: Deadline
    ) -> SendConfirmation | None:
        """Send a batch and return when the server has acknowledged it.

        Returns:
            Where it is, if the server tells; those from 0.9 on do.

        Raises:
            IggyError: the last attempt failed, one failed with an error that is not retriable, or
                there is no time for another one. ``sent`` tells whether any attempt was sent whose
                answer is not known.
        """
        command = SendMessages(
            destination.stream,
            destination.topic,
            destination.partitioning,
            messages,
            origin_timestamp_us=time.time_ns() // 1_000,
        )
        confirmations = None
        is_sent = False
        for attempt in range(self._attempts + 1):
            try:
                # One direct look at the clock, because every send comes here.
                seconds = deadline.at - deadline.clock()
                if seconds <= 0:
                    seconds = deadline.rest_for(describe_command(command))
                elif seconds > self._attempt_seconds_max:
                    seconds = self._attempt_seconds_max
                confirmations = await self._client.request(command, timeout=seconds)
                break
            except IggyError as error:
                delay = self._backoff.delay(attempt, random.random)
                is_last = attempt == self._attempts or not error.retriable
                if is_last or not deadline.has(delay):
                    if is_sent and not error.sent:
                        raise error.after_sending() from error
                    raise
                is_sent |= error.sent is True
            self.retries_count += 1
            await anyio.sleep(delay)
        self.batches_count += 1
        self.messages_count += len(messages)
        return confirmations[0] if confirmations else None


def log_given_up(destination: Destination, failure: SendFailedError) -> None:
    """Log that messages were not sent, where and why, and nothing of what they hold."""
    cause = failure.cause
    reason = cause.message if isinstance(cause, IggyError) else type(cause).__name__
    count = len(failure.messages)
    log_event(
        *(_LOGGER, logging.WARNING, SEND_GIVEN_UP),
        *("gave up sending to %r/%r, messages not sent: %d: %s", destination.stream),
        *(destination.topic, count, reason),
        stream=destination.stream,
        topic=destination.topic,
        messages_count=count,
        reason=reason,
        sent=failure.sent,
    )
