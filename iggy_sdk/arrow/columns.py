"""From polled messages to Arrow record batches, column by column.

The columns of a batch are whole arrays, and Arrow uses their memory without a copy. No Python
object is made for a message, unless it is encrypted or compressed, or has headers that are not
strings.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from functools import cache
from sys import byteorder
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types

from iggy_protocol import HeaderKind, HeaderValue, MessageColumns
from iggy_sdk.arrow.payloads import OnError, PayloadDecodeError, convert, converter_of, without

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iggy_sdk.errors import IggyError
    from iggy_sdk.message import ReceivedBatch


ID_BYTES: Final = 16
_TIME: Final = pa.timestamp("us", tz="UTC")

FIELDS: Final[Mapping[str, Any]] = {
    field.name: field
    for field in (
        pa.field("stream", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", _TIME, nullable=False),
        pa.field("origin_timestamp", _TIME, nullable=False),
        pa.field("id", pa.binary(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("headers", pa.map_(pa.string(), pa.binary())),
        pa.field("checksum", pa.int64(), nullable=False),
    )
}
"""The columns of a topic, as the Spark source has them."""

USUAL_COLUMNS: Final = (
    *("stream", "topic", "partition", "offset", "timestamp", "origin_timestamp", "id", "payload"),
)
"""The columns that are read unless others are named."""


class ArrowRowBuilder:
    """Builds the rows of a schema.

    Args:
        schema: the requested columns, in their order. The type of ``payload`` says how payloads are
            read: bytes, text, or JSON for any other type.
        constants: what is the same in all rows, such as the names of stream and topic.
        on_error: what becomes of payloads that cannot be read.

    Raises:
        ConfigurationError: Arrow cannot read JSON as the type of the payload.
    """

    def __init__(
        self, schema: Any, constants: Mapping[str, str | int], *, on_error: OnError = "raise"
    ) -> None:
        self.schema = schema
        self._constants = constants
        self._on_error = on_error
        self._repeated: dict[str, Any] = {}
        self._has_payload = "payload" in schema.names
        self._has_headers = "headers" in schema.names
        self._converter = (
            converter_of(schema.field("payload").type, on_error) if self._has_payload else None
        )

    def rows(self, batch: ReceivedBatch[Any], end: int | None = None, *, begin: int = 0) -> Any:
        """Build a record batch of the messages from an offset up to another one.

        Args:
            batch: what a poll brought.
            end: the offset after the last one; None takes all.
            begin: the first offset.

        Raises:
            DecryptionError: a payload was not sealed with the key of the client.
            PayloadDecodeError: a payload is not what the schema says.
            SerdeError: a payload was compressed in an unknown way.
        """
        columns = batch.columns(payloads=self._has_payload, user_headers=self._has_headers)
        rows = rows_between(columns, begin, end)
        arrays = [self._array(field, columns, batch, rows) for field in self.schema]
        if arrays:
            return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        # Arrow takes the number of rows from the columns; without columns it needs empty structs.
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))

    def _array(
        self, field: Any, columns: MessageColumns, batch: ReceivedBatch[Any], rows: range
    ) -> Any:
        constant = self._constants.get(field.name)
        if constant is not None:
            known = self._repeated.get(field.name)
            if known is None or len(known) < len(rows):
                # Batches of a topic are of similar sizes, so the next ones are parts of this one.
                known = self._repeated[field.name] = repeat(constant, field.type, len(rows))
            return known.slice(0, len(rows))
        whole = _COLUMN_BUILDERS[field.name](columns, len(batch), field.type)
        part = whole.slice(rows.start, len(rows))
        return self._payloads(part, field.type, batch, rows) if field.name == "payload" else part

    def _payloads(self, payloads: Any, kind: Any, batch: ReceivedBatch[Any], rows: range) -> Any:
        errors = {row: error for row, error in batch.errors().items() if row in rows}
        if errors:
            if self._on_error == "raise":
                row = min(errors)
                raise _at_place(errors[row], batch, row)
            payloads = without(payloads, pa.array([row in errors for row in rows], pa.bool_()))
        if self._converter is None:
            return payloads

        def refuse(row: int, reason: str) -> None:
            if self._on_error == "raise":
                raise PayloadDecodeError(
                    reason,
                    partition_id=batch.partition_id,
                    offset=batch[rows.start + row].offset,
                ) from None

        return convert(payloads, self._converter, kind, refuse)


def rows_between(columns: MessageColumns, begin: int, end: int | None) -> range:
    """Find the rows from one offset up to another; a poll may return others as well."""
    offsets = memoryview(columns.offsets).cast("Q")
    first = bisect_left(offsets, begin) if begin else 0
    after = len(offsets) if end is None else bisect_left(offsets, end)
    return range(first, max(first, after))


def repeat(value: str | int, kind: Any, count: int) -> Any:
    """Return an array of one value.

    ``pa.repeat`` takes a scalar, and making one imports pandas wherever it is installed. That takes
    most of a second, which each Python process of Spark would spend before its first row.
    """
    if isinstance(value, str):
        data = value.encode()
        buffers = [None, EvenBounds(len(data)).buffer(count), pa.py_buffer(data * count)]
    else:
        buffers = [None, pa.py_buffer(value.to_bytes(kind.bit_width // 8, byteorder) * count)]
    return pa.Array.from_buffers(kind, count, buffers)


class EvenBounds:
    """The bounds of values of one size; they serve all batches that are not larger.

    Args:
        size: bytes of a value.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._count = -1
        self._buffer: Any = None

    def buffer(self, count: int) -> Any:
        """Return the bounds of so many values, or of more."""
        if count > self._count:
            bounds = array("i", (self._size * number for number in range(count + 1)))
            self._count, self._buffer = count, pa.py_buffer(bounds)
        return self._buffer


