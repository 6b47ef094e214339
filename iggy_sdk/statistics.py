"""Statistics of clients, sessions, consumers and producers, as frozen records."""

from __future__ import annotations

from iggy_protocol import ConnectionStatistics, record

# The counters of sessions and clients.


@record(kw_only=True)
class SessionStatistics:
    """The counters of one connection.

    Attributes:
        connection: frames, bytes and memory.
        answers: replies and errors of the server.
        timeouts: requests whose reply did not arrive in time.
        abandoned: requests that were cancelled or timed out before the reply.
        waiting: requests that wait for a reply.
    """

    connection: ConnectionStatistics
    answers: int
    timeouts: int
    abandoned: int
    waiting: int


@record(kw_only=True)
class ClientStatistics:
    """The counters of a client.

    Attributes:
        epoch: the number of the present or last connection.
        dials: attempts to connect.
        dials_failed: attempts that failed.
        redirects: moves to the leader of the cluster.
        disconnects: connections that ended without being closed here.
        resends: requests that were sent again after a connection was lost.
        heartbeats: pings sent by the client itself.
        hook_failures: exceptions that hooks raised.
        session: the counters of the present connection; None without one.
    """

    epoch: int
    dials: int
    dials_failed: int
    redirects: int
    disconnects: int
    resends: int
    heartbeats: int
    hook_failures: int
    session: SessionStatistics | None


@record(kw_only=True)
class LatencySummary:
    """How long something took, in seconds; percentiles are right to about 9 %.

    Attributes:
        count: how often it was measured.
        mean_s: the mean.
        p50_s: the median.
        p99_s: what 99 of 100 did not exceed.
        max_s: the longest.
    """

    count: int = 0
    mean_s: float = 0.0
    p50_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0


NO_LATENCIES = LatencySummary()


@record(kw_only=True)
class ConsumerStatistics:
    """A snapshot; all counts only grow, except ``buffered``, ``prefetched`` and ``in_progress``.

    Attributes:
        messages: new messages of all polls.
        polls: polls, those of 0 messages included that only determine the next partition.
        empty_polls: polls that brought nothing new.
        buffered: messages that wait for delivery, without those that were fetched ahead.
        prefetched: messages that were fetched ahead.
        in_progress: messages that the handlers of ``run`` hold, or that wait for them.
        commits: offsets that were stored.
        commits_dropped: offsets that were not stored because the partition has another owner.
        commits_held: offsets that were not stored during a replay, because a later one is.
        commit_failures: stores that failed; they are tried again where that may help.
        joins: how often the group was joined.
        handler_failures: calls of a handler that raised.
        handler_retries: how often a handler was called again.
        dead_letters: messages that failed and were sent to the dead letter producer.
        fetch_latency: how long polls took that brought messages.
        handler_latency: how long each call of the handler of ``run`` took.
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
    prefetched: int = 0
    commits_held: int = 0
    fetch_latency: LatencySummary = NO_LATENCIES
    handler_latency: LatencySummary = NO_LATENCIES


# The counters of a producer.


@record(kw_only=True)
class ProducerStatistics:
    """The counters of a producer.

    Attributes:
        accepted_count: messages accepted from callers.
        delivered_count: messages that the server acknowledged.
        failed_count: messages that were not sent.
        batches_count: requests that the server acknowledged.
        retries_count: attempts after the first.
        buffered_bytes: bytes in the buffer or in flight.
        in_flight_count: requests that wait for their answers.
        blocked_count: callers that wait for space in the buffer.
        callback_errors_count: exceptions that ``on_error`` raised.
    """

    accepted_count: int = 0
    delivered_count: int = 0
    failed_count: int = 0
    batches_count: int = 0
    retries_count: int = 0
    buffered_bytes: int = 0
    in_flight_count: int = 0
    blocked_count: int = 0
    callback_errors_count: int = 0
