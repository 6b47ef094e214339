"""Making a session: endpoints in order, backoff, the transport, the login, and the leader."""

from __future__ import annotations

import math
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

import anyio

from iggy_protocol import (
    VSR_HEAD_BYTES,
    ClusterMetadata,
    ClusterNode,
    Command,
    GetClusterMetadata,
    NodeRole,
    NodeStatus,
    is_vsr_answer,
    vsr_probe,
)
from iggy_sdk.connection_string import Endpoint, TransportName
from iggy_sdk.durations import to_seconds
from iggy_sdk.errors import (
    ConfigurationError,
    ConnectionFailedError,
    DisconnectedError,
    IggyError,
    IncompatibleServerError,
    ProtocolError,
)
from iggy_sdk.session.interface import Session
from iggy_sdk.session.states import ClientEvent
from iggy_sdk.session.stream import StreamSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iggy_sdk.options import ClientOptions
    from iggy_sdk.session.http import HttpSession
    from iggy_sdk.session.quic import QuicSession
    from iggy_sdk.transport import Dial


REDIRECTS_MAX: Final = 3
"""Servers that disagree on the leader must not redirect a client for ever."""

STABLE_AFTER_SECONDS: Final = 1.0
"""A connection that the server ends sooner counts as a failed attempt; otherwise a server that
closes every connection would be dialled without backoff."""


class EstablishedSession(NamedTuple):
    """A session that is ready for requests."""

    session: Session
    endpoint: Endpoint


class _ProtocolProbe:
    """The check whether a silent server speaks another protocol."""

    __slots__ = ("is_incompatible", "login_scope")

    def __init__(self, login_scope: anyio.CancelScope) -> None:
        self.login_scope = login_scope
        self.is_incompatible = False


class Connector:
    """Connects to a server that answers, logs in, and follows the leader.

    Attributes:
        dials_count: attempts to connect.
        failures_count: attempts that failed.
        redirects_count: how often a leader was followed.
        report: called with each step of an attempt.
    """

    def __init__(self, options: ClientOptions, *, dial: Dial) -> None:
        """Take the endpoints and the waits from the options of a client."""
        self.report: Callable[[ClientEvent], None] = _ignore_event
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

    def on_session_end(self, *, by_peer: bool) -> None:
        """Count a short-lived session as a failed attempt, and start the cool-down."""
        if anyio.current_time() - self._established_at >= STABLE_AFTER_SECONDS:
            self._failed_rounds = 0
        elif by_peer:
            self._schedule_retry()
        cool_down = to_seconds(self._options.reconnect.reestablish_after)
        self._not_before = max(self._not_before, self._established_at + cool_down)

    def prefer(self, endpoint: Endpoint) -> None:
        """Try this endpoint first in the next round."""
        self._last = endpoint

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
            found = await self._try_endpoints(login)
            if isinstance(found, EstablishedSession):
                self._last = found.endpoint
                self._established_at = anyio.current_time()
                return found
            self._schedule_retry()
            rounds += 1
            is_late = self._not_before - begun_at > seconds_max
            if is_late or (retries is not None and rounds > retries) or _is_final(found):
                raise self._connect_error(found)

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
        """List the endpoints to try, the last one first: it may be a leader outside the options."""
        configured = self._options.endpoints
        if self._last is None:
            return list(configured)
        return [self._last, *(endpoint for endpoint in configured if endpoint != self._last)]

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
        self.report(ClientEvent.DIAL)
        deadline = anyio.current_time() + self._options.connect_timeout
        try:
            session = await open_session(endpoint, self._options, dial=self._dial)
            with _abort_on_error(session):
                if login is not None:
                    await self._log_in(session, endpoint, login, deadline)
        except BaseException:
            self.failures_count += 1
            raise
        return EstablishedSession(session, endpoint)

    async def _log_in(
        self, session: Session, endpoint: Endpoint, login: Command[Any], deadline: float
    ) -> None:
        """Log in; if no reply comes, check whether the server speaks another protocol."""
        self.report(ClientEvent.LOG_IN)
        if self._options.transport not in PROBED_TRANSPORTS:
            await session.request(login, timeout=deadline - anyio.current_time())
            return
        failure: IggyError | None = None
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as login_scope:
                probe = _ProtocolProbe(login_scope)
                tasks.start_soon(self._probe_if_silent, endpoint, probe)
                try:
                    await session.request(login, timeout=deadline - anyio.current_time())
                except IggyError as error:
                    failure = error
            tasks.cancel_scope.cancel()
        if isinstance(failure, DisconnectedError):
            # A server that closes on a login may not have understood it.
            await self._probe_protocol(endpoint, probe)
        if probe.is_incompatible:
            raise incompatible_server_error(endpoint) from failure
        if failure is not None:
            raise failure

    async def _probe_if_silent(self, endpoint: Endpoint, probe: _ProtocolProbe) -> None:
        """Probe the protocol of a silent server, and cancel the login if it is another one."""
        await anyio.sleep(PROBE_AFTER_SECONDS)
        await self._probe_protocol(endpoint, probe)
        if probe.is_incompatible:
            probe.login_scope.cancel()

    async def _probe_protocol(self, endpoint: Endpoint, probe: _ProtocolProbe) -> None:
        probe.is_incompatible = await speaks_vsr_protocol(endpoint, self._options, dial=self._dial)

    async def _follow_leader(
        self, established: EstablishedSession, login: Command[Any]
    ) -> EstablishedSession:
        """Move to the leader of the cluster; stay where it is unknown or out of reach."""
        for _ in range(REDIRECTS_MAX):
            session, endpoint = established
            with _abort_on_error(session):
                leader = await find_leader(session, endpoint, self._options)
                if leader is None:
                    break
                try:
                    established = await self._open_and_log_in(leader, login)
                except IggyError:
                    break
            self.redirects_count += 1
            session.abort(DisconnectedError("the client moved to the leader of the cluster"))
        return established

    def _connect_error(self, errors: Sequence[IggyError]) -> IggyError:
        """Make one error of the errors of all endpoints."""
        last = errors[-1]
        if len(errors) == 1:
            return last
        reasons = "; ".join(error.message for error in errors)
        failure = ConnectionFailedError(
            f"none of {len(errors)} endpoints accepts a session: {reasons}"
        )
        failure.__cause__ = last
        return failure


