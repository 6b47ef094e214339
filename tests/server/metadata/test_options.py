"""Options that clients set: stored, and reported to each dialect."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    CLASSIC,
    NO_OPTIONS,
    V0_11,
    V0_12_0,
    V0_12_2,
    CompressionAlgorithm,
    CreateConsumerGroup,
    CreatePartitions,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeletePartitions,
    DeleteStream,
    Dialect,
    Options,
    OptionValue,
    PurgeTopic,
    ReportedOptions,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    UserStatus,
)
from iggy_ref_server.metadata import changes as change_types
from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.changes import Change, decode_change, encode_change
from iggy_ref_server.metadata.options import (
    StoredOption,
    report_stream_options,
    report_topic_options,
    report_user_options,
    restore_options,
    store_options,
)
from iggy_ref_server.metadata.snapshot import decode_snapshot, encode_snapshot
from iggy_ref_server.metadata.state import MetadataSettings
from tests.server.metadata.metadata_calls import NOW_US, plan, with_root
from tests.server.metadata.option_calls import (
    FIELDS,
    MINUTE_US,
    SETTINGS,
    SINCE_0_12,
    STREAM,
    VSR,
    context,
    create,
    spoken,
    told,
    topic_of,
)

# What is stored


CLASSIC_COMMANDS = (
    CreateStream("s"),
    CreateTopic("s", "t", 2, CompressionAlgorithm.GZIP, 5, 2**31, 3),
    CreateTopic("s", "u", 1),
    UpdateTopic("s", "t", "v", CompressionAlgorithm.NONE, 7, 2**32, 2),
    CreatePartitions("s", "v", 1),
    DeletePartitions("s", "v", 1),
    CreateConsumerGroup("s", "v", "g"),
    CreateUser("bob", "secret"),
    UpdateUser("bob", "eve"),
    CreatePersonalAccessToken("token"),
    PurgeTopic("s", "v"),
    CreateStream("gone"),
    UpdateStream("gone", "off"),
    DeleteStream("off"),
)


def test_files_when_no_client_sets_options_then_are_those_of_releases_without_them():
    """The digests were taken before options existed."""
    metadata, log = with_root(), b""
    for command in CLASSIC_COMMANDS:
        change = plan(metadata, command)
        log += encode_change(change)
        metadata = apply(metadata, change)

    digests = [
        hashlib.sha256(content).hexdigest() for content in (log, encode_snapshot(metadata, NOW_US))
    ]

    assert digests == [
        "9ee3807599c6f9d0ee4fa4c6952069faf24b53852a6954b89333c58eee99550a",
        "1821cae75cbc9adb98c1e3189572a3323c3724b9f0b317889e11ea22bcbc8f2c",
    ]


class OlderTopicCreated(msgspec.Struct, tag="topic+", rename={"generation": "incarnation"}):
    """What releases without options read."""

    stream_id: int
    id: int
    name: str
    created_at_us: int
    partitions_count: int
    generation: int
    message_expiry_us: int
    compression: CompressionAlgorithm
    max_size_bytes: int
    replication_factor: int


def test_change_when_a_release_without_options_reads_it_then_finds_all_it_knows():
    change = plan(STREAM, spoken(create(durability="persisted"), V0_12_2), context(V0_12_2))

    read = msgspec.msgpack.decode(encode_change(change), type=OlderTopicCreated)

    assert isinstance(change, change_types.TopicCreated)
    assert (read.name, read.generation, read.max_size_bytes) == ("t", change.generation, 2**40)


def test_change_when_it_has_options_then_keeps_them_as_sorted_triples():
    command = create(segment_size=2**20, durability="persisted")
    change = plan(STREAM, spoken(command, V0_12_2), context(V0_12_2))

    assert msgspec.msgpack.decode(encode_change(change))["options"] == [
        ["durability", 2, b"persisted"],
        ["segment_size", 12, (2**20).to_bytes(8, "little")],
    ]


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20),
        st.one_of(st.booleans(), st.integers(0, 2**64 - 1), st.binary(min_size=1, max_size=40)),
        max_size=5,
    )
)
def test_options_when_stored_then_are_restored_whatever_they_are(values):
    options = Options(values)

    assert restore_options(store_options(options)) == options
    assert store_options(options) == store_options(Options(dict(reversed(values.items()))))


@pytest.mark.parametrize(
    "change",
    [
        change_types.StreamCreated(
            1, "x", 5, (StoredOption("a", OptionValue.uint32(1).kind, b"1234"),)
        ),
        change_types.UserCreated(
            7,
            9,
            "joe",
            "#",
            UserStatus.ACTIVE,
            5,
            None,
            (StoredOption("b", 3, b"\1"),),  # type: ignore[arg-type]
        ),
    ],
    ids=["stream", "user"],
)
def test_record_when_a_newer_release_allows_options_then_survives_log_and_snapshot(change: Change):
    metadata = apply(STREAM, decode_change(encode_change(change)))
    restored = decode_snapshot(encode_snapshot(metadata, NOW_US))

    found = [thing.options for thing in (*metadata.streams, *metadata.users) if thing.options]
    assert len(found) == 1
    assert restored == metadata


# What is explicit and what is derived


@pytest.mark.parametrize("dialect", VSR)
def test_topic_when_a_classic_client_created_it_then_its_fields_are_explicit(dialect):
    metadata = told(STREAM, CLASSIC, CreateTopic("s", "t", 1))

    reported = report_topic_options(topic_of(metadata), dialect, SETTINGS)

    assert reported.explicit == Options(
        {
            "compression_algorithm": "none",
            "max_topic_size": OptionValue.uint64(2**40),
            "message_expiry": OptionValue.uint64(MINUTE_US),
        }
    )
    assert not FIELDS & reported.derived.keys()


@pytest.mark.parametrize("dialect", VSR)
def test_topic_when_nothing_is_set_then_everything_is_derived_from_the_settings(dialect):
    reported = report_topic_options(topic_of(told(STREAM, dialect, create())), dialect, SETTINGS)

    assert reported.explicit == NO_OPTIONS
    expected: dict[str, Any] = {
        "compression_algorithm": "none",
        "message_expiry": OptionValue.uint64(MINUTE_US),
        "max_topic_size": OptionValue.uint64(2**40),
        "segment_size": OptionValue.uint64(2**27),
        "durability": "replicated",
        "consumer_offset_durability": "replicated",
        "messages_required_to_save": OptionValue.uint32(7),
        "size_of_messages_required_to_save": OptionValue.uint64(2**19),
        "preallocate_segments": False,
    }
    if dialect in SINCE_0_12:
        expected["partition_resize_policy"] = "mutable"
    if dialect is V0_12_2:
        expected["replication_factor"] = OptionValue.uint32(1)
    assert reported.derived == Options(expected)


@pytest.mark.parametrize("dialect", VSR)
def test_topic_when_options_are_set_then_exactly_those_are_explicit(dialect):
    command = create(message_expiry="2 min", segment_size="1 MiB", durability="persisted")

    reported = report_topic_options(topic_of(told(STREAM, dialect, command)), dialect, SETTINGS)

    assert reported.explicit == Options(
        {
            "message_expiry": OptionValue.uint64(2 * MINUTE_US),
            "segment_size": OptionValue.uint64(2**20),
            "durability": "persisted",
        }
    )
    assert not reported.explicit.keys() & reported.derived.keys()


@pytest.mark.parametrize("dialect", VSR)
def test_topic_when_an_option_is_set_to_its_default_then_it_is_explicit(dialect):
    command = create(compression_algorithm="none", message_expiry=0, max_topic_size="default")

    topic = topic_of(told(STREAM, dialect, command))
    reported = report_topic_options(topic, dialect, SETTINGS)

    assert (topic.message_expiry_us, topic.max_size_bytes) == (MINUTE_US, 2**40)
    assert reported.explicit.keys() == FIELDS
    assert topic.options == NO_OPTIONS


def test_topic_when_an_older_client_asks_then_is_told_only_what_it_knows():
    command = create(partition_resize_policy="fixed", replication_factor=1, durability="persisted")
    topic = topic_of(told(STREAM, V0_12_2, command))

    keys = {
        dialect: report_topic_options(topic, dialect, SETTINGS).explicit.keys() for dialect in VSR
    }

    assert keys[V0_11] == {"durability"}
    assert keys[V0_12_0] == {"durability", "partition_resize_policy"}
    assert keys[V0_12_2] == {"durability", "partition_resize_policy", "replication_factor"}
    assert report_topic_options(topic, CLASSIC, SETTINGS) == ReportedOptions()


def test_topic_when_the_server_syncs_everything_then_its_durability_is_derived_as_persisted():
    settings = MetadataSettings(is_persisted=True)
    topic = topic_of(told(STREAM, V0_12_2, create()))

    derived = report_topic_options(topic, V0_12_2, settings).derived

    assert derived["durability"].value == derived["consumer_offset_durability"].value == "persisted"


@pytest.mark.parametrize(("is_encrypted", "source"), [(True, "server"), (False, "none")])
def test_stream_when_reported_then_tells_whose_key_encrypts_it(is_encrypted, source):
    settings = MetadataSettings(is_encrypted=is_encrypted)
    stream = STREAM.require_stream("s")

    for dialect in SINCE_0_12:
        reported = report_stream_options(stream, dialect, settings)
        assert reported == ReportedOptions(derived=Options({"encryption_key_source": source}))
    for dialect in (CLASSIC, V0_11):
        assert report_stream_options(stream, dialect, settings) == ReportedOptions()


@pytest.mark.parametrize("dialect", list(Dialect))
def test_user_when_reported_then_has_no_options(dialect):
    assert report_user_options(STREAM.require_user(0), dialect) == ReportedOptions()
