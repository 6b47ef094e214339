"""What PySpark 4.0 to 4.3 have of the API for data sources, and stand-ins for what one lacks.

    4.0  neither filter pushdown nor Arrow batches for the sink of a stream, and a source that Spark
         has found by itself cannot be registered
    4.1  both; like 4.0 no admission control: Spark does not say where a stream stands
    4.2  all of it

Everything else of this package is the same for all. What is offered counts, not the number of the
version, because vendors add to theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource

HAS_FILTER_PUSHDOWN: Final = hasattr(datasource, "EqualTo")
REGISTERS_OVER_FOUND: Final = HAS_FILTER_PUSHDOWN
"""Whether ``register`` may replace a source that Spark has found by itself; 4.0 refuses that."""
HAS_STREAM_ARROW_WRITER: Final = hasattr(datasource, "DataSourceStreamArrowWriter")
HAS_ADMISSION_CONTROL: Final = find_spec("pyspark.sql.streaming.datasource") is not None

if TYPE_CHECKING or HAS_ADMISSION_CONTROL:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """A limit of a micro-batch."""

    class ReadAllAvailable(ReadLimit):
        """A micro-batch has all there is."""

    @dataclass
    class ReadMaxRows(ReadLimit):
        """A micro-batch has so many rows at most."""

        max_rows: int

    @dataclass
    class ReadMinRows(ReadLimit):
        """A micro-batch waits for so many rows."""

        min_rows: int

    class SupportsTriggerAvailableNow:
        """Marks readers that know the trigger; the Spark of these versions tells none."""


if TYPE_CHECKING or HAS_STREAM_ARROW_WRITER:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    from pyspark.sql.datasource import DataSourceStreamWriter as DataSourceStreamArrowWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def arrow_schema(schema: StructType) -> Any:
    """Return the schema of Arrow batches, with times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Before 4.2 it is UTC without being told.
    if "timezone" not in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema)
    return to_arrow_schema(schema, timezone="UTC")


__all__ = [
    "HAS_ADMISSION_CONTROL",
    "HAS_FILTER_PUSHDOWN",
    "HAS_STREAM_ARROW_WRITER",
    "REGISTERS_OVER_FOUND",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
]
