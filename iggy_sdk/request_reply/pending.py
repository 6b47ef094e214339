"""The calls of one caller that wait for their replies. No I/O, and no clock."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import anyio

from iggy_sdk.errors import IggyError
from iggy_sdk.request_reply.envelope import CORRELATION_ID, CallerId

if TYPE_CHECKING:
    from iggy_sdk.message import ReceivedMessage


class CallStage(Enum):
    """How far a call has come."""

    WAITING = auto()
    SENDING = auto()
    SENT = auto()


class PendingCall:
    """One call.

    Attributes:
        number: what tells it from the other calls of the caller.
        stage: how far it has come.
        reply: the first reply, once it is there.
        failure: why there will be none.
    """

    __slots__ = ("_ended", "failure", "number", "reply", "stage")

    def __init__(self, number: int) -> None:
        self.number: int = number
        self.stage: CallStage = CallStage.WAITING
        self.reply: ReceivedMessage[Any] | None = None
        self.failure: IggyError | None = None
        self._ended = anyio.Event()

    def end(
        self, reply: ReceivedMessage[Any] | None = None, *, failure: IggyError | None = None
    ) -> None:
        """Give the call its reply, or the reason why there is none."""
        self.reply, self.failure = reply, failure
        self._ended.set()

    async def wait(self) -> None:
        """Wait for the end of the call."""
        await self._ended.wait()


class PendingCalls:
    """All calls that may get a reply.

    Attributes:
        replies_count: replies that a call has taken.
        ignored_count: replies that came twice, or when nobody waited any more.
        foreign_count: replies for other callers with the same partition.
        malformed_count: messages in the partition that are no replies.
    """

    def __init__(self) -> None:
        self.replies_count: int = 0
        self.ignored_count: int = 0
        self.foreign_count: int = 0
        self.malformed_count: int = 0
        self._caller = CallerId()
        self._calls: dict[int, PendingCall] = {}
        self._last_number = 0

    def __len__(self) -> int:
        """Count the calls that wait for a reply."""
        return len(self._calls)

    def new(self) -> PendingCall:
        """Number a call, which is not sent yet."""
        self._last_number += 1
        return PendingCall(self._last_number)

    def add(self, call: PendingCall) -> bytes:
        """Expect the reply to a call; return its correlation id."""
        self._calls[call.number] = call
        return self._caller.correlation_id(call.number)

    def remove(self, call: PendingCall) -> None:
        """Expect the reply no more."""
        self._calls.pop(call.number, None)

    def take(self, message: ReceivedMessage[Any]) -> None:
        """Give a reply to the call that it belongs to, if there is one."""
        try:
            correlation_id = message.headers.get(CORRELATION_ID)
        except IggyError:
            correlation_id = None
        if correlation_id is None:
            self.malformed_count += 1
            return
        number = self._caller.number_of(correlation_id)
        if number is None:
            self.foreign_count += 1
            return
        call = self._calls.pop(number, None)
        if call is None:
            self.ignored_count += 1
            return
        self.replies_count += 1
        call.end(message)

    def fail(self, failure: IggyError) -> None:
        """End all calls, because there will be no replies."""
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call.end(failure=failure)
