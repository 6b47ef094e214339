"""The output of a dry run: the plan, the schema, the offsets, and the first rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.jobs.terminal import align, show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from spark_jobs.jobs.topic_source import TopicSource

__all__ = ["FIRST_ROWS", "preview_rows", "preview_schema_guess", "preview_spans"]

FIRST_ROWS: Final = 5
"""Rows that a dry run shows."""

SHOWN_COLUMNS: Final = 40
"""Characters of a cell; more would break lines."""


def preview_spans(source: TopicSource, plan: Mapping[str, object]) -> None:
    """Print the plan, and the offsets to read."""
    show("Nothing is written: this is a dry run.\n")
    show("\n".join(f"{name + ':':<14}{text}" for name, text in plan.items()))
    rows = [
        (span.place.topic, str(span.place.partition), span.start, span.end, span.end - span.start)
        for span in source.spans()
    ]
    show("\n" + align(("topic", "partition", "from", "to", "messages"), rows))


def preview_rows(title: str, rows: DataFrame) -> None:
    """Print the schema of rows, and the first of them."""
    tree = "\n".join(f"  {one.name} {one.dataType.simpleString()}" for one in rows.schema.fields)
    show(f"\n{title}, columns:\n{tree}")
    first = rows.limit(FIRST_ROWS).collect()
    show(f"\n{title}, first {len(first)}:")
    show(align(rows.columns, [[_cell(cell) for cell in row] for row in first]))


def preview_schema_guess(messages: DataFrame) -> None:
    """Print a schema that fits the first payloads, if they are JSON."""
    texts = messages.selectExpr("try_validate_utf8(CAST(payload AS STRING)) AS text")
    objects = texts.where("json_object_keys(text) IS NOT NULL").limit(FIRST_ROWS).collect()
    if objects:
        spark = messages.sparkSession
        guess = spark.read.json(spark.createDataFrame(objects, "text STRING")).schema
        fields = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in guess.fields)
        show(f"\nThe first payloads are JSON; this would fit them:\n  --json-schema '{fields}'")


def _cell(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode(errors="backslashreplace")
    text = str(value)
    return text if len(text) <= SHOWN_COLUMNS else f"{text[: SHOWN_COLUMNS - 3]}..."
