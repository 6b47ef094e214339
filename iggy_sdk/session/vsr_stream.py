"""A session on one byte stream with a server from 0.9 on: replies are found by their number.

Reading, writing and deadlines are those of ``ByteStreamSession``. Here are the numbers: from 0.10
on replies come in any order, and a request that nobody waits for is forgotten, or cancelled if it
waits on the server. In 0.9 a connection carries one request at a time, and a request whose task
has gone stays until its reply comes.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from iggy_protocol import (
    NEED_DATA,
    NO_CONTEXT,
    Buffer,
    Command,
    ConnectionClosed,
    ErrorReceived,
    EvictionReceived,
    Limits,
    PartitionContext,
    PreparedRequest,
    RemoteProtocolError,
    ResponseReceived,
    VsrClientConnection,
)
from iggy_sdk.errors import (
    DisconnectedError,
    IggyError,
    RequestTimeoutError,
    describe_command,
    error_from_protocol,
)
from iggy_sdk.event_loop import event_loop_clock
from iggy_sdk.session.byte_stream import (
    CLOCK_SLACK_SECONDS,
    NOT_READ,
    SHIELDED_SECONDS_MAX,
    ByteStreamSession,
)
from iggy_sdk.session.interface import OPEN
from iggy_sdk.session.pending_requests import PendingRequest, PendingRequests
from iggy_sdk.session.vsr_session import (
    PreparedPending,
    VsrSession,
    evicted_error,
    logout_request,
    prepare_request,
)

if TYPE_CHECKING:
    from iggy_protocol import VsrClientSession
    from iggy_sdk.options import ClientOptions
    from iggy_sdk.session.states import SessionState
    from iggy_sdk.transport import StreamTransport


R = TypeVar("R")


class NumberedPendingRequests(PendingRequests):
    """Requests of one connection that have no reply yet, found by their number."""

    __slots__ = ("_by_number", "_deferred_count")

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._by_number: dict[int, PreparedPending] = {}
        self._deferred_count = 0

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is expected of the server at the moment; deferred requests may wait."""
        return len(self.requests) == self._deferred_count

    def add(self, pending: PreparedPending) -> None:
        """Wait for the reply to a request."""
        self._by_number[pending.request.number] = pending
        self.requests.append(pending)
        self._deferred_count += pending.is_deferred

    def holds(self, pending: PreparedPending) -> bool:
        """Say whether the reply to a request is still to come."""
        return self._by_number.get(pending.request.number) is pending

    def resolve(self, outcome: ResponseReceived[Any] | ErrorReceived) -> None:
        """Give the request with this number its reply."""
        pending = self._by_number[outcome.number]
        self.drop(pending)
        pending.outcome = outcome
        self.answered_count += 1
        if pending.wake is not None:
            pending.wake.set()

    def drop(self, pending: PreparedPending) -> None:
        """Forget a request."""
        del self._by_number[pending.request.number]
        self.requests.remove(pending)
        self._deferred_count -= pending.is_deferred

    def fail(self, error: Any, state: SessionState) -> None:
        """Fail every pending request, because the connection has ended."""
        super().fail(error, state)
        self._by_number.clear()
        self._deferred_count = 0


