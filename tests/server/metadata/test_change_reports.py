"""What clients that follow the metadata are told of each change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iggy_protocol import (
    ChangeKind,
    ChangePassword,
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
    DeletePersonalAccessToken,
    DeleteStream,
    DeleteTopic,
    DeleteUser,
    MetadataGroup,
    PartitionsChanged,
    PermissionsReason,
    PermissionsReplaced,
    PurgeStream,
    PurgeTopic,
    StreamKey,
    StreamRemoved,
    StreamState,
    TokenReason,
    TokenRemoved,
    TokenState,
    TopicChanged,
    TopicKey,
    TopicRemoved,
    UpdatePermissions,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    UserKey,
    UserNamed,
    UserState,
    UserStatus,
)
from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.history import group_of
from iggy_ref_server.metadata.plan_users import plan_expire_tokens
from tests.server.metadata.history_calls import GRANTS, ROOT, Feed, newest
from tests.server.metadata.metadata_calls import NOW_US, plan


def test_stream_when_it_comes_changes_and_goes_then_its_key_stays():
    feed = Feed().do(CreateStream("s"))
    created_op = feed.position.current
    key = StreamKey(0, created_op)

    kind, body = newest(feed)
    assert kind is ChangeKind.STREAM_CREATED
    assert isinstance(body, StreamState)
    assert (body.key, body.name, body.created_at_us) == (key, "s", feed.now_us)
    assert body.options is not None
    assert body.options.derived["encryption_key_source"].value == "none"
    kind, body = newest(feed.do(UpdateStream("s", "t")))
    assert (kind, body.key, body.name) == (ChangeKind.STREAM_UPDATED, key, "t")
    kind, body = newest(feed.do(DeleteStream("t")))
    assert (kind, body) == (ChangeKind.STREAM_DELETED, StreamRemoved(key, NOW_US + 1, "t"))
    _, body = newest(feed.do(CreateStream("t")))
    assert body.key == StreamKey(0, feed.position.current)


def test_topic_when_it_comes_changes_and_goes_then_its_key_stays():
    feed = Feed().do(CreateStream("s"), CreateTopic("s", "t", 2))
    created_op = feed.position.current
    key = TopicKey(StreamKey(0, created_op - 1), 0, created_op)

    kind, body = newest(feed)
    assert kind is ChangeKind.TOPIC_CREATED
    assert isinstance(body, TopicChanged)
    assert (body.key, body.name, body.partitions_count) == (key, "t", 2)
    assert body.options is not None
    assert {"message_expiry", "replication_factor"} <= {
        *body.options.explicit,
        *body.options.derived,
    }
    kind, body = newest(feed.do(CreatePartitions("s", "t", 3)))
    assert (kind, body) == (ChangeKind.PARTITIONS_CHANGED, PartitionsChanged(key, 5))
    kind, body = newest(feed.do(DeletePartitions("s", "t", 2)))
    assert (kind, body) == (ChangeKind.PARTITIONS_CHANGED, PartitionsChanged(key, 3, (3, 4)))
    kind, body = newest(feed.do(UpdateTopic("s", "t", "u")))
    assert (kind, body.key, body.name) == (ChangeKind.TOPIC_UPDATED, key, "u")
    kind, body = newest(feed.do(CreateConsumerGroup("s", "u", "g")))
    assert (kind, body) == (
        ChangeKind.CONSUMER_GROUP_CREATED,
        ConsumerGroupAdded(key, 0, "g", 1),
    )
    kind, body = newest(feed.do(DeleteConsumerGroup("s", "u", "g")))
    assert (kind, body) == (
        ChangeKind.CONSUMER_GROUP_DELETED,
        ConsumerGroupRemoved(key, 0, "g", 0),
    )
    kind, body = newest(feed.do(DeleteTopic("s", "u")))
    assert (kind, body) == (ChangeKind.TOPIC_DELETED, TopicRemoved(key, NOW_US + 2, "u"))


def test_topic_when_older_than_the_server_then_its_key_has_the_position_of_the_start():
    feed = Feed()
    for command in (CreateStream("s"), CreateTopic("s", "t", 1)):
        feed.metadata = apply(feed.metadata, plan(feed.metadata, command))

    _, body = newest(feed.do(UpdateTopic("s", "t", "u")))

    assert body.key == TopicKey(StreamKey(0, feed.start_op), 0, feed.start_op)


def test_user_when_it_comes_changes_and_goes_then_no_secret_is_told():
    feed = Feed().do(CreateUser("joe", "secret", permissions=GRANTS))
    key = UserKey(1, feed.now_us)

    kind, body = newest(feed)
    assert kind is ChangeKind.USER_CREATED
    assert isinstance(body, UserState)
    assert (body.key, body.username, body.status, body.permissions) == (
        key,
        "joe",
        UserStatus.ACTIVE,
        GRANTS,
    )
    kind, body = newest(feed.do(UpdateUser("joe", "eve", UserStatus.INACTIVE)))
    assert (kind, body.username, body.status) == (
        ChangeKind.USER_UPDATED,
        "eve",
        UserStatus.INACTIVE,
    )
    kind, body = newest(feed.do(ChangePassword("eve", "secret", "other")))
    assert (kind, body) == (ChangeKind.PASSWORD_CHANGED, UserNamed(key, "eve"))
    kind, body = newest(feed.do(UpdatePermissions("eve")))
    updated = PermissionsReplaced(key, "eve", None, PermissionsReason.UPDATED)
    assert (kind, body) == (ChangeKind.PERMISSIONS_UPDATED, updated)
    kind, body = newest(feed.do(DeleteUser("eve")))
    assert (kind, body) == (ChangeKind.USER_DELETED, UserNamed(key, "eve"))


def test_tokens_when_they_come_and_go_then_are_told_one_by_one():
    feed = Feed().do(CreatePersonalAccessToken("one", 5), CreatePersonalAccessToken("two", 5))
    kind, body = newest(feed)
    assert (kind, body) == (ChangeKind.TOKEN_CREATED, TokenState(ROOT, "two", feed.now_us + 5))
    feed.do(CreatePersonalAccessToken("ever"), DeletePersonalAccessToken("two"))
    created, deleted = feed.read().changes[-2:]
    assert created.body == TokenState(ROOT, "ever", 0)
    assert deleted.body == TokenRemoved(ROOT, "two", TokenReason.DELETED)

    feed.do(CreatePersonalAccessToken("three", 7))
    feed.now_us += 10
    change = plan_expire_tokens(feed.metadata, feed.context())
    assert change is not None
    feed.apply(change, actor=None)

    expired = feed.read().changes[-2:]
    assert [(one.body, one.ordinal, one.actor) for one in expired] == [
        (TokenRemoved(ROOT, name, TokenReason.EXPIRED), number, None)
        for number, name in enumerate(("one", "three"))
    ]
    assert expired[0].op == expired[1].op == feed.position.current


def test_deletion_when_users_had_permissions_for_it_then_each_is_told_of_as_well():
    feed = Feed().do(
        CreateStream("s"),
        CreateUser("joe", "secret", permissions=GRANTS),
        CreateUser("eve", "secret"),
        DeleteStream("s"),
    )

    removed, lost = feed.read().changes[-2:]

    assert isinstance(removed.body, StreamRemoved)
    assert isinstance(lost.body, PermissionsReplaced)
    assert (lost.body.username, lost.body.reason) == ("joe", PermissionsReason.RESOURCE_DELETED)
    assert lost.body.permissions == replace(GRANTS, streams=())
    assert (removed.op, removed.ordinal, lost.ordinal) == (lost.op, 0, 1)
    assert lost.group == MetadataGroup.USERS


def test_purge_when_made_then_only_the_position_rises():
    feed = Feed().do(CreateStream("s"), CreateTopic("s", "t", 1))
    before = feed.position.current

    feed.do(PurgeTopic("s", "t"), PurgeStream("s"))

    assert len(feed.read().changes) == 2
    assert feed.position.current == before + 2


@pytest.mark.parametrize("kind", list(ChangeKind))
def test_kind_when_grouped_then_is_in_the_group_of_its_name(kind):
    noun = kind.name.partition("_")[0]
    expected = {
        "STREAM": MetadataGroup.STREAMS,
        "TOPIC": MetadataGroup.TOPICS,
        "PARTITIONS": MetadataGroup.PARTITIONS,
        "CONSUMER": MetadataGroup.CONSUMER_GROUPS,
        "MEMBER": MetadataGroup.MEMBERS,
        "PARTITION": MetadataGroup.MEMBERS,
        "USER": MetadataGroup.USERS,
        "PASSWORD": MetadataGroup.USERS,
        "PERMISSIONS": MetadataGroup.USERS,
        "TOKEN": MetadataGroup.TOKENS,
        "SESSION": MetadataGroup.SESSIONS,
    }

    assert group_of(kind) is expected[noun]


def test_change_when_every_kind_of_the_log_is_made_then_all_are_told():
    feed = Feed().do(
        CreateStream("s"),
        UpdateStream("s", "t"),
        CreateTopic("t", "t", 1),
        UpdateTopic("t", "t", "u"),
        CreatePartitions("t", "u", 1),
        CreateConsumerGroup("t", "u", "g"),
        DeleteConsumerGroup("t", "u", "g"),
        CreateUser("joe", "secret"),
        UpdateUser("joe", "eve"),
        ChangePassword("eve", "secret", "other"),
        UpdatePermissions("eve", GRANTS),
        DeleteUser("eve"),
        CreatePersonalAccessToken("one"),
        DeletePersonalAccessToken("one"),
        DeleteTopic("t", "u"),
        DeleteStream("t"),
    )

    elsewhere = {
        ChangeKind.MEMBER_JOINED,
        ChangeKind.MEMBER_LEFT,
        ChangeKind.PARTITION_HANDED_OVER,
        ChangeKind.SESSION_REGISTERED,
        ChangeKind.SESSION_CLOSED,
    }
    assert {change.kind for change in feed.read().changes} == set(ChangeKind) - elsewhere
