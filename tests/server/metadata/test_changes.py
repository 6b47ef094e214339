"""Changes as bytes: pinned, because disks hold them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from iggy_protocol import (
    CompressionAlgorithm,
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
    UserStatus,
)
from iggy_ref_server.metadata import changes as change_types
from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.changes import Change, decode_change, encode_change
from iggy_ref_server.metadata.state import Metadata

GRANTS = Permissions(
    GlobalPermissions(read_users=True),
    (StreamPermissions(3, read_stream=True, topics=(TopicPermissions(4, send_messages=True),)),),
)

# Whatever an old log may hold; a line is never changed, only added.
PINNED: tuple[tuple[Change, dict[str, object]], ...] = (
    (
        change_types.StreamCreated(1, "s", 2),
        {"type": "stream+", "id": 1, "name": "s", "created_at_us": 2},
    ),
    (change_types.StreamRenamed(1, "s"), {"type": "stream=", "id": 1, "name": "s"}),
    (change_types.StreamDeleted(1), {"type": "stream-", "id": 1}),
    (change_types.StreamPurged(1, 9), {"type": "stream0", "id": 1, "incarnation": 9}),
    (
        change_types.TopicCreated(1, 2, "t", 3, 4, 5, 6, CompressionAlgorithm.GZIP, 7, 8),
        {
            "type": "topic+",
            "stream_id": 1,
            "id": 2,
            "name": "t",
            "created_at_us": 3,
            "partitions_count": 4,
            "incarnation": 5,
            "message_expiry_us": 6,
            "compression": 2,
            "max_size_bytes": 7,
            "replication_factor": 8,
        },
    ),
    (
        change_types.TopicUpdated(1, 2, "t", 6, CompressionAlgorithm.NONE, 7, 8),
        {
            "type": "topic=",
            "stream_id": 1,
            "id": 2,
            "name": "t",
            "message_expiry_us": 6,
            "compression": 1,
            "max_size_bytes": 7,
            "replication_factor": 8,
        },
    ),
    (change_types.TopicDeleted(1, 2), {"type": "topic-", "stream_id": 1, "id": 2}),
    (
        change_types.TopicPurged(1, 2, 9),
        {"type": "topic0", "stream_id": 1, "id": 2, "incarnation": 9},
    ),
    (
        change_types.PartitionsAdded(1, 2, 3, 4, 5, 9),
        {
            "type": "partitions+",
            "stream_id": 1,
            "topic_id": 2,
            "first_id": 3,
            "count": 4,
            "created_at_us": 5,
            "incarnation": 9,
        },
    ),
    (
        change_types.PartitionsRemoved(1, 2, 3),
        {"type": "partitions-", "stream_id": 1, "topic_id": 2, "kept_count": 3},
    ),
    (
        change_types.GroupCreated(1, 2, 3, "g", 9),
        {"type": "group+", "stream_id": 1, "topic_id": 2, "id": 3, "name": "g", "incarnation": 9},
    ),
    (
        change_types.GroupDeleted(1, 2, 3),
        {"type": "group-", "stream_id": 1, "topic_id": 2, "id": 3},
    ),
    (
        change_types.UserCreated(1, 9, "u", "#", UserStatus.ACTIVE, 2),
        {
            "type": "user+",
            "id": 1,
            "incarnation": 9,
            "username": "u",
            "password_hash": "#",
            "status": 1,
            "created_at_us": 2,
        },
    ),
    (
        change_types.UserUpdated(1, None, UserStatus.INACTIVE, 9),
        {"type": "user=", "id": 1, "status": 2, "incarnation": 9},
    ),
    (change_types.UserDeleted(1), {"type": "user-", "id": 1}),
    (
        change_types.PasswordChanged(1, "#"),
        {"type": "password=", "user_id": 1, "password_hash": "#"},
    ),
    (
        change_types.PermissionsChanged(1, GRANTS),
        {
            "type": "permissions=",
            "user_id": 1,
            "permissions": {
                "server": {
                    "manage_servers": False,
                    "read_servers": False,
                    "manage_users": False,
                    "read_users": True,
                    "manage_streams": False,
                    "read_streams": False,
                    "manage_topics": False,
                    "read_topics": False,
                    "poll_messages": False,
                    "send_messages": False,
                },
                "streams": [
                    {
                        "stream_id": 3,
                        "manage_stream": False,
                        "read_stream": True,
                        "manage_topics": False,
                        "read_topics": False,
                        "poll_messages": False,
                        "send_messages": False,
                        "topics": [
                            {
                                "topic_id": 4,
                                "manage_topic": False,
                                "read_topic": False,
                                "poll_messages": False,
                                "send_messages": True,
                            }
                        ],
                    }
                ],
            },
        },
    ),
    (
        change_types.TokenCreated(1, "tok", "#", 2),
        {"type": "token+", "user_id": 1, "name": "tok", "hash": "#", "expires_at_us": 2},
    ),
    (change_types.TokenDeleted(1, "tok"), {"type": "token-", "user_id": 1, "name": "tok"}),
    (change_types.TokensExpired(2), {"type": "tokens-", "now_us": 2}),
)


KINDS = [type(change).__name__ for change, _ in PINNED]


@pytest.mark.parametrize(("change", "content"), PINNED, ids=KINDS)
def test_change_when_written_then_has_these_fields_and_is_read_back(change, content):
    assert msgspec.msgpack.decode(encode_change(change)) == content
    assert decode_change(msgspec.msgpack.encode(content)) == change


def test_pinned_when_compared_then_covers_every_kind_of_change():
    assert {type(change) for change, _ in PINNED} == set(Change.__args__)


def test_change_when_it_has_fields_of_a_newer_server_then_they_are_skipped():
    content = {"type": "stream-", "id": 1, "because": "of rain"}

    assert decode_change(msgspec.msgpack.encode(content)) == change_types.StreamDeleted(1)


@pytest.mark.parametrize("content", [{"type": "moon+", "id": 1}, {"type": "stream-"}, 7])
def test_change_when_unknown_or_incomplete_then_is_refused(content):
    with pytest.raises(msgspec.MsgspecError):
        decode_change(msgspec.msgpack.encode(content))


@pytest.mark.parametrize(
    "change",
    [
        change_types.UserCreated(1, 9, "u", "$argon2", UserStatus.ACTIVE, 2),
        change_types.PasswordChanged(1, "$argon2"),
        change_types.TokenCreated(1, "tok", "$argon2"),
    ],
    ids=lambda change: type(change).__name__,
)
def test_change_when_it_holds_a_hash_then_does_not_show_it(change):
    assert "$argon2" not in repr(change)


PLAIN = CompressionAlgorithm.NONE
BUILT: tuple[Change, ...] = (
    change_types.StreamCreated(0, "s", 1),
    change_types.StreamCreated(1, "s1", 1),
    change_types.TopicCreated(0, 0, "t", 1, 2, 1, 0, PLAIN, 0, 1),
    change_types.TopicCreated(0, 1, "t1", 1, 2, 1, 0, PLAIN, 0, 1),
    change_types.GroupCreated(0, 0, 0, "g", 1),
    change_types.UserCreated(0, 1, "u", "#", UserStatus.ACTIVE, 1),
    change_types.UserCreated(1, 1, "u1", "#", UserStatus.ACTIVE, 1),
    change_types.TokenCreated(0, "tok", "#tok"),
)
MISFITS: tuple[Change, ...] = (
    *BUILT,
    change_types.StreamCreated(7, "s", 1),
    change_types.StreamRenamed(0, "s1"),
    change_types.TopicCreated(0, 7, "t", 1, 2, 1, 0, PLAIN, 0, 1),
    change_types.TopicUpdated(0, 0, "t1", 0, PLAIN, 0, 1),
    change_types.TopicUpdated(0, 7, "new", 0, PLAIN, 0, 1),
    change_types.TopicDeleted(0, 7),
    change_types.PartitionsAdded(0, 0, 5, 1, 1, 9),
    change_types.PartitionsRemoved(0, 0, 5),
    change_types.GroupCreated(0, 0, 7, "g", 1),
    change_types.GroupDeleted(0, 0, 7),
    change_types.UserUpdated(0, "u1"),
    change_types.TokenCreated(1, "other", "#tok"),
    change_types.TokenDeleted(1, "tok"),
    change_types.TokensExpired(9),
)


@pytest.mark.parametrize("change", MISFITS, ids=repr)
def test_apply_when_a_change_does_not_fit_then_only_the_version_moves(change):
    state = Metadata.EMPTY
    for built in BUILT:
        state = apply(state, built)

    after = apply(state, change)
    expected = replace(state, last_generation=after.last_generation)
    assert after == replace(expected, version=len(BUILT) + 1)


@pytest.mark.parametrize("change", [change for change, _ in PINNED], ids=KINDS)
def test_apply_when_nothing_fits_then_only_the_version_moves(change):
    # A create does fit an empty state; it comes twice, so the second one does not.
    before = apply(Metadata.EMPTY, change)

    twice = apply(before, change)

    assert twice.version == 2
    assert (twice.streams, twice.users, twice.tokens) == (
        before.streams,
        before.users,
        before.tokens,
    )