def _ignore_event(event: ClientEvent) -> None:
    """Do nothing, for a connector whose steps no client follows."""


def _is_final(errors: Sequence[IggyError]) -> bool:
    """Say whether no error is retriable, so that another round is useless."""
    return not any(error.retriable for error in errors)


@contextmanager
def _abort_on_error(session: Session) -> Iterator[None]:
    """End a session that will not be used, if the block raises."""
    try:
        yield
    except BaseException:
        session.abort(DisconnectedError("the connection was closed before it was used"))
        raise


# Opening a session on the transport of the options.


async def open_session(endpoint: Endpoint, options: ClientOptions, *, dial: Dial) -> Session:
    """Connect to a server within ``connect_timeout``, without a login.

    Args:
        endpoint: where the server is.
        options: of the client; they name the transport.
        dial: opens a byte stream to a server; QUIC does not use it.

    Raises:
        ConnectionFailedError: no server answers at the endpoint, or the handshake failed.
        ConfigurationError: the transport needs a library that is not installed.
    """
    if options.transport == "quic":
        return await _quic_session_class().open(endpoint, options)
    if options.transport == "http":
        return await _http_session_class().open(endpoint, options, dial=dial)
    return await StreamSession.open(endpoint, options, dial=dial)


def _http_session_class() -> type[HttpSession]:
    """Import the class, whose library is an optional dependency."""
    try:
        import iggy_sdk.session.http as http_package
    except ImportError as error:
        raise ConfigurationError(
            "iggy+http:// needs a library that is not installed: h11",
            advice="Run: pip install 'iggy-python[http]'",
        ) from error
    return http_package.HttpSession


