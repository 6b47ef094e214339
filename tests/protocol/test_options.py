"""Options: their values, the table of known ones, and what a server checks."""

from __future__ import annotations

import base64
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    CLASSIC,
    NO_OPTIONS,
    V0_11,
    V0_12_0,
    V0_12_2,
    CreateStream,
    CreateTopic,
    CreateUser,
    HeaderKind,
    InvalidField,
    LocalProtocolError,
    Options,
    OptionScope,
    OptionValue,
    RemoteProtocolError,
    RuleViolation,
    TrailingBytes,
    TruncatedField,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    check_created_options,
    check_updated_options,
    derived_options,
    options_of,
    validate,
)
from iggy_protocol.layout import Layout
from iggy_protocol.options import BLOCK_BYTES_MAX, ENTRIES_MAX, OPTIONS, option_spec
from iggy_protocol.primitives import OPTIONS_TO_END, PREFIXED_OPTIONS
from tests.protocol.strategies import OPTION_SETS

TOPIC, STREAM, USER = OptionScope.TOPIC, OptionScope.STREAM, OptionScope.USER
BLOCK: Layout[Options] = Layout("options", OPTIONS_TO_END)
PREFIXED: Layout[Options] = Layout("options", PREFIXED_OPTIONS)
NEVER = 2**64 - 1
KEY = bytes(range(32))


def status_of(check, *arguments):
    """Return the status that a check gives; 0 where it passes."""
    try:
        check(*arguments)
    except (RuleViolation, RemoteProtocolError) as error:
        return error.status
    return 0


# Values


def test_options_when_made_of_plain_values_then_have_kinds():
    options = Options({"a": 1, "b": "text", "c": True, "d": OptionValue.uint32(7)})

    assert [value.kind for value in options.values()] == [
        HeaderKind.INT64,
        HeaderKind.STRING,
        HeaderKind.BOOL,
        HeaderKind.UINT32,
    ]
    assert len(options) == 4
    assert options["d"].value == 7


def test_options_when_ordered_otherwise_then_equal_with_one_hash():
    one, other = Options({"a": 1, "b": 2}), Options({"b": 2, "a": 1})

    assert one == other
    assert hash(one) == hash(other)
    assert list(one) != list(other)
    assert one != Options({"a": 1})
    assert pickle.loads(pickle.dumps(one)) == one


def test_options_when_printed_then_hide_the_encryption_key():
    shown = repr(Options({"encryption_key": KEY, "other": "x"}))

    assert shown == "Options({'encryption_key': <hidden>, 'other': STRING b'x'})"


@given(OPTION_SETS)
def test_prefixed_options_when_written_then_their_size_is_that_of_the_block(options):
    block = BLOCK.encode(options)

    assert PREFIXED.encode(options) == len(block).to_bytes(4, "little") + block
    assert list(BLOCK.decode(block).items()) == list(options.items())


@pytest.mark.parametrize(
    ("block", "status"),
    [
        ("0101000000610201000000 62", 3),
        ("020100000061 02010000006202010000006102 0100000063", 3),
        ("02 00000000 020100000062", 3),
        ("02 01000000ff 020100000062", 3),
        ("020100000061 10 0100000062", 3),
        ("020100000061 00 0100000062", 3),
        ("020100000061 02 00000000", 3),
        ("020100000061 0c 0100000062", 4042),
        ("020100000061 03 020000000001", 4042),
    ],
)
def test_options_when_an_entry_breaks_a_rule_then_refused(block, status):
    data = bytes.fromhex(block)

    assert status_of(BLOCK.decode, data) == status
    assert status_of(PREFIXED.decode, len(data).to_bytes(4, "little") + data) == status


def test_options_when_a_key_or_a_value_is_too_long_then_refused():
    long_key = b"\x02" + (256).to_bytes(4, "little") + bytes(256) + b"\x02\x01\0\0\0b"
    long_value = b"\x02\x01\0\0\0a\x01" + (256).to_bytes(4, "little") + bytes(256)

    assert [status_of(BLOCK.decode, block) for block in (long_key, long_value)] == [3, 3]
    with pytest.raises(LocalProtocolError, match="256 bytes of text"):
        BLOCK.encode(Options({"k" * 256: 1}))


def entries(count, value=b"v"):
    return Options({f"key-{number:06}": value for number in range(count)})