class VsrStreamSession(VsrSession, ByteStreamSession):
    """One connection to one server from 0.9 on; many tasks may send requests at the same time."""

    def __init__(
        self, transport: StreamTransport, options: ClientOptions, identity: VsrClientSession
    ) -> None:
        """Take a connected transport, which the session closes, and what it logs in as."""
        self.dialect = identity.dialect
        self.identity = identity
        outstanding_max = 1 if self.dialect.is_lockstep else options.max_outstanding
        self._connection = VsrClientConnection(
            identity, limits=Limits(outstanding_max=outstanding_max)
        )
        self._numbered = NumberedPendingRequests(outstanding_max)
        self._waiting_cancels: list[Buffer] = []
        # Since when the server owes a reply and has sent nothing; None while it owes none.
        self._silent_since: float | None = None
        self._clock = event_loop_clock()
        super().__init__(transport, options, codec=self._connection, pending=self._numbered)

    @property
    def is_bound(self) -> bool:
        """Whether a login was answered on this connection."""
        return self._connection.is_bound

    # Requests

    def prepare(
        self, command: Command[Any], *, context: PartitionContext = NO_CONTEXT
    ) -> PreparedRequest:
        """Give a command its number and its bytes; nothing is sent yet."""
        return prepare_request(self._connection, command, context)

    async def exchange(
        self, request: PreparedRequest, *, seconds: float, deadline: float
    ) -> ResponseReceived[Any] | ErrorReceived:
        """Send a prepared request, for the first time or again, and return what is answered."""
        pending = PreparedPending(request, deadline)
        try:
            await self._carry(pending, seconds)
        finally:
            if self._waiting_cancels:
                await self._write_cancels()
        outcome = pending.outcome
        if isinstance(outcome, ResponseReceived | ErrorReceived):
            return outcome
        assert outcome is not None, "a request without an outcome has timed out"
        raise outcome

    def _register(self, pending: PendingRequest) -> list[Buffer]:
        assert isinstance(pending, PreparedPending)
        buffers = self._connection.send_prepared(pending.request)
        self._numbered.add(pending)
        if self._silent_since is None and not pending.is_deferred:
            self._silent_since = self._clock()
        return buffers

    # Replies

    def _dispatch_replies(self) -> None:
        """Match decoded replies to pending requests, by their numbers."""
        try:
            while (event := self._connection.next_event()) is not NEED_DATA:
                self._silent_since = None
                if isinstance(event, ConnectionClosed):
                    self._note_loss(DisconnectedError(f"{self.peer} has closed the connection"))
                    break
                if isinstance(event, EvictionReceived):
                    self._note_loss(evicted_error(self.peer, event))
                    break
                self._numbered.resolve(event)
        except RemoteProtocolError as error:
            failure = error_from_protocol(error)
            failure.__cause__ = error
            self._note_loss(failure)
        if self._silent_since is None and not self._pending.is_quiet:
            self._silent_since = self._clock()
        self._pending.notify()

    # Giving up

    def _abandon(self, pending: PendingRequest, seconds: float) -> None:
        """Stop waiting for a reply.

        From 0.10 on the reply is dropped when it comes; a request that waits on the server is
        cancelled there. In 0.9 the connection carries nothing else before the reply has come.
        """
        assert isinstance(pending, PreparedPending)
        if self.dialect.is_lockstep:
            super()._abandon(pending, seconds)
            if self._pending.requests:
                # Whoever waits for its turn finds out as well that no reply comes any more.
                self._abort_if_unanswered()
            return
        if not self._numbered.holds(pending):
            return
        self._numbered.drop(pending)
        self._pending.abandon(pending)
        if self._is_dead(pending):
            what = describe_command(pending.command)
            self.abort(RequestTimeoutError(f"{self.peer} has answered nothing since {what}"))
            return
        if pending.is_deferred and pending.is_sent and not self.is_closed:
            self._waiting_cancels += self._connection.cancel(pending.request)
        else:
            self._connection.forget(pending.request)
        if self._reader is NOT_READ and self._pending.requests:
            self._wake_reader()

    def _is_dead(self, pending: PreparedPending) -> bool:
        """Say whether the server has answered nothing for so long that it never will."""
        now = self._clock() + CLOCK_SLACK_SECONDS
        if pending.is_deferred:
            # The server answers it long before its client gives up.
            return self._silent_since is None and now >= pending.deadline
        since = self._silent_since
        return since is not None and now - since >= self._options.request_timeout

    async def _write_cancels(self) -> None:
        """Tell the server what it need not answer; what cannot be written soon is not told."""
        with anyio.move_on_after(SHIELDED_SECONDS_MAX, shield=True):
            async with self._writing:
                while self._waiting_cancels and self.state is OPEN:
                    left = [self._waiting_cancels.pop()]
                    try:
                        left = self._transport.send_nowait(left)
                        if left:
                            await self._transport.send(left)
                    except OSError as error:
                        self.abort(self._connection_lost_error(error), by_peer=True)
                    finally:
                        if left:
                            self.abort(DisconnectedError("a cancel could not be written whole"))

    # The end

    async def _say_goodbye(self) -> None:
        """End the session on the server, which would otherwise keep it for another connection."""
        request = logout_request(self._connection)
        if request is None or self._writing.locked():
            return
        pending = PreparedPending(request, math.inf)
        try:
            with suppress(IggyError):
                rest = self._start_request(pending)
                if rest:
                    await self._finish_write(pending, rest)
                await self._await_outcome(pending, is_timed_by_session=False)
        finally:
            self.identity.end()

    def _release(self, error: Any) -> None:
        super()._release(error)
        self.identity.lost()
