"""The states of a session and of a client, as two tables: state and event give the next state.

``SessionState`` is the life of one connection, the same over every transport. ``ClientState`` is
that of the client, which makes one connection after another. The diagrams of ``docs/sdk.md`` are
generated from the tables. What a state cannot say, such as the reason of an end, is a value beside
it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping


S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


def next_state(transitions: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    """Return the state after an event; an event that the table does not allow is our mistake."""
    following = transitions.get((state, event))
    assert following is not None, f"{event} is not possible in {state}"
    return following


def with_state(message: str, state: SessionState | ClientState) -> str:
    """Add to the message of an error in which state it was raised."""
    owner = "session" if isinstance(state, SessionState) else "client"
    return f"{message} ({owner} state: {state.value})"


# One connection. There is no state for connecting: a session is made of a connected transport, and
# the client has the states before that.


class SessionState(Enum):
    """What one connection may do; the values are for messages to users."""

    OPEN = "open"
    """Requests are sent."""

    LOST = "lost"
    """The event loop has found the end of the connection, and no task knows it yet."""

    CLOSING = "closing"
    """New requests are refused, and pending ones may finish."""

    LOST_WHILE_CLOSING = "lost while closing"
    """As ``LOST``, and new requests are refused as in ``CLOSING``."""

    DISCONNECTED = "disconnected"
    """The server or the network has ended the connection."""

    ABORTED = "aborted"
    """The client has ended the connection, without being told to close."""

    CLOSED = "closed"
    """The client was told to close, and the connection has ended."""


class SessionEvent(Enum):
    """What happens to one connection."""

    LOSS_FOUND = "loss found"
    """A function that the event loop calls, outside of any task, finds the connection ended."""

    ENDED_BY_PEER = "ended by the peer"
    """A task has failed the pending requests, because the server or the network ended."""

    ENDED_BY_CLIENT = "ended by the client"
    """A task has failed the pending requests, because the client wants no reply any more."""

    CLOSE = "close"
    """``aclose`` was called."""


_S, _E = SessionState, SessionEvent

SESSION_TRANSITIONS: Final[Mapping[tuple[SessionState, SessionEvent], SessionState]] = {
    (_S.OPEN, _E.LOSS_FOUND): _S.LOST,
    (_S.OPEN, _E.ENDED_BY_PEER): _S.DISCONNECTED,
    (_S.OPEN, _E.ENDED_BY_CLIENT): _S.ABORTED,
    (_S.OPEN, _E.CLOSE): _S.CLOSING,
    # A loss is no end yet: failing the requests calls hooks and makes events, which needs a task.
    # The first task that looks does it. Whatever reason that task has, the peer was first.
    (_S.LOST, _E.ENDED_BY_PEER): _S.DISCONNECTED,
    (_S.LOST, _E.CLOSE): _S.LOST_WHILE_CLOSING,
    (_S.CLOSING, _E.LOSS_FOUND): _S.LOST_WHILE_CLOSING,
    # A server that goes while the client closes does what the client wants, so it has not failed:
    # it costs no backoff, and requests are refused as closed rather than as disconnected.
    (_S.CLOSING, _E.ENDED_BY_PEER): _S.CLOSED,
    (_S.CLOSING, _E.ENDED_BY_CLIENT): _S.CLOSED,
    (_S.LOST_WHILE_CLOSING, _E.ENDED_BY_PEER): _S.CLOSED,
    # Closing is allowed at any time and as often as one likes. After another end it changes only
    # what the next request is told.
    (_S.CLOSING, _E.CLOSE): _S.CLOSING,
    (_S.LOST_WHILE_CLOSING, _E.CLOSE): _S.LOST_WHILE_CLOSING,
    (_S.DISCONNECTED, _E.CLOSE): _S.CLOSED,
    (_S.ABORTED, _E.CLOSE): _S.CLOSED,
    (_S.CLOSED, _E.CLOSE): _S.CLOSED,
}

CLOSED_SESSION_STATES: Final = (_S.CLOSING, _S.LOST_WHILE_CLOSING, _S.CLOSED)
"""The states in which a request is refused because the client was closed."""


# The client, which keeps one connection.


class ClientState(Enum):
    """What a client does about its connection; the values are for messages to users."""

    IDLE = "idle"
    """No connection is wanted: before ``connect`` and after ``disconnect``."""

    DISCONNECTED = "disconnected"
    """A connection is wanted and none is being made; the next request or the supervisor begins."""

    BACKING_OFF = "backing off"
    """Waits before the next round over all endpoints; before the first round for no time."""

    CONNECTING = "connecting"
    """Opens a connection to one endpoint."""

    LOGGING_IN = "logging in"
    """Has a connection, logs in and looks for the leader."""

    READY = "ready"
    """Has a session that has not ended; requests are sent."""

    CLOSED = "closed"
    """Closed for good."""


class ClientEvent(Enum):
    """What happens to a client."""

    CONNECT = "connect"
    """``connect`` was called."""

    BACK_OFF = "back off"
    """A round over all endpoints is due after a delay."""

    DIAL = "dial"
    """An attempt to open a connection begins."""

    LOG_IN = "log in"
    """The connection is open, and the login is sent."""

    ESTABLISHED = "established"
    """The connection may carry requests."""

    GIVE_UP = "give up"
    """No further round follows, or the task that made them was cancelled."""

    SESSION_ENDED = "session ended"
    """The session of the client has ended."""

    DISCONNECT = "disconnect"
    """``disconnect`` was called."""

    CLOSE = "close"
    """``aclose`` was called."""


_C, _V = ClientState, ClientEvent

CLIENT_TRANSITIONS: Final[Mapping[tuple[ClientState, ClientEvent], ClientState]] = {
    (_C.IDLE, _V.CONNECT): _C.DISCONNECTED,
    (_C.DISCONNECTED, _V.BACK_OFF): _C.BACKING_OFF,
    (_C.BACKING_OFF, _V.DIAL): _C.CONNECTING,
    (_C.CONNECTING, _V.LOG_IN): _C.LOGGING_IN,
    (_C.CONNECTING, _V.ESTABLISHED): _C.READY,  # A client without credentials does not log in.
    (_C.LOGGING_IN, _V.ESTABLISHED): _C.READY,
    # The next endpoint of the round, or the leader that the first server has named.
    (_C.CONNECTING, _V.DIAL): _C.CONNECTING,
    (_C.LOGGING_IN, _V.DIAL): _C.CONNECTING,
    # Every endpoint has refused.
    (_C.CONNECTING, _V.BACK_OFF): _C.BACKING_OFF,
    (_C.LOGGING_IN, _V.BACK_OFF): _C.BACKING_OFF,
    # Giving up is no end: a connection is still wanted, and the next request tries again.
    (_C.BACKING_OFF, _V.GIVE_UP): _C.DISCONNECTED,
    (_C.CONNECTING, _V.GIVE_UP): _C.DISCONNECTED,
    (_C.LOGGING_IN, _V.GIVE_UP): _C.DISCONNECTED,
    (_C.READY, _V.SESSION_ENDED): _C.DISCONNECTED,
    # Both take effect at once, although the session may drain for a while afterwards: what it
    # still does is its own, and a new connection need not wait for it.
    **{(state, _V.DISCONNECT): _C.IDLE for state in _C if state is not _C.CLOSED},
    **{(state, _V.CLOSE): _C.CLOSED for state in _C},
    (_C.CLOSED, _V.DISCONNECT): _C.CLOSED,
}
