"""The connection that is made again when it is lost, without the requests that it carries.

Whoever finds the connection lost makes another one under one lock, and all others wait for it, so
that a thousand callers dial once. ``run`` is the background part: it supervises the session,
reconnects as soon as it is lost, and sends heartbeats.
"""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from iggy_protocol import CLASSIC, Command, Dialect
from iggy_sdk.durations import spell_seconds
from iggy_sdk.errors import (
    ClientClosedError,
    ConfigurationError,
    ConnectionFailedError,
    IggyError,
)
from iggy_sdk.event_loop import event_loop_clock
from iggy_sdk.hooks import Hooks
from iggy_sdk.log_events import BACK, CONNECTED, GAVE_UP, LOST, log_event
from iggy_sdk.session.connector import MOVED_TO_LEADER, Connector
from iggy_sdk.session.detection import ServerDialects
from iggy_sdk.session.heartbeat import HeartbeatTask
from iggy_sdk.session.opening import SessionOpener
from iggy_sdk.session.states import (
    CLIENT_TRANSITIONS,
    ClientEvent,
    ClientState,
    next_state,
    with_state,
)
from iggy_sdk.session.vsr_session import VsrSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskStatus

    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.options import ClientOptions
    from iggy_sdk.session.interface import Session
    from iggy_sdk.transport import Dial


_LOGGER: Final = logging.getLogger("iggy_sdk.session")

LOGGED_IN_ANEW: Final = "the client logs in anew"
"""Why a connection ends when the client logs in as somebody else."""

READY: Final = ClientState.READY
"""A global of its own, because every request compares with it."""


class SupervisedConnection:
    """One connection to the server that is made again after a loss."""

    def __init__(
        self,
        options: ClientOptions,
        *,
        dial: Dial,
        dialects: ServerDialects | None = None,
        login: Command[Any] | None = None,
    ) -> None:
        """Take the options of a client, and what a sibling knows of servers; no I/O yet."""
        self._options = options
        self.dialects: ServerDialects = (
            ServerDialects(options.protocol) if dialects is None else dialects
        )
        self._opener = SessionOpener(options, dial=dial, dialects=self.dialects)
        self._connector = Connector(options, opener=self._opener)
        self._hooks = Hooks(options.hooks)
        self._heartbeat = HeartbeatTask(
            lambda: self._session,
            interval=options.heartbeat_interval,
            timeout=options.request_timeout,
        )
        self._login = login
        self._session: Session | None = None
        self._clock: Callable[[], float] = anyio.current_time
        self._endpoint: Endpoint | None = None
        self._epoch = 0
        self._session_epoch = 0
        self._connecting = anyio.Lock()
        self._connect_scope: anyio.CancelScope | None = None
        self._connects_count = 0
        self._last_connect_error: IggyError | None = None
        self._state = ClientState.IDLE
        self._change = anyio.Event()
        self._is_running = False
        self._disconnects_count = 0
        self._lost_at: float | None = None

    @property
    def epoch(self) -> int:
        """The number of the present connection; 0 before the first."""
        return self._epoch

    @property
    def session_epoch(self) -> int:
        """The number of the connection that began the present session at the server.

        From 0.10 on a session outlives its connections, and with it memberships in groups.
        """
        return self._session_epoch

    @property
    def dialect(self) -> Dialect:
        """What the server of the present or last connection speaks."""
        return CLASSIC if self._session is None else self._session.dialect

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

    # Connecting

    async def connect(self, timeout: float | None = None) -> None:
        """Connect and log in, unless that is done already.

        Without a number of retries it gives up after ``connect_timeout``, once all endpoints were
        tried.

        Args:
            timeout: seconds for all of it; None bounds each attempt alone.

        Raises:
            ConnectionFailedError: no server can be reached, or not in time.
            AuthenticationError: a server refuses the login.
            ClientClosedError: the client was closed.
        """
        self._check_open()
        if self._state is ClientState.IDLE:
            self._advance(ClientEvent.CONNECT)
        self._connector.skip_backoff()
        seconds_max = math.inf
        if self._options.reconnect.retries is None:
            seconds_max = self._options.connect_timeout
        with anyio.move_on_after(timeout):
            await self._connect(retries=self._retries(), seconds_max=seconds_max)
            return
        reason = self._connector.last_reason
        text = f"there was no connection within {spell_seconds(timeout or 0.0)}"
        raise ConnectionFailedError(f"{text}: {reason}" if reason else text)

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
        if not (isinstance(session, VsrSession) and session.is_resumed):
            self._session_epoch = self._epoch
            if self._epoch > 1:
                # The server has begun anew, and may be another one.
                self.dialects.forget_classic(endpoint)
        self._clock = event_loop_clock()
        self._log_connection(session)
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
            self._log_loss(session, failure)
        if not is_ours:
            self._disconnects_count += 1
            self._connector.on_session_end(by_peer=session.is_ended_by_peer)
        self._notify_change()
        self._hooks.on_disconnect(session.peer, None if is_ours else failure)

    def _log_connection(self, session: Session) -> None:
        """Log that there is a connection; it closes the gap if one was lost before."""
        where: dict[str, object] = {"endpoint": session.peer, "dialect": str(session.dialect)}
        if self._lost_at is None:
            log_event(
                *(_LOGGER, logging.INFO, CONNECTED, "connected to %s, which speaks %s"),
                *where.values(),
                **where,
            )
            return
        seconds, self._lost_at = self._clock() - self._lost_at, None
        log_event(
            *(_LOGGER, logging.INFO, BACK, "connected to %s again after %.3g s"),
            *(session.peer, seconds),
            **where,
            seconds=seconds,
            attempt=self._connector.attempts_count,
        )

    def _log_loss(self, session: Session, failure: IggyError | None) -> None:
        """Log that the connection has ended, unless the client itself is closing it."""
        self._lost_at = self._clock()
        reason = "" if failure is None else failure.message
        is_wanted = reason in (MOVED_TO_LEADER, LOGGED_IN_ANEW)
        log_event(
            *(_LOGGER, logging.INFO if is_wanted else logging.WARNING, LOST),
            *("the connection to %s has ended: %s", session.peer, reason),
            endpoint=session.peer,
            reason=reason,
        )

    def _notify_change(self) -> None:
        """Wake the supervisor, because the state has changed."""
        self._change.set()
        self._change = anyio.Event()

    def _check_open(self) -> None:
        if self._state is ClientState.CLOSED:
            raise ClientClosedError(with_state("the client was closed", self._state))

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
                    log_event(
                        *(_LOGGER, logging.WARNING, GAVE_UP),
                        *("reconnecting failed, the next request tries again: %s", error),
                        reason=error.message,
                    )
                    await change.wait()
            else:
                await change.wait()

    async def disconnect(self, timeout: float | None = None) -> None:
        """Close the connection; ``connect`` opens another one."""
        self._advance(ClientEvent.DISCONNECT)
        await self._close_session(timeout)

    async def aclose(self, timeout: float | None = None) -> None:
        """Close for good; pending requests may finish within ``close_timeout``."""
        self._advance(ClientEvent.CLOSE)
        await self._close_session(timeout)
        self._notify_change()

    def abort(self) -> None:
        """Close for good and at once; pending requests fail."""
        self._advance(ClientEvent.CLOSE)
        if self._connect_scope is not None:
            self._connect_scope.cancel()
        if self._session is not None:
            self._session.abort(ClientClosedError())
        self._notify_change()

    async def _close_session(self, timeout: float | None) -> None:
        if self._connect_scope is not None:
            self._connect_scope.cancel()
        if self._session is not None:
            await self._session.aclose(timeout)
