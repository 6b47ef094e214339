"""What may be asked for when a topic is read as Arrow, checked at the call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack, get_args

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types

from iggy_protocol import Identifier
from iggy_sdk.arrow.columns import FIELDS, USUAL_COLUMNS
from iggy_sdk.arrow.payloads import OnError, converter_of
from iggy_sdk.arrow.spans import ALL_ROWS, RowSpans
from iggy_sdk.errors import ConfigurationError

Edge: TypeAlias = Literal["earliest", "latest"]
Bound: TypeAlias = Edge | int | datetime | Mapping[int, Edge | int]
"""Where reading begins or ends: ``"earliest"``, ``"latest"``, an offset for all partitions, a time
with a zone, or an offset for each partition. An end is not included."""

BATCH_BYTES: Final = 4 << 20
"""The target size of a poll: large enough that the cost of a request does not matter, small enough
for a processor cache."""

OFFSET_MAX: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ArrowColumnSettings(TypedDict, total=False):
    """Which columns there are.

    Attributes:
        columns: names of columns, in the order in which they are wanted; None takes stream, topic,
            partition, offset, timestamp, origin_timestamp, id and payload. There is also checksum.
        headers: whether to add the column of user headers.
        schema: reads payloads as JSON objects with these members, or with ``pyarrow.string()`` as
            text; None leaves them as bytes.
        on_error: ``"raise"``, or ``"null"`` for a missing value in place of a payload that cannot
            be read.
    """

    columns: Sequence[str] | None
    headers: bool
    schema: Any
    on_error: OnError


class ArrowReadSettings(ArrowColumnSettings, total=False):
    """Which part of a topic is read, and which columns there are.

    Attributes:
        start: where to begin in each partition; ``"earliest"`` unless told otherwise.
        end: where to end; ``"latest"``, the default, is the end at the time of the call.
        partitions: which ones; None takes all of them.
        limit: how many messages at most; None has no limit.
        batch_bytes: the target size of a poll, and so of a record batch.
    """

    start: Bound
    end: Bound
    partitions: Iterable[int] | None
    limit: int | None
    batch_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowReadOptions:
    """Settings of a read that were checked; ``read_options`` makes them.

    Attributes:
        arrow_schema: the columns of the record batches.
        wanted: what a query leaves to read within start and end.
    """

    stream: Identifier
    topic: Identifier
    columns: Sequence[str] | None = None
    headers: bool = False
    schema: Any = None
    on_error: OnError = "raise"
    start: Bound = "earliest"
    end: Bound = "latest"
    partitions: Iterable[int] | None = None
    limit: int | None = None
    batch_bytes: int = BATCH_BYTES
    arrow_schema: Any = field(init=False)
    wanted: RowSpans = ALL_ROWS

    def __post_init__(self) -> None:
        given = object.__setattr__
        given(self, "start", _checked_bound("start", self.start))
        given(self, "end", _checked_bound("end", self.end))
        given(self, "partitions", _checked_partitions(self.partitions))
        for name, least in (("limit", 0), ("batch_bytes", 1)):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and value >= least):
                raise _refusal(name, value, f"a number of at least {least}")
        schema = arrow_schema(
            columns=self.columns, headers=self.headers, schema=self.schema, on_error=self.on_error
        )
        given(self, "arrow_schema", schema)


def read_options(
    stream: Identifier, topic: Identifier, **settings: Unpack[ArrowReadSettings]
) -> ArrowReadOptions:
    """Check the settings of a read.

    Raises:
        ConfigurationError: a setting has a value that cannot be used.
        TypeError: there is no such setting.
    """
    known = ArrowReadSettings.__optional_keys__
    for name in settings:
        if name not in known:
            near = get_close_matches(name, sorted(known), n=1)
            hint = f"; did you mean {near[0]}=?" if near else ""
            raise TypeError(f"reading as Arrow takes no {name}={hint}")
    return ArrowReadOptions(stream=stream, topic=topic, **settings)


def arrow_schema(
    *,
    columns: Sequence[str] | None = None,
    headers: bool = False,
    schema: Any = None,
    on_error: OnError = "raise",
) -> Any:
    """Return the columns that are read.

    Raises:
        ConfigurationError: there is no such column, or payloads cannot be read so.
    """
    if on_error not in get_args(OnError):
        raise _refusal("on_error", on_error, '"raise" or "null"')
    if isinstance(columns, str):
        raise _refusal("columns", columns, f'a list of names, such as ["{columns}"]')
    names = list(USUAL_COLUMNS if columns is None else columns)
    if headers and "headers" not in names:
        names.append("headers")
    for name in names:
        if name not in FIELDS:
            near = get_close_matches(str(name), FIELDS, n=1)
            what = f"the column {near[0]!r}" if near else f"columns of {', '.join(FIELDS)}"
            raise _refusal("columns", name, what)
    if len(set(names)) < len(names):
        raise _refusal("columns", names, "each column once")
    payload = _payload_field(schema, on_error)
    return pa.schema([payload if name == "payload" else FIELDS[name] for name in names])


def _payload_field(schema: Any, on_error: OnError) -> Any:
    kind = pa.binary() if schema is None else schema
    if isinstance(kind, pa.Schema):
        kind = pa.struct(list(kind))
    if not isinstance(kind, pa.DataType):
        raise _refusal("schema", schema, "a pyarrow.Schema of the JSON, or pyarrow.string()")
    converter_of(kind, on_error)
    # JSON may say null, which is a missing value as well.
    is_certain = on_error == "raise" and (pa.types.is_binary(kind) or pa.types.is_string(kind))
    return pa.field("payload", kind, nullable=not is_certain)


def microseconds(moment: datetime) -> int:
    """Count the microseconds since 1970; what lies before counts as 0."""
    return max(0, (moment - _EPOCH) // timedelta(microseconds=1))


def _checked_bound(name: str, bound: Any) -> Bound:
    if isinstance(bound, datetime):
        if bound.tzinfo is None:
            raise _refusal(name, bound, "a time with a zone, as datetime.now(UTC) has one")
        return bound
    if isinstance(bound, Mapping):
        for partition, offset in bound.items():
            if not _is_offset(partition) or not (offset in get_args(Edge) or _is_offset(offset)):
                raise _refusal(name, bound, 'offsets by partition, such as {0: 23, 1: "earliest"}')
        return dict(bound)
    if _is_offset(bound) or (isinstance(bound, str) and bound in get_args(Edge)):
        checked: Bound = bound
        return checked
    raise _refusal(
        name, bound, '"earliest", "latest", an offset, a datetime, or offsets by partition'
    )


def _checked_partitions(partitions: Any) -> tuple[int, ...] | None:
    if partitions is None:
        return None
    listed = (partitions,) if _is_offset(partitions) else partitions
    if not isinstance(listed, Iterable):
        raise _refusal("partitions", partitions, "numbers of partitions, such as [0, 1]")
    numbers = tuple(listed)
    if not all(map(_is_offset, numbers)):
        raise _refusal("partitions", partitions, "numbers of partitions, such as [0, 1]")
    return numbers


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= OFFSET_MAX


def _refusal(name: str, given: object, possible: str) -> ConfigurationError:
    return ConfigurationError(f"{name} is {given!r}", advice=f"Give {possible}.")
