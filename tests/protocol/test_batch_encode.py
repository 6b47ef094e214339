"""Encoding batches, over both twins."""

from __future__ import annotations

import array
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.message_view import NewMessage
from tests.protocol.batch_strategies import (
    ENTRY,
    ITEMS,
    TWINS,
    U64,
    load_twin,
    make_body,
    make_message,
    make_metadata,
)


class OddInteger(int):
    """An integer of another type, which the extension must not take for a plain one."""


# Bodies that official clients sent.
TWO_PAYLOADS = bytes.fromhex(
    """
    1200000002027331 0202743102040000 0000020000000000 0000450000000000
    0000000000000000 00008b0000000000 0000000000000000 0000000000000000
    0000000000000000 0000000000000000 0000000000000000 000000000000491c
    5b41596006000000 0000050000000000 0000000000006865 6c6c6f0000000000
    0000000000000000 0000000000000000 0000000000000000 0000000000000000
    0000004a1c5b4159 6006000000000006 0000000000000000 000000776f726c64
    21
    """
)
NUMERIC_IDS = bytes.fromhex(
    """
    1600000001040100 0000010402000000 0204030000000100 0000000000004200
    0000000000000000 0000000000000000 0000000000000000 0000000000000000
    0000000000000000 0000000000000000 000014275b415960 0600000000000200
    0000000000000000 000000ff
    """
)
USER_HEADERS = bytes.fromhex(
    """
    0e00000002027331 0202743101000100 0000000000008e00 0000000000000000
    0000000000000000 0000050000000000 0000000000000000 0000000000000000
    0000000000000000 0000dbfb9ae1a101 00004b0000000300 0000000000000000
    0000616263020400 00006e616d650204 0000004a6f686e06 0400000007000000
    0301000000010203 0000007536340c08 0000002c01000000 0000000203000000
    6636340f08000000 000000000000f83f
    """
)
KEY_AND_UUID = bytes.fromhex(
    """
    1500000002027331 0202743103077573 65722d3432010000 0000000000430000
    0000000000000000 0000000000000000 0001890f5c7d617a 3b8c2d1122334455
    6600000000000000 0000000000000000 00dcfb9ae1a10100 0000000000030000
    0000000000000000 00616263
    """
)

# Each with the end of its metadata and the messages it was made of.
CAPTURES = {
    "two payloads": (
        TWO_PAYLOADS,
        22,
        [
            NewMessage(b"hello", origin_timestamp_us=1794786325109833),
            NewMessage(b"world!", origin_timestamp_us=1794786325109834),
        ],
    ),
    "numeric ids": (
        NUMERIC_IDS,
        26,
        [NewMessage(b"\x00\xff", origin_timestamp_us=1794786325112596)],
    ),
    "user headers": (
        USER_HEADERS,
        18,
        [NewMessage(b"abc", 5, USER_HEADERS[-75:], 1794786393051)],
    ),
    "key and UUID": (
        KEY_AND_UUID,
        25,
        [
            NewMessage(
                b"abc",
                id=int.from_bytes(
                    uuid.UUID("01890f5c-7d61-7a3b-8c2d-112233445566").bytes, "little"
                ),
                origin_timestamp_us=1794786393052,
            )
        ],
    ),
}


@pytest.fixture(scope="module", params=TWINS)
def twin(request):
    return load_twin(request.param)


