"""Every command and every reply, both ways, by property; plus what the table promises."""

from __future__ import annotations

import dataclasses
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iggy_protocol import CLASSIC, V0_11, V0_12_0, V0_12_2, Dialect, commands_of
from iggy_protocol.codes import CommandCode
from iggy_protocol.commands.messages import PollMessages
from iggy_protocol.commands.polled import encode_polled
from iggy_protocol.commands.streams import CreateStream
from iggy_protocol.commands.system import GetSnapshot, Ping
from iggy_protocol.errors import (
    InvalidField,
    LocalProtocolError,
    RemoteProtocolError,
    TrailingBytes,
    TruncatedField,
    UnknownCommand,
    UnknownDiscriminant,
)
from iggy_protocol.fields import OptionalTail, RecordStruct, StrictGreedyRange
from iggy_protocol.model.identifier import (
    ConsumerIdentity,
    ConsumerKind,
    PollingKind,
    PollingStrategy,
)
from iggy_protocol.model.system import Snapshot, SnapshotType
from iggy_protocol.model.user import RawPersonalAccessToken
from iggy_protocol.option_layouts import OptionRecord
from iggy_protocol.registry import (
    COMMANDS,
    EMPTY,
    Command,
    RecordCodec,
    command,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from tests.protocol.frame_oracle import joined
from tests.protocol.strategies import values_of

# Each of these runs for every command and for every prefix, so a part of the examples is enough.
some_examples = settings(max_examples=settings().max_examples // 4)


def changed(layouts):
    """Name the dialects in which a codec differs from that of the dialect before."""
    before = None
    for dialect in Dialect:
        if layouts[dialect] is not before:
            yield dialect
        before = layouts[dialect]


def by_case(case):
    return case.name if isinstance(case, Dialect) else by_name(case)


CUTS_MAX = 200
"""A nested reply has a thousand bytes, and naming the cut field of each takes a millisecond."""

LAID_OUT = [
    (spec, dialect)
    for spec in COMMANDS.values()
    for dialect in changed(spec.request)
    if isinstance(spec.request[dialect], RecordCodec)
]
REPLYING = [
    (spec, dialect)
    for spec in COMMANDS.values()
    for dialect in changed(spec.reply)
    if isinstance(spec.reply[dialect], RecordCodec)
]
RECORDED_ELSEWHERE = {
    "FetchMessages",
    "GetSnapshot",
    "PollDeferred",
    "PollMessages",
    "PollOnPrimary",
    "Register",
    "SendMessages",
}
"""Commands whose bodies are batches or archives."""


def by_name(spec):
    return spec.command.__name__


def test_table_when_imported_then_holds_all_47_classic_codes_once():
    classic = commands_of(CLASSIC)

    assert len(classic) == 47
    assert len({COMMANDS[code].command for code in classic}) == 47


def test_table_when_split_then_only_the_bodies_that_are_batches_or_archives_stand_apart():
    laid_out = {spec.code for spec, _ in LAID_OUT}
    replying = {spec.code for spec, _ in REPLYING}
    apart = {
        by_name(spec)
        for spec in COMMANDS.values()
        if spec.code not in laid_out
        or (spec.code not in replying and spec.reply[CLASSIC] is not EMPTY)
    }

    assert apart == RECORDED_ELSEWHERE


@pytest.mark.parametrize(
    ("dialect", "gone", "added"),
    [
        (V0_11, {38, 44}, {13, 40, 606}),
        (V0_12_0, {205, 305}, {15, 17}),
        (V0_12_2, set(), set()),
    ],
)
def test_table_when_a_dialect_changes_it_then_commands_come_and_go(dialect, gone, added):
    before = commands_of(list(Dialect)[dialect.age - 1])
    now = commands_of(dialect)

    assert gone <= before - now
    assert added <= now - before


@pytest.mark.parametrize("spec", COMMANDS.values(), ids=by_name)
def test_command_when_looked_at_then_is_a_frozen_documented_dataclass(spec):
    assert vars(spec.command)["__dataclass_params__"].frozen
    assert spec.command.__doc__
    assert spec.command.CODE is spec.code
    assert by_name(spec) == "".join(part.capitalize() for part in spec.code.name.split("_"))
    assert typing.get_type_hints(spec.command)


@pytest.mark.parametrize(("spec", "dialect"), LAID_OUT, ids=by_case)
@some_examples
@given(data=st.data())
def test_request_when_encoded_then_decodes_to_itself_and_surplus_is_ignored(spec, dialect, data):
    layout = spec.request[dialect].layout
    value = data.draw(values_of(layout.construct))
    wire = joined(encode_request(value, dialect))
    assert decode_request(spec.code, wire, dialect) == value
    if layout.surplus_allowed and not isinstance(layout.construct, OptionRecord):
        assert decode_request(spec.code, wire + b"\xaa\xbb\xcc", dialect) == value
        return
    with pytest.raises(RemoteProtocolError):
        decode_request(spec.code, wire + b"\xaa\xbb\xcc", dialect)


@pytest.mark.parametrize(("spec", "dialect"), LAID_OUT, ids=by_case)
@some_examples
@given(data=st.data())
def test_request_when_cut_anywhere_then_refused_with_status_3(spec, dialect, data):
    """Options to the end, cut between two, are fewer options, unless an update needs one."""
    construct = spec.request[dialect].layout.construct
    wire = joined(encode_request(data.draw(values_of(construct)), dialect))
    for end in cuts(wire, first=0):
        if isinstance(construct, OptionRecord) and is_decoded(spec, wire[:end], dialect):
            continue
        with pytest.raises(RemoteProtocolError) as caught:
            decode_request(spec.code, wire[:end], dialect)
        assert isinstance(caught.value, TruncatedField) or isinstance(construct, OptionRecord)
        assert caught.value.status == 3
        assert caught.value.offset + caught.value.have == end


def cuts(wire, *, first=1):
    """Choose where to cut: everywhere, or in a long payload at so many places over its length."""
    return range(first, len(wire), 1 + len(wire) // CUTS_MAX)


def is_decoded(spec, payload, dialect):
    """Tell whether a payload is a request, and check that this is written as the payload."""
    if status_of(decode_request, spec.code, payload, dialect):
        return False
    value = decode_request(spec.code, payload, dialect)
    assert joined(encode_request(value, dialect)) == payload
    return True


@pytest.mark.parametrize(("spec", "dialect"), REPLYING, ids=by_case)
@some_examples
@given(data=st.data())
def test_reply_when_encoded_then_decodes_to_itself(spec, dialect, data):
    value = data.draw(values_of(spec.reply[dialect].layout.construct))
    wire = joined(encode_reply(spec.code, value, dialect))
    assert decode_reply(spec.code, wire, dialect) == value


@pytest.mark.parametrize(("spec", "dialect"), REPLYING, ids=by_case)
@some_examples
@given(data=st.data())
def test_reply_when_cut_or_extended_then_refused_unless_it_is_a_shorter_reply(spec, dialect, data):
    """A list without a count, cut between elements, is a shorter list; so are older stats."""
    layout = spec.reply[dialect].layout
    wire = joined(encode_reply(spec.code, data.draw(values_of(layout.construct)), dialect))
    shorter_is_fine = isinstance(layout.construct, StrictGreedyRange) or has_optional_tail(
        layout.construct
    )
    for end in cuts(wire):
        try:
            value = decode_reply(spec.code, wire[:end], dialect)
        except RemoteProtocolError:
            continue
        assert shorter_is_fine
        assert joined(encode_reply(spec.code, value, dialect)) == wire[:end]
    if not isinstance(layout.construct, StrictGreedyRange):
        with pytest.raises(RemoteProtocolError):
            decode_reply(spec.code, wire + b"\xff", dialect)


def has_optional_tail(block):
    return isinstance(block, RecordStruct) and any(
        isinstance(sub.subcon, OptionalTail) for sub in block.fields
    )


@pytest.mark.parametrize(
    ("spec", "dialect"),
    [
        (spec, dialect)
        for spec in COMMANDS.values()
        for dialect in Dialect
        if dialect in {*changed(spec.request), *changed(spec.reply)}
    ],
    ids=by_case,
)
@some_examples
@given(garbage=st.binary(max_size=200))
def test_garbage_when_decoded_then_value_or_typed_error(spec, dialect, garbage):
    allowed = {0, 3, 4, 6} | ({4042} if dialect.is_vsr else set())
    for decode in (decode_request, decode_reply):
        assert status_of(decode, spec.code, garbage, dialect) in allowed


def status_of(decode, code, payload, dialect):
    try:
        decode(code, payload, dialect)
    except RemoteProtocolError as error:
        return error.status
    return 0


def test_code_when_unknown_then_refused_with_status_3():
    for call in (lambda: decode_request(9999, b""), lambda: decode_reply(9999, b"")):
        with pytest.raises(UnknownCommand, match="9999 is no command") as caught:
            call()
        assert caught.value.status == 3


def test_code_when_taken_then_second_command_fails_at_import():
    with pytest.raises(LocalProtocolError, match="Ping already"):
        command(CommandCode.PING, reply=EMPTY)(Command)


def test_empty_reply_when_bytes_come_then_trailing_bytes_and_none_otherwise():
    assert decode_reply(Ping.CODE, b"") is None
    assert joined(encode_reply(Ping.CODE, None)) == b""
    with pytest.raises(TrailingBytes):
        decode_reply(Ping.CODE, b"\0")
    with pytest.raises(LocalProtocolError):
        encode_reply(Ping.CODE, 7)


def test_missing_thing_when_asked_for_then_reply_is_empty():
    assert decode_reply(CommandCode.GET_STREAM, b"") is None
    assert joined(encode_reply(CommandCode.GET_STREAM, None)) == b""
    with pytest.raises(TruncatedField):
        decode_reply(CreateStream.CODE, b"")


def test_snapshot_when_all_is_not_alone_then_refused_both_ways():
    with pytest.raises(InvalidField, match="ALL allows no other") as caught:
        decode_request(GetSnapshot.CODE, bytes([1, 2, 100, 4]))
    assert caught.value.status == 3
    with pytest.raises(LocalProtocolError, match="ALL allows no other"):
        encode_request(GetSnapshot(types=(SnapshotType.ALL, SnapshotType.TEST)))


def test_snapshot_reply_when_received_then_is_the_archive():
    archive = b"PK\5\6" + bytes(18)
    assert decode_reply(GetSnapshot.CODE, memoryview(archive)) == Snapshot(archive)
    assert encode_reply(GetSnapshot.CODE, Snapshot(archive)) == [archive]
    with pytest.raises(LocalProtocolError, match="an archive, not"):
        encode_reply(GetSnapshot.CODE, archive)


def test_unknown_discriminant_when_decoded_then_named():
    with pytest.raises(UnknownDiscriminant, match="7 is no SnapshotCompression") as caught:
        decode_request(GetSnapshot.CODE, bytes([7, 0]))
    assert (caught.value.field, caught.value.offset) == ("compression", 0)


@pytest.mark.parametrize(
    ("code", "wire", "problem"),
    [
        (200, "0a" + "00" * 40, "is no kind of identifier"),
        (31, "0100000002000000000000000103626f6200000001", "four zero bytes"),
        (31, "0100000002000000000000000103626f6207000000", "four zero bytes"),
        (600, "0100000003000000020000000267670500000000000000", "members_count is 2, but 1"),
    ],
)
def test_reply_when_it_breaks_its_own_rule_then_refused(code, wire, problem):
    call = decode_request if code == 200 else decode_reply
    with pytest.raises(RemoteProtocolError, match=problem):
        call(code, bytes.fromhex(wire))


def test_record_when_its_count_is_wrong_then_cannot_be_written():
    details = decode_reply(600, bytes.fromhex("0100000003000000000000000267 67"))
    wrong = dataclasses.replace(details, members_count=3)
    with pytest.raises(LocalProtocolError, match="members_count is 3, but 0 members") as caught:
        encode_reply(600, wrong)
    assert caught.value.field == "members_count"


def test_secrets_when_printed_then_hidden():
    hidden = {
        f"{by_name(spec)}.{name}"
        for spec in COMMANDS.values()
        for name, field in vars(spec.command)["__dataclass_fields__"].items()
        if not field.repr
    }
    assert hidden == {
        "BindSession.secret",
        "ChangePassword.current_password",
        "ChangePassword.new_password",
        "CreateUser.password",
        "LoginUser.password",
        "LoginWithPersonalAccessToken.token",
        "Register.secret",
    }
    assert "secret" not in repr(RawPersonalAccessToken("secret"))


POLL_SPEC = COMMANDS[CommandCode.POLL_MESSAGES]


def outcome_of(decode, payload):
    """Return what comes of decoding, or everything that an error says."""
    try:
        return decode(payload)
    except RemoteProtocolError as error:
        return type(error), str(error), error.status, error.field, error.offset, error.have


@some_examples
@given(data=st.data())
def test_poll_when_read_by_what_is_remembered_then_like_the_layout_says_or_as_wrong(data):
    codec = POLL_SPEC.request[CLASSIC]
    assert isinstance(codec, RecordCodec)
    value = data.draw(values_of(codec.layout.construct))
    wire = bytearray(joined(encode_request(value)))
    assert wire == codec.layout.encode(value)
    if data.draw(st.booleans()):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    wire += data.draw(st.binary(max_size=20))
    payload = bytes(wire[: data.draw(st.integers(0, len(wire)))])

    for _ in range(2):
        assert outcome_of(codec.decode, payload) == outcome_of(codec.layout.decode, payload)


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": -1},
        {"count": 2**32},
        {"count": "many"},
        {"strategy": PollingStrategy.offset(2**64)},
        {"strategy": PollingStrategy(typing.cast("PollingKind", 9))},
        {"strategy": None},
        {"consumer": None},
        {"consumer": ConsumerIdentity(typing.cast("ConsumerKind", 9), 1)},
        {"partition_id": 2**32},
        {"stream": ""},
        {"topic": []},
    ],
    ids=str,
)
def test_poll_when_a_field_does_not_fit_then_refused_as_by_its_layout(wrong):
    codec = POLL_SPEC.request[CLASSIC]
    assert isinstance(codec, RecordCodec)
    fields: dict[str, typing.Any] = {
        "consumer": ConsumerIdentity.single(1),
        "stream": "s",
        "topic": 1,
        "strategy": PollingStrategy.next(),
        "count": 1,
        "partition_id": 0,
    }
    encode_request(PollMessages(**fields))
    command = PollMessages(**(fields | wrong))

    with pytest.raises(LocalProtocolError) as caught:
        encode_request(command)

    with pytest.raises(LocalProtocolError) as expected:
        codec.layout.encode(command)
    assert str(caught.value) == str(expected.value)


def test_polled_when_a_number_does_not_fit_then_refused_by_name():
    with pytest.raises(LocalProtocolError, match="messages_count"):
        encode_polled(0, 0, -1, [])
