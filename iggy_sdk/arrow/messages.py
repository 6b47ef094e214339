"""From Arrow record batches to messages that are sent, column by column.

A record batch has the columns of ``ArrowRowBuilder``, of which only ``payload`` is needed, and
``key``. No Python object is made for a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it comes without types

from iggy_protocol import (
    Buffer,
    BytesColumn,
    ContentIds,
    HeaderKind,
    HeaderPairs,
    LocalProtocolError,
    MessageRows,
    header_blocks,
    row_partitions,
)
from iggy_sdk.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping


ID_BYTES: Final = 16
_TIME_BYTES: Final = 8
_EMPTY: Final = BytesColumn(0, 0, None, 1, None, b"")
_KIND_NAMES: Final = [kind.name.lower() for kind in HeaderKind]
# How values that are no bytes are written into headers, as ``HeaderValue.of`` does.
_NUMBER_KINDS: Final[Mapping[Any, tuple[Any, HeaderKind]]] = {
    pa.bool_(): (pa.uint8(), HeaderKind.BOOL),
    pa.int8(): (pa.int64(), HeaderKind.INT64),
    pa.int16(): (pa.int64(), HeaderKind.INT64),
    pa.int32(): (pa.int64(), HeaderKind.INT64),
    pa.int64(): (pa.int64(), HeaderKind.INT64),
    pa.float32(): (pa.float64(), HeaderKind.FLOAT64),
    pa.float64(): (pa.float64(), HeaderKind.FLOAT64),
}


class ArrowMessages(NamedTuple):
    """The messages of a record batch.

    Attributes:
        rows: what a producer sends.
        keys: their keys, if they have any.
        ids: their ids, if they have any.
    """

    rows: MessageRows
    keys: BytesColumn | None
    ids: Buffer | None

    def by_key(self, partitions_count: int, *, otherwise: int) -> list[tuple[int, MessageRows]]:
        """Divide the messages among partitions: by key, else by id, else all to the same one."""
        chosen = row_partitions(
            len(self.rows), partitions_count, keys=self.keys, ids=self.ids, otherwise=otherwise
        )
        return self.rows.by_partition(chosen, partitions_count)

    def by_number(
        self, numbers: Any, partitions_count: int, *, otherwise: int
    ) -> list[tuple[int, MessageRows]]:
        """Divide the messages among the partitions that a column of numbers says.

        Raises:
            InvalidRequestError: there is no such partition.
        """
        wrong = pc.index(
            pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, partitions_count)), True
        )
        if wrong.as_py() >= 0:
            number = numbers[wrong.as_py()].as_py()
            raise InvalidRequestError(
                f"there is no partition {number}",
                advice=f"The topic has the partitions 0 to {partitions_count - 1}; choose of them.",
            )
        usual = row_partitions(len(self.rows), partitions_count, ids=self.ids, otherwise=otherwise)
        if not numbers.null_count:
            chosen = numbers.cast(pa.uint32())
        else:
            others = pa.Array.from_buffers(pa.uint32(), len(self.rows), [None, pa.py_buffer(usual)])
            chosen = pc.coalesce(numbers.cast(pa.uint32()), others)
        return self.rows.by_partition(_values_of(chosen, 4), partitions_count)


class ArrowMessageBuilder:
    """Makes messages of the record batches of one source of rows.

    Args:
        scope: what keeps generated ids apart from those of other sources; None generates none.
        has_keys: whether the column ``key`` is used.
    """

    def __init__(self, scope: bytes | None, *, has_keys: bool) -> None:
        self._ids = None if scope is None else ContentIds(scope)
        self._has_keys = has_keys
        self.rows_count: int = 0

    def messages(self, batch: Any, *, place: str = "") -> ArrowMessages:
        """Make the messages of a record batch, in its order.

        Args:
            batch: the rows.
            place: where they go; equal messages for different places get different ids.

        Raises:
            InvalidRequestError: a row cannot become a message; rows are counted over all batches.
        """
        names = set(batch.schema.names)
        payloads = self._payloads(batch.column("payload"))
        keys = bytes_column(batch.column("key")) if self._has_keys else None
        given = self._given_ids(batch.column("id")) if "id" in names else None
        origins = (
            _origins(batch.column("origin_timestamp")) if "origin_timestamp" in names else None
        )
        try:
            headers = self._headers(batch, keys)
            ids = self._make_ids(payloads, headers, given, place)
        except LocalProtocolError as error:
            raise InvalidRequestError(
                str(error), advice="Rows are counted from 0; correct this one, or filter it out."
            ) from error
        self.rows_count += payloads.length
        rows = MessageRows(payloads, headers=headers, ids=ids, origins_us=origins)
        return ArrowMessages(rows, keys, ids)

    def _payloads(self, column: Any) -> BytesColumn:
        if column.null_count:
            row = self.rows_count + column.is_null().index(True).as_py()
            raise InvalidRequestError(
                f"row {row} has no payload",
                advice='Filter such rows out, with df.where("payload IS NOT NULL") in Spark.',
            )
        return bytes_column(column)

    def _given_ids(self, column: Any) -> Any:
        """Take ids as 16 bytes, or as the text of UUIDs."""
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            ids = [
                None if text is None else self._uuid_bytes(row, text)
                for row, text in enumerate(column.to_pylist(), self.rows_count)
            ]
            return pa.array(ids, pa.binary())
        wrong = pc.index(pc.not_equal(pc.binary_length(column), ID_BYTES), True).as_py()
        if wrong >= 0:
            raise _invalid_id(self.rows_count + wrong, column[wrong].as_py())
        return column

    def _uuid_bytes(self, row: int, text: str) -> bytes:
        try:
            return UUID(text).bytes
        except ValueError:
            raise _invalid_id(row, text) from None

    def _headers(self, batch: Any, keys: BytesColumn | None) -> BytesColumn | None:
        pairs = None
        if "headers" in batch.schema.names:
            pairs = self._header_pairs(batch.column("headers"))
        if pairs is None and keys is None:
            return None
        key_kind = HeaderKind.STRING
        if self._has_keys and pa.types.is_binary(batch.column("key").type):
            key_kind = HeaderKind.RAW
        return header_blocks(
            batch.num_rows, keys=keys, key_kind=key_kind, pairs=pairs, first_row=self.rows_count
        )

    def _header_pairs(self, column: Any) -> HeaderPairs:
        """Read a map, or a list of structs with kinds as ``ArrowRowBuilder`` returns it."""
        if pa.types.is_map(column.type):
            values, kind = _header_values(column.items)
            return HeaderPairs(_places(column), bytes_column(column.keys), kind, values)
        pairs = column.values
        names, kinds, values = (pairs.field(name) for name in ("key", "kind", "value"))
        return HeaderPairs(
            _places(column), bytes_column(names), self._kinds(kinds), bytes_column(values)
        )

    def _kinds(self, names: Any) -> Any:
        """Turn the names of kinds into their numbers; a missing one is that of plain bytes."""
        numbers = pc.index_in(pc.utf8_lower(names), value_set=pa.array(_KIND_NAMES))
        unknown = pc.and_(numbers.is_null(), names.is_valid())
        at = pc.index(unknown, True).as_py()
        if at >= 0:
            raise InvalidRequestError(
                f"a header is of kind {names[at].as_py()!r}",
                advice=f"Kinds are {', '.join(_KIND_NAMES)}.",
            )
        codes = pc.add(pc.fill_null(numbers, 0), 1).cast(pa.uint8())
        return codes.buffers()[1] or b""

    def _make_ids(
        self, payloads: BytesColumn, headers: BytesColumn | None, given: Any, place: str
    ) -> Buffer | None:
        if self._ids is not None:
            own = None if given is None else bytes_column(given)
            return self._ids.assign(payloads, headers=headers, given=own, place=place.encode())
        if given is None:
            return None
        filled = pc.fill_null(given, bytes(ID_BYTES)).cast(pa.binary(ID_BYTES))
        return _values_of(filled, ID_BYTES)


def _invalid_id(row: int, value: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"row {row}: the id {value!r} is invalid",
        advice="Give 16 bytes, the text of a UUID, or null.",
    )


def bytes_column(column: Any) -> BytesColumn:
    """Read an array of bytes or text where it lies; other layouts than the usual two are cast."""
    kind = column.type
    is_large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not is_large and not pa.types.is_binary(kind) and not pa.types.is_string(kind):
        column, is_large = column.cast(pa.large_binary()), True
    if not len(column):
        return _EMPTY
    validity, bounds, data = column.buffers()
    has_gaps = column.null_count > 0
    return BytesColumn(
        len(column),
        column.offset,
        validity if has_gaps else None,
        8 if is_large else 4,
        bounds,
        data or b"",
    )


def _fixed_column(column: Any, width: int) -> BytesColumn:
    """Read an array of numbers where it lies."""
    if not len(column):
        return _EMPTY
    validity, data = column.buffers()
    has_gaps = column.null_count > 0
    return BytesColumn(
        len(column), column.offset, validity if has_gaps else None, width, None, data or b""
    )


def _values_of(column: Any, width: int) -> Buffer:
    """Return the memory of an array of numbers, or of bytes of one size."""
    start = width * column.offset
    return memoryview(column.buffers()[1])[start : start + width * len(column)]


def _places(column: Any) -> BytesColumn:
    """Read the bounds of a map or a list."""
    is_large = pa.types.is_large_list(column.type)
    validity, bounds = column.buffers()[:2]
    has_gaps = column.null_count > 0
    return BytesColumn(
        len(column),
        column.offset,
        validity if has_gaps else None,
        8 if is_large else 4,
        bounds,
        b"",
    )


def _header_values(values: Any) -> tuple[BytesColumn, HeaderKind]:
    """Read the values of a map, and choose their kind by their type."""
    kind = values.type
    if kind not in _NUMBER_KINDS:
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return bytes_column(values), HeaderKind.STRING if is_text else HeaderKind.RAW
    wide, header_kind = _NUMBER_KINDS[kind]
    return _fixed_column(values.cast(wide), wide.bit_width // 8), header_kind


def _origins(column: Any) -> BytesColumn:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    return _fixed_column(column.cast(pa.int64()), _TIME_BYTES)
