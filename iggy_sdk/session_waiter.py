"""Requests without a reply: one request, the requests of a connection, and which may be sent again.

Sessions decide when a request is woken; this module holds the state and makes the errors.
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
    """A request that was sent and has no reply yet.

    Attributes:
        command: the command of the request.
        deadline: when its task stops waiting; for an abandoned request, when the server counts as
            unresponsive.
        is_sent: whether all of the request was written.
        is_kept: whether ``run`` of the session tracks the deadline.
        is_abandoned: whether the task was cancelled or timed out before the reply.
        outcome: the reply or the error; None while it is pending.
        wake: set to wake the task of the request, while another task reads.
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
    """Decode the reply of a request, in the task that sent it.

    Raises:
        IggyError: the outcome is an error.
    """
    outcome = waiter.outcome
    if isinstance(outcome, ResponseReceived):
        try:
            return outcome.decode()
        except RemoteProtocolError as error:
            raise error_from_protocol(error, command=waiter.command) from error
    if isinstance(outcome, ErrorReceived):
        raise error_for_status(outcome.status, command=waiter.command)
    assert outcome is not None, "the request is still pending"
    raise outcome


def too_late(
    command: Command[Any], *, is_sent: bool, seconds: float, peer: str
) -> RequestTimeoutError:
    """Make the error for a request that has timed out."""
    what = "no answer came" if is_sent else "it could not be sent"
    return RequestTimeoutError(
        f"{describe_command(command)}: {what} within {seconds:g} s from {peer}"
    )


def verdict(failure: IggyError, *, is_sent: bool) -> IggyError:
    """Make the error for a request that was pending when its session ended."""
    told: IggyError
    if isinstance(failure, ClientClosedError | ProtocolError):
        told = type(failure)(failure.message)
    else:
        told = DisconnectedError(failure.message, sent=is_sent)
    told.__cause__ = failure
    return told


def is_farewell(event: ResponseReceived[Any] | ErrorReceived) -> bool:
    """Say whether the server announces that it stops.

    The announcement looks like the reply to the oldest request, and does not say whether that
    request was carried out.
    """
    return isinstance(event, ErrorReceived) and (
        event.command is None or event.status == StatusCode.DISCONNECTED
    )
