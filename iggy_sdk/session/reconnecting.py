"""The session that reconnects: it logs in again, and repeats requests that may be repeated.

A request that finds the connection lost waits until there is another one, within its timeout.
Requests to servers of 0.8 are repeated here, and those to later servers by the ``repeater``.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio

from iggy_protocol import (
    Command,
    Identity,
    LoginUser,
    LoginWithPersonalAccessToken,
    LogoutUser,
    StatusCode,
)
from iggy_sdk.connection_string import Credentials, PasswordLogin, ServerProtocol
from iggy_sdk.deadline import Deadline
from iggy_sdk.durations import Seconds, spell_seconds, to_seconds
from iggy_sdk.errors import (
    ClientClosedError,
    DisconnectedError,
    IggyError,
    RequestTimeoutError,
    UnsupportedByServerError,
    describe_command,
)
from iggy_sdk.iggy_error import NOT_SENT, raise_truthfully
from iggy_sdk.session.classic_fallback import ClassicFallback
from iggy_sdk.session.connector import MOVED_TO_LEADER
from iggy_sdk.session.nodes import NodeSessions
from iggy_sdk.session.pending_requests import is_repeatable
from iggy_sdk.session.repeater import FramingChangedError, RequestRepeater
from iggy_sdk.session.states import ClientState, with_state
from iggy_sdk.session.supervised import LOGGED_IN_ANEW, READY, SupervisedConnection
from iggy_sdk.session.vsr_session import VsrSession
from iggy_sdk.statistics import ClientStatistics
from iggy_sdk.transport import Dial, open_transport

if TYPE_CHECKING:
    from iggy_protocol import PartitionContext
    from iggy_sdk.options import ClientOptions
    from iggy_sdk.session.detection import ServerDialects
    from iggy_sdk.session.interface import Session


R = TypeVar("R")

_LOGGER: Final = logging.getLogger("iggy_sdk.session")

REPEATS_MAX: Final = 3
"""A request that ends its connection every time must not be repeated for ever."""

_IDENTITY_COMMANDS: Final = frozenset({LoginUser, LoginWithPersonalAccessToken, LogoutUser})

# The server replies so before it carries out the request: a new login is needed first.
_RELOGIN_STATUSES: Final = frozenset({StatusCode.UNAUTHENTICATED, StatusCode.STALE_CLIENT})


def login_command(credentials: Credentials) -> LoginUser | LoginWithPersonalAccessToken:
    """Make the command that logs in with these credentials."""
    if isinstance(credentials, PasswordLogin):
        return LoginUser(credentials.username, credentials.password, context="iggy_sdk")
    return LoginWithPersonalAccessToken(credentials.token)


class ReconnectingSession(SupervisedConnection):
    """Requests over one connection to the server that is made again after a loss."""

    def __init__(
        self,
        options: ClientOptions,
        *,
        dial: Dial = open_transport,
        dialects: ServerDialects | None = None,
    ) -> None:
        """Take the options of a client, and what a sibling knows of servers; no I/O yet."""
        given = options.credentials
        login = None if given is None else login_command(given)
        super().__init__(options, dial=dial, dialects=dialects, login=login)
        self._repeater = RequestRepeater(self)
        self._nodes = NodeSessions(self._opener)
        self._classic: ClassicFallback | None = None
        if options.protocol is ServerProtocol.AUTO:
            self._classic = ClassicFallback(
                options,
                opener=self._opener,
                dialects=self.dialects,
                make=partial(ReconnectingSession, dial=dial),
            )
        self._resends_count = 0

    def statistics(self) -> ClientStatistics:
        """Return the counters."""
        return ClientStatistics(
            epoch=self._epoch,
            dials=self._connector.dials_count,
            dials_failed=self._connector.failures_count,
            redirects=self._connector.redirects_count,
            disconnects=self._disconnects_count,
            resends=self._resends_count,
            heartbeats=self._heartbeat.pings_count,
            hook_failures=self._hooks.failures_count,
            session=self._session.statistics() if self._session is not None else None,
        )

    async def host(self) -> None:
        """Supervise the connections and send heartbeats until the client is closed."""
        self.check_not_running()
        if self._classic is None:
            await super().host()
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._classic.host)
            await super().host()
            tasks.cancel_scope.cancel()

    async def _close_session(self, timeout: float | None) -> None:
        deadline = Deadline(self._options.close_timeout if timeout is None else timeout)
        try:
            await super()._close_session(deadline.seconds)
        finally:
            self._nodes.abort()
            if self._classic is not None:
                await self._classic.aclose(deadline.rest())

    # Requests

    async def request(
        self,
        command: Command[R],
        *,
        timeout: Seconds | None = None,
        context: PartitionContext | None = None,
    ) -> R:
        """Send a command and return the reply, over as many connections as that takes.

        Args:
            command: any command of the protocol.
            timeout: seconds for all of it; None takes ``request_timeout``.
            context: the state of the partition, if an earlier reply told it; servers of 0.10 refuse
                the request where it has changed.

        Raises:
            RequestTimeoutError: there was no reply in time.
            DisconnectedError: the connection broke and the command must not be repeated.
            ClientClosedError: the client was closed.
            IggyError: the error of the server.
        """
        seconds = self._options.request_timeout if timeout is None else to_seconds(timeout)
        if not self._hooks:
            return await self._request_with_retries(command, seconds, context)
        begun_at = anyio.current_time()
        self._hooks.before_request(command)
        try:
            reply = await self._request_with_retries(command, seconds, context)
        except BaseException as error:
            elapsed = anyio.current_time() - begun_at
            self._hooks.after_request(command, error=error, seconds=elapsed)
            raise
        elapsed = anyio.current_time() - begun_at
        self._hooks.after_request(command, reply=reply, seconds=elapsed)
        return reply

    async def answers_classic(self) -> bool:
        """Tell whether the server answers in the protocol of 0.8, alone or as well.

        Raises:
            IggyError: there is no connection to be had.
        """
        endpoint = self._endpoint
        if endpoint is None or not self.dialect.is_vsr:
            return endpoint is not None
        if self._classic is None or self.is_clustered:
            return False
        deadline = self._clock() + self._options.connect_timeout
        return await self._classic.is_spoken(endpoint, deadline)

    async def _request_with_retries(
        self, command: Command[R], seconds: float, context: PartitionContext | None
    ) -> R:
        deadline = self._clock() + seconds
        repeats_count = 0
        is_sent = False
        while True:
            session = self._session
            if session is None or self._state is not READY:
                session = await self._live_session(command, deadline, seconds, is_sent=is_sent)
            if session.dialect.is_vsr:
                try:
                    return await self._request_numbered(command, seconds, deadline, context)
                except FramingChangedError as error:
                    if error.sent:
                        raise
                    continue
            try:
                reply = await session.request_until(command, seconds=seconds, deadline=deadline)
            except IggyError as error:
                repeats_count += 1
                is_first = repeats_count == 1
                if repeats_count > REPEATS_MAX or not self._may_repeat(
                    command, error, session, is_first=is_first
                ):
                    raise_truthfully(error, is_sent=is_sent)
                is_sent |= error.sent is True
                self._resends_count += 1
            else:
                if type(command) in _IDENTITY_COMMANDS:
                    await self._remember_login(command, session)
                return reply

    async def _request_numbered(
        self,
        command: Command[R],
        seconds: float,
        deadline: float,
        context: PartitionContext | None,
    ) -> R:
        """Send a command to a server from 0.9 on, where a login begins a session."""
        if isinstance(command, LoginUser | LoginWithPersonalAccessToken):
            with anyio.CancelScope(deadline=deadline):
                identity: Any = await self._log_in_again(command)
                return cast("R", identity)
            raise RequestTimeoutError(
                f"{describe_command(command)}: not logged in within {spell_seconds(seconds)}",
                sent=True,
            )
        try:
            reply = await self._repeater.request(
                command, context=context, seconds=seconds, deadline=deadline
            )
        except UnsupportedByServerError as error:
            refusal = error
        else:
            if isinstance(command, LogoutUser):
                self._replace_login(None)
            return reply
        return await self._request_classic(command, refusal, seconds, deadline)

    async def _request_classic(
        self,
        command: Command[R],
        refusal: UnsupportedByServerError,
        seconds: float,
        deadline: float,
    ) -> R:
        """Send what the dialect lacks in the protocol of 0.8, if the client may speak that."""
        endpoint = self._endpoint
        if self._classic is None or endpoint is None:
            raise refusal
        if not self._classic.takes(command, self.dialect):
            raise refusal
        try:
            reply = await self._classic.request(
                command,
                refusal,
                endpoint=endpoint,
                login=self._login,
                seconds=seconds,
                deadline=deadline,
            )
        except ClientClosedError as error:
            self._check_open()
            text = f"{describe_command(command)}: the login of the client ended meanwhile"
            raise DisconnectedError(text) from error
        # A purge makes partitions anew, and no reply of this session tells that.
        self._repeater.planner.clear()
        return reply

    def _replace_login(self, login: Command[Any] | None) -> None:
        """Take another login, or none; no connection with the one before outlives this."""
        self._login = login
        self._nodes.abort()
        if self._classic is not None:
            self._classic.abort()

    async def _log_in_again(self, login: Command[Identity]) -> Identity:
        """End the session, if there is one, and begin one with another login."""
        session = self._session
        if isinstance(session, VsrSession) and session.is_bound:
            await session.request(LogoutUser(), timeout=self._options.request_timeout)
        before = self._login
        self._replace_login(login)
        if session is not None:
            session.abort(DisconnectedError(LOGGED_IN_ANEW))
        try:
            await self.connect()
        except BaseException:
            self._replace_login(before)
            raise
        assert isinstance(self._session, VsrSession), "the server has changed meanwhile"
        return Identity(self._session.identity.user_id or 0)

    async def _live_session(
        self, command: Command[Any], deadline: float, seconds: float, *, is_sent: bool = False
    ) -> Session:
        """Wait for a connection, or make one, until the deadline of a request."""
        try:
            return await self._connect_by(command, deadline, seconds)
        except IggyError as error:
            raise_truthfully(error, is_sent=is_sent)

    async def _connect_by(self, command: Command[Any], deadline: float, seconds: float) -> Session:
        self._check_open()
        what = describe_command(command)
        if self._state is ClientState.IDLE:
            raise DisconnectedError(
                f"{with_state(f'{what}: the client is not connected', self._state)}; {NOT_SENT}",
                code=StatusCode.NOT_CONNECTED,
                sent=False,
            )
        if not self._options.reconnect.enabled:
            raise DisconnectedError(
                f"{with_state(f'{what}: the connection is lost', self._state)}; {NOT_SENT}",
                advice="Await connect(), or leave reconnecting switched on.",
                sent=False,
            )
        with anyio.CancelScope(deadline=deadline):
            return await self._connect(retries=self._retries())
        text = f"{what}: the connection did not come back within {spell_seconds(seconds)}"
        reason = self._connector.last_reason
        text = with_state(f"{text}: {reason}" if reason else text, self._state)
        raise RequestTimeoutError(text, sent=False)

    def _may_repeat(
        self, command: Command[Any], error: IggyError, session: Session, *, is_first: bool
    ) -> bool:
        """Say whether a failed request is sent again; ends a session without a valid login."""
        if self._state is ClientState.CLOSED:
            return False
        if error.code in _RELOGIN_STATUSES:
            if self._login is None or type(command) in _IDENTITY_COMMANDS:
                return False
            forgotten = DisconnectedError(f"{session.peer} no longer knows this client")
            session.abort(forgotten, by_peer=True)
            return is_first and self._options.reconnect.enabled
        if not isinstance(error, DisconnectedError) or session.failure is None:
            return False
        if not self._options.reconnect.enabled:
            return False
        return not error.sent or is_repeatable(command)

    async def _remember_login(self, command: Command[Any], session: Session) -> None:
        """Remember a login for the next connection, and move to the leader as after any login."""
        if isinstance(command, LogoutUser):
            self._replace_login(None)
            return
        self._replace_login(command)
        if self._endpoint is None or session.failure is not None:
            return
        try:
            leader = await self._connector.cluster.find_leader(session, self._endpoint)
        except IggyError:
            return  # The login itself succeeded, and the next connection repeats it.
        if leader is not None and self._options.reconnect.enabled:
            self._connector.prefer(leader)
            session.abort(DisconnectedError(MOVED_TO_LEADER))
            await self.connect()

    # What a request to a server from 0.9 on needs of the connections

    async def session_for(
        self, command: Command[Any], *, seconds: float, deadline: float
    ) -> Session:
        """Return an open session, within the deadline of a request."""
        session = self._session
        if session is None or self._state is not READY:
            session = await self._live_session(command, deadline, seconds)
        return session

    @property
    def is_clustered(self) -> bool:
        """Whether the server is one of several nodes."""
        return self._connector.cluster.is_known

    async def session_at(
        self, replica_id: int, session: VsrSession, *, deadline: float
    ) -> VsrSession:
        """Return the session of the client on the node that serves a partition.

        The present one is returned where that node is the same, or cannot be reached.
        """
        if session is not self._session or self._endpoint is None:
            return session
        node = self._connector.cluster.find_node(replica_id, self._endpoint)
        if node is None:
            return session
        with anyio.CancelScope(deadline=deadline):
            try:
                return await self._nodes.session_at(node, session.identity)
            except IggyError as error:
                _LOGGER.warning("the node at %s cannot be used: %s", node, error)
        return session

    async def follow_leader(self, session: Session) -> None:
        """Move to another node if the cluster has another leader now."""
        if session is not self._session or self._endpoint is None or session.is_closed:
            return
        try:
            leader = await self._connector.cluster.find_leader(session, self._endpoint)
        except IggyError:
            return
        if leader is not None and self._options.reconnect.enabled:
            self._connector.prefer(leader)
            session.abort(DisconnectedError(MOVED_TO_LEADER))

    async def begin_again(self, session: Session) -> bool:
        """End a session whose login the server no longer knows; say whether to try another one."""
        if self._login is None or not self._options.reconnect.enabled:
            return False
        if isinstance(session, VsrSession):
            session.identity.end()
        session.abort(DisconnectedError(f"{session.peer} no longer knows this client"))
        return True

    def may_reconnect(self) -> bool:
        """Say whether a lost connection is made again for a request."""
        return self._options.reconnect.enabled and self._state is not ClientState.CLOSED

    def count_resend(self) -> None:
        """Count a request that is sent again."""
        self._resends_count += 1
