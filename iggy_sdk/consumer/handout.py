"""Delivery to the user: messages one by one, and in batches.

The request for the next message acknowledges the one before. Most messages cost one pop from a
deque: ``credit`` counts how many may be taken before a timer, a commit or a checkpoint is due. The
messages taken on credit are recorded together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

import anyio.lowlevel

from iggy_sdk.consumer.auto_commit import Trigger

if TYPE_CHECKING:
    from iggy_sdk.consumer.auto_commit import AutoCommit
    from iggy_sdk.consumer.commits import Commits
    from iggy_sdk.consumer.idle import EndWatch
    from iggy_sdk.consumer.intake import Intake
    from iggy_sdk.hooks import Hooks
    from iggy_sdk.message import ReceivedMessage

__all__ = ["Handout"]

T = TypeVar("T")

CHECKPOINT_MESSAGES: Final = 256
"""How many messages are delivered before other tasks run; about the duration of a request."""


class Handout(Generic[T]):
    """Delivers the messages of a consumer one by one."""

    __slots__ = (
        "_commits",
        "_granted",
        "_hooks",
        "_intake",
        "_looks_at_clock",
        "_mode",
        "_since_checkpoint",
        "credit",
        "current",
    )

    def __init__(
        self, *, intake: Intake[T], commits: Commits, mode: AutoCommit, hooks: Hooks
    ) -> None:
        self.current: ReceivedMessage[T] | None = None
        """The message that was delivered last."""
        self.credit = 0
        """How many messages may be popped from the buffer without a further check."""
        self._intake = intake
        self._commits = commits
        self._mode = mode
        self._hooks = hooks
        self._granted = 0
        self._since_checkpoint = 0
        # Without a timer task, delivery itself has to check the time.
        self._looks_at_clock = mode.pulse is not None
        intake.before_give_back = self.take_back_credit

    def trust_host(self) -> None:
        """Leave time-based commits to the timer task."""
        self._looks_at_clock = False

    async def next(self, end: EndWatch | None) -> ReceivedMessage[T] | None:
        """Acknowledge what was delivered, and deliver the next message; None at the end.

        Raises:
            IggyError: polling or storing failed for good.
        """
        self.settle()
        buffer = self._intake.buffer
        await self._commits.flush_if_time(drained=not buffer)
        while True:
            if not buffer:
                if not await self._intake.refill(end=end):
                    return None
            elif self._since_checkpoint >= CHECKPOINT_MESSAGES:
                self._since_checkpoint = 0
                await anyio.lowlevel.checkpoint()
            # The buffer may be empty after a wait: a lost partition, a pause, a seek.
            if buffer and await self._may_hand_out(buffer[0]):
                return self._hand_out()

    def settle(self) -> None:
        """Acknowledge everything that was delivered."""
        self.close_account()
        current, self.current = self.current, None
        if current is not None and not self._mode.counts_handed_out:
            assert self._intake.ledger is not None
            self._intake.ledger.advance(current.offset, 1)

    def close_account(self) -> None:
        """Record what was taken on credit: all before the current message is acknowledged."""
        taken = self._granted - self.credit
        self._granted = self.credit
        self._since_checkpoint += taken
        current, ledger = self.current, self._intake.ledger
        if current is None or ledger is None:
            return
        if taken and self._mode.counts_handed_out:
            ledger.advance(current.offset, taken)
        elif taken:
            # The offset before may be a gap, but storing it means the same.
            ledger.advance(current.offset - 1, taken)
        ledger.hand_out(current.offset)

    def take_back_credit(self) -> None:
        """Record what was taken and set the credit to 0, because the buffer changes."""
        self.close_account()
        self.credit = self._granted = 0

    async def _may_hand_out(self, message: ReceivedMessage[T]) -> bool:
        """In at-most-once modes, store first; tell whether the message is still in the buffer."""
        if not self._mode.counts_handed_out:
            return True
        buffer, ledger = self._intake.buffer, self._intake.ledger
        assert ledger is not None
        if ledger.acknowledged is None or ledger.acknowledged < message.offset:
            ledger.advance(message.offset, 1)
        await self._commits.flush_if_time(drained=len(buffer) == 1)
        return bool(buffer) and buffer[0] is message

    def _hand_out(self) -> ReceivedMessage[T]:
        message = self._intake.buffer.popleft()
        self.current = message
        self._since_checkpoint += 1
        self.credit = self._granted = self._allowance()
        if self._hooks:
            self._hooks.on_message(message)
        return message

    def _allowance(self) -> int:
        """Return how many messages may be taken before the next check."""
        if self._hooks or self._looks_at_clock:
            return 0
        ledger = self._intake.ledger
        assert ledger is not None
        rest = len(self._intake.buffer)
        if self._mode.trigger is Trigger.ALL and self._mode.counts_handed_out:
            rest -= 1
        mark = ledger.count_to_mark()
        if mark is not None:
            rest = min(rest, mark - 1)
        return max(0, min(rest, CHECKPOINT_MESSAGES - self._since_checkpoint))
