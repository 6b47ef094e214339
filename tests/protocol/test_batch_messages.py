"""Messages back to back: stamped, indexed, walked, verified; over both twins."""

from __future__ import annotations

import array
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from tests.protocol.batch_strategies import (
    BUFFERS,
    ENTRY,
    GOLDEN,
    HEADER,
    MESSAGE_LISTS,
    POLL_MESSAGES,
    RAW_FILES,
    TWINS,
    U64,
    load_twin,
    make_ends,
    make_message,
    recorded,
)

GOOD = make_message(b"good", id_number=7)
OTHER = make_message(b"other", id_number=0)

POLLED = bytes.fromhex(
    """
    cbe56185b1b77984 100f0e0d0c0b0a09 0807060504030201 0000000000000000
    00401e18240a0600 fb3f1e18240a0600 0000000005000000 0000000000000000
    68656c6c6f39e638 af07012abf100f0e 0d0c0b0a09080706 0504030201010000
    000000000000401e 18240a0600fb3f1e 18240a06000c0000 0006000000000000
    0000000000776f72 6c64210201000000 6b020100000076
    """
)


@pytest.fixture(scope="module", params=TWINS)
def twin(request):
    return load_twin(request.param)


class TestStamp:
    @given(
        messages=MESSAGE_LISTS,
        base_offset=st.integers(0, 2**64 - 10),
        timestamp_us=U64,
        spare=st.binary(max_size=20),
    )
    def test_stamp_when_done_then_only_the_server_fields_changed(
        self, twin, messages, base_offset, timestamp_us, spare
    ):
        before = [HEADER.unpack(message[:64]) for message in messages]
        entropy = [bytes([index]) * 16 for index in range(len(messages))]
        buffer = bytearray(b"".join(messages))

        count = twin.stamp(buffer, base_offset, timestamp_us, b"".join(entropy) + spare)

        assert count == len(messages)
        at = 0
        for index, message in enumerate(messages):
            stamped = bytes(buffer[at : at + len(message)])
            fields = HEADER.unpack(stamped[:64])
            assert fields[0] == xxh3_64_intdigest(stamped[8:])
            assert fields[2:4] == (base_offset + index, timestamp_us)
            assert (fields[4:], stamped[64:]) == (before[index][4:], message[64:])
            if before[index][1] != bytes(16):
                assert fields[1] == before[index][1]
            else:
                made = uuid.UUID(bytes=fields[1])
                assert (made.version, made.variant) == (4, uuid.RFC_4122)
                source = entropy.pop(0)
                assert [byte for i, byte in enumerate(fields[1]) if i not in (6, 8)] == [
                    byte for i, byte in enumerate(source) if i not in (6, 8)
                ]
                assert fields[1][6] & 0x0F == source[6] & 0x0F
                assert fields[1][8] & 0x3F == source[8] & 0x3F
            at += len(message)
        assert twin.verify(buffer) == -1

    def test_stamp_when_random_bytes_run_out_then_blames_the_message(self, twin):
        buffer = bytearray(GOOD + OTHER + OTHER)

        with pytest.raises(ValueError, match="message 2 needs an id, but no random bytes are left"):
            twin.stamp(buffer, 0, 1, bytes(31))

        assert twin.verify(buffer) == 2

    def test_stamp_when_a_message_is_cut_then_blames_it(self, twin):
        buffer = bytearray(GOOD + GOOD[:-1])

        with pytest.raises(ValueError, match="message 1 does not fit into the bytes given"):
            twin.stamp(buffer, 0, 1, b"")

        assert twin.verify(buffer) == 1

    def test_stamp_when_offsets_end_then_blames_the_message(self, twin):
        buffer = bytearray(GOOD * 3)

        with pytest.raises(ValueError, match="message 2: offset does not fit into 64 bits"):
            twin.stamp(buffer, 2**64 - 2, 1, b"")

    def test_stamp_when_given_a_slice_then_leaves_the_rest_alone(self, twin):
        buffer = bytearray(b"before" + GOOD + b"after")

        assert twin.stamp(memoryview(buffer)[6:-5], 3, 4, b"") == 1

        assert bytes(buffer[:6] + buffer[-5:]) == b"beforeafter"
        assert twin.verify(buffer[6:-5]) == -1

    @pytest.mark.parametrize("at", [0, 7, 8, 12, 23])
    def test_stamp_when_random_bytes_lie_in_the_message_then_takes_them_as_they_were(
        self, twin, at
    ):
        buffer = bytearray(make_message(id_number=0, offset=2**64 - 1, checksum=2**64 - 1))
        random = memoryview(buffer)[at : at + 16]
        expected = bytearray(random)
        expected[6] = expected[6] & 0x0F | 0x40
        expected[8] = expected[8] & 0x3F | 0x80

        assert twin.stamp(buffer, 3, 4, random) == 1

        assert buffer[8:24] == expected
        assert twin.verify(buffer) == -1

    def test_stamp_when_large_then_seals_every_message(self, twin):
        messages = [make_message(bytes([index % 256]) * 1000) for index in range(1500)]
        buffer = bytearray(b"".join(messages))

        assert twin.stamp(buffer, 10, 20, b"") == 1500
        assert twin.verify(buffer) == -1

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ((bytes(GOOD), 0, 0, b""), BufferError),
            ((memoryview(GOOD), 0, 0, b""), BufferError),
            ((7, 0, 0, b""), TypeError),
            ((bytearray(), "0", 0, b""), TypeError),
            ((bytearray(), 0, None, b""), TypeError),
            ((bytearray(), -1, 0, b""), OverflowError),
            ((bytearray(), 0, 1 << 64, b""), OverflowError),
            ((bytearray(), 0, 0, 7), TypeError),
            ((bytearray(), 0, 0), TypeError),
        ],
    )
    def test_stamp_when_an_argument_is_bad_then_is_refused(self, twin, arguments, error):
        with pytest.raises(error):
            twin.stamp(*arguments)


