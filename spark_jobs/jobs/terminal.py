"""Output of a job: status on standard error, results on standard output."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType, TracebackType

    from pyspark.sql import DataFrame

    from spark_jobs.jobs.topic_source import PartitionSpan


def print_status(text: str) -> None:
    """Print a status line."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def print_result(text: str) -> None:
    """Print a result."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def format_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
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


# The output of a dry run: the plan, the schema, the offsets, and the first rows.


FIRST_ROWS: Final = 5
"""Rows that a dry run shows."""

SHOWN_COLUMNS: Final = 40
"""Characters of a cell; more would break lines."""


def preview_plan(spans: Sequence[PartitionSpan] | None, plan: Mapping[str, object]) -> None:
    """Print the plan, and the offsets to read where there are some."""
    print_result("Nothing is written: this is a dry run.\n")
    print_result("\n".join(f"{name + ':':<14}{text}" for name, text in plan.items()))
    if spans is None:
        return
    rows = [
        (span.place.topic, str(span.place.partition), span.start, span.end, span.end - span.start)
        for span in spans
    ]
    print_result("\n" + format_table(("topic", "partition", "from", "to", "messages"), rows))


def preview_rows(title: str, rows: DataFrame) -> None:
    """Print the schema of rows, and the first of them."""
    tree = "\n".join(f"  {one.name} {one.dataType.simpleString()}" for one in rows.schema.fields)
    print_result(f"\n{title}, columns:\n{tree}")
    first = rows.limit(FIRST_ROWS).collect()
    print_result(f"\n{title}, first {len(first)}:")
    print_result(format_table(rows.columns, [[shown_cell(cell) for cell in row] for row in first]))


def preview_schema_guess(messages: DataFrame) -> None:
    """Print a schema that fits the first payloads, if they are JSON."""
    texts = messages.selectExpr("try_validate_utf8(CAST(payload AS STRING)) AS text")
    objects = texts.where("json_object_keys(text) IS NOT NULL").limit(FIRST_ROWS).collect()
    if objects:
        spark = messages.sparkSession
        guess = spark.read.json(spark.createDataFrame(objects, "text STRING")).schema
        fields = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in guess.fields)
        print_result(
            f"\nThe first payloads are JSON; this would fit them:\n  --json-schema '{fields}'"
        )


def shown_cell(value: object) -> object:
    """Prepare a value for a table: bytes as text, and not too long."""
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode(errors="backslashreplace")
    text = str(value)
    return text if len(text) <= SHOWN_COLUMNS else f"{text[: SHOWN_COLUMNS - 3]}..."


# Stop signals: the first SIGINT or SIGTERM requests a clean stop, the second interrupts.

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """Handles SIGINT and SIGTERM while it is entered."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            self.listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def requested(self) -> bool:
        """Whether a stop is requested."""
        return self._requested.is_set()

    def request(self) -> None:
        """Request a stop, as a signal does."""
        self._requested.set()

    def listen(self) -> None:
        """Install the handlers; again after Spark has started, which replaces that of SIGINT."""
        for number in self._before:
            signal.signal(number, self._on_signal)

    def wait(self, seconds: float) -> bool:
        """Wait for a request, at most so long; return whether there is one."""
        return self._requested.wait(seconds)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.request()
        print_status(
            f"{signal.Signals(number).name}: stopping after this micro-batch; again to stop at once"
        )
