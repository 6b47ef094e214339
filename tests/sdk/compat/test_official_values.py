"""The official values: variants, headers, records, and what they are in this SDK."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta

import pytest

import iggy_protocol
from iggy_protocol import NEVER_EXPIRES, UNLIMITED, HeaderKind
from iggy_sdk import compat
from iggy_sdk.compat import (
    AutoCommit,
    AutoCommitAfter,
    AutoCommitWhen,
    Durability,
    GlobalPermissions,
    HeaderKey,
    HeaderValue,
    IggyExpiry,
    MaxTopicSize,
    OptionKey,
    Partitioning,
    Permissions,
    PollingStrategy,
    StreamPermissions,
    TopicPermissions,
    UserHeaders,
    UserStatus,
)
from iggy_sdk.compat.headers import header_key_of, header_value_of
from iggy_sdk.compat.settings import expiry_of, size_of
from iggy_sdk.compat.users import own_permissions, permissions_of
from iggy_sdk.errors import DisconnectedError, RequestTimeoutError, SendFailedError
from tests.sdk.compat.samples import HEADERS, SAMPLES, STATS

SECOND = timedelta(seconds=1)

# Variants.


def test_variant_when_asked_then_belongs_to_its_class():
    value = PollingStrategy.Offset(5)

    assert isinstance(value, PollingStrategy)
    assert isinstance(value, PollingStrategy.Offset)
    assert not isinstance(value, PollingStrategy.Next)
    assert (value.value, PollingStrategy.Offset.__qualname__) == (5, "PollingStrategy.Offset")


def test_variant_when_it_has_values_then_they_are_read_by_number():
    mode = AutoCommit.IntervalOrAfter(SECOND, AutoCommitAfter.ConsumingEachMessage())

    assert (len(mode), mode[0], mode[1]) == (2, SECOND, AutoCommitAfter.ConsumingEachMessage())
    assert repr(mode) == (
        "AutoCommit.IntervalOrAfter(datetime.timedelta(seconds=1),"
        " AutoCommitAfter.ConsumingEachMessage())"
    )
    with pytest.raises(IndexError):
        _ = mode[2]


def test_variant_when_values_are_equal_then_is_equal():
    assert IggyExpiry.ExpireDuration(SECOND) == IggyExpiry.ExpireDuration(duration=SECOND)
    assert IggyExpiry.ExpireDuration(SECOND) != IggyExpiry.ExpireDuration(2 * SECOND)
    assert MaxTopicSize.ServerDefault() != IggyExpiry.ServerDefault()
    assert hash(MaxTopicSize.Custom(5)) == hash(MaxTopicSize.Custom(bytes=5))
    assert AutoCommitWhen.PollingMessages() != AutoCommitAfter.ConsumingAllMessages()
    assert IggyExpiry.NeverExpire() != "never"


@pytest.mark.parametrize(
    ("number", "expiry", "size"),
    [
        (0, IggyExpiry.ServerDefault(), MaxTopicSize.ServerDefault()),
        (NEVER_EXPIRES, IggyExpiry.NeverExpire(), MaxTopicSize.Unlimited()),
        (
            NEVER_EXPIRES - 1,
            IggyExpiry.ExpireDuration(timedelta(microseconds=NEVER_EXPIRES - 1)),
            MaxTopicSize.Custom(UNLIMITED - 1),
        ),
    ],
)
def test_settings_when_read_then_have_the_variant_of_their_number(number, expiry, size):
    assert (expiry_of(number), size_of(number)) == (expiry, size)


def test_choices_when_spelled_in_both_ways_then_are_equal_from_both_sides():
    own = iggy_protocol.PollingStrategy.offset(4)

    assert PollingStrategy.Offset(4) == own
    assert own == PollingStrategy.Offset(4)
    assert hash(own) == hash(PollingStrategy.Offset(4))
    assert PollingStrategy.Offset(4) != PollingStrategy.Timestamp(4)
    assert Partitioning.partition_id(partition_id=3) == iggy_protocol.Partitioning.partition(3)
    assert Partitioning.balanced() != Partitioning.partition_id(0)
    assert hash(Partitioning.balanced()) == hash(iggy_protocol.Partitioning.balanced())
    assert UserStatus.Inactive == iggy_protocol.UserStatus.INACTIVE


def test_names_when_shown_then_read_as_officially():
    assert (repr(UserStatus.Active), str(UserStatus.Active)) == ("UserStatus.Active",) * 2
    assert repr(compat.ProducerSharding.ORDERED) == "ProducerSharding.ORDERED"
    assert (str(OptionKey.MaxTopicSize), Durability.PERSISTED) == ("max_topic_size", "persisted")
    assert compat.PartitionResizePolicy.Fixed.value == "fixed"


def test_values_when_copied_and_pickled_then_are_the_same():
    values = [
        PollingStrategy.Offset(4),
        compat.Consumer.Group("g"),
        HeaderKey.String("a"),
        HeaderValue.Float64(1.5),
        AutoCommit.Interval(SECOND),
        IggyExpiry.NeverExpire(),
    ]

    assert [pickle.loads(pickle.dumps(value)) for value in values] == values
    assert [copy.deepcopy(value) for value in values] == values


# Headers.

OWN_NAMES = {
    HeaderKind.RAW: "Raw",
    HeaderKind.UINT8: "UnsignedInt8",
    HeaderKind.UINT128: "UnsignedInt128",
    HeaderKind.BOOL: "Bool",
    HeaderKind.FLOAT32: "Float32",
}


@pytest.mark.parametrize("kind", HeaderKind)
def test_header_when_made_of_each_kind_then_is_ours(kind):
    name = OWN_NAMES.get(kind) or kind.name.title().replace("Uint", "UnsignedInt")
    value = HEADERS.get(name, 1)
    key, half = getattr(HeaderKey, name)(value), getattr(HeaderValue, name)(value=value)

    assert (key.kind, half.kind, key.value, half.value) == (kind, kind, value, value)
    assert key == iggy_protocol.HeaderKey(kind, key.raw)
    assert iggy_protocol.HeaderValue(kind, half.raw) == half
    assert type(header_key_of(iggy_protocol.HeaderKey(kind, key.raw))) is type(key)
    assert type(header_value_of(iggy_protocol.HeaderValue(kind, half.raw))) is type(half)
    assert repr(half) == f"HeaderValue.{name}({value!r})"


def test_header_when_its_bytes_are_damaged_then_is_shown_as_it_is():
    value = header_value_of(iggy_protocol.HeaderValue(HeaderKind.STRING, b"\xff"))

    assert repr(value) == r"HeaderValue.String(b'\xff')"
    with pytest.raises(ValueError, match="STRING"):
        UserHeaders({"a": value}).to_scalar_dict()


def test_user_headers_when_two_keys_look_alike_then_have_no_plain_form():
    headers = UserHeaders({HeaderKey.UnsignedInt8(1): 1, HeaderKey.UnsignedInt16(1): 2})

    assert len(headers) == 2
    with pytest.raises(ValueError, match="both 1"):
        headers.to_scalar_dict()


@pytest.mark.parametrize("wrong", [{"a": object()}, {None: 1}, {HeaderValue.Bool(True): 1}])
def test_user_headers_when_an_entry_is_none_then_refuse_it(wrong):
    with pytest.raises(ValueError):
        UserHeaders(wrong)


def test_user_headers_when_plain_then_stay_so():
    headers = UserHeaders({"a": 1, b"b": 2.5})

    assert headers == {"a": 1, b"b": 2.5}
    assert headers.to_scalar_dict() == {"a": 1, b"b": 2.5}
    assert UserHeaders() == UserHeaders(None) == {}


# Permissions.


def test_permissions_when_turned_over_and_back_then_are_the_same():
    rights = Permissions(
        GlobalPermissions(read_servers=True),
        {
            1: StreamPermissions(manage_topics=True),
            2: StreamPermissions(topics={0: TopicPermissions(send_messages=True)}),
        },
    )
    own = own_permissions(rights)

    assert own is not None
    assert permissions_of(own) == rights
    assert own.streams[1].topics[0].topic_id == 0
    assert own_permissions(own) is own
    assert own_permissions(None) is None


def test_permissions_when_empty_then_say_none():
    assert Permissions(streams={}).streams is None
    assert StreamPermissions(topics={}).topics is None
    assert Permissions().global_permissions == GlobalPermissions()
    assert Permissions() != Permissions(GlobalPermissions(read_users=True))


# Records.


def test_records_when_asked_for_official_attributes_then_tell_ours():
    topic, stream = SAMPLES[compat.TopicDetails], SAMPLES[compat.StreamDetails]
    group, user = SAMPLES[compat.ConsumerGroupDetails], SAMPLES[compat.UserInfoDetails]

    assert (topic.created_at, topic.size, topic.compression_algorithm) == (2, 6, "none")
    assert topic.message_expiry == IggyExpiry.ExpireDuration(timedelta(microseconds=4))
    assert topic.max_topic_size == MaxTopicSize.Custom(5)
    assert (topic.options, topic.partitions[0].size) == ({}, 4)
    assert [one.name for one in stream.topics] == ["orders"]
    assert (stream.encryption_key_source, stream.encryption_kek_fingerprints) == (None, [])
    assert (group.members[0].partitions_count, group.members[0].partitions) == (2, [0, 1])
    assert (user.status, user.permissions) == (UserStatus.Active, Permissions())


def test_records_when_options_are_told_then_are_user_headers():
    derived = iggy_protocol.Options(
        {"encryption_key_source": "server", "encryption_kek_fingerprint": "ab,cd"}
    )
    stream = compat.Stream(iggy_protocol.Stream(0, 1, 2, 3, 4, "shop", derived_options=derived))

    assert stream.encryption_key_source == "server"
    assert stream.encryption_kek_fingerprints == ["ab", "cd"]
    assert stream.derived_options[HeaderKey.String("encryption_key_source")] == (
        HeaderValue.String("server")
    )


def test_records_when_compared_then_are_equal_by_what_they_tell():
    one = compat.Stream(iggy_protocol.Stream(0, 1, 2, 3, 4, "shop"))
    same = compat.Stream(iggy_protocol.Stream(0, 1, 2, 3, 4, "shop"))

    assert one == same
    assert (hash(one), repr(one)) == (hash(same), repr(same))
    assert one != compat.Stream(iggy_protocol.Stream(1, 1, 2, 3, 4, "shop"))
    assert one != one.own


def test_statistics_when_an_older_server_tells_less_then_are_zero():
    stats = SAMPLES[compat.Stats]

    assert (stats.memory_usage, stats.run_time, stats.start_time) == (4, timedelta(0, 0, 7), 8)
    assert stats.cache_metrics[compat.CacheMetricsKey(1, 2, 3)].hits == 4
    assert (stats.threads_count, stats.free_disk_space, stats.total_disk_space) == (0, 0, 0)
    assert (stats.open_files_count, stats.open_files_limit) == (0, 0)
    assert stats.iggy_server_semver == STATS.server_semver


def test_option_when_described_then_tells_kind_and_default():
    spec = SAMPLES[compat.OptionSpec]
    nameless = iggy_protocol.OptionDescription("name", HeaderKind.STRING, b"", "The name")

    assert (spec.kind, spec.default_value) == ("uint64", HeaderValue.UnsignedInt64(0))
    assert repr(spec) == "OptionSpec(key='name', kind='uint64')"
    assert compat.OptionSpec(nameless).default_value is None
    flags = iggy_protocol.OptionFlags
    told = compat.OptionSpec(
        iggy_protocol.OptionDescription(
            "key", HeaderKind.RAW, b"", "", flags.SECRET | flags.CRITICAL | flags.RESETTABLE
        )
    )
    assert (told.secret, told.critical, told.resettable) == (True, True, True)
    assert (told.updatable, told.read_only) == (False, False)


# Errors.


@pytest.mark.parametrize(
    ("cause", "uncertain"),
    [
        (DisconnectedError(sent=True), 2),
        (DisconnectedError(sent=False), 0),
        (RequestTimeoutError(), 2),
        (OSError("gone"), 0),
    ],
)
def test_send_error_when_the_answer_was_lost_then_says_what_may_be_stored(cause, uncertain):
    error = compat.ProducerSendError(SendFailedError(cause, ["a", "b"]))

    assert (error.failed, error.uncertain, error.committed) == (["a", "b"], uncertain, [])
    assert error.cause == str(cause)
    assert isinstance(error, RuntimeError)
    assert pickle.loads(pickle.dumps(error)).failed == ["a", "b"]


def test_fingerprint_when_made_then_is_the_one_of_the_wheel():
    # The value comes from the wheel 0.9.1.dev5.
    assert compat.encryption_key_fingerprint(b"0" * 32) == "9f6be3bae1e43bd3"
    assert compat.encryption_key_fingerprint("MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA=") == (
        "9f6be3bae1e43bd3"
    )


@pytest.mark.parametrize("key", [b"short", "c2VjcmV0", "no base64!"])
def test_encryption_key_when_it_cannot_be_one_then_is_refused_and_not_shown(key):
    with pytest.raises(ValueError) as refused:
        compat.StreamOptions(encryption_key=key)

    assert str(key) not in str(refused.value)
    assert refused.value.__cause__ is None


def test_stream_options_when_shown_then_hide_the_key():
    options = compat.StreamOptions(encryption_key=b"0" * 32, raw={"a": "b"})

    assert repr(options) == "StreamOptions(has_encryption_key=True, raw={'a': 'b'})"
    assert options.options()["encryption_key"].raw == b"0" * 32
