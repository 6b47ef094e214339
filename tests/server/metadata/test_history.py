"""The newest changes of the metadata as clients follow them: cursors, pages, state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    CURRENT_STATE_TOKEN,
    ChangeKind,
    ChangesPhase,
    ChangesStart,
    ChangesStatus,
    Command,
    ConsumerGroupAdded,
    ConsumerGroupRemoved,
    CreateConsumerGroup,
    CreatePartitions,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeleteConsumerGroup,
    DeletePartitions,
    DeleteStream,
    DeleteTopic,
    DeleteUser,
    InvalidField,
    MemberAdded,
    MemberState,
    MetadataChange,
    MetadataGroup,
    PartitionsChanged,
    Permissions,
    PermissionsReplaced,
    PurgeStream,
    RegisteredSession,
    RemoteProtocolError,
    StreamKey,
    StreamRemoved,
    StreamState,
    TokenState,
    TopicChanged,
    TopicKey,
    TopicRemoved,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    UserNamed,
    UserState,
    UserStatus,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata import history
from iggy_ref_server.metadata.history import MetadataHistory
from tests.server.metadata.history_calls import GRANTS, ROOT, SETTINGS, Feed
from tests.server.metadata.metadata_calls import NOW_US

# Cursors


def test_history_when_nothing_has_changed_then_its_cursor_waits_for_the_first_change():
    feed = Feed()
    empty = feed.read()

    assert (empty.status, empty.changes, empty.has_more) == (ChangesStatus.OK, (), False)
    assert empty.oldest_op == empty.head_op == feed.start_op
    assert [one.kind for one in feed.do(CreateStream("s")).follow(empty).changes] == [
        ChangeKind.STREAM_CREATED
    ]


def test_member_when_recorded_before_any_change_then_is_behind_the_start():
    feed = Feed()
    empty = feed.read()
    key = TopicKey(StreamKey(0, 1), 0, 1)

    feed.history.record(
        ChangeKind.MEMBER_JOINED, MemberAdded(key, 0, 1, 2, 1, (0,)), timestamp_us=NOW_US, actor=3
    )

    (joined,) = feed.follow(empty).changes
    assert (joined.op, joined.ordinal, joined.actor) == (feed.start_op, 1, 3)
    assert joined.group == MetadataGroup.MEMBERS


def test_latest_when_asked_then_only_what_comes_later_is_told():
    feed = Feed().do(CreateStream("a"))
    latest = feed.read(ChangesStart.LATEST)
    assert latest.changes == ()

    changes = feed.do(CreateStream("b"), CreateStream("c")).follow(latest).changes

    assert [change.body.name for change in changes if isinstance(change.body, StreamState)] == [
        "b",
        "c",
    ]


def test_cursor_when_of_another_log_then_is_reset():
    feed, other = Feed().do(CreateStream("s")), Feed()
    other.history = MetadataHistory(other.position, SETTINGS, lambda n: b"\x08" * n)
    other.history.start(NOW_US)

    page = other.follow(feed.read())

    assert (page.status, page.next_cursor, page.changes) == (ChangesStatus.RESET, None, ())
    assert page.log_id != feed.read().log_id


def test_cursor_when_of_a_change_to_come_then_the_server_is_behind():
    feed = Feed().do(CreateStream("s"))
    cursor = feed.read().next_cursor
    assert cursor is not None

    page = feed.read(ChangesStart.AFTER_CURSOR, cursor=replace(cursor, op=cursor.op + 1))

    assert page.status is ChangesStatus.BEHIND


def test_cursor_when_its_change_is_another_one_then_is_reset():
    feed = Feed().do(CreateStream("s"), CreateStream("t"))
    cursor = feed.read(limit=1).next_cursor
    assert cursor is not None

    for wrong in (replace(cursor, checksum=1), replace(cursor, ordinal=9)):
        assert feed.read(ChangesStart.AFTER_CURSOR, cursor=wrong).status is ChangesStatus.RESET


def test_cursor_when_changes_behind_it_were_dropped_then_has_expired():
    feed = Feed(changes_max=3)
    start = feed.read()
    feed.do(*(CreateStream(str(number)) for number in range(3)))
    assert len(feed.follow(start).changes) == 3

    feed.do(CreateStream("3"))
    first = feed.follow(start)
    page = feed.read(limit=1)
    feed.do(CreateStream("4"))

    assert (first.status, first.next_cursor) == (ChangesStatus.EXPIRED, None)
    assert first.oldest_op == first.head_op - 2
    assert first.retained_since_us == NOW_US + 1
    assert feed.follow(page).status is ChangesStatus.OK
    assert feed.do(CreateStream("5")).follow(page).status is ChangesStatus.EXPIRED


def test_changes_when_their_bytes_are_too_many_then_the_oldest_are_dropped():
    feed = Feed(bytes_max=2000).do(*(CreateStream(str(number) * 200) for number in range(9)))

    kept = feed.read().changes

    assert 1 < len(kept) < 9
    assert kept[-1].op == feed.position.current


# Pages


def test_page_when_groups_are_chosen_then_others_are_left_out_and_passed():
    feed = Feed().do(CreateStream("s"), CreateTopic("s", "t", 1), CreateUser("joe", "secret"))

    page = feed.read(groups=(MetadataGroup.TOPICS,))

    assert [change.kind for change in page.changes] == [ChangeKind.TOPIC_CREATED]
    assert page.next_cursor == feed.read().next_cursor
    assert not page.has_more


def test_page_when_times_are_chosen_then_others_are_left_out():
    feed = Feed().do(*(CreateStream(str(number)) for number in range(5)))
    times = [change.timestamp_us for change in feed.read().changes]

    page = feed.read(since_us=times[1], until_us=times[3])

    assert [change.timestamp_us for change in page.changes] == times[1:4]
    # What is newer is not passed: the client may want it later.
    assert [change.timestamp_us for change in feed.follow(page).changes] == times[4:]


def test_page_when_bodies_are_large_then_ends_early_and_says_so(monkeypatch):
    monkeypatch.setattr(history, "PAGE_BYTES_MAX", 100)
    feed = Feed().do(*(CreateUser(f"user{number}" * 4, "secret") for number in range(9)))

    pages = list(feed.pages(feed.read()))
    states = list(feed.state_pages(groups=(MetadataGroup.USERS,)))

    assert len(pages) > 1
    assert sum(len(page.changes) for page in pages) == 9
    assert len(states) > 1
    assert sum(len(page.items) for page in states) == 10


def names() -> list[Command[Any]]:
    """Return commands that make one of each."""
    return [
        CreateStream("s"),
        CreateStream("r"),
        CreateTopic("s", "t", 2),
        CreateTopic("r", "t", 1),
        CreateConsumerGroup("s", "t", "g"),
        CreateUser("joe", "secret"),
        CreatePersonalAccessToken("zwei"),
        CreatePersonalAccessToken("eins"),
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_state_when_read_in_pages_then_has_each_item_once_and_in_order(limit):
    feed = Feed()
    feed.do(*names())
    member = MemberState(TopicKey(StreamKey(0, 1), 0, 2), 0, 5, 6, (0, 1))
    session = RegisteredSession(ROOT, 1 << 100, 3)
    feed.history.members = lambda first: [member, replace(member, member_id=7)]
    feed.history.sessions = lambda after: [session]

    pages = list(feed.state_pages(limit=limit))
    items = [item for page in pages for item in page.items]

    assert {page.phase for page in pages} == {ChangesPhase.CURRENT_STATE}
    assert {page.next_cursor for page in pages} == {feed.read().next_cursor}
    assert [item.group for item in items] == [1, 1, 2, 2, 3, 3, 4, 5, 5, 6, 6, 7, 7, 8]
    assert [item.body.name for item in items if isinstance(item.body, TokenState)] == [
        "eins",
        "zwei",
    ]
    assert [item.body.member_id for item in items if isinstance(item.body, MemberState)] == [5, 7]
    assert all(len(page.items) == limit for page in pages[:-1])


def test_state_when_something_changes_between_pages_then_the_changes_behind_it_tell():
    feed = Feed().do(CreateStream("a"), CreateStream("b"))
    page = feed.read(ChangesStart.CURRENT_STATE, limit=1)

    feed.do(UpdateStream("a", "c"), DeleteStream("b"))

    rest = feed.read(ChangesStart.CURRENT_STATE, limit=9, token=page.token)
    assert [change.kind for change in feed.follow(rest).changes] == [
        ChangeKind.STREAM_UPDATED,
        ChangeKind.STREAM_DELETED,
    ]


def test_token_when_of_other_groups_then_is_refused():
    feed = Feed()
    feed.do(*names())
    page = feed.read(ChangesStart.CURRENT_STATE, limit=1, groups=(MetadataGroup.STREAMS,))

    with pytest.raises(InvalidField, match="other groups") as refused:
        feed.read(ChangesStart.CURRENT_STATE, limit=1, token=page.token)
    assert refused.value.status == 3
    with pytest.raises(RemoteProtocolError):
        feed.read(ChangesStart.CURRENT_STATE, limit=1, token=page.token[:-1])


def test_token_when_its_anchor_is_of_another_log_or_dropped_then_status_says_so():
    feed = Feed(changes_max=2)
    feed.do(*names())
    page = feed.read(ChangesStart.CURRENT_STATE, limit=1)
    token = CURRENT_STATE_TOKEN.decode(page.token)
    foreign = replace(token, anchor=replace(token.anchor, log_id=1))

    reset = feed.read(ChangesStart.CURRENT_STATE, token=CURRENT_STATE_TOKEN.encode(foreign))
    feed.do(*(CreateStream(str(number)) for number in range(3)))
    expired = feed.read(ChangesStart.CURRENT_STATE, token=page.token)

    assert (reset.status, expired.status) == (ChangesStatus.RESET, ChangesStatus.EXPIRED)
    assert reset.phase is expired.phase is ChangesPhase.CURRENT_STATE


# Any history


NAMES = st.sampled_from(["a", "b", "c"])
COMMANDS = st.one_of(
    st.builds(CreateStream, NAMES),
    st.builds(DeleteStream, NAMES),
    st.builds(UpdateStream, NAMES, NAMES),
    st.builds(CreateTopic, NAMES, NAMES, st.integers(0, 3)),
    st.builds(UpdateTopic, NAMES, NAMES, NAMES),
    st.builds(DeleteTopic, NAMES, NAMES),
    st.builds(CreatePartitions, NAMES, NAMES, st.integers(1, 3)),
    st.builds(DeletePartitions, NAMES, NAMES, st.integers(1, 3)),
    st.builds(CreateConsumerGroup, NAMES, NAMES, NAMES),
    st.builds(DeleteConsumerGroup, NAMES, NAMES, NAMES),
    st.builds(CreateUser, NAMES, st.just("secret"), permissions=st.sampled_from([None, GRANTS])),
    st.builds(UpdateUser, NAMES, NAMES, st.sampled_from([None, *UserStatus])),
    st.builds(DeleteUser, NAMES),
    st.builds(PurgeStream, NAMES),
)


class Follower:
    """What a client knows: names by key."""

    def __init__(self) -> None:
        self.streams: dict[int, str] = {}
        self.topics: dict[tuple[int, int], tuple[str, int]] = {}
        self.groups: dict[tuple[int, int, int], str] = {}
        self.users: dict[int, tuple[str, Permissions | None]] = {}

    def note(self, body: Any) -> None:
        """Learn from a change or an item."""
        match body:
            case StreamState():
                self.streams[body.key.id] = body.name
            case StreamRemoved():
                gone = body.key.id
                del self.streams[gone]
                self.topics = {key: it for key, it in self.topics.items() if key[0] != gone}
                self.groups = {key: it for key, it in self.groups.items() if key[0] != gone}
            case TopicChanged():
                self.topics[body.key.stream.id, body.key.id] = (body.name, body.partitions_count)
            case TopicRemoved():
                place = (body.key.stream.id, body.key.id)
                del self.topics[place]
                self.groups = {key: it for key, it in self.groups.items() if key[:2] != place}
            case PartitionsChanged():
                place = (body.key.stream.id, body.key.id)
                self.topics[place] = (self.topics[place][0], body.partitions_count)
            case ConsumerGroupAdded():
                self.groups[body.key.stream.id, body.key.id, body.group_id] = body.name
            case ConsumerGroupRemoved():
                del self.groups[body.key.stream.id, body.key.id, body.group_id]
            case UserState() | PermissionsReplaced():
                self.users[body.key.id] = (body.username, body.permissions)
            case UserNamed():
                del self.users[body.key.id]


@given(st.lists(COMMANDS, max_size=30), st.integers(1, 5))
def test_client_when_it_follows_all_changes_then_knows_what_exists(commands, limit):
    feed, follower = Feed(), Follower()
    page, seen = feed.read(limit=limit), list[MetadataChange]()
    for command in commands:
        try:
            feed.do(command)
        except ServerFault:
            continue
        for page in feed.pages(feed.follow(page, limit=limit), limit=limit):  # noqa: B020 - goes on
            seen += page.changes
    for change in seen:
        follower.note(change.body)

    metadata = feed.metadata
    topics = [topic for stream in metadata.streams for topic in stream.topics]
    assert follower.streams == {stream.id: stream.name for stream in metadata.streams}
    assert follower.topics == {
        (topic.stream_id, topic.id): (topic.name, len(topic.partitions)) for topic in topics
    }
    assert follower.groups == {
        (topic.stream_id, topic.id, group.id): group.name
        for topic in topics
        for group in topic.groups
    }
    assert follower.users == {
        user.id: (user.username, user.permissions) for user in metadata.users if not user.is_root
    }
    places = [(change.op, change.ordinal) for change in seen]
    assert places == sorted(set(places))
    assert tuple(seen) == feed.read(limit=1000).changes
