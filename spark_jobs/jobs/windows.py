"""Time windows: messages, bytes, delay, and the lag of a consumer in each."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from spark_jobs.errors import OptionError
from spark_jobs.jobs.terminal import format_table
from spark_jobs.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class PartitionWindow:
    """What one partition got in one window.

    Attributes:
        start_ms: the beginning of the window, in milliseconds since 1970.
        place: the partition.
        messages_count: messages that arrived.
        payload_bytes: bytes of their payloads.
        delay_ms: from the producer's clock to the server's, on average.
        first_offset: the first of them.
        last_offset: the last of them.
    """

    start_ms: int
    place: TopicPartition
    messages_count: int
    payload_bytes: int
    delay_ms: float
    first_offset: int
    last_offset: int

    def behind(self, stored: int | None) -> int:
        """Count the messages that a consumer with this stored offset has not read."""
        read_up_to = self.first_offset - 1 if stored is None else stored
        return min(self.messages_count, max(0, self.last_offset - read_up_to))


@dataclass(frozen=True)
class Window:
    """What all partitions got in one window.

    Attributes:
        start: its beginning.
        messages: messages that arrived.
        bytes: bytes of their payloads.
        delay_ms: from the producer's clock to the server's, on average.
        behind: messages that the consumer has not read; None without a consumer.
    """

    start: str
    messages: int
    bytes: int
    delay_ms: float
    behind: int | None


HEADS: Final = tuple(field.name for field in fields(Window))


class WindowTable:
    """The newest windows, bounded.

    Args:
        windows_max: how many are kept; the oldest go first.
    """

    def __init__(self, *, windows_max: int) -> None:
        self._windows_max = windows_max
        self._parts: dict[tuple[int, TopicPartition], PartitionWindow] = {}

    def put(self, parts: Iterable[PartitionWindow]) -> None:
        """Add parts, or replace those of the same window and partition."""
        self._parts.update({(part.start_ms, part.place): part for part in parts})
        kept = set(sorted({start for start, _ in self._parts})[-self._windows_max :])
        self._parts = {key: part for key, part in self._parts.items() if key[0] in kept}

    def windows(self, stored: Mapping[TopicPartition, int | None] | None) -> list[Window]:
        """Sum up over partitions, oldest first.

        Args:
            stored: what the server has stored for the consumer, if there is one.
        """
        by_start: dict[int, list[PartitionWindow]] = {}
        for (start, _), part in sorted(self._parts.items()):
            by_start.setdefault(start, []).append(part)
        return [_sum(start, parts, stored) for start, parts in by_start.items()]


def _sum(
    start_ms: int, parts: list[PartitionWindow], stored: Mapping[TopicPartition, int | None] | None
) -> Window:
    messages = sum(part.messages_count for part in parts)
    delays = sum(part.delay_ms * part.messages_count for part in parts)
    return Window(
        _format_start(start_ms),
        messages,
        sum(part.payload_bytes for part in parts),
        delays / messages if messages else 0.0,
        None if stored is None else sum(part.behind(stored.get(part.place)) for part in parts),
    )


def _format_start(start_ms: int) -> str:
    """Write the beginning of a window, with its milliseconds where it has some."""
    start = datetime.fromtimestamp(start_ms // 1000, UTC).replace(
        microsecond=start_ms % 1000 * 1000
    )
    timespec = "milliseconds" if start.microsecond else "seconds"
    return start.replace(tzinfo=None).isoformat(sep=" ", timespec=timespec)


def _cells(window: Window) -> list[object]:
    return [getattr(window, name) for name in HEADS]


def format_windows(windows: list[Window]) -> str:
    """Write windows as a table for people."""
    return format_table(HEADS, [_cells(window) for window in windows])


def write_csv(windows: list[Window], path: Path) -> None:
    """Write windows as a table for programs."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADS)
        writer.writerows(_cells(window) for window in windows)


# Plot windows as SVG: messages, bytes and lag over time. Needs no display.


BAR_COLOR, PANEL_INCHES = "#2b5797", 1.9


def draw_windows(windows: Sequence[Window], path: Path, *, title: str, window_s: float) -> None:
    """Draw windows to a file.

    Raises:
        OptionError: there is no matplotlib.
    """
    try:
        import matplotlib
    except ImportError:
        raise OptionError(
            "the plot needs matplotlib; pip install 'iggy-python[spark]', or add --no-plot"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels: dict[str, list[float]] = {
        "messages": [one.messages for one in windows],
        "KiB": [one.bytes / 1024 for one in windows],
        "delay, ms": [one.delay_ms for one in windows],
    }
    if any(one.behind is not None for one in windows):
        panels["not read yet"] = [one.behind or 0 for one in windows]
    starts = [datetime.fromisoformat(one.start) for one in windows]
    size = (9.0, 0.8 + PANEL_INCHES * len(panels))
    figure, axes = pyplot.subplots(
        len(panels), sharex=True, figsize=size, squeeze=False, layout="constrained"
    )
    for axis, (name, values) in zip(axes[:, 0], panels.items(), strict=True):
        axis.bar(starts, values, width=0.9 * window_s / 86_400, align="edge", color=BAR_COLOR)
        axis.set_ylabel(name)
        axis.grid(axis="y", alpha=0.3)
        axis.set_ylim(bottom=0)
    axes[0, 0].set_title(title)
    axes[-1, 0].tick_params(axis="x", rotation=20)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