def test_options_when_too_many_or_too_large_then_refused_both_ways():
    largest = entries(ENTRIES_MAX)
    size = 20 + 255
    assert BLOCK.decode(BLOCK.encode(largest)) == largest
    assert BLOCK.encode(entries(BLOCK_BYTES_MAX // size, bytes(255)))
    for options in (entries(ENTRIES_MAX + 1), entries(BLOCK_BYTES_MAX // size + 1, bytes(255))):
        with pytest.raises(LocalProtocolError, match="allowed are 1024"):
            BLOCK.encode(options)
        data = b"".join(BLOCK.encode(Options({key: value})) for key, value in options.items())
        assert status_of(BLOCK.decode, data) == 4043


@pytest.mark.parametrize(
    ("size", "error"),
    [(0, TrailingBytes), (11, InvalidField), (13, TruncatedField), (2**32 - 1, TruncatedField)],
)
def test_prefixed_options_when_their_size_is_wrong_then_refused(size, error):
    entry = bytes.fromhex("020100000061020100000062")

    with pytest.raises(error):
        PREFIXED.decode(size.to_bytes(4, "little") + entry)


# The table


@pytest.mark.parametrize(
    ("key", "given_", "canonical"),
    [
        ("message_expiry", 5, OptionValue.uint64(5)),
        ("message_expiry", OptionValue.uint8(5), OptionValue.uint64(5)),
        ("message_expiry", "18446744073709551615", OptionValue.uint64(NEVER)),
        ("message_expiry", "7 days", OptionValue.uint64(7 * 86_400_000_000)),
        ("message_expiry", "never", OptionValue.uint64(NEVER)),
        ("message_expiry", "server_default", OptionValue.uint64(0)),
        ("max_topic_size", "10 GiB", OptionValue.uint64(10 * 2**30)),
        ("max_topic_size", "Unlimited", OptionValue.uint64(NEVER)),
        ("segment_size", "128 MiB", OptionValue.uint64(2**27)),
        ("segment_size", 2**20, OptionValue.uint64(2**20)),
        ("messages_required_to_save", "7", OptionValue.uint32(7)),
        ("preallocate_segments", "true", OptionValue.boolean(True)),
        ("preallocate_segments", False, OptionValue.boolean(False)),
        ("compression_algorithm", "gzip", OptionValue.string("gzip")),
        ("durability", "persisted", OptionValue.string("persisted")),
    ],
)
def test_value_when_given_in_another_kind_then_becomes_canonical(key, given_, canonical):
    options = check_created_options(TOPIC, Options({key: given_}), V0_12_2)

    assert options[key] == canonical


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("message_expiry", -1),
        ("message_expiry", 1.5),
        ("message_expiry", True),
        ("message_expiry", "soon"),
        ("message_expiry", b"\0\xff"),
        ("message_expiry", OptionValue(HeaderKind.STRING, b"\xff")),
        ("max_topic_size", "1 parsec"),
        ("segment_size", 2**20 + 1),
        ("segment_size", 2**19),
        ("segment_size", 2**31),
        ("messages_required_to_save", 0),
        ("messages_required_to_save", "1 MiB"),
        ("size_of_messages_required_to_save", 2**30 + 512),
        ("preallocate_segments", 1),
        ("preallocate_segments", "yes"),
        ("compression_algorithm", "zstd"),
        ("compression_algorithm", 1),
        ("partition_resize_policy", "often"),
        ("replication_factor", 0),
    ],
)
def test_value_when_the_option_cannot_have_it_then_refused_with_4042(key, value):
    assert status_of(check_created_options, TOPIC, Options({key: value}), V0_12_2) == 4042


@pytest.mark.parametrize(
    ("key", "status"),
    [
        (KEY, 0),
        (base64.b64encode(KEY).decode(), 0),
        (KEY[:31], 4042),
        ("no base64!", 4042),
        ("é", 4042),
        (7, 4042),
    ],
)
def test_encryption_key_when_checked_then_has_32_bytes_or_their_base64(key, status):
    options = Options({"encryption_key": key})

    assert status_of(check_created_options, STREAM, options, V0_12_0) == status
    assert status_of(check_created_options, STREAM, options, V0_11) == 4041


def test_option_when_a_dialect_does_not_know_it_then_is_not_in_its_table():
    for scope in OptionScope:
        assert not options_of(scope, CLASSIC)
    assert len(options_of(TOPIC, V0_11)) == 9
    assert not options_of(STREAM, V0_11)
    added = options_of(TOPIC, V0_12_0).keys() - options_of(TOPIC, V0_11).keys()
    assert added == {"name", "partition_resize_policy"}
    added = options_of(TOPIC, V0_12_2).keys() - options_of(TOPIC, V0_12_0).keys()
    assert added == {"replication_factor"}


@pytest.mark.parametrize("spec", OPTIONS, ids=lambda spec: f"{spec.scope.name}.{spec.key}")
def test_option_when_listed_then_its_default_is_canonical_and_its_text_is_a_sentence(spec):
    assert spec.default is None or spec.canonical(spec.default) == spec.default
    assert option_spec(spec.scope, spec.key) is spec
    assert spec.description[0].isupper()


def test_derived_options_when_some_are_explicit_or_chosen_then_the_rest_are_defaults():
    explicit = Options({"durability": "persisted"})
    derived = derived_options(TOPIC, V0_11, explicit, {"segment_size": 2**20})

    assert derived.keys() == options_of(TOPIC, V0_11).keys() - {"durability"}
    assert derived["segment_size"] == OptionValue.uint64(2**20)
    assert derived["message_expiry"] == OptionValue.uint64(NEVER)
    assert derived_options(STREAM, V0_12_0, NO_OPTIONS) == {}
    source = derived_options(STREAM, V0_12_0, NO_OPTIONS, {"encryption_key_source": "none"})
    assert source == {"encryption_key_source": OptionValue.string("none")}


# What a server checks


@pytest.mark.parametrize(
    ("scope", "options", "reset", "dialect", "status"),
    [
        (TOPIC, {"name": "t"}, (), V0_12_0, 0),
        (TOPIC, {"message_expiry": 5}, ("max_topic_size",), V0_12_0, 0),
        (TOPIC, {"message_expiry": 5}, (), V0_11, 0),
        (TOPIC, {"compression_algorithm": "gzip"}, (), V0_11, 0),
        (TOPIC, {"compression_algorithm": "gzip"}, (), V0_12_0, 4103),
        (TOPIC, {"segment_size": "1 MiB"}, (), V0_12_0, 4103),
        (TOPIC, {"replication_factor": 3}, (), V0_12_2, 4103),
        (TOPIC, {"replication_factor": 3}, (), V0_12_0, 4041),
        (TOPIC, {"bogus": 1}, (), V0_12_0, 4041),
        (TOPIC, {}, ("bogus",), V0_12_0, 4041),
        (TOPIC, {"message_expiry": "soon"}, (), V0_12_0, 4042),
        (TOPIC, {}, ("message_expiry",), V0_11, 4104),
        (TOPIC, {}, ("segment_size",), V0_12_0, 4104),
        (STREAM, {}, ("name",), V0_12_0, 4104),
        (STREAM, {"encryption_key": KEY}, (), V0_12_0, 4103),
        (STREAM, {"encryption_key_source": "none"}, (), V0_12_0, 4105),
        (STREAM, {}, ("encryption_key_source",), V0_12_0, 4105),
        (USER, {"status": "inactive"}, (), V0_12_0, 0),
        (USER, {"status": "asleep"}, (), V0_12_0, 4042),
        (USER, {"username": 7}, (), V0_12_0, 4042),
        (USER, {"username": "bob"}, (), V0_11, 4041),
    ],
)
def test_update_when_checked_then_has_the_status_of_its_fault(
    scope, options, reset, dialect, status
):
    assert status_of(check_updated_options, scope, Options(options), reset, dialect) == status


@pytest.mark.parametrize(
    ("command", "dialect", "status"),
    [
        (CreateStream("s"), V0_11, 0),
        (CreateStream("s", options=Options({"name": "t"})), V0_12_0, 4041),
        (CreateStream("s", options=Options({"bogus": 1})), V0_11, 4041),
        (CreateStream("s", options=Options({"encryption_key_source": "none"})), V0_12_0, 4105),
        (CreateUser("bob", "secret", options=Options({"status": "active"})), V0_12_0, 4041),
        (CreateTopic("s", "t", 1, options=Options({"compression_algorithm": "zstd"})), V0_11, 4042),
        (UpdateStream("s", None, reset=frozenset({"name"})), V0_12_0, 4104),
        (UpdateTopic("s", "t", None), V0_12_0, 4103),
        (UpdateTopic("s", "t", "t"), V0_11, 0),
        (UpdateTopic("s", "t", "t"), CLASSIC, 0),
        (UpdateTopic("s", "t", "u", None, None, None, None), V0_12_0, 0),
        (UpdateUser("bob", options=Options({"status": "asleep"})), V0_12_0, 4042),
        (UpdateUser("bob", "b"), V0_12_0, 43),
    ],
)
def test_command_when_validated_then_its_options_are_checked_for_the_dialect(
    command, dialect, status
):
    assert status_of(validate, command, dialect) == status


@pytest.mark.parametrize(
    ("options", "partitions_count", "status"),
    [
        ({"preallocate_segments": True}, 64, 0),
        ({"preallocate_segments": True}, 65, 4042),
        ({"preallocate_segments": True, "segment_size": "512 MiB"}, 128, 0),
        ({"preallocate_segments": True, "segment_size": "512 MiB"}, 129, 4042),
        ({"preallocate_segments": False}, 1000, 0),
    ],
)
def test_topic_when_its_segments_are_preallocated_then_they_take_64_gib_at_most(
    options, partitions_count, status
):
    command = CreateTopic("s", "t", partitions_count, options=Options(options))

    assert status_of(validate, command, V0_11) == status


def test_value_when_read_by_its_kind_then_a_bad_one_has_the_status_of_options():
    with pytest.raises(InvalidField) as caught:
        assert OptionValue(HeaderKind.STRING, b"\xff").value
    assert caught.value.status == 4042
    with pytest.raises(LocalProtocolError, match="an option value of kind BOOL"):
        OptionValue(HeaderKind.BOOL, b"ab")


@given(st.text(max_size=30))
def test_text_when_it_is_any_then_the_options_take_it_or_refuse_it(text):
    for spec in OPTIONS:
        if text:
            assert status_of(spec.canonical, OptionValue.string(text)) in {0, 4042}
