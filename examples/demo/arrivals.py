"""What arrived: tables and a picture, made of the Parquet files alone, without Spark.

Any tool that reads Parquet could do it; this one uses pyarrow and matplotlib.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib
import pyarrow.dataset  # type: ignore[import-untyped]  # it comes without types

from examples.demo.shop import KINDS, PARTITIONS

if TYPE_CHECKING:
    from pathlib import Path

    from examples.demo.clients import Counts

COLORS = ("#2b5797", "#5b9bd5", "#70ad47", "#c0504d")
COLUMNS = ["kind", "customer", "amount", "iggy_partition", "iggy_offset", "iggy_timestamp"]


class Sample(NamedTuple):
    """The counts at one moment of the demo."""

    elapsed_s: float
    produced: int
    consumed: int
    ingested: int


class Arrivals:
    """The rows of the Parquet files.

    Args:
        folder: where they are.
    """

    def __init__(self, folder: Path) -> None:
        files = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive")
        self._rows: dict[str, list[Any]] = files.to_table(columns=COLUMNS).to_pydict()

    @property
    def rows_count(self) -> int:
        """How many rows there are."""
        return len(self._rows["kind"])

    @property
    def messages_count(self) -> int:
        """How many messages the rows stand for; fewer than rows if one had come twice."""
        places = zip(self._rows["iggy_partition"], self._rows["iggy_offset"], strict=True)
        return len(set(places))

    def print_tables(self, counts: Counts) -> None:
        """Show what arrived, by partition and by customer."""
        ingested = Counter(self._rows["iggy_partition"])
        print("  partition   consumed   ingested")
        for number in range(PARTITIONS):
            print(f"  {number:>9} {counts.next_offsets[number]:>10,} {ingested[number]:>10,}")
        orders: Counter[str] = Counter(self._rows["customer"])
        amounts: defaultdict[str, float] = defaultdict(float)
        for customer, amount in zip(self._rows["customer"], self._rows["amount"], strict=True):
            amounts[customer] += amount
        print("\n  busiest customers     events       amount")
        for customer, number in orders.most_common(5):
            print(f"  {customer:<18} {number:>9,} {amounts[customer]:>12,.2f}")

    def draw(self, samples: list[Sample], path: Path) -> None:
        """Draw what arrived in each second, and how the three kept up with each other."""
        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, (above, below) = pyplot.subplots(2, figsize=(9, 6.5), layout="constrained")
        seconds = [moment.timestamp() for moment in self._rows["iggy_timestamp"]]
        first, last = int(min(seconds)), int(max(seconds))
        bottom = [0] * (last - first + 1)
        for kind, color in zip(KINDS, COLORS, strict=True):
            pairs = zip(seconds, self._rows["kind"], strict=True)
            counted = Counter(int(second) - first for second, one in pairs if one == kind)
            heights = [counted[at] for at in range(len(bottom))]
            above.bar(range(len(bottom)), heights, bottom=bottom, color=color, label=kind)
            bottom = [low + high for low, high in zip(bottom, heights, strict=True)]
        above.set(title="events in the Parquet files, by second", xlabel="s", ylabel="events")
        above.legend(loc="upper left", bbox_to_anchor=(1, 1))
        # The first two are mostly the same, so the one behind is wider.
        for name, color, width in zip(Sample._fields[1:], COLORS, (5, 2, 2), strict=False):
            values = [getattr(sample, name) for sample in samples]
            times = [one.elapsed_s for one in samples]
            below.step(times, values, color=color, linewidth=width, label=name)
        below.set(title="events in all", xlabel="s", ylabel="events")
        below.legend(loc="upper left", bbox_to_anchor=(1, 1))
        figure.savefig(path, format="svg")
        pyplot.close(figure)