_ID_BOUNDS: Final = EvenBounds(ID_BYTES)


def _at_place(error: IggyError, batch: ReceivedBatch[Any], row: int) -> IggyError:
    """Add to an error which message it is about."""
    return type(error)(
        f"message {batch[row].offset} of partition {batch.partition_id}: {error.message}",
        code=error.code,
        advice=error.advice,
    )


def _numbers(name: str) -> Callable[[MessageColumns, int, Any], Any]:
    def make(columns: MessageColumns, count: int, kind: Any) -> Any:
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(getattr(columns, name))])

    return make


def _binary(bounds: Any, data: bytearray | None, count: int) -> Any:
    assert bounds is not None
    assert data is not None
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


def _ids(columns: MessageColumns, count: int, kind: Any) -> Any:
    return _binary(_ID_BOUNDS.buffer(count), columns.ids, count)


def _payloads(columns: MessageColumns, count: int, kind: Any) -> Any:
    return _binary(columns.payload_bounds, columns.payloads, count)


def _headers(columns: MessageColumns, count: int, kind: Any) -> Any:
    pairs = columns.split_user_headers()
    keys_count = len(pairs.key_kinds)
    keys = _texts(pairs.key_kinds, _binary(pairs.key_bounds, pairs.keys, keys_count))
    values = _binary(pairs.value_bounds, pairs.values, keys_count)
    bounds = _bounds(pairs.pair_bounds, pairs.readable, count)
    if pa.types.is_map(kind):
        if pa.types.is_string(kind.item_type):
            values = _texts(pairs.value_kinds, values)
        return pa.MapArray.from_arrays(bounds, keys, values, type=kind)
    kinds = pa.Array.from_buffers(
        pa.uint8(), keys_count, [None, pa.py_buffer(pairs.value_kinds)]
    ).cast(pa.int32())
    names = pa.DictionaryArray.from_arrays(kinds, _kind_names()).cast(pa.string())
    fields = list(kind.value_type)
    structs = pa.StructArray.from_arrays([keys, names, values], fields=fields)
    return pa.ListArray.from_arrays(bounds, structs, type=kind)


def _bounds(bounds: bytearray, readable: bytearray, count: int) -> Any:
    """Return the bounds of each row's headers; rows with unreadable headers are null."""
    validity = None
    if 0 in readable:
        flags = pa.py_buffer(bytes(readable) + b"\x01")
        known = pa.Array.from_buffers(pa.uint8(), count + 1, [None, flags])
        validity = known.cast(pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(pa.int32(), count + 1, [validity, pa.py_buffer(bounds)])


def _texts(kinds: bytearray, raw: Any) -> Any:
    """Convert keys or values to text; other kinds as Python formats them."""
    if kinds.count(HeaderKind.STRING) == len(kinds):
        try:
            return raw.cast(pa.string())
        except pa.ArrowInvalid:
            pass
    pairs = zip(kinds, raw.to_pylist(), strict=True)
    return pa.array([_text(HeaderKind(kind), data) for kind, data in pairs], pa.string())


def _text(kind: HeaderKind, data: bytes) -> str:
    if kind in (HeaderKind.RAW, HeaderKind.STRING):
        return data.decode(errors="backslashreplace")
    if kind is HeaderKind.BOOL:
        return "false" if data == b"\0" else "true"
    return str(HeaderValue(kind, data).value)


@cache
def _kind_names() -> Any:
    return pa.array(["", *(kind.name.lower() for kind in HeaderKind)])


_COLUMN_BUILDERS: Final[Mapping[str, Callable[[MessageColumns, int, Any], Any]]] = {
    "offset": _numbers("offsets"),
    "timestamp": _numbers("timestamps_us"),
    "origin_timestamp": _numbers("origin_timestamps_us"),
    "checksum": _numbers("checksums"),
    "id": _ids,
    "payload": _payloads,
    "headers": _headers,
}
