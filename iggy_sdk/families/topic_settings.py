"""Settings of topics as users write them: expiry, size, compression, and options from 0.9 on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Literal, TypeAlias

from iggy_protocol import (
    NEVER_EXPIRES,
    SERVER_DEFAULT,
    UNLIMITED,
    CompressionAlgorithm,
    Dialect,
    HeaderScalar,
    InvalidField,
    Options,
    OptionScope,
    OptionValue,
    RuleViolation,
    StatusCode,
    options_of,
    record,
)
from iggy_protocol.rest import parse_size
from iggy_sdk.durations import Seconds, to_microseconds
from iggy_sdk.errors import (
    OTHER_GENERATION_ADVICE,
    InvalidRequestError,
    UnsupportedByServerError,
    error_from_protocol,
)

Expiry: TypeAlias = Seconds | Literal["never"] | None
"""How long messages are kept: a time span, ``"never"`` expiring, or None: as the server does."""

TopicSize: TypeAlias = int | str | None
"""How large a topic may get: bytes, ``"1 GB"``, ``"unlimited"``, or None: as the server does."""

CompressionLabel: TypeAlias = CompressionAlgorithm | Literal["none", "gzip"] | None
"""What a topic says about compression; the server itself never compresses."""


KeptExpiry: TypeAlias = Expiry | Literal["keep"]
KeptTopicSize: TypeAlias = TopicSize | Literal["keep"]
"""The same in an update, where servers from 0.9 on can keep what is set."""


def expiry_us(expiry: Expiry, *, name: str = "message_expiry") -> int:
    """Write an expiry as the wire wants it.

    Raises:
        InvalidRequestError: it is not longer than zero.
        ConfigurationError: it is no time span.
    """
    if expiry is None:
        return SERVER_DEFAULT
    if expiry == "never" or expiry == math.inf:
        return NEVER_EXPIRES
    micros = to_microseconds(expiry, name=name)
    if micros == 0:
        raise InvalidRequestError(
            f"{name} is {expiry!r}",
            advice='Give seconds or a timedelta above zero, "never", or None for the default.',
        )
    return micros


def size_bytes(size: TopicSize, *, name: str = "max_topic_size") -> int:
    """Write a size as the wire wants it.

    Raises:
        InvalidRequestError: it is no size, or not larger than zero.
    """
    if size is None:
        return SERVER_DEFAULT
    if size == "unlimited":
        return UNLIMITED
    try:
        count = parse_size(size) if isinstance(size, str) else size
    except InvalidField:
        count = 0
    if isinstance(size, bool) or not 0 < count <= UNLIMITED:
        raise InvalidRequestError(
            f"{name} is {size!r}",
            code=StatusCode.INVALID_SIZE_BYTES,
            advice='Give bytes above zero, "1 GB", "unlimited", or None for the default.',
        )
    return count


def compression_of(label: CompressionLabel) -> CompressionAlgorithm:
    """Take the label of a topic.

    Raises:
        InvalidRequestError: there is no such label.
    """
    if isinstance(label, CompressionAlgorithm):
        return label
    try:
        return CompressionAlgorithm["NONE" if label is None else label.upper()]
    except KeyError:
        raise InvalidRequestError(
            f"compression_algorithm is {label!r}", advice='Give "none" or "gzip".'
        ) from None


# Options: settings with a name, which servers have from 0.9 on.


Durability: TypeAlias = Literal["replicated", "persisted"]
"""When a write is answered: when it is replicated, or when it is on the disk as well."""


@record(kw_only=True)
class TopicOptions:
    """What a topic is created with, beside what every generation knows; None is the default.

    Attributes:
        durability: when a send is answered.
        consumer_offset_durability: when a stored offset is answered.
        segment_size: bytes of a segment, or a text such as ``"128 MiB"``; a multiple of 512.
        messages_required_to_save: how many messages may wait in memory.
        size_of_messages_required_to_save: how many bytes of messages may wait in memory.
        preallocate_segments: whether a segment takes its full size on the disk at once.
        partition_resize_policy: whether partitions may be added and deleted; from 0.10 on.
    """

    durability: Durability | None = None
    consumer_offset_durability: Durability | None = None
    segment_size: int | str | None = None
    messages_required_to_save: int | None = None
    size_of_messages_required_to_save: int | str | None = None
    preallocate_segments: bool | None = None
    partition_resize_policy: Literal["mutable", "fixed"] | None = None


GivenOptions: TypeAlias = Mapping[str, HeaderScalar | OptionValue]
"""Options by key, as ``describe_options`` names them."""


def options_for(
    scope: OptionScope, given: TopicOptions | GivenOptions | None, dialect: Dialect
) -> Options:
    """Write options as the wire wants them; values get the kind that servers report them in.

    Raises:
        UnsupportedByServerError: the generation of the server does not have one of them.
        InvalidRequestError: an option cannot have its value.
    """
    if isinstance(given, TopicOptions):
        values = {field.name: getattr(given, field.name) for field in fields(given)}
        given = {key: value for key, value in values.items() if value is not None}
    if not given:
        return Options()
    known = options_of(scope, dialect)
    of_any = options_of(scope, max(Dialect, key=lambda one: one.age))
    written: dict[str, OptionValue | HeaderScalar] = {}
    for key, value in given.items():
        if not dialect.is_vsr or (key in of_any and key not in known):
            raise UnsupportedByServerError(
                f"the server speaks {dialect}, which does not have the option {key}",
                advice=OTHER_GENERATION_ADVICE,
            )
        option = value if isinstance(value, OptionValue) else OptionValue.of(value)
        # A server may know more keys than this client.
        try:
            written[key] = known[key].canonical(option) if key in known else option
        except RuleViolation as error:
            raise error_from_protocol(error) from error
    return Options(written)
