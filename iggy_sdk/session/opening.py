"""Opening a session on one server: the transport, what the server speaks, and the login.

    known as 0.8       connect, log in
    known as later     connect, log in (Register) or go on with a session (BindSession)
    not known          connect, ask; then one of the two, for 0.8 on a second connection

A server from 0.9 on that does not speak the version of the login refuses it and tells which ones it
speaks. Then the client connects again and logs in with the newest of those.
"""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from iggy_protocol import (
    CLASSIC,
    Command,
    Credentials,
    Dialect,
    LoginUser,
    LoginWithPersonalAccessToken,
    PasswordCredentials,
    Ping,
    ProbeVerdict,
    RepeatAction,
    ResponseReceived,
    StatusCode,
    TokenCredentials,
    VsrClientSession,
    repeat_rule,
)
from iggy_sdk.connection_string import Endpoint
from iggy_sdk.errors import (
    ConfigurationError,
    DisconnectedError,
    EvictedError,
    IggyError,
    ProtocolError,
    RequestTimeoutError,
    error_for_status,
)
from iggy_sdk.options import Backoff, ClientOptions
from iggy_sdk.session.byte_stream import dial_within_timeout
from iggy_sdk.session.detection import (
    PROBE_SECONDS_MAX,
    ServerDialects,
    ask_classic,
    ask_framing,
    incompatible_server_error,
    version_refusal,
)
from iggy_sdk.session.interface import Session
from iggy_sdk.session.states import ClientEvent
from iggy_sdk.session.stream import StreamSession
from iggy_sdk.session.tls_mismatch import SUSPICIOUS, find_tls_mismatch
from iggy_sdk.session.vsr_session import VsrSession
from iggy_sdk.session.vsr_stream import VsrStreamSession

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_sdk.session.http import HttpSession
    from iggy_sdk.session.vsr_quic import ProbingQuicSession  # noqa: TC004  it needs aioquic
    from iggy_sdk.transport import Dial, StreamTransport


SDK_NAME: Final = "iggy-python"
SDK_VERSION: Final = "0.1.0"
"""The version of the distribution. Servers of 0.10 take 0.12 or later for another dialect."""

SILENT_LOGIN_SECONDS: Final = 2.0
"""How long a login of 0.8 may stay unanswered before the client asks whether the server speaks
another framing; healthy servers take milliseconds."""

REPEAT_BACKOFF: Final = Backoff(initial=0.05, maximum=1.0)
"""The pauses before a request is sent again that a server could not carry out yet."""


