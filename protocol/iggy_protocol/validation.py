"""The rules that have a status of their own, as a pass after decoding.

Decoding checks the bytes of a command; ``validate`` checks the rules of its fields and options. A
server runs it after decoding and before any lookup; a client may run it to fail early. Lengths
count bytes, not characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iggy_protocol.commands.messages import SendMessages
from iggy_protocol.commands.streams import CreateStream, UpdateStream
from iggy_protocol.commands.system import GetClient
from iggy_protocol.commands.topics import (
    CreatePartitions,
    CreateTopic,
    DeletePartitions,
    UpdateTopic,
)
from iggy_protocol.commands.users import (
    ChangePassword,
    CreatePersonalAccessToken,
    CreateUser,
    LoginUser,
    UpdateUser,
)
from iggy_protocol.dialect import CLASSIC, Dialect
from iggy_protocol.errors import RuleViolation
from iggy_protocol.options import (
    PREALLOCATED_BYTES_MAX,
    OptionFlags,
    OptionScope,
    check_created_options,
    check_updated_options,
    option_spec,
    options_of,
)
from iggy_protocol.status_table import StatusCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iggy_protocol.registry import Command


PARTITIONS_PER_REQUEST_MAX = 1000
USERNAME_SIZES = range(3, 51)
PASSWORD_SIZES = range(3, 101)
TOKEN_NAME_SIZES = range(3, 31)


def _text_rule(field: str, sizes: range, status: StatusCode) -> Callable[[Any], None]:
    def check(command: Any) -> None:
        text: str | None = getattr(command, field)
        if text is None:
            return
        # The encoder refuses text that UTF-8 cannot encode; here only its length is checked.
        size = len(text.encode(errors="surrogatepass"))
        if size not in sizes:
            raise RuleViolation(
                f"{field} has {size} bytes, allowed are {sizes[0]} to {sizes[-1]}",
                field=field,
                status=status,
            )

    return check


def _number_rule(field: str, allowed: range, status: StatusCode) -> Callable[[Any], None]:
    def check(command: Any) -> None:
        number: int = getattr(command, field)
        if number not in allowed:
            raise RuleViolation(
                f"{field} is {number}, allowed are {allowed[0]} to {allowed[-1]}",
                field=field,
                status=status,
            )

    return check


def _check_batch(command: SendMessages) -> None:
    if command.fault is not None:
        raise command.fault


_USERNAME = _text_rule("username", USERNAME_SIZES, StatusCode.INVALID_USERNAME)
_PASSWORD = _text_rule("password", PASSWORD_SIZES, StatusCode.INVALID_PASSWORD)

_RULES: Mapping[type[Command[Any]], tuple[Callable[[Any], None], ...]] = {
    LoginUser: (_USERNAME, _PASSWORD),
    CreateUser: (_USERNAME, _PASSWORD),
    UpdateUser: (_USERNAME,),
    ChangePassword: (
        _text_rule("current_password", PASSWORD_SIZES, StatusCode.INVALID_PASSWORD),
        _text_rule("new_password", PASSWORD_SIZES, StatusCode.INVALID_PASSWORD),
    ),
    CreatePersonalAccessToken: (
        _text_rule("name", TOKEN_NAME_SIZES, StatusCode.INVALID_PERSONAL_ACCESS_TOKEN_NAME),
    ),
    GetClient: (_number_rule("client_id", range(1, 2**32), StatusCode.INVALID_CLIENT_ID),),
    CreateTopic: (
        _number_rule(
            "partitions_count",
            range(PARTITIONS_PER_REQUEST_MAX + 1),
            StatusCode.TOO_MANY_PARTITIONS,
        ),
    ),
    CreatePartitions: (
        _number_rule(
            "partitions_count",
            range(1, PARTITIONS_PER_REQUEST_MAX + 1),
            StatusCode.TOO_MANY_PARTITIONS,
        ),
    ),
    DeletePartitions: (
        _number_rule("partitions_count", range(1, 2**32), StatusCode.TOO_MANY_PARTITIONS),
    ),
    SendMessages: (_check_batch,),
}


# Options


def _check_preallocation(command: CreateTopic, dialect: Dialect) -> None:
    options = check_created_options(OptionScope.TOPIC, command.options, dialect)
    preallocate = options.get("preallocate_segments")
    if preallocate is None or not preallocate.value:
        return
    size = options.get("segment_size") or option_spec(OptionScope.TOPIC, "segment_size").default
    assert size is not None
    if int(size.value) * command.partitions_count > PREALLOCATED_BYTES_MAX:
        raise RuleViolation(
            f"the first segments would take more than {PREALLOCATED_BYTES_MAX} bytes",
            field="options",
            status=StatusCode.INVALID_OPTION_VALUE,
        )


def _check_topic_update(command: UpdateTopic, dialect: Dialect) -> None:
    check_updated_options(OptionScope.TOPIC, command.options, command.reset, dialect)
    compression = options_of(OptionScope.TOPIC, dialect).get("compression_algorithm")
    if command.compression is None or compression is None:
        return
    if OptionFlags.UPDATABLE not in compression.flags[dialect]:
        raise RuleViolation(
            "the compression of a topic cannot be changed",
            field="compression",
            status=StatusCode.OPTION_NOT_UPDATABLE,
        )


def _created(scope: OptionScope) -> Callable[[Any, Dialect], None]:
    def check(command: Any, dialect: Dialect) -> None:
        check_created_options(scope, command.options, dialect)

    return check


def _updated(scope: OptionScope) -> Callable[[Any, Dialect], None]:
    def check(command: Any, dialect: Dialect) -> None:
        check_updated_options(scope, command.options, command.reset, dialect)

    return check


_OPTION_RULES: Mapping[type[Command[Any]], Callable[[Any, Dialect], None]] = {
    CreateStream: _created(OptionScope.STREAM),
    CreateTopic: _check_preallocation,
    CreateUser: _created(OptionScope.USER),
    UpdateStream: _updated(OptionScope.STREAM),
    UpdateTopic: _check_topic_update,
    UpdateUser: _updated(OptionScope.USER),
}


def validate(command: Command[Any], dialect: Dialect = CLASSIC) -> None:
    """Check a command against the rules of its fields and, from 0.9 on, of its options.

    Args:
        command: what a client asks for.
        dialect: what the client speaks; other options are known in each.

    Raises:
        RuleViolation: a field breaks a rule; ``status`` says what a server answers.
        InvalidBatch: the messages of a received SendMessages must not be stored.
    """
    for rule in _RULES.get(type(command), ()):
        rule(command)
    options_rule = _OPTION_RULES.get(type(command))
    if options_rule is not None:
        options_rule(command, dialect)
