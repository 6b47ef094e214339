"""The reason texts of error responses, with the names of streams, topics and users in them.

Clients may show them, so they are those of Apache Iggy, including the places where it confuses
stream and topic. A status without a row here has the name of the status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iggy_protocol import CommandCode, StatusCode, record, status
from iggy_ref_server.handlers.messages import offset_key
from iggy_ref_server.handlers.office import Office
from iggy_ref_server.identity.tokens import hash_token
from iggy_ref_server.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iggy_protocol import Command

__all__ = ["reason_for"]

# Sizes are rounded in these texts; elsewhere in JSON they are exact.
UNITS: Final = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "KB"))


@record
class _Case:
    """The request that failed."""

    office: Office
    session: Session
    command: Any

    def stream_id(self) -> object:
        """Return the id of the stream, or its name if it does not exist."""
        stream = self.office.metadata().find_stream(self.command.stream)
        return self.command.stream if stream is None else stream.id

    def topic_id(self) -> object:
        """Return the id of the topic, or its name if it does not exist."""
        topic = self.office.metadata().find_topic(self.command.stream, self.command.topic)
        return self.command.topic if topic is None else topic.id

    def user_id(self) -> object:
        """Return the id of the user, or its name if it does not exist."""
        user = self.office.metadata().find_user(self.command.user)
        return self.command.user if user is None else user.id


def _resource_not_found(case: _Case) -> str:
    command = case.command
    keys = (getattr(command, name, None) for name in ("user", "name", "token"))
    key = next((key for key in keys if key is not None), "")
    return f"Resource with key: {key} was not found."


def _tokens_limit(case: _Case) -> str:
    limit = case.office.settings.tokens_per_user_max
    user = f"User with ID: {case.session.user_id}"
    return f"{user} has reached the maximum number of personal access tokens: {limit}"


def _token_expired(case: _Case) -> str:
    token = case.office.metadata().find_token(hash_token(case.command.token))
    name, user_id = ("", "") if token is None else (token.name, token.user_id)
    return f"Personal access token: {name} for user with ID: {user_id} has expired."


def _topic_size(case: _Case) -> str:
    size = _rounded(case.command.max_topic_size_bytes)
    segment = _rounded(case.office.settings.segment_size_bytes)
    return (
        "Max topic size cannot be lower than segment size."
        f" Max topic size: {size} < segment size: {segment}."
    )


def _rounded(size_bytes: int) -> str:
    for factor, unit in UNITS:
        if size_bytes >= factor:
            return f"{size_bytes / factor:.2f} {unit}"
    return f"{size_bytes} B"


def _partition_not_found(case: _Case) -> str:
    command = case.command
    chosen = getattr(command, "partition_id", None)
    if chosen is None:
        chosen = getattr(getattr(command, "partitioning", None), "partition_id", None) or 0
    names = (case.topic_id(), case.stream_id())
    if command.CODE == CommandCode.DELETE_SEGMENTS:
        names = (command.topic, command.stream)
    return (
        f"Partition with ID: {chosen} for topic with ID: {names[0]}"
        f" for stream with ID: {names[1]} was not found."
    )


_SENTENCES: Final[Mapping[int, Callable[[_Case], str]]] = {
    StatusCode.RESOURCE_NOT_FOUND: _resource_not_found,
    StatusCode.CANNOT_DELETE_USER: lambda case: f"Cannot delete user with ID: {case.user_id()}",
    StatusCode.CANNOT_CHANGE_PERMISSIONS: lambda case: (
        f"Cannot change permissions for user with ID: {case.user_id()}"
    ),
    StatusCode.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS: lambda case: (
        f"Personal access token: {case.command.name}"
        f" for user with ID: {case.session.user_id} already exists"
    ),
    StatusCode.PERSONAL_ACCESS_TOKENS_LIMIT_REACHED: _tokens_limit,
    StatusCode.PERSONAL_ACCESS_TOKEN_EXPIRED: _token_expired,
    StatusCode.STREAM_ID_NOT_FOUND: lambda case: (
        f"Stream with ID: {case.command.stream} was not found."
    ),
    StatusCode.STREAM_NAME_ALREADY_EXISTS: lambda case: (
        f"Stream with name: {case.command.name} already exists."
    ),
    StatusCode.INVALID_TOPIC_SIZE: _topic_size,
    # The original puts the stream in the place of the topic, and the topic in that of the stream.
    StatusCode.TOPIC_ID_NOT_FOUND: lambda case: (
        f"Topic with ID: {case.command.stream}"
        f" for stream with ID: {case.command.topic} was not found."
    ),
    StatusCode.TOPIC_NAME_ALREADY_EXISTS: lambda case: (
        f"Topic with name: {case.command.name}"
        f" for stream with ID: {case.stream_id()} already exists."
    ),
    StatusCode.PARTITION_NOT_FOUND: _partition_not_found,
    StatusCode.CONSUMER_OFFSET_NOT_FOUND: lambda case: (
        f"Consumer offset for consumer with ID: {offset_key(case.command.consumer).id}"
        " was not found."
    ),
    StatusCode.INVALID_OFFSET: lambda case: f"Invalid offset: {case.command.offset}",
    StatusCode.CONSUMER_GROUP_ID_NOT_FOUND: lambda case: (
        f"Consumer group with ID: {case.command.group}"
        f" for topic with ID: {case.command.topic} was not found."
    ),
    StatusCode.CONSUMER_GROUP_NAME_ALREADY_EXISTS: lambda case: (
        f"Consumer group with name: {case.command.name}"
        f" for topic with ID: {case.topic_id()} already exists."
    ),
}


def reason_for(code: int, office: Office, session: Session, command: Command[Any] | None) -> str:
    """Say why a command is refused.

    Args:
        code: the status.
        office: knows the numbers of things.
        session: who asked.
        command: what was asked; None when it never became a command.
    """
    sentence = _SENTENCES.get(code)
    if sentence is not None and command is not None:
        try:
            return sentence(_Case(office, session, command))
        except AttributeError:
            # A command without the thing that its status is usually about.
            pass
    return status(code).snake_name.replace("_", " ").capitalize()
