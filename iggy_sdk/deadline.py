"""The end of a call: one time by which everything that the call does has to be done.

A call takes ``timeout=``, a time span; what it does inside shares one ``Deadline``, so that waiting
for room, connecting, each attempt and each pause spend the same time once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from iggy_sdk.durations import Seconds, spell_seconds, to_seconds
from iggy_sdk.errors import RequestTimeoutError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


R = TypeVar("R")


class Deadline:
    """When a call has to end.

    Attributes:
        seconds: how long the call may take.
        at: when that is over.
        clock: that of the event loop.
    """

    __slots__ = ("at", "clock", "seconds")

    def __init__(self, seconds: float, *, clock: Callable[[], float] = anyio.current_time) -> None:
        """Take how long the call may take, from now on.

        Args:
            seconds: the time span.
            clock: that of the event loop; a direct one costs less than that of anyio.
        """
        self.seconds: float = seconds
        self.at: float = clock() + seconds
        self.clock: Callable[[], float] = clock

    def rest(self) -> float:
        """Return how many seconds are left; 0 when the time is over."""
        return max(0.0, self.at - self.clock())

    def has(self, seconds: float) -> bool:
        """Tell whether more than so many seconds are left."""
        return self.at - self.clock() > seconds

    def rest_for(self, what: str) -> float:
        """Return how many seconds are left for a further request.

        Raises:
            RequestTimeoutError: none are, and the request is not sent.
        """
        rest = self.at - self.clock()
        if rest <= 0:
            raise RequestTimeoutError(
                f"{what}: the {spell_seconds(self.seconds)} of the call were over", sent=False
            )
        return rest


def deadline_of(
    timeout: Seconds | None, default: float = math.inf, *, clock: Callable[[], float] | None = None
) -> Deadline:
    """Begin a call with the timeout that it was given, or with the default.

    Raises:
        ConfigurationError: the timeout is no time span.
    """
    seconds = default if timeout is None else to_seconds(timeout, name="timeout")
    return Deadline(seconds, clock=anyio.current_time if clock is None else clock)


GRACE_SECONDS: Final = 0.05
"""How much later a call ends than its request does, whose error tells more."""


async def within(
    timeout: Seconds | None,
    what: str,
    work: Callable[[float | None], Awaitable[R]],
    *,
    default: float | None = None,
) -> R:
    """Do the work of a call within its timeout.

    Args:
        timeout: the one of the call.
        what: the name of the call, for the error.
        work: called with the timeout in seconds, for its requests.
        default: the timeout of a call that was given none; None lets each request have its own.

    Raises:
        RequestTimeoutError: it took longer; requests of it may have been carried out.
    """
    seconds = default if timeout is None else to_seconds(timeout, name="timeout")
    if seconds is None:
        return await work(None)
    with anyio.move_on_after(seconds + GRACE_SECONDS):
        return await work(seconds)
    raise RequestTimeoutError(f"{what} took longer than {spell_seconds(seconds)}", sent=True)
