"""Layouts: a construct, compiled, with a strict reader in front of it.

All encoding and decoding with construct goes through ``Layout``, and only here construct's untyped
values become typed ones. It guarantees three things that construct alone does not:

* No short reads. construct's compiled parsers accept what the stream returns, so a payload that is
  truncated inside a string yields a shorter string. ``StrictReader`` raises instead.
* No trailing bytes, unless the caller allows them.
* Every error is a typed one that names the field, the offset, the bytes needed and the bytes
  available.

The compiled form is fast and cannot name a field; the interpreted form is slow and can. So valid
payloads run compiled, and a payload that failed is parsed again, interpreted, to name the field.
Compiling takes milliseconds, so it happens at the first use of a layout, not at import.
"""

from __future__ import annotations

import struct
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from construct import Bytes, ConstructError, Container, FormatField

from iggy_protocol.errors import (
    LocalProtocolError,
    RemoteProtocolError,
    TrailingBytes,
    TruncatedField,
)
from iggy_protocol.fields import Field, field_name

if TYPE_CHECKING:
    from construct import Struct


# Derive a fast ``struct.Struct`` from a construct declaration of fixed size.
#
# Parsing with construct costs microseconds, too much for the header of every message. A layout
# without variable parts is equivalent to a format string, so the string is derived, and the
# declaration is written once.


def derive_struct(layout: Struct) -> tuple[struct.Struct, tuple[str, ...]]:
    """Derive the struct that reads and writes the same bytes as a layout of fixed size.

    Args:
        layout: named fields that are little-endian numbers or byte strings of fixed length.

    Returns:
        The struct, and the names of the fields in the order of its values.

    Raises:
        TypeError: a field has no name, or is of a kind that struct cannot express.
    """
    fields: list[Any] = list(layout.subcons)
    derived = struct.Struct("<" + "".join(_format_of(field) for field in fields))
    assert derived.size == layout.sizeof()
    return derived, tuple(field.name for field in fields)


def _format_of(field: Any) -> str:
    if not field.name:
        raise TypeError("every field of a fixed layout needs a name")
    kind = field.subcon
    if isinstance(kind, FormatField) and kind.fmtstr.startswith("<"):
        return str(kind.fmtstr[1:])
    if isinstance(kind, Bytes) and isinstance(kind.length, int):
        return f"{kind.length}s"
    raise TypeError(f"{field.name} is neither a little-endian number nor bytes of fixed length")


Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class StrictReader:
    """A stream over one payload that refuses to return fewer bytes than asked for."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def read(self, size: int) -> bytes:
        """Return exactly ``size`` bytes or raise ``TruncatedField``."""
        start = self._position
        end = start + size
        if end > len(self._data):
            raise TruncatedField(
                f"{size} bytes needed, {len(self._data) - start} left",
                offset=start,
                need=size,
                have=len(self._data) - start,
            )
        self._position = end
        return self._data[start:end]

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._position

    @property
    def remaining(self) -> int:
        """The number of unread bytes."""
        return len(self._data) - self._position


def _context() -> Any:
    context: Any = Container()
    context["_params"] = context
    return context


class Layout(Generic[T]):
    """Encodes and decodes one record.

    Args:
        name: what to call the record in errors.
        construct: the declaration.
        surplus_allowed: whether bytes after the last field are ignored rather than refused.
    """

    def __init__(self, name: str, construct: Field, *, surplus_allowed: bool = False) -> None:
        self.name = name
        self.construct = construct
        self.surplus_allowed = surplus_allowed

    @cached_property
    def _compiled(self) -> Any:
        return self.construct.compile()

    def compile(self) -> None:
        """Compile the declaration now, and not when the first record is read or written."""
        self._compiled  # noqa: B018  a cached property

    def decode(self, payload: Buffer) -> T:
        """Read the record.

        Raises:
            RemoteProtocolError: the bytes are not this record.
        """
        data = bytes(payload)
        reader = StrictReader(data)
        try:
            value = self._compiled.parsefunc(reader, _context())
        except Exception:
            # The compiled form cannot name the field; the interpreted form raises the right error.
            return self._decode_explaining(data)
        self._check_surplus(reader)
        return cast("T", value)

    def encode(self, value: T) -> bytes:
        """Write the record.

        Raises:
            LocalProtocolError: the value does not fit its field.
        """
        stream = BytesIO()
        try:
            self._compiled.buildfunc(value, stream, _context())
        except Exception:
            return self._encode_explaining(value)
        return stream.getvalue()

    def _check_surplus(self, reader: StrictReader) -> None:
        if reader.remaining and not self.surplus_allowed:
            raise TrailingBytes(
                f"{self.name} ends at byte {reader.tell()}, but {reader.remaining} more follow",
                field=self.name,
                offset=reader.tell(),
                have=reader.remaining,
            )

    def _decode_explaining(self, data: bytes) -> T:
        reader = StrictReader(data)
        try:
            value = self.construct._parsereport(reader, _context(), self.name)
        except ConstructError as error:
            cause = error.__context__
            raise self._with_field(cause, field_name(error.path or "")) from None
        except RemoteProtocolError as error:
            raise self._with_field(error, error.field) from None
        self._check_surplus(reader)
        return cast("T", value)

    def _with_field(self, error: BaseException | None, field: str) -> RemoteProtocolError:
        assert isinstance(error, RemoteProtocolError), (
            f"{self.name} raised an unexpected error: {error!r}"
        )
        message = f"{self.name}.{field} at byte {error.offset}: {error.message}"
        return type(error)(
            message,
            field=field,
            offset=error.offset,
            need=error.need,
            have=error.have,
            status=error.status,
        )

    def _encode_explaining(self, value: T) -> bytes:
        stream = BytesIO()
        kind = LocalProtocolError
        try:
            self.construct._build(value, stream, _context(), self.name)
        except ConstructError as error:
            reason, field = str(error).splitlines()[-1], field_name(error.path or "")
        except LocalProtocolError as error:
            kind, reason, field = type(error), error.message, error.field
        except (AttributeError, TypeError, ValueError) as error:
            reason, field = str(error), ""
        else:
            return stream.getvalue()
        raise kind(f"{self.name} cannot be written: {reason}", field=field)
