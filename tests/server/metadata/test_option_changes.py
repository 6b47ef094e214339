"""Changes of options: updates, resets, refusals, and descriptions of what may be changed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    CLASSIC,
    NEVER_EXPIRES,
    UNLIMITED,
    V0_11,
    V0_12_0,
    V0_12_2,
    CompressionAlgorithm,
    CreatePartitions,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeletePartitions,
    Dialect,
    Options,
    OptionScope,
    OptionValue,
    StatusCode,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    UserStatus,
)
from iggy_ref_server.metadata.options import (
    describe_options,
    report_topic_options,
)
from tests.server.metadata.option_calls import (
    FIELDS,
    MINUTE_US,
    SETTINGS,
    SINCE_0_12,
    STREAM,
    VSR,
    create,
    refusal,
    told,
    topic_of,
    update,
)


def test_update_when_a_client_of_0_9_leaves_out_keys_then_they_keep_their_values():
    start = told(STREAM, V0_11, create(message_expiry="2 min"))
    named = UpdateTopic("s", "t", "t", None, None, 2**30, None)

    topic = topic_of(told(start, V0_11, named))

    assert (topic.message_expiry_us, topic.max_size_bytes) == (2 * MINUTE_US, 2**30)
    assert topic.derived == {"compression_algorithm"}


def test_update_when_a_client_of_0_9_asks_for_the_default_then_it_is_explicit():
    start = told(STREAM, V0_11, create())

    topic = topic_of(told(start, V0_11, UpdateTopic("s", "t", "t", None, 0, None, None)))

    assert topic.message_expiry_us == MINUTE_US
    assert topic.derived == FIELDS - {"message_expiry"}


@pytest.mark.parametrize("dialect", SINCE_0_12)
def test_update_when_it_resets_an_option_then_the_option_is_derived_again(dialect):
    start = told(STREAM, dialect, create(message_expiry="2 min", max_topic_size=2**30))
    reset = UpdateTopic("s", "t", None, None, None, None, None, reset=frozenset({"message_expiry"}))

    topic = topic_of(told(start, dialect, reset))

    assert (topic.message_expiry_us, topic.max_size_bytes) == (MINUTE_US, 2**30)
    assert topic.derived == {"compression_algorithm", "message_expiry"}


@pytest.mark.parametrize("dialect", SINCE_0_12)
def test_update_when_a_limit_is_set_to_zero_then_nothing_changes(dialect):
    start = told(STREAM, dialect, create(message_expiry="2 min"))

    assert topic_of(told(start, dialect, update(message_expiry=0))) == topic_of(start)


@pytest.mark.parametrize("dialect", SINCE_0_12)
def test_update_when_it_names_the_topic_then_settings_stay(dialect):
    start = told(STREAM, dialect, create(durability="persisted"))

    topic = topic_of(told(start, dialect, update(name="new")))

    assert topic.name == "new"
    assert topic.options == Options({"durability": "persisted"})
    assert topic.derived == FIELDS


def test_update_when_it_is_classic_then_options_stay_and_fields_become_explicit():
    start = told(STREAM, V0_12_2, create(segment_size="1 MiB"))

    topic = topic_of(told(start, CLASSIC, UpdateTopic("s", "t", "t")))

    assert topic.options == Options({"segment_size": OptionValue.uint64(2**20)})
    assert topic.derived == frozenset()


@pytest.mark.parametrize("dialect", VSR)
def test_topic_when_a_classic_client_labelled_it_then_the_label_survives_new_updates(dialect):
    start = told(STREAM, CLASSIC, CreateTopic("s", "t", 1, replication_factor=3))
    named = (
        update(name="new")
        if dialect in SINCE_0_12
        else UpdateTopic("s", "t", "new", None, None, None, None)
    )

    assert topic_of(told(start, dialect, named)).replication_factor == 3


@pytest.mark.parametrize(
    ("dialect", "command", "status"),
    [
        (V0_11, create(bogus="1"), 4041),
        (V0_12_2, create(bogus="1"), 4041),
        (V0_11, create(partition_resize_policy="fixed"), 4041),
        (V0_12_0, create(replication_factor=1), 4041),
        (V0_12_2, create(name="other"), 4041),
        (V0_11, create(segment_size=1000), 4042),
        (V0_12_2, create(durability="never"), 4042),
        (V0_12_2, create(replication_factor=2), 4042),
        (V0_12_2, create(replication_factor=0), 4042),
        (V0_12_2, CreateTopic("s", "t", 1, replication_factor=3), 4042),
        (V0_11, CreateStream("x", options=Options({"encryption_key": b"k" * 32})), 4041),
        (V0_12_0, CreateStream("x", options=Options({"encryption_key": b"k" * 32})), 4106),
        (V0_12_0, CreateStream("x", options=Options({"encryption_key": b"k"})), 4042),
        (V0_12_0, CreateStream("x", options=Options({"encryption_key_source": "none"})), 4105),
        (V0_11, CreateUser("joe", "secret", options=Options({"status": "active"})), 4041),
        (V0_12_2, CreateUser("joe", "secret", options=Options({"username": "x"})), 4041),
        (V0_12_2, UpdateUser(0, "joe"), 4108),
        (V0_12_2, UpdateUser(0, status=UserStatus.INACTIVE), 4108),
        (V0_11, UpdateUser(0, status=UserStatus.INACTIVE), StatusCode.CANNOT_CHANGE_PERMISSIONS),
        (CLASSIC, UpdateUser(0, status=UserStatus.INACTIVE), StatusCode.CANNOT_CHANGE_PERMISSIONS),
    ],
)
def test_command_when_an_option_is_wrong_then_status_says_how(dialect, command, status):
    assert refusal(STREAM, dialect, command) == status


@pytest.mark.parametrize("dialect", SINCE_0_12)
@pytest.mark.parametrize(
    ("command", "status"),
    [
        (update(segment_size="1 MiB"), 4103),
        (update(durability="persisted"), 4103),
        (UpdateTopic("s", "t", None, CompressionAlgorithm.GZIP, None, None, None), 4103),
        (update(bogus="x"), 4041),
        (update(message_expiry="long"), 4042),
        (UpdateTopic("s", "t", None, None, None, None, None, reset=frozenset({"name"})), 4104),
        (UpdateStream("s", None, reset=frozenset({"name"})), 4104),
        (UpdateStream("s", None, options=Options({"encryption_key_source": "none"})), 4105),
        (UpdateTopic("s", "t", None, None, None, 2**20, None), 1019),
    ],
)
def test_update_when_an_option_is_wrong_then_status_says_how(dialect, command, status):
    start = told(STREAM, dialect, create())

    assert refusal(start, dialect, command) == status


@pytest.mark.parametrize("dialect", SINCE_0_12)
def test_update_when_the_name_is_taken_then_status_is_that_of_the_kind(dialect):
    start = told(
        STREAM,
        dialect,
        create(),
        CreateTopic("s", "other", 1),
        CreateStream("other"),
        CreateUser("joe", "secret"),
        CreateUser("eve", "secret"),
    )

    assert refusal(start, dialect, update(name="other")) == 2013
    assert refusal(start, dialect, UpdateStream("s", "other")) == 1012
    assert refusal(start, dialect, UpdateUser("joe", "eve")) == 46


@pytest.mark.parametrize("dialect", SINCE_0_12)
def test_update_when_it_deactivates_a_user_then_the_sessions_of_the_user_end(dialect):
    start = told(STREAM, dialect, CreateUser("joe", "secret"))

    updated = told(start, dialect, UpdateUser("joe", status=UserStatus.INACTIVE))

    before, now = start.require_user("joe"), updated.require_user("joe")
    assert now.status is UserStatus.INACTIVE
    assert now.generation > before.generation


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("command", [CreatePartitions("s", "t", 1), DeletePartitions("s", "t", 1)])
def test_partitions_when_their_number_is_fixed_then_no_client_changes_it(dialect, command):
    start = told(STREAM, V0_12_0, create(partition_resize_policy="fixed"))

    assert refusal(start, dialect, command) == 2023


@pytest.mark.parametrize(("size", "count"), [("1 GiB", 64), ("512 MiB", 128)])
def test_partitions_when_preallocated_then_take_64_gib_together_at_most(size, count):
    command = create(segment_size=size, preallocate_segments=True)
    start = told(STREAM, V0_12_2, replace(command, partitions_count=count - 1))

    grown = told(start, CLASSIC, CreatePartitions("s", "t", 1))

    assert len(topic_of(grown).partitions) == count
    assert refusal(grown, CLASSIC, CreatePartitions("s", "t", 1)) == 4042
    assert refusal(STREAM, V0_12_2, replace(command, partitions_count=count + 1)) == 4042


def test_topic_size_when_segments_are_smaller_then_may_be_smaller_too():
    command = create(segment_size="1 MiB", max_topic_size="1 MiB")

    assert topic_of(told(STREAM, V0_12_2, command)).max_size_bytes == 2**20
    assert refusal(STREAM, V0_12_2, create(max_topic_size="1 MiB")) == 1019


# Descriptions


@pytest.mark.parametrize("dialect", VSR)
def test_descriptions_when_asked_then_have_the_defaults_of_this_server(dialect):
    described = {
        one.key: one.default for one in describe_options(OptionScope.TOPIC, dialect, SETTINGS)
    }

    assert described["segment_size"] == (2**27).to_bytes(8, "little")
    assert described["messages_required_to_save"] == (7).to_bytes(4, "little")
    assert described["message_expiry"] == MINUTE_US.to_bytes(8, "little")
    assert described["durability"] == b"replicated"
    assert ("replication_factor" in described) == (dialect is V0_12_2)


@pytest.mark.parametrize(
    ("scope", "dialect", "keys"),
    [
        (OptionScope.STREAM, V0_11, []),
        (OptionScope.USER, V0_11, []),
        (OptionScope.USER, V0_12_0, ["username", "status"]),
        (
            OptionScope.STREAM,
            V0_12_2,
            [
                "name",
                "encryption_key",
                "encryption_key_source",
                "encryption_key_fingerprint",
                "encryption_kek_fingerprint",
            ],
        ),
    ],
)
def test_descriptions_when_asked_then_are_those_of_the_dialect(scope, dialect, keys):
    described = describe_options(scope, dialect, SETTINGS)

    assert [one.key for one in described] == keys


# Any sequence of updates


PATCHES = st.fixed_dictionaries(
    {},
    optional={
        "message_expiry": st.sampled_from([1, 5, NEVER_EXPIRES]),
        "max_topic_size": st.sampled_from([2**30, 2**31, UNLIMITED]),
    },
)


@given(
    st.sampled_from(SINCE_0_12),
    st.lists(st.tuples(PATCHES, st.sets(st.sampled_from(["message_expiry", "max_topic_size"])))),
)
def test_topic_when_patched_again_and_again_then_the_last_word_on_each_option_counts(
    dialect, patches
):
    metadata, explicit = told(STREAM, dialect, create()), dict[str, int]()
    for values, reset in patches:
        reset -= values.keys()
        if not values and not reset:
            continue
        command = UpdateTopic(
            "s",
            "t",
            None,
            None,
            values.get("message_expiry"),
            values.get("max_topic_size"),
            None,
            reset=frozenset(reset),
        )
        metadata = told(metadata, dialect, command)
        explicit = {key: value for key, value in {**explicit, **values}.items() if key not in reset}

    reported = report_topic_options(topic_of(metadata), dialect, SETTINGS)

    assert {key: value.value for key, value in reported.explicit.items()} == explicit
