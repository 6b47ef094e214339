"""Requests without a reply: one request, the requests of a connection, and which may be sent again.

Sessions decide when a request is woken; this module holds the state and makes the errors.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import anyio

from iggy_protocol import (
    Command,
    CommandCode,
    ErrorReceived,
    PollMessages,
    RemoteProtocolError,
    ResponseReceived,
    StatusCode,
)
from iggy_sdk.durations import spell_seconds
from iggy_sdk.errors import (
    ClientClosedError,
    DisconnectedError,
    EvictedError,
    IggyError,
    ProtocolError,
    RequestTimeoutError,
    describe_command,
    error_for_status,
    error_from_protocol,
)
from iggy_sdk.iggy_error import sent_clause
from iggy_sdk.session.states import SessionState, with_state

if TYPE_CHECKING:
    from iggy_sdk.event_loop import WakeEvent


class PendingRequest:
    """A request that was sent and has no reply yet.

    Attributes:
        command: the command of the request.
        deadline: when its task stops waiting; for an abandoned request, when the server counts as
            unresponsive.
        is_sent: whether all of the request was written.
        is_timed_by_session: whether ``run`` of the session tracks the deadline.
        is_abandoned: whether the task was cancelled or timed out before the reply.
        outcome: the reply or the error; None while it is pending.
        wake: set to wake the task of the request, while another task reads.
    """

    __slots__ = (
        "command",
        "deadline",
        "is_abandoned",
        "is_sent",
        "is_timed_by_session",
        "outcome",
        "wake",
    )

    def __init__(self, command: Command[Any], deadline: float) -> None:
        self.command: Command[Any] = command
        self.deadline: float = deadline
        self.is_sent: bool = False
        self.is_timed_by_session: bool = False
        self.is_abandoned: bool = False
        self.outcome: ResponseReceived[Any] | ErrorReceived | IggyError | None = None
        self.wake: WakeEvent | None = None


def read_outcome(pending: PendingRequest) -> Any:
    """Decode the reply of a request, in the task that sent it.

    Raises:
        IggyError: the outcome is an error.
    """
    outcome = pending.outcome
    if isinstance(outcome, ResponseReceived):
        return read_reply(pending.command, outcome)
    if isinstance(outcome, ErrorReceived):
        raise error_for_status(outcome.status, command=pending.command)
    assert outcome is not None, "the request is still pending"
    raise outcome


def read_reply(command: Command[Any], outcome: ResponseReceived[Any]) -> Any:
    """Decode a reply.

    Raises:
        ProtocolError: it is no reply to this command.
    """
    try:
        return outcome.decode()
    except RemoteProtocolError as error:
        raise error_from_protocol(error, command=command) from error


def request_timeout_error(
    command: Command[Any], *, is_sent: bool, seconds: float, peer: str
) -> RequestTimeoutError:
    """Make the error for a request that has timed out."""
    what = "no answer came" if is_sent else "it could not be sent"
    return RequestTimeoutError(
        f"{describe_command(command)}: {what} within {spell_seconds(seconds)} from {peer}",
        sent=is_sent,
    )


def session_ended_error(failure: IggyError, state: SessionState, *, is_sent: bool) -> IggyError:
    """Make the error for a request that was pending when its session ended."""
    error: IggyError
    message = f"{with_state(failure.message, state)}; {sent_clause(is_sent)}"
    if isinstance(failure, EvictedError):
        error = EvictedError(message, eviction=failure.eviction, sent=is_sent)
    elif isinstance(failure, ClientClosedError | ProtocolError):
        error = type(failure)(message, advice=failure.advice)
        error.sent = is_sent
    else:
        error = DisconnectedError(message, sent=is_sent)
    error.__cause__ = failure
    return error


def is_shutdown_notice(event: ResponseReceived[Any] | ErrorReceived) -> bool:
    """Say whether the server announces that it stops.

    The announcement looks like the reply to the oldest request, and does not say whether that
    request was carried out.
    """
    return isinstance(event, ErrorReceived) and (
        event.command is None or event.status == StatusCode.DISCONNECTED
    )


# The pending requests of one connection, in the order in which they were sent.
#
# Replies match requests by their order alone. A request whose task was cancelled or timed out stays
# in the order as abandoned, and its reply is dropped.


class PendingRequests:
    """Requests of one connection that have no reply yet.

    Attributes:
        requests: the oldest request comes first.
        answered_count: how many requests have got their reply.
        abandoned_count: how many requests were cancelled or timed out before that.
    """

    __slots__ = (
        "_capacity",
        "_capacity_event",
        "_drained",
        "abandoned_count",
        "answered_count",
        "requests",
    )

    def __init__(self, capacity: int) -> None:
        """Take how many requests may be pending at a time."""
        self.requests: deque[PendingRequest] = deque()
        self.answered_count: int = 0
        self.abandoned_count: int = 0
        self._capacity = capacity
        self._capacity_event: anyio.Event | None = None
        self._drained: anyio.Event | None = None

    @property
    def is_full(self) -> bool:
        """Whether no further request may be sent."""
        return len(self.requests) >= self._capacity

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is expected of the server at the moment."""
        return not self.requests

    @property
    def waiting_count(self) -> int:
        """How many requests are pending and not abandoned."""
        return sum(not pending.is_abandoned for pending in self.requests)

    async def await_change(self) -> None:
        """Wait until another request may be sent, or this task has to read."""
        self._capacity_event = anyio.Event()
        await self._capacity_event.wait()

    async def await_drained(self) -> None:
        """Wait until all requests may be finished or abandoned."""
        self._drained = anyio.Event()
        await self._drained.wait()

    def resolve(self, outcome: ResponseReceived[Any] | ErrorReceived) -> None:
        """Give the oldest request its reply."""
        pending = self.requests.popleft()
        pending.outcome = outcome
        self.answered_count += 1
        if pending.wake is not None:
            pending.wake.set()

    def notify(self) -> None:
        """Wake the tasks that wait for space or for the last reply, if there is reason to."""
        if self._capacity_event is not None and not self.is_full:
            self._capacity_event.set()
        if self._drained is not None and not self.waiting_count:
            self._drained.set()

    def abandon(self, pending: PendingRequest) -> None:
        """Mark a request as abandoned; its reply will be dropped."""
        pending.is_abandoned = True
        self.abandoned_count += 1
        self.notify()

    def wake_next_reader(self) -> bool:
        """Wake the oldest sleeping task so that it reads; False when no task sleeps."""
        for pending in self.requests:
            if pending.wake is not None:
                pending.wake.set()
                return True
        if self._capacity_event is not None:
            self._capacity_event.set()
        return False

    def wake_all(self) -> None:
        """Wake every task that waits in here."""
        for event in (
            *(pending.wake for pending in self.requests),
            self._capacity_event,
            self._drained,
        ):
            if event is not None:
                event.set()

    def release_expired(self, now: float) -> list[PendingRequest]:
        """Wake and return the requests whose deadline, tracked by ``run``, has passed."""
        expired = [
            pending
            for pending in self.requests
            if pending.is_timed_by_session and pending.deadline <= now
        ]
        for pending in expired:
            pending.is_timed_by_session = False
            if pending.wake is not None:
                pending.wake.set()
        return expired

    def fail(self, error: IggyError, state: SessionState) -> None:
        """Fail every pending request, because the connection has ended."""
        for pending in self.requests:
            if not pending.is_abandoned:
                pending.outcome = session_ended_error(error, state, is_sent=pending.is_sent)
        self.wake_all()
        self.requests.clear()


