"""Making a session: endpoints in order, backoff, and the leader."""

from __future__ import annotations

import copy
import logging
import math
import random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from iggy_sdk.connection_string import Endpoint
from iggy_sdk.durations import to_seconds
from iggy_sdk.errors import (
    ConnectionFailedError,
    DisconnectedError,
    IggyError,
    ProtocolError,
)
from iggy_sdk.log_events import ATTEMPT, REDIRECTED, log_event
from iggy_sdk.session.interface import Session
from iggy_sdk.session.leader import Cluster
from iggy_sdk.session.opening import SessionOpener, abort_on_error
from iggy_sdk.session.states import ClientEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iggy_protocol import Command
    from iggy_sdk.options import ClientOptions


_LOGGER: Final = logging.getLogger("iggy_sdk.session")

MOVED_TO_LEADER: Final = "the client moved to the leader of the cluster"
"""Why a connection ends to a server that is not the leader."""

ATTEMPTS_PER_WARNING: Final = 10
"""Every so many attempts one is logged as a warning, and so is the first."""

REDIRECTS_MAX: Final = 3
"""Servers that disagree on the leader must not redirect a client for ever."""

NODE_DIAL_SECONDS_MAX: Final = 2.0
"""How long a node may take to accept a connection where others can be tried."""

STABLE_AFTER_SECONDS: Final = 1.0
"""A connection that the server ends sooner counts as a failed attempt; otherwise a server that
closes every connection would be dialled without backoff."""


class EstablishedSession(NamedTuple):
    """A session that is ready for requests."""

    session: Session
    endpoint: Endpoint


