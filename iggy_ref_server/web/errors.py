"""Error responses, in the three forms of Apache Iggy.

An error of a handler becomes a JSON body with the status of the binary protocol. A malformed path,
query or body becomes a line of text. A missing or invalid token gets an empty response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from iggy_protocol import (
    NO_OPTIONS,
    Command,
    CommandCode,
    CreateTopic,
    StatusCode,
    record,
    status,
)
from iggy_protocol.rest import NOT_FOUND, ErrorShape, encode_json, status_for
from iggy_ref_server.dispatch.context import HandlerContext
from iggy_ref_server.dispatch.dispatcher import reply_for_error
from iggy_ref_server.dispatch.handlers.messages import offset_key
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.identity.credentials import hash_token
from iggy_ref_server.metadata.options import segment_size_of
from iggy_ref_server.session import ClientSession

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# The reason texts of error responses, with the names of streams, topics and users in them.
#
# Clients may show them, so they are those of Apache Iggy, including the places where it confuses
# stream and topic. A status without a row here has the name of the status.


# Sizes are rounded in these texts; elsewhere in JSON they are exact.
UNITS: Final = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "KB"))


@record
class _ErrorContext:
    """The request that failed."""

    handler_context: HandlerContext
    session: ClientSession
    command: Any

    def stream_id(self) -> object:
        """Return the id of the stream, or its name if it does not exist."""
        stream = self.handler_context.metadata().find_stream(self.command.stream)
        return self.command.stream if stream is None else stream.id

    def topic_id(self) -> object:
        """Return the id of the topic, or its name if it does not exist."""
        topic = self.handler_context.metadata().find_topic(self.command.stream, self.command.topic)
        return self.command.topic if topic is None else topic.id

    def user_id(self) -> object:
        """Return the id of the user, or its name if it does not exist."""
        user = self.handler_context.metadata().find_user(self.command.user)
        return self.command.user if user is None else user.id


def _resource_not_found(error_context: _ErrorContext) -> str:
    command = error_context.command
    keys = (getattr(command, name, None) for name in ("user", "name", "token"))
    key = next((key for key in keys if key is not None), "")
    return f"Resource with key: {key} was not found."


def _tokens_limit(error_context: _ErrorContext) -> str:
    limit = error_context.handler_context.settings.tokens_per_user_max
    user = f"User with ID: {error_context.session.user_id}"
    return f"{user} has reached the maximum number of personal access tokens: {limit}"


def _token_expired(error_context: _ErrorContext) -> str:
    token = error_context.handler_context.metadata().find_token(
        hash_token(error_context.command.token)
    )
    name, user_id = ("", "") if token is None else (token.name, token.user_id)
    return f"Personal access token: {name} for user with ID: {user_id} has expired."


def _topic_size(error_context: _ErrorContext) -> str:
    command, settings = error_context.command, error_context.handler_context.settings
    options = command.options
    if not isinstance(command, CreateTopic):
        topic = error_context.handler_context.metadata().find_topic(command.stream, command.topic)
        options = NO_OPTIONS if topic is None else topic.options
    size = _rounded(command.max_topic_size_bytes)
    segment = _rounded(segment_size_of(options, settings))
    return (
        "Max topic size cannot be lower than segment size."
        f" Max topic size: {size} < segment size: {segment}."
    )


def _rounded(size_bytes: int) -> str:
    for factor, unit in UNITS:
        if size_bytes >= factor:
            return f"{size_bytes / factor:.2f} {unit}"
    return f"{size_bytes} B"


def _partition_not_found(error_context: _ErrorContext) -> str:
    command = error_context.command
    chosen = getattr(command, "partition_id", None)
    if chosen is None:
        chosen = getattr(getattr(command, "partitioning", None), "partition_id", None) or 0
    names = (error_context.topic_id(), error_context.stream_id())
    if command.CODE == CommandCode.DELETE_SEGMENTS:
        names = (command.topic, command.stream)
    return (
        f"Partition with ID: {chosen} for topic with ID: {names[0]}"
        f" for stream with ID: {names[1]} was not found."
    )


_REASONS: Final[Mapping[int, Callable[[_ErrorContext], str]]] = {
    StatusCode.RESOURCE_NOT_FOUND: _resource_not_found,
    StatusCode.CANNOT_DELETE_USER: lambda error_context: (
        f"Cannot delete user with ID: {error_context.user_id()}"
    ),
    StatusCode.CANNOT_CHANGE_PERMISSIONS: lambda error_context: (
        f"Cannot change permissions for user with ID: {error_context.user_id()}"
    ),
    StatusCode.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS: lambda error_context: (
        f"Personal access token: {error_context.command.name}"
        f" for user with ID: {error_context.session.user_id} already exists"
    ),
    StatusCode.PERSONAL_ACCESS_TOKENS_LIMIT_REACHED: _tokens_limit,
    StatusCode.PERSONAL_ACCESS_TOKEN_EXPIRED: _token_expired,
    StatusCode.STREAM_ID_NOT_FOUND: lambda error_context: (
        f"Stream with ID: {error_context.command.stream} was not found."
    ),
    StatusCode.STREAM_NAME_ALREADY_EXISTS: lambda error_context: (
        f"Stream with name: {error_context.command.name} already exists."
    ),
    StatusCode.INVALID_TOPIC_SIZE: _topic_size,
    # Apache Iggy swaps stream and topic in this text.
    StatusCode.TOPIC_ID_NOT_FOUND: lambda error_context: (
        f"Topic with ID: {error_context.command.stream}"
        f" for stream with ID: {error_context.command.topic} was not found."
    ),
    StatusCode.TOPIC_NAME_ALREADY_EXISTS: lambda error_context: (
        f"Topic with name: {error_context.command.name}"
        f" for stream with ID: {error_context.stream_id()} already exists."
    ),
    StatusCode.PARTITION_NOT_FOUND: _partition_not_found,
    StatusCode.CONSUMER_OFFSET_NOT_FOUND: lambda error_context: (
        f"Consumer offset for consumer with ID: {offset_key(error_context.command.consumer).id}"
        " was not found."
    ),
    StatusCode.INVALID_OFFSET: lambda error_context: (
        f"Invalid offset: {error_context.command.offset}"
    ),
    StatusCode.CONSUMER_GROUP_ID_NOT_FOUND: lambda error_context: (
        f"Consumer group with ID: {error_context.command.group}"
        f" for topic with ID: {error_context.command.topic} was not found."
    ),
    StatusCode.CONSUMER_GROUP_NAME_ALREADY_EXISTS: lambda error_context: (
        f"Consumer group with name: {error_context.command.name}"
        f" for topic with ID: {error_context.topic_id()} already exists."
    ),
}


def reason_for(
    code: int, handler_context: HandlerContext, session: ClientSession, command: Command[Any] | None
) -> str:
    """Return the reason text of a refused command.

    Args:
        code: the status.
        handler_context: for the names and ids in the text.
        session: the caller.
        command: the command; None if the request never became one.
    """
    reason_text = _REASONS.get(code)
    if reason_text is not None and command is not None:
        try:
            return reason_text(_ErrorContext(handler_context, session, command))
        except AttributeError:
            # The command has no field for the resource that this status names.
            pass
    return status(code).snake_name.replace("_", " ").capitalize()


JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
INTERNAL_SERVER_ERROR: Final = 500

# Where Apache Iggy replies with a plain "not found" that does not name the resource.
PLAIN_NOT_FOUND: Final = frozenset(
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
    error: Exception,
    handler_context: HandlerContext,
    session: ClientSession,
    command: Command[Any] | None,
) -> Response:
    """Make the response for an exception.

    Args:
        error: the exception.
        handler_context: for the names in the reason.
        session: the caller.
        command: the command; None if the request never became one.
    """
    if isinstance(error, Rejection):
        return error.response()
    status = reply_for_error(error).status
    if status == StatusCode.ERROR and not isinstance(error, ServerFault):
        return json_response(encode_json(ErrorShape.of(status)), INTERNAL_SERVER_ERROR)
    if command is not None and (command.CODE, status) in PLAIN_NOT_FOUND:
        return not_found_response()
    shape = ErrorShape.of(status, reason_for(status, handler_context, session, command))
    return json_response(encode_json(shape), status_for(status))
