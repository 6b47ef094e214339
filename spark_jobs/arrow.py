"""Convert polled messages to Arrow record batches, column by column.

The SDK returns the columns of a batch as whole arrays, and Arrow uses their memory without a copy.
No Python object is made for a message, unless it is compressed or has headers that are not strings.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
from pyspark.sql.pandas.types import to_arrow_schema

from iggy_sdk import HeaderKind, HeaderValue
from spark_jobs.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.types import StructType

    from iggy_sdk import ReceivedBatch


ID_BYTES: Final = 16

Columns: TypeAlias = Any
"""What ``ReceivedBatch.columns()`` returns."""


class ArrowRowBuilder:
    """Builds the rows of a schema.

    Args:
        schema: the requested columns, in their order.
        constants: what is the same in all rows, such as the names of stream and topic.
    """

    def __init__(self, schema: StructType, constants: Mapping[str, str | int]) -> None:
        self._schema: Any = to_arrow_schema(schema, timezone="UTC")
        self._constants = constants
        names = set(schema.fieldNames())
        self._payloads = "payload" in names
        self._headers = "headers" in names

    def rows(self, batch: ReceivedBatch[bytes], end: int) -> Any:
        """Build a record batch of all messages before an offset.

        Raises:
            SchemaError: the schema has payload as string, and a payload is not UTF-8.
        """
        columns = batch.columns(payloads=self._payloads, user_headers=self._headers)
        count = len(batch)
        arrays = [self._array(field, columns, count) for field in self._schema]
        # Arrow takes the number of rows from the columns; without columns it needs empty structs.
        rows = (
            pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            if arrays
            else pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
        )
        return rows.slice(0, rows_before(columns, end))

    def _array(self, field: Any, columns: Columns, count: int) -> Any:
        constant = self._constants.get(field.name)
        if constant is not None:
            return pa.repeat(pa.scalar(constant, field.type), count)
        return _COLUMN_BUILDERS[field.name](columns, count, field.type)


def rows_before(columns: Columns, end: int) -> int:
    """Count the messages before an offset; after retention a poll may return later ones."""
    return bisect_left(memoryview(columns.offsets).cast("Q"), end)


def _numbers(name: str) -> Callable[[Columns, int, Any], Any]:
    def make(columns: Columns, count: int, kind: Any) -> Any:
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(getattr(columns, name))])

    return make


def _binary(bounds: bytearray | None, data: bytearray | None, count: int) -> Any:
    assert bounds is not None
    assert data is not None
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


def _ids(columns: Columns, count: int, kind: Any) -> Any:
    fixed = [None, pa.py_buffer(columns.ids)]
    return pa.Array.from_buffers(pa.binary(ID_BYTES), count, fixed).cast(kind)


def _payloads(columns: Columns, count: int, kind: Any) -> Any:
    payloads = _binary(columns.payload_bounds, columns.payloads, count)
    try:
        return payloads if payloads.type == kind else payloads.cast(kind)
    except pa.ArrowInvalid:
        raise SchemaError(
            "a payload is not UTF-8, and the schema has payload as string; use binary"
        ) from None


def _headers(columns: Columns, count: int, kind: Any) -> Any:
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
    names = pa.DictionaryArray.from_arrays(kinds, _KIND_NAMES).cast(pa.string())
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


_KIND_NAMES: Final = pa.array(["", *(kind.name.lower() for kind in HeaderKind)])

_COLUMN_BUILDERS: Final[Mapping[str, Callable[[Columns, int, Any], Any]]] = {
    "offset": _numbers("offsets"),
    "timestamp": _numbers("timestamps_us"),
    "origin_timestamp": _numbers("origin_timestamps_us"),
    "checksum": _numbers("checksums"),
    "id": _ids,
    "payload": _payloads,
    "headers": _headers,
}
