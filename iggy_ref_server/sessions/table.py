"""The table of sessions: who registered, what binds further connections, and when a session ends.

A client from 0.10 on registers once and then uses its session on any number of connections, also
after all of them were lost. It proves with a secret that the session is its own; the server keeps
the hash. A session ends

    at a logout, on all its connections
    half a minute after its last connection went
    when its user is deleted or deactivated
    when its client registers anew under the same id
    when there are too many, if it has no connection

A client of 0.9 has no secret: its session ends with its connection.

Sessions are in memory. After a restart a client is told that its session is unknown, and registers
anew.
"""

from __future__ import annotations

import hmac
import logging
from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_protocol import Dialect, RequestId, StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.sessions.receipts import ReceiptBudget, ReplyReceipts

if TYPE_CHECKING:
    from collections.abc import Callable, ValuesView


LOGGER = logging.getLogger(__name__)

SESSIONS_MAX: Final = 1 << 16
"""As many as eight shards have connections at most. A session without replies takes about 1 KiB."""
EXPIRY_US: Final = 30_000_000
"""After the last connection: official clients try for so long to get through once more."""

# Odd, so that different numbers of sessions below 2**32 give different ids; the golden ratio, so
# that they lie far apart.
MEMBER_ID_FACTOR: Final = 0x9E37_79B1
MEMBER_ID_MASK: Final = (1 << 32) - 1


def member_id_of(session: int) -> int:
    """Return the id under which a session is a member of groups.

    It is not the id of a connection. That is made of an address, which another client may have soon
    while the session goes on.
    """
    return session * MEMBER_ID_FACTOR & MEMBER_ID_MASK


class SessionEnd(Enum):
    """Why a session ends."""

    LOGOUT = "its client logged out"
    EXPIRED = "it had no connection any more"
    REVOKED = "its user was deleted or deactivated"
    REPLACED = "its client registered anew"
    DROPPED = "there are too many sessions"


class NewSession(NamedTuple):
    """A login from 0.9 on whose credentials are right.

    Attributes:
        client_id: the connection that logs in.
        request_id: its Register, which names the client's own id of the session.
        user_id: the user who logs in.
        user_generation: the incarnation of that user.
        secret_hash: the SHA-256 of what binds further connections; that of nothing before 0.10.
    """

    client_id: int
    request_id: RequestId
    user_id: int
    user_generation: int
    secret_hash: bytes

    @property
    def dialect(self) -> Dialect:
        """What the client speaks."""
        return self.request_id.dialect

    @property
    def client(self) -> bytes:
        """The client's own id of the session."""
        return self.request_id.client

    def is_repeat_of(self, earlier: NewSession) -> bool:
        """Tell whether this is the same request as an earlier one with the same secret."""
        identifier = self.request_id.identifier
        return (
            any(identifier)
            and identifier == earlier.request_id.identifier
            and self.dialect is earlier.dialect
            and (self.user_id, self.user_generation) == (earlier.user_id, earlier.user_generation)
        )


class BoundSession(NamedTuple):
    """What a connection learns of the session that it is bound to.

    Attributes:
        session: the number of the session.
        user_id: who has logged in.
        user_generation: the incarnation of that user.
    """

    session: int
    user_id: int
    user_generation: int


class SessionRecord:
    """A session.

    Attributes:
        number: what the client names it by; never used again.
        new: the login that it began with.
        member_id: what it is in consumer groups.
        receipts: its newest replies.
        connections_count: how many connections are bound to it.
        idle_since_us: when its last connection went; meaningless while it has one.
    """

    __slots__ = (
        "connections_count",
        "idle_since_us",
        "member_id",
        "new",
        "number",
        "receipts",
    )

    def __init__(self, number: int, new: NewSession, receipts: ReplyReceipts) -> None:
        self.number = number
        self.new = new
        # Without a secret a session belongs to its connection, and so do its memberships.
        outlives = new.dialect.binds_sessions
        self.member_id = member_id_of(number) if outlives else new.client_id
        self.receipts = receipts
        self.connections_count = 0
        self.idle_since_us = 0

    @property
    def bound(self) -> BoundSession:
        """What a connection that is bound to it learns."""
        return BoundSession(self.number, self.new.user_id, self.new.user_generation)

    def __str__(self) -> str:
        return f"session {self.number} of user {self.new.user_id}"


