"""Ranges of partitions, offsets and times: what a query leaves to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Span(NamedTuple):
    """Whole numbers from a first one up to one that is not included; None is no bound."""

    first: int | None = None
    after: int | None = None

    def __and__(self, other: Span) -> Span:
        """Return the numbers that are in both."""
        firsts = [one for one in (self.first, other.first) if one is not None]
        afters = [one for one in (self.after, other.after) if one is not None]
        return Span(max(firsts, default=None), min(afters, default=None))

    def __or__(self, other: Span) -> Span:
        """Return the smallest span that has the numbers of either."""
        if self.is_empty or other.is_empty:
            return other if self.is_empty else self
        return Span(_outer(min, self.first, other.first), _outer(max, self.after, other.after))

    def __contains__(self, number: object) -> bool:
        assert isinstance(number, int)
        return (self.first is None or number >= self.first) and (
            self.after is None or number < self.after
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is no number in it."""
        return self.first is not None and self.after is not None and self.first >= self.after


def _outer(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    """Return the bound that leaves out less."""
    return None if one is None or other is None else choose(one, other)


EVERYTHING = Span()
NOTHING = Span(0, 0)


class RowSpans(NamedTuple):
    """The rows that a query may want: those outside of any span cannot match.

    Attributes:
        partitions: numbers of partitions.
        offsets: offsets, in all partitions.
        times: microseconds since 1970 at which the server stored the message.
    """

    partitions: Span = EVERYTHING
    offsets: Span = EVERYTHING
    times: Span = EVERYTHING

    def __and__(self, other: RowSpans) -> RowSpans:
        """Return what both leave."""
        return RowSpans(*(mine & theirs for mine, theirs in zip(self, other, strict=True)))

    def __or__(self, other: RowSpans) -> RowSpans:
        """Return spans that have all that either leaves."""
        if self.is_empty or other.is_empty:
            return other if self.is_empty else self
        return RowSpans(*(mine | theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def is_empty(self) -> bool:
        """Whether no row can match."""
        return any(span.is_empty for span in self)


ALL_ROWS = RowSpans()
NO_ROWS = RowSpans(offsets=NOTHING)
