"""Commands whose fields are options in later dialects: the same object, other bytes."""

from __future__ import annotations

from typing import Any

import pytest

from iggy_protocol import (
    CLASSIC,
    NEVER_EXPIRES,
    SERVER_DEFAULT,
    V0_11,
    V0_12_0,
    V0_12_2,
    CommandCode,
    CompressionAlgorithm,
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeleteConsumerOffset,
    GetConsumerOffset,
    InvalidField,
    LocalProtocolError,
    LoginUser,
    NotInDialect,
    OffsetAck,
    Options,
    OptionValue,
    Partition,
    PollingStrategy,
    PollMessages,
    PurgeTopic,
    RemoteProtocolError,
    StoreConsumerOffset,
    SyncConsumerGroup,
    TopicDetails,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    UserStatus,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from tests.protocol.frame_oracle import joined

GZIP = CompressionAlgorithm.GZIP
UNTOUCHED = (None, None, None, None)


def wire_of(command, dialect):
    return joined(encode_request(command, dialect))


# The bytes of the specification


@pytest.mark.parametrize(
    ("command", "wire"),
    [
        (UpdateStream("s", "t"), "02 020173 00 02040000006e616d65 020100000074"),
        (
            UpdateTopic("s", "t", None, None, None, SERVER_DEFAULT, None),
            "01 020173 020174 01 0e6d61785f746f7069635f73697a65",
        ),
    ],
)
@pytest.mark.parametrize("dialect", [V0_12_0, V0_12_2], ids=str)
def test_update_when_compared_with_the_specification_then_has_its_bytes(command, wire, dialect):
    assert wire_of(command, dialect) == bytes.fromhex(wire)
    assert decode_request(command.CODE, bytes.fromhex(wire), dialect) == command


@pytest.mark.parametrize("dialect", [CLASSIC, V0_11, V0_12_0, V0_12_2], ids=str)
@pytest.mark.parametrize(
    "command",
    [
        CreateStream("s"),
        CreateTopic("s", "t", 3),
        CreateTopic("s", "t", 3, GZIP, NEVER_EXPIRES, 10),
        UpdateStream("s", "t"),
        UpdateTopic("s", "t", "u", GZIP, 5, 6),
        CreateUser("bob", "secret", UserStatus.INACTIVE),
        UpdateUser("bob", "bobby", UserStatus.INACTIVE),
        StoreConsumerOffset(ConsumerIdentity.single(1), "s", "t", 7, 0),
        DeleteConsumerOffset(ConsumerIdentity.group("g"), "s", "t", 0),
    ],
    ids=lambda command: type(command).__name__,
)
def test_command_when_written_in_any_dialect_then_is_read_as_the_same_object(command, dialect):
    read = decode_request(command.CODE, wire_of(command, dialect), dialect)

    if isinstance(command, UpdateTopic) and dialect.is_vsr:
        assert read == UpdateTopic("s", "t", "u", GZIP, 5, 6, None)
    else:
        assert read == command


def test_update_when_a_limit_is_the_servers_default_then_resets_it_from_0_10_on():
    command = UpdateTopic("s", "t", "u", None, SERVER_DEFAULT, SERVER_DEFAULT, None)
    by_name = UpdateTopic(
        "s", "t", "u", *UNTOUCHED, reset=frozenset({"message_expiry", "max_topic_size"})
    )

    assert wire_of(command, V0_12_0) == wire_of(by_name, V0_12_0)
    assert decode_request(304, wire_of(by_name, V0_12_0), V0_12_0) == command
    assert decode_request(304, wire_of(command, V0_11), V0_11) == command


def test_update_when_it_sets_a_limit_to_zero_then_leaves_it_and_keeps_the_bytes():
    """Given as a value, zero changes nothing in 0.10; as a field it would stand for a reset."""
    zero = Options({"message_expiry": OptionValue.uint64(0)})
    command = UpdateTopic("s", "t", None, *UNTOUCHED, options=zero)

    assert decode_request(304, wire_of(command, V0_12_0), V0_12_0) == command


def test_options_when_their_field_cannot_hold_them_then_stay_for_validation():
    options = Options({"compression_algorithm": "zstd", "message_expiry": "soon", "bogus": 1})
    command = CreateTopic("s", "t", 1, options=options)

    assert decode_request(302, wire_of(command, V0_11), V0_11) == command


def test_options_when_written_as_text_then_are_read_into_the_fields():
    options = Options({"compression_algorithm": "gzip", "message_expiry": "1 h"})
    wire = wire_of(CreateTopic("s", "t", 1, options=options), V0_12_0)

    assert decode_request(302, wire, V0_12_0) == CreateTopic("s", "t", 1, GZIP, 3_600_000_000)


def test_options_when_given_with_the_default_then_stay_explicit():
    explicit = CreateTopic("s", "t", 1, options=Options({"compression_algorithm": "none"}))

    assert decode_request(302, wire_of(explicit, V0_11), V0_11) == explicit


def test_replication_factor_when_the_dialect_has_it_then_is_an_option():
    command = CreateTopic("s", "t", 1, replication_factor=3)

    assert b"replication_factor" in wire_of(command, V0_12_2)
    assert decode_request(302, wire_of(command, V0_12_2), V0_12_2) == command
    assert b"replication_factor" not in wire_of(
        CreateTopic("s", "t", 1, replication_factor=1), V0_11
    )


# What a dialect cannot say

OTHER = Options({"segment_size": 2**20})


@pytest.mark.parametrize(
    ("command", "dialect", "field"),
    [
        (CreateStream("s", options=OTHER), CLASSIC, "options"),
        (CreateTopic("s", "t", 1, options=OTHER), CLASSIC, "options"),
        (CreateTopic("s", "t", 1, replication_factor=3), V0_11, "replication_factor"),
        (CreateTopic("s", "t", 1, replication_factor=3), V0_12_0, "replication_factor"),
        (UpdateStream("s", None), CLASSIC, "name"),
        (UpdateStream("s", None), V0_11, "name"),
        (UpdateStream("s", "t", reset=frozenset({"x"})), V0_11, "reset"),
        (UpdateStream("s", "t", reset=frozenset({"x"})), CLASSIC, "reset"),
        (UpdateTopic("s", "t", None), CLASSIC, "name"),
        (UpdateTopic("s", "t", None), V0_11, "name"),
        (UpdateTopic("s", "t", "t", None), CLASSIC, "compression"),
        (UpdateTopic("s", "t", "t", message_expiry_us=None), CLASSIC, "message_expiry_us"),
        (UpdateTopic("s", "t", "t", max_topic_size_bytes=None), CLASSIC, "max_topic_size_bytes"),
        (UpdateTopic("s", "t", "t", replication_factor=None), CLASSIC, "replication_factor"),
        (UpdateTopic("s", "t", "t", replication_factor=2), V0_12_2, "replication_factor"),
        (UpdateTopic("s", "t", "t", reset=frozenset({"x"})), V0_11, "reset"),
        (UpdateUser("bob", options=OTHER), CLASSIC, "options"),
        (UpdateUser("bob", "b", reset=frozenset({"x"})), V0_11, "reset"),
        (
            StoreConsumerOffset(ConsumerIdentity.single(1), 1, 1, 1, ack=OffsetAck.LOCAL),
            CLASSIC,
            "ack",
        ),
        (
            DeleteConsumerOffset(ConsumerIdentity.single(1), 1, 1, ack=OffsetAck.LOCAL),
            CLASSIC,
            "ack",
        ),
        (GetConsumerOffset(ConsumerIdentity.external_group("g"), 1, 1), CLASSIC, "kind"),
        (GetConsumerOffset(ConsumerIdentity.external_group("g"), 1, 1), V0_11, "kind"),
    ],
)
def test_field_when_the_dialect_does_not_have_it_then_is_refused_by_name(command, dialect, field):
    with pytest.raises(NotInDialect) as caught:
        encode_request(command, dialect)
    assert caught.value.field.split(".")[-1] == field


@pytest.mark.parametrize(
    ("command", "dialect"),
    [
        (PurgeTopic("s", "t"), V0_12_0),
        (LoginUser("iggy", "iggy"), V0_11),
        (SyncConsumerGroup("s", "t", "g"), CLASSIC),
    ],
)
def test_command_when_the_dialect_does_not_have_it_then_is_refused_both_ways(command, dialect):
    with pytest.raises(NotInDialect, match="does not exist in"):
        encode_request(command, dialect)
    with pytest.raises(RemoteProtocolError, match="is no command") as caught:
        decode_request(command.CODE, b"", dialect)
    assert caught.value.status == 3


def test_external_group_when_the_dialect_has_it_then_only_for_offsets():
    consumer = ConsumerIdentity.external_group("g")
    for command in (
        GetConsumerOffset(consumer, "s", "t"),
        StoreConsumerOffset(consumer, "s", "t", 1, ack=OffsetAck.LOCAL),
        DeleteConsumerOffset(consumer, "s", "t"),
    ):
        wire = wire_of(command, V0_12_0)
        assert decode_request(command.CODE, wire, V0_12_0) == command
        with pytest.raises(RemoteProtocolError) as caught:
            decode_request(command.CODE, wire, V0_11)
        assert caught.value.status == 3
    with pytest.raises(NotInDialect):
        encode_request(PollMessages(consumer, "s", "t", PollingStrategy.next(), 1), V0_12_0)


# Faults of updates from 0.10 on


@pytest.mark.parametrize(
    "wire",
    [
        "02 020173 00",
        "02 020173 02 0161 0161",
        "02 020173 01 046e616d65 02040000006e616d65 020100000074",
        "02 020173 00 02040000006e616d65 020100000074 02040000006e616d65 020100000075",
        "01 020173 00 02040000006e616d65 020100000074",
        "02 020173 01 00",
    ],
    ids=["nothing", "reset twice", "set and reset", "set twice", "other scope", "empty name"],
)
def test_update_when_it_contradicts_itself_then_refused(wire):
    with pytest.raises(RemoteProtocolError) as caught:
        decode_request(204, bytes.fromhex(wire), V0_12_0)
    assert caught.value.status == (4 if wire.endswith("01 00") else 3)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (UpdateUser("bob"), "sets or resets something"),
        (UpdateUser("bob", "b", reset=frozenset({"username"})), "is set and reset"),
        (UpdateUser("bob", "b", options=Options({"username": "c"})), "an option and as the field"),
        (UpdateUser("bob", "b" * 256), "has 1 to 255 bytes"),
        (UpdateTopic("s", "t", "u", message_expiry_us=-1), "does not fit"),
    ],
)
def test_update_when_the_caller_contradicts_itself_then_local_error(command, problem):
    with pytest.raises(LocalProtocolError, match=problem):
        encode_request(command, V0_12_0)


