"""What commands lead to, and the status of those that are refused, beyond the recordings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iggy_protocol import (
    NEVER_EXPIRES,
    ChangePassword,
    CompressionAlgorithm,
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
    GlobalPermissions,
    Permissions,
    PurgeStream,
    PurgeTopic,
    StatusCode,
    StreamPermissions,
    TopicPermissions,
    UpdatePermissions,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    UserStatus,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.changes import PartitionsAdded
from iggy_ref_server.metadata.plan_users import (
    ROOT_PERMISSIONS,
    plan_create_root,
    plan_expire_tokens,
)
from iggy_ref_server.metadata.state import (
    PARTITIONS_PER_TOPIC_MAX,
    STREAMS_MAX,
    TOPICS_PER_STREAM_MAX,
    Catalog,
    Metadata,
    MetadataSettings,
    PartitionRecord,
    PlanContext,
    StreamRecord,
    TopicRecord,
)
from tests.server.metadata.metadata_calls import (
    CONTEXT,
    NOW_US,
    after,
    hashed,
    plan,
    small_segments,
    status_of,
    with_root,
)

ROOTED = with_root()
ALICE = after(ROOTED, CreateUser("alice", "secret"))
POPULATED = after(
    ROOTED,
    CreateStream("s"),
    CreateTopic("s", "t", partitions_count=3),
    CreateConsumerGroup("s", "t", "g"),
)
DOUBLED = after(
    POPULATED, CreateStream("s2"), CreateTopic("s", "t2", 1), CreateUser("alice", "secret")
)

MISSING = (
    (UpdateStream("nope", "x"), StatusCode.STREAM_ID_NOT_FOUND),
    (UpdateStream(9, "x"), StatusCode.STREAM_ID_NOT_FOUND),
    (DeleteStream("nope"), StatusCode.STREAM_ID_NOT_FOUND),
    (PurgeStream(9), StatusCode.STREAM_ID_NOT_FOUND),
    (CreateTopic("nope", "t", 1), StatusCode.STREAM_ID_NOT_FOUND),
    (UpdateTopic("nope", "t", "t"), StatusCode.STREAM_ID_NOT_FOUND),
    (UpdateTopic("s", "nope", "t"), StatusCode.TOPIC_ID_NOT_FOUND),
    (UpdateTopic("s", 9, "t"), StatusCode.TOPIC_ID_NOT_FOUND),
    (DeleteTopic("s", "nope"), StatusCode.TOPIC_ID_NOT_FOUND),
    (PurgeTopic("s", 9), StatusCode.TOPIC_ID_NOT_FOUND),
    (PurgeTopic("nope", "t"), StatusCode.STREAM_ID_NOT_FOUND),
    (CreatePartitions("s", "nope", 1), StatusCode.TOPIC_ID_NOT_FOUND),
    (DeletePartitions("nope", "t", 1), StatusCode.STREAM_ID_NOT_FOUND),
    (DeletePartitions("s", "t", 4), StatusCode.INVALID_PARTITIONS_COUNT),
    (CreateConsumerGroup("s", "nope", "g"), StatusCode.TOPIC_ID_NOT_FOUND),
    (DeleteConsumerGroup("s", "t", "nope"), StatusCode.CONSUMER_GROUP_ID_NOT_FOUND),
    (DeleteConsumerGroup("s", "t", 9), StatusCode.CONSUMER_GROUP_ID_NOT_FOUND),
    (DeleteUser("nope"), StatusCode.RESOURCE_NOT_FOUND),
    (UpdateUser(9, "name"), StatusCode.RESOURCE_NOT_FOUND),
    (UpdatePermissions("nope"), StatusCode.RESOURCE_NOT_FOUND),
    (ChangePassword("nope", "old", "new"), StatusCode.RESOURCE_NOT_FOUND),
    (DeletePersonalAccessToken("nope"), StatusCode.RESOURCE_NOT_FOUND),
)
TAKEN = (
    (CreateStream("s"), StatusCode.STREAM_NAME_ALREADY_EXISTS),
    (CreateTopic("s", "t", 1), StatusCode.TOPIC_NAME_ALREADY_EXISTS),
    (CreateConsumerGroup("s", "t", "g"), StatusCode.CONSUMER_GROUP_NAME_ALREADY_EXISTS),
    (CreateUser("iggy", "secret"), StatusCode.USER_ALREADY_EXISTS),
    (UpdateStream("s2", "s"), StatusCode.STREAM_NAME_ALREADY_EXISTS),
    (UpdateTopic("s", "t2", "t"), StatusCode.TOPIC_NAME_ALREADY_EXISTS),
    (UpdateUser("alice", "iggy"), StatusCode.USER_ALREADY_EXISTS),
)


@pytest.mark.parametrize(("command", "status"), MISSING + TAKEN, ids=repr)
def test_plan_when_something_is_missing_or_taken_then_refuses_as_recorded(command, status):
    assert status_of(DOUBLED, command) == status


def test_names_when_they_differ_in_case_or_blanks_then_are_different_names():
    metadata = after(POPULATED, CreateStream("S"), CreateStream(" s"), CreateStream("s "))

    assert [stream.name for stream in metadata.streams] == ["s", "S", " s", "s "]


def test_names_when_made_of_digits_then_are_looked_up_as_names():
    metadata = after(ROOTED, CreateUser("000", "secret"), CreateStream("7"))

    assert metadata.require_user("000").id == 1
    assert metadata.find_stream(7) is None


def test_rename_when_the_name_is_its_own_then_passes():
    metadata = after(
        POPULATED, UpdateStream("s", "s"), UpdateTopic("s", "t", "t"), UpdateUser("iggy", "iggy")
    )

    assert metadata.version == POPULATED.version + 3


def test_update_when_it_leaves_settings_as_they_are_then_only_the_others_change():
    created = after(
        ROOTED,
        CreateStream("s"),
        CreateTopic("s", "t", 1, CompressionAlgorithm.GZIP, 5, NEVER_EXPIRES, 3),
    )
    untouched = UpdateTopic("s", "t", None, None, None, None, None)

    kept = after(created, UpdateStream("s", None), untouched).require_topic("s", "t")
    changed = after(created, replace(untouched, message_expiry_us=9)).require_topic("s", "t")

    assert kept == created.require_topic("s", "t")
    assert changed == replace(kept, message_expiry_us=9)


def test_create_topic_when_size_and_name_are_both_wrong_then_the_size_is_blamed():
    command = CreateTopic("s", "t", 1, max_topic_size_bytes=1)

    assert status_of(POPULATED, command) == StatusCode.INVALID_TOPIC_SIZE


def test_topic_when_left_to_the_server_then_gets_its_defaults_for_good():
    settings = MetadataSettings(message_expiry_us=5, max_topic_size_bytes=7)
    context = replace(CONTEXT, settings=settings)
    created = after(ROOTED, CreateStream("s"), CreateTopic("s", "t", 1), context=context)
    updated = after(created, UpdateTopic("s", "t", "t", message_expiry_us=1), context=CONTEXT)
    again = after(updated, UpdateTopic("s", "t", "t"), context=context)

    found = [
        (topic.message_expiry_us, topic.max_size_bytes, topic.replication_factor)
        for topic in (metadata.require_topic(0, 0) for metadata in (created, updated, again))
    ]
    assert found == [(5, 7, 1), (1, NEVER_EXPIRES, 1), (5, 7, 1)]


def test_update_topic_when_smaller_than_a_segment_then_refuses_as_a_creation_does():
    command = UpdateTopic("s", "t", "t", max_topic_size_bytes=511)
    context = replace(CONTEXT, settings=small_segments())

    assert status_of(POPULATED, command, context) == StatusCode.INVALID_TOPIC_SIZE
    assert (
        after(POPULATED, replace(command, max_topic_size_bytes=512), context=context)
        .require_topic("s", "t")
        .max_size_bytes
        == 512
    )


def test_streams_when_full_then_one_more_is_refused_until_one_goes():
    streams = {number: StreamRecord(number, f"s{number}", 0) for number in range(STREAMS_MAX)}
    names = {stream.name: number for number, stream in streams.items()}
    metadata = Metadata(1, streams=Catalog(streams, names))

    assert status_of(metadata, CreateStream("more")) == StatusCode.CANNOT_CREATE_STREAM
    assert after(metadata, DeleteStream(17), CreateStream("more")).require_stream("more").id == 17


def test_topics_when_full_then_one_more_is_refused():
    sample = POPULATED.require_topic("s", "t")
    topics = {
        number: replace(sample, id=number, name=f"t{number}")
        for number in range(TOPICS_PER_STREAM_MAX)
    }
    names = {topic.name: topic.id for topic in topics.values()}
    catalog: Catalog[TopicRecord] = Catalog(topics, names)
    metadata = Metadata(1, Catalog({0: StreamRecord(0, "s", 0, catalog)}, {"s": 0}))

    assert status_of(metadata, CreateTopic("s", "more", 1)) == StatusCode.CANNOT_CREATE_TOPIC


def test_partitions_when_more_than_can_be_told_apart_then_are_refused():
    topic = POPULATED.require_topic("s", "t")
    # One record many times over: only their number matters.
    many = (PartitionRecord(0, 0, 0),) * (PARTITIONS_PER_TOPIC_MAX - 1)
    stream = POPULATED.require_stream("s")
    full = replace(stream, topics=stream.topics.replace(replace(topic, partitions=many)))
    metadata = replace(POPULATED, streams=POPULATED.streams.replace(full))

    assert status_of(metadata, CreatePartitions("s", "t", 2)) == StatusCode.TOO_MANY_PARTITIONS
    assert isinstance(plan(metadata, CreatePartitions("s", "t", 1)), PartitionsAdded)


def test_partitions_when_removed_and_added_then_only_new_ones_have_a_new_incarnation():
    before = POPULATED.require_topic("s", "t").partitions
    metadata = after(POPULATED, DeletePartitions("s", "t", 2), CreatePartitions("s", "t", 2))

    partitions = metadata.require_topic("s", "t").partitions
    assert partitions[0] == before[0]
    assert [(entry.id, entry.generation) for entry in partitions[1:]] == [
        (1, metadata.last_generation),
        (2, metadata.last_generation),
    ]
    assert metadata.last_generation > POPULATED.last_generation


def test_partitions_when_all_removed_then_numbering_starts_at_zero_again():
    metadata = after(POPULATED, DeletePartitions("s", "t", 3), CreatePartitions("s", "t", 2))

    assert [entry.id for entry in metadata.require_topic("s", "t").partitions] == [0, 1]


@pytest.mark.parametrize("command", [PurgeTopic("s", "t"), PurgeStream("s")], ids=repr)
def test_purge_when_done_then_every_partition_is_another_incarnation_and_the_rest_stays(command):
    metadata = after(POPULATED, command)

    topic, before = metadata.require_topic("s", "t"), POPULATED.require_topic("s", "t")
    assert {entry.generation for entry in topic.partitions} == {metadata.last_generation}
    assert metadata.last_generation > POPULATED.last_generation
    assert replace(topic, partitions=before.partitions) == before


def test_topic_when_recreated_under_the_same_id_then_its_partitions_are_another_incarnation():
    metadata = after(POPULATED, DeleteTopic("s", "t"), CreateTopic("s", "t", 1))

    topic, before = metadata.require_topic("s", "t"), POPULATED.require_topic("s", "t")
    assert topic.id == before.id
    assert topic.partitions[0].generation > before.partitions[0].generation


def test_group_when_recreated_under_the_same_id_then_is_another_incarnation():
    metadata = after(POPULATED, DeleteConsumerGroup("s", "t", "g"), CreateConsumerGroup(0, 0, "g"))

    group, before = metadata.require_group(0, 0, 0), POPULATED.require_group(0, 0, 0)
    assert (group.id, group.name) == (before.id, before.name)
    assert group.generation > before.generation


def test_root_when_created_then_may_do_everything_and_only_once():
    root = ROOTED.require_user(0)

    assert (root.username, root.permissions, root.is_active) == ("iggy", ROOT_PERMISSIONS, True)
    assert plan_create_root(ROOTED, "other", "#", CONTEXT) is None


@pytest.mark.parametrize("user", [0, "iggy"])
def test_root_when_threatened_then_stays(user):
    deactivated = UpdateUser(user, status=UserStatus.INACTIVE)

    assert status_of(ROOTED, DeleteUser(user)) == StatusCode.CANNOT_DELETE_USER
    assert status_of(ROOTED, UpdatePermissions(user)) == StatusCode.CANNOT_CHANGE_PERMISSIONS
    assert status_of(ROOTED, deactivated) == StatusCode.CANNOT_CHANGE_PERMISSIONS


def test_root_when_renamed_or_activated_then_that_is_allowed():
    metadata = after(ROOTED, UpdateUser(0, "boss"), UpdateUser(0, status=UserStatus.ACTIVE))

    assert metadata.require_user("boss").is_root


def test_user_when_deleted_and_the_id_is_reused_then_sessions_can_tell():
    metadata = after(ALICE, DeleteUser("alice"), CreateUser("mallory", "secret"))

    assert metadata.require_user("mallory").id == ALICE.require_user("alice").id
    assert metadata.require_user(1).generation != ALICE.require_user(1).generation


def test_user_when_deactivated_then_sessions_can_tell_even_after_reactivation():
    inactive = after(ALICE, UpdateUser("alice", status=UserStatus.INACTIVE))
    active = after(inactive, UpdateUser("alice", status=UserStatus.ACTIVE))

    assert inactive.require_user(1).generation > ALICE.require_user(1).generation
    assert active.require_user(1).generation == inactive.require_user(1).generation


def test_user_when_renamed_or_given_a_password_then_sessions_go_on():
    metadata = after(
        ALICE,
        UpdateUser("alice", "alice2"),
        ChangePassword("alice2", "secret", "better"),
        UpdateUser("alice2"),
    )

    user = metadata.require_user("alice2")
    assert user.generation == ALICE.require_user(1).generation
    assert user.password_hash == hashed("better")


def test_change_password_when_another_change_was_faster_then_refuses():
    metadata = after(ALICE, ChangePassword("alice", "secret", "first"))

    refused = status_of(metadata, ChangePassword("alice", "secret", "second"))

    assert refused == StatusCode.INVALID_CREDENTIALS


GRANTS = Permissions(
    GlobalPermissions(read_servers=True),
    (
        StreamPermissions(1, topics=(TopicPermissions(5), TopicPermissions(0, read_topic=True))),
        StreamPermissions(0, read_stream=True, topics=(TopicPermissions(0), TopicPermissions(1))),
        StreamPermissions(1, send_messages=True, topics=(TopicPermissions(7),)),
    ),
)


def test_permissions_when_a_stream_stands_twice_then_the_later_counts_and_ids_ascend():
    metadata = after(ROOTED, CreateUser("alice", "secret", permissions=GRANTS))

    permissions = metadata.require_user("alice").permissions
    assert permissions is not None
    assert permissions.server == GRANTS.server
    assert permissions.streams == (GRANTS.streams[1], GRANTS.streams[2])


def test_permissions_when_their_stream_is_deleted_then_do_not_apply_to_the_next_one():
    granted = after(POPULATED, CreateUser("alice", "secret", permissions=GRANTS))
    metadata = after(granted, DeleteStream("s"), CreateStream("next"))

    permissions = metadata.require_user("alice").permissions
    assert metadata.require_stream("next").id == 0
    assert permissions is not None
    assert [entry.stream_id for entry in permissions.streams] == [1]


def test_permissions_when_their_topic_is_deleted_then_only_those_go():
    granted = after(POPULATED, CreateUser("alice", "secret", permissions=GRANTS))
    metadata = after(granted, DeleteTopic("s", "t"))

    permissions = metadata.require_user("alice").permissions
    assert permissions is not None
    assert permissions.streams == (
        StreamPermissions(0, read_stream=True, topics=(TopicPermissions(1),)),
        GRANTS.streams[2],
    )


def test_permissions_when_none_are_given_then_all_are_gone():
    granted = after(ROOTED, CreateUser("alice", "secret", permissions=GRANTS))

    assert after(granted, UpdatePermissions("alice")).require_user("alice").permissions is None


AS_ALICE = PlanContext(now_us=NOW_US, user_id=1)
THREE_TOKENS = replace(AS_ALICE, settings=MetadataSettings(tokens_per_user_max=3))


def with_tokens(*names: str, expiry_us: int = 0) -> Metadata:
    commands = [CreatePersonalAccessToken(name, expiry_us) for name in names]
    return after(ALICE, *commands, context=THREE_TOKENS)


def test_token_when_the_limit_is_reached_then_that_is_told_before_a_taken_name():
    metadata = with_tokens("one", "two", "three")

    for name in ("one", "four"):
        status = status_of(metadata, CreatePersonalAccessToken(name), THREE_TOKENS)
        assert status == StatusCode.PERSONAL_ACCESS_TOKENS_LIMIT_REACHED


def test_token_when_expired_then_keeps_name_and_place_until_swept():
    metadata = with_tokens("one", "two", expiry_us=10)
    later = replace(THREE_TOKENS, now_us=NOW_US + 10)

    taken = status_of(metadata, CreatePersonalAccessToken("one"), later)
    sweep = plan_expire_tokens(metadata, later)

    assert taken == StatusCode.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS
    assert sweep is not None
    assert len(apply(metadata, sweep).tokens) == 0


def test_sweep_when_nothing_has_expired_then_plans_nothing():
    metadata = after(with_tokens("one", expiry_us=10), CreatePersonalAccessToken("mine"))

    assert plan_expire_tokens(metadata, replace(CONTEXT, now_us=NOW_US + 9)) is None


@pytest.mark.parametrize(
    ("expiry_us", "expires_at_us"),
    [(0, None), (NEVER_EXPIRES, None), (1, NOW_US + 1), (2**64 - 2, 2**64 - 1)],
)
def test_token_when_created_then_expires_when_asked(expiry_us, expires_at_us):
    token = with_tokens("one", expiry_us=expiry_us).tokens.of_user(1)["one"]

    assert token.expires_at_us == expires_at_us


def test_tokens_when_two_users_use_the_same_name_then_each_has_its_own():
    metadata = after(with_tokens("tok"), CreatePersonalAccessToken("tok"))
    remaining = after(metadata, DeletePersonalAccessToken("tok"))

    assert [token.user_id for token in metadata.tokens] == [1, 0]
    assert [token.user_id for token in remaining.tokens] == [1]
    assert [remaining.find_token(token.hash) for token in remaining.tokens] == [*remaining.tokens]


def test_tokens_when_their_user_is_deleted_then_none_is_left():
    metadata = after(with_tokens("one", "two"), CreatePersonalAccessToken("root"))
    remaining = after(metadata, DeleteUser("alice"))

    assert [token.name for token in remaining.tokens] == ["root"]
    assert remaining.tokens.of_user(1) == {}


def test_token_when_the_user_is_gone_then_is_refused():
    gone = PlanContext(now_us=NOW_US, user_id=9)

    status = status_of(ALICE, CreatePersonalAccessToken("tok"), gone)

    assert status == StatusCode.RESOURCE_NOT_FOUND


def test_require_when_a_partition_is_missing_then_refuses_as_recorded():
    topic = POPULATED.require_topic("s", "t")

    assert POPULATED.require_stream("s").find_topic("t") == topic
    assert topic.find_group("g") == topic.require_group(0)
    assert topic.require_partition(2).id == 2
    for missing in (3, -1):
        with pytest.raises(ServerFault) as fault:
            topic.require_partition(missing)
        assert fault.value.status == StatusCode.PARTITION_NOT_FOUND


def test_incarnation_when_the_metadata_begin_again_then_is_one_that_was_never_given():
    lost = after(POPULATED, PurgeTopic("s", "t"))

    again = Metadata.EMPTY.next_generation(NOW_US + 1_000)

    assert again > lost.last_generation


def test_incarnation_when_the_clock_goes_back_then_rises_all_the_same():
    assert POPULATED.next_generation(0) == POPULATED.last_generation + 1


def test_incarnation_when_older_releases_counted_changes_then_is_above_all_of_them():
    old = replace(POPULATED, version=900, last_generation=0)

    assert old.next_generation(5) == 901
