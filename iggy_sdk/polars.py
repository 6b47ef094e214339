"""Topics as lazy frames of Polars.

    lazy = scan_iggy("iggy://user:secret@localhost:8090", "shop", "orders")
    lazy.filter(pl.col("timestamp") > since).select("offset", "payload").collect()

Nothing is read before ``collect()``, and each ``collect()`` reads the topic again. Only the columns
that a query uses are read. Conditions on partition, offset and timestamp limit what is polled where
they are comparisons with a value, ``is_in`` or ``is_between``, joined with ``&`` and ``|``; all
conditions are applied to what was read as well.

The extra ``polars`` brings what is needed.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from itertools import permutations
from typing import TYPE_CHECKING, Any, Final, Unpack

from iggy_sdk.arrow.settings import (
    ArrowReadOptions,
    ArrowReadSettings,
    microseconds,
    read_options,
)
from iggy_sdk.arrow.spans import RowSpans, Span
from iggy_sdk.blocking import IggyClient
from iggy_sdk.errors import ConfigurationError

try:
    import polars as pl
    from polars.io.plugins import register_io_source
except ModuleNotFoundError:
    raise ConfigurationError(
        "lazy frames need the packages polars and pyarrow",
        advice="Install them with pip install 'iggy-python[polars]'.",
    ) from None

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from iggy_protocol import Identifier


__all__ = ["scan_iggy"]


def scan_iggy(
    client: IggyClient | str,
    stream: Identifier,
    topic: Identifier,
    **settings: Unpack[ArrowReadSettings],
) -> pl.LazyFrame:
    """Return a topic as a lazy frame.

    Args:
        client: a blocking client, which must be open when the frame is collected; or a connection
            string, with which each ``collect()`` opens a connection of its own.
        stream: name or id.
        topic: name or id.
        settings: those of ``client.read_arrow()``: which part of the topic is read, which columns
            there are, and how payloads are read.

    Raises:
        ConfigurationError: this is no blocking client, or a setting cannot be used.
        TypeError: there is no such setting.
    """
    if not isinstance(client, IggyClient | str):
        raise ConfigurationError(
            f"client is a {type(client).__name__}, and Polars needs one that blocks",
            advice="Make it with iggy_sdk.blocking.IggyClient, or give a connection string.",
        )
    options = read_options(stream, topic, **settings)

    def read(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        narrowed = _narrow(options, with_columns, predicate, n_rows)
        for batch in _batches(client, narrowed):
            frame = _frame(batch)
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame if with_columns is None else frame.select(with_columns)

    return register_io_source(read, schema=_frame(options.arrow_schema.empty_table()).schema)


def _narrow(
    options: ArrowReadOptions,
    columns: list[str] | None,
    predicate: pl.Expr | None,
    limit: int | None,
) -> ArrowReadOptions:
    """Take from a query what limits the reading."""
    if limit is not None:
        known = options.limit
        options = replace(options, limit=limit if known is None else min(limit, known))
    # A limit counts the rows before the filter.
    spans = RowSpans()
    if predicate is not None and options.limit is None:
        spans = spans_of(predicate)
    if columns is None:
        return replace(options, wanted=spans)
    # Rows without a column have no number; the offset is the cheapest one.
    used = set(columns) | set(predicate.meta.root_names() if predicate is not None else ())
    names = [name for name in options.arrow_schema.names if name in used] or ["offset"]
    return replace(options, columns=names, headers=False, wanted=spans)


def _batches(client: IggyClient | str, options: ArrowReadOptions) -> Iterator[Any]:
    opening = IggyClient(client) if isinstance(client, str) else nullcontext(client)
    with opening as connected, connected._read_arrow_batches(options) as batches:
        yield from batches


def _frame(rows: Any) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


# What a predicate leaves to read. Polars tells the inputs of an expression and whether two are the
# same, so the operator is found by writing the expression anew.

_COLUMNS: Final = frozenset({"partition", "offset", "timestamp"})

_COMPARISONS: Final[Mapping[str, tuple[Callable[[Any, Any], pl.Expr], int | None, int | None]]] = {
    # How far each moves the first value, and the value after the last; None leaves it. Values may
    # be finer than the microseconds of a timestamp, so ends are included.
    "eq": (lambda left, right: left == right, 0, 1),
    "ge": (lambda left, right: left >= right, 0, None),
    "gt": (lambda left, right: left > right, 0, None),
    "le": (lambda left, right: left <= right, None, 1),
    "lt": (lambda left, right: left < right, None, 1),
    "is_in": (lambda left, right: left.is_in(right), 0, 1),
}
_MIRRORED: Final = {"eq": "eq", "ge": "le", "gt": "lt", "le": "ge", "lt": "gt"}
_CLOSED: Final = ("both", "left", "right", "none")


def spans_of(predicate: pl.Expr) -> RowSpans:
    """Find spans that have all rows which a predicate can match."""
    parts = predicate.meta.pop()
    if len(parts) == 3:
        return _spans_between(predicate, parts)
    if len(parts) != 2:
        return RowSpans()
    right, left = parts
    if predicate.meta.eq(left & right):
        return spans_of(left) & spans_of(right)
    if predicate.meta.eq(left | right):
        return spans_of(left) | spans_of(right)
    for name, (write, first, after) in _COMPARISONS.items():
        if left.meta.is_column() and predicate.meta.eq(write(left, right)):
            return _spans(left, right, first, after)
        if right.meta.is_column() and name in _MIRRORED and predicate.meta.eq(write(left, right)):
            _, first, after = _COMPARISONS[_MIRRORED[name]]
            return _spans(right, left, first, after)
    return RowSpans()


def _spans_between(predicate: pl.Expr, parts: list[pl.Expr]) -> RowSpans:
    for column, low, high in permutations(parts):
        if column.meta.is_column() and any(
            predicate.meta.eq(column.is_between(low, high, closed=closed)) for closed in _CLOSED
        ):
            return _spans(column, low, 0, None) & _spans(column, high, None, 1)
    return RowSpans()


def _spans(column: pl.Expr, value: pl.Expr, first: int | None, after: int | None) -> RowSpans:
    """Return the spans of a comparison of a column with a value."""
    name = column.meta.output_name()
    if name not in _COLUMNS or value.meta.root_names():
        return RowSpans()
    given = pl.select(value).to_series()
    listed = (given.explode() if isinstance(given.dtype, pl.List) else given).to_list()
    numbers = [_number(one) for one in listed if one is not None]
    if not numbers or None in numbers:
        return RowSpans()
    known = [one for one in numbers if one is not None]
    span = Span(
        None if first is None else min(known) + first, None if after is None else max(known) + after
    )
    if name == "partition":
        return RowSpans(partitions=span)
    return RowSpans(offsets=span) if name == "offset" else RowSpans(times=span)


def _number(value: Any) -> int | None:
    if isinstance(value, datetime):
        return microseconds(value) if value.tzinfo is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