class TestIndexEntries:
    @given(messages=MESSAGE_LISTS, relative=st.integers(0, 1000), position=st.integers(0, 10**6))
    def test_index_entries_when_made_then_hold_offset_end_and_time(
        self, twin, messages, relative, position
    ):
        expected = b"".join(
            ENTRY.pack(relative + index, position + end, HEADER.unpack(message[:64])[3])
            for index, (message, end) in enumerate(zip(messages, make_ends(messages), strict=True))
        )

        entries = twin.index_entries(b"".join(messages), relative, position)

        assert type(entries) is bytearray
        assert entries == expected

    @pytest.mark.parametrize(
        ("messages", "relative", "position", "accepted"),
        [
            (GOOD, 2**32 - 1, 2**32 - 1 - 68, True),
            (GOOD * 2, 2**32 - 1, 0, False),
            (GOOD, 0, 2**32 - 68, False),
            (GOOD, 2**32, 0, False),
            (b"", 2**32, 0, False),
            (b"", 0, 2**32, False),
            (b"", 2**32 - 1, 2**32 - 1, True),
            (GOOD + b"x", 0, 0, False),
            (GOOD, 2**64 - 1, 2**64 - 1, False),
        ],
    )
    def test_index_entries_when_at_the_limits_then_refuses_what_is_above(
        self, twin, messages, relative, position, accepted
    ):
        if accepted:
            assert len(twin.index_entries(messages, relative, position)) == len(messages) // 68 * 16
        else:
            with pytest.raises(ValueError):
                twin.index_entries(messages, relative, position)

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ((GOOD, -1, 0), OverflowError),
            ((GOOD, 0, 2**64), OverflowError),
            ((GOOD, "0", 0), TypeError),
            ((GOOD, 0, None), TypeError),
            ((7, 0, 0), TypeError),
            ((GOOD, 0), TypeError),
        ],
    )
    def test_index_entries_when_an_argument_is_bad_then_is_refused(self, twin, arguments, error):
        with pytest.raises(error):
            twin.index_entries(*arguments)