def _quic_session_class() -> type[QuicSession]:
    """Import the class, whose library is an optional dependency."""
    try:
        from iggy_sdk.session.quic import QuicSession
    except ImportError as error:
        # A version of aioquic without what is needed of it comes with a sentence of its own.
        reason = f"cannot be used: {error}"
        if isinstance(error, ModuleNotFoundError):
            reason = "needs a library that is not installed: aioquic"
        raise ConfigurationError(
            f"iggy+quic:// {reason}", advice="Run: pip install 'iggy-python[quic]'"
        ) from error
    return QuicSession


# Finding the leader of the cluster; without metadata the client stays where it is.


# Host names and wildcards that mean an address of this machine.
_SAME_HOST: Final = {"localhost": "127.0.0.1", "::": "::1"}


async def find_leader(
    session: Session, endpoint: Endpoint, options: ClientOptions
) -> Endpoint | None:
    """Request the cluster metadata and return the leader; None means to stay with this server.

    Raises:
        IggyError: the connection ended meanwhile.
    """
    try:
        metadata = await session.request(GetClusterMetadata(), timeout=options.connect_timeout)
    except IggyError:
        if session.failure is not None:
            raise
        return None
    return choose_leader(metadata, endpoint, transport=options.transport)


def choose_leader(
    metadata: ClusterMetadata, endpoint: Endpoint, *, transport: TransportName
) -> Endpoint | None:
    """Return the healthy leader of a cluster, unless it is this endpoint or there is none."""
    if len(metadata.nodes) < 2:
        return None
    for node in metadata.nodes:
        if node.role is NodeRole.LEADER and node.status is NodeStatus.HEALTHY:
            leader = Endpoint(node.ip, _port_of_transport(node, transport))
            return None if _is_same_endpoint(leader, endpoint) else leader
    return None


def _port_of_transport(node: ClusterNode, transport: TransportName) -> int:
    ports: dict[TransportName, int] = {
        "tcp": node.tcp_port,
        "quic": node.quic_port,
        "http": node.http_port,
        "ws": node.websocket_port,
    }
    return ports[transport]


def _is_same_endpoint(left: Endpoint, right: Endpoint) -> bool:
    return left.port == right.port and _canonical_host(left.host) == _canonical_host(right.host)


def _canonical_host(host: str) -> str:
    bare = host.strip("[]").lower()
    return _SAME_HOST.get(bare, bare)


# Detecting a server that speaks the protocol of Apache Iggy 0.9 or later.
#
# Servers from 0.9 on frame requests in another way: they wait for more bytes than a login of 0.8
# has, so the client gets no reply at all. When a login stays unanswered, one request in the framing
# of 0.9 is sent over a separate connection; its reply cannot be a reply of 0.8.


PROBE_AFTER_SECONDS: Final = 2.0
"""How long a login may stay unanswered before the probe; healthy servers take milliseconds."""

PROBE_SECONDS_MAX: Final = 2.0
PROBED_TRANSPORTS: Final = ("tcp", "ws")


async def speaks_vsr_protocol(endpoint: Endpoint, options: ClientOptions, *, dial: Dial) -> bool:
    """Send a request in the framing of 0.9; False when the reply is not one of 0.9."""
    answer = bytearray(VSR_HEAD_BYTES)
    received = 0
    try:
        with anyio.move_on_after(PROBE_SECONDS_MAX):
            transport = await dial(endpoint, options)
            try:
                # The frame has to carry a client id of 128 bits.
                await transport.send([vsr_probe(uuid4().bytes)])
                while received < VSR_HEAD_BYTES:
                    size = await transport.receive_into(memoryview(answer)[received:])
                    if not size:
                        break
                    received += size
            finally:
                transport.abort()
    except (OSError, IggyError):
        return False
    return is_vsr_answer(answer[:received])


def incompatible_server_error(endpoint: Endpoint) -> IncompatibleServerError:
    """Make the error for a server that speaks the protocol of 0.9."""
    return IncompatibleServerError(
        f"the server at {endpoint} speaks the protocol of Apache Iggy 0.9 and later, this client"
        " that of 0.8",
        advice="Connect to a server of version 0.8, or to iggy-server of this project.",
        retriable=False,
    )
