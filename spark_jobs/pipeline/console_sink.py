"""The sink that is the terminal, for people who try a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_jobs.jobs.terminal import format_table, print_result, shown_cell
from spark_jobs.pipeline.connectors import BatchContext, public_columns
from spark_jobs.pipeline.secrets import redact

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class ConsoleSink:
    """Standard output.

    Attributes:
        rows: how many rows of each micro-batch are shown at most.
    """

    rows: int = 20

    needs_origin = False

    @property
    def guarantee(self) -> str:
        """Say what a repeated micro-batch does."""
        return "shown again"

    def check(self) -> None:
        """Need nothing."""

    def prepare(self, rows: DataFrame, prefix: str) -> None:
        """Need nothing."""

    def write(self, rows: DataFrame, context: BatchContext) -> None:
        """Show the first rows of a micro-batch."""
        first: list[Any] = public_columns(rows).limit(self.rows).collect()
        if first:
            cells = [[shown_cell(cell) for cell in row] for row in first]
            table = format_table(first[0].__fields__, cells)
            print_result(redact(f"batch {context.batch_id}\n{table}\n"))

    def describe(self) -> str:
        """Say in words what is written."""
        return f"the terminal, {self.rows} rows of each micro-batch"
