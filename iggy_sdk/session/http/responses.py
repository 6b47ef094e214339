"""HTTP responses: the reply, the error of the server, or the error that this is no Iggy server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_origin

from iggy_protocol import RemoteProtocolError, StatusCode
from iggy_protocol.rest import ABSENT, decode_rest_error, decode_rest_reply
from iggy_sdk.errors import (
    DisconnectedError,
    IggyError,
    InvalidRequestError,
    MessageTooLarge,
    ProtocolError,
    RequestTimeoutError,
    ServerError,
    describe_command,
    error_for_status,
    error_from_protocol,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iggy_protocol import Command
    from iggy_protocol.rest import Route
    from iggy_sdk.session.http.connection import HttpResponse


UNAUTHORISED: Final = 401
SERVER_ERRORS: Final = range(500, 600)
REDIRECTS: Final = range(300, 400)

QUOTED_CHARACTERS_MAX: Final = 200
"""How much of an unexpected response an error quotes; enough to recognise a proxy."""

HTTP_PORT_ADVICE: Final = (
    "Use the address of the server's HTTP listener, port 3000 by default, and check for a proxy"
    " in between."
)


def decode_response(command: Command[Any], route: Route, response: HttpResponse) -> Any:
    """Decode the reply in a response.

    Raises:
        DisconnectedError: a proxy cannot reach the server.
        ProtocolError: the response is not one of an Iggy server.
        IggyError: the error of the server.
    """
    encoding = response.headers.get(b"content-encoding", b"identity")
    if encoding != b"identity":
        raise _unexpected_response_error(
            command, "a response in an encoding that was not requested"
        )
    if response.status == route.success:
        try:
            return decode_rest_reply(command.CODE, response.body)
        except RemoteProtocolError as error:
            raise error_from_protocol(error, command=command) from error
    return _decode_error(command, route, response)


def _decode_error(command: Command[Any], route: Route, response: HttpResponse) -> Any:
    try:
        status = decode_rest_error(command.CODE, response.body)
    except RemoteProtocolError:
        raise _http_status_error(command, response) from None
    if status is ABSENT:
        return () if get_origin(route.reply) is list else None
    assert isinstance(status, int)
    raise error_for_status(status, command=command)


def _http_status_error(command: Command[Any], response: HttpResponse) -> IggyError:
    """Make an error of a response without an Iggy status."""
    if response.status in _ERROR_FOR_HTTP_STATUS:
        return _ERROR_FOR_HTTP_STATUS[response.status](command, response)
    if response.status in REDIRECTS:
        where = response.headers.get(b"location", b"another place").decode("latin-1")
        return ProtocolError(
            f"{describe_command(command)}: the response is a redirect to {where!r}, which is not"
            " followed",
            advice="Connect to that place itself, if you trust it.",
        )
    if response.status in SERVER_ERRORS:
        return ServerError(f"{describe_command(command)}: the server failed{_quote_body(response)}")
    return _unexpected_response_error(
        command, f"HTTP status {response.status}{_quote_body(response)}"
    )


def _unexpected_response_error(command: Command[Any], what: str) -> ProtocolError:
    return ProtocolError(
        f"{describe_command(command)}: {what} is not a response of an Iggy server",
        advice=HTTP_PORT_ADVICE,
    )


def _quote_body(response: HttpResponse) -> str:
    text = " ".join(response.body[: 4 * QUOTED_CHARACTERS_MAX].decode(errors="replace").split())
    return f": {text[:QUOTED_CHARACTERS_MAX]!r}" if text else ""


def _unauthenticated_error(command: Command[Any], response: HttpResponse) -> IggyError:
    return error_for_status(StatusCode.UNAUTHENTICATED, command=command)


def _server_unreachable_error(command: Command[Any], response: HttpResponse) -> IggyError:
    return DisconnectedError(
        f"{describe_command(command)}: a proxy reports that it cannot reach the server"
        f" (HTTP status {response.status})",
        advice="Check that the server runs and that the proxy knows where, then try again.",
    )


def _unreadable_request_error(command: Command[Any], response: HttpResponse) -> IggyError:
    # The server names fields and types only, so the quote cannot hold a secret.
    return InvalidRequestError(
        f"{describe_command(command)}: the server could not read the request{_quote_body(response)}"
    )


def _too_large_error(command: Command[Any], response: HttpResponse) -> IggyError:
    return MessageTooLarge(
        f"{describe_command(command)}: the request has more bytes than the server takes over HTTP",
        advice="Send smaller batches, or raise http.max_request_size of the server.",
    )


def _too_slow_error(command: Command[Any], response: HttpResponse) -> IggyError:
    return RequestTimeoutError(
        f"{describe_command(command)}: the server did not wait for the rest of the request"
    )


def _too_many_requests_error(command: Command[Any], response: HttpResponse) -> IggyError:
    return ServerError(
        f"{describe_command(command)}: there are too many requests (HTTP status 429)",
        advice="Ask less often, and try again after a while.",
        retriable=True,
    )


_ERROR_FOR_HTTP_STATUS: Final[Mapping[int, Callable[[Command[Any], HttpResponse], IggyError]]] = {
    400: _unreadable_request_error,
    UNAUTHORISED: _unauthenticated_error,
    408: _too_slow_error,
    413: _too_large_error,
    415: _unreadable_request_error,
    422: _unreadable_request_error,
    429: _too_many_requests_error,
    502: _server_unreachable_error,
    503: _server_unreachable_error,
    504: _server_unreachable_error,
}
