"""Polls that wait, routes, and fetches of several partitions: layouts, limits, dialects."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iggy_protocol.batch import MessageBatch
from iggy_protocol.codes import CommandCode
from iggy_protocol.commands.deferred import (
    CancelDeferred,
    FetchedHead,
    FetchedPartition,
    FetchMessages,
    FetchTarget,
    PollDeferred,
    WaitForMessages,
    WaitTarget,
    encode_fetched,
)
from iggy_protocol.commands.routes import (
    AttachConsumerSession,
    ConsumerRoute,
    ConsumerSession,
    GetOffsetRoute,
    GetPartitionRoute,
    GetPollRoute,
    PartitionRoute,
    PollOnPrimary,
)
from iggy_protocol.dialect import CLASSIC, V0_11, V0_12_0, V0_12_2, Dialect
from iggy_protocol.errors import (
    InvalidField,
    LocalProtocolError,
    NotInDialect,
    RemoteProtocolError,
    TrailingBytes,
    TruncatedField,
    UnknownCommand,
)
from iggy_protocol.model.identifier import ConsumerIdentity, PollingStrategy
from iggy_protocol.model.stream import PartitionContext
from iggy_protocol.model.system import ClusterNode, NodeRole, NodeStatus
from iggy_protocol.registry import (
    commands_of,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from tests.protocol.deferred_strategies import CONSUMERS, IDENTIFIERS, RULED, U32, U64
from tests.protocol.frame_oracle import joined
from tests.protocol.vsr_strategies import (
    BATCH_OF_BOTH,
    FRAME,
    RECORD,
    SECOND_FRAME,
    SECOND_RECORD,
    make_batch,
    stored,
)

some_examples = settings(max_examples=settings().max_examples // 2)

ME = ConsumerIdentity.single(1)
START = PollingStrategy.next()
SESSION = ConsumerSession(bytes(range(16)), 7, 9)
NODE = ClusterNode("node", "127.0.0.1", 1, 2, 3, 4, NodeRole.LEADER, NodeStatus.HEALTHY)
DEFERRED = PollDeferred(ME, "s", "t", START, 10, 1_000_000, 11_000_000, partition_id=2)
WAIT = WaitForMessages(ME, "s", "t", 5, 1_000_005, (WaitTarget(0, START), WaitTarget(1, START)))
FETCH = FetchMessages(ME, "s", "t", 0, 1_000_000, (FetchTarget(3, START, 400, 1, 2),), 10)

DEFERRAL = "40420f0000000000 01000000 00001000 c0d8a70000000000"
WAIT_TARGETS = "00000000 05 0000000000000000 01000000 05 0000000000000000"
FETCH_LIMITS_AND_TARGET = (
    "01000000 0a000000 00001000 00 01000000"
    "03000000 05 0000000000000000 90010000 0100000000000000 0200000000000000"
)
# Every command of these pages, the dialects that have it, and its bytes.
COMMANDS = [
    (
        DEFERRED,
        {V0_12_0, V0_12_2},
        "01 010401000000 020173 020174 01 02000000 05 0000000000000000 0a000000 00" + DEFERRAL,
    ),
    (
        WAIT,
        {V0_12_0},
        "01 010401000000 020173 020174 0500000000000000 45420f0000000000 02000000" + WAIT_TARGETS,
    ),
    (CancelDeferred(), {V0_12_0, V0_12_2}, ""),
    (
        FETCH,
        {V0_12_2},
        "01 010401000000 020173 020174 0000000000000000 40420f0000000000" + FETCH_LIMITS_AND_TARGET,
    ),
    (GetPartitionRoute("s", "t", 3), {V0_12_0, V0_12_2}, "020173 020174 03000000"),
    (
        AttachConsumerSession(SESSION),
        {V0_11},
        "000102030405060708090a0b0c0d0e0f 0700000000000000 0900000000000000",
    ),
    (
        GetPollRoute(ME, "s", "t", START, 10, 2, auto_commit=True),
        {V0_11},
        "01 010401000000 020173 020174 01 02000000 05 0000000000000000 0a000000 01",
    ),
    (
        PollOnPrimary(ME, "s", "t", START, 10, 2, auto_commit=True),
        {V0_11},
        "01 010401000000 020173 020174 01 02000000 05 0000000000000000 0a000000 01",
    ),
    (GetOffsetRoute(ME, "s", "t", 2), {V0_11}, "01 010401000000 020173 020174 01 02000000"),
]


def by_name(value):
    return type(value).__name__ if not isinstance(value, str | set) else ""


@pytest.mark.parametrize(("command", "dialects", "wire"), COMMANDS, ids=by_name)
def test_command_when_written_then_its_bytes_and_only_in_its_dialects(command, dialects, wire):
    payload = bytes.fromhex(wire)

    for dialect in Dialect:
        if dialect in dialects:
            assert joined(encode_request(command, dialect)) == payload
            assert decode_request(command.CODE, payload, dialect) == command
            continue
        assert command.CODE not in commands_of(dialect)
        with pytest.raises(NotInDialect):
            encode_request(command, dialect)
        with pytest.raises(UnknownCommand):
            decode_request(command.CODE, payload, dialect)


@pytest.mark.parametrize(("command", "dialects", "wire"), COMMANDS, ids=by_name)
def test_command_when_cut_or_extended_then_refused_with_status_3(command, dialects, wire):
    payload, dialect = bytes.fromhex(wire), min(dialects, key=lambda one: one.age)

    for end in range(len(payload)):
        with pytest.raises(TruncatedField) as caught:
            decode_request(command.CODE, payload[:end], dialect)
        assert caught.value.status == 3
        assert caught.value.offset + caught.value.have == end
    with pytest.raises(TrailingBytes) as extended:
        decode_request(command.CODE, payload + b"\0", dialect)
    assert extended.value.status == 3


@pytest.mark.parametrize("kind", RULED, ids=lambda kind: kind.__name__)
@some_examples
@given(data=st.data())
def test_request_when_it_keeps_the_rules_then_decodes_to_itself(kind, data):
    dialect = V0_12_2 if kind is FetchMessages else V0_12_0
    command = data.draw(RULED[kind])

    assert decode_request(kind.CODE, joined(encode_request(command, dialect)), dialect) == command


@pytest.mark.parametrize("kind", [GetPollRoute, PollOnPrimary])
@some_examples
@given(consumer=CONSUMERS, stream=IDENTIFIERS, offset=U64, count=U32, partition_id=st.none() | U32)
def test_routed_poll_when_encoded_then_is_a_poll(
    kind, consumer, stream, offset, count, partition_id
):
    start = PollingStrategy.offset(offset)
    command = kind(consumer, stream, "t", start, count, partition_id)

    wire = joined(encode_request(command, V0_11))

    assert decode_request(kind.CODE, wire, V0_11) == command
    poll = decode_request(CommandCode.POLL_MESSAGES, wire, V0_11)
    assert all(
        getattr(poll, field.name) == getattr(command, field.name)
        for field in dataclasses.fields(command)
    )


# Limits


def patched(command, at, size, number):
    """Write a command and replace a number in its bytes, counted from the end."""
    dialect = V0_12_2 if isinstance(command, FetchMessages) else V0_12_0
    wire = bytearray(joined(encode_request(command, dialect)))
    start = len(wire) - at
    wire[start : start + size] = number.to_bytes(size, "little")
    return bytes(wire), dialect


@pytest.mark.parametrize(
    ("command", "field", "value", "at", "size"),
    [
        (DEFERRED, "wait_us", 600_000_001, 24, 8),
        (DEFERRED, "messages_min", 0, 16, 4),
        (DEFERRED, "messages_min", 11, 16, 4),
        (DEFERRED, "bytes_max", 343, 12, 4),
        (DEFERRED, "timeout_us", 630_000_001, 8, 8),
        (DEFERRED, "timeout_us", 1_999_999, 8, 8),
        (WAIT, "wait_us", 600_000_001, 46, 8),
        (WAIT, "timeout_us", 630_000_001, 38, 8),
        (WAIT, "timeout_us", 1_000_004, 38, 8),
        (FETCH, "wait_us", 600_000_001, 66, 8),
        (FETCH, "timeout_us", 630_000_001, 58, 8),
        (FETCH, "timeout_us", 999_999, 58, 8),
        (FETCH, "messages_min", 0, 50, 4),
        (FETCH, "messages_min", 11, 50, 4),
    ],
)
def test_limit_when_broken_then_status_3_and_not_written(command, field, value, at, size):
    payload, dialect = patched(command, at, size, value)

    with pytest.raises(InvalidField) as caught:
        decode_request(command.CODE, payload, dialect)
    assert (caught.value.status, caught.value.field) == (3, field)

    with pytest.raises(LocalProtocolError) as local:
        encode_request(dataclasses.replace(command, **{field: value}), dialect)
    assert local.value.field == field


def test_limit_when_there_is_no_wait_then_a_deferred_poll_needs_no_timeout():
    for command in (DEFERRED, WAIT):
        now = dataclasses.replace(command, wait_us=0, timeout_us=0)
        wire = joined(encode_request(now, V0_12_0))
        assert decode_request(now.CODE, wire, V0_12_0) == now


@pytest.mark.parametrize("command", [WAIT, FETCH], ids=by_name)
@pytest.mark.parametrize("count", [0, 1001])
def test_targets_when_none_or_too_many_then_refused_before_they_are_read(command, count):
    dialect = V0_12_2 if isinstance(command, FetchMessages) else V0_12_0
    wire = joined(encode_request(command, dialect))
    size = 33 if isinstance(command, FetchMessages) else 13
    count_at = len(wire) - size * len(command.targets) - 4

    with pytest.raises(InvalidField, match="allowed are 1 to 1000") as caught:
        decode_request(command.CODE, wire[:count_at] + count.to_bytes(4, "little"), dialect)
    assert (caught.value.status, caught.value.field) == (3, "targets")
    assert caught.value.offset == count_at

    targets = tuple(
        dataclasses.replace(command.targets[0], partition_id=number) for number in range(count)
    )
    with pytest.raises(LocalProtocolError, match="allowed are 1 to 1000"):
        encode_request(dataclasses.replace(command, targets=targets), dialect)
    most = dataclasses.replace(command, targets=targets[:1000] or command.targets)
    assert decode_request(command.CODE, joined(encode_request(most, dialect)), dialect) == most


@pytest.mark.parametrize("command", [WAIT, FETCH], ids=by_name)
def test_targets_when_a_partition_comes_twice_or_starts_elsewhere_then_refused(command):
    dialect = V0_12_2 if isinstance(command, FetchMessages) else V0_12_0
    first = command.targets[0]
    twice = dataclasses.replace(command, targets=(first, first))
    elsewhere = dataclasses.replace(
        command, targets=(dataclasses.replace(first, strategy=PollingStrategy.last()),)
    )
    for wrong, said in ((twice, "asked for once"), (elsewhere, "from an offset")):
        with pytest.raises(LocalProtocolError, match=said) as caught:
            encode_request(wrong, dialect)
        assert caught.value.field == "targets"

    single = dataclasses.replace(command, targets=(first,))
    wire = bytearray(joined(encode_request(single, dialect)))
    size = 33 if isinstance(command, FetchMessages) else 13
    repeated = wire[: -size - 4] + b"\2\0\0\0" + wire[-size:] * 2
    wire[-size + 4] = 4
    for payload in (repeated, wire):
        with pytest.raises(InvalidField) as refused:
            decode_request(command.CODE, payload, dialect)
        assert (refused.value.status, refused.value.field) == (3, "targets")


def test_attach_when_the_client_has_other_than_16_bytes_then_not_written():
    with pytest.raises(LocalProtocolError, match="16 bytes, not 15"):
        encode_request(AttachConsumerSession(ConsumerSession(bytes(15), 1, 2)), V0_11)


# Replies


def test_partition_route_when_answered_then_golden():
    wire = bytes.fromhex("e903000000000000 0600000000000000 00000000 03000000 00")
    route = PartitionRoute(0x3E9, 6, 0, 3, 0)

    assert joined(encode_reply(GetPartitionRoute.CODE, route, V0_12_0)) == wire
    assert decode_reply(GetPartitionRoute.CODE, wire, V0_12_2) == route
    for wrong in (wire[:-1], wire + b"\0"):
        with pytest.raises(RemoteProtocolError):
            decode_reply(GetPartitionRoute.CODE, wrong, V0_12_0)


@pytest.mark.parametrize("code", [GetPollRoute.CODE, GetOffsetRoute.CODE])
def test_consumer_route_when_answered_then_session_and_node(code):
    wire = joined(encode_reply(code, ConsumerRoute(SESSION, NODE), V0_11))

    assert wire[:32] == joined(encode_request(AttachConsumerSession(SESSION), V0_11))
    assert decode_reply(code, wire, V0_11) == ConsumerRoute(SESSION, NODE)
    for end in range(len(wire)):
        with pytest.raises(TruncatedField):
            decode_reply(code, wire[:end], V0_11)


def test_wait_when_answered_then_the_partitions_with_messages():
    assert decode_reply(WAIT.CODE, bytes(4), V0_12_0) == ()
    wire = bytes.fromhex("02000000 03000000 07000000")
    assert decode_reply(WAIT.CODE, wire, V0_12_0) == (3, 7)
    assert joined(encode_reply(WAIT.CODE, (3, 7), V0_12_0)) == wire


@pytest.mark.parametrize("dialect", [V0_12_0, V0_12_2], ids=str)
def test_deferred_poll_when_answered_then_as_a_poll(dialect):
    payload = b"\3" + bytes(39) + BATCH_OF_BOTH + bytes(204) + FRAME + SECOND_FRAME

    reply = decode_reply(DEFERRED.CODE, payload, dialect)

    assert reply == decode_reply(CommandCode.POLL_MESSAGES, payload, dialect)
    assert joined(encode_reply(DEFERRED.CODE, reply, dialect)) == payload


# Fetches


CONTEXT = PartitionContext(1, 2, 3)
FETCHED = (
    FetchedPartition(3, 0, 8, 2, 9, MessageBatch(RECORD + SECOND_RECORD), CONTEXT),
    FetchedPartition(4, 5009, 0, 0, 0, MessageBatch(b"")),
    FetchedPartition(5, 0, 7, 1, 8, MessageBatch(RECORD)),
)


def fetched(payload):
    return decode_reply(FETCH.CODE, payload, V0_12_2)


def test_fetch_when_answered_then_heads_and_then_all_batches():
    payload = joined(encode_reply(FETCH.CODE, FETCHED, V0_12_2))

    assert fetched(payload) == FETCHED
    head = bytes.fromhex(
        "03000000 00000000 0800000000000000 02000000 0100000000000000 0200000000000000"
        "0300000000000000 0900000000000000 74010000"
    )
    assert len(head) == 56
    assert payload[:60] == b"\3\0\0\0" + head
    batches = payload[4 + 3 * 56 :]
    assert batches.startswith(BATCH_OF_BOTH + bytes(204) + FRAME + SECOND_FRAME)


@some_examples
@given(lists=st.lists(stored(), max_size=3))
def test_fetch_when_encoded_then_decodes_to_itself(lists):
    replies = tuple(
        FetchedPartition(number, 0, 5, len(messages), 6, MessageBatch(b"".join(messages)))
        for number, messages in enumerate(lists)
    )

    assert fetched(joined(encode_reply(FETCH.CODE, replies, V0_12_2))) == replies


def test_fetch_when_cut_or_extended_then_typed_error():
    payload = joined(encode_reply(FETCH.CODE, FETCHED, V0_12_2))

    for end in range(len(payload)):
        with pytest.raises(TruncatedField) as caught:
            fetched(payload[:end])
        assert caught.value.offset + caught.value.have == end
    with pytest.raises(TrailingBytes):
        fetched(payload + b"\0")


def test_fetch_when_a_partition_cannot_be_read_then_the_others_can():
    bad = make_batch([bytes(47)])
    heads = [FetchedHead(number, 0, 0, 1, CONTEXT, 0, 0) for number in (0, 1)]
    good = BATCH_OF_BOTH + bytes(204) + FRAME + SECOND_FRAME
    payload = joined(encode_fetched([(heads[0], [bad]), (heads[1], [good])]))

    first, second = fetched(payload)

    assert len(first.messages) == 0
    assert isinstance(first.fault, InvalidField)
    assert first.fault.offset == 4 + 2 * 56 + 256
    assert (len(second.messages), second.fault) == (2, None)


def test_fetch_when_a_partition_has_a_status_then_it_has_no_batches():
    both = dataclasses.replace(FETCHED[0], status=5009)
    with pytest.raises(LocalProtocolError, match="partition 3 has a status and batches"):
        encode_reply(FETCH.CODE, (both,), V0_12_2)

    payload = bytearray(joined(encode_reply(FETCH.CODE, FETCHED[:1], V0_12_2)))
    payload[8] = 1
    with pytest.raises(InvalidField, match="partition 3 has a status and batches"):
        fetched(payload)


@pytest.mark.parametrize("dialect", [V0_11, V0_12_0, V0_12_2], ids=str)
@some_examples
@given(garbage=st.binary(max_size=200))
def test_garbage_when_decoded_then_value_or_typed_error(dialect, garbage):
    for command, dialects, _ in COMMANDS:
        if dialect in dialects:
            for decode in (decode_request, decode_reply):
                assert status_of(decode, command.CODE, garbage, dialect) in (0, 3, 4)


def status_of(decode, code, payload, dialect):
    try:
        decode(code, payload, dialect)
    except RemoteProtocolError as error:
        return error.status
    return 0


def test_commands_when_listed_then_none_is_classic():
    assert not {command.CODE for command, _, _ in COMMANDS} & commands_of(CLASSIC)