class Connector:
    """Connects to a server that answers, logs in, and follows the leader.

    Attributes:
        opener: opens the sessions.
        cluster: the nodes, as far as they are known.
        dials_count: attempts to connect.
        failures_count: attempts that failed.
        redirects_count: how often a leader was followed.
        attempts_count: rounds over all endpoints for the present or the last connection.
        last_reason: why the last of them failed; empty if none has.
        report: called with each step of an attempt.
    """

    def __init__(self, options: ClientOptions, *, opener: SessionOpener) -> None:
        """Take the endpoints and the waits from the options of a client."""
        self.report: Callable[[ClientEvent], None] = _ignore_event
        self.opener = opener
        self.cluster: Cluster = Cluster(options)
        self._options = options
        self._backoff = options.reconnect.backoff
        self._last: Endpoint | None = None
        self._failed_rounds = 0
        self._established_at = -math.inf
        self._not_before = -math.inf
        self.dials_count: int = 0
        self.failures_count: int = 0
        self.redirects_count: int = 0
        self.attempts_count: int = 0
        self.last_reason = ""
        self._are_attempts_over = False

    def on_session_end(self, *, by_peer: bool) -> None:
        """Count a short-lived session as a failed attempt, and start the cool-down."""
        if anyio.current_time() - self._established_at >= STABLE_AFTER_SECONDS:
            self._failed_rounds = 0
        elif by_peer:
            self._schedule_retry()
        cool_down = to_seconds(self._options.reconnect.reestablish_after)
        self._not_before = max(self._not_before, self._established_at + cool_down)

    def prefer(self, endpoint: Endpoint) -> None:
        """Try this endpoint, that of the leader, first in the next round."""
        if self._last is not None:
            self._log_redirect(self._last, endpoint)
        self._last = endpoint

    def _log_redirect(self, endpoint: Endpoint, leader: Endpoint) -> None:
        log_event(
            *(_LOGGER, logging.INFO, REDIRECTED),
            *("%s is not the leader of the cluster, the client moves to %s", endpoint, leader),
            endpoint=str(endpoint),
            leader=str(leader),
        )

    def skip_backoff(self) -> None:
        """Skip the backoff, because the user has called ``connect``."""
        self._not_before = -math.inf

    async def establish(
        self, login: Command[Any] | None, *, retries: int | None, seconds_max: float
    ) -> EstablishedSession:
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
            self.report(ClientEvent.BACK_OFF)
            await anyio.sleep_until(max(self._not_before, anyio.current_time()))
            self._begin_attempt()
            found = await self._try_endpoints(login)
            if isinstance(found, EstablishedSession):
                self._last = found.endpoint
                self._established_at = anyio.current_time()
                self._are_attempts_over = True
                return found
            self._schedule_retry()
            rounds += 1
            error = self._connect_error(found)
            self.last_reason = error.message
            is_late = self._not_before - begun_at > seconds_max
            if is_late or (retries is not None and rounds > retries) or _is_final(found):
                raise error
            self._log_attempt()

    def _begin_attempt(self) -> None:
        if self._are_attempts_over:
            self._are_attempts_over, self.attempts_count, self.last_reason = False, 0, ""
        self.attempts_count += 1

    def _log_attempt(self) -> None:
        """Log a round that failed, and when the next one begins."""
        attempt, delay_s = self.attempts_count, self._not_before - anyio.current_time()
        is_loud = attempt == 1 or attempt % ATTEMPTS_PER_WARNING == 0
        log_event(
            *(_LOGGER, logging.WARNING if is_loud else logging.DEBUG, ATTEMPT),
            *("attempt %d to connect failed, the next one follows in %.3g s: %s", attempt),
            *(delay_s, self.last_reason),
            attempt=attempt,
            delay_s=delay_s,
            reason=self.last_reason,
        )

    def _schedule_retry(self) -> None:
        """Delay the next round, longer after each failed one."""
        delay = self._backoff.delay(self._failed_rounds, random.random)
        self._failed_rounds += 1
        self._not_before = anyio.current_time() + delay

    async def _try_endpoints(
        self, login: Command[Any] | None
    ) -> EstablishedSession | list[IggyError]:
        errors: list[IggyError] = []
        for endpoint in self._candidates():
            try:
                return await self._connect_to(endpoint, login)
            except (ConnectionFailedError, ProtocolError) as error:
                errors.append(error)
            except IggyError as error:
                if not error.retriable:
                    raise
                errors.append(error)
        return errors

    def _candidates(self) -> list[Endpoint]:
        """List the endpoints to try: the last one, those of the options, those of the cluster."""
        last = () if self._last is None else (self._last,)
        return list(dict.fromkeys((*last, *self._options.endpoints, *self.cluster.endpoints)))

    async def _connect_to(
        self, endpoint: Endpoint, login: Command[Any] | None
    ) -> EstablishedSession:
        established = await self._open_and_log_in(endpoint, login)
        if login is None:
            return established
        return await self._follow_leader(established, login)

    async def _open_and_log_in(
        self, endpoint: Endpoint, login: Command[Any] | None
    ) -> EstablishedSession:
        """Connect to one endpoint and log in, all of it within ``connect_timeout``."""
        self.dials_count += 1
        dial_seconds = NODE_DIAL_SECONDS_MAX if self.cluster.is_known else math.inf
        try:
            session = await self.opener.open(
                endpoint, login, report=self.report, dial_seconds_max=dial_seconds
            )
        except BaseException:
            self.failures_count += 1
            raise
        return EstablishedSession(session, endpoint)

    async def _follow_leader(
        self, established: EstablishedSession, login: Command[Any]
    ) -> EstablishedSession:
        """Move to the leader of the cluster; stay where it is unknown or out of reach."""
        for _ in range(REDIRECTS_MAX):
            session, endpoint = established
            with abort_on_error(session):
                leader = await self.cluster.find_leader(session, endpoint)
                if leader is None:
                    break
                try:
                    established = await self._open_and_log_in(leader, login)
                except IggyError:
                    break
            self.redirects_count += 1
            self._log_redirect(endpoint, established.endpoint)
            session.abort(DisconnectedError(MOVED_TO_LEADER))
        return established

    def _connect_error(self, errors: Sequence[IggyError]) -> IggyError:
        """Make one error of the errors of all endpoints."""
        last = errors[-1]
        if len(errors) == 1:
            return last
        reasons = "; ".join(error.message for error in errors)
        text = f"none of {len(errors)} endpoints accepts a session: {reasons}"
        if {type(error) for error in errors} != {type(last)}:
            failure: IggyError = ConnectionFailedError(text)
        else:
            failure = copy.copy(last)
            failure.message, failure.args = text, (text,)
        failure.__cause__ = last
        return failure


def _ignore_event(event: ClientEvent) -> None:
    """Do nothing, for a connector whose steps no client follows."""


def _is_final(errors: Sequence[IggyError]) -> bool:
    """Say whether no error is retriable, so that another round is useless."""
    return not any(error.retriable for error in errors)
