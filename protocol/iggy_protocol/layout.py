"""Layouts: a construct, compiled, with a strict reader in front of it.

``Layout`` is the only door between bytes and the constructs, and the only place where construct's
untyped values become typed ones. It gives three promises that construct alone does not:

* Nothing is read short. construct's compiled parsers take whatever the stream returns, so a
  payload cut inside a string yields a shorter string. ``StrictReader`` refuses instead.
* Nothing is left over, unless the caller says that surplus bytes are tolerated.
* Whatever is wrong comes out as one typed error that names the field, the offset, the bytes
  needed and the bytes at hand.

The compiled form is fast and cannot name a field; the interpreted form is slow and can. So good
payloads run compiled, and a payload that failed is read once more, interpreted, to explain why.
Compiling costs milliseconds, hence it happens when a layout is first used, not at import.

This module knows construct and the error tree. It knows no command.
"""

from __future__ import annotations

from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from construct import ConstructError, Container

from iggy_protocol.errors import (
    LocalProtocolError,
    RemoteProtocolError,
    TrailingBytes,
    TruncatedField,
)
from iggy_protocol.fields import field_name

if TYPE_CHECKING:
    from iggy_protocol.fields import Field

__all__ = ["Buffer", "Layout", "StrictReader"]

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
        """Say how many bytes are unread."""
        return len(self._data) - self._position


def _context() -> Any:
    context: Any = Container()
    context["_params"] = context
    return context


class Layout(Generic[T]):
    """The bytes of one record, both ways.

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
            # Whatever the compiled form stumbled over, the interpreted form names it.
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
            raise self._named(cause, field_name(error.path or "")) from None
        except RemoteProtocolError as error:
            raise self._named(error, error.field) from None
        self._check_surplus(reader)
        return cast("T", value)

    def _named(self, error: BaseException | None, field: str) -> RemoteProtocolError:
        assert isinstance(error, RemoteProtocolError), f"{self.name} raised a stranger: {error!r}"
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
        try:
            self.construct._build(value, stream, _context(), self.name)
        except ConstructError as error:
            reason, field = str(error).splitlines()[-1], field_name(error.path or "")
        except LocalProtocolError as error:
            reason, field = error.message, error.field
        except (AttributeError, TypeError, ValueError) as error:
            reason, field = str(error), ""
        else:
            return stream.getvalue()
        raise LocalProtocolError(f"{self.name} cannot be written: {reason}", field=field)
