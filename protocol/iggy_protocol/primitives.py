"""The primitive encodings of the wire, each declared once.

All integers are little-endian. An undefined discriminant, a text that is not UTF-8 and a
truncated field have status 3; a complete field that breaks its own rule (an empty name, a number
that is not four bytes) has status 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from construct import Flag, Float32l, Int8ul, Int16ul, Int32ul, Int64ul

from iggy_protocol.errors import (
    INVALID_COMMAND,
    InvalidField,
    LocalProtocolError,
    UnknownDiscriminant,
)
from iggy_protocol.fields import CompiledAdapter, Field, LengthPrefixedBytes, RecordStruct
from iggy_protocol.model.identifier import (
    Consumer,
    ConsumerKind,
    Identifier,
    Partitioning,
    PartitioningKind,
    PollingKind,
    PollingStrategy,
)

if TYPE_CHECKING:
    from collections.abc import Callable
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


def discriminant(kinds: type[E]) -> CompiledAdapter:
    """Declare a byte that must be a member of ``kinds``."""

    def decode(code: int) -> E:
        try:
            return kinds(code)
        except ValueError:
            raise UnknownDiscriminant(f"{code} is no {kinds.__name__}") from None

    def encode(kind: E) -> int:
        try:
            return int(kinds(kind))
        except ValueError:
            raise LocalProtocolError(f"{kind!r} is no {kinds.__name__}") from None

    return CompiledAdapter(U8, decode, encode, label="u8")


def optional_number(number: Field, absent: int, label: str) -> CompiledAdapter:
    """Declare a number with one value that means ``None``."""
    return CompiledAdapter(
        number,
        lambda value: None if value == absent else value,
        lambda value: absent if value is None else value,
        label=label,
    )


def counted(record: RecordStruct, *, count: str, elements: str) -> CompiledAdapter:
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

    return CompiledAdapter(record, check, check_local)


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

CONSUMER = RecordStruct(Consumer, "kind" / discriminant(ConsumerKind), "id" / IDENTIFIER)
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
