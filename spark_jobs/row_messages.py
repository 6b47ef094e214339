"""From rows to messages: payloads, keys, ids and headers of what a sink sends.

The id of a row depends on its writer, its task and its position in the task. So a task that
Spark repeats sends the same ids, and a server with deduplication stores each row once.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import repeat
from typing import Any, Final
from uuid import UUID

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types

from iggy_sdk import HeaderKind, HeaderValue, Message
from spark_jobs.errors import SchemaError

__all__ = ["RowMessageBuilder"]

ROW_BITS: Final = 32
"""Rows of a task that share the rest of their ids; after as many another rest is made."""

SCOPE_BYTES: Final = 16 - ROW_BITS // 8
_ROW_MASK: Final = (1 << ROW_BITS) - 1
_KINDS: Final = {kind.name.lower(): kind for kind in HeaderKind}


class RowMessageBuilder:
    """Builds messages from the rows of one task.

    Args:
        scope: a text that is unique to this task; None makes no ids.
        has_keys: whether the column ``key`` is used.
    """

    def __init__(self, scope: str | None, *, has_keys: bool) -> None:
        self._scope = scope
        self._has_keys = has_keys
        self._rows_count = 0

    @property
    def rows_count(self) -> int:
        """How many rows were converted."""
        return self._rows_count

    def messages(self, rows: Any) -> list[Any]:
        """Build the messages of a record batch, in order; plain bytes if there are only payloads.

        Raises:
            SchemaError: a payload is missing, or an id is invalid.
        """
        payloads = self._payloads(rows)
        names = set(rows.schema.names)
        headers = _read_headers(rows) if "headers" in names else None
        keys = rows.column("key").to_pylist() if self._has_keys else None
        origins = _read_origins(rows) if "origin_timestamp" in names else None
        ids = self._ids(len(payloads)) if self._scope is not None else None
        if "id" in names:
            given = _read_ids(rows)
            ids = given if ids is None else list(map(_given_or_made, given, ids))
        self._rows_count += len(payloads)
        if headers is keys is origins is ids is None:
            return payloads
        # A missing column has the same value in all rows.
        return list(
            map(
                Message,
                payloads,
                repeat(None) if headers is None else headers,
                repeat(0) if ids is None else ids,
                repeat(None) if keys is None else keys,
                repeat(None) if origins is None else origins,
            )
        )

    def _payloads(self, rows: Any) -> list[bytes]:
        column = rows.column("payload")
        if column.null_count:
            row = self._rows_count + column.is_null().index(True).as_py()
            raise SchemaError(
                f"row {row} of the task has no payload; filter such rows out with "
                'df.where("payload IS NOT NULL")'
            )
        payloads: list[bytes] = column.cast(pa.binary()).to_pylist()
        return payloads

    def _ids(self, count: int) -> list[int]:
        """Make the ids of the next rows."""
        first, after = self._rows_count, self._rows_count + count
        ids: list[int] = []
        while first < after:
            part = first >> ROW_BITS
            end = min(after, (part + 1) << ROW_BITS)
            start = self._prefix_of(part) | first & _ROW_MASK
            ids += range(start, start + end - first)
            first = end
        return ids

    def _prefix_of(self, part: int) -> int:
        digest = blake2b(f"{self._scope}:{part}".encode(), digest_size=SCOPE_BYTES).digest()
        return int.from_bytes(digest, "little") << ROW_BITS


def _given_or_made(given: int, made: int) -> int:
    return given or made


def _read_ids(rows: Any) -> list[int]:
    """Read the column ``id``; 0 where it is null."""
    return [0 if value is None else _id(value) for value in rows.column("id").to_pylist()]


def _id(value: bytes | str) -> int:
    try:
        raw = UUID(value).bytes if isinstance(value, str) else value
        if len(raw) != 16:
            raise ValueError
    except ValueError:
        raise SchemaError(
            f"the id {value!r} is invalid; give 16 bytes, the text of a UUID, or null"
        ) from None
    return int.from_bytes(raw, "little")


def _read_origins(rows: Any) -> list[int | None]:
    origins: list[int | None] = rows.column("origin_timestamp").cast(pa.int64()).to_pylist()
    return origins


def _read_headers(rows: Any) -> list[dict[str, Any] | None]:
    column = rows.column("headers")
    is_map = pa.types.is_map(column.type)
    return [_headers(pairs, is_map=is_map) if pairs else None for pairs in column.to_pylist()]


def _headers(pairs: list[Any], *, is_map: bool) -> dict[str, Any]:
    """Build headers from a map, or from a list with kinds as the source returns it."""
    if is_map:
        return {key: value for key, value in pairs if value is not None}
    return dict(_typed(pair) for pair in pairs if pair["value"] is not None)


def _typed(pair: dict[str, Any]) -> tuple[str, HeaderValue]:
    kind = _KINDS.get((pair["kind"] or "raw").lower())
    if kind is None:
        raise SchemaError(
            f"header {pair['key']!r} is of kind {pair['kind']!r}; kinds are {', '.join(_KINDS)}"
        )
    return pair["key"], HeaderValue(kind, pair["value"])
