"""Offsets and positions: how they are written, compared and limited.

An offset of a query is one number per partition, the next message to read. Spark stores offsets as
text and compares the texts, so they are written in one canonical order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from spark_jobs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class TopicPartition(NamedTuple):
    """One partition of one of the topics that are read."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"topic {self.topic!r} partition {self.partition}"


Offsets: TypeAlias = dict[TopicPartition, int]
"""The next offset to read of each partition."""

LATEST_MARK = -1
EARLIEST_MARK = -2
"""Numbers that stand for the ends of a partition, as in Spark's Kafka source."""

START_KEY = "start"
IDENTITY_KEY = "identity"
"""What a checkpoint holds of a topic beside the offsets; see ``query_offset``."""

MILLISECONDS_MAX = 100_000_000_000_000
"""The year 5138. A larger number is most likely in microseconds."""


@dataclass(frozen=True)
class Position:
    """Where reading begins or ends.

    Attributes:
        kind: how it is specified.
        offsets: for each partition, if specified so; -2 is the earliest, -1 the latest.
        timestamp_us: the time, if specified so.
        timestamps_us: the time of each partition, if specified so.
        needs_message: whether a time needs a message from then on; otherwise it means the end of a
            partition that has none.
    """

    kind: Literal["earliest", "latest", "offsets", "timestamp"]
    offsets: Mapping[TopicPartition, int] | None = None
    timestamp_us: int | None = None
    timestamps_us: Mapping[TopicPartition, int] | None = None
    needs_message: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether it resolves to the same offsets at any time, apart from retention."""
        if self.offsets is not None:
            return LATEST_MARK not in self.offsets.values()
        return self.kind == "earliest"


EARLIEST = Position("earliest")
LATEST = Position("latest")


def write_offsets(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Write offsets for Spark, by topic and by the number of the partition."""
    written: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        written.setdefault(topic, {})[str(partition)] = offset
    return written


def read_offsets(written: Mapping[str, Any]) -> Offsets:
    """Read the offsets of what ``write_offsets``, or Spark's checkpoint of a query, holds.

    Raises:
        OptionError: they are of another source, as in a checkpoint of another query.
    """
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in written.items()
            for partition, offset in partitions.items()
            if partition not in (START_KEY, IDENTITY_KEY)
        }
    except (AttributeError, TypeError, ValueError):
        raise OptionError(
            f"the checkpoint holds offsets that are not of an Iggy topic: {written!r}; "
            "give each query a checkpointLocation of its own"
        ) from None


def read_position(name: str, text: str, topics: tuple[str, ...]) -> Position:
    """Read an option such as ``startingOffsets``.

    Args:
        name: the option.
        text: ``earliest``, ``latest`` or JSON.
        topics: those that are read; with a single one the JSON need not name it. Empty where a
            pattern says which.

    Raises:
        OptionError: it is neither.
    """
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    try:
        offsets = _read_places(text, topics, _offset)
    except ValueError:
        form = _form(topics, "23", "-2")
        raise OptionError(
            f"{name} is {text!r}; give earliest, latest, or offsets as {form}, "
            "where -2 is the earliest and -1 the latest"
        ) from None
    _check_topics(name, offsets, topics)
    return Position("offsets", offsets)


def read_timestamps(
    name: str, text: str, topics: tuple[str, ...], *, needs_message: bool = False
) -> Position:
    """Read an option such as ``startingOffsetsByTimestamp``.

    Args:
        name: the option.
        text: JSON with milliseconds since 1970 for each partition.
        topics: as in ``read_position``.
        needs_message: whether there has to be a message from then on.

    Raises:
        OptionError: it is something else.
    """
    try:
        times = _read_places(text, topics, _milliseconds)
    except ValueError:
        form = _form(topics, "1769860800000", "1769864400000")
        raise OptionError(
            f"{name} is {text!r}; give milliseconds since 1970 for each partition, as {form}"
        ) from None
    _check_topics(name, times, topics)
    times_us = {at: 1000 * milliseconds for at, milliseconds in times.items()}
    return Position("timestamp", timestamps_us=times_us, needs_message=needs_message)


def _form(topics: tuple[str, ...], first: str, second: str) -> str:
    partitions = f'{{"0": {first}, "1": {second}}}'
    return partitions if len(topics) == 1 else f'{{"topic": {partitions}}}'


def _read_places(
    text: str, topics: tuple[str, ...], read: Callable[[object], int]
) -> dict[TopicPartition, int]:
    """Read JSON with a number for each partition.

    Raises:
        ValueError: it is no such JSON.
    """
    given = json.loads(text)
    if not isinstance(given, dict) or not given:
        raise ValueError(text)
    if len(topics) == 1 and not any(isinstance(value, dict) for value in given.values()):
        given = {topics[0]: given}
    if not all(isinstance(value, dict) for value in given.values()):
        raise ValueError(text)
    return {
        TopicPartition(topic, int(partition)): read(value)
        for topic, partitions in given.items()
        for partition, value in partitions.items()
    }


def _check_topics(name: str, given: Iterable[TopicPartition], topics: tuple[str, ...]) -> None:
    unknown_topics = sorted({place.topic for place in given} - set(topics)) if topics else []
    if unknown_topics:
        raise OptionError(f"{name} names {unknown_topics}, which the option topic does not")


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST_MARK:
        raise ValueError(value)
    return value


def _milliseconds(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MILLISECONDS_MAX:
        raise ValueError(value)
    return value


def read_timestamp(name: str, text: str, *, needs_message: bool = False) -> Position:
    """Read an option such as ``startingTimestamp``.

    Args:
        name: the option.
        text: milliseconds since 1970, or a date and time of ISO 8601; UTC unless it has a zone.
        needs_message: whether there has to be a message from then on.

    Raises:
        OptionError: it is neither.
    """
    try:
        if text.strip().isdigit():
            milliseconds = int(text)
            if milliseconds > MILLISECONDS_MAX:
                raise ValueError
            return Position(
                "timestamp", timestamp_us=1000 * milliseconds, needs_message=needs_message
            )
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise OptionError(
            f"{name} is {text!r}; give milliseconds since 1970, or a time as 2026-01-31T12:00:00Z"
        ) from None
    return Position("timestamp", timestamp_us=microseconds(moment), needs_message=needs_message)


def microseconds(moment: datetime) -> int:
    """Count the microseconds since 1970; a time without a zone is UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def limit_offsets(start: Offsets, end: Offsets, limit: int) -> Offsets:
    """Move the end so that at most ``limit`` messages lie before it.

    Every partition with unread messages gets one message first, those with most of them if the
    limit is too small for all. The rest of the limit is divided in proportion to the other unread
    messages, and the rounding remainder goes to the largest fractions. So no partition starves, the
    limit is used up, and a partition with more unread messages never gets fewer.
    """
    waiting = {place: end[place] - start[place] for place in end if end[place] > start[place]}
    total = sum(waiting.values())
    if total <= limit:
        return dict(end)
    fullest = sorted(waiting, key=lambda place: (-waiting[place], place))
    shares = dict.fromkeys(end, 0) | dict.fromkeys(fullest[:limit], 1)
    rest, others = limit - len(waiting), total - len(waiting)
    if rest > 0:
        remainders = {}
        for place, count in waiting.items():
            more, remainders[place] = divmod((count - 1) * rest, others)
            shares[place] += more
        left = limit - sum(shares.values())
        for place in sorted(waiting, key=lambda place: (-remainders[place], place))[:left]:
            shares[place] += 1
    return {place: start[place] + shares[place] for place in end}
