"""HTTP requests for commands: method, path, query and body.

The rules for fields are those of the binary form, because the command is written in that form
first. What HTTP cannot express is refused here, before a connection is opened.

Replies are decoded in ``replies``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from iggy_protocol.codes import CommandCode
from iggy_protocol.commands.messages import SendMessages
from iggy_protocol.dialect import Dialect
from iggy_protocol.errors import RuleViolation
from iggy_protocol.model.identifier import ConsumerIdentity, ConsumerKind, Identifier
from iggy_protocol.options import OptionScope
from iggy_protocol.records import record
from iggy_protocol.registry import COMMANDS, Command, encode_request
from iggy_protocol.rest import bodies
from iggy_protocol.rest.codec import encode_json, permissions_to_shape
from iggy_protocol.rest.routes import ROUTES, ROUTES_BY_COMMAND, Route
from iggy_protocol.status_table import StatusCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# What Apache Iggy 0.8 reads as a numeric id where a name is allowed.
_NUMBER: Final = re.compile(r"\+?[0-9]+")
_NUMBER_MAX: Final = 2**32 - 1

# Segments that mean something else to a router or on the way to it; one escape hides that.
_LITERALS: Final = frozenset({".", "..", "login", "logout", "refresh-token"})

_UNRESERVED: Final = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
)

_GROUP_COMMANDS: Final = frozenset(
    {CommandCode.JOIN_CONSUMER_GROUP, CommandCode.LEAVE_CONSUMER_GROUP}
)

(_REFRESH,) = (route for route in ROUTES if route.operation == "refresh_token")


@record
class RestRequest:
    """A request without its host and its token.

    Attributes:
        route: the row of the table.
        target: path and query, ready for the wire.
        body: the JSON; empty when there is none. It may hold a password, so it is never shown.
    """

    route: Route
    target: str
    body: bytes

    def __repr__(self) -> str:
        return f"<RestRequest {self.route.method} {self.target}>"


def encode_rest_request(command: Command[Any]) -> RestRequest:
    """Encode a command as an HTTP request.

    Raises:
        RuleViolation: HTTP cannot express this; ``status`` is ``FEATURE_UNAVAILABLE``, or the
            status of an invalid message.
        LocalProtocolError: a field does not fit the wire, over HTTP or not.
    """
    route = ROUTES_BY_COMMAND.get(command.CODE)
    if route is None:
        raise _unavailable(_reason_of(command.CODE))
    if isinstance(command, SendMessages):
        # The batch itself is not written twice.
        encode_request(replace(command, messages=()))
    else:
        encode_request(command, _OLDEST[command.CODE])
    if isinstance(getattr(command, "consumer", None), ConsumerIdentity):
        _check_consumer(command)
    body, query = _PARTS.get(command.CODE, _nothing)(command)
    target = _path_of(route, command)
    if query:
        pairs = (f"{name}={_quoted(str(value))}" for name, value in query.items())
        target = f"{target}?{'&'.join(pairs)}"
    return RestRequest(route, target, b"" if body is None else encode_json(body))


_OLDEST: Final = {
    code: next(dialect for dialect in Dialect if spec.request[dialect] is not None)
    for code, spec in COMMANDS.items()
}
"""The oldest dialect that has each command: HTTP says no more of a command than that one does."""


def encode_refresh(token: str) -> RestRequest:
    """Write the request that exchanges a token for a fresh one."""
    return RestRequest(_REFRESH, _REFRESH.path, encode_json(bodies.RefreshTokenBody(token)))


# What HTTP cannot say


def _unavailable(reason: str) -> RuleViolation:
    return RuleViolation(reason, field="", status=StatusCode.FEATURE_UNAVAILABLE)


def _reason_of(code: CommandCode) -> str:
    if code in _GROUP_COMMANDS:
        return "HTTP has no client connections, and so no members of consumer groups"
    if code == CommandCode.GET_METADATA_CHANGES:
        return "over HTTP changes of metadata are JSON of their own, at /metadata/changes"
    return "HTTP has no client connections"


def _check_consumer(command: Any) -> None:
    if command.consumer.kind is ConsumerKind.GROUP:
        raise _unavailable("over HTTP only single consumers poll and store offsets, no groups")


def _text_of(identifier: Identifier) -> str:
    """Write what names a thing as HTTP does: a number, or a name that is none."""
    if isinstance(identifier, int):
        return str(identifier)
    if _NUMBER.fullmatch(identifier) and int(identifier) <= _NUMBER_MAX:
        raise _unavailable(f"over HTTP the name {identifier!r} would be taken for a number")
    return identifier


# Paths

_FIELDS: Final[Mapping[str, str]] = {
    "stream_id": "stream",
    "topic_id": "topic",
    "group_id": "group",
    "user_id": "user",
    "consumer_id": "consumer",
}


def _path_of(route: Route, command: Any) -> str:
    segments = (
        _segment(command, part[1:-1]) if part.startswith("{") else part
        for part in route.path.split("/")
    )
    return "/".join(segments)


def _segment(command: Any, parameter: str) -> str:
    value = getattr(command, _FIELDS.get(parameter, parameter))
    if isinstance(value, ConsumerIdentity):
        value = value.id
    if isinstance(value, OptionScope):
        return value.name.lower()
    if isinstance(value, bool):
        return "true" if value else "false"
    text = _text_of(value) if parameter in _FIELDS else str(value)
    return f"%{ord(text[0]):02X}{text[1:]}" if text in _LITERALS else _quoted(text)


def _quoted(text: str) -> str:
    """Escape all but the characters that mean themselves anywhere in a target."""
    return "".join(
        chr(byte) if byte in _UNRESERVED else f"%{byte:02X}"
        for byte in text.encode(errors="surrogateescape")
    )


# Bodies and queries

_Parts = tuple[object, "dict[str, Any] | None"]


def _nothing(command: Any) -> _Parts:
    return None, None


def _snapshot(command: Any) -> _Parts:
    names: Any = [_camel(kind.name) for kind in command.types]
    compression: Any = command.compression.name.capitalize()
    return bodies.SnapshotBody(compression, tuple(names)), None


def _camel(constant: str) -> str:
    """Write a name such as ``PROCESS_LIST`` as ``ProcessList``."""
    return "".join(word.capitalize() for word in constant.split("_"))


def _login(command: Any) -> _Parts:
    return bodies.LoginBody(
        command.username, command.password, command.version or None, command.context or None
    ), None


def _create_user(command: Any) -> _Parts:
    return bodies.CreateUserBody(
        command.username,
        command.password,
        command.status.name.lower(),
        permissions_to_shape(command.permissions),
    ), None


def _update_user(command: Any) -> _Parts:
    status = None if command.status is None else command.status.name.lower()
    return bodies.UpdateUserBody(command.username, status), None


def _update_permissions(command: Any) -> _Parts:
    return bodies.UpdatePermissionsBody(permissions_to_shape(command.permissions)), None


def _change_password(command: Any) -> _Parts:
    return bodies.ChangePasswordBody(command.current_password, command.new_password), None


def _topic_settings(command: Any) -> dict[str, Any]:
    return {
        "name": command.name,
        "compression_algorithm": command.compression.name.lower(),
        "message_expiry": command.message_expiry_us,
        "max_topic_size": command.max_topic_size_bytes,
        # Here nothing, and not zero, leaves it to the server.
        "replication_factor": command.replication_factor or None,
    }


def _create_topic(command: Any) -> _Parts:
    settings = _topic_settings(command)
    return bodies.CreateTopicBody(partitions_count=command.partitions_count, **settings), None


def _send(command: SendMessages) -> _Parts:
    partitioning: Any = command.partitioning.kind.name.lower()
    return bodies.SendMessagesBody(
        bodies.PartitioningBody(partitioning, command.partitioning.value),
        tuple(map(_message, command.messages)),
    ), None


def _message(message: Any) -> bodies.MessageBody:
    payload, message_id, block = message, 0, b""
    if not isinstance(message, bytes | bytearray | memoryview):
        # A new message, or one of a batch that is encoded already.
        payload, message_id, block = message.payload, message.id, bytes(message.user_headers)
    if not len(payload):
        raise RuleViolation(
            "over HTTP a message is not empty",
            field="payload",
            status=StatusCode.EMPTY_MESSAGE_PAYLOAD,
        )
    # The block goes as it is: taken apart into entries it would come out sorted.
    return bodies.MessageBody(payload, bodies.format_message_id(message_id), block or None)


def _poll(command: Any) -> _Parts:
    strategy = command.strategy
    return None, {
        **_consumer_query(command),
        "kind": strategy.kind.name.lower(),
        "value": strategy.value,
        "count": command.count,
        "auto_commit": "true" if command.auto_commit else "false",
    }


def _consumer_query(command: Any) -> dict[str, Any]:
    return {"consumer_id": _text_of(command.consumer.id), **_partition_query(command)}


def _partition_query(command: Any) -> dict[str, Any]:
    return {} if command.partition_id is None else {"partition_id": command.partition_id}


def _store_offset(command: Any) -> _Parts:
    consumer = command.consumer.id
    return bodies.StoreConsumerOffsetBody(
        command.offset,
        consumer if isinstance(consumer, int) else _text_of(consumer),
        command.partition_id,
    ), None


def _named(shape: type[Any]) -> Callable[[Any], _Parts]:
    """Make the body of a command that has only a name."""
    return lambda command: (shape(command.name), None)


_PARTS: Final[Mapping[CommandCode, Callable[[Any], _Parts]]] = {
    CommandCode.GET_SNAPSHOT: _snapshot,
    CommandCode.LOGIN_USER: _login,
    CommandCode.CREATE_USER: _create_user,
    CommandCode.UPDATE_USER: _update_user,
    CommandCode.UPDATE_PERMISSIONS: _update_permissions,
    CommandCode.CHANGE_PASSWORD: _change_password,
    CommandCode.CREATE_PERSONAL_ACCESS_TOKEN: lambda command: (
        bodies.CreatePersonalAccessTokenBody(command.name, command.expiry_us),
        None,
    ),
    CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN: lambda command: (
        bodies.LoginWithTokenBody(command.token),
        None,
    ),
    CommandCode.CREATE_STREAM: _named(bodies.CreateStreamBody),
    CommandCode.UPDATE_STREAM: _named(bodies.UpdateStreamBody),
    CommandCode.CREATE_TOPIC: _create_topic,
    CommandCode.UPDATE_TOPIC: lambda command: (
        bodies.UpdateTopicBody(**_topic_settings(command)),
        None,
    ),
    CommandCode.CREATE_PARTITIONS: lambda command: (
        bodies.CreatePartitionsBody(command.partitions_count),
        None,
    ),
    CommandCode.DELETE_PARTITIONS: lambda command: (
        None,
        {"partitions_count": command.partitions_count},
    ),
    CommandCode.DELETE_SEGMENTS: lambda command: (
        None,
        {"segments_count": command.segments_count},
    ),
    CommandCode.SEND_MESSAGES: _send,
    CommandCode.POLL_MESSAGES: _poll,
    CommandCode.GET_CONSUMER_OFFSET: lambda command: (None, _consumer_query(command)),
    CommandCode.STORE_CONSUMER_OFFSET: _store_offset,
    CommandCode.DELETE_CONSUMER_OFFSET: lambda command: (None, _partition_query(command)),
    CommandCode.CREATE_CONSUMER_GROUP: _named(bodies.CreateConsumerGroupBody),
}
