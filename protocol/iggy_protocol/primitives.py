"""The primitive encodings of the wire, each declared once.

All integers are little-endian. An undefined discriminant, a text that is not UTF-8 and a
truncated field have status 3; a complete field that breaks its own rule (an empty name, a number
that is not four bytes) has status 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from construct import Bytes, Flag, Float32l, Int8ul, Int16ul, Int32ul, Int64ul

from iggy_protocol.errors import (
    INVALID_COMMAND,
    InvalidField,
    LocalProtocolError,
    NotInDialect,
    UnknownDiscriminant,
)
from iggy_protocol.fields import (
    CompiledAdapter,
    Field,
    LengthPrefixedBytes,
    RecordStruct,
    SizePrefixedRange,
    StrictGreedyRange,
)
from iggy_protocol.model.identifier import (
    ConsumerIdentity,
    ConsumerKind,
    Identifier,
    Partitioning,
    PartitioningKind,
    PollingKind,
    PollingStrategy,
)
from iggy_protocol.options import BLOCK_BYTES_MAX, ENTRIES_MAX, Options, OptionValue
from iggy_protocol.status_table import StatusCode
from iggy_protocol.user_headers import BYTES_MAX, HeaderKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from enum import IntEnum

    E = TypeVar("E", bound=IntEnum)

R = TypeVar("R")


U8: Field = Int8ul
U16: Field = Int16ul
U32: Field = Int32ul
U64: Field = Int64ul
F32: Field = Float32l
BOOL: Field = Flag

SERVER_DEFAULT = 0
"""Expiry or size of a topic: let the server choose."""

NEVER_EXPIRES = 2**64 - 1
"""Expiry of a topic or a token: never."""

UNLIMITED = 2**64 - 1
"""Size of a topic: no limit."""

NO_USER = 2**32 - 1
"""User id of a client that has not logged in."""


def _text(data: bytes, errors: str = "strict") -> str:
    try:
        return data.decode(errors=errors)
    except UnicodeDecodeError as error:
        raise InvalidField(f"not UTF-8: {error.reason}", status=INVALID_COMMAND) from None


def _filled(data: bytes, errors: str = "strict") -> str:
    if not data:
        raise InvalidField("a name has at least one byte")
    return _text(data, errors)


def _text_bytes(limit: int, *, least: int = 0, errors: str = "strict") -> Callable[[str], bytes]:
    def encode(text: str) -> bytes:
        try:
            data = text.encode(errors=errors)
        except UnicodeEncodeError as error:
            raise LocalProtocolError(f"not writable as UTF-8: {error.reason}") from None
        if not least <= len(data) <= limit:
            raise LocalProtocolError(f"{len(data)} bytes of text, allowed are {least} to {limit}")
        return data

    return encode


NAME = CompiledAdapter(LengthPrefixedBytes(U8), _filled, _text_bytes(255, least=1), label="name8")
PASSWORD = CompiledAdapter(LengthPrefixedBytes(U8), _text, _text_bytes(255), label="pwd8")
TEXT = CompiledAdapter(LengthPrefixedBytes(U32), _text, _text_bytes(2**32 - 1), label="str32")


def _u128_bytes(number: int) -> bytes:
    if not 0 <= number < 1 << 128:
        raise LocalProtocolError(f"{number} does not fit 128 bits")
    return number.to_bytes(16, "little")


U128 = CompiledAdapter(
    Bytes(16), lambda data: int.from_bytes(data, "little"), _u128_bytes, label="u128"
)


def _checked_flag(code: int) -> bool:
    if code > 1:
        raise UnknownDiscriminant(f"{code} is no flag")
    return code == 1


STRICT_BOOL = CompiledAdapter(U8, _checked_flag, int, label="bool, strictly 0 or 1")


def discriminant(kinds: type[E], *, later: tuple[E, ...] = ()) -> CompiledAdapter:
    """Declare a byte that must be a member of ``kinds``, but none that ``later`` dialects have."""

    def decode(code: int) -> E:
        try:
            kind = kinds(code)
        except ValueError:
            kind = None
        if kind is None or kind in later:
            raise UnknownDiscriminant(f"{code} is no {kinds.__name__}")
        return kind

    def encode(kind: E) -> int:
        if kind in later:
            raise NotInDialect(f"the protocol of the server has no {kind!r}")
        try:
            return int(kinds(kind))
        except ValueError:
            raise LocalProtocolError(f"{kind!r} is no {kinds.__name__}") from None

    return CompiledAdapter(U8, decode, encode, label="u8")


def required(block: Field) -> CompiledAdapter:
    """Declare a value that other dialects may leave out with ``None``."""

    def refuse_none(value: R) -> R:
        if value is None:
            raise NotInDialect("the protocol of the server cannot leave this field as it is")
        return value

    return CompiledAdapter(block, lambda value: value, refuse_none)


def optional_number(number: Field, absent: int, label: str) -> CompiledAdapter:
    """Declare a number with one value that means ``None``."""
    return CompiledAdapter(
        number,
        lambda value: None if value == absent else value,
        lambda value: absent if value is None else value,
        label=label,
    )


class CountedRecord(CompiledAdapter):
    """A record with a count of elements that must be true."""


def counted(record: Field, *, count: str, elements: str) -> CountedRecord:
    """Check that a record has as many ``elements`` as its field ``count`` says."""

    def check(value: R) -> R:
        announced, present = getattr(value, count), len(getattr(value, elements))
        if announced != present:
            raise InvalidField(f"{count} is {announced}, but {present} {elements} follow")
        return value

    def check_local(value: R) -> R:
        try:
            return check(value)
        except InvalidField as error:
            raise LocalProtocolError(error.message, field=count) from None

    return CountedRecord(record, check, check_local)


class Variant(NamedTuple):
    """The raw form of a tagged value: what it is, and its bytes."""

    kind: int
    value: bytes


VARIANT = RecordStruct(
    Variant, "kind" / U8, "value" / LengthPrefixedBytes(U8, label="u8 length, bytes")
)


def _identifier(errors: str) -> Callable[[Variant], Identifier]:
    def decode(variant: Variant) -> Identifier:
        kind, value = variant
        if kind == 1:
            if len(value) != 4:
                raise InvalidField(f"a numeric identifier has 4 bytes, not {len(value)}")
            return int.from_bytes(value, "little")
        if kind == 2:
            return _filled(value, errors)
        raise UnknownDiscriminant(f"{kind} is no kind of identifier")

    return decode


def _identifier_variant(errors: str) -> Callable[[Identifier], Variant]:
    name_bytes = _text_bytes(255, least=1, errors=errors)

    def encode(identifier: Identifier) -> Variant:
        if isinstance(identifier, int):
            if not 0 <= identifier < 2**32:
                raise LocalProtocolError(f"{identifier} is outside the range of numeric ids")
            return Variant(1, identifier.to_bytes(4, "little"))
        if not isinstance(identifier, str):
            raise LocalProtocolError(f"an identifier is an int or a str, not {identifier!r}")
        return Variant(2, name_bytes(identifier))

    return encode


IDENTIFIER = CompiledAdapter(
    VARIANT, _identifier("strict"), _identifier_variant("strict"), label="ident"
)

# Apache Iggy 0.8 does not check the identifiers of SendMessages for UTF-8: a name of arbitrary
# bytes is looked up and not found. Surrogate escapes carry such bytes through a str and back.
IDENTIFIER_ESCAPED = CompiledAdapter(
    VARIANT, _identifier("surrogateescape"), _identifier_variant("surrogateescape"), label="ident"
)

CONSUMER = RecordStruct(
    ConsumerIdentity,
    "kind" / discriminant(ConsumerKind, later=(ConsumerKind.EXTERNAL_GROUP,)),
    "id" / IDENTIFIER,
)
CONSUMER_V0_12 = RecordStruct(
    ConsumerIdentity, "kind" / discriminant(ConsumerKind), "id" / IDENTIFIER
)
POLLING_STRATEGY = RecordStruct(PollingStrategy, "kind" / discriminant(PollingKind), "value" / U64)


class FlaggedPartition(NamedTuple):
    """The raw form of an optional partition id: always five bytes."""

    given: int
    partition_id: int


OPTIONAL_PARTITION = CompiledAdapter(
    RecordStruct(FlaggedPartition, "given" / U8, "partition_id" / U32),
    lambda raw: raw.partition_id if raw.given == 1 else None,
    lambda value: FlaggedPartition(0, 0) if value is None else FlaggedPartition(1, value),
    label="optional partition",
)

_PARTITIONING_SIZES = {
    PartitioningKind.BALANCED: range(1),
    PartitioningKind.PARTITION_ID: range(4, 5),
    PartitioningKind.MESSAGES_KEY: range(256),
}


def _partitioning(variant: Variant) -> Partitioning:
    try:
        kind = PartitioningKind(variant.kind)
    except ValueError:
        raise UnknownDiscriminant(f"{variant.kind} is no PartitioningKind") from None
    if len(variant.value) not in _PARTITIONING_SIZES[kind]:
        raise InvalidField(
            f"{kind.name} does not take {len(variant.value)} bytes", status=INVALID_COMMAND
        )
    return Partitioning(kind, variant.value)


def _partitioning_variant(partitioning: Partitioning) -> Variant:
    if len(partitioning.value) not in _PARTITIONING_SIZES[partitioning.kind]:
        raise LocalProtocolError(
            f"{partitioning.kind.name} does not take {len(partitioning.value)} bytes"
        )
    return Variant(partitioning.kind, partitioning.value)


PARTITIONING = CompiledAdapter(VARIANT, _partitioning, _partitioning_variant, label="partitioning")


# Options: entries like user headers, with stricter rules, to the end or behind their size.


class TypedValue(NamedTuple):
    """The raw form of the key or the value of an option."""

    kind: int
    raw: bytes


class OptionEntry(NamedTuple):
    """One option."""

    key: str
    value: OptionValue


_TYPED_VALUE = RecordStruct(
    TypedValue, "kind" / U8, "raw" / LengthPrefixedBytes(U32, label="u32 length, bytes")
)
_OPTION_KINDS = {int(kind): kind for kind in HeaderKind}
_ENTRY_HEADS_BYTES = 2 * (1 + 4)


def _check_length(typed: TypedValue) -> None:
    if not 1 <= len(typed.raw) <= BYTES_MAX:
        raise InvalidField(
            f"an option has a key and a value of 1 to {BYTES_MAX} bytes, not {len(typed.raw)}",
            status=INVALID_COMMAND,
        )


def _option_key(typed: TypedValue) -> str:
    if typed.kind != HeaderKind.STRING:
        raise UnknownDiscriminant(f"the key of an option is a string, not of kind {typed.kind}")
    _check_length(typed)
    return _text(typed.raw)


def _option_value(typed: TypedValue) -> OptionValue:
    kind = _OPTION_KINDS.get(typed.kind)
    if kind is None:
        raise UnknownDiscriminant(f"{typed.kind} is no HeaderKind")
    _check_length(typed)
    try:
        return OptionValue(kind, typed.raw)
    except LocalProtocolError as error:
        raise InvalidField(error.message, status=StatusCode.INVALID_OPTION_VALUE) from None


_key_bytes = _text_bytes(BYTES_MAX, least=1)

OPTION_ENTRY = RecordStruct(
    OptionEntry,
    "key"
    / CompiledAdapter(
        _TYPED_VALUE,
        _option_key,
        lambda key: TypedValue(HeaderKind.STRING, _key_bytes(key)),
        label="u8 kind 2, u32 length, UTF-8",
    ),
    "value"
    / CompiledAdapter(
        _TYPED_VALUE,
        _option_value,
        lambda value: TypedValue(value.kind, value.raw),
        label="u8 kind, u32 length, bytes",
    ),
)


def _options_fault(entries: Iterable[OptionEntry]) -> tuple[str, int] | None:
    """Say what is wrong with a block of valid entries."""
    seen: set[str] = set()
    size = 0
    for key, value in entries:
        if key in seen:
            return f"the option {key!r} comes twice", INVALID_COMMAND
        seen.add(key)
        size += _ENTRY_HEADS_BYTES + len(key.encode()) + len(value.raw)
    if len(seen) > ENTRIES_MAX or size > BLOCK_BYTES_MAX:
        reason = f"{len(seen)} options of {size} bytes; allowed are {ENTRIES_MAX}"
        return f"{reason} of {BLOCK_BYTES_MAX} bytes", StatusCode.OPTIONS_TOO_LARGE
    return None


def _options(entries: tuple[OptionEntry, ...]) -> Options:
    fault = _options_fault(entries)
    if fault is not None:
        raise InvalidField(fault[0], status=fault[1])
    return Options(dict(entries))


def _option_entries(options: Options) -> tuple[OptionEntry, ...]:
    entries = tuple(OptionEntry(key, value) for key, value in options.items())
    fault = _options_fault(entries)
    if fault is not None:
        raise LocalProtocolError(fault[0])
    return entries


OPTIONS_TO_END = CompiledAdapter(
    StrictGreedyRange(OPTION_ENTRY), _options, _option_entries, label="options, to the end"
)
PREFIXED_OPTIONS = CompiledAdapter(
    SizePrefixedRange(OPTION_ENTRY), _options, _option_entries, label="u32 size, options"
)
