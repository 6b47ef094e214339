"""Members of groups and sessions, for clients that follow the metadata; on shard 0.

Both are in memory and no part of the metadata, but their followers are told of them: who joins and
leaves, which partitions change hands, who registers and whose session ends, and of each of these as
it is now. A deleted group is told once, without its members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iggy_protocol import (
    ChangeKind,
    ClosedSession,
    LeaveReason,
    MemberAdded,
    MemberRemoved,
    MemberState,
    PartitionHandedOver,
    RegisteredSession,
    SessionReason,
    TopicKey,
    UserKey,
)
from iggy_ref_server.groups.assignment import (
    GroupEvent,
    MemberJoined,
    MemberLeft,
    PartitionMoved,
)
from iggy_ref_server.metadata.change_reports import key_of_user
from iggy_ref_server.sessions.table import SessionEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from iggy_ref_server.clock import Clock
    from iggy_ref_server.groups.group import GroupKey, GroupRegistry
    from iggy_ref_server.metadata.history import MetadataHistory
    from iggy_ref_server.metadata.state import Metadata
    from iggy_ref_server.sessions.table import SessionRecord, SessionTable


REASONS: Final[Mapping[SessionEnd, SessionReason]] = {
    SessionEnd.LOGOUT: SessionReason.LOGOUT,
    SessionEnd.REPLACED: SessionReason.LOGOUT,
    SessionEnd.EXPIRED: SessionReason.EXPIRED,
    SessionEnd.DROPPED: SessionReason.EXPIRED,
    SessionEnd.REVOKED: SessionReason.REVOKED,
}
UNKNOWN_USER: Final = UserKey(0, 0)


class MembershipReports:
    """Tells the history of members and sessions.

    Args:
        history: is told.
        registry: the groups.
        sessions: the sessions.
        metadata: returns the current metadata.
        clock: tells when something happened.
    """

    def __init__(
        self,
        history: MetadataHistory,
        registry: GroupRegistry,
        sessions: SessionTable,
        metadata: Callable[[], Metadata],
        clock: Clock,
    ) -> None:
        self._history = history
        self._registry = registry
        self._sessions = sessions
        self._metadata = metadata
        self._clock = clock
        # By the number of the session: its user may be deleted before it ends.
        self._user_keys: dict[int, UserKey] = {}
        registry.report = self._on_group_event
        history.members, history.sessions = self.members, self.sessions

    # The current state

    def members(self, first: tuple[int, int, int] = (0, 0, 0)) -> Iterator[MemberState]:
        """Yield the members of all groups from one on, by the ids of the groups."""
        for key, group in self._registry.groups_from(first):
            for member in sorted(group.members(), key=lambda member: member.number):
                yield MemberState(
                    self._topic_key(key),
                    key.group_id,
                    member.number,
                    self._client_of(member.id),
                    tuple(sorted(member.partitions)),
                )

    def sessions(self, after: int = 0) -> Iterator[RegisteredSession]:
        """Yield the sessions behind one, by their numbers."""
        for session in self._sessions.all():
            if session.number > after:
                yield RegisteredSession(
                    self._user_keys.get(session.number, UNKNOWN_USER),
                    _client_id(session),
                    session.number,
                )

    # What happens

    def note_registered(self, session: SessionRecord) -> None:
        """Tell of a new session."""
        user = self._metadata().find_user(session.new.user_id)
        key = self._user_keys[session.number] = UNKNOWN_USER if user is None else key_of_user(user)
        body = RegisteredSession(key, _client_id(session), session.number)
        self._record(ChangeKind.SESSION_REGISTERED, body, session.new.user_id)

    def note_closed(self, session: SessionRecord, why: SessionEnd) -> None:
        """Tell of a session that has ended."""
        key = self._user_keys.pop(session.number, UNKNOWN_USER)
        body = ClosedSession(key, _client_id(session), session.number, REASONS[why])
        actor = session.new.user_id if REASONS[why] is SessionReason.LOGOUT else None
        self._record(ChangeKind.SESSION_CLOSED, body, actor)

    def _on_group_event(self, key: GroupKey, event: GroupEvent) -> None:
        topic = self._topic_key(key)
        match event:
            case MemberJoined(member, count):
                client, partitions = self._client_of(member.id), tuple(sorted(member.partitions))
                body = MemberAdded(topic, key.group_id, member.number, client, count, partitions)
                self._record(ChangeKind.MEMBER_JOINED, body)
            case MemberLeft(member, count, is_gone):
                reason = LeaveReason.SESSION_ENDED if is_gone else LeaveReason.LEFT
                client = self._client_of(member.id)
                left = MemberRemoved(topic, key.group_id, member.number, client, count, reason)
                self._record(ChangeKind.MEMBER_LEFT, left)
            case PartitionMoved(partition, owner):
                number = None if owner is None else owner.number
                moved = PartitionHandedOver(topic, key.group_id, partition, number)
                self._record(ChangeKind.PARTITION_HANDED_OVER, moved)

    def _record(
        self,
        kind: ChangeKind,
        body: MemberAdded | MemberRemoved | PartitionHandedOver | RegisteredSession | ClosedSession,
        actor: int | None = None,
    ) -> None:
        self._history.record(kind, body, timestamp_us=self._clock.now_us(), actor=actor)

    def _topic_key(self, key: GroupKey) -> TopicKey:
        return self._history.keys.of_topic(key.stream_id, key.topic_id)

    def _client_of(self, member_id: int) -> int:
        """Return the client's own id; a classic client has the number of its connection alone."""
        session = self._sessions.find_member(member_id)
        return member_id if session is None else _client_id(session)


def _client_id(session: SessionRecord) -> int:
    return int.from_bytes(session.new.client, "little")