# Replies


def topic(**changes):
    partition = Partition(0, 1, 1, 0, 0, 0)
    values: dict[str, Any] = {
        "id": 1,
        "created_at_us": 2,
        "partitions_count": 1,
        "message_expiry_us": NEVER_EXPIRES,
        "compression": GZIP,
        "max_topic_size_bytes": 10,
        "replication_factor": 1,
        "size_bytes": 0,
        "messages_count": 0,
        "name": "t",
        "partitions": (partition,),
    }
    return TopicDetails(**(values | changes))


def reply_of(value, dialect):
    return decode_reply(300, joined(encode_reply(CommandCode.GET_TOPIC, value, dialect)), dialect)


def test_topic_when_its_options_say_nothing_then_the_settings_are_reported_as_derived():
    read = reply_of(topic(), V0_12_0)

    assert (read.compression, read.message_expiry_us) == (GZIP, NEVER_EXPIRES)
    assert read.max_topic_size_bytes == 10
    assert not read.options
    assert list(read.derived_options) == [
        "compression_algorithm",
        "message_expiry",
        "max_topic_size",
    ]


@pytest.mark.parametrize("stale", [7, "nonsense"])
def test_topic_when_its_options_are_stale_then_the_fields_are_reported(stale):
    explicit = Options({"max_topic_size": stale, "segment_size": 2**20})
    read = reply_of(topic(options=explicit), V0_12_0)

    assert read.options["max_topic_size"] == OptionValue.uint64(10)
    assert list(read.options) == ["max_topic_size", "segment_size"]
    assert "max_topic_size" not in read.derived_options


