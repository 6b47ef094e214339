"""Handing messages out one by one, as ``async for`` wants them.

Asking for the next message acknowledges the one before. Most messages cost no more than a pop from
a deque: ``credit`` says how many may be taken before something else has to be looked at, such as
the clock, a mark of the commit mode, or other tasks. What was taken meanwhile is settled in one go.

Owns the place of the reader in the buffer. Polls and stores are made elsewhere.
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
"""How many messages are handed out before other tasks have their turn; about as long as a request
takes."""


class Handout(Generic[T]):
    """The reader's place among the messages of a consumer.

    Args:
        intake: where messages come from.
        commits: stores offsets.
        mode: when to store.
        hooks: see every message.
    """

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
        """The message that was handed out last."""
        self.credit = 0
        """How many messages may be taken from the buffer without asking."""
        self._intake = intake
        self._commits = commits
        self._mode = mode
        self._hooks = hooks
        self._granted = 0
        self._since_checkpoint = 0
        # Without a host nobody else looks at the clock.
        self._looks_at_clock = mode.pulse is not None
        intake.before_give_back = self.take_back_credit

    def trust_host(self) -> None:
        """Leave the clock to a background task."""
        self._looks_at_clock = False

    async def next(self, end: EndWatch | None) -> ReceivedMessage[T] | None:
        """Acknowledge what was handed out, and hand out the next message; None at the end.

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
            # Whatever waited may have emptied the buffer: a lost partition, a pause, a seek.
            if buffer and await self._may_hand_out(buffer[0]):
                return self._hand_out()

    def settle(self) -> None:
        """Acknowledge everything that was handed out."""
        self.close_account()
        current, self.current = self.current, None
        if current is not None and not self._mode.counts_handed_out:
            assert self._intake.ledger is not None
            self._intake.ledger.advance(current.offset, 1)

    def close_account(self) -> None:
        """Book what was taken on credit: all before the current message is acknowledged."""
        taken = self._granted - self.credit
        self._granted = self.credit
        self._since_checkpoint += taken
        current, ledger = self.current, self._intake.ledger
        if current is None or ledger is None:
            return
        if taken and self._mode.counts_handed_out:
            ledger.advance(current.offset, taken)
        elif taken:
            # The offset before may be a hole, but what is stored there means the same.
            ledger.advance(current.offset - 1, taken)
        ledger.hand_out(current.offset)

    def take_back_credit(self) -> None:
        """Book what was taken, and grant nothing more, because the buffer is about to change."""
        self.close_account()
        self.credit = self._granted = 0

    async def _may_hand_out(self, message: ReceivedMessage[T]) -> bool:
        """Store first where handing out is what counts; tell whether the message is still ours."""
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
        """Tell how many more messages need no second look."""
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
