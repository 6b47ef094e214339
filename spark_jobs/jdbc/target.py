"""A table of a database, and what is particular to each kind of database."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from spark_jobs.errors import OptionError
from spark_jobs.jdbc.statements import RowMove


class Database(NamedTuple):
    """What is particular to a database.

    Attributes:
        driver: the Java class of its driver.
        packages: the Maven coordinates of the driver.
        properties: properties of every connection.
        key_text: the type of a text that is part of a key, where a text is otherwise a CLOB.
        connections: how many tasks may write at a time.
        upsert: writes the statement that replaces rows.
    """

    driver: str
    packages: tuple[str, ...]
    properties: Mapping[str, str]
    key_text: str | None
    connections: int
    upsert: Callable[[RowMove], str]


CONNECTIONS_MAX: Final = 8
"""Tasks that fill a staging table at a time; a database serves a few at once best."""

DATABASES: Final = {
    "postgresql": Database(
        "org.postgresql.Driver",
        ("org.postgresql:postgresql:42.7.14",),
        # The server then reads texts as what a column is: UUID, JSONB, an enumeration.
        {"stringtype": "unspecified", "reWriteBatchedInserts": "true"},
        None,
        CONNECTIONS_MAX,
        RowMove.on_conflict,
    ),
    "h2": Database(
        "org.h2.Driver",
        ("com.h2database:h2:2.5.252",),
        {},
        "VARCHAR(1000)",
        CONNECTIONS_MAX,
        RowMove.merge,
    ),
    "derby": Database(
        "org.apache.derby.jdbc.EmbeddedDriver",
        (),  # it comes with Spark
        {},
        "VARCHAR(1000)",
        CONNECTIONS_MAX,
        RowMove.merge,
    ),
}


@dataclass(frozen=True, repr=False)
class JdbcTarget:
    """A table of a database that micro-batches are written to.

    Attributes:
        url: the place of the database, ``jdbc:postgresql://host/database``.
        table: the name of the table, with its schema if it has one, as SQL writes it.
        mode: ``append`` adds rows, ``upsert`` replaces those with the same keys.
        keys: the columns of the key, for ``upsert``.
        user: who logs in.
        password: the password.
        driver: the Java class of the driver, if it is not the usual one.

    Raises:
        OptionError: it cannot be written to.
    """

    url: str
    table: str
    mode: Literal["append", "upsert"] = "append"
    keys: tuple[str, ...] = ()
    user: str | None = None
    password: str | None = None
    driver: str | None = None

    def __post_init__(self) -> None:
        database_of(self.url)
        if self.mode not in ("append", "upsert"):
            raise OptionError(f"mode is {self.mode!r}; choose append or upsert")
        if (self.mode == "upsert") != bool(self.keys):
            raise OptionError("upsert needs keys, and append takes none")
        if not self.table:
            raise OptionError("the table has no name; give one")

    def __repr__(self) -> str:
        how = self.mode if not self.keys else f"{self.mode} by {', '.join(self.keys)}"
        return f"JdbcTarget({without_secrets(self.url)}, table {self.table}, {how})"

    @property
    def database(self) -> Database:
        """What is particular to the database."""
        return database_of(self.url)

    def properties(self) -> dict[str, str]:
        """Return the properties of a connection."""
        given = {"user": self.user, "password": self.password, **self.database.properties}
        return {name: value for name, value in given.items() if value is not None}

    def beside(self, name: str) -> str:
        """Name a table in the schema of this one."""
        schema, dot, _ = self.table.rpartition(".")
        return f"{schema}{dot}{name}"


def packages(url: str) -> tuple[str, ...]:
    """Return the Maven coordinates of the driver for a URL.

    Raises:
        OptionError: no database of this kind is known.
    """
    return database_of(url).packages


def database_of(url: str) -> Database:
    kind = re.match(r"jdbc:(\w+):", url)
    found = None if kind is None else DATABASES.get(kind[1])
    if found is None:
        raise OptionError(
            f"{without_secrets(url)!r} is no URL of a database that can be written to; it begins "
            f"with {', '.join(f'jdbc:{name}:' for name in DATABASES)}"
        )
    return found


def without_secrets(url: str) -> str:
    """Cut what may hold a password from a URL."""
    return re.sub(r"//[^/@?;]*@", "//", re.split(r"[?;]", url, maxsplit=1)[0])
