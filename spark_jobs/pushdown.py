"""Filters of a query that limit what is polled.

Filters on topic, partition and offset are applied exactly, so Spark need not apply them. Filters on
the time only exclude what cannot match, and Spark applies them as well.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.offsets import Offsets, Position, TopicPartition, microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.datasource import Filter

    from spark_jobs.options import ReadOptions


# How far each comparison moves the first value, and the value after the last. Filters go by their
# names, because PySpark 4.0 has no classes for them.
_FIRST: Final[Mapping[str, int]] = {"EqualTo": 0, "GreaterThan": 1, "GreaterThanOrEqual": 0}
_AFTER: Final[Mapping[str, int]] = {"EqualTo": 1, "LessThan": 0, "LessThanOrEqual": 1}
_NEVER_NULL: Final = frozenset(
    {"stream", "topic", "partition", "offset", "timestamp", "origin_timestamp", "id", "payload"}
)


class NumberRange:
    """Whole numbers from a first one up to one that is not included; None is no bound."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.after: int | None = None

    def narrow(self, comparison: str, value: int) -> bool:
        """Apply a comparison; return whether it is supported."""
        if comparison not in _FIRST and comparison not in _AFTER:
            return False
        if comparison in _FIRST:
            first = value + _FIRST[comparison]
            self.first = first if self.first is None else max(self.first, first)
        if comparison in _AFTER:
            after = value + _AFTER[comparison]
            self.after = after if self.after is None else min(self.after, after)
        return True

    def __contains__(self, value: int) -> bool:
        return (self.first is None or value >= self.first) and (
            self.after is None or value < self.after
        )


class PushedFilters:
    """The filters of a query, and what is left to read."""

    def __init__(self) -> None:
        self._topics: set[str] | None = None
        self._partitions: set[int] | None = None
        self._numbers = NumberRange()
        self._offsets = NumberRange()
        self._times = NumberRange()

    def take_filter(self, given: Filter) -> bool:
        """Take a filter; return whether Spark need not apply it."""
        attribute: tuple[str, ...] = getattr(given, "attribute", ())
        if len(attribute) != 1:
            return False
        if _name(given) == "IsNotNull":
            return attribute[0] in _NEVER_NULL
        narrower = _NARROWERS.get(attribute[0])
        return narrower is not None and narrower(self, given, getattr(given, "value", None))

    def _narrow_topics(self, given: Filter, value: Any) -> bool:
        wanted = _wanted(given, value, str)
        if wanted is not None:
            self._topics = wanted if self._topics is None else self._topics & wanted
        return wanted is not None

    def _narrow_partitions(self, given: Filter, value: Any) -> bool:
        wanted = _wanted(given, value, int)
        if wanted is not None:
            self._partitions = wanted if self._partitions is None else self._partitions & wanted
            return True
        return isinstance(value, int) and self._numbers.narrow(_name(given), value)

    def _narrow_offsets(self, given: Filter, value: Any) -> bool:
        return isinstance(value, int) and self._offsets.narrow(_name(given), value)

    def _narrow_times(self, given: Filter, value: Any) -> bool:
        if isinstance(value, datetime):
            self._times.narrow(_name(given), microseconds(value))
        return False

    def narrow(
        self, options: ReadOptions, start: Offsets, end: Offsets, ends: Offsets
    ) -> tuple[Offsets, Offsets]:
        """Narrow the offsets to read; times are resolved by the server."""
        from spark_jobs.topics import resolve

        kept = {place: ends[place] for place in ends if self._wants(place)}
        first = dict.fromkeys(kept, self._offsets.first or 0)
        after = dict.fromkeys(kept, self._offsets.after)
        since, until = self._times.first, self._times.after
        if since is not None:
            since_offsets = resolve(options, _time(since), kept, name="timestamp")
            first = {place: max(first[place], since_offsets[place]) for place in kept}
        if until is not None:
            until_offsets = resolve(options, _time(until), kept, name="timestamp")
            after = {place: _least(after[place], until_offsets[place]) for place in kept}
        return (
            {place: max(start[place], first[place]) for place in kept},
            {place: _least(after[place], min(end[place], ends[place])) for place in kept},
        )

    def _wants(self, place: TopicPartition) -> bool:
        return (
            (self._topics is None or place.topic in self._topics)
            and (self._partitions is None or place.partition in self._partitions)
            and place.partition in self._numbers
        )


def _name(given: Filter) -> str:
    return type(given).__name__


def _wanted(given: Filter, value: Any, kind: type[Any]) -> set[Any] | None:
    """Return the values that a filter allows, if it lists them."""
    name = _name(given)
    values = [value] if name == "EqualTo" else value if name == "In" else None
    if values is None or not all(isinstance(one, kind) for one in values):
        return None
    return set(values)


def _time(timestamp_us: int) -> Position:
    return Position("timestamp", timestamp_us=max(0, timestamp_us))


def _least(bound: int | None, value: int) -> int:
    return value if bound is None else min(bound, value)


_NARROWERS: Final[Mapping[str, Callable[[PushedFilters, Filter, Any], bool]]] = {
    "topic": PushedFilters._narrow_topics,
    "partition": PushedFilters._narrow_partitions,
    "offset": PushedFilters._narrow_offsets,
    "timestamp": PushedFilters._narrow_times,
}
