"""Rules with a status of their own: checked after decoding, at both ends of every range."""

from __future__ import annotations

import pytest

from iggy_protocol.commands.system import GetClient, Ping
from iggy_protocol.commands.topics import CreatePartitions, CreateTopic, DeletePartitions
from iggy_protocol.commands.users import (
    ChangePassword,
    CreatePersonalAccessToken,
    CreateUser,
    LoginUser,
    UpdateUser,
)
from iggy_protocol.errors import RuleViolation
from iggy_protocol.status_table import StatusCode
from iggy_protocol.validation import validate

GOOD = [
    Ping(),
    LoginUser("abc", "abc"),
    LoginUser("a" * 50, "a" * 100),
    UpdateUser(1),
    UpdateUser(1, username="abc"),
    ChangePassword(1, "abc", "def"),
    CreatePersonalAccessToken("abc"),
    CreatePersonalAccessToken("a" * 30),
    GetClient(1),
    CreateTopic("s", "t", 0),
    CreateTopic("s", "t", 1000),
    CreatePartitions("s", "t", 1),
    CreatePartitions("s", "t", 1000),
    DeletePartitions("s", "t", 2**32 - 1),
    # Not for validation to refuse: no encoder writes it.
    LoginUser("a\ud800", "abc"),
]

BAD = [
    (LoginUser("ab", "abc"), "username", StatusCode.INVALID_USERNAME),
    (LoginUser("a" * 51, "abc"), "username", StatusCode.INVALID_USERNAME),
    (LoginUser("é" * 26, "abc"), "username", StatusCode.INVALID_USERNAME),
    (LoginUser("abc", "ab"), "password", StatusCode.INVALID_PASSWORD),
    (CreateUser("abc", "a" * 101), "password", StatusCode.INVALID_PASSWORD),
    (CreateUser("ab", "ab"), "username", StatusCode.INVALID_USERNAME),
    (UpdateUser(1, username="ab"), "username", StatusCode.INVALID_USERNAME),
    (ChangePassword(1, "", "abc"), "current_password", StatusCode.INVALID_PASSWORD),
    (ChangePassword(1, "abc", "ab"), "new_password", StatusCode.INVALID_PASSWORD),
    (CreatePersonalAccessToken("ab"), "name", StatusCode.INVALID_PERSONAL_ACCESS_TOKEN_NAME),
    (CreatePersonalAccessToken("a" * 31), "name", StatusCode.INVALID_PERSONAL_ACCESS_TOKEN_NAME),
    (GetClient(0), "client_id", StatusCode.INVALID_CLIENT_ID),
    (CreateTopic("s", "t", 1001), "partitions_count", StatusCode.TOO_MANY_PARTITIONS),
    (CreatePartitions("s", "t", 0), "partitions_count", StatusCode.TOO_MANY_PARTITIONS),
    (CreatePartitions("s", "t", 1001), "partitions_count", StatusCode.TOO_MANY_PARTITIONS),
    (DeletePartitions("s", "t", 0), "partitions_count", StatusCode.TOO_MANY_PARTITIONS),
]


@pytest.mark.parametrize("command", GOOD, ids=repr)
def test_command_when_within_the_rules_then_passes(command):
    validate(command)


@pytest.mark.parametrize(("command", "field", "status"), BAD, ids=repr)
def test_command_when_it_breaks_a_rule_then_violation_has_field_and_status(command, field, status):
    with pytest.raises(RuleViolation) as caught:
        validate(command)
    assert (caught.value.field, caught.value.status) == (field, status)
