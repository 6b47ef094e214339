"""Payloads as values: text, and JSON that Arrow reads by a schema.

Each message holds one JSON document. All payloads of a poll go through ``pyarrow.json`` at once, as
one line each, wrapped into an object of one member: so a payload that is no whole document, or more
than one, can neither be read together with its neighbours nor shift them.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # the same
import pyarrow.json as pj  # type: ignore[import-untyped]  # the same

from iggy_sdk.errors import ConfigurationError, SerdeError

if TYPE_CHECKING:
    from collections.abc import Callable


OnError: TypeAlias = Literal["raise", "null"]
"""What becomes of a payload that cannot be read: an error, or a missing value."""

_MEMBER: Final = "payload"
_OPENING: Final = b'{"payload":'
_BETWEEN: Final = b'}\n{"payload":'
_CLOSING: Final = b"}\n"


class PayloadDecodeError(SerdeError):
    """A payload is not what the schema says.

    Attributes:
        partition_id: the partition of the message.
        offset: its offset.
    """

    def __init__(self, reason: str = "", *, partition_id: int = 0, offset: int = 0) -> None:
        super().__init__(
            f"the payload of message {offset} in partition {partition_id} cannot be read: {reason}",
            advice='Correct the schema, or read such payloads as missing with on_error="null".',
        )
        self.partition_id = partition_id
        self.offset = offset


class JsonPayloads:
    """Reads JSON payloads as values of a type of Arrow.

    Args:
        kind: the type; of objects, a struct.
        empty_is_null: whether an empty payload is a missing value, and not an error.

    Raises:
        ConfigurationError: Arrow cannot read JSON as this type.
    """

    def __init__(self, kind: Any, *, empty_is_null: bool) -> None:
        self._kind = kind
        self._empty_is_null = empty_is_null
        self._parsing = pj.ParseOptions(
            explicit_schema=pa.schema([(_MEMBER, kind)]), unexpected_field_behavior="ignore"
        )
        try:
            self(pa.array([b"null"], pa.binary()))
        except (pa.ArrowException, TypeError) as error:
            raise ConfigurationError(
                f"schema is {kind}, which Arrow cannot read from JSON: {error}",
                advice="Give a pyarrow.Schema of numbers, text, times, lists and structs.",
            ) from error

    def __call__(self, payloads: Any) -> Any:
        """Read all payloads, or raise ``ArrowInvalid`` if one of them cannot be read."""
        if self._empty_is_null:
            payloads = without(payloads, pc.equal(pc.binary_length(payloads), 0))
        lines = _on_one_line(payloads.fill_null(b"null").cast(pa.string()))
        count = len(lines)
        whole = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), lines)
        joined = pc.binary_join(whole, _BETWEEN.decode())[0].as_buffer()
        text = b"".join([_OPENING, memoryview(joined), _CLOSING])
        # One block: what lies in two of them, Arrow would read in two pieces.
        reading = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        read = pj.read_json(BytesIO(text), reading, self._parsing).column(0).combine_chunks()
        if len(read) != count:
            raise pa.ArrowInvalid("it holds more than one JSON document")
        return read


def without(values: Any, is_missing: Any) -> Any:
    """Make some values missing."""
    if not pc.any(is_missing).as_py():
        return values
    # Choosing between values, as ``if_else`` does, goes wrong with slices in Arrow 18.
    rows = pa.array(range(len(values)), pa.int64())
    return values.take(pc.if_else(is_missing, pa.scalar(None, pa.int64()), rows))


def _on_one_line(texts: Any) -> Any:
    """Turn line breaks into blanks: between tokens they mean the same, inside of text neither may
    stand.
    """
    for line_break in ("\n", "\r"):
        if pc.any(pc.match_substring(texts, line_break)).as_py():
            texts = pc.replace_substring(texts, line_break, "\t")
    return texts


def _as_text(payloads: Any) -> Any:
    """Read all payloads as UTF-8, or raise ``ArrowInvalid``."""
    return payloads.cast(pa.string())


def converter_of(kind: Any, on_error: OnError) -> Callable[[Any], Any] | None:
    """Return what turns payloads into a type; None for the bytes themselves.

    Raises:
        ConfigurationError: Arrow cannot read JSON as this type.
    """
    if pa.types.is_binary(kind):
        return None
    if pa.types.is_string(kind):
        return _as_text
    return JsonPayloads(kind, empty_is_null=on_error == "null")


def convert(
    payloads: Any,
    converter: Callable[[Any], Any],
    kind: Any,
    refuse: Callable[[int, str], None],
) -> Any:
    """Convert payloads; those that cannot be converted are missing.

    Halves are tried again where something cannot be read, until a single payload is left.

    Args:
        payloads: binary values; missing ones stay missing.
        converter: converts many at once, or raises ``ArrowInvalid``.
        kind: the type that it makes.
        refuse: called with the row of each payload that cannot be read, and the reason.
    """
    pieces: list[Any] = []
    open_rows = [(0, len(payloads))]
    while open_rows:
        start, end = open_rows.pop()
        try:
            pieces.append(converter(payloads.slice(start, end - start)))
        except pa.ArrowInvalid as error:
            if end - start > 1:
                middle = (start + end) // 2
                open_rows += [(middle, end), (start, middle)]
                continue
            refuse(start, str(error))
            pieces.append(pa.nulls(1, kind))
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays([pa.nulls(0, kind), *pieces])
