"""Sources in Python to compare with: one that is as fast as any can be, and one that is idle.

Tasks import this module, so it needs nothing but Spark.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PARTITIONS", "IdleSource", "PrebuiltSource"]

PARTITIONS = 2
ARROW_ROWS = 4000
"""Rows of one batch that was made before; about those of a poll of 1000-byte messages."""


class PrebuiltSource(DataSource):
    """Rows like those of a topic, from Arrow batches that each task makes once and repeats."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "prebuilt"

    def schema(self) -> Any:
        """Return the columns of a topic."""
        from spark_jobs.schema import read_schema

        return read_schema(include_headers=False)

    def reader(self, schema: Any) -> PrebuiltReader:
        """Make the reader."""
        return PrebuiltReader(schema, int(self.options["rows"]), int(self.options["size"]))


class PrebuiltReader(DataSourceReader):
    """Repeats one batch."""

    def __init__(self, schema: Any, rows_count: int, size_bytes: int) -> None:
        self._schema = schema
        self._rows_count = rows_count
        self._size_bytes = size_bytes

    def partitions(self) -> list[InputPartition]:
        """Return one task for each partition of the topic."""
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batch until there are rows enough."""
        import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
        from pyspark.sql.pandas.types import to_arrow_schema

        values = {
            "stream": "bench",
            "topic": "t",
            "partition": partition.value,
            "offset": 7,
            "timestamp": 1_700_000_000_000_000,
            "origin_timestamp": 1_700_000_000_000_000,
            "id": bytes(16),
            "payload": os.urandom(self._size_bytes),
        }
        kinds: Any = to_arrow_schema(self._schema, timezone="UTC")
        arrays = [pa.repeat(pa.scalar(values[kind.name], kind.type), ARROW_ROWS) for kind in kinds]
        batch = pa.RecordBatch.from_arrays(arrays, schema=kinds)
        left = self._rows_count // PARTITIONS
        while left > 0:
            yield batch.slice(0, min(left, ARROW_ROWS))
            left -= ARROW_ROWS


class IdleSource(DataSource):
    """One row for each partition, from nowhere: what every streaming source in Python costs."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "idle"

    def schema(self) -> str:
        """Return one column."""
        return "number INT"

    def streamReader(self, schema: Any) -> IdleReader:
        """Make the reader."""
        return IdleReader()


class IdleReader(DataSourceStreamReader):
    """Has one batch of rows at once, and never another."""

    def initialOffset(self) -> dict[str, int]:
        """Return where it begins."""
        return {"at": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:
        """Return where it ends."""
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return as many tasks as a topic has partitions."""
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield one row."""
        yield (partition.value,)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing."""