# Which commands may be carried out twice.
#
# A request whose connection broke before the reply may have been carried out. Commands of this
# table are sent again; for all others the caller gets the error and decides.


# Reads, and writes with the same effect the second time. Deletes are not among them: the second
# reply would be that there is no such resource, although the first delete succeeded.
_REPEATABLE: Final = frozenset(
    {
        CommandCode.PING,
        CommandCode.GET_STATS,
        CommandCode.GET_SNAPSHOT,
        CommandCode.GET_CLUSTER_METADATA,
        CommandCode.DESCRIBE_OPTIONS,
        CommandCode.GET_METADATA_CHANGES,
        CommandCode.GET_ME,
        CommandCode.GET_CLIENT,
        CommandCode.GET_CLIENTS,
        CommandCode.GET_USER,
        CommandCode.GET_USERS,
        CommandCode.LOGIN_USER,
        CommandCode.GET_PERSONAL_ACCESS_TOKENS,
        CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN,
        CommandCode.REGISTER,
        CommandCode.BIND_SESSION,
        CommandCode.FLUSH_UNSAVED_BUFFER,
        CommandCode.GET_CONSUMER_OFFSET,
        CommandCode.STORE_CONSUMER_OFFSET,
        CommandCode.GET_STREAM,
        CommandCode.GET_STREAMS,
        CommandCode.GET_TOPIC,
        CommandCode.GET_TOPICS,
        CommandCode.GET_CONSUMER_GROUP,
        CommandCode.GET_CONSUMER_GROUPS,
        CommandCode.JOIN_CONSUMER_GROUP,
        CommandCode.SYNC_CONSUMER_GROUP,
    }
)


def is_repeatable(command: Command[Any]) -> bool:
    """Say whether a command may be carried out twice."""
    if isinstance(command, PollMessages):
        # With auto commit the server moves the offset on, and a second poll skips the first batch.
        return not command.auto_commit
    return command.CODE in _REPEATABLE
