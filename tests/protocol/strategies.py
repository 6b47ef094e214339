"""Hypothesis strategies derived from the layouts themselves, so that no command is forgotten."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from construct import Bytes, Construct, Flag, FormatField, Renamed
from hypothesis import strategies as st

from iggy_protocol import primitives
from iggy_protocol.commands.system import SNAPSHOT_TYPES
from iggy_protocol.commands.users import OptionalPermissions
from iggy_protocol.fields import (
    CompiledAdapter,
    ContinuationFlagArray,
    CountPrefixedArray,
    OptionalTail,
    PresenceFlagged,
    RecordStruct,
    SizeChecked,
    StrictGreedyRange,
)
from iggy_protocol.model.identifier import Partitioning
from iggy_protocol.model.system import SnapshotType
from tests.protocol.deferred_strategies import RULED
from tools.wire_tables import members_of

NAMES = st.text(min_size=1, max_size=60).filter(lambda text: len(text.encode()) <= 255)
TEXTS = st.text(max_size=60)
NUMBERS = st.integers(0, 2**32 - 1)
IDENTIFIERS = NUMBERS | NAMES
# SendMessages takes any bytes for a name.
ESCAPED_IDENTIFIERS = NUMBERS | st.binary(min_size=1, max_size=255).map(
    lambda name: name.decode(errors="surrogateescape")
)
PARTITIONINGS = st.one_of(
    st.just(Partitioning.balanced()),
    st.builds(Partitioning.partition, NUMBERS),
    st.builds(Partitioning.key, st.binary(max_size=255)),
)
_UNSIGNED = {"B": 8, "H": 16, "L": 32, "Q": 64}
_NAMED: dict[int, st.SearchStrategy[Any]] = {
    id(primitives.NAME): NAMES,
    id(primitives.PASSWORD): TEXTS,
    id(primitives.TEXT): TEXTS,
    id(primitives.IDENTIFIER): IDENTIFIERS,
    id(primitives.IDENTIFIER_ESCAPED): ESCAPED_IDENTIFIERS,
    id(primitives.PARTITIONING): PARTITIONINGS,
    id(primitives.OPTIONAL_PARTITION): st.none() | NUMBERS,
    id(SNAPSHOT_TYPES): st.just((SnapshotType.ALL,))
    | st.lists(
        st.sampled_from([kind for kind in SnapshotType if kind is not SnapshotType.ALL])
    ).map(tuple),
}


@cache
def values_of(block: Construct) -> st.SearchStrategy[Any]:
    """Derive a strategy for the values that a block can carry."""
    if isinstance(block, Renamed):
        return values_of(block.subcon)
    if id(block) in _NAMED:
        return _NAMED[id(block)]
    if isinstance(block, FormatField):
        return _scalars(block.fmtstr[1])
    if block is Flag:
        return st.booleans()
    if isinstance(block, Bytes):
        return st.binary(min_size=block.sizeof(), max_size=block.sizeof())
    if isinstance(block, RecordStruct):
        return _records(block)
    if isinstance(block, CompiledAdapter):
        return _adapted(block)
    if isinstance(block, StrictGreedyRange | CountPrefixedArray | ContinuationFlagArray):
        return st.lists(values_of(block.subcon), max_size=4).map(tuple)
    if isinstance(block, PresenceFlagged | OptionalTail | OptionalPermissions):
        return st.none() | values_of(block.subcon)
    assert isinstance(block, SizeChecked), f"no strategy for {block!r}"
    return values_of(block.subcon)


def _records(block: RecordStruct) -> st.SearchStrategy[Any]:
    if block.type in RULED:
        return RULED[block.type]
    return st.builds(block.type, **{sub.name: values_of(sub) for sub in block.fields})


def _scalars(format_: str) -> st.SearchStrategy[Any]:
    if format_ == "f":
        return st.floats(width=32, allow_nan=False)
    return st.integers(0, 2 ** _UNSIGNED[format_] - 1)


def _adapted(block: CompiledAdapter) -> st.SearchStrategy[Any]:
    if isinstance(block.subcon, RecordStruct):
        return values_of(block.subcon).map(_with_true_counts)
    if block.label == "u8":
        return st.sampled_from(members_of(block))
    return values_of(block.subcon).map(block.decode)


def _with_true_counts(value: Any) -> Any:
    """Set each ``things_count`` to the number of ``things`` beside it."""
    counts = {
        f"{field.name}_count": len(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if isinstance(getattr(value, field.name), tuple)
    }
    return dataclasses.replace(value, **counts)
