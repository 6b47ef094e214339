"""Settings of topics as users write them: expiry, size and compression."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from iggy_protocol import (
    NEVER_EXPIRES,
    SERVER_DEFAULT,
    UNLIMITED,
    CompressionAlgorithm,
    InvalidField,
    StatusCode,
)
from iggy_protocol.rest import parse_size
from iggy_sdk.durations import Seconds, to_microseconds
from iggy_sdk.errors import InvalidRequestError

Expiry: TypeAlias = Seconds | Literal["never"] | None
"""How long messages are kept: a time span, ``"never"`` expiring, or None: as the server does."""

TopicSize: TypeAlias = int | str | None
"""How large a topic may get: bytes, ``"1 GB"``, ``"unlimited"``, or None: as the server does."""

CompressionLabel: TypeAlias = CompressionAlgorithm | Literal["none", "gzip"] | None
"""What a topic says about compression; the server itself never compresses."""


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
