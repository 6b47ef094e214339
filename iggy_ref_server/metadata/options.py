"""The options of streams, topics and users: which a client has set, and how they are reported.

A record keeps the options that a client has set; all others are derived from the server's settings
when they are reported. Three options of a topic have fields in its record, because commands of the
classic dialect have fields for them. The record names those of the three that are derived.

What a client may set is in the table of the protocol.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from iggy_protocol import (
    NO_OPTIONS,
    PREALLOCATED_BYTES_MAX,
    SERVER_DEFAULT,
    V0_12_2,
    CreateTopic,
    Dialect,
    HeaderKind,
    HeaderScalar,
    OptionDescription,
    OptionFlags,
    Options,
    OptionScope,
    OptionValue,
    ReportedOptions,
    StatusCode,
    UpdateTopic,
    check_created_options,
    derived_options,
    options_of,
)
from iggy_ref_server.faults import ServerFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iggy_ref_server.metadata.state import (
        MetadataSettings,
        StreamRecord,
        TopicRecord,
        UserRecord,
    )


# How options are stored.


class StoredOption(msgspec.Struct, frozen=True, array_like=True):
    """An option in the log and in snapshots."""

    key: str
    kind: HeaderKind
    value: bytes


def store_options(options: Options) -> tuple[StoredOption, ...]:
    """Write options, sorted by key, so that equal ones have equal bytes."""
    return tuple(StoredOption(key, value.kind, value.raw) for key, value in sorted(options.items()))


def restore_options(stored: Iterable[StoredOption]) -> Options:
    """Read options that ``store_options`` has written."""
    return Options({one.key: OptionValue(one.kind, one.value) for one in stored})


# What commands set.


FIELDS: Final = MappingProxyType(
    {
        "compression_algorithm": "compression",
        "message_expiry": "message_expiry_us",
        "max_topic_size": "max_topic_size_bytes",
    }
)
"""The options of a topic with fields in commands, by key."""

REPLICATION_FACTOR: Final = "replication_factor"
NODES_COUNT: Final = 1
_NAMES_NOTHING: Final = CreateTopic(0, "t", 0)


class CreatedTopicOptions(NamedTuple):
    """What the record of a topic holds: options without fields, and which fields are derived."""

    options: Options
    derived: frozenset[str]


def created_topic_options(command: CreateTopic, dialect: Dialect) -> CreatedTopicOptions:
    """Return the options of a new topic.

    Raises:
        ServerFault: it shall have more than one copy.
        RuleViolation: an option is unknown, or its value is wrong.
    """
    if not dialect.is_vsr:
        # A classic command has values for all fields, so all of them are set.
        return CreatedTopicOptions(NO_OPTIONS, frozenset())
    given = check_created_options(OptionScope.TOPIC, command.options, dialect)
    by_field = {
        key
        for key, field in FIELDS.items()
        if getattr(command, field) != getattr(_NAMES_NOTHING, field)
    }
    kept = {key: value for key, value in given.items() if key not in FIELDS}
    if command.replication_factor != SERVER_DEFAULT:
        kept[REPLICATION_FACTOR] = _checked_factor(command.replication_factor)
    return CreatedTopicOptions(Options(kept), frozenset(FIELDS) - by_field - given.keys())


def _checked_factor(factor: int) -> OptionValue:
    if factor != NODES_COUNT:
        raise ServerFault(
            StatusCode.INVALID_OPTION_VALUE,
            f"a topic cannot have {factor} copies: the server is a single node",
        )
    return OptionValue.uint32(factor)


def updated_derived(
    derived: frozenset[str], command: UpdateTopic, dialect: Dialect
) -> frozenset[str]:
    """Return which fields of a topic are derived after an update."""
    if not dialect.is_vsr:
        return frozenset()
    specs = options_of(OptionScope.TOPIC, dialect)
    for key, field in FIELDS.items():
        value = getattr(command, field)
        if value is None:
            continue
        # In dialects that can reset an option, the field says so by this value. In others it is
        # an order to take the server's default.
        is_reset = value == SERVER_DEFAULT and OptionFlags.RESETTABLE in specs[key].flags[dialect]
        derived = derived | {key} if is_reset else derived - {key}
    return derived


def created_stream_options(options: Options, dialect: Dialect) -> Options:
    """Return the options of a new stream.

    Raises:
        ServerFault: it shall be encrypted with a key of its own.
        RuleViolation: an option is unknown, or its value is wrong.
    """
    checked = check_created_options(OptionScope.STREAM, options, dialect)
    if "encryption_key" in checked:
        raise ServerFault(
            StatusCode.STREAM_ENCRYPTION_UNAVAILABLE,
            "the server encrypts all streams with its own key, or none",
        )
    return checked


# What options mean for plans. What they mean for partitions is in ``shard.settings``.


def segment_size_of(options: Options, settings: MetadataSettings) -> int:
    """Return the size of the segments of a topic with these options, in any kind."""
    own = options.get("segment_size")
    if own is None:
        return settings.segment_size_bytes
    spec = options_of(OptionScope.TOPIC, V0_12_2)["segment_size"]
    return int(spec.canonical(own).value)


def durability_of(options: Options, settings: MetadataSettings) -> str:
    """Return when a send to a topic with these options is answered."""
    own = options.get("durability")
    return str(topic_defaults(settings)["durability"] if own is None else own.value)


def check_preallocation(
    options: Options, partitions_count: int, settings: MetadataSettings
) -> None:
    """Refuse partitions whose first segments would take too much of the disk at once.

    Raises:
        ServerFault: they would.
    """
    preallocates = options.get("preallocate_segments")
    if preallocates is None or not preallocates.value:
        return
    size_bytes = segment_size_of(options, settings) * partitions_count
    if size_bytes > PREALLOCATED_BYTES_MAX:
        raise ServerFault(
            StatusCode.INVALID_OPTION_VALUE,
            f"preallocated segments of {partitions_count} partitions would take {size_bytes} bytes;"
            f" {PREALLOCATED_BYTES_MAX} are allowed",
        )


def has_fixed_partitions(topic: TopicRecord) -> bool:
    """Tell whether no partition may be added to a topic, nor removed."""
    policy = topic.options.get("partition_resize_policy")
    return policy is not None and policy.value == "fixed"


# What is reported.


_NOTHING: Final = ReportedOptions()


def _report(
    scope: OptionScope,
    dialect: Dialect,
    explicit: Mapping[str, OptionValue],
    values: Mapping[str, HeaderScalar],
) -> ReportedOptions:
    known = options_of(scope, dialect)
    told = Options({key: explicit[key] for key in sorted(explicit) if key in known})
    return ReportedOptions(told, derived_options(scope, dialect, told, values))


def report_topic_options(
    topic: TopicRecord, dialect: Dialect, settings: MetadataSettings
) -> ReportedOptions:
    """Return the explicit and the derived options of a topic as clients of a dialect know them."""
    if not dialect.is_vsr:
        return _NOTHING
    own: dict[str, HeaderScalar] = {
        "compression_algorithm": topic.compression.name.lower(),
        "message_expiry": topic.message_expiry_us,
        "max_topic_size": topic.max_size_bytes,
    }
    specs = options_of(OptionScope.TOPIC, dialect)
    explicit = {key: specs[key].value_of(own[key]) for key in FIELDS if key not in topic.derived}
    values = {**own, **topic_defaults(settings)}
    return _report(OptionScope.TOPIC, dialect, {**explicit, **topic.options}, values)


def topic_defaults(settings: MetadataSettings) -> dict[str, HeaderScalar]:
    """Return what a topic has that sets none of the options without fields."""
    durability = "persisted" if settings.is_persisted else "replicated"
    return {
        "segment_size": settings.segment_size_bytes,
        "durability": durability,
        "consumer_offset_durability": durability,
        "messages_required_to_save": settings.messages_required_to_save,
        "size_of_messages_required_to_save": settings.bytes_required_to_save,
    }


def describe_options(
    scope: OptionScope, dialect: Dialect, settings: MetadataSettings
) -> tuple[OptionDescription, ...]:
    """Return the options of a kind of resource, with the defaults that this server has."""
    defaults: dict[str, HeaderScalar] = {}
    if scope is OptionScope.TOPIC:
        defaults = {
            **topic_defaults(settings),
            "message_expiry": settings.message_expiry_us,
            "max_topic_size": settings.max_topic_size_bytes,
        }
    described = []
    for key, spec in options_of(scope, dialect).items():
        description = spec.describe(dialect)
        if key in defaults:
            description = replace(description, default=spec.value_of(defaults[key]).raw)
        described.append(description)
    return tuple(described)


def report_stream_options(
    stream: StreamRecord, dialect: Dialect, settings: MetadataSettings
) -> ReportedOptions:
    """Return the explicit and the derived options of a stream as clients of a dialect know them."""
    if not dialect.is_vsr:
        return _NOTHING
    values = {"encryption_key_source": "server" if settings.is_encrypted else "none"}
    return _report(OptionScope.STREAM, dialect, stream.options, values)


def report_user_options(user: UserRecord, dialect: Dialect) -> ReportedOptions:
    """Return the explicit and the derived options of a user as clients of a dialect know them."""
    return _report(OptionScope.USER, dialect, user.options, {}) if dialect.is_vsr else _NOTHING
