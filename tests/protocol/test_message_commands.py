"""SendMessages and the reply to PollMessages, whose bodies are whole batches."""

from __future__ import annotations

import gc
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.batch import MessageBatch, PolledMessages, stamp
from iggy_protocol.commands.messages import PollMessages, SendMessages
from iggy_protocol.commands.polled import encode_polled
from iggy_protocol.commands.streams import GetStream
from iggy_protocol.errors import InvalidBatch, LocalProtocolError, TruncatedField
from iggy_protocol.message_view import NewMessage
from iggy_protocol.model.identifier import Partitioning
from iggy_protocol.registry import decode_reply, decode_request, encode_reply, encode_request
from iggy_protocol.validation import validate
from tests.protocol.frame_oracle import joined
from tests.protocol.strategies import ESCAPED_IDENTIFIERS, PARTITIONINGS

U64S = st.integers(0, 2**64 - 1)
MESSAGES = st.lists(
    st.binary(max_size=40)
    | st.builds(
        NewMessage,
        st.binary(max_size=40),
        st.integers(0, 2**128 - 1),
        st.binary(max_size=20),
        st.none() | U64S,
    ),
    min_size=1,
    max_size=5,
)
SENDS = st.builds(
    SendMessages,
    ESCAPED_IDENTIFIERS,
    ESCAPED_IDENTIFIERS,
    PARTITIONINGS,
    MESSAGES,
    origin_timestamp_us=U64S,
)


def send(messages: Any, **options: Any) -> bytes:
    """Write the body of a send to one place."""
    return joined(
        encode_request(SendMessages("stream", 7, Partitioning.key("k"), messages, **options))
    )


def received(body: bytes) -> tuple[SendMessages, MessageBatch]:
    """Read a body, and return its messages once more as what they are."""
    command = decode_request(SendMessages.CODE, body)
    assert isinstance(command, SendMessages)
    assert isinstance(command.messages, MessageBatch)
    return command, command.messages


def content(message: Any, origin_timestamp_us: int) -> tuple[bytes, int, bytes, int]:
    """Say what must arrive of a message to be sent."""
    if not isinstance(message, NewMessage):
        return bytes(message), 0, b"", origin_timestamp_us
    own_us = message.origin_timestamp_us
    origin_us = origin_timestamp_us if own_us is None else own_us
    return bytes(message.payload), message.id, message.user_headers, origin_us


# Sending


@given(SENDS)
def test_send_when_encoded_then_arrives_whole_and_encodes_to_the_same_bytes(sent):
    body = joined(encode_request(sent))

    command, messages = received(body)

    validate(command)
    assert (command.stream, command.topic) == (sent.stream, sent.topic)
    assert command.partitioning == sent.partitioning
    assert [
        (bytes(view.payload), view.id, bytes(view.user_headers), view.origin_timestamp_us)
        for view in messages
    ] == [content(message, sent.origin_timestamp_us) for message in sent.messages]
    assert joined(encode_request(command)) == body


@given(SENDS)
def test_send_when_cut_anywhere_then_refused_by_the_decoder_or_by_validation(sent):
    body = joined(encode_request(sent))
    indexes_at = 4 + int.from_bytes(body[:4], "little")
    messages_at = indexes_at + 16 * len(sent.messages)

    for end in range(len(body)):
        with pytest.raises(InvalidBatch) as caught:
            validate(decode_request(SendMessages.CODE, body[:end]))
        error = caught.value
        if end >= messages_at:
            assert error.status in (4033, 4036)
            continue
        assert (error.status, error.offset + error.have) == (3, end)
        assert error.need > error.have
        assert error.field == (
            "metadata_length" if end < 4 else "metadata" if end < indexes_at else "indexes"
        )


@pytest.mark.parametrize(
    ("metadata", "status", "blamed"),
    [
        ("", 6, ("stream.kind", 4, 1, 0)),
        ("0104010000", 6, ("stream.value", 6, 4, 3)),
        ("0301ff", 6, ("stream", 4, 3, 3)),
        ("0200", 6, ("stream", 4, 2, 2)),
        ("020173010300", 6, ("topic.value", 9, 3, 1)),
        ("020173020174", 3, ("partitioning.kind", 10, 1, 0)),
        ("0201730201740900", 3, ("partitioning", 10, 2, 2)),
        ("0201730201740101ff", 3, ("partitioning", 10, 3, 3)),
        ("0201730201740100010000", 3, ("messages_count", 12, 4, 3)),
    ],
)
def test_send_when_its_head_is_wrong_then_error_names_the_field(metadata, status, blamed):
    head = bytes.fromhex(metadata)

    with pytest.raises(InvalidBatch) as caught:
        decode_request(SendMessages.CODE, len(head).to_bytes(4, "little") + head)

    error = caught.value
    assert error.status == status
    assert (error.field, error.offset, error.need, error.have) == blamed


