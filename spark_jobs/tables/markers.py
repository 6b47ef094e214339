"""The marker of a micro-batch in the commit that writes it.

Rows and marker are one commit, so a crash can leave neither without the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

WRITER: Final = "iggy-writer"
BATCH: Final = "iggy-batch"


class Marker(Protocol):
    """What a commit says about the micro-batch that it holds."""

    def last_batch(self, spark: SparkSession, table: str) -> int | None:
        """Return the last micro-batch of the writer that the table holds, if that is known."""

    def options(self) -> Mapping[str, str]:
        """Return the options of an append."""

    def settings(self) -> Mapping[str, str]:
        """Return the settings of a session while it merges, because a merge has no options."""


@dataclass(frozen=True)
class DeltaMarker:
    """A transaction of Delta; Delta keeps the last of each writer, and skips what is not newer.

    Attributes:
        writer: who writes.
        batch_id: the number of the micro-batch.
    """

    writer: str
    batch_id: int

    def last_batch(self, spark: SparkSession, table: str) -> int | None:
        """Ask the table; None as well where Python cannot reach Java, and Delta alone decides."""
        jvm = getattr(spark, "_jvm", None)
        detail = spark.sql(f"DESCRIBE DETAIL {table}").first()
        if jvm is None or detail is None:
            return None
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            spark._jsparkSession, detail["location"]
        )
        found = log.unsafeVolatileSnapshot().transactions().get(self.writer)
        return int(found.get()) if found.isDefined() else None

    def options(self) -> Mapping[str, str]:
        """Return the options of an append."""
        return {"txnAppId": self.writer, "txnVersion": str(self.batch_id)}

    def settings(self) -> Mapping[str, str]:
        """Return the settings of a merge."""
        prefix = "spark.databricks.delta.write."
        return {f"{prefix}{name}": value for name, value in self.options().items()}


@dataclass(frozen=True)
class IcebergMarker:
    """Two entries in the summary of a snapshot, found as long as the snapshot is not expired.

    Attributes:
        writer: who writes.
        batch_id: the number of the micro-batch.
    """

    writer: str
    batch_id: int

    def last_batch(self, spark: SparkSession, table: str) -> int | None:
        """Look through the snapshots that led to the table as it is now."""
        from pyspark.sql import functions as F

        found = (
            spark.table(f"{table}.snapshots")
            .where(F.col("summary")[WRITER] == self.writer)
            .join(spark.table(f"{table}.history").where("is_current_ancestor"), "snapshot_id")
            .agg(F.max(F.col("summary")[BATCH].cast("bigint")).alias("last"))
            .first()
        )
        return None if found is None or found["last"] is None else int(found["last"])

    def options(self) -> Mapping[str, str]:
        """Return the options of an append."""
        return {f"snapshot-property.{name}": value for name, value in self._entries().items()}

    def settings(self) -> Mapping[str, str]:
        """Return the settings of a merge."""
        return {f"spark.sql.iceberg.{name}": value for name, value in self.options().items()}

    def _entries(self) -> Mapping[str, str]:
        return {WRITER: self.writer, BATCH: str(self.batch_id)}


MARKERS: Final[Mapping[str, Callable[[str, int], Marker]]] = {
    "delta": DeltaMarker,
    "iceberg": IcebergMarker,
}
