"""Batches of 0.9 and later: golden bytes, both directions, every fault; over both twins."""

from __future__ import annotations

import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import batch, batch_vsr
from iggy_protocol.batch import MessageBatch, allocate, inspect_send, stamp
from iggy_protocol.batch_vsr import (
    ProducerSequence,
    classic_records,
    classic_send_body,
    encode_vsr_send,
    vsr_batches,
)
from iggy_protocol.errors import InvalidBatch, LocalProtocolError
from iggy_protocol.frame_view import VsrFault
from iggy_protocol.message_view import NewMessage
from tests.protocol.batch_strategies import (
    ITEMS,
    TWINS,
    load_twin,
    make_metadata,
    outcome,
)
from tests.protocol.vsr_strategies import (
    BATCH_OF_BOTH,
    FRAME,
    PRODUCER,
    PRODUCERS,
    RECORD,
    SECOND_FRAME,
    SECOND_RECORD,
    make_frame,
    make_send,
    make_stored,
    sends,
)

# Accepted by official clients or by the official codec.
SENT_BATCH = bytes.fromhex(
    "000000000000000000000000000000000000000000000000 e803000000000000 3501000000000000"
    "3e7f3b6a0d5270b2 01000000"
)
PRODUCER_SECTION = bytes.fromhex("01000000 0110000000000000 0000 0000 11000000")
METADATA = make_metadata(1)


@pytest.fixture(params=TWINS, autouse=True, scope="module")
def _implementation(request):
    with pytest.MonkeyPatch.context() as patch:
        for module in (batch, batch_vsr):
            patch.setattr(module, "implementation", load_twin(request.param))
        yield


# Golden bytes


def test_records_when_written_as_batches_then_golden():
    made = vsr_batches(RECORD + SECOND_RECORD, partition_id=3)

    assert made.buffer == BATCH_OF_BOTH + bytes(204) + FRAME + SECOND_FRAME
    assert made[1:] == (2, len(RECORD) + len(SECOND_RECORD), False)


def test_batches_when_written_as_records_then_golden():
    batches = BATCH_OF_BOTH + bytes(204) + FRAME + SECOND_FRAME

    assert classic_records(batches) == (bytearray(RECORD + SECOND_RECORD), 2, None)


def test_message_when_encoded_then_golden():
    body = encode_vsr_send(METADATA, [NewMessage(b"hello", 5)], origin_timestamp_us=1000)

    assert body == METADATA + SENT_BATCH + bytes(204) + FRAME


def test_message_when_encoded_with_a_producer_then_golden():
    body = encode_vsr_send(
        METADATA, [NewMessage(b"hello", 5)], origin_timestamp_us=1000, producer=PRODUCER
    )

    batch_at = len(METADATA)
    assert body[batch_at + 52 : batch_at + 72] == PRODUCER_SECTION
    assert body[batch_at + 40 : batch_at + 48] == (0x81DD302BAC167BDA).to_bytes(8, "little")


def test_send_when_taken_and_stamped_then_golden():
    taken = classic_send_body(METADATA + SENT_BATCH + bytes(204) + FRAME)
    shape = inspect_send(taken.body)
    messages = memoryview(taken.body)[shape.messages_at :]
    stamp(messages, base_offset=7, timestamp_us=2000, random=b"")

    assert taken.producer is None
    assert messages == RECORD


def test_batch_when_stamped_by_a_server_then_golden_checksum():
    made = vsr_batches(RECORD, partition_id=0)

    assert made.buffer[40:48] == (0xE8C237D50157FD02).to_bytes(8, "little")


# Sends


