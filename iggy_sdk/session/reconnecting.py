"""The session that reconnects: it logs in again, and repeats requests that may be repeated.

A request that finds the connection lost reconnects under one lock, and all others wait for it, so
that a thousand callers dial once. ``run`` is the background part: it supervises the session,
reconnects as soon as it is lost, and sends heartbeats. Without it requests work the same, but
nothing happens between two of them.
"""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from iggy_protocol import (
    Command,
    LoginUser,
    LoginWithPersonalAccessToken,
    LogoutUser,
    Ping,
    StatusCode,
)
from iggy_sdk.connection_string import Credentials, Endpoint, PasswordLogin
from iggy_sdk.durations import Seconds, to_seconds
from iggy_sdk.errors import (
    ClientClosedError,
    ConfigurationError,
    DisconnectedError,
    IggyError,
    RequestTimeoutError,
    describe_command,
)
from iggy_sdk.event_loop import event_loop_clock
from iggy_sdk.hooks import Hooks
from iggy_sdk.session.connector import Connector, find_leader
from iggy_sdk.session.pending_requests import is_repeatable
from iggy_sdk.session.states import (
    CLIENT_TRANSITIONS,
    ClientEvent,
    ClientState,
    next_state,
    with_state,
)
from iggy_sdk.statistics import ClientStatistics
from iggy_sdk.transport import Dial, open_transport

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskStatus

    from iggy_sdk.options import ClientOptions
    from iggy_sdk.session.interface import Session


R = TypeVar("R")

_LOGGER: Final = logging.getLogger("iggy_sdk.session.reconnecting")

READY: Final = ClientState.READY
"""A global of its own, because every request compares with it."""

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


