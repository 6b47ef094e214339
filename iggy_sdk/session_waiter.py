"""One who waits in a session, and what he is told when it ends.

Owns the records. Who wakes whom, and when, is the session's affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iggy_protocol import ErrorReceived, RemoteProtocolError, ResponseReceived, StatusCode
from iggy_sdk.errors import (
    ClientClosedError,
    DisconnectedError,
    IggyError,
    ProtocolError,
    RequestTimeoutError,
    describe_command,
    error_for_status,
    error_from_protocol,
)

if TYPE_CHECKING:
    from iggy_protocol import Command
    from iggy_sdk.engine import Wake

__all__ = ["Waiter", "is_farewell", "read_outcome", "too_late", "verdict"]


class Waiter:
    """One who sent a request and waits for its reply.

    Attributes:
        command: what he asked.
        deadline: when he stops waiting; once he has left, when his server counts as wedged.
        is_sent: whether all of the request has left.
        is_kept: whether the session looks at the clock for him.
        is_abandoned: whether he has gone without the reply.
        outcome: what he is told; None while he waits.
        wake: set to wake him, while somebody else reads.
    """

    __slots__ = ("command", "deadline", "is_abandoned", "is_kept", "is_sent", "outcome", "wake")

    def __init__(self, command: Command[Any], deadline: float) -> None:
        self.command = command
        self.deadline = deadline
        self.is_sent = False
        self.is_kept = False
        self.is_abandoned = False
        self.outcome: ResponseReceived[Any] | ErrorReceived | IggyError | None = None
        self.wake: Wake | None = None


def read_outcome(waiter: Waiter) -> Any:
    """Decode what a waiter was told, in his own task.

    Raises:
        IggyError: what he was told is no reply.
    """
    outcome = waiter.outcome
    if isinstance(outcome, ResponseReceived):
        try:
            return outcome.decode()
        except RemoteProtocolError as error:
            raise error_from_protocol(error, command=waiter.command) from error
    if isinstance(outcome, ErrorReceived):
        raise error_for_status(outcome.status, command=waiter.command)
    assert outcome is not None, "nobody has told him anything yet"
    raise outcome


def too_late(
    command: Command[Any], *, is_sent: bool, seconds: float, peer: str
) -> RequestTimeoutError:
    """Make the error for a request whose time is over."""
    what = "no answer came" if is_sent else "it could not be sent"
    return RequestTimeoutError(
        f"{describe_command(command)}: {what} within {seconds:g} s from {peer}"
    )


def verdict(failure: IggyError, *, is_sent: bool) -> IggyError:
    """Make the error for one who was waiting when his session ended."""
    told: IggyError
    if isinstance(failure, ClientClosedError | ProtocolError):
        told = type(failure)(failure.message)
    else:
        told = DisconnectedError(failure.message, sent=is_sent)
    told.__cause__ = failure
    return told


def is_farewell(event: ResponseReceived[Any] | ErrorReceived) -> bool:
    """Say whether a server takes its leave.

    One that stops says so to everybody, and it looks like the answer to the oldest request;
    whether that one was carried out, nobody knows.
    """
    return isinstance(event, ErrorReceived) and (
        event.command is None or event.status == StatusCode.DISCONNECTED
    )
