"""Carrying one request out at a server from 0.9 on, over as many attempts as it takes.

The table of the protocol says for each outcome whether the request is sent again, as the same bytes
or as a new request, and what to ask first. This module follows it within the deadline of the call.
From 0.10 on the same bytes are safe to send again as long as the session lives; when the session is
gone, the outcome of a write that was on its way is not known, and the caller gets to know that.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import anyio

from iggy_protocol import (
    Command,
    CommandCode,
    ErrorReceived,
    FetchMessages,
    PartitionContext,
    PollDeferred,
    PollMessages,
    PreparedRequest,
    Refresh,
    RepeatAction,
    RepeatRule,
    ResponseReceived,
    StatusCode,
    WriteLane,
    commands_of,
    repeat_rule,
    rule_after_eviction,
    rule_after_loss,
    write_lane,
)
from iggy_sdk.durations import spell_seconds
from iggy_sdk.errors import (
    OTHER_GENERATION_ADVICE,
    DisconnectedError,
    EvictedError,
    IggyError,
    RequestTimeoutError,
    UnsupportedByServerError,
    describe_command,
    error_for_status,
)
from iggy_sdk.iggy_error import raise_truthfully
from iggy_sdk.session.opening import REPEAT_BACKOFF
from iggy_sdk.session.partitions import PlannedRequest, RequestPlanner
from iggy_sdk.session.pending_requests import read_reply
from iggy_sdk.session.vsr_session import VsrSession

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from iggy_protocol import Dialect
    from iggy_sdk.session.interface import Session


R = TypeVar("R")

LOSSES_MAX: Final = 3
"""A request that ends its connection every time must not be repeated for ever."""

UNSERVED_CODES: Final = frozenset({CommandCode.FLUSH_UNSAVED_BUFFER})
"""Commands that servers from 0.9 on refuse although the protocol has them."""

_RENUMBER_ONCE: Final = RepeatRule(RepeatAction.RENUMBER, Refresh.ROUTE, is_once=True)
# Reads whose context came from the cache, so that a newer route is as good. The table has sends
# alone, because it cannot tell where a context came from.
_PLAIN_READS: Final = frozenset({CommandCode.POLL_MESSAGES, CommandCode.GET_CONSUMER_OFFSET})


_POLLS: Final = (PollMessages, PollDeferred, FetchMessages)


class FramingChangedError(DisconnectedError):
    """Another server has taken the place of this one, which speaks the framing of 0.8."""


class Connections(Protocol):
    """The client's connections, as a request needs them."""

    async def session_for(
        self, command: Command[Any], *, seconds: float, deadline: float
    ) -> Session:
        """Return an open session, within the deadline of a request."""

    @property
    def is_clustered(self) -> bool:
        """Whether the server is one of several nodes."""

    async def session_at(
        self, replica_id: int, session: VsrSession, *, deadline: float
    ) -> VsrSession:
        """Return the session of the client on the node that serves a partition."""

    async def follow_leader(self, session: Session) -> None:
        """Move to another node if the cluster has another leader now."""

    async def begin_again(self, session: Session) -> bool:
        """End a session whose login the server no longer knows; say whether to try another one."""

    def may_reconnect(self) -> bool:
        """Say whether a lost connection is made again for a request."""

    def count_resend(self) -> None:
        """Count a request that is sent again."""


class RequestRepeater:
    """Sends requests to servers from 0.9 on."""

    def __init__(self, connections: Connections) -> None:
        self.planner: RequestPlanner = RequestPlanner()
        self._connections = connections
        self._lanes: dict[Hashable, _Lane] = {}

    async def request(
        self,
        command: Command[R],
        *,
        context: PartitionContext | None,
        seconds: float,
        deadline: float,
    ) -> R:
        """Send a command and return the reply.

        Args:
            command: any command but a login.
            context: the state of the partition, if the caller knows it from an earlier reply.
            seconds: how long all of it may take.
            deadline: when that is over.

        Raises:
            UnsupportedByServerError: the server has no such command.
            RequestTimeoutError: there was no final answer in time.
            DisconnectedError: the connection broke, and the command may have been carried out.
            IggyError: the error of the server.
        """
        call = _Call(self, self._connections, command, seconds=seconds, deadline=deadline)
        await call.connect()
        check_supported(command, call.session.dialect)
        await call.plan(context)
        key = _lane_key(call.session.dialect, call.planned)
        if key is None:
            reply: R = await call.carry_out()
            return reply
        lane = self._lanes.setdefault(key, _Lane())
        lane.users_count += 1
        try:
            await lane.enter(command, seconds=seconds, deadline=deadline)
            try:
                done: R = await call.carry_out()
                return done
            finally:
                lane.lock.release()
        finally:
            lane.users_count -= 1
            if not lane.users_count:
                del self._lanes[key]


def is_missing(command: Command[Any] | type[Command[Any]], dialect: Dialect) -> bool:
    """Say whether servers of a dialect do not have a command."""
    return command.CODE not in commands_of(dialect) or (
        dialect.is_vsr and command.CODE in UNSERVED_CODES
    )


