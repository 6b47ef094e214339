"""A session: one connection to one server, over any transport; its state, and its end.

stream  requests in one stream of bytes, replies in the same order: TCP, TLS, WebSocket; and
        ``vsr_stream``, the same with servers from 0.9 on, where requests have numbers
quic    one stream per request, replies as they come
http    one exchange per request, on any of a few connections
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from iggy_protocol import CLASSIC, Dialect
from iggy_sdk.errors import ClientClosedError, DisconnectedError, IggyError
from iggy_sdk.session.pending_requests import session_ended_error
from iggy_sdk.session.states import (
    CLOSED_SESSION_STATES,
    SESSION_TRANSITIONS,
    SessionEvent,
    SessionState,
    next_state,
    with_state,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol import Command
    from iggy_sdk.statistics import SessionStatistics


R = TypeVar("R")

OPEN: Final = SessionState.OPEN
"""A global of its own, because every request compares with it."""

SHARED_TIMER_SECONDS_MIN: Final = 1.0
"""The shortest timeout that ``run`` may track, which saves most requests a timer; shorter timeouts
need an exact one."""


class SocketReader(Enum):
    """Which part of the process reads the socket of a session."""

    NONE = "none"
    TASK = "task"
    EVENT_LOOP = "event loop"


class Session(ABC):
    """One connection to one server; many tasks may send requests at the same time.

    Attributes:
        dialect: what the server speaks on it.
        state: what the session may do.
        failure: why the session has ended; None while it has not.
        on_end: called once when it ends.
    """

    dialect: Dialect = CLASSIC

    def __init__(self) -> None:
        self.state: SessionState = OPEN
        self.failure: IggyError | None = None
        self.on_end: Callable[[], None] | None = None
        # The reason that belongs to LOST and LOST_WHILE_CLOSING.
        self._found_loss: IggyError | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended, even if no task knows it yet."""
        return self.state is not OPEN and self.state is not SessionState.CLOSING

    @property
    def is_ended_by_peer(self) -> bool:
        """Whether the server or the network has ended it, and not the client."""
        return self.state is SessionState.DISCONNECTED

    @property
    @abstractmethod
    def peer(self) -> str:
        """Where the server is, for messages to users."""

    @abstractmethod
    def statistics(self) -> SessionStatistics:
        """Return what the session has done so far."""

    async def request(self, command: Command[R], *, timeout: float) -> R:
        """Send a command and wait for the reply; ``timeout`` bounds all of it.

        Raises:
            DisconnectedError: the connection ended first; ``sent`` tells whether the whole
                request was written by then.
            RequestTimeoutError: there was no reply in time.
            IggyError: whatever the server answered.
        """
        return await self.request_until(
            command, seconds=timeout, deadline=anyio.current_time() + timeout
        )

    @abstractmethod
    async def request_until(self, command: Command[R], *, seconds: float, deadline: float) -> R:
        """Do what ``request`` does, for a caller that has computed the deadline already."""

    @abstractmethod
    async def run(self) -> None:
        """Do the background work of the session; return when it has ended."""

    def _advance(self, event: SessionEvent) -> None:
        self.state = next_state(SESSION_TRANSITIONS, self.state, event)

    def _check_open(self) -> None:
        """Raise why no request may be sent, if that is so."""
        if self.state in CLOSED_SESSION_STATES:
            text = "the client was closed before the request was sent"
            raise ClientClosedError(with_state(text, self.state))
        if self.failure is not None:
            raise session_ended_error(self.failure, self.state, is_sent=False)

    def _connection_lost_error(self, error: OSError) -> DisconnectedError:
        lost = DisconnectedError(f"the connection to {self.peer} broke: {error}")
        lost.__cause__ = error
        return lost

    # The end

    def _note_loss(self, error: IggyError) -> None:
        """Note that the connection has ended. May run outside of any task; the first one counts."""
        if not self.is_closed:
            self._found_loss = error
            self._advance(SessionEvent.LOSS_FOUND)

    def _report_loss(self) -> None:
        """End the session, if its loss was noted; only a task may do that."""
        if self._found_loss is not None:
            self.abort(self._found_loss, by_peer=True)

    def abort(self, error: IggyError, *, by_peer: bool = False) -> None:
        """End the session at once and fail all pending requests; the first reason counts."""
        if self.failure is not None:
            return
        if self._found_loss is not None:
            error, by_peer = self._found_loss, True
        self._advance(SessionEvent.ENDED_BY_PEER if by_peer else SessionEvent.ENDED_BY_CLIENT)
        self.failure = error
        self._release(error)
        if self.on_end is not None:
            self.on_end()

    @abstractmethod
    def _release(self, error: IggyError) -> None:
        """Close the transport, fail every pending request, and wake every task that waits."""

    @abstractmethod
    async def aclose(self, timeout: float | None = None) -> None:
        """Refuse new requests, let pending ones finish within ``close_timeout``, and close.

        Args:
            timeout: seconds for all of it, instead of ``close_timeout``.
        """