@given(body=sends())
def test_send_when_good_then_its_classic_form_says_the_same(body):
    taken = classic_send_body(body, producers_allowed=True)

    shape = inspect_send(taken.body)
    messages = list(MessageBatch(taken.body[shape.messages_at :]))
    batch_at = 4 + int.from_bytes(body[:4], "little")
    origin_us = int.from_bytes(body[batch_at + 24 : batch_at + 32], "little")
    frame_at = batch_at + 256
    assert bytes(taken.body[:batch_at]) == body[:batch_at]
    for message in messages:
        frame = body[frame_at : frame_at + message.size - 16]
        delta_us, headers, payload = struct.unpack_from("<III", frame, 28)
        assert (message.checksum, message.offset, message.timestamp_us) == (0, 0, 0)
        assert message.id.to_bytes(16, "little") == frame[8:24]
        assert message.origin_timestamp_us == origin_us + delta_us
        assert (len(message.payload), len(message.user_headers)) == (payload, headers)
        assert bytes(message.payload) + bytes(message.user_headers) == frame[48:]
        frame_at += len(frame)
    assert frame_at == len(body)


@given(
    items=st.lists(ITEMS, min_size=1, max_size=4),
    headroom=st.sampled_from([0, 256]),
    producer=PRODUCERS,
)
def test_messages_when_encoded_then_the_server_takes_what_a_classic_send_has(
    items, headroom, producer
):
    metadata = make_metadata(len(items))
    section = None if producer is None else ProducerSequence(*producer)
    near = [
        item._replace(origin_timestamp_us=(item.origin_timestamp_us or 0) % 2**32)
        if isinstance(item, NewMessage)
        else item
        for item in items
    ]

    body = encode_vsr_send(
        metadata,
        near,
        origin_timestamp_us=9,
        headroom=headroom,
        random=bytes(range(16)) * len(items),
        producer=section,
    )

    assert body[:headroom] == bytes(headroom)
    taken = classic_send_body(memoryview(body)[headroom:], producers_allowed=True)
    sent = MessageBatch(taken.body[inspect_send(taken.body).messages_at :])
    classic = batch.encode_messages(metadata, near, origin_timestamp_us=9)
    expected = MessageBatch(classic[inspect_send(classic).messages_at :])
    assert taken.producer == section
    assert sent.payloads() == expected.payloads()
    for ours, theirs in zip(sent, expected, strict=True):
        made = int.from_bytes(bytes.fromhex("000102030405460788090a0b0c0d0e0f"), "little")
        assert ours.id == (theirs.id or made)
        assert ours.user_headers == theirs.user_headers
        assert ours.origin_timestamp_us == theirs.origin_timestamp_us


@pytest.mark.parametrize(
    ("body", "status", "where", "said"),
    [
        (b"", 4, 0, "metadata cannot be read from byte 0"),
        (make_metadata(1, stream=b"\x03\x01s"), 4, 4, "metadata cannot be read from byte 4"),
        (make_metadata(1, topic=b"\x02\x00"), 4, 7, "metadata cannot be read from byte 7"),
        (make_metadata(1, partitioning=b"\x02\x03abc"), 4, 10, "metadata"),
        (make_metadata(1, surplus=b"\x00") + bytes(400), 4, 16, "metadata"),
        (METADATA + bytes(255), 4, 20, "head of the batch at byte 20 is cut"),
        (make_send([make_frame()], length=255), 4, 20, "another length"),
        (make_send([make_frame()], length=303), 4, 20, "another length"),
        (make_send([make_frame()], length=305), 4, 20, "another length"),
        (make_send([make_frame()], length=2**64 - 1), 4, 20, "another length"),
        (make_send([make_frame()], tail=bytes(203) + b"\x01"), 4, 20, "reserved bytes"),
        (make_send([make_frame()], tail=b"\x02" + bytes(203)), 4, 20, "reserved bytes"),
        (make_send([make_frame()], tail=bytes(4) + b"\x01" + bytes(199)), 4, 20, "reserved"),
        (make_send([make_frame()], partition_id=1), 4, 20, "only a server assigns"),
        (make_send([make_frame()], base_offset=1), 4, 20, "only a server assigns"),
        (make_send([make_frame()], timestamp_us=1), 4, 20, "only a server assigns"),
        (make_send([make_frame(), bytes(47)]), 4, 1, "message 1 does not end inside"),
        (make_send([make_frame(payload_length=1)]), 4, 0, "message 0 does not end inside"),
        (
            make_send([make_frame(payload_length=2**32 - 1, user_headers_length=2**32 - 1)]),
            4,
            0,
            "message 0 does not end inside",
        ),
        (make_send([make_frame(), make_frame(offset_delta=2)]), 4, 1, "not its place"),
        (make_send([make_frame(reserved=1)]), 4, 0, "reserved bytes"),
        (make_send([make_frame(origin_delta=1)], origin_us=2**64 - 1), 4, 0, "above 64 bits"),
        (make_send([make_frame()], count=2), 4, 20, "another number of messages"),
        (make_send([make_frame()], metadata=make_metadata(2)), 4, 20, "another number"),
        (make_send([]), 4009, 20, "has no messages"),
        (make_send([make_frame(bytes(64_000_001))]), 4022, 0, "too large a payload"),
        (
            make_send([make_frame(), make_frame(user_headers=bytes(100_001), offset_delta=1)]),
            4017,
            1,
            "too many bytes of user headers",
        ),
        (
            make_send(
                [
                    make_frame(user_headers=bytes(100_001)),
                    make_frame(bytes(64_000_001), offset_delta=1),
                ]
            ),
            4017,
            0,
            "too many bytes of user headers",
        ),
        (make_send([make_frame(), make_frame(checksum=0, offset_delta=1)]), 4027, 1, "message 1"),
        (make_send([make_frame()], checksum=0), 4039, 20, "batch at byte 20 does not match"),
    ],
    ids=range(30),
)
def test_send_when_wrong_then_refused_with_its_status(body, status, where, said):
    with pytest.raises(InvalidBatch, match=said) as caught:
        classic_send_body(body)

    error = caught.value
    assert error.status == status
    assert (error.message_index or error.offset) == where


