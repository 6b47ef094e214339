"""User headers: typed values, the block, and both against recorded bytes."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from construct import GreedyRange
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.errors import (
    InvalidField,
    LocalProtocolError,
    RemoteProtocolError,
    TruncatedField,
    UnknownDiscriminant,
)
from iggy_protocol.user_headers import (
    HEADER_PAIR,
    HeaderKey,
    HeaderKind,
    HeaderValue,
    decode_user_headers,
    encode_user_headers,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

GOLDEN = Path(__file__).parents[1] / "golden"

# What the Node client sent: its pairs stand in the order in which the application gave them.
NODE_BLOCK = bytes.fromhex(
    "02040000006e616d6502040000004a6f686e"
    "0604000000070000000301000000" + "01"
    "02030000007536340c080000002c01000000000000"
    "02030000006636340f08000000000000000000f83f"
)
NODE_HEADERS = {
    HeaderKey.string("name"): HeaderValue.string("John"),
    HeaderKey.int32(7): HeaderValue.boolean(True),
    HeaderKey.string("u64"): HeaderValue.uint64(300),
    HeaderKey.string("f64"): HeaderValue.float64(1.5),
}

# What the recorded driver sent: one header of every kind.
EVERY_KIND = {
    HeaderKey.string("k1"): HeaderValue.raw_bytes(b"\x00\xff"),
    HeaderKey.string("k2"): HeaderValue.string("text"),
    HeaderKey.string("k3"): HeaderValue.boolean(True),
    HeaderKey.string("k4"): HeaderValue.int8(-1),
    HeaderKey.string("k5"): HeaderValue.int16(1),
    HeaderKey.string("k6"): HeaderValue.int32(6),
    HeaderKey.string("k7"): HeaderValue.int64(7),
    HeaderKey.string("k8"): HeaderValue.int128(8),
    HeaderKey.string("k9"): HeaderValue.uint8(9),
    HeaderKey.string("k10"): HeaderValue.uint16(10),
    HeaderKey.string("k11"): HeaderValue.uint32(11),
    HeaderKey.string("k12"): HeaderValue.uint64(12),
    HeaderKey.string("k13"): HeaderValue.uint128(13),
    HeaderKey.string("k14"): HeaderValue.float32(1.5),
    HeaderKey.string("k15"): HeaderValue.float64(2.5),
}

SIZES = {
    **dict.fromkeys((HeaderKind.BOOL, HeaderKind.INT8, HeaderKind.UINT8), 1),
    **dict.fromkeys((HeaderKind.INT16, HeaderKind.UINT16), 2),
    **dict.fromkeys((HeaderKind.INT32, HeaderKind.UINT32, HeaderKind.FLOAT32), 4),
    **dict.fromkeys((HeaderKind.INT64, HeaderKind.UINT64, HeaderKind.FLOAT64), 8),
    **dict.fromkeys((HeaderKind.INT128, HeaderKind.UINT128), 16),
}


def typed_halves() -> st.SearchStrategy[tuple[HeaderKind, bytes]]:
    """Draw a kind and bytes of a size that fits it."""

    def fitting(kind: HeaderKind) -> st.SearchStrategy[tuple[HeaderKind, bytes]]:
        size = SIZES.get(kind)
        raw = st.binary(min_size=size or 1, max_size=size or 255)
        return raw.map(lambda raw: (kind, raw))

    return st.sampled_from(HeaderKind).flatmap(fitting)


KEYS = typed_halves().map(lambda half: HeaderKey(*half))
VALUES = typed_halves().map(lambda half: HeaderValue(*half))
HEADERS = st.dictionaries(KEYS, VALUES, max_size=8)
LAYOUT: Any = GreedyRange(HEADER_PAIR)


def recorded_blocks() -> dict[str, bytes]:
    """Cut the user headers out of the recorded sends, by the note beside each."""
    path = GOLDEN / "raw" / "send-ids-headers-payloads.jsonl"
    blocks = {}
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if line.get("cmd") == "send_messages" and "note" in line:
            request = bytes.fromhex(line["request"])
            header_at = 8 + 4 + int.from_bytes(request[8:12], "little") + 16
            headers_size, payload_size = struct.unpack_from("<II", request, header_at + 48)
            start = header_at + 64 + payload_size
            blocks[line["note"]] = request[start : start + headers_size]
    return blocks


def plain(headers: Mapping[HeaderKey, HeaderValue]) -> dict[Any, Any]:
    return {key.value: value.value for key, value in headers.items()}


# --- recorded bytes ------------------------------------------------------------------------------


def test_decode_when_the_node_client_wrote_the_block_then_reads_its_pairs_in_order():
    assert list(decode_user_headers(NODE_BLOCK).items()) == list(NODE_HEADERS.items())


def test_decode_when_the_block_holds_every_kind_then_reads_each():
    block = recorded_blocks()["all header kinds"]

    headers = decode_user_headers(block)

    assert list(headers.items()) == list(EVERY_KIND.items())
    assert list(plain(headers).values()) == [
        *(b"\x00\xff", "text", True, -1, 1, 6, 7, 8, 9, 10, 11, 12, 13, 1.5, 2.5)
    ]
    assert {value.kind for value in headers.values()} == set(HeaderKind)


def test_encode_when_given_the_recorded_headers_then_writes_them_sorted_by_key():
    block = recorded_blocks()["all header kinds"]

    sorted_block = encode_user_headers(EVERY_KIND)

    assert sorted_block != block
    assert len(sorted_block) == len(block)
    assert decode_user_headers(sorted_block) == EVERY_KIND
    assert list(plain(decode_user_headers(sorted_block)))[:3] == ["k1", "k10", "k11"]


def test_decode_when_the_recorded_block_is_rubbish_then_refuses():
    with pytest.raises(UnknownDiscriminant) as caught:
        decode_user_headers(recorded_blocks()["header block is not looked into"])

    assert (caught.value.field, caught.value.status) == ("user_headers.0.key_kind", 4040)


def test_decode_when_a_message_has_no_headers_then_finds_none():
    assert decode_user_headers(recorded_blocks()["empty payload"]) == {}


# --- the block -----------------------------------------------------------------------------------


@given(HEADERS)
def test_decode_when_encoded_then_gives_the_headers_back_in_sorted_order(headers):
    decoded = decode_user_headers(encode_user_headers(headers))

    assert decoded == headers
    assert list(decoded) == sorted(headers, key=lambda key: (key.kind, key.raw))


@given(st.lists(st.tuples(typed_halves(), typed_halves()), max_size=8))
def test_decode_when_the_declared_layout_wrote_the_block_then_reads_the_same(pairs):
    block = LAYOUT.build(
        [
            {"key_kind": key[0], "key": key[1], "value_kind": value[0], "value": value[1]}
            for key, value in pairs
        ]
    )

    expected = {HeaderKey(*key): HeaderValue(*value) for key, value in pairs}
    assert list(decode_user_headers(block).items()) == list(expected.items())


@given(HEADERS)
def test_encode_when_read_with_the_declared_layout_then_is_the_same(headers):
    block = encode_user_headers(headers)

    pairs = LAYOUT.parse(block)

    assert [(pair.key_kind, pair.key, pair.value_kind, pair.value) for pair in pairs] == [
        (key.kind, key.raw, value.kind, value.raw)
        for key, value in sorted(headers.items(), key=lambda pair: (pair[0].kind, pair[0].raw))
    ]
    assert LAYOUT.build(pairs) == block


@given(st.binary(max_size=60))
def test_decode_when_given_any_bytes_then_agrees_with_the_declared_layout_or_refuses(block):
    try:
        headers = decode_user_headers(block)
    except RemoteProtocolError as caught:
        error = caught
    else:
        pairs = LAYOUT.parse(block)
        assert headers == {
            HeaderKey(HeaderKind(pair.key_kind), pair.key): HeaderValue(
                HeaderKind(pair.value_kind), pair.value
            )
            for pair in pairs
        }
        assert sum(10 + pair.key_length + pair.value_length for pair in pairs) == len(block)
        return
    assert error.status in {3, 4018, 4019, 4040}
    assert error.field.startswith("user_headers.")
    assert 0 <= error.offset <= len(block)


@given(HEADERS.filter(bool), st.data())
def test_decode_when_cut_anywhere_then_keeps_whole_pairs_or_names_the_missing_bytes(headers, data):
    block = encode_user_headers(headers)
    cut = data.draw(st.integers(min_value=0, max_value=len(block) - 1))
    ends = [0]
    for pair in LAYOUT.parse(block):
        ends.append(ends[-1] + 10 + pair.key_length + pair.value_length)

    if cut in ends:
        assert len(decode_user_headers(block[:cut])) == ends.index(cut)
    else:
        with pytest.raises(TruncatedField) as caught:
            decode_user_headers(block[:cut])
        assert caught.value.status == 3
        assert caught.value.offset + caught.value.have == cut
        assert caught.value.need > caught.value.have


@given(HEADERS)
def test_decode_when_given_another_kind_of_buffer_then_agrees(headers):
    block = encode_user_headers(headers)

    assert decode_user_headers(memoryview(block)) == decode_user_headers(bytearray(block))


def test_decode_when_a_key_comes_twice_then_the_last_one_counts():
    pair = {"key_kind": 2, "key": b"k", "value_kind": 9}
    block = LAYOUT.build([{**pair, "value": b"\1"}, {**pair, "value": b"\2"}])

    assert decode_user_headers(block) == {HeaderKey.string("k"): HeaderValue.uint8(2)}


GOOD = "0201000000" + "6b"
BROKEN_BLOCKS = {
    "kind zero": ("0001000000" + "6b", UnknownDiscriminant, "key_kind", 0, 1, 6, 4040),
    "kind sixteen": ("10", UnknownDiscriminant, "key_kind", 0, 1, 1, 4040),
    "value kind zero": (GOOD + "00", UnknownDiscriminant, "value_kind", 6, 1, 1, 4040),
    "no key length": ("02", TruncatedField, "key_length", 1, 4, 0, 3),
    "half a key length": ("020100", TruncatedField, "key_length", 1, 4, 2, 3),
    "no key": ("0203000000", TruncatedField, "key", 5, 3, 0, 3),
    "half a key": ("0203000000" + "6b", TruncatedField, "key", 5, 3, 1, 3),
    "no value": (GOOD, TruncatedField, "value_kind", 6, 1, 0, 3),
    "half a value": (GOOD + "0c080000002c", TruncatedField, "value", 11, 8, 1, 3),
    "empty key": ("0200000000", InvalidField, "key_length", 1, 0, 0, 3),
    "long key": ("0200010000" + "6b" * 256, InvalidField, "key_length", 1, 256, 256, 3),
    "absurd key": ("02ffffffff" + "6b", InvalidField, "key_length", 1, 2**32 - 1, 1, 3),
    "empty value": (GOOD + "0200000000", InvalidField, "value_length", 7, 0, 0, 3),
    "key of another size": ("0602000000" + "0700", InvalidField, "key", 5, 4, 2, 4018),
    "value of another size": (GOOD + "0601000000" + "76", InvalidField, "value", 11, 4, 1, 4019),
}


@pytest.mark.parametrize("name", BROKEN_BLOCKS)
def test_decode_when_the_block_is_broken_then_names_field_place_and_status(name):
    block, error, field, offset, need, have, status = BROKEN_BLOCKS[name]

    with pytest.raises(error) as caught:
        decode_user_headers(bytes.fromhex(block))

    assert caught.value.field == f"user_headers.0.{field}"
    assert (caught.value.offset, caught.value.need, caught.value.have) == (offset, need, have)
    assert caught.value.status == status


def test_decode_when_a_later_pair_is_broken_then_names_its_index():
    with pytest.raises(TruncatedField) as caught:
        decode_user_headers(NODE_BLOCK + b"\x02")

    assert caught.value.field == "user_headers.4.key_length"


def test_encode_when_given_plain_values_then_chooses_their_kinds():
    block = encode_user_headers({"name": "John", 7: True, b"raw": 1.5})

    assert decode_user_headers(block) == {
        HeaderKey.raw_bytes(b"raw"): HeaderValue.float64(1.5),
        HeaderKey.string("name"): HeaderValue.string("John"),
        HeaderKey.int64(7): HeaderValue.boolean(True),
    }


def test_encode_when_given_pairs_then_writes_what_the_mapping_gives():
    assert encode_user_headers(NODE_HEADERS.items()) == encode_user_headers(NODE_HEADERS)


def test_encode_when_given_nothing_then_writes_no_bytes():
    assert encode_user_headers({}) == encode_user_headers([]) == b""


def test_encode_when_a_key_comes_twice_then_refuses():
    with pytest.raises(LocalProtocolError, match="twice"):
        encode_user_headers([("k", 1), (HeaderKey.string("k"), 2)])


def test_encode_when_keys_differ_in_kind_only_then_keeps_both():
    assert len(decode_user_headers(encode_user_headers({"k": 1, b"k": 2}))) == 2


def test_encode_when_the_block_grows_too_long_then_refuses():
    pair_size = 10 + 4 + 236
    fitting = {HeaderKey.uint32(index): bytes(236) for index in range(100_000 // pair_size)}

    assert len(encode_user_headers(fitting)) == 100_000
    with pytest.raises(LocalProtocolError, match="100000"):
        encode_user_headers({**fitting, HeaderKey.string("k"): b"v"})


# --- typed values --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 256])
@pytest.mark.parametrize("role", [HeaderKey, HeaderValue])
def test_header_when_its_length_is_out_of_range_then_refuses(role, size):
    with pytest.raises(LocalProtocolError, match="1 to 255"):
        role.raw_bytes(bytes(size))


@pytest.mark.parametrize("kind", SIZES)
def test_header_when_its_size_does_not_fit_the_kind_then_refuses(kind):
    with pytest.raises(LocalProtocolError, match=kind.name):
        HeaderValue(kind, bytes(SIZES[kind] + 1))


def test_header_when_key_and_value_look_alike_then_are_not_equal():
    key: object = HeaderKey.string("k")

    assert key != HeaderValue.string("k")
    assert len({key, HeaderValue.string("k")}) == 2


@pytest.mark.parametrize("kind", [kind for kind in SIZES if "INT" in kind.name])
def test_integer_when_at_its_limits_then_fits_and_beyond_them_not(kind):
    make = getattr(HeaderValue, kind.name.lower())
    bits = 8 * SIZES[kind]
    low, high = (
        (0, 2**bits - 1) if kind.name[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )

    assert (make(low).value, make(high).value) == (low, high)
    assert make(low).kind is kind
    for number in (low - 1, high + 1):
        with pytest.raises(LocalProtocolError, match=kind.name):
            make(number)


@given(st.integers(min_value=-(2**127), max_value=2**128 - 1))
def test_of_when_given_an_integer_then_takes_the_smallest_of_64_and_128_bits(number):
    header = HeaderValue.of(number)

    assert header.value == number
    if -(2**63) <= number < 2**64:
        assert header.kind in {HeaderKind.INT64, HeaderKind.UINT64}
    else:
        assert header.kind in {HeaderKind.INT128, HeaderKind.UINT128}
    assert (header.kind in {HeaderKind.UINT64, HeaderKind.UINT128}) == (
        2**63 <= number < 2**64 or number >= 2**127
    )


@pytest.mark.parametrize("number", [-(2**127) - 1, 2**128])
def test_of_when_no_kind_holds_the_integer_then_refuses(number):
    with pytest.raises(LocalProtocolError):
        HeaderValue.of(number)


def test_of_when_utf8_cannot_write_the_text_then_refuses():
    with pytest.raises(LocalProtocolError, match="not writable as UTF-8"):
        HeaderValue.of("\ud800")


def test_of_when_the_type_has_no_kind_then_refuses():
    with pytest.raises(LocalProtocolError, match="list"):
        HeaderValue.of([1])  # type: ignore[arg-type]


@given(st.text(min_size=1, max_size=60) | st.binary(min_size=1, max_size=255) | st.booleans())
def test_of_when_given_text_bytes_or_bool_then_value_is_the_same(value):
    assert HeaderValue.of(value).value == value
    assert type(HeaderValue.of(value).value) is type(value)


@given(st.floats())
def test_of_when_given_a_float_then_value_is_the_same(number):
    value = HeaderValue.of(number).value

    assert isinstance(value, float)
    assert value == number or (math.isnan(number) and math.isnan(value))


@given(st.floats(width=32))
def test_float32_when_given_32_bits_then_value_is_the_same(number):
    value = HeaderValue.float32(number).value

    assert isinstance(value, float)
    assert value == number or (math.isnan(number) and math.isnan(value))


def test_float32_when_given_too_much_then_refuses():
    with pytest.raises(LocalProtocolError, match="FLOAT32"):
        HeaderValue.float32(1e300)


@pytest.mark.parametrize(("role", "status"), [(HeaderKey, 4018), (HeaderValue, 4019)])
@pytest.mark.parametrize(
    ("kind", "raw"), [(HeaderKind.STRING, b"\xff"), (HeaderKind.BOOL, b"\x02")]
)
def test_value_when_the_bytes_mean_nothing_then_refuses_with_the_status_of_its_role(
    role, status, kind, raw
):
    with pytest.raises(InvalidField, match=kind.name) as caught:
        _ = role(kind, raw).value

    assert caught.value.status == status


@given(KEYS)
def test_header_when_rebuilt_from_kind_and_bytes_then_is_equal_and_hashes_alike(key):
    again = HeaderKey(key.kind, key.raw)

    assert again == key
    assert hash(again) == hash(key)
    assert not hasattr(key, "__dict__")