class SessionOpener:
    """Opens sessions for one client.

    Args:
        options: of the client; they name the transport.
        dial: opens a byte stream to a server; QUIC does not use it.
        dialects: what servers speak, as far as it is known.

    Attributes:
        identity: the session of the client that its next connection goes on with, from 0.10 on.
    """

    def __init__(self, options: ClientOptions, *, dial: Dial, dialects: ServerDialects) -> None:
        self.identity: VsrClientSession | None = None
        self._options = options
        self._dial_seconds_max = math.inf
        self._dial = dial
        self._dialects = dialects
        # Where it is known that client and server agree on TLS; a client has few endpoints.
        self._understood: set[Endpoint] = set()

    async def open(
        self,
        endpoint: Endpoint,
        login: Command[Any] | None,
        *,
        report: Callable[[ClientEvent], None],
        dial_seconds_max: float = math.inf,
    ) -> Session:
        """Connect to one endpoint and log in, all of it within ``connect_timeout``.

        Args:
            endpoint: where the server is.
            login: the login, in the form of 0.8, if any.
            report: called with each step.
            dial_seconds_max: how long connecting alone may take.

        Raises:
            ConnectionFailedError: no server answers at the endpoint, or the handshake failed.
            IncompatibleServerError: the server speaks nothing that this client may speak.
            ConfigurationError: the transport needs a library that is not installed.
            IggyError: the server refuses the login.
        """
        self._dial_seconds_max = dial_seconds_max
        try:
            session = await self._open_as_known(endpoint, login, report)
        except SUSPICIOUS as error:
            # Once is enough: the next attempts are about a server that is away.
            if endpoint in self._understood:
                raise
            mismatch = await find_tls_mismatch(endpoint, self._options, dial=self._dial)
            if mismatch is None:
                self._understood.add(endpoint)
                raise
            raise mismatch from error
        self._understood.add(endpoint)
        return session

    async def _open_as_known(
        self, endpoint: Endpoint, login: Command[Any] | None, report: Callable[[ClientEvent], None]
    ) -> Session:
        """Connect and log in, in the dialect that the server spoke before, if that is known."""
        deadline = anyio.current_time() + self._options.connect_timeout
        known = self._dialects.known(endpoint)
        try:
            return await self._open(endpoint, login, known, deadline, report)
        except (ProtocolError, RequestTimeoutError):
            if known is None or len(self._dialects.allowed) == 1:
                raise
            # The server may be another one by now.
            self._dialects.forget(endpoint)
            if anyio.current_time() >= deadline:
                raise
        return await self._open(endpoint, login, None, deadline, report)

    async def bind(self, endpoint: Endpoint, identity: VsrClientSession) -> VsrSession:
        """Connect to another node of the cluster, and bind the session of the client there.

        Raises:
            IggyError: the node cannot be reached, or does not know the session.
        """
        deadline = anyio.current_time() + self._options.connect_timeout
        session = await self._connect(endpoint, identity.dialect, deadline)
        with abort_on_error(session):
            assert isinstance(session, VsrSession), "the dialect was given"
            assert session.identity is identity, "all connections share one session"
            await repeat_until_answered(session, identity.bind(), deadline=deadline)
        return session

    async def _open(
        self,
        endpoint: Endpoint,
        login: Command[Any] | None,
        dialect: Dialect | None,
        deadline: float,
        report: Callable[[ClientEvent], None],
    ) -> Session:
        """Connect and log in, and again in another dialect while the server asks for one."""
        tried: set[Dialect] = set()
        while True:
            report(ClientEvent.DIAL)
            session = await self._connect(endpoint, dialect, deadline)
            with abort_on_error(session):
                if login is None:
                    return session
                report(ClientEvent.LOG_IN)
                try:
                    await self._log_in(session, endpoint, login, deadline)
                except EvictedError as error:
                    refusal = version_refusal(error)
                    if refusal is None:
                        raise error_for_status(error.code, command=login) from error
                    tried.add(session.dialect)
                    dialect = self._dialects.next_in_window(endpoint, refusal, tried)
                else:
                    self._dialects.remember(endpoint, session.dialect)
                    return session
            session.abort(DisconnectedError("the client connects again with another version"))

    # Connecting

    async def _connect(
        self, endpoint: Endpoint, dialect: Dialect | None, deadline: float
    ) -> Session:
        """Connect, and find out the dialect unless it is known."""
        options = self._options
        if options.transport == "http":
            return await _http_session_class().open(endpoint, options, dial=self._dial)
        if options.transport == "quic":
            return await self._connect_quic(endpoint, dialect)
        transport = await self._dial_by(endpoint, deadline)
        try:
            if dialect is None:
                dialect = await self._ask_dialect(endpoint, transport)
                if dialect is CLASSIC:
                    transport.abort()
                    transport = await self._dial_by(endpoint, deadline)
            if dialect is CLASSIC:
                return StreamSession(transport, options)
            return VsrStreamSession(transport, options, self._identity_for(dialect))
        except BaseException:
            transport.abort()
            raise

    async def _connect_quic(self, endpoint: Endpoint, dialect: Dialect | None) -> Session:
        """Connect over QUIC, where the first stream tells the dialect."""
        openers = _quic_openers()
        if dialect is None:
            asking = await openers.unknown(endpoint, self._dial_options)
            with abort_on_error(asking):
                dialect = self._dialect_of(endpoint, await asking.ask())
                identity = self._identity_for(dialect) if dialect.is_vsr else None
                session = asking.make_way(identity)
            if session is not None:
                return session
        if dialect is CLASSIC:
            return await openers.classic(endpoint, self._dial_options)
        return await openers.vsr(endpoint, self._dial_options, self._identity_for(dialect))

    async def _dial_by(self, endpoint: Endpoint, deadline: float) -> StreamTransport:
        return await dial_within_timeout(
            endpoint, self._dial_options, dial=self._dial, deadline=deadline
        )

    @property
    def _dial_options(self) -> ClientOptions:
        """The options for connecting alone."""
        if self._options.connect_timeout <= self._dial_seconds_max:
            return self._options
        return replace(self._options, connect_timeout=self._dial_seconds_max)

    async def _ask_dialect(self, endpoint: Endpoint, transport: StreamTransport) -> Dialect:
        """Return the newest dialect of the framing that the server speaks."""
        return self._dialect_of(endpoint, await ask_framing(transport))

    def _dialect_of(self, endpoint: Endpoint, verdict: ProbeVerdict | None) -> Dialect:
        if verdict is ProbeVerdict.NEITHER:
            raise ProtocolError(f"what answers at {endpoint} is no Iggy server")
        if verdict is None and CLASSIC not in self._dialects.allowed:
            raise DisconnectedError(f"{endpoint} does not answer the first request", sent=False)
        if verdict is ProbeVerdict.VSR and self.identity is not None:
            # Another node of the cluster, where the session goes on.
            return self.identity.dialect
        return self._dialects.newest(endpoint, is_vsr=verdict is ProbeVerdict.VSR)

    def _identity_for(self, dialect: Dialect) -> VsrClientSession:
        """Return the session to log in as; from 0.10 on all connections share one."""
        identity = self.identity
        if identity is None or identity.dialect is not dialect:
            # One of 0.9 belongs to its connection, so it is not kept.
            identity = VsrClientSession(
                dialect, os.urandom, sdk_name=SDK_NAME, sdk_version=SDK_VERSION
            )
            self.identity = identity if dialect.binds_sessions else None
        return identity

    # Logging in

    async def _log_in(
        self, session: Session, endpoint: Endpoint, login: Command[Any], deadline: float
    ) -> None:
        if isinstance(session, VsrSession):
            await begin_session(session, login, deadline=deadline)
        elif self._options.transport in ("tcp", "ws"):
            await self._log_in_classic(session, endpoint, login, deadline)
        else:
            await session.request(login, timeout=deadline - anyio.current_time())

    async def _log_in_classic(
        self, session: Session, endpoint: Endpoint, login: Command[Any], deadline: float
    ) -> None:
        """Log in as to 0.8; if no reply comes, check whether the server speaks another framing.

        Servers from 0.9 on wait for more bytes than a login of 0.8 has, so they never answer it.
        """
        failure: IggyError | None = None
        probe = FramingProbe(self, endpoint, deadline)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(probe.ask_if_silent)
            with probe.login_scope:
                try:
                    await session.request(login, timeout=deadline - anyio.current_time())
                except IggyError as error:
                    failure = error
            tasks.cancel_scope.cancel()
        if isinstance(failure, DisconnectedError):
            # A server that closes on a login may not have understood it.
            await probe.ask()
        if probe.is_vsr:
            raise incompatible_server_error(endpoint, "0.9 or later", (CLASSIC,)) from failure
        if failure is not None:
            raise failure

    async def ask_once(self, endpoint: Endpoint, deadline: float) -> ProbeVerdict | None:
        """Ask a server on a connection of its own which framing it speaks; None if it is silent."""
        try:
            transport = await self._dial_by(endpoint, deadline)
        except IggyError:
            return None
        try:
            return await ask_framing(transport)
        finally:
            transport.abort()

    async def speaks_classic(self, endpoint: Endpoint, deadline: float) -> bool:
        """Tell whether a server answers pings of 0.8 on a connection of its own."""
        try:
            return await self.answers_classic(endpoint, deadline) is True
        except IggyError:
            return False

    async def answers_classic(self, endpoint: Endpoint, deadline: float) -> bool | None:
        """Tell whether a server answers pings of 0.8 on a connection of its own; None for silence.

        Raises:
            IggyError: there is no connection to be had.
        """
        if self._options.transport == "quic":
            session = await _quic_openers().classic(endpoint, self._options)
            try:
                await session.request(Ping(), timeout=PROBE_SECONDS_MAX)
            except RequestTimeoutError:
                return None
            except IggyError:
                return False
            finally:
                session.abort(DisconnectedError("only a ping was asked", sent=False))
            return True
        transport = await self._dial_by(endpoint, deadline)
        try:
            return await ask_classic(transport)
        finally:
            transport.abort()


