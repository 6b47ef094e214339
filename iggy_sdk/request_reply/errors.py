"""The errors of a call: the handler raised, or no reply came in time."""

from __future__ import annotations

from typing import Any

from iggy_sdk.errors import IggyError, RequestTimeoutError


class RemoteHandlerError(IggyError):
    """The responder's handler raised, so there is no value.

    Attributes:
        remote_type: the name of the exception's class, as in ``ValueError``.
        remote_message: the text of the exception.
        remote_traceback: the traceback, where the responder sends them; None otherwise.
    """

    def __init__(
        self,
        message: str = "",
        *,
        remote_type: str = "",
        remote_message: str = "",
        remote_traceback: str | None = None,
        **details: Any,
    ) -> None:
        details.setdefault("advice", "The log of the responder has the traceback.")
        super().__init__(
            message or f"the handler of the request raised {remote_type}: {remote_message}",
            **details,
        )
        self.remote_type = remote_type
        self.remote_message = remote_message
        self.remote_traceback = remote_traceback


class ReplyTimeoutError(RequestTimeoutError):
    """No reply came in time.

    Attributes:
        sent: whether the request may have been stored; if not, it certainly was not.
    """

    def __init__(self, message: str = "", *, sent: bool = True, **details: Any) -> None:
        super().__init__(message, **details)
        self.sent = sent
