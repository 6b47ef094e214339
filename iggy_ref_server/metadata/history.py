"""The newest changes of the metadata, for clients that follow them; in memory, on shard 0.

A client reads from a cursor on. A cursor names the log, a position in it and the checksum of the
change there. After a restart the log is another one, and every cursor of before is told to start
over with the current state: a new one has no changes of the old life.

    ok        the page goes on behind the cursor
    behind    the cursor is of a change that this server has not made yet
    expired   changes behind the cursor were dropped
    reset     the cursor is of another log
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_protocol import (
    CHANGE_BODIES,
    CURRENT_STATE_TOKEN,
    ITEM_BODIES,
    ChangeBody,
    ChangeKind,
    ChangesPhase,
    ChangesStart,
    ChangesStatus,
    CurrentStateToken,
    GetMetadataChanges,
    InvalidField,
    MemberState,
    MetadataChange,
    MetadataChanges,
    MetadataCursor,
    MetadataGroup,
    MetadataItem,
    RegisteredSession,
    StatusCode,
    checksum,
)
from iggy_ref_server.metadata.change_reports import ResourceKeys, Transition, report_change
from iggy_ref_server.metadata.current_state import (
    MemberSource,
    SessionSource,
    StateView,
    state_items,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from iggy_ref_server.metadata.changes import Change
    from iggy_ref_server.metadata.position import MetadataPosition
    from iggy_ref_server.metadata.state import Metadata, MetadataSettings

CHANGES_MAX: Final = 4096
"""How many changes are kept: as many as the log of the metadata holds between two snapshots."""

HISTORY_BYTES_MAX: Final = 16 << 20
"""How many bytes their bodies may have on the wire; in memory they take a few times as much."""

PAGE_BYTES_MAX: Final = 1 << 20
"""A page ends with the body that reaches this size; clients read on."""

LOG_ID_BYTES: Final = 16

_GROUPS: Final = tuple(MetadataGroup)
# The numbers of kinds are those of their groups, ten for each.
_KINDS_PER_GROUP: Final = 10


class _KeptChange(NamedTuple):
    change: MetadataChange
    size_bytes: int


def group_of(kind: ChangeKind) -> MetadataGroup:
    """Return the group that a kind of change belongs to."""
    return _GROUPS[kind // _KINDS_PER_GROUP]


def _no_members(first: tuple[int, int, int]) -> Iterable[MemberState]:
    return ()


def _no_sessions(after: int) -> Iterable[RegisteredSession]:
    return ()


class MetadataHistory:
    """The newest changes, and pages of them.

    Args:
        position: of the metadata; a change is recorded at the current one.
        settings: of the server, which decide the derived options.
        random_bytes: where the id of the log comes from.

    Attributes:
        keys: the keys of streams and topics.
        members: lists the members of consumer groups, from a group on, for the current state.
        sessions: lists the sessions of all clients behind one, by their numbers.
    """

    def __init__(
        self,
        position: MetadataPosition,
        settings: MetadataSettings,
        random_bytes: Callable[[int], bytes],
        *,
        changes_max: int = CHANGES_MAX,
        bytes_max: int = HISTORY_BYTES_MAX,
    ) -> None:
        self.keys = ResourceKeys()
        self.members: MemberSource = _no_members
        self.sessions: SessionSource = _no_sessions
        self._position = position
        self._settings = settings
        self._random_bytes = random_bytes
        self._changes_max = changes_max
        self._bytes_max = bytes_max
        self._changes: deque[_KeptChange] = deque()
        self._size_bytes = 0
        self._log_id = 0
        # The last change that is not kept any more; at first the start itself.
        self._dropped = MetadataCursor()
        self._retained_since_us = 0
        self._newest_us = 0

    def start(self, now_us: int) -> None:
        """Begin a log at the current position; shard 0 only."""
        # A log without an id is none.
        self._log_id = int.from_bytes(self._random_bytes(LOG_ID_BYTES), "little") or 1
        self.keys.start_op = self._position.current
        self._dropped = MetadataCursor(self._log_id, self._position.current)
        self._retained_since_us = self._newest_us = now_us

    # Recording

    def record(
        self, kind: ChangeKind, body: ChangeBody, *, timestamp_us: int, actor: int | None = None
    ) -> None:
        """Record a change at the current position.

        Args:
            kind: what happened.
            body: to what, in the record that belongs to the kind.
            timestamp_us: when.
            actor: the user that caused it, if any.
        """
        op, encoded, head = self._position.current, CHANGE_BODIES[kind].encode(body), self._head
        assert head.op <= op, "the position of the metadata only goes up"
        ordinal = head.ordinal + 1 if head.op == op else 0
        # Readers ask for times, and clocks may be set back.
        self._newest_us = max(self._newest_us, timestamp_us)
        change = MetadataChange(
            op, ordinal, checksum(encoded), self._newest_us, actor, group_of(kind), kind, body
        )
        self._changes.append(_KeptChange(change, len(encoded)))
        self._size_bytes += len(encoded)
        while len(self._changes) > self._changes_max or self._size_bytes > self._bytes_max:
            self._drop_oldest()

    def record_change(
        self,
        change: Change,
        before: Metadata,
        after: Metadata,
        *,
        timestamp_us: int,
        actor: int | None,
    ) -> None:
        """Record a change of the metadata, for which the position was raised."""
        self.keys.note(change, self._position.current)
        step = Transition(change, before, after, self.keys, self._settings)
        for kind, body in report_change(step):
            self.record(kind, body, timestamp_us=timestamp_us, actor=actor)
        self.keys.forget(change)

    def _drop_oldest(self) -> None:
        dropped = self._changes.popleft()
        self._size_bytes -= dropped.size_bytes
        self._dropped = self._cursor_of(dropped.change)
        self._retained_since_us = dropped.change.timestamp_us

    # Cursors

    def _cursor_of(self, change: MetadataChange) -> MetadataCursor:
        return MetadataCursor(self._log_id, change.op, change.checksum, change.ordinal)

    @property
    def _head(self) -> MetadataCursor:
        """The place behind the newest change."""
        return self._cursor_of(self._changes[-1].change) if self._changes else self._dropped

    def _find(self, cursor: MetadataCursor) -> tuple[ChangesStatus, int]:
        """Return whether a cursor can be followed, and how many changes are before it."""
        if cursor.log_id != self._log_id:
            return ChangesStatus.RESET, 0
        place = (cursor.op, cursor.ordinal)
        if place > (self._head.op, self._head.ordinal):
            return ChangesStatus.BEHIND, 0
        if cursor == self._dropped:
            return ChangesStatus.OK, 0
        if place <= (self._dropped.op, self._dropped.ordinal):
            return ChangesStatus.EXPIRED, 0
        for number, (change, _) in enumerate(self._changes, start=1):
            if self._cursor_of(change) == cursor:
                return ChangesStatus.OK, number
        return ChangesStatus.RESET, 0

    # Pages

    def _page(
        self,
        status: ChangesStatus,
        phase: ChangesPhase,
        next_cursor: MetadataCursor | None,
        *,
        has_more: bool = False,
        changes: Iterable[MetadataChange] = (),
        items: Iterable[MetadataItem] = (),
        token: bytes = b"",
    ) -> MetadataChanges:
        head = self._head
        return MetadataChanges(
            status=status,
            phase=phase,
            log_id=self._log_id,
            oldest_op=self._changes[0].change.op if self._changes else head.op,
            retained_since_us=self._retained_since_us,
            head_op=head.op,
            next_cursor=next_cursor,
            has_more=has_more,
            changes=tuple(changes),
            items=tuple(items),
            token=token,
        )

    def read(self, request: GetMetadataChanges, metadata: Metadata) -> MetadataChanges:
        """Return the page that a client asks for.

        Raises:
            InvalidField: the token is of a request for other groups, or none of this server.
        """
        if request.start is ChangesStart.CURRENT_STATE:
            return self._read_state(request, metadata)
        status, first = ChangesStatus.OK, 0
        if request.start is ChangesStart.LATEST:
            first = len(self._changes)
        elif request.start is ChangesStart.AFTER_CURSOR:
            status, first = self._find(request.cursor)
        if status is not ChangesStatus.OK:
            return self._page(status, ChangesPhase.CHANGES, None)
        return self._read_changes(request, first)

    def _read_changes(self, request: GetMetadataChanges, first: int) -> MetadataChanges:
        found: list[MetadataChange] = []
        cursor = self._dropped if not first else self._cursor_of(self._changes[first - 1].change)
        size_bytes, has_more = 0, False
        for change, size in self._until(request, first):
            if _is_wanted(change, request):
                if len(found) == request.limit or size_bytes >= PAGE_BYTES_MAX:
                    has_more = True
                    break
                found.append(change)
                size_bytes += size
            # Also behind what is left out, so that it is not looked at again.
            cursor = self._cursor_of(change)
        return self._page(
            ChangesStatus.OK, ChangesPhase.CHANGES, cursor, has_more=has_more, changes=found
        )

    def _until(self, request: GetMetadataChanges, first: int) -> Iterator[_KeptChange]:
        """Yield the changes from a number on; none that is newer than the client asks for."""
        for kept in islice(self._changes, first, None):
            if request.until_us is not None and kept.change.timestamp_us > request.until_us:
                return
            yield kept

    def _read_state(self, request: GetMetadataChanges, metadata: Metadata) -> MetadataChanges:
        """Return a page of the current state.

        Pages are of the state at the time of each. A client that applies the changes behind the
        anchor afterwards has what every page left out.
        """
        groups = request.groups or _GROUPS
        mask = sum(1 << (group - 1) for group in set(groups))
        token = CurrentStateToken(self._head, self._head.op, mask, 0, b"")
        if request.token:
            token = _read_token(request.token, mask)
        status, _ = self._find(token.anchor)
        if status is not ChangesStatus.OK:
            return self._page(status, ChangesPhase.CURRENT_STATE, None)
        view = StateView(metadata, self.keys, self._settings, self.members, self.sessions)
        found: list[MetadataItem] = []
        last, size_bytes, has_more = (token.group, token.key), 0, False
        for item in state_items(view, set(groups), last):
            if len(found) == request.limit or size_bytes >= PAGE_BYTES_MAX:
                has_more = True
                break
            body = item.describe()
            found.append(MetadataItem(item.group, body))
            size_bytes += len(ITEM_BODIES[item.group].encode(body))
            last = (item.group, item.key)
        following = replace(token, group=last[0], key=last[1])
        return self._page(
            ChangesStatus.OK,
            ChangesPhase.CURRENT_STATE,
            token.anchor,
            has_more=has_more,
            items=found,
            token=CURRENT_STATE_TOKEN.encode(following) if has_more else b"",
        )


def _is_wanted(change: MetadataChange, request: GetMetadataChanges) -> bool:
    if request.groups and change.group not in request.groups:
        return False
    return request.since_us is None or change.timestamp_us >= request.since_us


def _read_token(data: bytes, mask: int) -> CurrentStateToken:
    token = CURRENT_STATE_TOKEN.decode(data)
    if token.group_mask != mask:
        raise InvalidField(
            "the token is of a request for other groups",
            field="token",
            status=StatusCode.INVALID_COMMAND,
        )
    return token
