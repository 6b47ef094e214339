"""Polled batches of 0.9 and later: from stored messages and back, every fault; over both twins."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import batch, batch_vsr
from iggy_protocol.batch import MessageBatch
from iggy_protocol.batch_vsr import classic_records, vsr_batches
from iggy_protocol.errors import InvalidField, TruncatedField
from tests.protocol.batch_strategies import TWINS, damaged, load_twin
from tests.protocol.vsr_strategies import (
    BATCH_OF_BOTH,
    FRAME,
    PRODUCER,
    RECORD,
    SECOND_FRAME,
    make_batch,
    make_frame,
    make_stored,
    polled,
    stored,
)


@pytest.fixture(params=TWINS, autouse=True, scope="module")
def _implementation(request):
    with pytest.MonkeyPatch.context() as patch:
        for module in (batch, batch_vsr):
            patch.setattr(module, "implementation", load_twin(request.param))
        yield


@given(batches=polled())
def test_batches_when_read_then_records_verify_and_say_the_same(batches):
    made = classic_records(batches, producers_allowed=True)

    messages = MessageBatch(made.records)
    messages.verify()
    assert made.fault is None
    assert made.messages_count == len(messages)
    found, at = iter(messages), 0
    while at < len(batches):
        base, time_us, origin_us, length = struct.unpack_from("<QQQQ", batches, at + 8)
        end, at = at + length, at + 256
        while at < end:
            message = next(found)
            delta, origin_delta = struct.unpack_from("<II", batches, at + 24)
            assert (message.offset, message.timestamp_us) == (base + delta, time_us)
            assert message.origin_timestamp_us == origin_us + origin_delta
            assert message.id.to_bytes(16, "little") == batches[at + 8 : at + 24]
            content = bytes(message.payload) + bytes(message.user_headers)
            assert content == batches[at + 48 : at + 48 + len(content)]
            at += 48 + len(content)
    assert next(found, None) is None


@given(messages=stored())
def test_records_when_written_as_batches_and_read_then_the_same_bytes(messages):
    records = b"".join(messages)

    made = vsr_batches(records, partition_id=3)

    assert made[1:] == (len(messages), len(records), False)
    assert classic_records(made.buffer) == (bytearray(records), len(messages), None)


@given(messages=stored())
def test_records_when_written_as_batches_then_runs_follow_times_and_checksums_hold(messages):
    batches = vsr_batches(b"".join(messages), partition_id=3).buffer

    rebuilt, at, taken = b"", 0, 0
    while at < len(batches):
        partition, base, time_us, origin_us, length, _, count = struct.unpack_from(
            "<QQQQQQI", batches, at
        )
        run = [MessageBatch(one) for one in messages[taken : taken + count]]
        views = [next(iter(one)) for one in run]
        assert partition == 3
        assert {view.timestamp_us for view in views} == {time_us}
        assert min(view.origin_timestamp_us for view in views) == origin_us
        assert views[0].offset == base
        rebuilt += make_batch(
            [
                make_frame(
                    bytes(view.payload),
                    id_number=view.id,
                    user_headers=bytes(view.user_headers),
                    offset_delta=view.offset - base,
                    origin_delta=view.origin_timestamp_us - origin_us,
                )
                for view in views
            ],
            partition_id=3,
            base_offset=base,
            timestamp_us=time_us,
            origin_us=origin_us,
        )
        at, taken = at + length, taken + count
    assert taken == len(messages)
    assert rebuilt == batches


def test_records_when_times_are_far_apart_then_another_batch_begins():
    def heads(*fields: tuple[int, int, int]) -> list[tuple[int, int]]:
        """Return base offset and count of each batch."""
        records = b"".join(
            make_stored(offset=offset, timestamp_us=time_us, origin_us=origin_us)
            for offset, time_us, origin_us in fields
        )
        batches, found, at = vsr_batches(records, partition_id=0).buffer, [], 0
        while at < len(batches):
            base, length = struct.unpack_from("<Q16xQ", batches, at + 8)
            found.append((base, struct.unpack_from("<I", batches, at + 48)[0]))
            at += length
        return found

    assert heads((0, 5, 9), (1, 5, 3), (2, 5, 6)) == [(0, 3)]
    assert heads((0, 5, 0), (1, 6, 0)) == [(0, 1), (1, 1)]
    assert heads((0, 5, 0), (1, 5, 2**32 - 1)) == [(0, 2)]
    assert heads((0, 5, 0), (1, 5, 2**32)) == [(0, 1), (1, 1)]
    assert heads((0, 5, 2**32), (1, 5, 0)) == [(0, 1), (1, 1)]
    assert heads((0, 5, 0), (2**32 - 1, 5, 0)) == [(0, 2)]
    assert heads((0, 5, 0), (2**32, 5, 0)) == [(0, 1), (2**32, 1)]
    assert heads((9, 5, 0), (8, 5, 0)) == [(9, 1), (8, 1)]


@given(messages=stored(), data=st.data())
def test_records_when_limited_then_cut_between_messages(messages, data):
    records = b"".join(messages)
    whole = vsr_batches(records, partition_id=3).buffer
    limit = data.draw(st.integers(0, len(whole) + 1))

    made = vsr_batches(records, partition_id=3, bytes_max=limit)

    taken = messages[: made.messages_count]
    assert len(made.buffer) <= limit
    assert made.records_bytes == sum(map(len, taken))
    assert not made.is_damaged
    assert made.buffer == vsr_batches(b"".join(taken), partition_id=3).buffer
    if made.messages_count < len(messages):
        one_more = b"".join(messages[: made.messages_count + 1])
        assert len(vsr_batches(one_more, partition_id=3).buffer) > limit


@given(messages=stored(), data=st.data())
def test_records_when_damaged_then_those_before_the_damage(messages, data):
    records = b"".join(messages)
    hurt = data.draw(damaged(records))

    made = vsr_batches(hurt, partition_id=3)

    intact = bytes(batch.intact_prefix(hurt))
    assert made.records_bytes == len(intact)
    assert made.is_damaged == (len(intact) < len(hurt))
    assert made.buffer == vsr_batches(intact, partition_id=3).buffer


def test_records_when_told_not_to_verify_then_wrong_checksums_are_not_noticed():
    wrong = b"\x00" * 8 + RECORD[8:]

    assert vsr_batches(wrong, partition_id=0, verify=False)[1:] == (1, len(RECORD), False)
    assert vsr_batches(wrong, partition_id=0)[1:] == (0, 0, True)
    assert vsr_batches(wrong, partition_id=0, bytes_max=308)[1:] == (0, 0, False)


def test_batches_when_a_message_arrived_damaged_then_its_record_does_not_verify():
    batches = bytearray(BATCH_OF_BOTH + bytes(204) + FRAME + SECOND_FRAME)
    batches[-1] ^= 1

    made = classic_records(batches)

    assert made.fault is None
    with pytest.raises(InvalidField, match="message 1 does not match its checksum"):
        MessageBatch(made.records).verify()
    MessageBatch(classic_records(batches, verify=False).records).verify()


@pytest.mark.parametrize(
    ("batches", "kind", "where", "said"),
    [
        (bytes(255), TruncatedField, 0, "head of the batch at byte 0 is cut"),
        (make_batch([], length=255), InvalidField, 0, "another length"),
        (make_batch([], length=257), TruncatedField, 0, "another length"),
        (make_batch([], tail=bytes(20) + b"\x01" + bytes(183)), InvalidField, 0, "reserved"),
        (make_batch([], producer=PRODUCER), InvalidField, 0, "reserved bytes"),
        (make_batch([], count=1), InvalidField, 0, "another number of messages"),
        (make_batch([bytes(47)]), InvalidField, 256, "message at byte 256 does not end inside"),
        (make_batch([make_frame(reserved=1)]), InvalidField, 256, "message at byte 256"),
        (
            make_batch([make_frame(), make_frame(origin_delta=1)], origin_us=2**64 - 1),
            InvalidField,
            304,
            "above 64 bits",
        ),
        (
            make_batch([make_frame(), make_frame(offset_delta=1)], base_offset=2**64 - 1),
            InvalidField,
            304,
            "above 64 bits",
        ),
    ],
    ids=range(10),
)
def test_batches_when_wrong_then_typed_fault_behind_the_messages_before(batches, kind, where, said):
    before = make_batch([make_frame(b"good")], base_offset=4)

    made = classic_records(before + batches)

    assert made.messages_count == 1
    assert made.records == classic_records(before).records
    assert type(made.fault) is kind
    assert made.fault is not None
    assert said.replace("byte 256", f"byte {len(before) + 256}").replace(
        "byte 0", f"byte {len(before)}"
    ) in str(made.fault)
    assert made.fault.offset == len(before) + where
    assert made.fault.field == "messages.1"
    if kind is TruncatedField:
        assert made.fault.offset + made.fault.have == len(before + batches)
        assert made.fault.need > made.fault.have


def test_batches_when_cut_anywhere_then_truncated_and_all_messages_before_are_there():
    first = make_batch([make_frame(b"a"), make_frame(b"b", offset_delta=1)])
    batches = first + make_batch([make_frame(b"c")], base_offset=2)

    for end in range(len(batches)):
        made = classic_records(batches[:end])
        whole = 0 if end < len(first) else 2
        assert made.messages_count == whole
        assert (made.fault is None) == (end in (0, len(first)))
        if made.fault is not None:
            assert made.fault.offset + made.fault.have == end
