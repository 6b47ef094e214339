"""User headers: the typed keys and values after a message's payload.

A block is pairs back to back, without a count; no bytes at all mean no headers. Each pair:

    1 byte    4 bytes       n bytes   1 byte      4 bytes         m bytes
    +---------+-------------+---------+-----------+---------------+----------+
    | key     | key length  | key     | value     | value length  | value    |
    | kind    | 1 to 255    |         | kind      | 1 to 255      |          |
    +---------+-------------+---------+-----------+---------------+----------+
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum, unique
from typing import Any, ClassVar, Final, Self, TypeAlias, TypeVar, overload

from construct import Bytes, Int8ul, Int32ul, Rebuild, Struct, len_, this

from iggy_protocol.errors import (
    InvalidField,
    LocalProtocolError,
    TruncatedField,
    UnknownDiscriminant,
)
from iggy_protocol.records import record
from iggy_protocol.status_table import StatusCode

BYTES_MAX: Final = 255
"""How long one key or one value may be; the length field could say more, no reader accepts it."""

BLOCK_BYTES_MAX: Final = 100_000
"""How long a block may be; the server refuses a message with more."""

HEADER_PAIR: Final = Struct(
    "key_kind" / Int8ul,
    "key_length" / Rebuild(Int32ul, len_(this.key)),
    "key" / Bytes(this.key_length),
    "value_kind" / Int8ul,
    "value_length" / Rebuild(Int32ul, len_(this.value)),
    "value" / Bytes(this.value_length),
)
"""The layout of one pair. The code below walks blocks without it, and a test holds both equal."""

HeaderScalar: TypeAlias = str | bytes | bool | int | float


@unique
class HeaderKind(IntEnum):
    """How the bytes of a key or a value are to be read; numbers are little-endian."""

    RAW = 1
    STRING = 2
    BOOL = 3
    INT8 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    INT128 = 8
    UINT8 = 9
    UINT16 = 10
    UINT32 = 11
    UINT64 = 12
    UINT128 = 13
    FLOAT32 = 14
    FLOAT64 = 15


_SIGNED: Final = frozenset(
    {HeaderKind.INT8, HeaderKind.INT16, HeaderKind.INT32, HeaderKind.INT64, HeaderKind.INT128}
)

_SIZES: Final[Mapping[HeaderKind, int]] = {
    HeaderKind.BOOL: 1,
    HeaderKind.INT8: 1,
    HeaderKind.INT16: 2,
    HeaderKind.INT32: 4,
    HeaderKind.INT64: 8,
    HeaderKind.INT128: 16,
    HeaderKind.UINT8: 1,
    HeaderKind.UINT16: 2,
    HeaderKind.UINT32: 4,
    HeaderKind.UINT64: 8,
    HeaderKind.UINT128: 16,
    HeaderKind.FLOAT32: 4,
    HeaderKind.FLOAT64: 8,
}

_FLOATS: Final[Mapping[HeaderKind, struct.Struct]] = {
    HeaderKind.FLOAT32: struct.Struct("<f"),
    HeaderKind.FLOAT64: struct.Struct("<d"),
}

# The kinds that a plain int tries in turn; the first that holds it is taken.
_INT_CHOICES: Final = (
    HeaderKind.INT64,
    HeaderKind.UINT64,
    HeaderKind.INT128,
    HeaderKind.UINT128,
)


@record
class _TypedBytes:
    """What keys and values share: a kind, and bytes of a size that fits it."""

    kind: HeaderKind
    raw: bytes

    NOUN: ClassVar[str]
    ROLE: ClassVar[str]
    STATUS: ClassVar[StatusCode]

    def __post_init__(self) -> None:
        if not 1 <= len(self.raw) <= BYTES_MAX:
            raise LocalProtocolError(f"{self.NOUN} has 1 to {BYTES_MAX} bytes, not {len(self.raw)}")
        size = _SIZES.get(self.kind, len(self.raw))
        if len(self.raw) != size:
            raise LocalProtocolError(
                f"{self.NOUN} of kind {self.kind.name} has {size} bytes, not {len(self.raw)}"
            )

    @classmethod
    def of(cls, value: HeaderScalar) -> Self:
        """Choose the kind by the Python type; an int takes 64 bits, or 128 when it must.

        Raises:
            LocalProtocolError: no kind can hold the value.
        """
        if isinstance(value, str):
            return cls.string(value)
        if isinstance(value, bytes):
            return cls.raw_bytes(value)
        if isinstance(value, bool):
            return cls.boolean(value)
        if isinstance(value, float):
            return cls.float64(value)
        if not isinstance(value, int):
            raise LocalProtocolError(f"no header kind holds a {type(value).__name__}")
        for kind in _INT_CHOICES[:-1]:
            if _fits(kind, value):
                return cls._integer(kind, value)
        return cls._integer(_INT_CHOICES[-1], value)

    @classmethod
    def raw_bytes(cls, value: bytes) -> Self:
        """Take bytes that only the application can read."""
        return cls(HeaderKind.RAW, value)

    @classmethod
    def string(cls, value: str) -> Self:
        """Take text, as UTF-8.

        Raises:
            LocalProtocolError: it cannot be written as UTF-8, is empty or too long.
        """
        try:
            return cls(HeaderKind.STRING, value.encode())
        except UnicodeEncodeError as error:
            raise LocalProtocolError(f"not writable as UTF-8: {error.reason}") from None

    @classmethod
    def boolean(cls, value: bool) -> Self:
        """Take a truth value."""
        return cls(HeaderKind.BOOL, b"\1" if value else b"\0")

    @classmethod
    def int8(cls, value: int) -> Self:
        """Take a signed integer of 8 bits."""
        return cls._integer(HeaderKind.INT8, value)

    @classmethod
    def int16(cls, value: int) -> Self:
        """Take a signed integer of 16 bits."""
        return cls._integer(HeaderKind.INT16, value)

    @classmethod
    def int32(cls, value: int) -> Self:
        """Take a signed integer of 32 bits."""
        return cls._integer(HeaderKind.INT32, value)

    @classmethod
    def int64(cls, value: int) -> Self:
        """Take a signed integer of 64 bits."""
        return cls._integer(HeaderKind.INT64, value)

    @classmethod
    def int128(cls, value: int) -> Self:
        """Take a signed integer of 128 bits."""
        return cls._integer(HeaderKind.INT128, value)

    @classmethod
    def uint8(cls, value: int) -> Self:
        """Take an unsigned integer of 8 bits."""
        return cls._integer(HeaderKind.UINT8, value)

    @classmethod
    def uint16(cls, value: int) -> Self:
        """Take an unsigned integer of 16 bits."""
        return cls._integer(HeaderKind.UINT16, value)

    @classmethod
    def uint32(cls, value: int) -> Self:
        """Take an unsigned integer of 32 bits."""
        return cls._integer(HeaderKind.UINT32, value)

    @classmethod
    def uint64(cls, value: int) -> Self:
        """Take an unsigned integer of 64 bits."""
        return cls._integer(HeaderKind.UINT64, value)

    @classmethod
    def uint128(cls, value: int) -> Self:
        """Take an unsigned integer of 128 bits."""
        return cls._integer(HeaderKind.UINT128, value)

    @classmethod
    def float32(cls, value: float) -> Self:
        """Take a float of 32 bits; digits that do not fit are rounded away."""
        return cls._float(HeaderKind.FLOAT32, value)

    @classmethod
    def float64(cls, value: float) -> Self:
        """Take a float of 64 bits."""
        return cls._float(HeaderKind.FLOAT64, value)

    @property
    def value(self) -> HeaderScalar:
        """The bytes as Python sees them.

        Raises:
            InvalidField: a string that is not UTF-8, or a bool that is neither 0 nor 1.
        """
        try:
            return _READERS.get(self.kind, _read_integer)(self)
        except ValueError:
            raise InvalidField(
                f"these bytes are no {self.kind.name}",
                field=self.ROLE,
                need=len(self.raw),
                have=len(self.raw),
                status=self.STATUS,
            ) from None

    @classmethod
    def _integer(cls, kind: HeaderKind, value: int) -> Self:
        if not _fits(kind, value):
            raise LocalProtocolError(f"{value} does not fit {cls.NOUN} of {kind.name}")
        return cls(kind, value.to_bytes(_SIZES[kind], "little", signed=kind in _SIGNED))

    @classmethod
    def _float(cls, kind: HeaderKind, value: float) -> Self:
        try:
            return cls(kind, _FLOATS[kind].pack(value))
        except OverflowError:
            raise LocalProtocolError(f"{value} does not fit {cls.NOUN} of {kind.name}") from None


class HeaderKey(_TypedBytes):
    """The key of a user header; keys of different kinds are different keys."""

    __slots__ = ()
    NOUN: ClassVar[str] = "a header key"
    ROLE: ClassVar[str] = "key"
    STATUS: ClassVar[StatusCode] = StatusCode.INVALID_HEADER_KEY


class HeaderValue(_TypedBytes):
    """The value of a user header."""

    __slots__ = ()
    NOUN: ClassVar[str] = "a header value"
    ROLE: ClassVar[str] = "value"
    STATUS: ClassVar[StatusCode] = StatusCode.INVALID_HEADER_VALUE


def _fits(kind: HeaderKind, value: int) -> bool:
    bits = 8 * _SIZES[kind]
    if kind in _SIGNED:
        return -(1 << (bits - 1)) <= value < 1 << (bits - 1)
    return 0 <= value < 1 << bits


def _read_bool(header: _TypedBytes) -> bool:
    return (b"\0", b"\1").index(header.raw) == 1


def _read_integer(header: _TypedBytes) -> int:
    return int.from_bytes(header.raw, "little", signed=header.kind in _SIGNED)


def _read_float(header: _TypedBytes) -> float:
    number: float
    (number,) = _FLOATS[header.kind].unpack(header.raw)
    return number


_READERS: Final[Mapping[HeaderKind, Callable[[_TypedBytes], HeaderScalar]]] = {
    HeaderKind.RAW: lambda header: header.raw,
    HeaderKind.STRING: lambda header: header.raw.decode(),
    HeaderKind.BOOL: _read_bool,
    HeaderKind.FLOAT32: _read_float,
    HeaderKind.FLOAT64: _read_float,
}

_KINDS: Final[Mapping[int, HeaderKind]] = {int(kind): kind for kind in HeaderKind}

_PREFIX: Final = struct.Struct("<BI")

_AnyKey: TypeAlias = HeaderKey | HeaderScalar
_AnyValue: TypeAlias = HeaderValue | HeaderScalar


# A mapping is invariant in its keys, so the usual kinds of keys have overloads beside the union.
@overload
def encode_user_headers(headers: Mapping[str, _AnyValue]) -> bytes: ...
@overload
def encode_user_headers(headers: Mapping[HeaderKey, _AnyValue]) -> bytes: ...
@overload
def encode_user_headers(headers: Mapping[_AnyKey, _AnyValue]) -> bytes: ...
@overload
def encode_user_headers(headers: Iterable[tuple[_AnyKey, _AnyValue]]) -> bytes: ...
def encode_user_headers(headers: Mapping[Any, Any] | Iterable[tuple[_AnyKey, _AnyValue]]) -> bytes:
    """Write a block, sorted by key kind and key bytes.

    Args:
        headers: keys and values; plain Python values get a kind by ``of``.

    Returns:
        The block; no bytes for no headers.

    Raises:
        LocalProtocolError: a key comes twice, a value fits no kind, or the block is too long.
    """
    given: Iterable[tuple[_AnyKey, _AnyValue]]
    given = headers.items() if isinstance(headers, Mapping) else headers
    pairs: dict[HeaderKey, HeaderValue] = {}
    for any_key, any_value in given:
        key = any_key if isinstance(any_key, HeaderKey) else HeaderKey.of(any_key)
        value = any_value if isinstance(any_value, HeaderValue) else HeaderValue.of(any_value)
        if key in pairs:
            raise LocalProtocolError(f"the header key {any_key!r} comes twice")
        pairs[key] = value
    block = b"".join(
        _PREFIX.pack(half.kind, len(half.raw)) + half.raw
        for key in sorted(pairs, key=lambda key: (key.kind, key.raw))
        for half in (key, pairs[key])
    )
    if len(block) > BLOCK_BYTES_MAX:
        raise LocalProtocolError(
            f"user headers have at most {BLOCK_BYTES_MAX} bytes, not {len(block)}"
        )
    return block


def decode_user_headers(block: bytes | bytearray | memoryview) -> dict[HeaderKey, HeaderValue]:
    """Read a block, pair by pair, in the order of the wire; of equal keys the last one counts.

    Args:
        block: all the bytes behind a message's payload.

    Raises:
        UnknownDiscriminant: an undefined kind (status 4040).
        InvalidField: a length outside 1 to 255 (status 3), or one that does not fit the kind
            (status 4018 in a key, 4019 in a value).
        TruncatedField: the block ends inside a pair (status 3).
    """
    data = bytes(block)
    headers: dict[HeaderKey, HeaderValue] = {}
    offset = index = 0
    while offset < len(data):
        key, offset = _read(HeaderKey, data, offset, index)
        value, offset = _read(HeaderValue, data, offset, index)
        headers[key] = value
        index += 1
    return headers


_T = TypeVar("_T", bound=_TypedBytes)


def _read(role: type[_T], data: bytes, offset: int, index: int) -> tuple[_T, int]:
    """Read one half of pair ``index``; return it and the offset behind it."""
    if len(data) - offset < 1:
        raise _cut_short(role, "_kind", data, offset, need=1, index=index)
    kind = _KINDS.get(data[offset])
    if kind is None:
        raise UnknownDiscriminant(
            f"no header kind has the code {data[offset]}",
            field=_path(role, "_kind", index),
            offset=offset,
            need=1,
            have=len(data) - offset,
            status=StatusCode.INVALID_HEADER_KIND,
        )
    start = offset + _PREFIX.size
    if len(data) < start:
        raise _cut_short(role, "_length", data, offset + 1, need=4, index=index)
    length = int.from_bytes(data[offset + 1 : start], "little")
    if not 1 <= length <= BYTES_MAX:
        raise InvalidField(
            f"{role.NOUN} has 1 to {BYTES_MAX} bytes, not {length}",
            field=_path(role, "_length", index),
            offset=offset + 1,
            need=length,
            have=len(data) - start,
            status=StatusCode.INVALID_COMMAND,
        )
    end = start + length
    if len(data) < end:
        raise _cut_short(role, "", data, start, need=length, index=index)
    size = _SIZES.get(kind, length)
    if size != length:
        raise InvalidField(
            f"{role.NOUN} of kind {kind.name} has {size} bytes, not {length}",
            field=_path(role, "", index),
            offset=start,
            need=size,
            have=length,
            status=role.STATUS,
        )
    return role(kind, data[start:end]), end


def _cut_short(
    role: type[_TypedBytes], part: str, data: bytes, offset: int, *, need: int, index: int
) -> TruncatedField:
    have = len(data) - offset
    return TruncatedField(
        f"{role.ROLE}{part} needs {need} bytes, {have} are left",
        field=_path(role, part, index),
        offset=offset,
        need=need,
        have=have,
    )


def _path(role: type[_TypedBytes], part: str, index: int) -> str:
    return f"user_headers.{index}.{role.ROLE}{part}"