class ReconnectingSession:
    """One connection to the server that is made again after a loss."""

    def __init__(self, options: ClientOptions, *, dial: Dial = open_transport) -> None:
        """Take the options of a client; no I/O yet."""
        self._options = options
        self._connector = Connector(options, dial=dial)
        self._hooks = Hooks(options.hooks)
        self._heartbeat = HeartbeatTask(
            lambda: self._session,
            interval=options.heartbeat_interval,
            timeout=options.request_timeout,
        )
        self._login: Command[Any] | None = None
        if options.credentials is not None:
            self._login = login_command(options.credentials)
        self._session: Session | None = None
        self._clock: Callable[[], float] = anyio.current_time
        self._endpoint: Endpoint | None = None
        self._epoch = 0
        self._connecting = anyio.Lock()
        self._connect_scope: anyio.CancelScope | None = None
        self._connects_count = 0
        self._last_connect_error: IggyError | None = None
        self._state = ClientState.IDLE
        self._change = anyio.Event()
        self._is_running = False
        self._disconnects_count = 0
        self._resends_count = 0

    @property
    def epoch(self) -> int:
        """The number of the present connection; 0 before the first."""
        return self._epoch

    @property
    def endpoint(self) -> Endpoint | None:
        """The endpoint of the present or last connection."""
        return self._endpoint

    @property
    def login(self) -> Command[Any] | None:
        """The login command that is sent on every new connection, if any."""
        return self._login

    @login.setter
    def login(self, command: Command[Any] | None) -> None:
        self._login = command

    @property
    def is_connected(self) -> bool:
        """Whether there is a session that has not failed."""
        return self._session is not None and not self._session.is_closed

    @property
    def state(self) -> ClientState:
        """What the client does about its connection."""
        return self._state

    @property
    def is_closed(self) -> bool:
        """Whether it was closed by ``aclose``."""
        return self._state is ClientState.CLOSED

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

    # Connecting

    async def connect(self) -> None:
        """Connect and log in, unless that is done already.

        Without a number of retries it gives up after ``connect_timeout``, once all endpoints were
        tried.

        Raises:
            ConnectionFailedError: no server can be reached.
            AuthenticationError: a server refuses the login.
            ClientClosedError: the client was closed.
        """
        self._check_open()
        if self._state is ClientState.IDLE:
            self._advance(ClientEvent.CONNECT)
        self._connector.skip_backoff()
        await self._connect(
            retries=self._retries(),
            seconds_max=self._options.connect_timeout
            if self._options.reconnect.retries is None
            else math.inf,
        )

    def _retries(self) -> int | None:
        reconnect = self._options.reconnect
        return reconnect.retries if reconnect.enabled else 0

    async def _connect(self, *, retries: int | None, seconds_max: float = math.inf) -> Session:
        """Return an open session; the first caller makes it and all others wait for that."""
        connects_count = self._connects_count
        async with self._connecting:
            self._check_open()
            if self._session is not None and self._state is READY:
                return self._session
            if self._state is ClientState.IDLE:
                text = "the client was disconnected meanwhile"
                raise ClientClosedError(with_state(text, self._state))
            if connects_count != self._connects_count and self._last_connect_error is not None:
                raise self._last_connect_error.with_traceback(None)
            return await self._dial(retries=retries, seconds_max=seconds_max)

    async def _dial(self, *, retries: int | None, seconds_max: float) -> Session:
        """Make a session, unless the client is disconnected or closed meanwhile."""
        self._connect_scope = scope = anyio.CancelScope()
        self._connector.report = partial(self._on_attempt, scope)
        with scope:
            try:
                session, endpoint = await self._connector.establish(
                    self._login, retries=retries, seconds_max=seconds_max
                )
            except BaseException as failed:
                self._on_attempt(scope, ClientEvent.GIVE_UP)
                if isinstance(failed, IggyError):
                    self._connects_count += 1
                    self._last_connect_error = failed
                raise
            if not scope.cancel_called:
                self._connects_count += 1
                self._last_connect_error = None
                self._install_session(session, endpoint)
                return session
            # The last reply had come before the cancellation, which found no place to act.
            session.abort(ClientClosedError())
        raise ClientClosedError(with_state("the client was closed", self._state))

    def _on_attempt(self, scope: anyio.CancelScope, event: ClientEvent) -> None:
        """Follow the steps of an attempt, unless ``disconnect`` or ``aclose`` has cancelled it.

        A cancelled attempt may take a few steps more before it stops, and the state is no longer
        about it then.
        """
        if not scope.cancel_called:
            self._advance(event)

    def _advance(self, event: ClientEvent) -> None:
        self._state = next_state(CLIENT_TRANSITIONS, self._state, event)

    def _install_session(self, session: Session, endpoint: Endpoint) -> None:
        self._session, self._endpoint = session, endpoint
        self._advance(ClientEvent.ESTABLISHED)
        self._epoch += 1
        self._clock = event_loop_clock()
        session.on_end = partial(self._on_session_end, session)
        self._notify_change()
        self._hooks.on_connect(session.peer)
        if session.failure is not None:
            self._on_session_end(session)

    def _on_session_end(self, session: Session) -> None:
        failure = session.failure
        is_ours = isinstance(failure, ClientClosedError)
        # After ``disconnect`` a session may end late, beside the next one.
        if session is self._session and self._state is READY:
            self._advance(ClientEvent.SESSION_ENDED)
        if not is_ours:
            self._disconnects_count += 1
            self._connector.on_session_end(by_peer=session.is_ended_by_peer)
        self._notify_change()
        self._hooks.on_disconnect(session.peer, None if is_ours else failure)

    def _notify_change(self) -> None:
        """Wake the supervisor, because the state has changed."""
        self._change.set()
        self._change = anyio.Event()

    def _check_open(self) -> None:
        if self._state is ClientState.CLOSED:
            raise ClientClosedError(with_state("the client was closed", self._state))

    # Requests

    async def request(self, command: Command[R], *, timeout: Seconds | None = None) -> R:
        """Send a command and return the reply, over as many connections as that takes.

        Args:
            command: any command of the protocol.
            timeout: seconds for all of it; None takes ``request_timeout``.

        Raises:
            RequestTimeoutError: there was no reply in time.
            DisconnectedError: the connection broke and the command must not be repeated.
            ClientClosedError: the client was closed.
            IggyError: the error of the server.
        """
        seconds = self._options.request_timeout if timeout is None else to_seconds(timeout)
        if not self._hooks:
            return await self._request_with_retries(command, seconds)
        begun_at = anyio.current_time()
        self._hooks.before_request(command)
        try:
            reply = await self._request_with_retries(command, seconds)
        except BaseException as error:
            elapsed = anyio.current_time() - begun_at
            self._hooks.after_request(command, error=error, seconds=elapsed)
            raise
        elapsed = anyio.current_time() - begun_at
        self._hooks.after_request(command, reply=reply, seconds=elapsed)
        return reply

    async def _request_with_retries(self, command: Command[R], seconds: float) -> R:
        deadline = self._clock() + seconds
        repeats_count = 0
        while True:
            session = self._session
            if session is None or self._state is not READY:
                session = await self._live_session(command, deadline, seconds)
            try:
                reply = await session.request_until(command, seconds=seconds, deadline=deadline)
            except IggyError as error:
                repeats_count += 1
                is_first = repeats_count == 1
                if repeats_count > REPEATS_MAX or not self._may_repeat(
                    command, error, session, is_first=is_first
                ):
                    raise
                self._resends_count += 1
            else:
                if type(command) in _IDENTITY_COMMANDS:
                    await self._remember_login(command, session)
                return reply

    async def _live_session(
        self, command: Command[Any], deadline: float, seconds: float
    ) -> Session:
        """Wait for a connection, or make one, until the deadline of a request."""
        self._check_open()
        what = describe_command(command)
        if self._state is ClientState.IDLE:
            raise DisconnectedError(
                with_state(f"{what}: the client is not connected", self._state),
                code=StatusCode.NOT_CONNECTED,
                sent=False,
            )
        if not self._options.reconnect.enabled:
            raise DisconnectedError(
                with_state(f"{what}: the connection is lost", self._state),
                advice="Await connect(), or leave reconnecting switched on.",
                sent=False,
            )
        with anyio.CancelScope(deadline=deadline):
            return await self._connect(retries=self._retries())
        text = f"{what}: the connection did not come back within {seconds:g} s"
        raise RequestTimeoutError(with_state(text, self._state))

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
            self._login = None
            return
        self._login = command
        if self._endpoint is None or session.failure is not None:
            return
        try:
            leader = await find_leader(session, self._endpoint, self._options)
        except IggyError:
            return  # The login itself succeeded, and the next connection repeats it.
        if leader is not None and self._options.reconnect.enabled:
            self._connector.prefer(leader)
            session.abort(DisconnectedError("the client moved to the leader of the cluster"))
            await self.connect()

    # The background task

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Connect, then run the background task."""
        self.check_not_running()
        await self.connect()
        task_status.started()
        await self.host()

    def check_not_running(self) -> None:
        """Raise if the background task runs already.

        Raises:
            ConfigurationError: the client is entered or run a second time.
        """
        if self._is_running:
            raise ConfigurationError(
                "the client is running already",
                advice="Enter or run a client once, and share it; sibling() makes another one.",
            )

    async def host(self) -> None:
        """Supervise the connection and send heartbeats until the client is closed."""
        self.check_not_running()
        self._is_running = True
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._heartbeat.run)
                await self._supervise()
                tasks.cancel_scope.cancel()
        finally:
            self._is_running = False

    async def _supervise(self) -> None:
        """Run the session, and reconnect when it is lost."""
        while self._state is not ClientState.CLOSED:
            change = self._change
            session = self._session
            if session is not None and self._state is READY:
                await session.run()
            elif self._state is not ClientState.IDLE and self._options.reconnect.enabled:
                try:
                    await self._connect(retries=self._retries())
                except IggyError as error:
                    # The next request reports the error or reconnects.
                    _LOGGER.warning("reconnecting failed, the next request tries again: %s", error)
                    await change.wait()
            else:
                await change.wait()

    async def disconnect(self) -> None:
        """Close the connection; ``connect`` opens another one."""
        self._advance(ClientEvent.DISCONNECT)
        await self._close_session()

    async def aclose(self) -> None:
        """Close for good; pending requests may finish within ``close_timeout``."""
        self._advance(ClientEvent.CLOSE)
        await self._close_session()
        self._notify_change()

    async def _close_session(self) -> None:
        if self._connect_scope is not None:
            self._connect_scope.cancel()
        if self._session is not None:
            await self._session.aclose()


# Heartbeats: pings at an interval, so that the server does not evict the client.
#
# Servers count pings alone, so they are sent however busy the connection is. A failed ping has
# ended its session already, so it is only logged.


_HEARTBEAT_LOGGER: Final = logging.getLogger("iggy_sdk.session.reconnecting")


class HeartbeatTask:
    """Pings the current session.

    Attributes:
        pings_count: how many pings were sent.
    """

    def __init__(
        self, current_session: Callable[[], Session | None], *, interval: float, timeout: float
    ) -> None:
        """Take a function that returns the session, the interval, and the timeout of a ping."""
        self._current_session = current_session
        self._interval = interval
        self._timeout = timeout
        self.pings_count = 0

    async def run(self) -> None:
        """Ping until this is cancelled; an interval of 0 sends none."""
        if not self._interval:
            return
        while True:
            await anyio.sleep(self._interval)
            session = self._current_session()
            if session is not None and not session.is_closed:
                await self._ping(session)

    async def _ping(self, session: Session) -> None:
        self.pings_count += 1
        try:
            await session.request(Ping(), timeout=self._timeout)
        except IggyError as error:
            _HEARTBEAT_LOGGER.warning("the heartbeat to %s failed: %s", session.peer, error)
