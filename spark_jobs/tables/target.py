"""A table that micro-batches are written to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spark_jobs.errors import OptionError
from spark_jobs.tables.schema import quote
from spark_jobs.tables.versions import FORMATS


@dataclass(frozen=True)
class TableTarget:
    """A table that micro-batches are written to.

    Attributes:
        name: its name, ``database.table`` or ``catalog.database.table``; empty for a table of
            Delta that has only a path.
        format: ``delta`` or ``iceberg``.
        mode: ``append`` adds rows, ``merge`` replaces those with the same keys.
        keys: the columns of the key, for ``merge``.
        partition_by: the columns that a new table is partitioned by; one that exists keeps its own.
        evolve_schema: whether the table takes new columns, and wider types where it can.
        path: where the files of a new table are; None leaves that to the catalog.

    Raises:
        OptionError: it cannot be written to.
    """

    name: str
    format: str
    mode: Literal["append", "merge"] = "append"
    keys: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    evolve_schema: bool = False
    path: str | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise OptionError(
                f"a micro-batch cannot be written once to a table of {self.format!r}; choose "
                f"{' or '.join(FORMATS)}, or write files with Spark's own sink"
            )
        if self.mode not in ("append", "merge"):
            raise OptionError(f"mode is {self.mode!r}; choose append or merge")
        if (self.mode == "merge") != bool(self.keys):
            raise OptionError("merge needs keys, and append takes none")
        if not self.name and (self.path is None or self.format != "delta"):
            raise OptionError(f"a table of {self.format} needs a name; give one")

    @property
    def identifier(self) -> str:
        """The table as SQL names it."""
        return self.name or f"delta.{quote(self.path or '')}"