@pytest.mark.parametrize(
    "section",
    [
        (2**63, 0, 0),
        (0, 2**15, 0),
        (0, 0, 2**31),
    ],
)
def test_send_when_its_producer_is_out_of_range_then_refused(section):
    body = make_send([make_frame()], producer=section)

    with pytest.raises(InvalidBatch, match="reserved bytes"):
        classic_send_body(body, producers_allowed=True)


def test_send_when_it_names_a_producer_then_taken_only_where_the_dialect_has_them():
    body = make_send([make_frame()], producer=PRODUCER)

    assert classic_send_body(body, producers_allowed=True).producer == PRODUCER
    with pytest.raises(InvalidBatch, match="reserved bytes") as caught:
        classic_send_body(body)
    assert caught.value.status == 4


def test_send_when_two_faults_then_the_first_in_the_order_of_servers_is_reported():
    both = make_send([make_frame(user_headers=bytes(100_001), checksum=0)], count=2)
    sizes = make_send([make_frame(user_headers=bytes(100_001), checksum=0)])
    sums = make_send([make_frame(checksum=0)], checksum=0)

    for body, status in ((both, 4), (sizes, 4017), (sums, 4027)):
        with pytest.raises(InvalidBatch) as caught:
            classic_send_body(body)
        assert caught.value.status == status


def test_send_when_larger_than_a_classic_index_can_say_then_refused_unread():
    with pytest.raises(InvalidBatch, match="too large") as caught:
        classic_send_body(allocate((1 << 30) + 1))
    assert caught.value.status == 4


def test_send_when_any_byte_is_flipped_or_missing_then_refused():
    frames = [make_frame(b"first", user_headers=b"headers"), make_frame(b"2", offset_delta=1)]
    body = make_send(frames, origin_us=5, producer=PRODUCER)
    classic_send_body(body, producers_allowed=True)
    batch_at = len(METADATA)

    for at in range(batch_at, len(body)):
        flipped = bytearray(body)
        flipped[at] ^= 1
        for wrong in (flipped, body[:at]):
            with pytest.raises(InvalidBatch):
                classic_send_body(wrong, producers_allowed=True)


