"""User headers in the official spelling, which options of topics have as well.

``HeaderKey.String("kind")`` and ``HeaderValue.UnsignedInt32(5)`` say what
``iggy_protocol.HeaderKey.string("kind")`` and ``iggy_protocol.HeaderValue.uint32(5)`` say, and are
equal to them. There is one class for each kind; the classes are made from a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeVar

import iggy_protocol
from iggy_protocol import HeaderKind, HeaderScalar, ProtocolError
from iggy_sdk.compat.variants import variant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_HALVES: Final[Mapping[HeaderKind, tuple[str, str]]] = {
    HeaderKind.RAW: ("Raw", "raw_bytes"),
    HeaderKind.STRING: ("String", "string"),
    HeaderKind.BOOL: ("Bool", "boolean"),
    HeaderKind.INT8: ("Int8", "int8"),
    HeaderKind.INT16: ("Int16", "int16"),
    HeaderKind.INT32: ("Int32", "int32"),
    HeaderKind.INT64: ("Int64", "int64"),
    HeaderKind.INT128: ("Int128", "int128"),
    HeaderKind.UINT8: ("UnsignedInt8", "uint8"),
    HeaderKind.UINT16: ("UnsignedInt16", "uint16"),
    HeaderKind.UINT32: ("UnsignedInt32", "uint32"),
    HeaderKind.UINT64: ("UnsignedInt64", "uint64"),
    HeaderKind.UINT128: ("UnsignedInt128", "uint128"),
    HeaderKind.FLOAT32: ("Float32", "float32"),
    HeaderKind.FLOAT64: ("Float64", "float64"),
}
"""What each kind is called officially, and how this SDK makes a value of it."""


def _shown(half: iggy_protocol.HeaderKey | iggy_protocol.HeaderValue) -> str:
    """Show the kind and the value; bytes that do not fit their kind are shown as they are."""
    try:
        value = half.value
    except ProtocolError:
        value = half.raw
    return f"{_HALVES[half.kind][0]}({value!r})"


class HeaderKey(iggy_protocol.HeaderKey):
    """The key of a user header, by its kind."""

    __slots__ = ()
    Raw: ClassVar[Callable[[bytes], HeaderKey]]
    String: ClassVar[Callable[[str], HeaderKey]]
    Bool: ClassVar[Callable[[bool], HeaderKey]]
    Int8: ClassVar[Callable[[int], HeaderKey]]
    Int16: ClassVar[Callable[[int], HeaderKey]]
    Int32: ClassVar[Callable[[int], HeaderKey]]
    Int64: ClassVar[Callable[[int], HeaderKey]]
    Int128: ClassVar[Callable[[int], HeaderKey]]
    UnsignedInt8: ClassVar[Callable[[int], HeaderKey]]
    UnsignedInt16: ClassVar[Callable[[int], HeaderKey]]
    UnsignedInt32: ClassVar[Callable[[int], HeaderKey]]
    UnsignedInt64: ClassVar[Callable[[int], HeaderKey]]
    UnsignedInt128: ClassVar[Callable[[int], HeaderKey]]
    Float32: ClassVar[Callable[[float], HeaderKey]]
    Float64: ClassVar[Callable[[float], HeaderKey]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, iggy_protocol.HeaderKey):
            return NotImplemented
        return (self.kind, self.raw) == (other.kind, other.raw)

    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        return f"HeaderKey.{_shown(self)}"


class HeaderValue(iggy_protocol.HeaderValue):
    """The value of a user header, by its kind."""

    __slots__ = ()
    Raw: ClassVar[Callable[[bytes], HeaderValue]]
    String: ClassVar[Callable[[str], HeaderValue]]
    Bool: ClassVar[Callable[[bool], HeaderValue]]
    Int8: ClassVar[Callable[[int], HeaderValue]]
    Int16: ClassVar[Callable[[int], HeaderValue]]
    Int32: ClassVar[Callable[[int], HeaderValue]]
    Int64: ClassVar[Callable[[int], HeaderValue]]
    Int128: ClassVar[Callable[[int], HeaderValue]]
    UnsignedInt8: ClassVar[Callable[[int], HeaderValue]]
    UnsignedInt16: ClassVar[Callable[[int], HeaderValue]]
    UnsignedInt32: ClassVar[Callable[[int], HeaderValue]]
    UnsignedInt64: ClassVar[Callable[[int], HeaderValue]]
    UnsignedInt128: ClassVar[Callable[[int], HeaderValue]]
    Float32: ClassVar[Callable[[float], HeaderValue]]
    Float64: ClassVar[Callable[[float], HeaderValue]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, iggy_protocol.HeaderValue):
            return NotImplemented
        return (self.kind, self.raw) == (other.kind, other.raw)

    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        return f"HeaderValue.{_shown(self)}"


H = TypeVar("H", HeaderKey, HeaderValue)


def _of_kind(owner: type[H], kind: HeaderKind) -> type[H]:
    """Make the class of one kind."""
    name, maker = _HALVES[kind]
    make = getattr(owner.__bases__[0], maker)

    def __init__(self: H, value: HeaderScalar) -> None:
        made = make(value)
        owner.__init__(self, made.kind, made.raw)

    body = {"__init__": __init__, "__slots__": (), "__match_args__": ("value",)}
    made: type[H] = type(name, (owner,), body)
    made.__module__ = __name__
    made.__doc__ = f"One of kind {kind.name.lower()}."
    return variant(owner, name)(made)


_KEYS: Final = {kind: _of_kind(HeaderKey, kind) for kind in HeaderKind}
_VALUES: Final = {kind: _of_kind(HeaderValue, kind) for kind in HeaderKind}


def header_key_of(key: iggy_protocol.HeaderKey) -> HeaderKey:
    """Return a key in the official spelling."""
    return _restored(_KEYS[key.kind], key)


def header_value_of(value: iggy_protocol.HeaderValue) -> HeaderValue:
    """Return a value in the official spelling; option values are header values."""
    return _restored(_VALUES[value.kind], value)


def _restored(kind: type[H], half: iggy_protocol.HeaderKey | iggy_protocol.HeaderValue) -> H:
    # The constructor takes what Python sees, and a peer's bytes may not be readable as that.
    made = kind.__new__(kind)
    object.__setattr__(made, "kind", half.kind)
    object.__setattr__(made, "raw", half.raw)
    return made


AnyKey: TypeAlias = iggy_protocol.HeaderKey | HeaderScalar
AnyValue: TypeAlias = iggy_protocol.HeaderValue | HeaderScalar

_SCALARS: Final = (str, bytes, bool, int, float)


class UserHeaders(dict[AnyKey, AnyValue]):
    """User headers with the kinds that the producer gave them; plain values may be added."""

    def __init__(self, mapping: Mapping[Any, AnyValue] | None = None) -> None:
        super().__init__()
        for key, value in (mapping or {}).items():
            self[key] = value

    def __setitem__(self, key: AnyKey, value: AnyValue) -> None:
        if not isinstance(key, (iggy_protocol.HeaderKey, *_SCALARS)):
            raise ValueError(f"{key!r} is no key of a user header: take a text or a HeaderKey")
        if not isinstance(value, (iggy_protocol.HeaderValue, *_SCALARS)):
            raise ValueError(f"{value!r} is no value of a user header: take a HeaderValue")
        super().__setitem__(key, value)

    def to_scalar_dict(self) -> dict[HeaderScalar, HeaderScalar]:
        """Show keys and values as Python sees them.

        Raises:
            ValueError: two keys of different kinds would look alike, or bytes of a peer cannot be
                read as what they are said to be.
        """
        shown: dict[HeaderScalar, HeaderScalar] = {}
        for key, value in self.items():
            name = _scalar(key)
            if name in shown:
                raise ValueError(f"two keys of different kinds are both {name!r}")
            shown[name] = _scalar(value)
        return shown


def _scalar(half: AnyKey | AnyValue) -> HeaderScalar:
    if not isinstance(half, iggy_protocol.HeaderKey | iggy_protocol.HeaderValue):
        return half
    try:
        return half.value
    except ProtocolError as error:
        raise ValueError(str(error)) from error


def user_headers_of(
    headers: Mapping[iggy_protocol.HeaderKey, iggy_protocol.HeaderValue],
) -> UserHeaders:
    """Return headers in the official spelling."""
    return UserHeaders(
        {header_key_of(key): header_value_of(value) for key, value in headers.items()}
    )


def options_as_headers(options: iggy_protocol.Options) -> UserHeaders:
    """Return options as user headers, as the official client shows them."""
    return UserHeaders(
        {
            header_key_of(iggy_protocol.HeaderKey.string(key)): header_value_of(value)
            for key, value in options.items()
        }
    )
