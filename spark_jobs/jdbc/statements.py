"""The statements that move rows from a staging table to a table; pure texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


def quote_name(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


class RowMove(NamedTuple):
    """A move of rows from a staging table.

    Attributes:
        target: the table.
        staging: the staging table.
        columns: the columns, by the names that they have in both.
        keys: those that make the key.
        age: those that decide which of two rows is newer; none if nothing does.
    """

    target: str
    staging: str
    columns: Sequence[str]
    keys: Sequence[str]
    age: Sequence[str]

    @property
    def others(self) -> list[str]:
        """The columns that are no keys."""
        return [name for name in self.columns if name not in self.keys]

    def names(self, side: str = "") -> str:
        """List the columns."""
        return ", ".join(f"{side}{quote_name(name)}" for name in self.columns)

    def newer(self, come: str) -> str:
        """Write the test whether a row is not older than the one that is stored."""
        test = ""
        for name in reversed(self.age):
            new, old = f"{come}.{quote_name(name)}", f"target.{quote_name(name)}"
            test = f"{new} > {old} OR ({new} = {old} AND ({test}))" if test else f"{new} >= {old}"
        return f"({test} OR target.{quote_name(self.age[0])} IS NULL)" if test else ""

    def insert(self) -> str:
        """Write the statement that adds the rows."""
        names = self.names()
        return f"INSERT INTO {self.target} ({names}) SELECT {names} FROM {self.staging}"

    def on_conflict(self) -> str:
        """Write the statement of PostgreSQL that replaces rows."""
        names, keys = self.names(), ", ".join(map(quote_name, self.keys))
        sets = ", ".join(
            f"{quote_name(name)} = excluded.{quote_name(name)}" for name in self.others
        )
        newer = self.newer("excluded")
        action = f"UPDATE SET {sets}{f' WHERE {newer}' if newer else ''}" if sets else "NOTHING"
        return (
            f"INSERT INTO {self.target} AS target ({names}) SELECT {names} FROM {self.staging} "
            f"ON CONFLICT ({keys}) DO {action}"
        )

    def merge(self) -> str:
        """Write the statement of the SQL standard that replaces rows."""
        same = " AND ".join(
            f"target.{quote_name(key)} = source.{quote_name(key)}" for key in self.keys
        )
        sets = ", ".join(f"{quote_name(name)} = source.{quote_name(name)}" for name in self.others)
        newer = self.newer("source")
        update = f"WHEN MATCHED{f' AND {newer}' if newer else ''} THEN UPDATE SET {sets} "
        return (
            f"MERGE INTO {self.target} AS target USING {self.staging} AS source ON {same} "
            f"{update if sets else ''}"
            f"WHEN NOT MATCHED THEN INSERT ({self.names()}) VALUES ({self.names('source.')})"
        )
