"""Plot windows as SVG: messages, bytes and lag over time. Needs no display."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from spark_jobs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from spark_jobs.jobs.windows import Window

__all__ = ["draw_windows"]

INK, PANEL_INCHES = "#2b5797", 1.9


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
        axis.bar(starts, values, width=0.9 * window_s / 86_400, align="edge", color=INK)
        axis.set_ylabel(name)
        axis.grid(axis="y", alpha=0.3)
        axis.set_ylim(bottom=0)
    axes[0, 0].set_title(title)
    axes[-1, 0].tick_params(axis="x", rotation=20)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
