"""Parts of the fake topic: its partitions, and the requests that wait for messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import anyio

from iggy_protocol import (
    Command,
    FetchedPartition,
    FetchMessages,
    PollDeferred,
    PolledMessages,
    StatusCode,
    WaitForMessages,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup

Kind = Literal["refuse", "drop", "lose", "hold"]
DEFERRED = (PollDeferred, WaitForMessages, FetchMessages)


@dataclass
class Step:
    """What happens to one command.

    "refuse" replies with a status, "drop" closes before doing it, "lose" after it, and "hold" does
    it when ``release`` is set.
    """

    kind: Kind
    status: StatusCode = StatusCode.ERROR
    is_reached: anyio.Event = field(default_factory=anyio.Event)
    release: anyio.Event = field(default_factory=anyio.Event)


@dataclass
class Log:
    """One partition; ``first`` grows as old messages are deleted, ``incarnation`` with a purge."""

    first: int = 0
    incarnation: int = 1_001
    messages: list[Any] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The offset that the next message gets."""
        return self.first + len(self.messages)

    @property
    def current_offset(self) -> int:
        """The highest offset, 0 when there is none."""
        return max(0, self.end - 1)


class DeferredRequests:
    """Requests that wait until there are messages.

    Attributes:
        waiting_count: how many wait at the moment.
        refusals: what the next ones are answered with.
        answers_at_once: whether they are answered although there is nothing.
        is_deaf: whether they are never answered.
    """

    def __init__(self, answer: Callable[[Any, int, Command[Any]], Any]) -> None:
        self.waiting_count = 0
        self.refusals: list[StatusCode] = []
        self.answers_at_once = False
        self.is_deaf = False
        self._answer = answer
        self._changed = anyio.Event()

    def notify(self) -> None:
        """Look again whether those that wait can be answered."""
        self._changed.set()
        self._changed = anyio.Event()

    def add(self, tasks: TaskGroup, peer: Any, client_id: int, command: Any) -> None:
        """Answer a request that was just heard, once that is possible."""
        peer.on_cancel = self.notify
        request, number, context = peer.detach(), peer.numbers[-1], peer.context
        if self.is_deaf:
            return
        tasks.start_soon(self._wait, peer, client_id, command, request, number, context)

    async def _wait(
        self, peer: Any, client_id: int, command: Any, request: Any, number: int, context: Any
    ) -> None:
        answer: Any = None
        asked = SimpleNamespace(dialect=peer.dialect, context=context)
        if self.refusals:
            await peer.reply_to(request, self.refusals.pop())
            return
        self.waiting_count += 1
        seconds = 0 if self.answers_at_once else command.wait_us / 1_000_000
        try:
            with anyio.move_on_after(seconds):
                while not has_messages(answer := self._answer(asked, client_id, command)):
                    await self._changed.wait()
                    if number in peer.cancelled:
                        peer.drop(request)
                        return
        finally:
            self.waiting_count -= 1
        await peer.reply_to(request, answer)


def has_messages(answer: Any) -> bool:
    """Tell whether a deferred request is answered at once."""
    if isinstance(answer, PolledMessages):
        return answer.messages_count > 0
    if isinstance(answer, tuple) and answer and isinstance(answer[0], FetchedPartition):
        return any(one.messages_count or one.status for one in answer)
    return bool(answer)
