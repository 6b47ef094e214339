"""Which commands are sent again after a lost connection: a decision for each of them."""

from __future__ import annotations

import pytest

from iggy_protocol import (
    CLASSIC,
    COMMANDS,
    ConsumerIdentity,
    PollingStrategy,
    PollMessages,
    commands_of,
)
from iggy_sdk.session.pending_requests import is_repeatable

# What happens twice when it is sent twice, or answers differently the second time.
ONCE = {
    "ChangePassword",
    "CreateConsumerGroup",
    "CreatePartitions",
    "CreatePersonalAccessToken",
    "CreateStream",
    "CreateTopic",
    "CreateUser",
    "DeleteConsumerGroup",
    "DeleteConsumerOffset",
    "DeletePartitions",
    "DeletePersonalAccessToken",
    "DeleteSegments",
    "DeleteStream",
    "DeleteTopic",
    "DeleteUser",
    "LeaveConsumerGroup",
    "LogoutUser",
    "PurgeStream",
    "PurgeTopic",
    "SendMessages",
    "UpdatePermissions",
    "UpdateStream",
    "UpdateTopic",
    "UpdateUser",
}
KINDS = [COMMANDS[code].command for code in sorted(commands_of(CLASSIC) - {PollMessages.CODE})]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_command_when_its_answer_is_lost_then_the_table_knows_what_to_do(kind):
    assert is_repeatable(object.__new__(kind)) is (kind.__name__ not in ONCE)


@pytest.mark.parametrize("auto_commit", [True, False])
def test_poll_when_its_answer_is_lost_then_is_repeated_unless_it_committed(auto_commit):
    consumer, strategy = ConsumerIdentity.single("me"), PollingStrategy.next()
    poll = PollMessages(consumer, "shop", "orders", strategy, 10, 0, auto_commit=auto_commit)

    assert is_repeatable(poll) is not auto_commit
