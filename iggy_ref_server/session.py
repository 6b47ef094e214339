"""The session of a client: its connection and the user who has logged in.

A session starts without a user; a login sets one. It keeps the incarnation of the user, so that it
ends when the user is deleted, even if the user id is assigned again.

From 0.9 on a login also binds the connection to a session of the wire, which has a number. User and
binding begin and end together, here and nowhere else; connections are told.

Knows no sockets and no commands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from iggy_protocol import CLASSIC, Dialect, SessionBinding, StatusCode, Transport
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.state import Metadata, UserRecord
from iggy_ref_server.sessions.table import member_id_of

MIGRATION_REQUESTS_MIN = 8
"""Consecutive batches and polls for one other shard after which the connection migrates there. With
fewer, a client that alternates between partitions of several shards would migrate all the time."""


class SessionEnded(ServerFault):
    """The user of this session was deleted: reply, then close the connection."""


@dataclass(slots=True)
class ClientSession:
    """The state of one connection that commands can see.

    Attributes:
        client_id: the number under which other clients see this one.
        address: the peer as ``host:port``.
        transport: the transport of its connection.
        user_id: the user who has logged in, or None.
        user_generation: the incarnation of that user.
        binding: the session of the wire that the login made, from 0.9 on; None for others.
        attached_session: the number of the session that counts this connection as one of its own,
            also when the binding has ended; 0 for none. Shard 0 is told when the connection goes.
        is_evicted: whether the client missed its heartbeats.
        last_served_at: when the last request before a login was handled, on the clock of the loop;
            infinite while one is being handled.
        preferred_shard: the other shard that owns the partitions this client keeps using, if any.
    """

    client_id: int
    address: str
    transport: Transport = Transport.TCP
    user_id: int | None = None
    user_generation: int = 0
    binding: SessionBinding | None = None
    attached_session: int = 0
    is_evicted: bool = False
    preferred_shard: int | None = None
    last_served_at: float = 0.0
    _last_owner: int | None = field(default=None, repr=False)
    _owner_requests_count: int = field(default=0, repr=False)
    _checked_version: int = field(default=-1, repr=False)
    _user: UserRecord | None = field(default=None, repr=False)

    def count_owner(self, shard_id: int | None) -> None:
        """Count the owner shard of the client's last batch or poll; None is this shard."""
        if shard_id != self._last_owner:
            self._last_owner, self._owner_requests_count, self.preferred_shard = shard_id, 0, None
        if shard_id is not None:
            self._owner_requests_count += 1
            if self._owner_requests_count >= MIGRATION_REQUESTS_MIN:
                self.preferred_shard = shard_id

    def clear_preference(self) -> None:
        """Clear the preferred shard and its count."""
        self._last_owner, self._owner_requests_count, self.preferred_shard = None, 0, None

    @property
    def dialect(self) -> Dialect:
        """What the client speaks, as far as its login tells; classic without a binding."""
        return CLASSIC if self.binding is None else self.binding.dialect

    @property
    def member_id(self) -> int:
        """What the client is in consumer groups: its connection, or a session that outlives it."""
        if self.binding is None or not self.binding.dialect.binds_sessions:
            return self.client_id
        return member_id_of(self.binding.session)

    def log_in(self, user: UserRecord, binding: SessionBinding | None = None) -> None:
        """Set the user of this session, and from 0.9 on what its login has bound."""
        self.user_id, self.user_generation = user.id, user.generation
        self.binding = binding
        if binding is not None:
            self.attached_session = binding.session
        self._checked_version = -1

    def log_out(self) -> None:
        """Clear the user of this session, and its binding."""
        self.user_id, self.binding, self._user = None, None, None

    def user(self, metadata: Metadata) -> UserRecord:
        """Return the current record of the user.

        Raises:
            ServerFault: no user has logged in, or the user was deleted or deactivated.
        """
        if self._user is not None and self._checked_version == metadata.version:
            return self._user
        return self._look_up(metadata)

    def _look_up(self, metadata: Metadata) -> UserRecord:
        self._user = None
        if self.user_id is None:
            raise ServerFault(StatusCode.UNAUTHENTICATED, "the client has not logged in")
        user = metadata.find_user(self.user_id)
        if user is None:
            self.log_out()
            raise SessionEnded(StatusCode.UNAUTHENTICATED, "the user was deleted")
        if user.generation != self.user_generation or not user.is_active:
            self.log_out()
            raise ServerFault(StatusCode.UNAUTHENTICATED, "the user was deactivated or replaced")
        self._user, self._checked_version = user, metadata.version
        return user
