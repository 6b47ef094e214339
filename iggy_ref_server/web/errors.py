"""Error responses, in the three forms of Apache Iggy.

An error of a handler becomes a JSON body with the status of the binary protocol. A malformed path,
query or body becomes a line of text. A missing or invalid token gets an empty response.
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

# Where Apache Iggy replies with a plain "not found" that does not name the resource.
NAMELESS: Final = frozenset(
    {
        (CommandCode.GET_TOPICS, StatusCode.STREAM_ID_NOT_FOUND),
        (CommandCode.CREATE_TOPIC, StatusCode.STREAM_ID_NOT_FOUND),
    }
)


class Rejection(Exception):
    """A malformed request.

    Attributes:
        status: the HTTP status.
        text: what is wrong.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text

    def response(self) -> Response:
        """Make the response."""
        return Response(self.text, self.status, media_type=TEXT)


def empty_response(status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Make a response with a status and no body."""
    return Response(status_code=status, headers=headers)


def json_response(content: bytes, status: int = 200) -> Response:
    """Make a response of encoded JSON."""
    return Response(content, status, media_type=JSON)


def not_found_response() -> Response:
    """Make the response for a resource that does not exist."""
    return json_response(encode_json(NOT_FOUND), 404)


def error_response(
    error: Exception, office: Office, session: Session, command: Command[Any] | None
) -> Response:
    """Make the response for an exception.

    Args:
        error: the exception.
        office: for the names in the reason.
        session: the caller.
        command: the command; None if the request never became one.
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
