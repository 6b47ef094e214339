"""What a client is told when something is wrong.

What a handler refuses becomes a JSON body with the status of the binary protocol; what is wrong
before a handler is asked (a path, a query, a body that cannot be read) becomes a line of text, as
with the original. A missing or bad token is answered with nothing at all.

Owns these three forms. Why something is refused is decided elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from iggy_protocol import CommandCode, StatusCode
from iggy_protocol.rest import NOT_FOUND, ErrorShape, encode_json, status_for
from iggy_ref_server.dispatch import answer_for
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.web.reasons import reason_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iggy_protocol import Command
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.session import Session

__all__ = [
    "JSON",
    "TEXT",
    "Rejection",
    "empty_response",
    "error_response",
    "json_response",
    "not_found_response",
]

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
UNFORESEEN: Final = 500

# Where the original answers that nothing was found, without saying what.
NAMELESS: Final = frozenset(
    {
        (CommandCode.GET_TOPICS, StatusCode.STREAM_ID_NOT_FOUND),
        (CommandCode.CREATE_TOPIC, StatusCode.STREAM_ID_NOT_FOUND),
    }
)


class Rejection(Exception):
    """A request that cannot be read.

    Attributes:
        status: the HTTP status.
        text: what is wrong, for people.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text

    def response(self) -> Response:
        """Write the answer."""
        return Response(self.text, self.status, media_type=TEXT)


def empty_response(status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with a status and nothing else."""
    return Response(status_code=status, headers=headers)


def json_response(content: bytes, status: int = 200) -> Response:
    """Answer with JSON that is encoded already."""
    return Response(content, status, media_type=JSON)


def not_found_response() -> Response:
    """Answer that there is no such thing."""
    return json_response(encode_json(NOT_FOUND), 404)


def error_response(
    error: Exception, office: Office, session: Session, command: Command[Any] | None
) -> Response:
    """Answer what went wrong.

    Args:
        error: what was raised.
        office: knows what exists, for the reason.
        session: who asked.
        command: what was asked; None when it never became a command.
    """
    if isinstance(error, Rejection):
        return error.response()
    status = answer_for(error).status
    if status == StatusCode.ERROR and not isinstance(error, ServerFault):
        return json_response(encode_json(ErrorShape.of(status)), UNFORESEEN)
    if command is not None and (command.CODE, status) in NAMELESS:
        return not_found_response()
    shape = ErrorShape.of(status, reason_for(status, office, session, command))
    return json_response(encode_json(shape), status_for(status))
