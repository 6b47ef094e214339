"""The strict reader and ``Layout``: no short reads, no trailing bytes, no untyped errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.errors import (
    InvalidField,
    LocalProtocolError,
    RemoteProtocolError,
    TrailingBytes,
    TruncatedField,
    UnknownDiscriminant,
)
from iggy_protocol.fields import (
    CompiledAdapter,
    ContinuationFlagArray,
    CountPrefixedArray,
    LengthPrefixedBytes,
    OptionalTail,
    PresenceFlagged,
    RecordStruct,
    SizeChecked,
    StrictGreedyRange,
)
from iggy_protocol.layout import Layout, StrictReader
from iggy_protocol.primitives import BOOL, F32, NAME, PASSWORD, TEXT, U8, U16, U32, U64


@dataclass(frozen=True)
class Pair:
    number: int
    name: str


@dataclass(frozen=True)
class Holder:
    value: Any


PAIR = RecordStruct(Pair, "number" / U32, "name" / NAME)


def holding(block: Any) -> Layout[Any]:
    return Layout("Holder", RecordStruct(Holder, "value" / block))


# Every kind of block with a value and its bytes; no proper prefix of these bytes is a value.
BLOCKS = {
    "u8": (U8, 7, "07"),
    "u16": (U16, 7, "0700"),
    "u32": (U32, 7, "07000000"),
    "u64": (U64, 7, "0700000000000000"),
    "f32": (F32, 1.5, "0000c03f"),
    "bool": (BOOL, True, "01"),
    "bytes": (LengthPrefixedBytes(U8), b"ab", "026162"),
    "name": (NAME, "ab", "026162"),
    "password": (PASSWORD, "", "00"),
    "text": (TEXT, "ab", "020000006162"),
    "record": (PAIR, Pair(7, "a"), "070000000161"),
    "counted by a byte": (CountPrefixedArray(U16, count_size=1), (1, 2), "0201000200"),
    "counted by four": (CountPrefixedArray(U8, count_size=4), (1, 2), "020000000102"),
    "chained": (ContinuationFlagArray(U8), (7, 9), "0107010900"),
    "chained, none": (ContinuationFlagArray(U8), (), "00"),
    "flagged": (PresenceFlagged(U8), 7, "0107"),
    "flagged, none": (PresenceFlagged(U8), None, "00"),
    "measured": (SizeChecked(PAIR), Pair(7, "a"), "06000000070000000161"),
    "adapted": (CompiledAdapter(U8, lambda n: n + 1, lambda n: n - 1), 8, "07"),
}


@pytest.mark.parametrize(("block", "value", "wire"), BLOCKS.values(), ids=BLOCKS.keys())
def test_block_when_encoded_and_decoded_then_is_itself(block, value, wire):
    layout = holding(block)
    assert layout.encode(Holder(value)).hex() == wire
    assert layout.decode(bytes.fromhex(wire)) == Holder(value)


@pytest.mark.parametrize(("block", "value", "wire"), BLOCKS.values(), ids=BLOCKS.keys())
def test_block_when_cut_anywhere_then_truncated_names_field_offset_need_and_have(
    block, value, wire
):
    data = bytes.fromhex(wire)
    for end in range(len(data)):
        with pytest.raises(TruncatedField) as caught:
            holding(block).decode(data[:end])
        error = caught.value
        assert error.field.split(".")[0] == "value"
        assert error.offset + error.have == end
        assert error.need > error.have
        assert error.status == 3


@pytest.mark.parametrize(("block", "value", "wire"), BLOCKS.values(), ids=BLOCKS.keys())
def test_block_when_bytes_follow_then_trailing_bytes(block, value, wire):
    data = bytes.fromhex(wire)
    with pytest.raises(TrailingBytes) as caught:
        holding(block).decode(data + b"\xaa\xbb")
    assert (caught.value.offset, caught.value.have) == (len(data), 2)


def test_layout_when_surplus_is_allowed_then_ignores_it():
    layout: Layout[Pair] = Layout("Pair", PAIR, surplus_allowed=True)
    assert layout.decode(bytes.fromhex("070000000161ffff")) == Pair(7, "a")


def test_layout_when_given_views_then_reads_them():
    wire = bytearray(bytes.fromhex("070000000161"))
    layout: Layout[Pair] = Layout("Pair", PAIR)
    assert layout.decode(wire) == layout.decode(memoryview(wire)) == Pair(7, "a")


def test_list_to_the_end_when_last_element_is_broken_then_refused_and_numbered():
    layout: Layout[Any] = Layout("pairs", StrictGreedyRange(PAIR))
    good = bytes.fromhex("070000000161")
    assert layout.decode(good * 2) == (Pair(7, "a"), Pair(7, "a"))
    assert layout.decode(b"") == ()
    assert layout.encode((Pair(7, "a"),)) == good
    for end in range(1, len(good)):
        with pytest.raises(TruncatedField) as caught:
            layout.decode(good + good[:end])
        assert caught.value.field.startswith("1.")


def test_tail_when_missing_then_none_and_when_cut_then_refused():
    layout = holding(OptionalTail(U32))
    assert layout.decode(b"") == Holder(None)
    assert layout.encode(Holder(None)) == b""
    assert layout.decode(layout.encode(Holder(5))) == Holder(5)
    with pytest.raises(TruncatedField, match=r"Holder\.value at byte 0: 4 bytes needed, 3 left"):
        layout.decode(bytes(3))


def test_measured_when_size_is_wrong_then_invalid_and_not_truncated():
    layout = holding(SizeChecked(U32))
    for size in (0, 3, 5, 2**32 - 1):
        with pytest.raises(InvalidField) as caught:
            layout.decode(size.to_bytes(4, "little") + bytes(4))
        error = caught.value
        assert (error.field, error.offset, error.need, error.have) == ("value", 0, size, 4)
        assert error.status == 4


def test_counted_when_more_elements_than_the_count_holds_then_local_error():
    with pytest.raises(LocalProtocolError, match="256 elements") as caught:
        holding(CountPrefixedArray(U8, count_size=1)).encode(Holder((0,) * 256))
    assert caught.value.field == "value"


def test_flag_when_neither_zero_nor_one_then_means_absent_or_true():
    assert holding(PresenceFlagged(U8)).decode(b"\x02") == Holder(None)
    assert holding(BOOL).decode(b"\x02") == Holder(True)
    assert holding(ContinuationFlagArray(U8)).decode(b"\xff\x07\x00") == Holder((7,))


def test_huge_count_when_bytes_are_missing_then_refused_at_the_first_one():
    with pytest.raises(TruncatedField) as caught:
        holding(CountPrefixedArray(U64, count_size=4)).decode(b"\xff" * 4 + bytes(8))
    assert caught.value.field == "value.1"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Pair(2**32, "a"), "number"),
        (Pair(-1, "a"), "number"),
        (Pair(1, ""), "name"),
        (Pair(1, "a" * 256), "name"),
        (Pair(1, "\ud800"), "name"),
    ],
)
def test_encode_when_value_does_not_fit_then_local_error_names_the_field(value, reason):
    with pytest.raises(LocalProtocolError) as caught:
        Layout("Pair", PAIR).encode(value)
    assert caught.value.field == reason
    assert "Pair cannot be written" in str(caught.value)


def test_encode_when_given_another_type_then_local_error():
    layout: Layout[Any] = Layout("Pair", PAIR)
    with pytest.raises(LocalProtocolError, match="Pair cannot be written"):
        layout.encode("no pair at all")


def test_nested_list_when_element_does_not_fit_then_error_names_the_whole_path():
    layout = holding(CountPrefixedArray(PAIR, count_size=4))
    with pytest.raises(LocalProtocolError) as local:
        layout.encode(Holder((Pair(1, "a"), Pair(1, ""))))
    assert local.value.field == "value.1.name"
    with pytest.raises(InvalidField) as remote:
        layout.decode(bytes.fromhex("02000000" + "070000000161" + "0700000000"))
    assert remote.value.field == "value.1.name"
    assert remote.value.offset == 14


@pytest.mark.parametrize(("block", "value", "wire"), BLOCKS.values(), ids=BLOCKS.keys())
def test_interpreted_form_when_the_compiled_one_fails_then_gives_the_same(block, value, wire):
    """The slow form is the authority, so a quirk of the fast one never refuses a good payload."""
    layout = holding(block)
    layout.__dict__["_compiled"] = _Broken()
    data = bytes.fromhex(wire)
    assert layout.decode(data) == Holder(value)
    assert layout.encode(Holder(value)) == data
    with pytest.raises(TrailingBytes):
        layout.decode(data + b"\x08")


class _Broken:
    def parsefunc(self, *_):
        raise KeyError("broken")

    buildfunc = parsefunc


def test_adapter_when_it_raises_with_a_place_then_keeps_it():
    def refuse(_: int) -> int:
        raise UnknownDiscriminant("no", field="elsewhere")

    with pytest.raises(UnknownDiscriminant) as caught:
        holding(CompiledAdapter(U8, refuse, refuse)).decode(b"\x07")
    assert caught.value.field == "elsewhere"


@given(st.binary(max_size=64), st.integers(0, 80))
def test_strict_reader_when_asked_then_all_or_nothing(data, size):
    reader = StrictReader(data)
    if size > len(data):
        with pytest.raises(TruncatedField):
            reader.read(size)
        assert reader.tell() == 0
    else:
        assert reader.read(size) == data[:size]
        assert reader.remaining == len(data) - size


@given(st.sampled_from(sorted(BLOCKS)), st.binary(max_size=40))
def test_any_block_when_fed_garbage_then_value_or_remote_error(kind, garbage):
    block, _, _ = BLOCKS[kind]
    layout = holding(block)
    try:
        value = layout.decode(garbage)
    except RemoteProtocolError:
        return
    assert layout.decode(layout.encode(value)) == value or value.value != value.value


def test_layout_when_compiled_before_then_the_first_record_compiles_nothing(monkeypatch):
    layout = holding(U32)
    layout.compile()
    monkeypatch.setattr(layout.construct, "compile", None)
    monkeypatch.setattr(layout.construct, "_parsereport", None)

    assert layout.decode(layout.encode(Holder(7))) == Holder(7)
