"""The states of a connection, what moves it from one to the next, and nothing else.

A connection is in exactly one state. ``TRANSITIONS`` is the whole truth about them: an event that
has no row for the present state is a mistake of the server, and ``next_state`` raises. Amounts,
such as unsent bytes, are no states; the pipeline derives them.

``python -m tools.state_diagrams`` draws the table into ``docs/server.md``.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


# Members of IntEnum are hashed and compared by the code of ``int``; those of a plain Enum by Python
# code, which small requests would pay for.
class ConnectionState(IntEnum):
    """Where in its life a connection is."""

    READING = auto()
    """Every received request was handled, and the server waits for bytes."""

    SERVING = auto()
    """Received requests may be left; they are handled in the next turn."""

    HANDLING = auto()
    """A task handles a request, and no other request starts."""

    MIGRATING = auto()
    """Another shard takes over as soon as all replies are sent."""

    MIGRATING_HANDLING = auto()
    """The same, and a task handles the last request."""

    CLOSING = auto()
    """Nothing more is read; the connection closes when all replies are sent."""

    CLOSING_HANDLING = auto()
    """The same, and a task handles the last request."""

    LINGERING = auto()
    """All replies are sent; late input is discarded so that the client can read them."""

    ABANDONED = auto()
    """The client is gone, and a task still handles its last request."""

    CLOSED = auto()
    """Over."""


class ConnectionEvent(IntEnum):
    """What happens to a connection."""

    REQUESTS_LEFT = auto()
    """A turn is over, or bytes came from another shard, and requests may be left."""

    INPUT_SERVED = auto()
    """The last received request was handled."""

    TASK_STARTED = auto()
    """A request has to wait, and got a task."""

    TASK_DONE = auto()
    """The reply of that request is known."""

    MIGRATION_WANTED = auto()
    """The data that the client uses are on another shard."""

    MIGRATION_CANCELLED = auto()
    """The connection stays on this shard."""

    MIGRATED = auto()
    """Another shard has the socket."""

    INPUT_ENDED = auto()
    """The client has ended its input, or the server wants to close."""

    REPLIES_SENT = auto()
    """The socket took the last reply of a connection that closes."""

    DROPPED = auto()
    """The socket is closed, by either side."""


_S, _E = ConnectionState, ConnectionEvent

TRANSITIONS: Final[Mapping[tuple[ConnectionState, ConnectionEvent], ConnectionState]] = {
    (_S.READING, _E.REQUESTS_LEFT): _S.SERVING,
    (_S.READING, _E.TASK_STARTED): _S.HANDLING,
    (_S.READING, _E.MIGRATION_WANTED): _S.MIGRATING,
    (_S.READING, _E.INPUT_ENDED): _S.CLOSING,
    (_S.READING, _E.DROPPED): _S.CLOSED,
    (_S.SERVING, _E.INPUT_SERVED): _S.READING,
    (_S.SERVING, _E.TASK_STARTED): _S.HANDLING,
    (_S.SERVING, _E.MIGRATION_WANTED): _S.MIGRATING,
    (_S.SERVING, _E.INPUT_ENDED): _S.CLOSING,
    (_S.SERVING, _E.DROPPED): _S.CLOSED,
    # Requests may have been received before the task, and nothing was received meanwhile.
    (_S.HANDLING, _E.TASK_DONE): _S.SERVING,
    (_S.HANDLING, _E.MIGRATION_WANTED): _S.MIGRATING_HANDLING,
    (_S.HANDLING, _E.INPUT_ENDED): _S.CLOSING_HANDLING,
    (_S.HANDLING, _E.DROPPED): _S.ABANDONED,
    (_S.MIGRATING, _E.MIGRATED): _S.CLOSED,
    (_S.MIGRATING, _E.MIGRATION_CANCELLED): _S.SERVING,
    (_S.MIGRATING, _E.INPUT_ENDED): _S.CLOSING,
    (_S.MIGRATING, _E.DROPPED): _S.CLOSED,
    (_S.MIGRATING_HANDLING, _E.TASK_DONE): _S.MIGRATING,
    (_S.MIGRATING_HANDLING, _E.MIGRATION_CANCELLED): _S.HANDLING,
    (_S.MIGRATING_HANDLING, _E.INPUT_ENDED): _S.CLOSING_HANDLING,
    (_S.MIGRATING_HANDLING, _E.DROPPED): _S.ABANDONED,
    # A connection is closed for more than one reason at a time, such as a protocol error of a
    # client while the server stops.
    (_S.CLOSING, _E.INPUT_ENDED): _S.CLOSING,
    (_S.CLOSING, _E.REPLIES_SENT): _S.LINGERING,
    (_S.CLOSING, _E.DROPPED): _S.CLOSED,
    (_S.CLOSING_HANDLING, _E.TASK_DONE): _S.CLOSING,
    (_S.CLOSING_HANDLING, _E.INPUT_ENDED): _S.CLOSING_HANDLING,
    (_S.CLOSING_HANDLING, _E.DROPPED): _S.ABANDONED,
    (_S.LINGERING, _E.INPUT_ENDED): _S.LINGERING,
    (_S.LINGERING, _E.DROPPED): _S.CLOSED,
    # Commits that end later, and owners that close all their clients, still reach a closed one.
    (_S.ABANDONED, _E.TASK_DONE): _S.CLOSED,
    (_S.ABANDONED, _E.INPUT_ENDED): _S.ABANDONED,
    (_S.CLOSED, _E.INPUT_ENDED): _S.CLOSED,
}


class IllegalTransition(Exception):
    """The server has let something happen that cannot happen in this state."""


def next_state(state: ConnectionState, event: ConnectionEvent) -> ConnectionState:
    """Return the state that follows.

    Raises:
        IllegalTransition: the table has no row for this event in this state.
    """
    following = TRANSITIONS.get((state, event))
    if following is None:
        raise IllegalTransition(f"{event.name} cannot happen in {state.name}")
    return following
