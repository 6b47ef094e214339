"""What a consumer has done so far, as numbers."""

from __future__ import annotations

from iggy_protocol import record

__all__ = ["ConsumerStatistics"]


@record(kw_only=True)
class ConsumerStatistics:
    """A snapshot; all numbers only grow, except ``buffered`` and ``in_progress``.

    Attributes:
        messages: messages that polls brought and that were new.
        polls: requests for messages, those included that only ask whose turn it is.
        empty_polls: polls that brought nothing new.
        buffered: messages that wait to be handed out.
        in_progress: messages that are with the handlers of ``run``, or wait for them.
        commits: offsets that were stored.
        commits_dropped: offsets that were not stored because the partition has another owner.
        commit_failures: stores that failed; they are tried again where that may help.
        joins: how often the group was joined.
        handler_failures: calls of a handler that raised.
        handler_retries: messages that were given to a handler once more.
        dead_letters: messages that were given up and sent elsewhere.
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
