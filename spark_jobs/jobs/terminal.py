"""Output of a job: status on standard error, results on standard output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["align", "say", "show"]


def say(text: str) -> None:
    """Print a status line."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def show(text: str) -> None:
    """Print a result."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def align(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format a table with aligned columns, numbers to the right."""
    lines = [list(heads), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    numeric = [
        bool(rows) and all(isinstance(row[at], int | float | None) for row in rows)
        for at in range(len(heads))
    ]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    )


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