class TestReading:
    def test_walk_when_given_a_recorded_poll_then_shows_every_field(self, twin):
        first, second = twin.walk(POLLED)

        assert (first.checksum, second.checksum) == (0x8479B7B18561E5CB, 0xBF2A0107AF38E639)
        assert first.id == second.id == 0x0102030405060708090A0B0C0D0E0F10
        assert (first.offset, second.offset) == (0, 1)
        assert first.timestamp_us == 1700000000000000
        assert first.origin_timestamp_us == 1699999999999995
        assert (bytes(first.payload), bytes(first.user_headers)) == (b"hello", b"")
        assert bytes(second.payload) == b"world!"
        assert bytes(second.user_headers) == bytes.fromhex("02010000006b020100000076")
        assert (first.size, second.size) == (69, 82)
        assert first.is_intact()
        assert second.is_intact()
        assert repr(second) == (
            "<MessageView offset=1 id=1339673755198158349044581307228491536 "
            "timestamp_us=1700000000000000 payload=6 bytes user_headers=12 bytes>"
        )

    def test_walk_when_a_byte_changed_then_the_view_is_not_intact(self, twin):
        first, second = twin.walk(POLLED[:-1] + b"!")

        assert first.is_intact()
        assert not second.is_intact()

    def test_walk_when_tail_is_cut_then_raises_after_the_whole_messages(self, twin):
        views = twin.walk(POLLED[:-1])

        assert next(views).offset == 0
        with pytest.raises(ValueError, match="the last 81 bytes are not a whole message"):
            next(views)
        with pytest.raises(StopIteration):
            next(views)

    @given(messages=MESSAGE_LISTS)
    def test_walk_when_given_any_messages_then_shows_what_is_there(self, twin, messages):
        views = list(twin.walk(b"".join(messages)))

        assert [
            (
                view.checksum,
                view.id.to_bytes(16, "little"),
                view.offset,
                view.timestamp_us,
                view.origin_timestamp_us,
                len(view.user_headers),
                len(view.payload),
            )
            for view in views
        ] == [HEADER.unpack(message[:64])[:7] for message in messages]
        assert [bytes(view.payload) + bytes(view.user_headers) for view in views] == [
            message[64:] for message in messages
        ]
        assert [view.size for view in views] == [len(message) for message in messages]

    @given(messages=MESSAGE_LISTS, wrap=st.sampled_from([bytes, bytearray, memoryview]))
    def test_payloads_when_copied_then_equal_those_of_the_walk(self, twin, messages, wrap):
        buffer = wrap(b"".join(messages))

        copies = twin.payloads(buffer)

        assert copies == [bytes(view.payload) for view in twin.walk(buffer)]
        assert {type(copy) for copy in copies} <= {bytes}

    @pytest.mark.parametrize("size", [1, 63, 64, 67])
    def test_payloads_when_tail_is_cut_then_is_refused(self, twin, size):
        with pytest.raises(ValueError, match=f"the last {size} bytes are not a whole message"):
            twin.payloads(GOOD + GOOD[:size])

    @pytest.mark.parametrize("cut", range(len(POLLED)))
    def test_measure_when_cut_anywhere_then_counts_whole_messages(self, twin, cut):
        count = 1 if cut >= 69 else 0

        assert twin.measure(POLLED[:cut]) == (count, 69 * count, 0)
        assert twin.verify(POLLED[:cut]) == (-1 if cut in (0, 69) else count)

    @pytest.mark.parametrize("at", range(len(POLLED)))
    def test_verify_when_a_byte_changed_then_finds_the_message(self, twin, at):
        changed = bytearray(POLLED)
        changed[at] ^= 1

        assert twin.verify(changed) == (0 if at < 69 else 1)

    @pytest.mark.parametrize("name", [name for name in RAW_FILES if name != "encryption.jsonl"])
    def test_verify_when_the_server_sent_it_then_holds(self, twin, name):
        replies = [
            (number, bytes.fromhex(entry["reply"])[24:])
            for number, entry, _ in recorded(name)
            if entry["code"] == POLL_MESSAGES and entry.get("status") == 0 and entry.get("reply")
        ]

        assert [number for number, messages in replies if twin.verify(messages) != -1] == []

    @pytest.mark.parametrize("function", ["checksum", "inspect", "measure", "payloads", "verify"])
    @given(data=BUFFERS)
    def test_function_when_given_another_buffer_type_then_gives_the_same(
        self, twin, function, data
    ):
        call = getattr(twin, function)

        try:
            expected = call(bytes(data))
        except ValueError:
            with pytest.raises(ValueError):
                call(data)
        else:
            assert call(data) == expected

    @pytest.mark.parametrize(
        "function", ["checksum", "inspect", "measure", "payloads", "verify", "walk"]
    )
    @pytest.mark.parametrize(
        ("buffer", "error"),
        [(None, TypeError), ("text", TypeError), (memoryview(bytes(8))[::2], BufferError)],
    )
    def test_function_when_given_no_flat_buffer_then_is_refused(
        self, twin, function, buffer, error
    ):
        with pytest.raises(error):
            getattr(twin, function)(buffer)

    def test_checksum_when_elements_are_wide_then_covers_their_bytes(self, twin):
        numbers = array.array("d", [1.5, 2.5])

        assert twin.checksum(memoryview(numbers)) == xxh3_64_intdigest(numbers.tobytes())


def disk_partitions():
    logs = sorted((GOLDEN / "disk").glob("*/streams/*/topics/*/partitions/*/*.log"))
    return [pytest.param(log, id=str(log.relative_to(GOLDEN / "disk"))) for log in logs]


class TestStoredFiles:
    @pytest.mark.parametrize("log", disk_partitions())
    def test_log_when_read_then_every_record_and_entry_is_as_we_would_write_it(self, twin, log):
        records = log.read_bytes()
        first_offset = int(log.stem)

        views = list(twin.walk(records))

        assert all(view.is_intact() for view in views)
        assert twin.verify(records) == -1
        last_bytes = views[-1].size if views else 0
        assert twin.measure(records) == (len(views), len(records), len(records) - last_bytes)
        assert [view.offset for view in views] == list(
            range(first_offset, first_offset + len(views))
        )
        assert log.with_suffix(".index").read_bytes() == twin.index_entries(records, 0, 0)

    @pytest.mark.parametrize("log", disk_partitions())
    def test_record_when_blanked_and_stamped_again_then_is_the_same(self, twin, log):
        for view in twin.walk(log.read_bytes()):
            record = make_message(
                bytes(view.payload),
                id_number=view.id,
                user_headers=bytes(view.user_headers),
                origin_us=view.origin_timestamp_us,
            )
            buffer = bytearray(record)

            twin.stamp(buffer, view.offset, view.timestamp_us, b"")

            assert [bytes(view.payload), view.checksum] == [
                (again := next(twin.walk(buffer))).payload,
                again.checksum,
            ]
