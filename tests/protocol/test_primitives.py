"""Identifiers, consumers, strategies, partitioning: their constructors and their refusals."""

from __future__ import annotations

import pytest

from iggy_protocol.batch import MessageBatch
from iggy_protocol.commands.messages import PollMessages, SendMessages, encode_polled
from iggy_protocol.commands.streams import GetStream
from iggy_protocol.errors import (
    InvalidBatch,
    InvalidField,
    LocalProtocolError,
    ProtocolError,
    TruncatedField,
    UnknownDiscriminant,
)
from iggy_protocol.framing import HeadroomBuffer
from iggy_protocol.layout import Layout
from iggy_protocol.model.identifier import (
    Consumer,
    ConsumerKind,
    Partitioning,
    PartitioningKind,
    PollingKind,
    PollingStrategy,
)
from iggy_protocol.model.message import NewMessage
from iggy_protocol.model.polled import PolledMessages
from iggy_protocol.primitives import PARTITIONING
from iggy_protocol.registry import decode_reply, decode_request, encode_reply, encode_request
from iggy_protocol.validation import validate

PARTITIONING_LAYOUT: Layout[Partitioning] = Layout("partitioning", PARTITIONING)


@pytest.mark.parametrize(
    ("made", "kind", "value"),
    [
        (PollingStrategy.offset(7), PollingKind.OFFSET, 7),
        (PollingStrategy.timestamp(8), PollingKind.TIMESTAMP, 8),
        (PollingStrategy.first(), PollingKind.FIRST, 0),
        (PollingStrategy.last(), PollingKind.LAST, 0),
        (PollingStrategy.next(), PollingKind.NEXT, 0),
        (Partitioning.balanced(), PartitioningKind.BALANCED, b""),
        (Partitioning.partition(7), PartitioningKind.PARTITION_ID, b"\7\0\0\0"),
        (Partitioning.key("é"), PartitioningKind.MESSAGES_KEY, "é".encode()),
        (Partitioning.key(b"\0\xff"), PartitioningKind.MESSAGES_KEY, b"\0\xff"),
    ],
)
def test_constructor_when_called_then_kind_and_value_are_those_of_the_wire(made, kind, value):
    assert (made.kind, made.value) == (kind, value)


def test_consumer_when_made_then_knows_its_kind():
    assert Consumer.single("a") == Consumer(ConsumerKind.SINGLE, "a")
    assert Consumer.group(7) == Consumer(ConsumerKind.GROUP, 7)


def test_partition_id_when_the_server_chooses_then_none():
    assert Partitioning.partition(7).partition_id == 7
    assert Partitioning.balanced().partition_id is None
    assert Partitioning.key("k").partition_id is None


@pytest.mark.parametrize("identifier", [-1, 2**32, "", "a" * 256, None, 1.5, b"name"])
def test_identifier_when_the_wire_cannot_say_it_then_local_error_names_the_field(identifier):
    with pytest.raises(LocalProtocolError) as caught:
        encode_request(GetStream(identifier))
    assert caught.value.field == "stream"


@pytest.mark.parametrize("identifier", [0, 2**32 - 1, "a", "é" * 127, "..", "7", "a\0b"])
def test_identifier_when_valid_then_survives_with_its_type(identifier):
    wire = b"".join(encode_request(GetStream(identifier)))
    assert decode_request(GetStream.CODE, wire) == GetStream(identifier)


@pytest.mark.parametrize(
    ("wire", "error", "status"),
    [
        ("0000", UnknownDiscriminant, 3),
        ("0400", UnknownDiscriminant, 3),
        ("010178", InvalidField, 3),
        ("0203000000", InvalidField, 3),
        ("02050000000000", InvalidField, 3),
        ("03", TruncatedField, 3),
        ("0305616263", TruncatedField, 3),
    ],
)
def test_partitioning_when_malformed_then_refused_with_status_3(wire, error, status):
    with pytest.raises(error) as caught:
        PARTITIONING_LAYOUT.decode(bytes.fromhex(wire))
    assert caught.value.status == status


