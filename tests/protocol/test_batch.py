"""The module ``batch``: the choice of implementation, typed errors, and MessageBatch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from xxhash import xxh3_64_intdigest

from iggy_protocol import batch, batch_python
from iggy_protocol.batch import MessageBatch
from iggy_protocol.errors import InvalidBatch, InvalidField, LocalProtocolError, TruncatedField
from iggy_protocol.message_view import NewMessage
from tests.protocol.batch_strategies import (
    TWINS,
    load_twin,
    make_body,
    make_message,
    make_metadata,
)

FIRST = make_message(b"first", user_headers=b"headers", id_number=1)
SECOND = make_message(b"second", id_number=0)


@pytest.fixture(params=TWINS, autouse=True)
def _twin(request, monkeypatch):
    monkeypatch.setattr(batch, "implementation", load_twin(request.param))


def stamped() -> bytearray:
    buffer = bytearray(FIRST + SECOND)
    batch.stamp(buffer, base_offset=10, timestamp_us=20, random=bytes(16))
    return buffer


class TestChoice:
    def test_choice_when_extension_is_built_then_takes_it(self):
        extension = load_twin("c")

        assert batch._choose_implementation({}) == (extension, "c")
        assert batch._choose_implementation({"IGGY_NO_EXTENSIONS": "0"}) == (extension, "c")

    def test_choice_when_extension_is_switched_off_then_takes_python(self):
        assert batch._choose_implementation({"IGGY_NO_EXTENSIONS": "1"}) == (batch_python, "python")

    def test_choice_when_extension_is_missing_then_takes_python(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "iggy_protocol._batch", None)
        monkeypatch.delattr("iggy_protocol._batch", raising=False)

        assert batch._choose_implementation({}) == (batch_python, "python")

    def test_module_when_imported_then_names_its_choice(self):
        switched_off = os.environ.get("IGGY_NO_EXTENSIONS") == "1"

        assert batch.BATCH_IMPLEMENTATION in (("python",) if switched_off else ("c", "python"))

    def test_module_when_imported_with_the_switch_then_runs_on_python(self):
        script = (
            "import sys; from iggy_protocol import batch;"
            "print(batch.BATCH_IMPLEMENTATION, batch.MessageView.__module__,"
            "'iggy_protocol._batch' in sys.modules)"
        )
        environment = {**os.environ, "IGGY_NO_EXTENSIONS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)

        result = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True
        )

        assert result.stdout.split() == ["python", "iggy_protocol.message_view", "False"]


class TestInspectSend:
    def test_inspect_when_body_is_good_then_names_the_parts(self):
        shape = batch.inspect_send(make_body([FIRST, SECOND]))

        assert shape == batch.BatchShape(
            messages_count=2,
            topic_at=7,
            partitioning_at=10,
            indexes_at=20,
            messages_at=52,
            missing_ids=1,
        )

    @pytest.mark.parametrize(
        ("body", "status", "offset", "message_index", "sentence"),
        [
            (b"", 3, 0, 0, "the metadata cannot be read from byte 0 on"),
            (
                make_metadata(1, topic=b"\x00\x00"),
                6,
                7,
                0,
                "there is no valid identifier at byte 7",
            ),
            (make_metadata(0), 4009, 16, 0, "the count at byte 16 announces no messages"),
            (
                make_body([FIRST, SECOND[:-1]]),
                4033,
                0,
                1,
                "message 1 does not lie between the ends its index entries give",
            ),
            (make_body([SECOND]) + b"x", 4036, 0, 0, "message 0 is shorter than its index entry"),
        ],
    )
    def test_inspect_when_body_is_bad_then_says_why_and_where(
        self, body, status, offset, message_index, sentence
    ):
        with pytest.raises(InvalidBatch) as caught:
            batch.inspect_send(body)

        error = caught.value
        assert (error.status, error.offset, error.message_index) == (status, offset, message_index)
        assert str(error).startswith(sentence)

    def test_reasons_when_listed_then_cover_every_refusal(self):
        assert set(batch._REASONS) == {3, 6, 4009, 4017, 4022, 4031, 4032, 4033, 4036, 4100, 10011}


class TestWork:
    def test_encode_when_good_then_builds_the_body(self):
        body = batch.encode_messages(
            make_metadata(2),
            [NewMessage(b"first", 1, b"headers"), b"second"],
            origin_timestamp_us=0,
            headroom=8,
        )

        assert body == bytes(8) + make_body([FIRST, SECOND])

    @pytest.mark.parametrize(
        ("item", "sentence"),
        [
            (NewMessage(b"x", id=1 << 128), "message 0: id does not fit into 128 bits"),
            (NewMessage(b"x", user_headers=bytes(100_001)), "message 0: user headers of 100001"),
        ],
    )
    def test_encode_when_the_wire_cannot_say_it_then_raises_our_error(self, item, sentence):
        with pytest.raises(LocalProtocolError) as caught:
            batch.encode_messages(b"", [item], origin_timestamp_us=0)

        assert str(caught.value).startswith(sentence)

    def test_encode_when_item_is_no_message_then_raises_type_error(self):
        items: list[bytes] = [b"x", 7]  # type: ignore[list-item]  # what this test is about

        with pytest.raises(TypeError, match="message 1: payload must be bytes-like, not int"):
            batch.encode_messages(b"", items, origin_timestamp_us=0)

    def test_stamp_when_inspected_then_counts_and_seals(self):
        buffer = stamped()

        assert [view.offset for view in MessageBatch(buffer)] == [10, 11]
        MessageBatch(buffer).verify()

    def test_stamp_when_random_bytes_are_missing_then_raises_our_error(self):
        with pytest.raises(LocalProtocolError, match="message 1 needs an id"):
            batch.stamp(bytearray(FIRST + SECOND), base_offset=0, timestamp_us=0, random=b"")

    def test_index_entries_when_good_then_gives_ends(self):
        entries = batch.index_entries(stamped(), relative_offset=3, position=100)

        assert entries.hex(" ", 8) == (
            "03000000b0000000 1400000000000000 04000000f6000000 1400000000000000"
        )

    def test_index_entries_when_segment_is_full_then_raises_our_error(self):
        with pytest.raises(LocalProtocolError, match="does not fit into 32 bits"):
            batch.index_entries(FIRST, relative_offset=0, position=2**32 - 1)

    def test_checksum_when_asked_then_is_the_one_of_stored_messages(self):
        assert batch.checksum(b"bytes") == xxh3_64_intdigest(b"bytes")

    def test_allocate_when_asked_then_makes_room(self):
        assert len(batch.allocate(5)) == 5


class TestMessageBatch:
    def test_batch_when_read_then_behaves_like_a_sequence_of_views(self):
        buffer = stamped()
        messages = MessageBatch(buffer)

        assert len(messages) == 2
        assert messages.nbytes == len(buffer)
        assert messages.buffer is buffer
        assert [bytes(view.payload) for view in messages] == messages.payloads()
        assert messages.payloads() == [b"first", b"second"]
        assert repr(messages) == "<MessageBatch of 2 messages in 146 bytes>"

    def test_batch_when_asked_for_its_ends_then_tells_their_offsets(self):
        third = make_message(b"third", offset=9)
        messages = MessageBatch(stamped() + third)

        assert (messages.first_offset, messages.last_offset) == (10, 9)

    def test_reading_when_done_then_there_was_a_record_of_each_message(self):
        kind = vars(batch)["implementation"].MessageRecord

        reading = MessageBatch(stamped()).reading(
            kind, source="topic", opens_plain=True, kept=[None, None]
        )
        made = list(reading)

        assert [record.payload for record in made] == [b"first", b"second"]
        assert {record._source for record in made} == {"topic"}
        assert [record._is_plain for record in made] == [False, True]

    def test_batch_when_empty_then_is_false_and_whole(self):
        messages = MessageBatch(b"")

        assert not messages
        assert (messages.first_offset, messages.last_offset) == (None, None)
        assert list(messages) == []
        messages.verify()

    def test_batch_when_compared_then_only_bytes_count(self):
        messages = MessageBatch(FIRST)

        assert messages == MessageBatch(bytearray(FIRST)) == MessageBatch(memoryview(FIRST))
        assert messages != MessageBatch(SECOND)
        assert messages != FIRST
        with pytest.raises(TypeError):
            hash(messages)

    @pytest.mark.parametrize(
        ("size", "field", "offset", "need", "have"),
        [
            (1, "header", 76, 64, 1),
            (63, "header", 76, 64, 63),
            (64, "payload", 140, 5, 0),
            (68, "payload", 140, 5, 4),
            (69, "user_headers", 145, 7, 0),
            (75, "user_headers", 145, 7, 6),
        ],
    )
    def test_batch_when_tail_is_cut_then_names_field_and_place(
        self, size, field, offset, need, have
    ):
        with pytest.raises(TruncatedField) as caught:
            MessageBatch(memoryview(FIRST + FIRST)[: 76 + size])

        error = caught.value
        assert error.field == f"messages.1.{field}"
        assert (error.offset, error.need, error.have) == (offset, need, have)
        assert str(error) == f"message 1 is cut inside its {field.replace('_', ' ')}"

    @pytest.mark.parametrize(("at", "damaged", "offset"), [(70, 0, 0), (76, 1, 76), (145, 1, 76)])
    def test_batch_when_a_byte_changed_then_verify_names_the_message(self, at, damaged, offset):
        buffer = stamped()
        buffer[at] ^= 0x80

        with pytest.raises(InvalidField) as caught:
            MessageBatch(buffer).verify()

        assert caught.value.field == f"messages.{damaged}.checksum"
        assert caught.value.offset == offset
