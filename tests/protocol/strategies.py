"""Hypothesis strategies derived from the layouts themselves, so that no command is forgotten."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from construct import Bytes, Construct, Flag, FormatField, Renamed
from hypothesis import strategies as st

from iggy_protocol import primitives
from iggy_protocol.commands.metadata_changes import CHANGES_PAGE_MAX, GetMetadataChanges, TaggedBody
from iggy_protocol.commands.system import SNAPSHOT_TYPES
from iggy_protocol.commands.users import OptionalPermissions
from iggy_protocol.errors import RemoteProtocolError, RuleViolation
from iggy_protocol.fields import (
    Absent,
    CompiledAdapter,
    ContinuationFlagArray,
    CountPrefixedArray,
    LengthPrefixedBytes,
    OptionalTail,
    PresenceFlagged,
    RecordStruct,
    SizeChecked,
    SizePrefixedRange,
    StrictGreedyRange,
)
from iggy_protocol.model.identifier import Partitioning
from iggy_protocol.model.metadata_changes import ChangesStart, MetadataCursor
from iggy_protocol.model.system import SnapshotType
from iggy_protocol.option_layouts import OptionRecord
from iggy_protocol.options import OPTIONS, Options, OptionValue
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
OPTION_VALUES = st.one_of(
    st.integers(0, 2**64 - 1).map(OptionValue.uint64),
    st.text(min_size=1, max_size=20).map(OptionValue.string),
    st.booleans().map(OptionValue.boolean),
    st.floats(allow_nan=False).map(OptionValue.float64),
    st.binary(min_size=1, max_size=255).map(OptionValue.raw_bytes),
    st.integers(-(2**127), 2**127 - 1).map(OptionValue.int128),
)


def _is_valid(entry: tuple[str, OptionValue]) -> bool:
    """Tell whether a known option can have this value, as servers report none that cannot."""
    key, value = entry
    try:
        return all(spec.canonical(value) for spec in OPTIONS if spec.key == key)
    except RuleViolation:
        return False


ENTRIES = st.one_of(
    st.tuples(NAMES, OPTION_VALUES),
    st.sampled_from([(spec.key, spec.default) for spec in OPTIONS if spec.default is not None]),
    st.tuples(
        st.sampled_from(["message_expiry", "max_topic_size"]),
        st.integers(0, 2**64 - 1).map(OptionValue.uint64),
    ),
    st.tuples(st.sampled_from(["name", "username"]), NAMES.map(OptionValue.string)),
).filter(_is_valid)
OPTION_SETS = st.lists(ENTRIES, max_size=3).map(dict).map(Options)
_UNSIGNED = {"B": 8, "H": 16, "L": 32, "Q": 64}
_NAMED: dict[int, st.SearchStrategy[Any]] = {
    id(primitives.NAME): NAMES,
    id(primitives.PASSWORD): TEXTS,
    id(primitives.TEXT): TEXTS,
    id(primitives.IDENTIFIER): IDENTIFIERS,
    id(primitives.IDENTIFIER_ESCAPED): ESCAPED_IDENTIFIERS,
    id(primitives.PARTITIONING): PARTITIONINGS,
    id(primitives.OPTIONAL_PARTITION): st.none() | NUMBERS,
    id(primitives.OPTIONS_TO_END): OPTION_SETS,
    id(primitives.PREFIXED_OPTIONS): OPTION_SETS,
    id(primitives.U128): st.integers(0, 2**128 - 1),
    id(primitives.STRICT_BOOL): st.booleans(),
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
    if isinstance(block, FormatField | Bytes | Absent | LengthPrefixedBytes) or block is Flag:
        return _plain(block)
    if isinstance(block, RecordStruct):
        return _records(block)
    if isinstance(block, CompiledAdapter):
        return _adapted(block)
    if isinstance(
        block, StrictGreedyRange | SizePrefixedRange | CountPrefixedArray | ContinuationFlagArray
    ):
        return st.lists(values_of(block.subcon), max_size=4).map(tuple)
    if isinstance(block, PresenceFlagged | OptionalTail | OptionalPermissions):
        return st.none() | values_of(block.subcon)
    assert isinstance(block, SizeChecked), f"no strategy for {block!r}"
    return values_of(block.subcon)


def _plain(block: Construct) -> st.SearchStrategy[Any]:
    """Derive a strategy for a block that has no blocks in it."""
    if isinstance(block, FormatField):
        return _scalars(block.fmtstr[1])
    if isinstance(block, Absent):
        return st.just(block.default)
    if isinstance(block, Bytes):
        return st.binary(min_size=block.sizeof(), max_size=block.sizeof())
    return st.booleans() if block is Flag else st.binary(max_size=60)


def _records(block: RecordStruct) -> st.SearchStrategy[Any]:
    if block.type in RULED:
        return RULED[block.type]
    return st.builds(block.type, **{sub.name: values_of(sub) for sub in block.fields})


def _scalars(format_: str) -> st.SearchStrategy[Any]:
    if format_ == "f":
        return st.floats(width=32, allow_nan=False)
    return st.integers(0, 2 ** _UNSIGNED[format_] - 1)


def _adapted(block: CompiledAdapter) -> st.SearchStrategy[Any]:
    if isinstance(block, primitives.CountedRecord):
        return values_of(block.subcon).map(_with_true_counts)
    if block.label.startswith("u8"):
        return st.sampled_from(members_of(block))
    if isinstance(block, TaggedBody):
        return _tagged(block)
    if isinstance(block, OptionRecord) or isinstance(block.subcon, RecordStruct):
        return values_of(block.subcon).map(lambda raw: _decoded(block, raw)).filter(_is_some)
    return values_of(block.subcon).map(block.decode)


def _tagged(block: TaggedBody) -> st.SearchStrategy[Any]:
    """Draw a record of each known tag, and one with a tag that is unknown."""
    bodies = {tag: values_of(layout.construct) for tag, layout in block.layouts.items()}
    fields = {sub.name: values_of(sub) for sub in block.subcon.fields}
    return st.one_of(
        [
            st.builds(block.type, **(fields | {block.tag: st.just(tag), "body": body}))
            for tag, body in {**bodies, 255: st.binary(max_size=30)}.items()
        ]
    )


def _is_some(value: object) -> bool:
    return value is not None


def _decoded(block: CompiledAdapter, raw: Any) -> Any:
    """Decode what may break a rule that spans several fields."""
    if isinstance(raw, GetMetadataChanges):
        raw = dataclasses.replace(
            raw,
            limit=1 + raw.limit % CHANGES_PAGE_MAX,
            cursor=raw.cursor if raw.start is ChangesStart.AFTER_CURSOR else MetadataCursor(),
            token=raw.token if raw.start is ChangesStart.CURRENT_STATE else b"",
        )
    try:
        return block.decode(raw)
    except RemoteProtocolError:
        return None


def _with_true_counts(value: Any) -> Any:
    """Set each ``things_count`` to the number of ``things`` beside it."""
    counts = {
        f"{field.name}_count": len(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if isinstance(getattr(value, field.name), tuple)
    }
    return dataclasses.replace(value, **counts)
