"""Commands of JSON with options, as clients from 0.9 on write it.

A body is told from one of 0.8 by its keys. Its options become a command in the way in which those
of the other transports do: they are written in the layout of their dialect, and read again. So the
same options mean the same, and are refused for the same reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from iggy_protocol import (
    CLASSIC,
    V0_11,
    V0_12_0,
    V0_12_2,
    ByDialect,
    Command,
    CreateTopic,
    Dialect,
    Identifier,
    InvalidField,
    LocalProtocolError,
    Options,
    RemoteProtocolError,
    RuleViolation,
    StatusCode,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    UserStatus,
    decode_request,
    encode_request,
)
from iggy_protocol.rest import NewTopicBody, ResourcePatch, Route, decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

C = TypeVar("C", bound=Command[Any])

# The keys that no body of 0.8 has.
OPTIONS, RESET = "options", "reset"
# Those of an update that have fields of their own in 0.9.
NAME: Final = "name"
OLD_FIELDS: Final = ("compression_algorithm", "message_expiry", "max_topic_size")


def _violation(message: str, status: StatusCode) -> RuleViolation:
    return RuleViolation(message, field="options", status=status)


# Which shape a body has


def shape_of(route: Route, content: bytes, caller: Dialect) -> Any:
    """Return the shape of a body: that of 0.8, or that of clients from 0.9 on.

    Args:
        route: what it was sent to.
        content: the JSON.
        caller: what the client speaks, as its login has told.
    """
    if route.newer_body is None:
        return route.body
    try:
        given = decode_json(content, dict[str, msgspec.Raw])
    except RemoteProtocolError:
        return route.body
    if OPTIONS in given or RESET in given:
        return route.newer_body
    assert route.body is not None
    required = [field.encode_name for field in msgspec.structs.fields(route.body) if field.required]
    is_complete = all(bytes(given.get(name, b"null")) != b"null" for name in required)
    return route.newer_body if caller.is_vsr and not is_complete else route.body


def dialect_of_body(body: object, caller: Dialect) -> Dialect:
    """Return the dialect that a body is written in.

    Args:
        body: the JSON, in its shape; None where there is none.
        caller: what the client speaks, as its login has told.
    """
    if isinstance(body, NewTopicBody):
        is_mixed = any(getattr(body, field) is not None for field in OLD_FIELDS)
        return V0_11 if is_mixed else V0_12_2
    if isinstance(body, dict):
        return V0_11 if OPTIONS in body and RESET not in body else V0_12_2
    if getattr(body, OPTIONS, None):
        return V0_12_2
    # A topic whose settings are fields is one of 0.8, whoever asks for it.
    return CLASSIC if hasattr(body, "replication_factor") else caller


# Commands


def json_options(values: Mapping[str, Any]) -> Options:
    """Return the options of JSON; null leaves one out.

    Raises:
        RuleViolation: a value is none of an option.
    """
    try:
        return Options({key: value for key, value in values.items() if value is not None})
    except LocalProtocolError as error:
        reason = str(error)
    raise _violation(reason, StatusCode.INVALID_OPTION_VALUE)


def _as_received(command: C, dialect: Dialect) -> C:
    """Return a command as it is received in a dialect, with options in the fields they have."""
    try:
        payload = b"".join(map(bytes, encode_request(command, dialect)))  # type: ignore[arg-type]
    except LocalProtocolError as error:
        raise _violation(str(error), StatusCode.INVALID_OPTION_VALUE) from None
    received = decode_request(command.CODE, payload, dialect)
    assert isinstance(received, type(command))
    return received


def new_topic(stream: Identifier, body: NewTopicBody, dialect: Dialect) -> CreateTopic:
    """Return the command of a new topic with options.

    Raises:
        RuleViolation: the options break a rule of every wire.
        RemoteProtocolError: there are too many.
    """
    fields = {name: getattr(body, name) for name in OLD_FIELDS}
    options = json_options({**fields, **(body.options or {})})
    command = CreateTopic(stream, body.name, body.partitions_count, options=options)
    return _as_received(command, dialect)


class _Patch:
    """An update, taken apart.

    Args:
        body: the JSON.

    Attributes:
        options: what it sets.
        reset: the keys that it resets.

    Raises:
        InvalidField: it has another shape.
        RuleViolation: it sets and resets nothing, or one option twice.
    """

    def __init__(self, body: ResourcePatch) -> None:
        flat = {key: value for key, value in body.items() if key not in (OPTIONS, RESET)}
        more, reset = body.get(OPTIONS) or {}, body.get(RESET) or []
        if not isinstance(more, dict) or not isinstance(reset, list):
            raise InvalidField("options are an object, and reset is a list")
        if any(isinstance(value, dict | list) for value in flat.values()):
            raise InvalidField("the value of an option is a text, a number or a boolean")
        self.reset = frozenset(reset)
        self.options = dict(json_options({**flat, **more}))
        is_clear = len(self.reset) == len(reset) and self.reset.isdisjoint(self.options)
        if not is_clear or not (self.options or reset or OPTIONS in body):
            raise _violation(
                "an update changes something, and no option twice", StatusCode.INVALID_COMMAND
            )

    def take(self, key: str) -> str | None:
        """Take a field out of the options; None where it stays as it is."""
        if key not in self.options:
            return None
        value = self.options.pop(key).value
        if not isinstance(value, str):
            raise _violation(f"{key} is a text", StatusCode.INVALID_OPTION_VALUE)
        return value

    def take_name(self) -> str:
        """Take the name of an update that always has one."""
        name = self.take(NAME)
        if name is None:
            raise _violation("an update names the resource", StatusCode.INVALID_COMMAND)
        return name


# Updates of 0.9 say the name, and of a user the status, beside the options; later ones do not.
_NAMES_RESOURCE: Final = ByDialect(False, {V0_11: True, V0_12_0: False})


def update_topic(
    stream: Identifier, topic: Identifier, body: ResourcePatch, dialect: Dialect
) -> UpdateTopic:
    """Return the command of an update of a topic; as ``new_topic``."""
    patch = _Patch(body)
    command = UpdateTopic(
        stream,
        topic,
        patch.take_name() if _NAMES_RESOURCE[dialect] else None,
        None,
        None,
        None,
        None,
        options=Options(patch.options),
        reset=patch.reset,
    )
    return _as_received(command, dialect)


def update_stream(stream: Identifier, body: ResourcePatch, dialect: Dialect) -> UpdateStream:
    """Return the command of an update of a stream; as ``new_topic``."""
    patch = _Patch(body)
    name = patch.take_name() if _NAMES_RESOURCE[dialect] else None
    command = UpdateStream(stream, name, options=Options(patch.options), reset=patch.reset)
    return _as_received(command, dialect)


def update_user(user: Identifier, body: ResourcePatch, dialect: Dialect) -> UpdateUser:
    """Return the command of an update of a user; as ``new_topic``."""
    patch = _Patch(body)
    username: str | None = None
    status: UserStatus | None = None
    if _NAMES_RESOURCE[dialect]:
        username, told = patch.take("username"), patch.take("status")
        if told is not None and told.upper() not in UserStatus.__members__:
            raise _violation(f"{told!r} is no status", StatusCode.INVALID_OPTION_VALUE)
        status = None if told is None else UserStatus[told.upper()]
    options = Options(patch.options)
    command = UpdateUser(user, username, status, options=options, reset=patch.reset)
    return _as_received(command, dialect)
