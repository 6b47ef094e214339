"""The requests of a shard that wait for messages: how many may, and what they wait for together.

A deferred poll sleeps until one of its partitions has a message, its time is over, the member loses
a partition, or its session ends. Nothing looks meanwhile: each of those wakes it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import trio

from iggy_protocol import StatusCode
from iggy_ref_server.completion import Completion, Wait
from iggy_ref_server.faults import ServerFault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


REQUESTS_PER_SESSION_MAX: Final = 64
"""As many as official clients have at once."""
PARTITIONS_MAX: Final = 1 << 14
"""Partitions that all requests of a shard wait for together; each takes about 1 KiB."""
PARTITIONS_PER_SESSION_MAX: Final = 1 << 12
"""Four requests for as many as one may name, so that no session takes what others need."""


class DeferredSlots:
    """Bounds the requests of one shard that wait."""

    def __init__(self) -> None:
        # By session, what each of its requests is told at the end of the session, and for how
        # many partitions it waits.
        self._by_session: dict[int, dict[Completion, int]] = {}
        self._partitions_count = 0

    def __len__(self) -> int:
        return sum(map(len, self._by_session.values()))

    @contextmanager
    def take(self, session: int, partitions_count: int) -> Iterator[Completion]:
        """Let a request wait for some partitions, during the block.

        Returns:
            What finishes when the session ends.

        Raises:
            ServerFault: too many wait already; the client may try again.
        """
        waiting = self._by_session.get(session, {})
        if (
            len(waiting) >= REQUESTS_PER_SESSION_MAX
            or sum(waiting.values()) + partitions_count > PARTITIONS_PER_SESSION_MAX
            or self._partitions_count + partitions_count > PARTITIONS_MAX
        ):
            raise ServerFault(
                StatusCode.TOO_MANY_DEFERRED_POLLS,
                f"session {session} has {len(waiting)} requests that wait for"
                f" {sum(waiting.values())} partitions, and this shard waits for"
                f" {self._partitions_count}",
            )
        ended = Completion()
        self._by_session.setdefault(session, waiting)[ended] = partitions_count
        self._partitions_count += partitions_count
        try:
            yield ended
        finally:
            self._partitions_count -= partitions_count
            waiting.pop(ended, None)
            if not waiting and self._by_session.get(session) is waiting:
                del self._by_session[session]

    def end_session(self, session: int) -> None:
        """End the requests of a session that has ended."""
        for ended in tuple(self._by_session.get(session, ())):
            if not ended.is_done:
                ended.finish()


class Sleep:
    """What one request waits for, until its time is over.

    Args:
        ended: finishes when the session of the request ends.
        deadline: when its time is over, on the clock of the loop.
    """

    def __init__(self, ended: Completion, deadline: float) -> None:
        self._deadline = deadline
        self._woken = trio.Event()
        self._waits: dict[Wait, None] = {}
        fault = ServerFault(StatusCode.UNAUTHENTICATED, "the session has ended")
        self._alarms: list[tuple[Completion, ServerFault]] = []
        self._add_alarm(ended, fault)

    def __enter__(self) -> Sleep:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for wait in self._waits:
            wait.cancel()

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return trio.current_time() >= self._deadline

    def add(self, wait: Wait) -> None:
        """Be woken by a wait; it is cancelled at the end of the block."""
        self._waits[wait] = None
        wait.add_done_callback(self._wake)

    def end_with(self, wait: Wait, fault: ServerFault) -> None:
        """End the request with a fault when a wait is done."""
        self._waits[wait] = None
        self._add_alarm(wait, fault)

    def forget(self, wait: Wait) -> None:
        """Drop a wait that is done, before the next one."""
        del self._waits[wait]

    async def until_woken(self) -> None:
        """Sleep until something happens, or the time is over.

        Raises:
            ServerFault: what happened ends the request.
        """
        with trio.move_on_at(self._deadline):
            await self._woken.wait()
        self._woken = trio.Event()
        self.check()

    def check(self) -> None:
        """Raise what has happened since, if it ends the request."""
        for alarm, fault in self._alarms:
            if alarm.is_done:
                told = alarm.fault or fault
                # A new exception for each task.
                raise ServerFault(told.status, told.message)

    def _add_alarm(self, alarm: Completion, fault: ServerFault) -> None:
        self._alarms.append((alarm, fault))
        alarm.add_done_callback(self._wake)

    def _wake(self, _: Completion) -> None:
        self._woken.set()
