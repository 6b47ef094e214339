"""When a client sends a request once more, and how: a table by dialect and status.

    REPEAT     the identical frame, after a pause
    RENUMBER   the same command as a new request
    REBIND     bind the session to a new connection, then send the identical frame
    FAIL       tell the caller

A server from 0.10 on remembers what it has committed for a session, so the identical frame is safe
there, whatever became of the first one. In 0.9 a connection that is lost ends the session, and a
write that was on its way is never sent again.

After ``TRANSIENT_NOT_COMMITTED`` the outcome is unknown: from then on only a reply that is marked
as committed tells it. Pauses and deadlines are the caller's.

A server remembers the newest writes only, so a client sends a write when the one before it in the
same lane is answered (``write_lane``).
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from iggy_protocol.codes import CommandCode
from iggy_protocol.dialect import V0_11, Dialect
from iggy_protocol.records import record
from iggy_protocol.status_table import StatusCode
from iggy_protocol.vsr.evictions import KEPT_SESSIONS
from iggy_protocol.vsr.operations import (
    LOGOUT,
    NON_REPLICATED,
    PARTITION_OPERATIONS,
    operation_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


POLLS: Final = frozenset(
    {
        CommandCode.POLL_MESSAGES,
        CommandCode.POLL_DEFERRED,
        CommandCode.WAIT_FOR_MESSAGES,
        CommandCode.FETCH_MESSAGES,
    }
)
SENDS: Final = frozenset({CommandCode.SEND_MESSAGES})


class RepeatAction(Enum):
    """How a request is sent once more, if at all."""

    REPEAT = "send the identical frame again"
    RENUMBER = "send the command as a new request"
    REBIND = "bind the session to a new connection and send the identical frame again"
    FAIL = "tell the caller"


class Refresh(Enum):
    """What to ask the server before a request is sent once more."""

    NOTHING = "nothing"
    ROSTER = "which node leads"
    ROUTE = "where the partition is"
    GROUP = "which partitions the member owns"


@record
class RepeatRule:
    """What to do after one outcome of a request.

    Attributes:
        action: how to send it once more.
        refresh: what to ask first.
        is_once: whether a second outcome of this kind is told to the caller.
        codes: the commands that the rule is for; empty for all. The others fail.
        needs_no_context: whether a request with a context given by the caller fails.
    """

    action: RepeatAction
    refresh: Refresh = Refresh.NOTHING
    is_once: bool = False
    codes: frozenset[int] = frozenset()
    needs_no_context: bool = False


FAIL: Final = RepeatRule(RepeatAction.FAIL)
REPEAT: Final = RepeatRule(RepeatAction.REPEAT)
RENUMBER: Final = RepeatRule(RepeatAction.RENUMBER)
REBIND: Final = RepeatRule(RepeatAction.REBIND)

_RULES_0_11: Mapping[int, RepeatRule] = MappingProxyType(
    {
        StatusCode.TRANSIENT_NOT_COMMITTED: REPEAT,
        StatusCode.TRANSIENT_NOT_ACCEPTED: RepeatRule(RepeatAction.REPEAT, Refresh.ROSTER),
        StatusCode.REQUEST_ALREADY_APPLIED: FAIL,
    }
)
_RULES_0_12: Mapping[int, RepeatRule] = MappingProxyType(
    {
        StatusCode.TRANSIENT_NOT_COMMITTED: REPEAT,
        StatusCode.TRANSIENT_NOT_ACCEPTED: RepeatRule(RepeatAction.REPEAT, Refresh.ROSTER),
        StatusCode.REQUEST_TOO_OLD: FAIL,
        StatusCode.PARTITION_HISTORY_UNAVAILABLE: RepeatRule(
            RepeatAction.RENUMBER,
            Refresh.ROUTE,
            is_once=True,
            codes=SENDS,
            needs_no_context=True,
        ),
        StatusCode.LIFECYCLE_OPERATION_PENDING: RENUMBER,
        StatusCode.NOT_PRIMARY: RepeatRule(RepeatAction.REPEAT, Refresh.ROUTE),
        StatusCode.TOO_MANY_DEFERRED_POLLS: REPEAT,
        StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED: RepeatRule(
            RepeatAction.RENUMBER, Refresh.GROUP, is_once=True, codes=POLLS
        ),
    }
)


def repeat_rule(
    dialect: Dialect, code: int, status: int, *, has_context: bool = False
) -> RepeatRule:
    """Return what to do when a request was answered with an error.

    Args:
        dialect: what the server speaks.
        code: the command of the request.
        status: the error.
        has_context: whether the caller gave the state of the partition, as from an earlier poll.
    """
    rule = (_RULES_0_11 if dialect is V0_11 else _RULES_0_12).get(status, FAIL)
    is_other = bool(rule.codes) and code not in rule.codes
    return FAIL if is_other or (rule.needs_no_context and has_context) else rule


def rule_after_loss(dialect: Dialect, code: int, *, moves_offset: bool = False) -> RepeatRule:
    """Return what to do when the connection was lost before the answer.

    Args:
        dialect: what the server speaks.
        code: the command of the request.
        moves_offset: whether the request reads and stores an offset at once, as a poll with
            auto-commit does. It may have skipped messages that were never delivered.
    """
    if dialect is V0_11:
        is_harmless = operation_of(code, dialect) in {NON_REPLICATED, LOGOUT}
        return RENUMBER if is_harmless else FAIL
    return FAIL if moves_offset else REBIND


def rule_after_eviction(
    dialect: Dialect, code: int, reason: int, *, moves_offset: bool = False
) -> RepeatRule:
    """Return what to do when an eviction came in place of the answer."""
    if dialect is V0_11 or reason not in KEPT_SESSIONS:
        return FAIL
    return rule_after_loss(dialect, code, moves_offset=moves_offset)


class WriteLane(Enum):
    """Which requests of a session are on their way one after another."""

    NONE = "reads, which need no order"
    SESSION = "all writes of the session"
    METADATA = "all writes that change metadata"
    PARTITION = "those with the same command to the same partition"


def write_lane(dialect: Dialect, code: int) -> WriteLane:
    """Return which requests must be answered before one with this code is sent."""
    operation = operation_of(code, dialect)
    if operation == NON_REPLICATED:
        return WriteLane.NONE
    if dialect is V0_11:
        # A server of 0.9 remembers one number for all writes, and drops a smaller one.
        return WriteLane.SESSION
    return WriteLane.PARTITION if operation in PARTITION_OPERATIONS else WriteLane.METADATA