# Arguments


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"messages": []}, "at least one message"),
        ({"messages": [b"x"]}, "message 0 needs an id, but no random bytes are left"),
        ({"messages": [NewMessage(b"", 1), b""], "random": bytes(15)}, "message 1 needs an id"),
        ({"messages": [NewMessage(bytes(64_000_001), 1)]}, "payload of 64000001 bytes"),
        ({"messages": [NewMessage(b"", 1, bytes(100_001))]}, "user headers of 100001 bytes"),
        ({"messages": [NewMessage(b"", 2**128)]}, "message 0: id does not fit into 128 bits"),
        (
            {"messages": [NewMessage(b"", 1, b"", 2**32), NewMessage(b"", 1, b"", 0)]},
            "message 0: origin timestamp is too long after the earliest",
        ),
        ({"origin_timestamp_us": 2**64}, "origin timestamp does not fit into 64 bits"),
        ({"headroom": 4097}, "headroom must be between 0 and 4096"),
        ({"producer": (2**63, 0, 0)}, "producer id does not fit into 63 bits"),
        ({"producer": (2**64, 0, 0)}, "producer id does not fit into 63 bits"),
        ({"producer": (0, 2**15, 0)}, "producer epoch does not fit into 15 bits"),
        ({"producer": (0, 0, -1)}, "producer sequence does not fit into 31 bits"),
        ({"producer": (0, 0, 2**31)}, "producer sequence does not fit into 31 bits"),
    ],
    ids=range(14),
)
def test_encode_when_it_cannot_be_written_then_refused(fields, said):
    given_fields = {"messages": [NewMessage(b"x", 1)], "origin_timestamp_us": 0} | fields

    with pytest.raises(LocalProtocolError, match=said):
        encode_vsr_send(METADATA, **given_fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [1]},
        {"messages": [(b"", 1)]},
        {"producer": 1},
        {"producer": (1, 2)},
        {"producer": ("1", 2, 3)},
        {"random": 1},
    ],
)
def test_encode_when_a_type_is_wrong_then_type_error(fields):
    given_fields = {"messages": [NewMessage(b"x", 1)], "origin_timestamp_us": 0} | fields

    with pytest.raises(TypeError):
        encode_vsr_send(METADATA, **given_fields)


def test_encode_when_the_batch_is_larger_than_a_frame_can_be_then_refused():
    payload = bytes(64_000_000)

    with pytest.raises(LocalProtocolError, match="above the limit of 4294966783 bytes"):
        encode_vsr_send(METADATA, [NewMessage(payload, 1)] * 68, origin_timestamp_us=0)


def test_numbers_when_too_large_for_batches_then_refused():
    with pytest.raises(LocalProtocolError, match="partition id does not fit into 64 bits"):
        vsr_batches(b"", partition_id=2**64)
    with pytest.raises(LocalProtocolError, match="byte limit does not fit into 64 bits"):
        vsr_batches(b"", partition_id=0, bytes_max=-1)


# Memory that changes


def test_conversions_when_bytes_change_meanwhile_then_nothing_is_touched_beyond_the_ends():
    """A thread rewrites lengths while another converts: the answer is a result or a refusal."""
    extension = load_twin("c")
    # Above this size the interpreter lock is released, so the two really run side by side.
    frames = [make_frame(bytes(1000), offset_delta=index) for index in range(1200)]
    body = bytearray(make_send(frames))
    batches = memoryview(body)[len(METADATA) :]
    records = bytearray(b"".join(make_stored(bytes(1000), offset=at) for at in range(1200)))
    done = threading.Event()

    def rewrite() -> None:
        lengths = (1000, 0, 5_000, 2**32 - 1)
        turn = 0
        while not done.is_set():
            length = lengths[turn % len(lengths)]
            struct.pack_into("<I", body, len(METADATA) + 256 + 1048 * 600 + 36, length)
            struct.pack_into("<I", records, 1064 * 600 + 52, length)
            struct.pack_into("<Q", records, 1064 * 601 + 32, turn % 2)
            turn += 1

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        faults = set[int]()
        for _ in range(60):
            faults.add(extension.classic_send(body, False)[0])
            faults.add(extension.classic_records(batches, False, True)[2])
            kind, _made = outcome(extension.vsr_batches, records, 0, 2**64 - 1, False)
            assert kind in ("returned", "raised")
    finally:
        done.set()
        writer.join()

    assert faults <= {int(fault) for fault in VsrFault}