def check_supported(command: Command[Any], dialect: Dialect) -> None:
    """Refuse a command that the server does not have, before anything is sent.

    Raises:
        UnsupportedByServerError: the server speaks a generation without it.
    """
    if is_missing(command, dialect):
        raise UnsupportedByServerError(
            f"{describe_command(command)}: the server speaks {dialect}, which does not have it",
            advice=OTHER_GENERATION_ADVICE,
        )


class _Lane:
    """Requests that are on their way one after another."""

    __slots__ = ("lock", "users_count")

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.users_count = 0

    async def enter(self, command: Command[Any], *, seconds: float, deadline: float) -> None:
        """Wait for the turn of a request."""
        if not self.lock.locked():
            self.lock.acquire_nowait()
            return
        with anyio.CancelScope(deadline=deadline):
            await self.lock.acquire()
            return
        raise RequestTimeoutError(
            f"{describe_command(command)}: an earlier write was not answered"
            f" within {spell_seconds(seconds)}",
            sent=False,
        )


def _lane_key(dialect: Dialect, planned: PlannedRequest) -> Hashable:
    """Return what a request shares with those that it must not overtake; None for nothing."""
    lane = write_lane(dialect, planned.command.CODE)
    if lane is WriteLane.NONE:
        return None
    if lane is WriteLane.PARTITION:
        return (planned.command.CODE, planned.place)
    return lane