@pytest.mark.parametrize(
    "partitioning",
    [
        Partitioning(PartitioningKind.BALANCED, b"x"),
        Partitioning(PartitioningKind.PARTITION_ID, b"123"),
        Partitioning.key(b"k" * 256),
    ],
)
def test_partitioning_when_its_value_has_a_wrong_size_then_cannot_be_written(partitioning):
    with pytest.raises(LocalProtocolError, match="does not take"):
        PARTITIONING_LAYOUT.encode(partitioning)


def test_protocol_error_when_raised_itself_then_is_refused():
    with pytest.raises(TypeError, match="abstract"):
        ProtocolError("nothing in particular")


def send(messages, **options):
    command = SendMessages("stream", 7, Partitioning.key("k"), messages, **options)
    [prepared] = encode_request(command)
    assert isinstance(prepared, HeadroomBuffer)
    return bytes(prepared.buffer[prepared.headroom :])


def test_send_when_encoded_then_arrives_with_ids_times_and_headers():
    body = send(
        [b"plain", NewMessage(b"full", 5, b"\2\1\0\0\0k\2\1\0\0\0v", 99)], origin_timestamp_us=42
    )
    command = decode_request(SendMessages.CODE, body)
    assert (command.stream, command.topic) == ("stream", 7)
    assert command.partitioning == Partitioning.key("k")
    assert command.messages.payloads() == [b"plain", b"full"]
    plain, full = command.messages
    assert (plain.id, plain.origin_timestamp_us) == (0, 42)
    assert (full.id, full.origin_timestamp_us, bytes(full.user_headers[-1:])) == (5, 99, b"v")
    validate(command)
    again = b"".join(bytes(part) for part in encode_request(command))
    assert again == body


def test_send_when_names_are_not_utf8_then_decodes_and_encodes_to_the_same_bytes():
    body = send([b"x"]).replace(b"stream", b"str\xff\xfem")
    command = decode_request(SendMessages.CODE, body)
    assert command.stream.encode(errors="surrogateescape") == b"str\xff\xfem"
    assert b"".join(bytes(part) for part in encode_request(command)) == body
    with pytest.raises(LocalProtocolError):
        encode_request(GetStream(command.stream))


def test_send_when_it_must_not_be_stored_then_decodes_and_validation_refuses_it():
    body = send([b"x"]) + b"surplus"
    command = decode_request(SendMessages.CODE, body)
    assert len(command.messages) == 0
    with pytest.raises(InvalidBatch) as caught:
        validate(command)
    assert caught.value.status == 4036


@pytest.mark.parametrize(("cut", "status"), [(3, 3), (6, 3), (20, 3)])
def test_send_when_cut_then_refused(cut, status):
    with pytest.raises(InvalidBatch) as caught:
        decode_request(SendMessages.CODE, send([b"x"])[:cut])
    assert caught.value.status == status


def test_poll_reply_when_it_lies_in_several_buffers_then_they_are_passed_on_untouched():
    message = send([b"x"])[-65:]
    parts = [bytearray(message), memoryview(message)]
    buffers = encode_polled(3, 9, 2, parts)
    assert [buffers[1], buffers[2]] == parts
    assert buffers[1] is parts[0]
    reply = decode_reply(PollMessages.CODE, b"".join(buffers))
    assert (reply.partition_id, reply.current_offset, reply.messages_count) == (3, 9, 2)
    assert reply.messages.payloads() == [b"x", b"x"]


def test_poll_reply_when_cut_then_refused_except_between_messages():
    message = send([b"payload"])[-71:]
    wire = b"".join(encode_reply(100, PolledMessages(3, 9, 2, MessageBatch(message * 2))))
    for end in range(len(wire)):
        if end in (16, 16 + 71):
            assert decode_reply(100, wire[:end]).messages_count == 2
            continue
        with pytest.raises(TruncatedField) as caught:
            decode_reply(100, wire[:end])
        assert caught.value.offset + caught.value.have == end
