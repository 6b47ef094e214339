"""Statistics of clients, sessions, consumers and producers, as frozen records."""

from __future__ import annotations

from iggy_protocol import ConnectionStatistics, record

__all__ = ["ClientStatistics", "SessionStatistics"]


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
