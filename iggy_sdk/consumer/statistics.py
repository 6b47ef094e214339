"""The counters of a consumer."""

from __future__ import annotations

from iggy_protocol import record

__all__ = ["ConsumerStatistics"]


@record(kw_only=True)
class ConsumerStatistics:
    """A snapshot; all numbers only grow, except ``buffered`` and ``in_progress``.

    Attributes:
        messages: new messages of all polls.
        polls: polls, those of 0 messages included that only determine the next partition.
        empty_polls: polls that brought nothing new.
        buffered: messages that wait for delivery.
        in_progress: messages that the handlers of ``run`` hold, or that wait for them.
        commits: offsets that were stored.
        commits_dropped: offsets that were not stored because the partition has another owner.
        commit_failures: stores that failed; they are tried again where that may help.
        joins: how often the group was joined.
        handler_failures: calls of a handler that raised.
        handler_retries: how often a handler was called again.
        dead_letters: messages that failed and were sent to the dead letter producer.
    """

    messages: int
    polls: int
    empty_polls: int
    buffered: int
    in_progress: int
    commits: int
    commits_dropped: int
    commit_failures: int
    joins: int
    handler_failures: int
    handler_retries: int
    dead_letters: int
