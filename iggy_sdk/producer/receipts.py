"""Receipts: the outcome of messages that a producer accepted.

A batch is delivered or fails as a whole, so there is one outcome for each batch, and a receipt
holds the range of its messages in it. An event exists only where a task waits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from iggy_sdk.durations import Seconds, spell_seconds, to_seconds
from iggy_sdk.errors import RequestTimeoutError, SendFailedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from iggy_protocol import SendConfirmation


class BatchOutcome:
    """The outcome of a batch, and which of its messages are awaited by receipts."""

    __slots__ = ("_claimed", "_event", "cause", "confirmation", "is_done", "messages")

    def __init__(self) -> None:
        self.is_done: bool = False
        self.confirmation: SendConfirmation | None = None
        self.cause: BaseException | None = None
        self.messages: Sequence[Any] = ()
        self._claimed: set[int] | None = None
        self._event: anyio.Event | None = None

    def deliver(self, confirmation: SendConfirmation | None = None) -> None:
        """Record that the server has stored the batch, and where, if it says so."""
        self.confirmation = confirmation
        self._end()

    def fail(self, cause: BaseException, messages: Sequence[Any]) -> None:
        """Record that the batch failed."""
        self.cause, self.messages = cause, messages
        self._end()

    def unclaimed(self) -> list[Any]:
        """Return the messages of a failed batch that no receipt has reported."""
        claimed = self._claimed or ()
        return [message for at, message in enumerate(self.messages) if at not in claimed]

    async def wait(self) -> None:
        """Wait until the batch was delivered or has failed."""
        if not self.is_done:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()

    async def wait_for(self, start: int, stop: int) -> SendFailedError | None:
        """Wait for some messages of the batch; their failure counts as reported from then on."""
        if self._claimed is None:
            self._claimed = set()
        places = range(start, stop)
        self._claimed.update(places)
        try:
            await self.wait()
        except BaseException:
            self._claimed.difference_update(places)
            raise
        return self.error(start, stop)

    def error(self, start: int, stop: int) -> SendFailedError | None:
        """Return why some messages of the batch were not sent, if they were not."""
        if self.cause is None:
            return None
        return SendFailedError(self.cause, self.messages[start:stop])

    def _end(self) -> None:
        assert not self.is_done, "a batch ends once"
        self.is_done = True
        if self._event is not None:
            self._event.set()


class Receipt:
    """The delivery of what one call accepted; of a direct producer's it is always done."""

    __slots__ = ("_outcome", "_start", "_stop")

    def __init__(self, outcome: BatchOutcome, start: int, stop: int) -> None:
        self._outcome = outcome
        self._start = start
        self._stop = stop

    @property
    def is_done(self) -> bool:
        """Whether the messages were delivered or have failed."""
        return self._outcome.is_done

    @property
    def error(self) -> SendFailedError | None:
        """Why the messages were not sent; None otherwise."""
        return self._outcome.error(self._start, self._stop)

    @property
    def confirmations(self) -> tuple[SendConfirmation, ...]:
        """Where the messages are, batch by batch; ``base_offset`` is that of the first of them.

        Servers from 0.9 on tell it once the messages are delivered. Nothing is known of a batch
        before, from servers of 0.8, and after a repeat that the server had carried out already.
        """
        confirmation = _confirmation_from(self._outcome, self._start)
        return () if confirmation is None else (confirmation,)

    @property
    def partition_id(self) -> int | None:
        """The partition of the messages; None if it is not known, or there are several."""
        partitions = {one.partition_id for one in self.confirmations}
        return partitions.pop() if len(partitions) == 1 else None

    @property
    def offset(self) -> int | None:
        """The offset of the first message; None if it is not known, or of several batches."""
        confirmations = self.confirmations
        return confirmations[0].base_offset if len(confirmations) == 1 else None

    async def delivered(self, *, timeout: Seconds | None = None) -> None:
        """Wait until the server has acknowledged the messages.

        Args:
            timeout: how long to wait; None waits until it is known, which the
                ``delivery_timeout`` of the producer bounds.

        Raises:
            SendFailedError: they were not sent; ``messages`` are those of this receipt.
            RequestTimeoutError: it is not known yet; the producer goes on delivering.
        """
        error = await _within(timeout, self._wait)
        if error is not None:
            raise error from error.cause

    async def _wait(self) -> SendFailedError | None:
        return await self._outcome.wait_for(self._start, self._stop)

    def __repr__(self) -> str:
        state = "pending" if not self.is_done else "failed" if self.error else "delivered"
        return f"<Receipt of {self._stop - self._start} messages: {state}>"


async def _within(
    timeout: Seconds | None, wait: Callable[[], Awaitable[SendFailedError | None]]
) -> SendFailedError | None:
    """Wait for an outcome, and no longer than the timeout."""
    if timeout is None:
        return await wait()
    seconds = to_seconds(timeout, name="timeout")
    with anyio.move_on_after(seconds):
        return await wait()
    raise RequestTimeoutError(
        f"the messages were not delivered within {spell_seconds(seconds)}",
        advice="Await delivered() again: the producer goes on delivering.",
        sent=True,
    )


class JoinedReceipt(Receipt):
    """The delivery of a call whose messages went into several batches."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[tuple[BatchOutcome, int, int]]) -> None:
        outcome, start, stop = parts[0]
        super().__init__(outcome, start, stop)
        self._parts = parts

    @property
    def is_done(self) -> bool:
        """Whether all messages were delivered or have failed."""
        return all(outcome.is_done for outcome, _, _ in self._parts)

    @property
    def error(self) -> SendFailedError | None:
        """Why messages were not sent, with the first cause; None otherwise."""
        return _joined([outcome.error(start, stop) for outcome, start, stop in self._parts])

    @property
    def confirmations(self) -> tuple[SendConfirmation, ...]:
        """Where the messages are, batch by batch; see ``Receipt.confirmations``."""
        found = [_confirmation_from(outcome, start) for outcome, start, _ in self._parts]
        return tuple(one for one in found if one is not None)

    async def _wait(self) -> SendFailedError | None:
        return _joined([await out.wait_for(start, stop) for out, start, stop in self._parts])

    def __repr__(self) -> str:
        count = sum(stop - start for _, start, stop in self._parts)
        return f"<Receipt of {count} messages in {len(self._parts)} batches>"


def _confirmation_from(outcome: BatchOutcome, start: int) -> SendConfirmation | None:
    """Return where the messages of a batch are from one of them on."""
    whole = outcome.confirmation
    if whole is None or not start:
        return whole
    return replace(whole, base_offset=whole.base_offset + start)


def confirmed_receipt(confirmations: Sequence[SendConfirmation | None], count: int) -> Receipt:
    """Make the receipt of messages that are delivered, each batch where the server says."""
    if not any(confirmations):
        return DELIVERED
    parts = []
    for confirmation in confirmations:
        outcome = BatchOutcome()
        outcome.deliver(confirmation)
        parts.append((outcome, 0, 0))
    if len(parts) == 1:
        return Receipt(parts[0][0], 0, count)
    return JoinedReceipt(parts)


def _joined(errors: Sequence[SendFailedError | None]) -> SendFailedError | None:
    failures = [error for error in errors if error is not None]
    if not failures:
        return None
    messages = [message for error in failures for message in error.messages]
    return SendFailedError(failures[0].cause, messages)


def _delivered() -> Receipt:
    outcome = BatchOutcome()
    outcome.deliver()
    return Receipt(outcome, 0, 0)


DELIVERED: Final = _delivered()
"""What a direct producer returns: there is nothing left to wait for."""
