"""What an answer means: a reply, an error of the server, or that no Iggy server has spoken.

Owns the table from HTTP statuses to errors. It must not know connections or tokens.
"""

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
    from iggy_sdk.http.exchange import Answer

__all__ = ["UNAUTHORISED", "read_answer"]

UNAUTHORISED: Final = 401
SERVER_ERRORS: Final = range(500, 600)
REDIRECTS: Final = range(300, 400)

QUOTED_CHARACTERS_MAX: Final = 200
"""How much of an unexpected answer an error quotes; enough to recognise a proxy by."""

PLACE_ADVICE: Final = (
    "Use the address of the server's HTTP door, whose port is 3000 unless configured, and look for"
    " a proxy in between."
)


def read_answer(command: Command[Any], route: Route, answer: Answer) -> Any:
    """Return the reply that an answer brings.

    Args:
        command: what was asked.
        route: how.
        answer: what came back.

    Raises:
        DisconnectedError: a proxy says that it cannot reach the server.
        ProtocolError: this is no answer of an Iggy server.
        IggyError: the server refuses.
    """
    encoding = answer.headers.get(b"content-encoding", b"identity")
    if encoding != b"identity":
        raise _strange(command, "an answer in an encoding that nobody asked for")
    if answer.status == route.success:
        try:
            return decode_rest_reply(command.CODE, answer.body)
        except RemoteProtocolError as error:
            raise error_from_protocol(error, command=command) from error
    return _read_refusal(command, route, answer)


def _read_refusal(command: Command[Any], route: Route, answer: Answer) -> Any:
    try:
        status = decode_rest_error(command.CODE, answer.body)
    except RemoteProtocolError:
        raise _explain(command, answer) from None
    if status is ABSENT:
        return () if get_origin(route.reply) is list else None
    assert isinstance(status, int)
    raise error_for_status(status, command=command)


def _explain(command: Command[Any], answer: Answer) -> IggyError:
    """Make an error of an answer that holds no status of Iggy's."""
    if answer.status in _ERRORS:
        return _ERRORS[answer.status](command, answer)
    if answer.status in REDIRECTS:
        where = answer.headers.get(b"location", b"another place").decode("latin-1")
        return ProtocolError(
            f"{describe_command(command)}: the answer is a redirect to {where!r}, which is not"
            " followed",
            advice="Connect to that place itself, if you trust it.",
        )
    if answer.status in SERVER_ERRORS:
        return ServerError(f"{describe_command(command)}: the server failed{_quote(answer)}")
    return _strange(command, f"HTTP status {answer.status}{_quote(answer)}")


def _strange(command: Command[Any], what: str) -> ProtocolError:
    return ProtocolError(
        f"{describe_command(command)}: {what} is no answer of an Iggy server",
        advice=PLACE_ADVICE,
    )


def _quote(answer: Answer) -> str:
    text = " ".join(answer.body[: 4 * QUOTED_CHARACTERS_MAX].decode(errors="replace").split())
    return f": {text[:QUOTED_CHARACTERS_MAX]!r}" if text else ""


def _unauthenticated(command: Command[Any], answer: Answer) -> IggyError:
    return error_for_status(StatusCode.UNAUTHENTICATED, command=command)


def _away(command: Command[Any], answer: Answer) -> IggyError:
    return DisconnectedError(
        f"{describe_command(command)}: a proxy answers that it cannot reach the server"
        f" (HTTP status {answer.status})",
        advice="Check that the server runs and that the proxy knows where, then try again.",
    )


def _unreadable(command: Command[Any], answer: Answer) -> IggyError:
    # What the server quotes of a request may be a secret, but it names fields and kinds only.
    return InvalidRequestError(
        f"{describe_command(command)}: the server could not read the request{_quote(answer)}"
    )


def _too_large(command: Command[Any], answer: Answer) -> IggyError:
    return MessageTooLarge(
        f"{describe_command(command)}: the request has more bytes than the server takes over HTTP",
        advice="Send smaller batches, or raise http.max_request_size of the server.",
    )


def _too_slow(command: Command[Any], answer: Answer) -> IggyError:
    return RequestTimeoutError(
        f"{describe_command(command)}: the server did not want to wait for the rest of the request"
    )


def _too_many(command: Command[Any], answer: Answer) -> IggyError:
    return ServerError(
        f"{describe_command(command)}: there are too many requests (HTTP status 429)",
        advice="Ask less often, and try again after a while.",
        retriable=True,
    )


_ERRORS: Final[Mapping[int, Callable[[Command[Any], Answer], IggyError]]] = {
    400: _unreadable,
    UNAUTHORISED: _unauthenticated,
    408: _too_slow,
    413: _too_large,
    415: _unreadable,
    422: _unreadable,
    429: _too_many,
    502: _away,
    503: _away,
    504: _away,
}
