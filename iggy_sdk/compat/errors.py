"""The errors that the official client has classes for, on top of those of this SDK."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from iggy_protocol import StatusCode
from iggy_sdk.errors import (
    DisconnectedError,
    IggyError,
    InvalidRequestError,
    ProducerError,
    RequestTimeoutError,
    SendFailedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iggy_sdk.compat.messages import SendMessagesConfirmation


class OptionError(InvalidRequestError):
    """An option that the server refuses.

    Attributes:
        kind: the name of the status, as in ``unsupported_option_key``.
    """

    default_code = StatusCode.INVALID_OPTION_VALUE

    @property
    def kind(self) -> str:
        """The name of the status, as in ``unsupported_option_key``."""
        return StatusCode(self.code).name.lower()


_OPTION_CODES: Final = frozenset(
    {
        StatusCode.UNSUPPORTED_OPTION_KEY,
        StatusCode.INVALID_OPTION_VALUE,
        StatusCode.OPTIONS_TOO_LARGE,
        StatusCode.OPTION_NOT_UPDATABLE,
        StatusCode.OPTION_NOT_RESETTABLE,
        StatusCode.OPTION_READ_ONLY,
        StatusCode.UNSUPPORTED_CRITICAL_OPTION,
    }
)


@contextmanager
def option_errors() -> Iterator[None]:
    """Raise refusals of options as the class that the official client has for them."""
    try:
        yield
    except IggyError as error:
        if error.code not in _OPTION_CODES:
            raise
        raise OptionError(error.message, code=error.code, advice=error.advice) from error


class ProducerSendError(ProducerError):
    """Messages were not sent.

    Attributes:
        cause: why, as a text; ``__cause__`` is the error.
        failed: what was not sent, in order.
        uncertain: how many messages at the head of ``failed`` may be stored all the same, because
            the answer to them was lost.
        committed: where those messages of the call are that were sent before.
        operation_id: None, because a client of this SDK keeps no operation to be resolved later.
    """

    operation_id: None = None
    default_code = StatusCode.PRODUCER_SEND_FAILED

    def __init__(
        self,
        error: SendFailedError,
        committed: Sequence[SendMessagesConfirmation] = (),
        unsent: Sequence[Any] = (),
    ) -> None:
        """Take what this SDK raised, where the messages before went, and those after it."""
        whole = SendFailedError(error.cause, [*error.messages, *unsent])
        super().__init__(whole.message, advice=whole.advice, retriable=whole.retriable)
        self.cause: str = str(error.cause)
        self.failed: list[Any] = list(whole.messages)
        self.uncertain: int = len(error.messages) if _is_uncertain(error.cause) else 0
        self.committed: list[SendMessagesConfirmation] = list(committed)


def _is_uncertain(cause: BaseException) -> bool:
    if isinstance(cause, DisconnectedError):
        return cause.sent
    return isinstance(cause, RequestTimeoutError)
