"""Who is at the other end of a connection, and whether they still may be.

A session begins with a connection and without a user; a login gives it one. It remembers which
life of the user logged in, so that it ends when the user is deleted, although the number may be
given to somebody else.

Owns the session's state. Knows no sockets and no commands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iggy_protocol import StatusCode, Transport
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.records import UserRecord

if TYPE_CHECKING:
    from iggy_ref_server.metadata.state import Metadata

__all__ = ["Session", "SessionEnded"]


VISITS_MIN = 8
"""Batches and polls in a row for one other shard, after which a client is better off there. Fewer
would send clients to and fro that use partitions of several shards in turn."""


class SessionEnded(ServerFault):
    """The user of this session was deleted: answer, then close the connection."""


@dataclass(slots=True)
class Session:
    """The state of one connection that commands can see.

    Attributes:
        client_id: the number under which other clients see this one.
        address: the peer as ``host:port``.
        transport: the door it came through.
        user_id: who has logged in, or None.
        user_incarnation: which life of that user.
        is_evicted: whether the client missed its heartbeats.
        served_at: when a request was served last before a login, on the clock of the loop;
            infinite while one is being worked on.
        drawn_to: the other shard that has what this client keeps asking for, if there is one.
    """

    client_id: int
    address: str
    transport: Transport = Transport.TCP
    user_id: int | None = None
    user_incarnation: int = 0
    is_evicted: bool = False
    drawn_to: int | None = None
    served_at: float = 0.0
    _visited: int | None = field(default=None, repr=False)
    _visits_count: int = field(default=0, repr=False)
    _checked_version: int = field(default=-1, repr=False)
    _user: UserRecord | None = field(default=None, repr=False)

    def visit(self, shard_id: int | None) -> None:
        """Note which shard the client's last batch or poll was for; None is this one."""
        if shard_id != self._visited:
            self._visited, self._visits_count, self.drawn_to = shard_id, 0, None
        if shard_id is not None:
            self._visits_count += 1
            if self._visits_count >= VISITS_MIN:
                self.drawn_to = shard_id

    def stay(self) -> None:
        """Forget what drew the client away."""
        self._visited, self._visits_count, self.drawn_to = None, 0, None

    def sign_in(self, user: UserRecord) -> None:
        """Make this the session of a user."""
        self.user_id, self.user_incarnation = user.id, user.incarnation
        self._checked_version = -1

    def sign_out(self) -> None:
        """Make this the session of nobody."""
        self.user_id, self._user = None, None

    def user(self, metadata: Metadata) -> UserRecord:
        """Return the user as they are now.

        Raises:
            ServerFault: nobody has logged in, or the user may not act any more.
        """
        if self._user is not None and self._checked_version == metadata.version:
            return self._user
        return self._look_up(metadata)

    def _look_up(self, metadata: Metadata) -> UserRecord:
        self._user = None
        if self.user_id is None:
            raise ServerFault(StatusCode.UNAUTHENTICATED, "nobody has logged in")
        user = metadata.find_user(self.user_id)
        if user is None:
            self.sign_out()
            raise SessionEnded(StatusCode.UNAUTHENTICATED, "the user was deleted")
        if user.incarnation != self.user_incarnation or not user.is_active:
            self.sign_out()
            raise ServerFault(StatusCode.UNAUTHENTICATED, "the user was deactivated or replaced")
        self._user, self._checked_version = user, metadata.version
        return user
