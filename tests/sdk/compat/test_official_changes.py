"""The log of metadata changes in the official spelling."""

from __future__ import annotations

from typing import Any

import pytest

import iggy_protocol
from iggy_protocol import (
    V0_12_0,
    ChangesPhase,
    ChangesStart,
    ChangesStatus,
    GetMetadataChanges,
    MetadataGroup,
    decode_reply,
    encode_reply,
    encode_request,
)
from iggy_sdk import compat
from iggy_sdk.compat import (
    HeaderKey,
    HeaderValue,
    MetadataChangeCursor,
    MetadataChangeGroup,
    MetadataChangeKind,
    MetadataChangePhase,
    MetadataChangeStart,
    MetadataChangeStatus,
    MetadataCurrentPageToken,
    MetadataMemberLeftReason,
    MetadataPermissionsUpdatedReason,
    MetadataSessionClosedReason,
    MetadataTokenDeletedReason,
)
from iggy_sdk.compat.metadata_changes import request_of
from tests.sdk.compat.samples import (
    CHANGE_BODIES,
    CURSOR,
    ITEM_BODIES,
    PAGE,
    TOKEN,
    change_with,
    item_with,
)

# The text of this cursor comes from the wheel 0.9.1.dev5.
NUMBERS = (2**100 + 5, 7, 2**127 + 9, 3)
TEXT = "mc1_BQAAAAAAAAAAAAAAEAAAAAcAAAAAAAAACQAAAAAAAAAAAAAAAAAAgAMAAAA"


def test_cursor_when_written_then_has_the_text_of_the_wheel():
    cursor = MetadataChangeCursor(*NUMBERS)

    assert str(cursor) == TEXT
    assert MetadataChangeCursor.parse(TEXT) == cursor
    assert hash(MetadataChangeCursor.parse(TEXT)) == hash(cursor)
    assert repr(cursor).startswith("MetadataChangeCursor(log_id=")
    assert cursor.own == CURSOR


@pytest.mark.parametrize("parse", [MetadataChangeCursor.parse, MetadataCurrentPageToken.parse])
@pytest.mark.parametrize("text", ["", "x", "mc1_", "cs1_", "mc1_AAAA", "cs1_AAAA", TEXT + "=", "é"])
def test_text_when_it_is_none_then_is_refused(parse, text):
    with pytest.raises(ValueError):
        parse(text)


def test_page_token_when_written_and_read_then_is_the_same():
    assert str(TOKEN).startswith("cs1_")
    assert MetadataCurrentPageToken.parse(str(TOKEN)) == TOKEN
    assert TOKEN.groups == [MetadataChangeGroup.Streams, MetadataChangeGroup.Topics]
    assert (TOKEN.last_group, TOKEN.last_key) == (MetadataChangeGroup.Topics, b"key")
    assert (TOKEN.required_head, TOKEN.anchor.own) == (8, CURSOR)


@pytest.mark.parametrize(
    ("start", "own"),
    [
        (MetadataChangeStart.Earliest(), GetMetadataChanges(ChangesStart.EARLIEST)),
        (MetadataChangeStart.Latest(), GetMetadataChanges(ChangesStart.LATEST)),
        (
            MetadataChangeStart.After(MetadataChangeCursor(*NUMBERS)),
            GetMetadataChanges(ChangesStart.AFTER_CURSOR, CURSOR),
        ),
        (MetadataChangeStart.Current(), GetMetadataChanges(ChangesStart.CURRENT_STATE)),
        (
            MetadataChangeStart.Current(TOKEN),
            GetMetadataChanges(ChangesStart.CURRENT_STATE, token=TOKEN.data),
        ),
    ],
)
def test_start_when_asked_then_is_our_request(start, own):
    request = request_of(start, None, None, None, None)

    assert request == own
    assert encode_request(request, V0_12_0)
    assert isinstance(start, MetadataChangeStart)


def test_request_when_limited_then_says_so():
    request = request_of(
        MetadataChangeStart.Earliest(), [MetadataChangeGroup.Users], since=1, until=2, limit=3
    )

    assert request.groups == (MetadataGroup.USERS,)
    assert (request.since_us, request.until_us, request.limit) == (1, 2, 3)


@pytest.mark.parametrize("kind", CHANGE_BODIES)
def test_change_when_it_is_about_something_then_has_its_class(kind):
    change = change_with(CHANGE_BODIES[kind]).change

    assert type(change) is kind
    assert change == change_with(CHANGE_BODIES[kind]).change


