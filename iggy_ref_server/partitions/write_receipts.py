"""Receipts of writes: a repeated write gets the result of the first one and changes nothing.

A client from 0.9 on repeats a write when it does not know whether the server has it: with the same
session and number, on the same connection or on another one. Of each session the newest write is
remembered:

    a repeat while the first is in flight    waits for the same commit
    a repeat afterwards                      gets the original confirmation
    an older number                          is refused; newer writes were confirmed since
    a write that fails                       is forgotten, so a repeat tries again

Sends and writes of offsets are remembered apart, because clients number them alike but do not order
them. Receipts are in memory: after a restart a client has a new session and repeats nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_protocol import StatusCode
from iggy_ref_server.completion import Completion
from iggy_ref_server.faults import ServerFault

if TYPE_CHECKING:
    from collections.abc import Iterator


SESSIONS_MAX: Final = 1024
"""Of one partition, for each kind of write; the one that wrote longest ago is forgotten first. A
client repeats within half a minute, and a receipt takes about 400 bytes."""


class WriteId(NamedTuple):
    """Which write it is; repeats of it have the same.

    Attributes:
        session: the number of the client's session, never used again.
        number: rises with each request of the session.
    """

    session: int
    number: int


NEVER_REPEATED: Final = WriteId(0, 0)
"""Of a client without a session, whose writes are all new, as over HTTP."""


class WriteKind(Enum):
    """What is written."""

    SEND = "send"
    OFFSET = "offset"


class RecordedWrite(NamedTuple):
    """A write on its way, or a repeat of one.

    Attributes:
        pending: finishes with the commit.
        base_offset: the offset of its first message; None where it has none.
        is_repeat: whether an earlier request was this write.
    """

    pending: Completion
    base_offset: int | None = None
    is_repeat: bool = False


class _SessionWrites:
    """The newest write of one session that did not fail, and those after it that are in flight."""

    __slots__ = ("staged",)

    def __init__(self) -> None:
        # By number, in the order in which they were staged; numbers rise.
        self.staged: dict[int, RecordedWrite] = {}

    @property
    def newest_number(self) -> int:
        return next(reversed(self.staged), 0)

    @property
    def is_settled(self) -> bool:
        return all(staged.pending.is_done for staged in self.staged.values())

    def settle(self, number: int, pending: Completion) -> None:
        """Note how a write ended."""
        if number not in self.staged or self.staged[number].pending is not pending:
            return
        if pending.fault is not None:
            del self.staged[number]
            return
        for earlier in [one for one in self.staged if one < number]:
            del self.staged[earlier]


def _too_old(write: WriteId, writes: _SessionWrites) -> ServerFault:
    return ServerFault(
        StatusCode.REQUEST_TOO_OLD,
        f"session {write.session} has made write {writes.newest_number} since request"
        f" {write.number}",
    )


class WriteReceipts:
    """The receipts of one partition.

    Args:
        sessions_max: how many sessions are remembered for each kind of write.
    """

    __slots__ = ("_sessions", "_sessions_max")

    def __init__(self, *, sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions: dict[WriteKind, OrderedDict[int, _SessionWrites]] = {
            kind: OrderedDict() for kind in WriteKind
        }
        self._sessions_max = sessions_max

    def __len__(self) -> int:
        return sum(len(sessions) for sessions in self._sessions.values())

    def find(self, kind: WriteKind, write: WriteId) -> RecordedWrite | None:
        """Return the write that this one repeats; None if it is a new one.

        Raises:
            ServerFault: the session has made newer writes since.
        """
        writes = self._sessions[kind].get(write.session)
        if writes is None or write.number > writes.newest_number:
            return None
        staged = writes.staged.get(write.number)
        if staged is None:
            raise _too_old(write, writes)
        return staged

    def require_new(self, kind: WriteKind, write: WriteId) -> None:
        """Refuse a write that the session has made already, or before newer ones.

        Raises:
            ServerFault: it has.
        """
        writes = self._sessions[kind].get(write.session)
        if writes is not None and write.number <= writes.newest_number:
            raise _too_old(write, writes)

    def note(self, kind: WriteKind, write: WriteId, staged: RecordedWrite) -> None:
        """Remember a new write, which is staged."""
        sessions = self._sessions[kind]
        writes = sessions.setdefault(write.session, _SessionWrites())
        sessions.move_to_end(write.session)
        writes.staged[write.number] = staged
        pending = staged.pending
        pending.add_done_callback(lambda done: self._settle(kind, write, writes, done))
        self._forget_oldest(sessions)

    @contextmanager
    def writing_offset(self, write: WriteId) -> Iterator[None]:
        """Remember a new write of an offset, which the block makes.

        A block that is left early, as by a cancellation, has an unknown result; what waits for it
        is told so.
        """
        pending = Completion()
        self.note(WriteKind.OFFSET, write, RecordedWrite(pending))
        try:
            yield
        except ServerFault as fault:
            pending.finish(fault)
            raise
        except BaseException:
            unknown = "the write of an offset was interrupted"
            pending.finish(ServerFault(StatusCode.TRANSIENT_NOT_COMMITTED, unknown))
            raise
        pending.finish()

    def _settle(
        self, kind: WriteKind, write: WriteId, writes: _SessionWrites, done: Completion
    ) -> None:
        writes.settle(write.number, done)
        if not writes.staged and self._sessions[kind].get(write.session) is writes:
            del self._sessions[kind][write.session]

    def _forget_oldest(self, sessions: OrderedDict[int, _SessionWrites]) -> None:
        """Keep to the bound; what is in flight stays, and the memory of its commit bounds that."""
        excess = max(len(sessions) - self._sessions_max, 0)
        for session in tuple(islice(sessions, excess)):
            if sessions[session].is_settled:
                del sessions[session]
