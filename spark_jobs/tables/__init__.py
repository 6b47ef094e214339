"""Tables of Delta and Iceberg: writes of micro-batches that can be repeated, and what Spark needs.

It knows rows and tables, and neither topics nor command lines.
"""

from __future__ import annotations

from spark_jobs.tables.batches import query_id, write_batch
from spark_jobs.tables.target import TableTarget
from spark_jobs.tables.versions import (
    FORMATS,
    OWN_FORMATS,
    check_format,
    explain_incompatible,
    packages,
    settings,
    storage_packages,
)

__all__ = [
    "FORMATS",
    "OWN_FORMATS",
    "TableTarget",
    "check_format",
    "explain_incompatible",
    "packages",
    "query_id",
    "settings",
    "storage_packages",
    "write_batch",
]
