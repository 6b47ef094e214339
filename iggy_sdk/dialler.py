"""Making a session: endpoints in order, backoff, the login, and the leader of the cluster."""

from __future__ import annotations

import math
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from iggy_sdk.address import Endpoint
from iggy_sdk.conversation import Conversation, open_conversation
from iggy_sdk.durations import to_seconds
from iggy_sdk.errors import ConnectionFailedError, DisconnectedError, IggyError, ProtocolError
from iggy_sdk.leader import find_leader
from iggy_sdk.probe import (
    PROBED_TRANSPORTS,
    SILENCE_SECONDS,
    incompatible,
    speaks_other_protocol,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iggy_protocol import Command
    from iggy_sdk.options import ClientOptions
    from iggy_sdk.transport import Dial

__all__ = ["Dialler", "Established"]

REDIRECTS_MAX: Final = 3
"""Servers that disagree on the leader must not redirect a client for ever."""

SHORT_LIFE_SECONDS: Final = 1.0
"""A connection that the server ends sooner counts as a failed attempt; otherwise a server that
closes every connection would be dialled without backoff."""


class Established(NamedTuple):
    """A session that is ready for requests."""

    session: Conversation
    endpoint: Endpoint


class _Doubt:
    """The check whether a silent server speaks another protocol."""

    __slots__ = ("is_founded", "waiting")

    def __init__(self, waiting: anyio.CancelScope) -> None:
        self.waiting = waiting
        self.is_founded = False


class Dialler:
    """Connects to a server that answers, logs in, and follows the leader.

    Attributes:
        dials_count: attempts to connect.
        failures_count: attempts that failed.
        redirects_count: how often a leader was followed.
    """

    def __init__(self, options: ClientOptions, *, dial: Dial) -> None:
        """Take the endpoints and the waits from the options of a client."""
        self._options = options
        self._dial = dial
        self._backoff = options.reconnect.backoff
        self._last: Endpoint | None = None
        self._failed_rounds = 0
        self._established_at = -math.inf
        self._not_before = -math.inf
        self.dials_count = 0
        self.failures_count = 0
        self.redirects_count = 0

    def note_end(self, *, by_peer: bool) -> None:
        """Count a short-lived session as a failed attempt, and start the cool-down."""
        if anyio.current_time() - self._established_at >= SHORT_LIFE_SECONDS:
            self._failed_rounds = 0
        elif by_peer:
            self._defer()
        cool_down = to_seconds(self._options.reconnect.reestablish_after)
        self._not_before = max(self._not_before, self._established_at + cool_down)

    def prefer(self, endpoint: Endpoint) -> None:
        """Try this endpoint first in the next round."""
        self._last = endpoint

    def hurry(self) -> None:
        """Skip the backoff, because the user has called ``connect``."""
        self._not_before = -math.inf

    async def establish(
        self, login: Command[Any] | None, *, retries: int | None, seconds_max: float
    ) -> Established:
        """Try all endpoints, round after round, until one accepts the session.

        Args:
            login: the command to log in with, if any.
            retries: how many rounds follow the first; None means without end.
            seconds_max: no round begins later than that.

        Raises:
            ConnectionFailedError: no endpoint accepts a session.
            IggyError: a server refuses the login, or no error is retriable.
        """
        begun_at = anyio.current_time()
        rounds = 0
        while True:
            await anyio.sleep_until(max(self._not_before, anyio.current_time()))
            found = await self._try_all(login)
            if isinstance(found, Established):
                self._last = found.endpoint
                self._established_at = anyio.current_time()
                return found
            self._defer()
            rounds += 1
            is_late = self._not_before - begun_at > seconds_max
            if is_late or (retries is not None and rounds > retries) or _is_final(found):
                raise self._defeat(found)

    def _defer(self) -> None:
        """Delay the next round, longer after each failed one."""
        delay = self._backoff.delay(self._failed_rounds, random.random)
        self._failed_rounds += 1
        self._not_before = anyio.current_time() + delay

    async def _try_all(self, login: Command[Any] | None) -> Established | list[IggyError]:
        errors: list[IggyError] = []
        for endpoint in self._candidates():
            try:
                return await self._try(endpoint, login)
            except (ConnectionFailedError, ProtocolError) as error:
                errors.append(error)
            except IggyError as error:
                if not error.retriable:
                    raise
                errors.append(error)
        return errors

    def _candidates(self) -> list[Endpoint]:
        """List the endpoints to try, the last one first: it may be a leader outside the options."""
        configured = self._options.endpoints
        if self._last is None:
            return list(configured)
        return [self._last, *(endpoint for endpoint in configured if endpoint != self._last)]

    async def _try(self, endpoint: Endpoint, login: Command[Any] | None) -> Established:
        established = await self._enter(endpoint, login)
        if login is None:
            return established
        return await self._follow_leader(established, login)

    async def _enter(self, endpoint: Endpoint, login: Command[Any] | None) -> Established:
        """Connect to one endpoint and log in, all of it within ``connect_timeout``."""
        self.dials_count += 1
        deadline = anyio.current_time() + self._options.connect_timeout
        try:
            session = await open_conversation(endpoint, self._options, dial=self._dial)
            with _aborting(session):
                if login is not None:
                    await self._log_in(session, endpoint, login, deadline)
        except BaseException:
            self.failures_count += 1
            raise
        return Established(session, endpoint)

    async def _log_in(
        self, session: Conversation, endpoint: Endpoint, login: Command[Any], deadline: float
    ) -> None:
        """Log in; if no reply comes, check whether the server speaks another protocol."""
        if self._options.transport not in PROBED_TRANSPORTS:
            await session.request(login, timeout=deadline - anyio.current_time())
            return
        failure: IggyError | None = None
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as waiting:
                doubt = _Doubt(waiting)
                tasks.start_soon(self._doubt, endpoint, doubt)
                try:
                    await session.request(login, timeout=deadline - anyio.current_time())
                except IggyError as error:
                    failure = error
            tasks.cancel_scope.cancel()
        if isinstance(failure, DisconnectedError):
            # A server that closes on a login may not have understood it.
            await self._ask_protocol(endpoint, doubt)
        if doubt.is_founded:
            raise incompatible(endpoint) from failure
        if failure is not None:
            raise failure

    async def _doubt(self, endpoint: Endpoint, doubt: _Doubt) -> None:
        """Probe the protocol of a silent server, and cancel the login if it is another one."""
        await anyio.sleep(SILENCE_SECONDS)
        await self._ask_protocol(endpoint, doubt)
        if doubt.is_founded:
            doubt.waiting.cancel()

    async def _ask_protocol(self, endpoint: Endpoint, doubt: _Doubt) -> None:
        doubt.is_founded = await speaks_other_protocol(endpoint, self._options, dial=self._dial)

    async def _follow_leader(self, established: Established, login: Command[Any]) -> Established:
        """Move to the leader of the cluster; stay where it is unknown or out of reach."""
        for _ in range(REDIRECTS_MAX):
            session, endpoint = established
            with _aborting(session):
                leader = await find_leader(session, endpoint, self._options)
                if leader is None:
                    break
                try:
                    established = await self._enter(leader, login)
                except IggyError:
                    break
            self.redirects_count += 1
            session.abort(DisconnectedError("the client moved to the leader of the cluster"))
        return established

    def _defeat(self, errors: Sequence[IggyError]) -> IggyError:
        """Make one error of the errors of all endpoints."""
        last = errors[-1]
        if len(errors) == 1:
            return last
        reasons = "; ".join(error.message for error in errors)
        defeat = ConnectionFailedError(
            f"none of {len(errors)} endpoints accepts a session: {reasons}"
        )
        defeat.__cause__ = last
        return defeat


def _is_final(errors: Sequence[IggyError]) -> bool:
    """Say whether no error is retriable, so that another round is useless."""
    return not any(error.retriable for error in errors)


@contextmanager
def _aborting(session: Conversation) -> Iterator[None]:
    """End a session that will not be used, if the block raises."""
    try:
        yield
    except BaseException:
        session.abort(DisconnectedError("the connection was closed before it was used"))
        raise