@pytest.mark.parametrize("kind", ITEM_BODIES)
def test_item_when_it_is_something_then_has_its_class(kind):
    assert type(item_with(ITEM_BODIES[kind]).body) is kind


def change_about(kind: type) -> Any:
    """Return what a change is about, whatever that has."""
    return change_with(CHANGE_BODIES[kind]).change


def test_change_when_it_is_known_then_names_the_resource():
    topic = change_about(compat.MetadataTopicChange)
    left = change_about(compat.MetadataMemberLeft)
    partitions = change_about(compat.MetadataPartitionsChanged)
    user = change_about(compat.MetadataUserChange)

    assert (topic.stream_id, topic.stream_created_op) == (1, 2)
    assert (topic.topic_id, topic.topic_created_op, topic.created_at) == (4, 5, 6)
    assert topic.options == {HeaderKey.String("durability"): HeaderValue.String("persisted")}
    assert (topic.derived_options, topic.options_unreadable) == ({}, False)
    assert (left.reason, left.members_count) == (MetadataMemberLeftReason.SessionEnded, 4)
    assert (partitions.removed_partition_ids, partitions.requested_op) == ([2, 3], None)
    assert (user.user_id, user.user_created_at, user.options) == (7, 8, None)
    assert user.options_unreadable


def test_token_when_it_never_expires_then_says_none():
    token = change_about(compat.MetadataTokenChange)
    limited = compat.MetadataTokenChange(
        iggy_protocol.TokenState(iggy_protocol.UserKey(1, 2), "name", 5)
    )

    assert (token.expiry, limited.expiry) == (None, 5)


def test_change_when_its_kind_is_unknown_then_stays_bytes():
    record, item = change_with(b"later"), item_with(b"later")
    change: Any = record.change
    body: Any = item.body

    assert (record.kind, record.group) == (None, MetadataChangeGroup.Streams)
    assert (change.kind, change.group, change.body) == (99, 1, b"later")
    assert (item.group, body.group, body.body) == (None, 99, b"later")


def test_page_when_it_came_over_the_wire_then_tells_all_of_it():
    own = iggy_protocol.MetadataChanges(
        *(ChangesStatus.BEHIND, ChangesPhase.CHANGES, 1, 2, 3, 4, CURSOR, True),
        changes=(
            iggy_protocol.MetadataChange(
                *(5, 0, 6, 7, 0, MetadataGroup.STREAMS, iggy_protocol.ChangeKind.STREAM_DELETED),
                CHANGE_BODIES[compat.MetadataStreamDeleted],
            ),
        ),
    )
    code = GetMetadataChanges.CODE
    (data,) = encode_reply(code, own, V0_12_0)
    page = compat.MetadataChanges(decode_reply(code, data, V0_12_0))

    assert (page.status, page.phase) == (MetadataChangeStatus.Behind, MetadataChangePhase.Changes)
    assert (page.log_id, page.oldest_op, page.retained_since, page.head_op) == (1, 2, 3, 4)
    assert (page.next, page.has_more) == (MetadataChangeCursor(*NUMBERS), True)
    assert (page.items, page.current_page_token) == ([], None)
    (record,) = page.records
    assert (record.op, record.timestamp, record.actor_user_id) == (5, 7, 0)
    assert record.kind == MetadataChangeKind.StreamDeleted
    assert record.change == change_about(compat.MetadataStreamDeleted)
    assert PAGE.current_page_token == TOKEN


def test_names_when_shown_then_read_as_officially():
    assert [str(group) for group in MetadataChangeGroup] == [
        *("streams", "topics", "partitions", "consumer_groups", "consumer_group_members"),
        *("users", "personal_access_tokens", "sessions"),
    ]
    assert str(MetadataChangeKind.ConsumerGroupPartitionHandedOver) == (
        "consumer_group_partition_handed_over"
    )
    assert [str(one) for one in (*MetadataChangePhase, *MetadataChangeStatus)] == [
        *("changes", "current", "ok", "behind", "expired", "reset")
    ]
    reasons = (
        *MetadataMemberLeftReason,
        *MetadataPermissionsUpdatedReason,
        *MetadataSessionClosedReason,
        *MetadataTokenDeletedReason,
    )
    assert [str(reason) for reason in reasons] == [
        *("left", "session_ended", "updated", "resource_deleted"),
        *("logout", "expired", "revoked", "deleted", "expired"),
    ]
