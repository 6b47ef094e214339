"""What sessions and links count, as frozen records.

Owns the numbers' names and meanings, and nothing that counts them.
"""

from __future__ import annotations

from iggy_protocol import ConnectionStatistics, record

__all__ = ["ClientStatistics", "SessionStatistics"]


@record(kw_only=True)
class SessionStatistics:
    """What one connection has done so far.

    Attributes:
        connection: frames, bytes and memory.
        answers: replies and errors that the server gave to requests.
        timeouts: requests whose answer did not come in time.
        abandoned: requests whose sender left without the answer, those out of time included.
        waiting: requests whose sender still waits.
    """

    connection: ConnectionStatistics
    answers: int
    timeouts: int
    abandoned: int
    waiting: int


@record(kw_only=True)
class ClientStatistics:
    """What a client has done so far.

    Attributes:
        epoch: the number of the present or last connection.
        dials: attempts to connect.
        dials_failed: those without success.
        redirects: connections left for that of the leader.
        disconnects: connections that ended without being closed here.
        resends: requests that were sent once more after a connection was lost.
        heartbeats: pings sent by the client itself.
        hook_failures: exceptions that hooks raised.
        session: what the present connection has done; None when there is none.
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
