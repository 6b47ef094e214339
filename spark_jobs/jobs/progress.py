"""Format Spark's progress reports (``recentProgress``): rows, rows per second, and lag."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from spark_jobs.offsets import read_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["ProgressReport", "lag_of"]


class ProgressReport:
    """Turns the reports of one query into lines, each report once.

    Args:
        name: the name of the query.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._seen = -1
        self.rows_count = 0

    def lines(self, reports: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Return a line for each micro-batch that was not reported yet."""
        for report in reports:
            # While nothing arrives, Spark reports the number of the next batch again and again.
            if report["batchId"] <= self._seen or not report["numInputRows"]:
                continue
            self._seen = report["batchId"]
            self.rows_count += report["numInputRows"]
            yield self._line(report)

    def _line(self, report: Mapping[str, Any]) -> str:
        line = (
            f"{self._name}: batch {report['batchId']}, {report['numInputRows']:,} rows, "
            f"{report.get('processedRowsPerSecond') or 0:,.0f} rows/s"
        )
        lag = lag_of(report)
        return line if lag is None else f"{line}, {lag:,} behind"


def lag_of(report: Mapping[str, Any]) -> int | None:
    """Count the messages that the topics of a query held beyond this batch; None if unknown."""
    lag = None
    for source in report["sources"]:
        latest, end = (_offsets(source.get(name)) for name in ("latestOffset", "endOffset"))
        if latest is not None and end is not None:
            ahead = sum(max(0, offset - end.get(at, 0)) for at, offset in latest.items())
            lag = (lag or 0) + ahead
    return lag


def _offsets(written: object) -> Mapping[Any, int] | None:
    """Read offsets of a topic; None for those of other sources, such as files."""
    try:
        value = json.loads(written) if isinstance(written, str) else written
        return read_offsets(value) if isinstance(value, dict) else None
    except ValueError:
        return None
