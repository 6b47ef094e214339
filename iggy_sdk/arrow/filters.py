"""What a filter of Arrow leaves to read: spans of partitions, offsets and times.

Expressions of Arrow cannot be taken apart. But a dataset leaves out the fragments that a filter
cannot match, by what is known of their values. So fragments that exist in name only, each with a
range of values, tell which ranges may match, and halving finds the ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pyarrow.dataset as ds  # type: ignore[import-untyped]  # the same
import pyarrow.fs as fs  # type: ignore[import-untyped]  # the same

from iggy_sdk.arrow.spans import EVERYTHING, NOTHING, RowSpans, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_HIGHEST: Final[Mapping[str, int]] = {
    "partition": 2**31 - 1,
    "offset": 2**63 - 1,
    "timestamp": 2**63 - 1,
}
_FORMAT: Final = ds.IpcFileFormat()
_FILES: Final = fs.LocalFileSystem()


def spans_of(condition: Any, schema: Any) -> RowSpans:
    """Find the spans that have all rows which a filter can match.

    Args:
        condition: an expression of Arrow; None matches all.
        schema: all columns that it may name.
    """
    if condition is None:
        return RowSpans()
    return RowSpans(
        partitions=_span(condition, "partition", schema),
        offsets=_span(condition, "offset", schema),
        times=_span(condition, "timestamp", schema),
    )


def refers_to(condition: Any, name: str, schema: Any) -> bool:
    """Tell whether an expression of Arrow names a column: whether it fails without the column."""
    without = schema.remove(schema.get_field_index(name))
    try:
        ds.Scanner.from_batches(iter(()), schema=without, filter=condition)
    except pa.ArrowInvalid:
        return True
    return False


def _span(condition: Any, name: str, schema: Any) -> Span:
    if name not in schema.names or not refers_to(condition, name, schema):
        return EVERYTHING
    highest = _HIGHEST[name]

    def may_match(first: int, last: int) -> bool:
        return _may_match(condition, name, first, last, schema)

    if not may_match(0, highest):
        return NOTHING
    first = _least(0, highest, lambda number: may_match(0, number))
    after = (
        _least(0, highest, lambda number: not may_match(number, highest))
        if (not may_match(highest, highest))
        else None
    )
    return Span(first or None, after)


def _may_match(condition: Any, name: str, first: int, last: int, schema: Any) -> bool:
    """Tell whether a filter can match a row whose value lies between two, both included."""
    kind, field = schema.field(name).type, ds.field(name)
    known = (field >= _scalar(first, kind)) & (field <= _scalar(last, kind))
    fragment = _FORMAT.make_fragment("none", _FILES, known)
    dataset = ds.FileSystemDataset([fragment], schema, _FORMAT, _FILES)
    return next(iter(dataset.get_fragments(filter=condition)), None) is not None


def _scalar(number: int, kind: Any) -> Any:
    return pa.scalar(number, pa.int64()).cast(kind)


def _least(low: int, high: int, is_true: Callable[[int], bool]) -> int:
    """Find the least number for which something is true that stays true; it is for ``high``."""
    while low < high:
        middle = (low + high) // 2
        if is_true(middle):
            high = middle
        else:
            low = middle + 1
    return low
