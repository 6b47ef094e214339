"""The derived structs and the declarations they come from are the same thing."""

from __future__ import annotations

import pytest
from construct import Byte, Bytes, GreedyBytes, Int16ub, Int16ul, Int32sl, Int64ul, Struct, this
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.layout import derive_struct
from iggy_protocol.message_view import INDEX_ENTRY, MESSAGE_HEADER

LAYOUTS = {
    "message header": (MESSAGE_HEADER, 64),
    "index entry": (INDEX_ENTRY, 16),
    "signed and short": (Struct("a" / Int16ul, "b" / Int32sl, "c" / Bytes(3)), 9),
}


@pytest.mark.parametrize("name", LAYOUTS)
@given(data=st.data())
def test_derived_struct_when_given_any_bytes_then_reads_and_writes_as_declared(name, data):
    layout, size = LAYOUTS[name]
    derived, names = derive_struct(layout)
    raw = data.draw(st.binary(min_size=size, max_size=size))

    declared = layout.parse(raw)
    values = dict(zip(names, derived.unpack(raw), strict=True))

    assert derived.size == size
    assert values == {name: declared[name] for name in names}
    assert derived.pack(*values.values()) == layout.build(values) == raw


@pytest.mark.parametrize(
    "layout",
    [
        Struct("big_endian" / Int16ub),
        Struct("one_byte_of_no_order" / Byte),
        Struct("open_ended" / GreedyBytes),
        Struct("length" / Int64ul, "data" / Bytes(this.length)),
        Struct("nested" / Struct("a" / Int16ul)),
    ],
)
def test_derive_when_layout_is_not_fixed_or_not_little_then_is_refused(layout):
    with pytest.raises(TypeError, match="is neither a little-endian number nor bytes"):
        derive_struct(layout)


def test_derive_when_a_field_has_no_name_then_is_refused():
    with pytest.raises(TypeError, match="needs a name"):
        derive_struct(Struct(Int16ul))
