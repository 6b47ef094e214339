"""Latencies in a histogram of fixed size: counts of durations whose bounds grow by an eighth."""

from __future__ import annotations

import math
from typing import Final

from iggy_sdk.statistics import LatencySummary

SHORTEST_SECONDS: Final = 1e-6
"""Shorter durations count as this one."""

STEPS: Final = 8
"""Into how many parts a doubling is divided: percentiles are right to about 9 %."""

BUCKETS: Final = STEPS * 32
"""Up to 4,000 seconds; longer durations are in the last bucket."""


class LatencyHistogram:
    """Counts durations; its size does not depend on how many there are."""

    __slots__ = ("_counts", "_longest", "_total", "count")

    def __init__(self) -> None:
        self.count: int = 0
        self._counts = [0] * BUCKETS
        self._total = 0.0
        self._longest = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        bucket = 0
        if seconds > SHORTEST_SECONDS:
            bucket = min(math.ceil(STEPS * math.log2(seconds / SHORTEST_SECONDS)), BUCKETS - 1)
        self._counts[bucket] += 1
        self.count += 1
        self._total += seconds
        self._longest = max(self._longest, seconds)

    def summary(self) -> LatencySummary:
        """Return the figures of all durations so far."""
        return LatencySummary(
            count=self.count,
            mean_s=self._total / self.count if self.count else 0.0,
            p50_s=self._percentile(0.50),
            p99_s=self._percentile(0.99),
            max_s=self._longest,
        )

    def _percentile(self, share: float) -> float:
        """Return the upper bound of the bucket that holds this share of the durations."""
        wanted, seen = share * self.count, 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(SHORTEST_SECONDS * 2 ** (bucket / STEPS), self._longest)
        return 0.0
