"""The error that all errors of the SDK are, and how they are copied and merged."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, TypeVar

from iggy_protocol import StatusCode, status
from iggy_sdk.error_advice import UNSENT_ADVICE, advice_for

if TYPE_CHECKING:
    from typing import Self


_E = TypeVar("_E", bound="IggyError")

NOT_SENT: Final = "the request was not sent"
MAY_BE_DONE: Final = "the request was sent, and may have been carried out"
SENT_BEFORE: Final = "an earlier attempt was sent, and may have been carried out"


class IggyError(RuntimeError):
    """Anything that went wrong, with its number and what to do next.

    Attributes:
        code: the status; errors of the client itself use the number of Apache Iggy for them.
        name: the name of the status in Apache Iggy, as in ``StreamIdNotFound``.
        message: what happened, without the advice.
        advice: what to do next, in one sentence.
        retriable: whether the same call may succeed when it is simply made again.
        sent: True if the request was sent, by any attempt of the call, so that the server may have
            carried it out; False if it certainly was not; None where the server has answered, or
            where the error is about no request.
    """

    default_code: ClassVar[StatusCode] = StatusCode.ERROR
    sent: bool | None = None

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        advice: str | None = None,
        retriable: bool | None = None,
    ) -> None:
        """Take what happened; everything else follows from the code.

        Args:
            message: what happened; empty takes the meaning of the code.
            code: the status, unless it is the one of this class.
            advice: a better sentence than that of the table.
            retriable: whether to try again, unless the table is right.
        """
        row = status(self.default_code if code is None else code)
        self.code: int = row.code
        self.name: str = row.name
        self.message: str = message or row.meaning
        self.advice: str = advice_for(row) if advice is None else advice
        self.retriable: bool = row.retriable if retriable is None else retriable
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.name}, code {self.code}). {self.advice}"

    def after_sending(self) -> Self:
        """Return the same error of a call whose request an earlier attempt had sent."""
        return self if self.sent else self._with_sent(True, SENT_BEFORE)

    def before_sending(self) -> Self:
        """Return the same error of a call that failed in a question before its request."""
        return self._with_sent(False, NOT_SENT) if self.sent else self

    def _with_sent(self, sent: bool, clause: str) -> Self:
        twin = copy.copy(self)
        twin.sent = sent
        text = self.message.removesuffix(f"; {NOT_SENT}").removesuffix(f"; {MAY_BE_DONE}")
        twin.message = f"{text}; {clause}"
        twin.args = (twin.message,)
        advice = advice_for(status(twin.code))
        if sent and twin.advice == UNSENT_ADVICE:
            twin.advice = advice
        elif not sent and twin.advice == advice and "may have been carried out" in advice:
            twin.advice = UNSENT_ADVICE
        twin.__cause__ = self
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructors differ, and those of OSError read their arguments, so neither is called.
        return restore_error, (type(self), self.args, self.__dict__)


def sent_clause(sent: bool) -> str:
    """Say whether a request was sent, for the end of a sentence."""
    return MAY_BE_DONE if sent else NOT_SENT


def raise_truthfully(error: IggyError, *, is_sent: bool) -> NoReturn:
    """Raise an error that ends a call; it says so if an earlier attempt of the call was sent."""
    if is_sent and error.sent is False:
        raise error.after_sending() from error
    raise error


def layout_of(kind: type[BaseException]) -> Any:
    """Return the builtin class whose ``__new__`` makes errors of a class."""
    # Python refuses the __new__ of the first base where a later one has the larger layout.
    return OSError if issubclass(kind, OSError) else RuntimeError


def restore_error(kind: type[_E], args: tuple[Any, ...], state: dict[str, Any]) -> _E:
    """Make an error again from what it was made of."""
    error: _E = layout_of(kind).__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


# Errors that are two things at once: what failed, and why.


_MERGED: Final[dict[tuple[type[Any], type[Any]], Any]] = {}
"""The classes by their pairs; a program has as many as it has classes of errors."""


def merged_class(first: type[_E], second: type[IggyError]) -> type[_E]:
    """Return a class that is both, named as the first."""
    if issubclass(first, second):
        return first
    if issubclass(second, first):
        return second
    merged: type[_E] | None = _MERGED.get((first, second))
    if merged is None:
        details = {"__module__": first.__module__, "__doc__": first.__doc__}
        merged = _MERGED[first, second] = type(first.__name__, (first, second), details)
    return merged