def test_topic_when_a_key_is_missing_then_has_the_servers_default():
    wire = bytes.fromhex("01000000 0200000000000000 00000000") + bytes(16) + b"\1t" + bytes(8)
    read = decode_reply(300, wire, V0_12_2)

    assert read.compression is CompressionAlgorithm.NONE
    assert (read.message_expiry_us, read.max_topic_size_bytes) == (SERVER_DEFAULT, SERVER_DEFAULT)
    assert read.replication_factor == 1
    assert joined(encode_reply(300, read, V0_12_2)) == wire


def test_topic_when_an_option_cannot_be_read_then_refused():
    option = (
        bytes.fromhex("020e000000") + b"message_expiry" + bytes.fromhex("02 04000000") + b"soon"
    )
    block = len(option).to_bytes(4, "little") + option
    head = bytes.fromhex("01000000 0200000000000000 00000000") + bytes(16) + b"\1t"
    with pytest.raises(InvalidField, match="message_expiry") as caught:
        decode_reply(300, head + block + bytes(4), V0_12_0)
    assert caught.value.status == 4042


def test_topic_when_a_dialect_cannot_tell_then_leaves_out_what_it_lacks():
    full = topic(
        replication_factor=3,
        options=Options({"durability": "persisted"}),
        partitions=(Partition(0, 1, 1, 0, 0, 0, replicas=(0, 1), in_sync_replicas=(1,)),),
    )

    assert reply_of(full, CLASSIC) == topic(replication_factor=3)
    assert reply_of(full, V0_11) == topic(options=full.options)
    assert reply_of(full, V0_12_0).partitions == topic().partitions
    assert reply_of(full, V0_12_2).partitions == full.partitions
    assert reply_of(full, V0_12_2).replication_factor == 3
