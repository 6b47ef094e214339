"""Options: the named, typed settings of streams, topics and users, from Apache Iggy 0.9 on.

A resource has explicit options, which a client has set, and derived ones, which the server chose.
``OPTIONS`` is the table of all that are known: what ``DescribeOptions`` answers, and what a server
checks a command against. Knows neither bytes nor commands; ``option_layouts`` does.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum, IntFlag
from types import MappingProxyType
from typing import ClassVar, Final, TypeAlias

from iggy_protocol.dialect import V0_11, V0_12_0, V0_12_2, ByDialect, Dialect
from iggy_protocol.errors import InvalidField, RuleViolation
from iggy_protocol.records import record
from iggy_protocol.status_table import StatusCode
from iggy_protocol.unit_text import parse_duration, parse_size
from iggy_protocol.user_headers import HeaderKind, HeaderScalar, HeaderValue

ENTRIES_MAX: Final = 1024
"""How many options a block may have; Apache Iggy 0.9 refuses more."""

BLOCK_BYTES_MAX: Final = 100_000
"""How long a block may be; Apache Iggy 0.9 refuses more."""

PREALLOCATED_BYTES_MAX: Final = 64 * 2**30
"""How much the segments of a topic may take when they are preallocated; 0.9 refuses more."""

_U32_MAX: Final = 2**32 - 1
_U64_MAX: Final = 2**64 - 1
_HIDDEN: Final = frozenset({"encryption_key"})


class OptionValue(HeaderValue):
    """The value of an option; the kinds are those of user headers."""

    __slots__ = ()
    NOUN: ClassVar[str] = "an option value"
    STATUS: ClassVar[StatusCode] = StatusCode.INVALID_OPTION_VALUE


class Options(Mapping[str, OptionValue]):
    """Options by key, in the order in which they were given; plain values get a kind by ``of``."""

    __slots__ = ("_values",)

    def __init__(
        self,
        values: Mapping[str, OptionValue | HeaderScalar] = MappingProxyType({}),
    ) -> None:
        self._values: dict[str, OptionValue] = {
            key: value if isinstance(value, OptionValue) else OptionValue.of(value)
            for key, value in values.items()
        }

    def __getitem__(self, key: str) -> OptionValue:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        shown = (
            f"{key!r}: {'<hidden>' if key in _HIDDEN else f'{value.kind.name} {value.raw!r}'}"
            for key, value in self._values.items()
        )
        return f"Options({{{', '.join(shown)}}})"


NO_OPTIONS: Final = Options()


class OptionScope(IntEnum):
    """The kind of resource that an option belongs to."""

    TOPIC = 1
    STREAM = 2
    USER = 3


class OptionFlags(IntFlag):
    """What may be done with an option; the values are those of the wire."""

    UPDATABLE = 1
    RESETTABLE = 2
    SECRET = 4
    READ_ONLY = 8
    CRITICAL = 16


@record
class OptionDescription:
    """An option as a server describes it.

    Attributes:
        default: the bytes of the default in this kind; none where there is no default.
        flags: what may be done with it; servers of 0.9 do not tell.
    """

    key: str
    kind: HeaderKind
    default: bytes
    description: str
    flags: OptionFlags = OptionFlags(0)


# The readers turn what a client may give into the value of the canonical kind. As in Apache Iggy,
# every value may also be a text as in a configuration file.

_Reader: TypeAlias = Callable[[HeaderScalar], HeaderScalar]


def _no_text(text: str) -> int:
    raise ValueError(f"{text!r} is no number")


def _number(allowed: range, parse: Callable[[str], int] = _no_text) -> _Reader:
    def read(given: HeaderScalar) -> int:
        number = given
        if isinstance(given, str):
            number = int(given) if given.isascii() and given.isdigit() else parse(given)
        if isinstance(number, bool) or not isinstance(number, int) or number not in allowed:
            raise ValueError(f"allowed are {allowed[0]} to {allowed[-1]}")
        return number

    return read


def _without_limit(parse: Callable[[str], int]) -> Callable[[str], int]:
    def read(text: str) -> int:
        if text.lower() in {"unlimited", "none", "never", "never_expire"}:
            return _U64_MAX
        return 0 if text.lower() in {"default", "server_default"} else parse(text)

    return read


def _choice(*texts: str) -> _Reader:
    def read(given: HeaderScalar) -> str:
        if not isinstance(given, str) or given not in texts:
            raise ValueError(f"allowed are {', '.join(texts)}")
        return given

    return read


def _boolean(given: HeaderScalar) -> bool:
    value = {"true": True, "false": False}.get(given, given) if isinstance(given, str) else given
    if not isinstance(value, bool):
        raise ValueError("allowed are true and false")
    return value


def _text(given: HeaderScalar) -> str:
    if not isinstance(given, str):
        raise ValueError("it is a text")
    return given


def _encryption_key(given: HeaderScalar) -> bytes:
    key = b64decode(given, validate=True) if isinstance(given, str) else given
    if not isinstance(key, bytes) or len(key) != 32:
        raise ValueError("a key has 32 bytes")
    return key


_WRITERS: Final[Mapping[HeaderKind, Callable[[HeaderScalar], OptionValue]]] = {
    HeaderKind.UINT32: lambda number: OptionValue.uint32(int(number)),
    HeaderKind.UINT64: lambda number: OptionValue.uint64(int(number)),
}


@record
class OptionSpec:
    """One row of the table.

    Attributes:
        kind: the kind in which a server reports the value.
        default: what a server takes where nothing is given; None where it has no value then.
        read: turns a value of any kind into one of this kind, or raises ValueError.
        flags: what may be done with the option in each dialect.
        since: the oldest dialect that knows the option.
        is_creatable: whether it may be given on creation.
    """

    scope: OptionScope
    key: str
    kind: HeaderKind
    read: _Reader
    description: str
    default: OptionValue | None = None
    flags: ByDialect[OptionFlags] = ByDialect(OptionFlags(0))
    since: Dialect = V0_11
    is_creatable: bool = True

    def value_of(self, scalar: HeaderScalar) -> OptionValue:
        """Return a value in the kind of this option."""
        return _WRITERS.get(self.kind, OptionValue.of)(scalar)

    def canonical(self, value: OptionValue) -> OptionValue:
        """Turn a value of any kind into one of the kind of this option.

        Raises:
            RuleViolation: the option cannot have this value (status 4042).
        """
        try:
            return self.value_of(self.read(value.value))
        except (ValueError, InvalidField) as error:
            reason = f"the option {self.key} cannot have this value: {error}"
        raise RuleViolation(reason, field="options", status=StatusCode.INVALID_OPTION_VALUE)

    def describe(self, dialect: Dialect) -> OptionDescription:
        """Return what a server says about the option."""
        default = b"" if self.default is None else self.default.raw
        return OptionDescription(
            self.key, self.kind, default, self.description, self.flags[dialect]
        )


_UPDATABLE: Final = ByDialect(OptionFlags.UPDATABLE)
_LIMIT_FLAGS: Final = ByDialect(
    OptionFlags.UPDATABLE, {V0_12_0: OptionFlags.UPDATABLE | OptionFlags.RESETTABLE}
)
_READ_ONLY: Final = ByDialect(OptionFlags.READ_ONLY)

_TOPIC, _STREAM, _USER = OptionScope.TOPIC, OptionScope.STREAM, OptionScope.USER
_DURABILITIES: Final = _choice("replicated", "persisted")


def _name(scope: OptionScope, key: str) -> OptionSpec:
    return OptionSpec(
        scope,
        key,
        HeaderKind.STRING,
        _text,
        "The name; given by a field of its own on creation",
        flags=_UPDATABLE,
        since=V0_12_0,
        is_creatable=False,
    )


def _reported(key: str, description: str) -> OptionSpec:
    return OptionSpec(
        _STREAM, key, HeaderKind.STRING, _text, description, flags=_READ_ONLY, since=V0_12_0
    )


OPTIONS: Final = (
    _name(_TOPIC, "name"),
    OptionSpec(
        _TOPIC,
        "compression_algorithm",
        HeaderKind.STRING,
        _choice("none", "gzip"),
        "A label that clients may agree on: none or gzip",
        OptionValue.string("none"),
        ByDialect(OptionFlags.UPDATABLE, {V0_12_0: OptionFlags(0)}),
    ),
    OptionSpec(
        _TOPIC,
        "message_expiry",
        HeaderKind.UINT64,
        _number(range(_U64_MAX + 1), _without_limit(parse_duration)),
        "Microseconds after which messages expire; 2^64 - 1 is never, 0 is the default",
        OptionValue.uint64(_U64_MAX),
        _LIMIT_FLAGS,
    ),
    OptionSpec(
        _TOPIC,
        "max_topic_size",
        HeaderKind.UINT64,
        _number(range(_U64_MAX + 1), _without_limit(parse_size)),
        "Bytes that the topic may have; 2^64 - 1 is unlimited, 0 is the default",
        OptionValue.uint64(_U64_MAX),
        _LIMIT_FLAGS,
    ),
    OptionSpec(
        _TOPIC,
        "segment_size",
        HeaderKind.UINT64,
        _number(range(2**20, 2**30 + 1, 512), parse_size),
        "Bytes of a segment: a multiple of 512 from 1 MiB to 1 GiB",
        OptionValue.uint64(2**30),
    ),
    OptionSpec(
        _TOPIC,
        "durability",
        HeaderKind.STRING,
        _DURABILITIES,
        "When a send is answered: replicated, or persisted on disk",
        OptionValue.string("replicated"),
    ),
    OptionSpec(
        _TOPIC,
        "consumer_offset_durability",
        HeaderKind.STRING,
        _DURABILITIES,
        "When a stored offset is answered: replicated, or persisted on disk",
        OptionValue.string("replicated"),
    ),
    OptionSpec(
        _TOPIC,
        "partition_resize_policy",
        HeaderKind.STRING,
        _choice("mutable", "fixed"),
        "Whether partitions may be added and deleted: mutable or fixed",
        OptionValue.string("mutable"),
        since=V0_12_0,
    ),
    OptionSpec(
        _TOPIC,
        "replication_factor",
        HeaderKind.UINT32,
        _number(range(1, _U32_MAX + 1)),
        "How many nodes hold each partition",
        OptionValue.uint32(1),
        since=V0_12_2,
    ),
    OptionSpec(
        _TOPIC,
        "messages_required_to_save",
        HeaderKind.UINT32,
        _number(range(1, 2**24 + 1)),
        "How many messages may wait in memory before they are written",
        OptionValue.uint32(1024),
    ),
    OptionSpec(
        _TOPIC,
        "size_of_messages_required_to_save",
        HeaderKind.UINT64,
        _number(range(2**30 + 1), parse_size),
        "How many bytes of messages may wait in memory before they are written",
        OptionValue.uint64(2**20),
    ),
    OptionSpec(
        _TOPIC,
        "preallocate_segments",
        HeaderKind.BOOL,
        _boolean,
        "Whether a segment takes its full size on disk at once",
        OptionValue.boolean(False),
    ),
    _name(_STREAM, "name"),
    OptionSpec(
        _STREAM,
        "encryption_key",
        HeaderKind.RAW,
        _encryption_key,
        "The key with which the server encrypts the stream: 32 bytes, or base64; never reported",
        flags=ByDialect(OptionFlags.SECRET),
        since=V0_12_0,
    ),
    _reported("encryption_key_source", "Where the key comes from: stream, server or none"),
    _reported("encryption_key_fingerprint", "Identifies the key of the stream"),
    _reported("encryption_kek_fingerprint", "Identifies the key that encrypts the stream's key"),
    _name(_USER, "username"),
    OptionSpec(
        _USER,
        "status",
        HeaderKind.STRING,
        _choice("active", "inactive"),
        "Whether the user may log in: active or inactive",
        flags=_UPDATABLE,
        since=V0_12_0,
        is_creatable=False,
    ),
)
"""All options that are known, in the order in which a server describes them."""


def options_of(scope: OptionScope, dialect: Dialect) -> Mapping[str, OptionSpec]:
    """Return the options of a kind of resource that a dialect knows, by key."""
    return {
        spec.key: spec
        for spec in OPTIONS
        if spec.scope is scope and dialect.is_vsr and spec.since.age <= dialect.age
    }


def option_spec(scope: OptionScope, key: str) -> OptionSpec:
    """Return the row of a key that is known."""
    return next(spec for spec in OPTIONS if spec.scope is scope and spec.key == key)


def derived_options(
    scope: OptionScope,
    dialect: Dialect,
    explicit: Options,
    values: Mapping[str, HeaderScalar] | None = None,
) -> Options:
    """Return what a server reports beside the explicit options.

    Args:
        scope: the kind of resource.
        dialect: the dialect of the client that asks.
        explicit: the options that a client has set.
        values: what the server chose; its defaults are those of the table where this says nothing.
    """
    chosen = values or {}
    derived: dict[str, OptionValue] = {}
    for key, spec in options_of(scope, dialect).items():
        default = spec.value_of(chosen[key]) if key in chosen else spec.default
        if default is not None and key not in explicit:
            derived[key] = default
    return Options(derived)


# What a server checks before it applies a command.


def _refusal(key: str, reason: str, status: StatusCode) -> RuleViolation:
    return RuleViolation(f"the option {key[:64]!r} {reason}", field="options", status=status)


def _known(scope: OptionScope, key: str, dialect: Dialect) -> OptionSpec:
    spec = options_of(scope, dialect).get(key)
    if spec is None:
        raise _refusal(key, "is unknown here", StatusCode.UNSUPPORTED_OPTION_KEY)
    if OptionFlags.READ_ONLY in spec.flags[dialect]:
        raise _refusal(key, "is reported only", StatusCode.OPTION_READ_ONLY)
    return spec


def check_created_options(scope: OptionScope, options: Options, dialect: Dialect) -> Options:
    """Check the options of a new resource, and return them in their canonical kinds.

    Raises:
        RuleViolation: a key is unknown (4041) or read-only (4105), or a value is wrong (4042).
    """
    checked = {}
    for key, value in options.items():
        spec = _known(scope, key, dialect)
        if not spec.is_creatable:
            raise _refusal(key, "has a field of its own", StatusCode.UNSUPPORTED_OPTION_KEY)
        checked[key] = spec.canonical(value)
    return Options(checked)


# A client of 0.9 knows no status for an option that stays, and would show it as a generic error.
_NOT_UPDATABLE: Final = ByDialect(
    StatusCode.UNSUPPORTED_OPTION_KEY, {V0_12_0: StatusCode.OPTION_NOT_UPDATABLE}
)


def check_updated_options(
    scope: OptionScope, options: Options, reset: Iterable[str], dialect: Dialect
) -> Options:
    """Check what an update sets and resets, and return what it sets in the canonical kinds.

    Raises:
        RuleViolation: a key is unknown (4041), not updatable (4103, to 0.9 4041), not resettable
            (4104) or read-only (4105), or a value is wrong (4042).
    """
    checked = {}
    for key, value in options.items():
        spec = _known(scope, key, dialect)
        if OptionFlags.UPDATABLE not in spec.flags[dialect]:
            raise _refusal(key, "cannot be changed", _NOT_UPDATABLE[dialect])
        checked[key] = spec.canonical(value)
    for key in sorted(reset):
        spec = _known(scope, key, dialect)
        if OptionFlags.RESETTABLE not in spec.flags[dialect]:
            raise _refusal(key, "has no default", StatusCode.OPTION_NOT_RESETTABLE)
    return Options(checked)