class TestEncode:
    @pytest.mark.parametrize("name", CAPTURES)
    def test_encode_when_given_what_a_client_sent_then_writes_the_same_bytes(self, twin, name):
        body, metadata_end, messages = CAPTURES[name]

        assert twin.encode(body[:metadata_end], messages, 0, 0) == body

    @given(items=st.lists(ITEMS, max_size=8), origin_us=U64, headroom=st.integers(0, 64))
    def test_encode_when_given_any_messages_then_writes_each_part(
        self, twin, items, origin_us, headroom
    ):
        metadata = make_metadata(len(items))
        messages = [item if isinstance(item, NewMessage) else NewMessage(item) for item in items]
        written = [
            make_message(
                bytes(message.payload),
                id_number=message.id,
                user_headers=message.user_headers,
                origin_us=origin_us
                if message.origin_timestamp_us is None
                else message.origin_timestamp_us,
            )
            for message in messages
        ]

        encoded = twin.encode(metadata, items, origin_us, headroom)

        assert type(encoded) is bytearray
        assert encoded == bytes(headroom) + make_body(written)

    @pytest.mark.parametrize("container", [list, tuple, lambda items: dict.fromkeys(items).keys()])
    def test_encode_when_container_differs_then_writes_the_same(self, twin, container):
        items = [b"one", b"two"]
        expected = make_body([make_message(item, id_number=0) for item in items])

        assert twin.encode(make_metadata(2), container(items), 0, 0) == expected

    def test_encode_when_payload_has_wide_elements_then_takes_its_bytes(self, twin):
        numbers = array.array("I", [1, 2, 3])

        encoded = twin.encode(b"", [numbers, memoryview(numbers)], 0, 0)

        message = make_message(numbers.tobytes(), id_number=0)
        assert encoded[2 * ENTRY.size :] == message * 2

    def test_encode_when_list_is_empty_then_writes_the_prefix(self, twin):
        assert twin.encode(b"prefix", [], 0, 3) == b"\0\0\0prefix"

    def test_encode_when_buffers_are_many_then_releases_them_all(self, twin):
        chunks = [bytearray(b"payload") for _ in range(100)]

        twin.encode(b"", chunks, 0, 0)

        for chunk in chunks:
            chunk.append(1)
        assert {len(chunk) for chunk in chunks} == {8}

    def test_encode_when_it_fails_then_releases_the_buffers(self, twin):
        chunk = bytearray(b"payload")

        with pytest.raises(TypeError):
            twin.encode(b"", [chunk, 7], 0, 0)

        chunk.append(1)

    @pytest.mark.parametrize(
        ("item", "error", "message"),
        [
            (7, TypeError, "message 1: payload must be bytes-like, not int"),
            ("text", TypeError, "message 1: payload must be bytes-like, not str"),
            ((b"x", 0), TypeError, "message 1: a message must be a payload or a tuple"),
            ((b"x", "0", b"", None), TypeError, "message 1: id must be an integer, not str"),
            ((b"x", 0, None, None), TypeError, "message 1: user headers must be bytes-like"),
            ((b"x", 0, b"", 1.5), TypeError, "message 1: origin timestamp must be an integer"),
            ((b"x", 1 << 128, b"", None), OverflowError, "message 1: id does not fit into 128"),
            ((b"x", -1, b"", None), OverflowError, "message 1: id does not fit into 128 bits"),
            ((b"x", 0, b"", 1 << 64), OverflowError, "message 1: origin timestamp does not fit"),
            ((b"x", 0, b"", -1), OverflowError, "message 1: origin timestamp does not fit"),
            ((b"x", 0, bytes(100_001), None), ValueError, "message 1: user headers of 100001 by"),
            (bytes(64_000_001), ValueError, "message 1: payload of 64000001 bytes is above the"),
            (bytearray(64_000_001), ValueError, "message 1: payload of 64000001 bytes is above"),
            (memoryview(bytes(8))[::2], BufferError, ""),
        ],
        ids=lambda value: None if isinstance(value, bytes | bytearray) else "",
    )
    def test_encode_when_a_message_is_bad_then_names_it(self, twin, item, error, message):
        with pytest.raises(error) as caught:
            twin.encode(b"", [b"good", item], 0, 0)

        assert str(caught.value).startswith(message)

    @pytest.mark.parametrize("bits", [0, 1, 30, 60, 63, 64, 90, 119, 120, 127, 128])
    @pytest.mark.parametrize("as_int", [int, OddInteger], ids=["int", "subclass"])
    def test_encode_when_ids_and_times_have_any_size_then_writes_them_whole(
        self, twin, bits, as_int
    ):
        near = [number for number in (2**bits - 1, 2**bits, 2**bits + 1) if number < 2**128]
        items = [NewMessage(b"xyz", as_int(n), b"h", as_int(n % 2**64)) for n in [*near, 0]]

        encoded = twin.encode(b"", [*items, b"plain"], 9, 0)

        for index, item in enumerate(items):
            at = 16 * (len(items) + 1) + index * (64 + 4)
            assert int.from_bytes(encoded[at + 8 : at + 24], "little") == item.id
            assert int.from_bytes(encoded[at + 40 : at + 48], "little") == item.origin_timestamp_us
            assert encoded[at + 64 : at + 68] == b"xyzh"

    def test_encode_when_two_messages_are_bad_then_names_the_first(self, twin):
        large, wide = bytes(64_000_001), NewMessage(b"x", 1 << 128)

        with pytest.raises(OverflowError, match="message 1: id"):
            twin.encode(b"", [b"good", wide, large], 0, 0)
        with pytest.raises(ValueError, match="message 1: payload"):
            twin.encode(b"", [b"good", large, wide], 0, 0)

    def test_encode_when_at_the_limits_then_accepts(self, twin):
        item = NewMessage(bytes(64_000_000), user_headers=bytes(100_000))

        assert len(twin.encode(b"", [item], 0, 0)) == 16 + 64 + 64_100_000

    @pytest.mark.parametrize("container", [list, tuple])
    @pytest.mark.parametrize("extra", [b"", NewMessage(b"")])
    def test_encode_when_a_frame_cannot_hold_it_then_is_refused_before_allocating(
        self, twin, container, extra
    ):
        large = bytes(64_000_000)
        left = 2**32 - 1 - 4 - 67 * (64_000_000 + 80) - 2 * 80
        items = container([*[large] * 67, bytes(left + 1), extra])

        with pytest.raises(ValueError, match="the batch is above the limit of 4294967291 bytes"):
            twin.encode(b"", items, 0, 0)

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ((1, [], 0, 0), TypeError),
            ((b"", 7, 0, 0), TypeError),
            ((b"", b"ab", 0, 0), TypeError),
            ((b"", [], "0", 0), TypeError),
            ((b"", [], -1, 0), OverflowError),
            ((b"", [], 1 << 64, 0), OverflowError),
            ((b"", [], 0, "0"), TypeError),
            ((b"", [], 0, -1), ValueError),
            ((b"", [], 0, 4097), ValueError),
            ((b"", [], 0, 1 << 80), ValueError),
            ((b"", []), TypeError),
        ],
    )
    def test_encode_when_an_argument_is_bad_then_is_refused(self, twin, arguments, error):
        with pytest.raises(error):
            twin.encode(*arguments)


class TestAllocate:
    def test_allocate_when_asked_then_makes_a_bytearray_of_that_size(self, twin):
        made = twin.allocate(100_000)

        assert type(made) is bytearray
        assert len(made) == 100_000
        made += b"x"

    @pytest.mark.parametrize(
        ("size", "error"),
        [(-1, ValueError), (b"abc", TypeError), (1.0, TypeError), (1 << 80, OverflowError)],
    )
    def test_allocate_when_size_is_bad_then_is_refused(self, twin, size, error):
        with pytest.raises(error):
            twin.allocate(size)