class FramingProbe:
    """The check whether a server that does not answer a login speaks another framing."""

    def __init__(self, opener: SessionOpener, endpoint: Endpoint, deadline: float) -> None:
        self.login_scope = anyio.CancelScope()
        self.is_vsr: bool = False
        self._opener = opener
        self._endpoint = endpoint
        self._deadline = deadline

    async def ask_if_silent(self) -> None:
        """Ask after a while, and cancel the login if the server cannot have understood it."""
        await anyio.sleep(SILENT_LOGIN_SECONDS)
        await self.ask()
        if self.is_vsr:
            self.login_scope.cancel()

    async def ask(self) -> None:
        """Ask now; a server that speaks both framings is slow and not another one."""
        verdict = await self._opener.ask_once(self._endpoint, self._deadline)
        if verdict is ProbeVerdict.VSR:
            self.is_vsr = not await self._opener.speaks_classic(self._endpoint, self._deadline)


@contextmanager
def abort_on_error(session: Session) -> Iterator[None]:
    """End a session that will not be used, if the block raises."""
    try:
        yield
    except BaseException:
        session.abort(DisconnectedError("the connection was closed before it was used"))
        raise


# Logging in to servers from 0.9 on.


async def begin_session(session: VsrSession, login: Command[Any], *, deadline: float) -> None:
    """Go on with the session of the client, or begin one.

    Raises:
        EvictedError: the server refuses.
        RequestTimeoutError: it did not answer in time.
    """
    identity = session.identity
    if identity.is_registered:
        try:
            await repeat_until_answered(session, identity.bind(), deadline=deadline)
        except EvictedError as error:
            if version_refusal(error) is None:
                identity.end()
            raise
        except IggyError as error:
            if error.code != StatusCode.UNAUTHENTICATED:
                raise
            # The server has forgotten the session, as after a restart; the connection is good.
        else:
            session.is_resumed = True
            return
    command = identity.register(credentials_of(login))
    await repeat_until_answered(session, command, deadline=deadline)


