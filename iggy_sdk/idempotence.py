"""Which commands may be carried out twice.

A request whose connection broke before the reply may have been carried out. Commands of this table
are sent again; for all others the caller gets the error and decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iggy_protocol import CommandCode, PollMessages

if TYPE_CHECKING:
    from iggy_protocol import Command

__all__ = ["is_repeatable"]

# Reads, and writes with the same effect the second time. Deletes are not among them: the second
# reply would be that there is no such resource, although the first delete succeeded.
_REPEATABLE: Final = frozenset(
    {
        CommandCode.PING,
        CommandCode.GET_STATS,
        CommandCode.GET_SNAPSHOT,
        CommandCode.GET_CLUSTER_METADATA,
        CommandCode.GET_ME,
        CommandCode.GET_CLIENT,
        CommandCode.GET_CLIENTS,
        CommandCode.GET_USER,
        CommandCode.GET_USERS,
        CommandCode.LOGIN_USER,
        CommandCode.GET_PERSONAL_ACCESS_TOKENS,
        CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN,
        CommandCode.FLUSH_UNSAVED_BUFFER,
        CommandCode.GET_CONSUMER_OFFSET,
        CommandCode.STORE_CONSUMER_OFFSET,
        CommandCode.GET_STREAM,
        CommandCode.GET_STREAMS,
        CommandCode.GET_TOPIC,
        CommandCode.GET_TOPICS,
        CommandCode.GET_CONSUMER_GROUP,
        CommandCode.GET_CONSUMER_GROUPS,
        CommandCode.JOIN_CONSUMER_GROUP,
    }
)


def is_repeatable(command: Command[Any]) -> bool:
    """Say whether a command may be carried out twice."""
    if isinstance(command, PollMessages):
        # With auto commit the server moves the offset on, and a second poll skips the first batch.
        return not command.auto_commit
    return command.CODE in _REPEATABLE