class _Call:
    """One request, from the first attempt to its end."""

    def __init__(
        self,
        repeater: RequestRepeater,
        connections: Connections,
        command: Command[Any],
        *,
        seconds: float,
        deadline: float,
    ) -> None:
        self.session: VsrSession
        self._main: VsrSession
        self.planned: PlannedRequest
        self._repeater = repeater
        self._connections = connections
        self._command = command
        self._seconds = seconds
        self._deadline = deadline
        self._request: PreparedRequest | None = None
        self._pauses: Iterator[float] | None = None
        self._losses_count = 0
        # The statuses that may be repeated once and have been.
        self._repeated: set[int] = set()
        # Whether any attempt was sent whose answer is not known.
        self._is_sent = False
        # Whether a server may have carried the request out, without our knowing.
        self._is_uncertain = False

    async def connect(self) -> None:
        """Take an open session."""
        session = await self._connections.session_for(
            self._command, seconds=self._seconds, deadline=self._deadline
        )
        if not isinstance(session, VsrSession):
            raise FramingChangedError(
                f"{describe_command(self._command)}: the server speaks {session.dialect} by now",
                sent=self._is_uncertain and self._is_write(),
            )
        self.session = self._main = session

    async def plan(self, context: PartitionContext | None) -> None:
        """Complete the command with what the client knows of its partition."""
        try:
            self.planned = await self._repeater.planner.plan(
                self._command,
                identity=self._main.identity,
                context=context,
                ask=self._ask,
                is_clustered=self._connections.is_clustered,
            )
        except IggyError as error:
            if error.sent:
                raise error.before_sending() from error
            raise
        await self._go_to_primary()

    async def _go_to_primary(self) -> None:
        """Take the connection to the node that serves the partition, if there are several."""
        primary_id = self.planned.primary_id
        if primary_id is not None:
            self.session = await self._connections.session_at(
                primary_id, self._main, deadline=self._deadline
            )

    async def _ask(self, command: Command[R]) -> R:
        """Ask for something that this request needs to know."""
        return await self._repeater.request(
            command, context=None, seconds=self._seconds, deadline=self._deadline
        )

    async def carry_out(self) -> Any:
        """Send the request until there is a final answer.

        Raises:
            IggyError: that answer is an error, or there is none in time.
        """
        try:
            return await self._repeat_until_final()
        except IggyError as error:
            raise_truthfully(error, is_sent=self._is_sent)

    async def _repeat_until_final(self) -> Any:
        while True:
            if self.session.failure is not None:
                await self._connect_again()
            request = self._request
            if request is None:
                planned = self.planned
                request = self.session.prepare(planned.command, context=planned.context)
                self._request = request
            try:
                outcome = await self.session.exchange(
                    request, seconds=self._seconds, deadline=self._deadline
                )
            except DisconnectedError as error:
                await self._on_loss(error)
                continue
            if isinstance(outcome, ErrorReceived):
                await self._on_error(outcome)
            elif self._is_proof(outcome):
                return read_reply(self.planned.command, outcome)
            else:
                await self._pause()

    # Outcomes

    def _is_write(self) -> bool:
        return write_lane(self.session.dialect, self._command.CODE) is not WriteLane.NONE

    def _is_proof(self, outcome: ResponseReceived[Any]) -> bool:
        """Say whether a success is final; a repeated write needs one that is marked."""
        needs_marker = self.session.dialect.binds_sessions and self._is_write()
        return outcome.is_committed or not (needs_marker and self._is_uncertain)

    async def _on_error(self, outcome: ErrorReceived) -> None:
        """Prepare another attempt, or raise the error."""
        status = outcome.status
        rule = self._rule_for(outcome)
        if status == StatusCode.PARTITION_HISTORY_UNAVAILABLE and self.planned.place is not None:
            self._repeater.planner.forget(self.planned.place)
        error = error_for_status(status, command=self._command)
        if status == StatusCode.UNAUTHENTICATED and status not in self._repeated:
            self._repeated.add(status)
            if await self._connections.begin_again(self._main):
                return
        if rule.action not in (RepeatAction.REPEAT, RepeatAction.RENUMBER):
            raise error
        self._is_uncertain |= status == StatusCode.TRANSIENT_NOT_COMMITTED
        if rule.is_once:
            if status in self._repeated:
                raise error
            self._repeated.add(status)
        else:
            await self._pause(error)
        await self._refresh(rule.refresh)
        if rule.action is RepeatAction.RENUMBER:
            self._request = None

    def _rule_for(self, outcome: ErrorReceived) -> RepeatRule:
        dialect, code = self.session.dialect, self._command.CODE
        if outcome.is_committed:
            return repeat_rule(dialect, code, StatusCode.ERROR)
        is_captured = self.planned.is_captured
        is_plain_read = code in _PLAIN_READS and not is_captured and self.planned.place is not None
        if is_plain_read and outcome.status == StatusCode.PARTITION_HISTORY_UNAVAILABLE:
            return _RENUMBER_ONCE
        rule = repeat_rule(dialect, code, outcome.status, has_context=is_captured)
        # Which partition to poll instead, only the caller can tell.
        return repeat_rule(dialect, code, 0) if rule.refresh is Refresh.GROUP else rule

    async def _refresh(self, refresh: Refresh) -> None:
        """Ask the server what the table wants to be known first."""
        if refresh is Refresh.ROSTER:
            await self._connections.follow_leader(self._main)
        is_route = refresh is Refresh.ROUTE or self.planned.primary_id is not None
        if refresh is not Refresh.NOTHING and is_route and self.planned.place is not None:
            self._repeater.planner.forget(self.planned.place)
            await self.plan(self.planned.context if self.planned.is_captured else None)

    # The end of a connection

    async def _on_loss(self, error: DisconnectedError) -> None:
        """Connect again for another attempt, or raise the error."""
        self._losses_count += 1
        if error.sent and self._rule_after(error).action is RepeatAction.FAIL:
            raise self._final(error)
        if self._losses_count > LOSSES_MAX or not self._connections.may_reconnect():
            raise self._final(error)
        if error.sent:
            self._is_sent = True
            self._is_uncertain |= self._is_write()
        await self._connect_again(error)

    def _rule_after(self, error: DisconnectedError) -> RepeatRule:
        dialect, code = self.session.dialect, self._command.CODE
        moves_offset = is_committing_poll(self._command)
        if isinstance(error, EvictedError) and error.eviction is not None:
            reason = error.eviction.reason
            return rule_after_eviction(dialect, code, reason, moves_offset=moves_offset)
        return rule_after_loss(dialect, code, moves_offset=moves_offset)

    def _final(self, error: DisconnectedError) -> IggyError:
        """Return what the caller is told; an eviction means what its status says."""
        if not isinstance(error, EvictedError):
            return error
        told = error_for_status(error.code, command=self._command)
        told.__cause__ = error
        return told

    async def _connect_again(self, error: DisconnectedError | None = None) -> None:
        """Take another session; keep the bytes if it knows them, else begin with new ones."""
        before = self.session
        await self.connect()
        await self._go_to_primary()
        if self.session is before:
            return
        self._connections.count_resend()
        if self._request is None:
            return
        if self.session.dialect is not before.dialect:
            self._check_certain(error)
            await self.plan(None)
            self._request = None
        elif self._request.head.client != self.session.identity.client:
            self._check_certain(error)
            self._request = None

    def _check_certain(self, error: DisconnectedError | None) -> None:
        """Raise if a write may have been carried out under a session that is gone."""
        if self._is_uncertain and self._is_write():
            text = f"{describe_command(self._command)}: the session ended before the answer came"
            raise error or DisconnectedError(text)

    # Time

    async def _pause(self, error: IggyError | None = None) -> None:
        """Wait before the next attempt; raise when there is no time for one."""
        if self._pauses is None:
            self._pauses = REPEAT_BACKOFF.delays(random.random)
        pause = next(self._pauses)
        if anyio.current_time() + pause < self._deadline:
            await anyio.sleep(pause)
        elif error is not None and not self._is_uncertain:
            raise error
        else:
            raise self._uncertain_error() from error

    def _uncertain_error(self) -> RequestTimeoutError:
        what = describe_command(self._command)
        return RequestTimeoutError(
            f"{what}: whether it was carried out is not known after {spell_seconds(self._seconds)}",
            code=StatusCode.OPERATION_UNCERTAIN,
            retriable=True,
            sent=True,
        )


def is_committing_poll(command: Command[Any]) -> bool:
    """Say whether a command reads and stores an offset at once."""
    return isinstance(command, _POLLS) and command.auto_commit
