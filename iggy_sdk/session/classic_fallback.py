"""Commands that newer generations lack, over a second connection in the protocol of 0.8.

A server that speaks several generations at once answers a client of 0.10 that has no word for a
purge. With ``protocol=auto`` such a command goes over a connection in the protocol of 0.8 to the
same address, with the same login. It is opened when the first such command needs it, after a ping
has shown that the server answers there. What the server said is remembered by its address.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from iggy_protocol import CLASSIC, Command, commands_of
from iggy_sdk.connection_string import ServerProtocol
from iggy_sdk.durations import spell_seconds
from iggy_sdk.errors import (
    ClientClosedError,
    IncompatibleServerError,
    RequestTimeoutError,
    UnsupportedByServerError,
    describe_command,
)
from iggy_sdk.session.repeater import is_missing
from iggy_sdk.session.states import ClientState

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol import Dialect
    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.options import ClientOptions
    from iggy_sdk.session.detection import ServerDialects
    from iggy_sdk.session.opening import SessionOpener
    from iggy_sdk.session.reconnecting import ReconnectingSession


R = TypeVar("R")


class ClassicFallback:
    """The second connection of one client; there is none before a command needs it.

    Args:
        options: those of the client.
        opener: asks servers.
        dialects: what servers speak, as far as it is known.
        make: makes another client without a login.
    """

    def __init__(
        self,
        options: ClientOptions,
        *,
        opener: SessionOpener,
        dialects: ServerDialects,
        make: Callable[[ClientOptions], ReconnectingSession],
    ) -> None:
        self._options = options
        self._opener = opener
        self._dialects = dialects
        self._make = make
        self._client: ReconnectingSession | None = None
        self._endpoint: Endpoint | None = None
        self._logins_count = 0
        self._asking = anyio.Lock()
        self._opened = anyio.Event()

    @staticmethod
    def takes(command: Command[Any], dialect: Dialect) -> bool:
        """Say whether 0.8 has a command that a newer dialect lacks."""
        return is_missing(command, dialect) and command.CODE in commands_of(CLASSIC)

    async def request(
        self,
        command: Command[R],
        refusal: UnsupportedByServerError,
        *,
        endpoint: Endpoint,
        login: Command[Any] | None,
        seconds: float,
        deadline: float,
    ) -> R:
        """Send a command in the protocol of 0.8 and return the reply.

        Args:
            command: one that ``takes`` says yes to.
            refusal: what is raised where the server does not answer in that protocol.
            endpoint: where the client is connected.
            login: the one of the client.
            seconds: how long all of it may take.
            deadline: when that is over.

        Raises:
            UnsupportedByServerError: the server does not speak 0.8.
            RequestTimeoutError: there was no reply in time.
            ClientClosedError: the client was closed, or its login ended.
            IggyError: the error of the server.
        """
        logins_count = self._logins_count
        is_begun = False
        with anyio.CancelScope(deadline=deadline):
            if not await self.is_spoken(endpoint, deadline):
                raise refusal
            if logins_count != self._logins_count:
                raise ClientClosedError("the login ended before the request was sent")
            client = self._client_for(endpoint, login)
            try:
                if client.state is ClientState.IDLE or not self._options.reconnect.enabled:
                    await client.connect()
                is_begun = True
                return await client.request(command, timeout=deadline - anyio.current_time())
            except IncompatibleServerError as error:
                # Another server has taken its place.
                self._dialects.remember_classic(endpoint, speaks=False)
                self._end()
                raise refusal from error
        what = describe_command(command)
        raise RequestTimeoutError(
            f"{what}: no reply within {spell_seconds(seconds)} in the protocol of 0.8",
            sent=is_begun,
        )

    async def is_spoken(self, endpoint: Endpoint, deadline: float) -> bool:
        """Tell whether a server answers in the protocol of 0.8; ask it once.

        Raises:
            IggyError: there is no connection to be had.
        """
        known = self._dialects.known_classic(endpoint)
        if known is None:
            async with self._asking:
                known = self._dialects.known_classic(endpoint)
                if known is None:
                    known = await self._opener.answers_classic(endpoint, deadline)
                    if known is not None:
                        self._dialects.remember_classic(endpoint, speaks=known)
        return known is True

    def _client_for(self, endpoint: Endpoint, login: Command[Any] | None) -> ReconnectingSession:
        """Return what speaks 0.8 to a server; another server or login is another one."""
        if self._client is None or self._endpoint != endpoint:
            self._end()
            self._endpoint = endpoint
            changed = replace(
                self._options,
                endpoints=(endpoint,),
                protocol=ServerProtocol.V0_8,
                credentials=None,
                hooks=(),
            )
            self._client = self._make(changed)
            self._client.login = login
            self._opened.set()
        return self._client

    # The end

    async def host(self) -> None:
        """Supervise the connection, once there is one."""
        while True:
            await self._opened.wait()
            self._opened = anyio.Event()
            if self._client is not None:
                await self._client.host()

    def abort(self) -> None:
        """Close the connection at once, because the login has changed."""
        self._logins_count += 1
        self._end()

    def _end(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.abort()

    async def aclose(self, timeout: float | None = None) -> None:
        """Close the connection; pending requests may finish."""
        self._logins_count += 1
        client, self._client = self._client, None
        if client is not None:
            await client.aclose(timeout)
