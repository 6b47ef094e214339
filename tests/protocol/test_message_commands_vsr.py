"""SendMessages and the replies to polls from 0.9 on, whose bodies hold batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.batch import MessageBatch, PolledMessages, whole_prefix
from iggy_protocol.batch_vsr import ProducerSequence, vsr_batches
from iggy_protocol.commands.messages import (
    FlushUnsavedBuffer,
    PollMessages,
    SendConfirmation,
    SendMessages,
    encode_confirmation,
)
from iggy_protocol.commands.polled import PolledWriter, encode_polled_batches
from iggy_protocol.dialect import CLASSIC, V0_11, V0_12_0, V0_12_2
from iggy_protocol.errors import (
    InvalidBatch,
    InvalidField,
    LocalProtocolError,
    NotInDialect,
    RemoteProtocolError,
    TrailingBytes,
    TruncatedField,
    UnknownCommand,
)
from iggy_protocol.framing import HeadroomBuffer
from iggy_protocol.message_view import NewMessage, first_message_bytes
from iggy_protocol.model.identifier import Partitioning
from iggy_protocol.model.stream import PartitionContext
from iggy_protocol.registry import (
    commands_of,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from iggy_protocol.validation import validate
from tests.protocol.batch_strategies import make_metadata
from tests.protocol.frame_oracle import joined
from tests.protocol.strategies import ESCAPED_IDENTIFIERS, PARTITIONINGS
from tests.protocol.vsr_strategies import (
    BATCH_OF_BOTH,
    FRAME,
    PRODUCER,
    RECORD,
    SECOND_FRAME,
    SECOND_RECORD,
    make_batch,
    make_frame,
    make_send,
    make_stored,
    stored,
)

VSR = (V0_11, V0_12_0, V0_12_2)
CONTEXT = PartitionContext(0x3E9, 0, 6)
# Accepted by official clients.
HEAD_V0_11 = bytes.fromhex("03000000 0800000000000000 02000000")
HEAD_V0_12 = HEAD_V0_11 + bytes.fromhex("e903000000000000 0000000000000000 0600000000000000")
BATCHES = BATCH_OF_BOTH + bytes(204) + FRAME + SECOND_FRAME
RECORDS = RECORD + SECOND_RECORD
HEADS = ((V0_11, HEAD_V0_11), (V0_12_0, HEAD_V0_12), (V0_12_2, HEAD_V0_12))

IDS = st.integers(1, 2**128 - 1)
MESSAGES = st.lists(
    st.builds(
        NewMessage, st.binary(max_size=40), IDS, st.binary(max_size=20), st.integers(0, 2**32 - 1)
    ),
    min_size=1,
    max_size=5,
)
SENDS = st.builds(SendMessages, ESCAPED_IDENTIFIERS, ESCAPED_IDENTIFIERS, PARTITIONINGS, MESSAGES)


def send(**fields):
    """Make a command with one message, or with other fields."""
    messages = fields.pop("messages", [NewMessage(b"x", 1)])
    return SendMessages("s", "t", Partitioning.partition(0), messages, **fields)


def polled(dialect, payload):
    return decode_reply(PollMessages.CODE, payload, dialect)


# Sending


@pytest.mark.parametrize("dialect", VSR, ids=str)
@given(sent=SENDS)
def test_send_when_encoded_then_the_server_sees_what_a_classic_client_sends(dialect, sent):
    command = decode_request(sent.CODE, joined(encode_request(sent, dialect)), dialect)

    validate(command)
    assert command == decode_request(sent.CODE, joined(encode_request(sent)))
    assert joined(encode_request(command, dialect)) == joined(encode_request(sent, dialect))


def test_send_when_encoded_then_has_headroom_for_the_head_of_its_frame():
    (buffer,) = encode_request(send(), V0_11)

    assert isinstance(buffer, HeadroomBuffer)
    assert buffer.headroom == 256


def test_send_when_messages_have_no_id_then_random_bytes_are_needed():
    command = send(messages=[b"one", b"two"], random=bytes(range(32)))

    decoded = decode_request(command.CODE, joined(encode_request(command, V0_12_0)), V0_12_0)

    assert isinstance(decoded, SendMessages)
    assert isinstance(decoded.messages, MessageBatch)
    assert len({view.id for view in decoded.messages} - {0}) == 2
    with pytest.raises(LocalProtocolError, match="message 0 needs an id"):
        encode_request(send(messages=[b"one"]), V0_12_0)
    encode_request(send(messages=[b"one"]))


def test_send_when_it_names_a_producer_then_only_the_newest_dialect_can_say_so():
    command = send(producer=PRODUCER)

    body = joined(encode_request(command, V0_12_2))

    assert decode_request(command.CODE, body, V0_12_2) == decode_request(
        command.CODE, joined(encode_request(send(producer=PRODUCER), V0_12_2)), V0_12_2
    )
    decoded = decode_request(command.CODE, body, V0_12_2)
    assert isinstance(decoded, SendMessages)
    assert decoded.producer == ProducerSequence(4097, 0, 17)
    for dialect in (CLASSIC, V0_11, V0_12_0):
        with pytest.raises(NotInDialect, match="producer"):
            encode_request(command, dialect)
    for dialect in (V0_11, V0_12_0):
        with pytest.raises(InvalidBatch, match="reserved bytes") as caught:
            validate(decode_request(command.CODE, body, dialect))
        assert caught.value.status == 4


@given(sent=SENDS)
def test_send_when_cut_anywhere_then_refused_by_the_decoder_or_by_validation(sent):
    body = joined(encode_request(sent, V0_12_0))
    batch_at = 4 + int.from_bytes(body[:4], "little")

    for end in range(len(body)):
        with pytest.raises(InvalidBatch) as caught:
            validate(decode_request(sent.CODE, body[:end], V0_12_0))
        error = caught.value
        assert error.status == 4
        if end < batch_at:
            assert error.offset + error.have == end
            assert error.field == ("metadata_length" if end < 4 else "metadata")


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        (make_metadata(1, stream=b"\x03\x01s"), "stream"),
        (make_metadata(1, topic=b"\x02\x00"), "topic"),
        (make_metadata(1, partitioning=b"\x09\x00"), "partitioning"),
    ],
)
def test_send_when_its_metadata_cannot_be_read_then_the_decoder_names_the_field(metadata, field):
    with pytest.raises(InvalidBatch) as caught:
        decode_request(SendMessages.CODE, make_send([make_frame()], metadata=metadata), V0_11)

    assert (caught.value.field, caught.value.status) == (field, 4)


def test_send_when_its_batch_must_not_be_stored_then_decodes_with_the_fault():
    body = make_send([make_frame(checksum=0)])

    command = decode_request(SendMessages.CODE, body, V0_11)

    assert isinstance(command, SendMessages)
    assert (command.stream, command.topic, len(command.messages)) == ("s", "t", 0)
    with pytest.raises(InvalidBatch) as caught:
        validate(command)
    assert caught.value.status == 4027
    assert command.fault is not None
    assert command.fault.__traceback__ is None or caught.value is command.fault


# Confirmations


CONFIRMED = (SendConfirmation(1, 2, 3, 4),)
CONFIRMED_WIRE = bytes.fromhex("01000000 01000000 02000000 03000000 0400000000000000")


@pytest.mark.parametrize("dialect", VSR, ids=str)
@pytest.mark.parametrize(
    ("reply", "wire"),
    [
        (CONFIRMED, CONFIRMED_WIRE),
        (CONFIRMED * 2, b"\2" + CONFIRMED_WIRE[1:] + CONFIRMED_WIRE[4:]),
        ((), bytes(4)),
        (None, b""),
    ],
)
def test_confirmations_when_written_then_read_again(dialect, reply, wire):
    assert joined(encode_reply(SendMessages.CODE, reply, dialect)) == wire
    assert decode_reply(SendMessages.CODE, wire, dialect) == reply


@given(st.builds(SendConfirmation, *[st.integers(0, 2**32 - 1)] * 3, st.integers(0, 2**64 - 1)))
def test_confirmation_when_written_at_once_then_equals_that_of_the_layout(told):
    (encoded,) = encode_reply(SendMessages.CODE, (told,), V0_11)
    at_once = encode_confirmation(
        told.stream_id, told.topic_id, told.partition_id, told.base_offset
    )
    assert at_once == encoded
    assert decode_reply(SendMessages.CODE, encoded, V0_11) == (told,)


@pytest.mark.parametrize("count", [0, 2, 256, 2**32 - 1])
def test_confirmations_when_their_count_is_wrong_then_refused(count):
    with pytest.raises(RemoteProtocolError):
        decode_reply(SendMessages.CODE, count.to_bytes(4, "little") + CONFIRMED_WIRE[4:], V0_11)


def test_confirmations_when_cut_or_extended_then_refused():
    for end in range(1, len(CONFIRMED_WIRE)):
        with pytest.raises(TruncatedField):
            decode_reply(SendMessages.CODE, CONFIRMED_WIRE[:end], V0_11)
    with pytest.raises(TrailingBytes):
        decode_reply(SendMessages.CODE, CONFIRMED_WIRE + b"\0", V0_11)


def test_classic_send_when_answered_then_has_no_confirmations():
    assert decode_reply(SendMessages.CODE, b"") is None
    with pytest.raises(TrailingBytes):
        decode_reply(SendMessages.CODE, CONFIRMED_WIRE)


# Replies to polls


@pytest.mark.parametrize(("dialect", "head"), HEADS, ids=str)
def test_poll_when_answered_then_golden_both_ways(dialect, head):
    context = CONTEXT if len(head) == 40 else PartitionContext()
    reply = PolledMessages(3, 8, 2, MessageBatch(RECORDS), context=context)

    assert joined(encode_reply(PollMessages.CODE, reply, dialect)) == head + BATCHES
    assert polled(dialect, head + BATCHES) == reply


def test_poll_when_an_older_client_is_answered_then_the_context_is_left_out():
    reply = PolledMessages(3, 8, 2, MessageBatch(RECORDS), context=CONTEXT)

    assert joined(encode_reply(PollMessages.CODE, reply, V0_11)) == HEAD_V0_11 + BATCHES
    assert joined(encode_reply(PollMessages.CODE, reply)) == HEAD_V0_11 + RECORDS


@pytest.mark.parametrize(("dialect", "head"), HEADS, ids=str)
def test_poll_when_cut_anywhere_then_typed_error(dialect, head):
    payload = head + BATCHES

    for end in range(len(payload)):
        if end == len(head):
            assert len(polled(dialect, payload[:end]).messages) == 0
            continue
        with pytest.raises(TruncatedField) as caught:
            polled(dialect, payload[:end])
        assert caught.value.offset + caught.value.have == end


@pytest.mark.parametrize(("dialect", "head"), HEADS, ids=str)
def test_poll_when_a_later_batch_cannot_be_read_then_messages_before_it_with_the_fault(
    dialect, head
):
    reply = polled(dialect, head + BATCHES + make_batch([bytes(47)]))

    assert reply.messages == MessageBatch(RECORDS)
    assert isinstance(reply.fault, InvalidField)
    assert reply.fault.offset == len(head + BATCHES) + 256
    with pytest.raises(InvalidField):
        polled(dialect, head + make_batch([bytes(47)]))


def test_poll_when_a_message_is_damaged_before_the_fault_then_only_intact_ones():
    damaged = bytearray(BATCHES)
    damaged[-1] ^= 1

    reply = polled(V0_11, HEAD_V0_11 + damaged + b"\0")

    assert reply.messages == MessageBatch(RECORD)
    assert isinstance(reply.fault, TruncatedField)


def test_poll_when_a_message_arrived_damaged_then_verifying_finds_it():
    damaged = bytearray(BATCHES)
    damaged[-1] ^= 1

    reply = polled(V0_12_0, HEAD_V0_12 + damaged)

    assert len(reply.messages) == 2
    with pytest.raises(InvalidField, match="message 1"):
        reply.messages.verify()


def test_poll_when_stored_messages_are_damaged_then_not_encoded():
    reply = PolledMessages(3, 8, 2, MessageBatch(RECORD + bytes(8) + SECOND_RECORD[8:]))

    with pytest.raises(LocalProtocolError, match="message 1 does not match its checksum"):
        encode_reply(PollMessages.CODE, reply, V0_11)
    with pytest.raises(LocalProtocolError, match="the reply to a poll is PolledMessages"):
        encode_reply(PollMessages.CODE, None, V0_11)


@pytest.mark.parametrize("dialect", VSR, ids=str)
@given(messages=stored())
def test_poll_when_encoded_then_decodes_to_itself(dialect, messages):
    reply = PolledMessages(3, 8, len(messages), MessageBatch(b"".join(messages)))

    assert polled(dialect, joined(encode_reply(PollMessages.CODE, reply, dialect))) == reply


@pytest.mark.parametrize("dialect", VSR, ids=str)
@given(garbage=st.binary(max_size=400))
def test_garbage_when_decoded_then_value_or_typed_error(dialect, garbage):
    for decode, code in (
        (decode_request, SendMessages.CODE),
        (decode_reply, PollMessages.CODE),
        (decode_reply, SendMessages.CODE),
    ):
        assert status_of(decode, code, garbage, dialect) in (0, 3, 4)


def status_of(decode, code, payload, dialect):
    try:
        decode(code, payload, dialect)
    except RemoteProtocolError as error:
        return error.status
    return 0


# What a server writes


@pytest.mark.parametrize(("dialect", "head"), HEADS, ids=str)
def test_polled_batches_when_messages_lie_in_several_buffers_then_all_are_written(dialect, head):
    made = encode_polled_batches(
        3, 8, [RECORD, b"", memoryview(SECOND_RECORD)], dialect=dialect, context=CONTEXT
    )

    reply = polled(dialect, joined(made.buffers))
    assert made[1:] == (2, False, False, 8)
    assert joined(made.buffers)[: len(head)] == head
    assert reply.messages == MessageBatch(RECORDS)


@pytest.mark.parametrize("dialect", VSR, ids=str)
def test_polled_batches_when_there_are_no_messages_then_only_a_head(dialect):
    made = encode_polled_batches(3, 8, [], dialect=dialect)

    assert made[1:] == (0, False, False, None)
    assert joined(made.buffers) == encode_polled_batches(3, 8, [b""], dialect=dialect).buffers[0]


@pytest.mark.parametrize("dialect", VSR, ids=str)
@given(messages=stored(), data=st.data())
def test_polled_batches_when_limited_then_the_whole_reply_fits(dialect, messages, data):
    split = data.draw(st.integers(0, len(messages)))
    buffers = [b"".join(messages[:split]), b"".join(messages[split:])]
    whole = encode_polled_batches(3, 8, buffers, dialect=dialect)
    limit = data.draw(st.integers(0, len(joined(whole.buffers)) + 1))

    made = encode_polled_batches(3, 8, buffers, dialect=dialect, bytes_max=limit)

    reply = polled(dialect, joined(made.buffers))
    taken = messages[: made.messages_count]
    assert reply.messages_count == made.messages_count
    assert reply.messages == MessageBatch(b"".join(taken))
    head_bytes = len(encode_polled_batches(3, 8, [], dialect=dialect).buffers[0])
    is_alone = dialect is V0_12_2 and made.messages_count == 1
    if made.messages_count:
        assert len(joined(made.buffers)) <= limit or is_alone
    assert made.is_too_small == (bool(messages) and made.messages_count == 0)
    if made.is_too_small:
        assert dialect is not V0_12_2
        first = vsr_batches(messages[0], partition_id=3).buffer
        assert head_bytes + len(first) > limit


def test_polled_batches_when_a_message_is_damaged_then_those_before_it():
    hurt = bytes(8) + SECOND_RECORD[8:]

    made = encode_polled_batches(3, 8, [RECORD + hurt, RECORD], dialect=V0_11)
    unverified = encode_polled_batches(3, 8, [RECORD + hurt], dialect=V0_11, verify=False)
    nothing = encode_polled_batches(3, 8, [hurt], dialect=V0_12_2, bytes_max=2**32)

    assert made[1:] == (1, True, False, 7)
    assert unverified[1:] == (2, False, False, 8)
    assert nothing[1:] == (0, True, False, None)


def test_polled_batches_when_the_first_message_is_too_large_then_alone_in_the_newest_dialect():
    records = make_stored(bytes(500), offset=1) + make_stored(b"second", offset=2)

    for dialect, expected in ((V0_12_0, (0, False, True, None)), (V0_12_2, (1, False, False, 1))):
        made = encode_polled_batches(3, 8, [b"", records], dialect=dialect, bytes_max=344)
        assert made[1:] == expected


@pytest.mark.parametrize("dialect", VSR, ids=str)
@given(messages=stored(), data=st.data())
def test_polled_writer_when_given_some_messages_at_a_time_then_all_are_in_the_reply(
    dialect, messages, data
):
    writer, left = PolledWriter(3, 8, dialect=dialect), b"".join(messages)
    while left:
        part = whole_prefix(left[: data.draw(st.integers(1, len(left)))])
        assert writer.add(part or left[: first_message_bytes(left)])
        left = left[len(part) or first_message_bytes(left) :]

    made = writer.finish()

    reply = polled(dialect, joined(made.buffers))
    assert reply.messages == MessageBatch(b"".join(messages))
    assert made.last_offset == MessageBatch(b"".join(messages)).last_offset
    assert not made.is_damaged


@pytest.mark.parametrize("dialect", VSR, ids=str)
def test_polled_writer_when_told_so_then_a_first_message_above_the_limit_comes_alone(dialect):
    records = make_stored(bytes(500), offset=1) + make_stored(b"second", offset=2)
    writer = PolledWriter(3, 8, dialect=dialect, bytes_max=344, first_alone=True)

    assert not writer.add(records)

    assert writer.finish()[1:] == (1, False, False, 1)


def test_polled_batches_when_they_cannot_be_written_then_refused():
    with pytest.raises(NotInDialect, match="no batches"):
        encode_polled_batches(3, 8, [], dialect=CLASSIC)
    with pytest.raises(LocalProtocolError, match="current_offset"):
        encode_polled_batches(3, 2**64, [], dialect=V0_11)
    with pytest.raises(LocalProtocolError, match="incarnation"):
        encode_polled_batches(3, 8, [], dialect=V0_12_0, context=PartitionContext(2**64))


def test_flush_when_sent_from_0_10_on_then_there_is_no_such_command():
    command = FlushUnsavedBuffer("s", "t", 0)

    assert decode_request(command.CODE, joined(encode_request(command, V0_11)), V0_11) == command
    assert command.CODE not in commands_of(V0_12_0)
    with pytest.raises(NotInDialect):
        encode_request(command, V0_12_0)
    with pytest.raises(UnknownCommand):
        decode_request(command.CODE, b"", V0_12_2)