def test_send_when_encoded_then_arrives_with_ids_times_and_headers():
    command, messages = received(
        send(
            [b"plain", NewMessage(b"full", 5, b"\2\1\0\0\0k\2\1\0\0\0v", 99)],
            origin_timestamp_us=42,
        )
    )

    assert (command.stream, command.topic) == ("stream", 7)
    assert command.partitioning == Partitioning.key("k")
    assert messages.payloads() == [b"plain", b"full"]
    plain, full = messages
    assert (plain.id, plain.origin_timestamp_us) == (0, 42)
    assert (full.id, full.origin_timestamp_us, bytes(full.user_headers[-1:])) == (5, 99, b"v")


def test_send_when_names_are_not_utf8_then_decodes_and_encodes_to_the_same_bytes():
    body = send([b"x"]).replace(b"stream", b"str\xff\xfem")

    command, _ = received(body)

    assert isinstance(command.stream, str)
    assert command.stream.encode(errors="surrogateescape") == b"str\xff\xfem"
    assert joined(encode_request(command)) == body
    with pytest.raises(LocalProtocolError, match="not writable as UTF-8") as caught:
        encode_request(GetStream(command.stream))
    assert caught.value.field == "stream"


def test_send_when_it_must_not_be_stored_then_decodes_and_validation_refuses_it():
    command, messages = received(send([b"x"]) + b"surplus")

    assert len(messages) == 0
    with pytest.raises(InvalidBatch) as caught:
        validate(command)
    assert caught.value.status == 4036


def test_send_when_it_must_not_be_stored_then_its_fault_does_not_hold_the_body():
    body = bytearray(send([b"x"]) + b"surplus")
    gc.disable()
    try:
        command = decode_request(SendMessages.CODE, body)
        body.clear()
    finally:
        gc.enable()
    with pytest.raises(InvalidBatch):
        validate(command)


# Polling


def test_poll_reply_when_it_lies_in_several_buffers_then_they_are_passed_on_untouched():
    message = send([b"x"])[-65:]
    parts: list[bytearray | memoryview] = [bytearray(message), memoryview(message)]

    buffers = encode_polled(3, 9, 2, parts)

    assert [buffers[1], buffers[2]] == parts
    assert buffers[1] is parts[0]
    reply = decode_reply(PollMessages.CODE, b"".join(buffers))
    assert (reply.partition_id, reply.current_offset, reply.messages_count) == (3, 9, 2)
    assert reply.messages.payloads() == [b"x", b"x"]


@given(st.integers(0, 2**32 - 1), U64S, st.integers(0, 2**32 - 1), st.just([]) | MESSAGES)
def test_poll_reply_when_encoded_then_decodes_to_itself(partition_id, offset, count, messages):
    _, batch = received(send(messages)) if messages else (None, MessageBatch(b""))
    polled = PolledMessages(partition_id, offset, count, batch)

    wire = joined(encode_reply(PollMessages.CODE, polled))

    assert decode_reply(PollMessages.CODE, wire) == polled
    assert wire[16:] == batch.buffer


@given(MESSAGES)
def test_poll_reply_when_cut_then_refused_except_between_messages(messages):
    """A real server may announce another number than it sends, so the count decides nothing."""
    _, batch = received(send(messages))
    wire = joined(encode_reply(PollMessages.CODE, PolledMessages(3, 9, len(batch), batch)))
    wholes = set(accumulate((message.size for message in batch), initial=16))

    for end in range(len(wire)):
        if end in wholes:
            assert decode_reply(PollMessages.CODE, wire[:end]).messages_count == len(batch)
            continue
        with pytest.raises(TruncatedField) as caught:
            decode_reply(PollMessages.CODE, wire[:end])
        assert caught.value.offset + caught.value.have == end


def stored_reply(payloads: list[bytes]) -> bytearray:
    """Make the reply to a poll whose messages have offsets and checksums, as a log holds them."""
    _, batch = received(send([NewMessage(payload) for payload in payloads]))
    messages = bytearray(batch.buffer)
    stamp(messages, base_offset=7, timestamp_us=1, random=bytes(16 * len(payloads)))
    return bytearray(b"".join(encode_polled(3, 9, len(payloads), [messages])))


@pytest.mark.parametrize("bit", range(20))
@pytest.mark.parametrize("damaged", [1, 2, 3])
def test_poll_reply_when_a_length_is_damaged_then_the_messages_before_it_are_handed_out(
    damaged, bit
):
    payloads = [b"message %d" % number + bytes(30) for number in range(4)]
    wire = stored_reply(payloads)
    size = (len(wire) - 16) // 4
    wire[16 + damaged * size + 52 + bit // 8] ^= 1 << bit % 8

    polled = decode_reply(PollMessages.CODE, bytes(wire))

    assert polled.messages.payloads() == payloads[:damaged]
    assert isinstance(polled.fault, TruncatedField)
    assert (polled.partition_id, polled.current_offset, polled.messages_count) == (3, 9, 4)


def test_poll_reply_when_its_first_message_is_damaged_then_refused():
    wire = stored_reply([b"one", b"two"])
    wire[16 + 53] ^= 1

    with pytest.raises(TruncatedField):
        decode_reply(PollMessages.CODE, bytes(wire))


def test_poll_reply_when_another_value_is_given_then_cannot_be_written():
    with pytest.raises(LocalProtocolError, match="is PolledMessages, not b'x'"):
        encode_reply(PollMessages.CODE, b"x")