class SessionTable:
    """All sessions, on shard 0.

    Args:
        on_end: called with each session that has ended, and why; its connections are still bound.
        sessions_max: how many there may be.
        expiry_us: how long a session lives without a connection.
    """

    def __init__(
        self,
        on_end: Callable[[SessionRecord, SessionEnd], None],
        *,
        sessions_max: int = SESSIONS_MAX,
        expiry_us: int = EXPIRY_US,
    ) -> None:
        self._on_end = on_end
        self._sessions_max = sessions_max
        self._expiry_us = expiry_us
        self._budget = ReceiptBudget()
        self._by_number: dict[int, SessionRecord] = {}
        self._by_client: dict[bytes, SessionRecord] = {}
        self._by_member: dict[int, SessionRecord] = {}
        self._by_user: defaultdict[int, dict[int, SessionRecord]] = defaultdict(dict)
        # Those without a connection, the one that lost it first at the front.
        self._idle: dict[int, SessionRecord] = {}
        self._idle_by_user: defaultdict[int, dict[int, SessionRecord]] = defaultdict(dict)
        self._has_warned = False

    def __len__(self) -> int:
        return len(self._by_number)

    def find(self, number: int) -> SessionRecord | None:
        """Return a session by its number."""
        return self._by_number.get(number)

    def find_member(self, member_id: int) -> SessionRecord | None:
        """Return the session that is a member of groups under an id, also while it ends."""
        return self._by_member.get(member_id)

    def all(self) -> ValuesView[SessionRecord]:
        """Return the sessions, by their numbers."""
        return self._by_number.values()

    # --- connections

    def register(self, new: NewSession, next_number: Callable[[], int]) -> SessionRecord:
        """Begin a session and bind the connection; a repeat of the login gets the same session.

        Args:
            new: the login.
            next_number: returns the number of a new session.

        Raises:
            ServerFault: the id belongs to a client with another secret, or there are too many
                sessions.
        """
        earlier = self._by_client.get(new.client)
        if earlier is not None:
            self._check_secret(earlier, new.secret_hash)
            if new.is_repeat_of(earlier.new):
                self._attach(earlier)
                return earlier
            self._end(earlier, SessionEnd.REPLACED)
        self._make_room()
        receipts = ReplyReceipts(new.dialect, self._budget)
        session = SessionRecord(next_number(), new, receipts)
        self._by_number[session.number] = self._by_client[new.client] = session
        self._by_member[session.member_id] = self._by_user[new.user_id][session.number] = session
        self._attach(session)
        return session

    def bind(self, client: bytes, number: int, secret_hash: bytes) -> SessionRecord:
        """Bind a further connection to a session.

        Args:
            client: the client's own id of the session.
            number: that of the session; 0 asks which one the client has registered.
            secret_hash: that of its secret.

        Raises:
            ServerFault: there is no such session, or it is another client's.
        """
        session = self._by_client.get(client)
        if session is None or not session.new.dialect.binds_sessions:
            raise ServerFault(StatusCode.UNAUTHENTICATED, "the client has no session to bind")
        self._check_secret(session, secret_hash)
        if number not in (0, session.number):
            raise ServerFault(
                StatusCode.UNAUTHENTICATED, f"the client has {session}, not session {number}"
            )
        self._attach(session)
        return session

    def release(self, number: int, now_us: int) -> None:
        """Note that a connection of a session has gone; nothing happens if the session has."""
        session = self._by_number.get(number)
        if session is None:
            return
        assert session.connections_count, "a connection is released once"
        session.connections_count -= 1
        if session.connections_count:
            return
        if not session.new.dialect.binds_sessions:
            self._end(session, SessionEnd.EXPIRED)
            return
        session.idle_since_us = now_us
        self._idle[number] = self._idle_by_user[session.new.user_id][number] = session

    # --- ends

    def log_out(self, number: int) -> None:
        """End a session; nothing happens if it has ended."""
        session = self._by_number.get(number)
        if session is not None:
            self._end(session, SessionEnd.LOGOUT)

    def revoke(self, user_id: int, may_stay: Callable[[NewSession], bool]) -> None:
        """End the sessions of a user who is gone or deactivated."""
        for session in tuple(self._by_user.get(user_id, {}).values()):
            if not may_stay(session.new):
                self._end(session, SessionEnd.REVOKED)

    def next_deadline_us(self) -> int | None:
        """Return when ``expire`` will have something to do; None while nothing will expire."""
        oldest = next(iter(self._idle.values()), None)
        return None if oldest is None else oldest.idle_since_us + self._expiry_us

    def expire(self, now_us: int) -> None:
        """End the sessions that have had no connection for too long."""
        while (deadline_us := self.next_deadline_us()) is not None and deadline_us <= now_us:
            self._end(next(iter(self._idle.values())), SessionEnd.EXPIRED)

    # --- inside

    def _check_secret(self, session: SessionRecord, secret_hash: bytes) -> None:
        if not hmac.compare_digest(session.new.secret_hash, secret_hash):
            raise ServerFault(StatusCode.UNAUTHENTICATED, f"the secret is not that of {session}")

    def _attach(self, session: SessionRecord) -> None:
        session.connections_count += 1
        self._forget_idle(session)

    def _forget_idle(self, session: SessionRecord) -> None:
        if self._idle.pop(session.number, None) is not None:
            _remove(self._idle_by_user, session)

    def _make_room(self) -> None:
        """End a session without a connection, if there are too many.

        It is one of the user who has most of them, so that no user takes the place of others, and
        of these the one that has been so for longest.

        Raises:
            ServerFault: all of them have connections.
        """
        if len(self._by_number) < self._sessions_max:
            return
        if not self._idle:
            raise ServerFault(
                StatusCode.TRANSIENT_NOT_ACCEPTED,
                f"there are {self._sessions_max} sessions, all of them with connections",
            )
        most = max(self._idle_by_user.values(), key=len)
        oldest = next(iter(most.values()))
        if not self._has_warned:
            self._has_warned = True
            LOGGER.warning("%s ends, because there are %d sessions", oldest, self._sessions_max)
        self._end(oldest, SessionEnd.DROPPED)

    def _end(self, session: SessionRecord, why: SessionEnd) -> None:
        del self._by_number[session.number]
        del self._by_client[session.new.client]
        _remove(self._by_user, session)
        self._forget_idle(session)
        if len(self._by_number) < self._sessions_max // 2:
            self._has_warned = False
        session.receipts.clear()
        self._on_end(session, why)
        # A connection of 0.9 may have begun another session meanwhile, under the same id.
        if self._by_member.get(session.member_id) is session:
            del self._by_member[session.member_id]


def _remove(by_user: defaultdict[int, dict[int, SessionRecord]], session: SessionRecord) -> None:
    sessions = by_user[session.new.user_id]
    del sessions[session.number]
    if not sessions:
        del by_user[session.new.user_id]