async def repeat_until_answered(
    session: VsrSession, command: Command[Any], *, deadline: float
) -> None:
    """Send a login, and the same bytes again while the server asks for patience."""
    request = session.prepare(command)
    for pause in REPEAT_BACKOFF.delays(_half):
        seconds = deadline - anyio.current_time()
        outcome = await session.exchange(request, seconds=seconds, deadline=deadline)
        if isinstance(outcome, ResponseReceived):
            return
        rule = repeat_rule(session.dialect, command.CODE, outcome.status)
        if rule.action is not RepeatAction.REPEAT:
            raise error_for_status(outcome.status, command=command)
        await anyio.sleep(pause)


def _half() -> float:
    """Return the number that makes no jitter: a login is repeated by one client at a time."""
    return 0.5


def credentials_of(login: Command[Any]) -> Credentials:
    """Return what a login of 0.8 says, as later servers want it."""
    if isinstance(login, LoginUser):
        return PasswordCredentials(login.username, login.password, login.context)
    assert isinstance(login, LoginWithPersonalAccessToken), f"{login!r} is no login"
    return TokenCredentials(login.token)


# Sessions whose library is an optional dependency.


def _http_session_class() -> type[HttpSession]:
    try:
        import iggy_sdk.session.http as http_package
    except ImportError as error:
        raise ConfigurationError(
            "iggy+http:// needs a library that is not installed: h11",
            advice="Run: pip install 'iggy-python[http]'",
        ) from error
    return http_package.HttpSession


class QuicOpeners(NamedTuple):
    """The ways to open a session over QUIC, by what is known of the server."""

    unknown: Callable[[Endpoint, ClientOptions], Awaitable[ProbingQuicSession]]
    classic: Callable[[Endpoint, ClientOptions], Awaitable[Session]]
    vsr: Callable[[Endpoint, ClientOptions, VsrClientSession], Awaitable[VsrSession]]


def _quic_openers() -> QuicOpeners:
    try:
        from iggy_sdk.session.quic import QuicSession
        from iggy_sdk.session.vsr_quic import open_unknown_quic, open_vsr_quic
    except ImportError as error:
        # A version of aioquic without what is needed of it comes with a sentence of its own.
        reason = f"cannot be used: {error}"
        if isinstance(error, ModuleNotFoundError):
            reason = "needs a library that is not installed: aioquic"
        raise ConfigurationError(
            f"iggy+quic:// {reason}", advice="Run: pip install 'iggy-python[quic]'"
        ) from error
    return QuicOpeners(open_unknown_quic, QuicSession.open, open_vsr_quic)
