"""The events of a shop: orders that are placed, paid, shipped or cancelled by customers.

A few customers order most of what is ordered, and the rate varies over time.
The same seed gives the same events. Run it with ``python -m examples.demo.shop`` to see some.
"""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAM, TOPIC, PARTITIONS = "shop", "orders", 4
SCHEMA = (
    "order_id BIGINT NOT NULL, kind STRING NOT NULL, customer STRING, country STRING, "
    "amount DOUBLE, at TIMESTAMP"
)
KINDS = {"placed": 50, "paid": 30, "shipped": 15, "cancelled": 5}
COUNTRIES = ("DE", "FR", "PL", "ES", "IT")
CUSTOMERS = 500
SEED = 20_261_117

RATE_MEAN = 1500
"""Events of a second, on average."""

WAVE_SECONDS = 8.0
"""From one rush to the next."""


def events(start: datetime, *, seed: int = SEED) -> Iterator[dict[str, Any]]:
    """Make events without end."""
    dice = random.Random(seed)
    # The customer of rank n orders 1/n as much as the first.
    skew = list(accumulate(1 / rank for rank in range(1, CUSTOMERS + 1)))
    at = start
    order_id = 0
    while True:
        (rank,) = dice.choices(range(CUSTOMERS), cum_weights=skew)
        (kind,) = dice.choices(list(KINDS), weights=list(KINDS.values()))
        order_id += kind == "placed" or not order_id
        yield {
            "order_id": order_id,
            "kind": kind,
            "customer": f"customer-{rank:03}",
            "country": COUNTRIES[rank % len(COUNTRIES)],
            "amount": round(dice.lognormvariate(3, 0.8), 2),
            "at": at.isoformat(),
        }
        at += timedelta(seconds=1 / RATE_MEAN)


def rate(elapsed_s: float) -> float:
    """Return how many events of a second there are at a moment."""
    return RATE_MEAN * (1 + 0.6 * math.sin(2 * math.pi * elapsed_s / WAVE_SECONDS))


def main() -> None:
    """Print the first events."""
    for event in islice(events(datetime(2026, 11, 17, 12, tzinfo=UTC)), 5):
        print(event)


if __name__ == "__main__":
    main()
