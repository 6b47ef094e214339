"""Transforms that are SQL: each compiles to one or more SELECTs over the rows before it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from spark_jobs.errors import OptionError
from spark_jobs.pipeline.connectors import ERROR, INTERNAL_COLUMNS, ORIGIN, TIME
from spark_jobs.pipeline.reading import unknown_name
from spark_jobs.tables.merge import CORRUPT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_TEXT, _PARSED = "_iggy_text", "_iggy_parsed"


def quote(name: str) -> str:
    """Quote the name of a column."""
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    """Write a text as SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def guarded(expression: str) -> str:
    """Evaluate an expression only for rows that have no error."""
    return f"CASE WHEN {ERROR} IS NULL THEN ({expression}) END"


@dataclass(frozen=True)
class Select:
    """One SELECT over the rows before it.

    Attributes:
        expressions: what is selected.
        where: which rows; None for all.
    """

    expressions: tuple[str, ...]
    where: str | None = None

    def text(self) -> str:
        """Write it as people read it."""
        columns = ",\n    ".join(self.expressions)
        return f"SELECT\n    {columns}\nFROM rows" + (f"\nWHERE {self.where}" if self.where else "")


class SqlStep(ABC):
    """A transform that is SQL."""

    is_stateful = False

    @abstractmethod
    def selects(self, schema: StructType, prefix: str) -> Sequence[Select]:
        """Compile it for rows of a schema.

        Raises:
            OptionError: a column does not exist, or is there already.
        """

    @abstractmethod
    def describe(self) -> str:
        """Say in words what it does."""

    def apply(self, rows: DataFrame, prefix: str) -> DataFrame:
        """Run it."""
        for select in self.selects(rows.schema, prefix):
            chosen = rows if select.where is None else rows.where(select.where)
            kept = [TIME] if TIME in rows.columns and "*" not in select.expressions else []
            rows = chosen.selectExpr(*select.expressions, *kept)
        return rows

    def sql(self, rows: DataFrame, prefix: str) -> str:
        """Return the SELECTs as text."""
        return ";\n".join(one.text() for one in self.selects(rows.schema, prefix))


def columns_of(schema: StructType) -> list[str]:
    """Return the names of columns that are not of the pipeline."""
    return [name for name in schema.fieldNames() if name not in INTERNAL_COLUMNS]


def check_columns(named: Iterable[str], schema: StructType) -> None:
    """Refuse columns that do not exist.

    Raises:
        OptionError: there is one; the message names the most similar.
    """
    known = columns_of(schema)
    for name in named:
        if name not in known:
            raise OptionError(unknown_name(f"column {name!r}", name, known))


def _check_distinct(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise OptionError(f"there would be two columns {name}; rename one of them before")
        seen.add(name.lower())


_KEPT: Final = (ORIGIN, ERROR)


@dataclass(frozen=True)
class AddStep(SqlStep):
    """Adds columns, or replaces those of the same name.

    Attributes:
        columns: for each column its name and an SQL expression.
    """

    columns: Mapping[str, str]

    def selects(self, schema: StructType, prefix: str) -> list[Select]:
        """Compile it."""
        made = {name: f"{guarded(text)} AS {quote(name)}" for name, text in self.columns.items()}
        present = columns_of(schema)
        kept = [made.get(name, quote(name)) for name in present]
        more = [text for name, text in made.items() if name not in present]
        _check_distinct([*present, *(name for name in made if name not in present)])
        return [Select((*kept, *more, *_KEPT))]

    def describe(self) -> str:
        """Say what is added."""
        return "add " + ", ".join(f"{name} = {text}" for name, text in self.columns.items())


@dataclass(frozen=True)
class DeleteStep(SqlStep):
    """Drops columns.

    Attributes:
        columns: their names.
    """

    columns: tuple[str, ...]

    def selects(self, schema: StructType, prefix: str) -> list[Select]:
        """Compile it."""
        check_columns(self.columns, schema)
        kept = [quote(name) for name in columns_of(schema) if name not in self.columns]
        if not kept:
            raise OptionError("it would drop all columns; keep one")
        return [Select((*kept, *_KEPT))]

    def describe(self) -> str:
        """Say what is dropped."""
        return f"delete {', '.join(self.columns)}"


@dataclass(frozen=True)
class RenameStep(SqlStep):
    """Renames columns.

    Attributes:
        columns: for each column its name and the new one.
    """

    columns: Mapping[str, str]

    def selects(self, schema: StructType, prefix: str) -> list[Select]:
        """Compile it."""
        check_columns(self.columns, schema)
        present = columns_of(schema)
        _check_distinct([self.columns.get(name, name) for name in present])
        renamed = [f"{quote(name)} AS {quote(self.columns.get(name, name))}" for name in present]
        return [Select((*renamed, *_KEPT))]

    def describe(self) -> str:
        """Say what is renamed."""
        return "rename " + ", ".join(f"{old} to {new}" for old, new in self.columns.items())


@dataclass(frozen=True)
class FilterStep(SqlStep):
    """Lets only some rows through.

    Attributes:
        where: an SQL condition; a row for which it is null goes no further.
    """

    where: str

    def selects(self, schema: StructType, prefix: str) -> list[Select]:
        """Compile it."""
        condition = f"CASE WHEN {ERROR} IS NULL THEN ({self.where}) ELSE true END"
        return [Select(("*",), condition)]

    def describe(self) -> str:
        """Say what is kept."""
        return f"keep rows where {self.where}"


@dataclass(frozen=True)
class ConvertStep(SqlStep):
    """Converts columns to other types; a value that does not fit makes the row a dead letter.

    Attributes:
        columns: for each column its name and a type of SQL.
    """

    columns: Mapping[str, str]

    def selects(self, schema: StructType, prefix: str) -> list[Select]:
        """Compile it."""
        check_columns(self.columns, schema)
        chosen = [
            f"try_cast({quote(name)} AS {self.columns[name]}) AS {quote(name)}"
            if name in self.columns
            else quote(name)
            for name in columns_of(schema)
        ]
        return [Select((*chosen, ORIGIN, f"{self._error()} AS {ERROR}"))]

    def _error(self) -> str:
        cases = " ".join(
            f"WHEN {quote(name)} IS NOT NULL AND try_cast({quote(name)} AS {kind}) IS NULL "
            f"THEN {literal(f'column {name} is not {kind}')}"
            for name, kind in self.columns.items()
        )
        return f"CASE WHEN {ERROR} IS NOT NULL THEN {ERROR} {cases} END"

    def describe(self) -> str:
        """Say what is converted."""
        return "convert " + ", ".join(f"{name} to {kind}" for name, kind in self.columns.items())


@dataclass(frozen=True)
class FlattenStep(SqlStep):
    """Makes a column of each field of columns that are structs, down to the last level.

    Attributes:
        columns: the structs; empty for all.
        separator: between the name of a column and that of a field.
    """

    columns: tuple[str, ...] = ()
    separator: str = "_"

    def selects(self, schema: StructType, prefix: str) -> list[Select]:
        """Compile it."""
        from pyspark.sql.types import StructType

        check_columns(self.columns, schema)
        names: list[str] = []
        expressions: list[str] = []
        for field in schema.fields:
            if field.name in INTERNAL_COLUMNS:
                continue
            is_chosen = not self.columns or field.name in self.columns
            if self.columns and is_chosen and not isinstance(field.dataType, StructType):
                raise OptionError(f"column {field.name} is no struct; leave it out")
            for path in _leaves((field.name,), field.dataType if is_chosen else None):
                names.append(self.separator.join(path))
                expressions.append(f"{'.'.join(map(quote, path))} AS {quote(names[-1])}")
        _check_distinct(names)
        return [Select((*expressions, *_KEPT))]

    def describe(self) -> str:
        """Say what is flattened."""
        return f"flatten {', '.join(self.columns) or 'all structs'}"


def _leaves(path: tuple[str, ...], kind: DataType | None) -> list[tuple[str, ...]]:
    from pyspark.sql.types import StructType

    if not isinstance(kind, StructType):
        return [path]
    return [leaf for one in kind.fields for leaf in _leaves((*path, one.name), one.dataType)]


@dataclass(frozen=True)
class JsonStep(SqlStep):
    """Parses a column of JSON objects; its fields become columns.

    A row fits when the column is UTF-8, one JSON object, and has the types of the schema, with all
    fields that are NOT NULL. Other rows are dead letters, unless they are kept.

    Attributes:
        schema: the fields as DDL, or the name of a file that holds a schema.
        column: the column that is parsed.
        unfit: ``dead_letters``, or ``keep`` for rows with the payload in ``_corrupt_record``.
    """

    schema: str
    column: str = "payload"
    unfit: Literal["dead_letters", "keep"] = "dead_letters"

    def selects(self, schema: StructType, prefix: str) -> list[Select]:
        """Compile it."""
        from spark_jobs.pipeline.schemas import read_schema_text, write_ddl

        check_columns([self.column], schema)
        fields = read_schema_text(self.schema)
        ddl = f"{write_ddl(fields)}, {quote(CORRUPT)} STRING"
        text = f"try_validate_utf8(CAST({quote(self.column)} AS STRING)) AS {_TEXT}"
        parsed = (
            f"from_json({_TEXT}, {literal(ddl)}, map('columnNameOfCorruptRecord', "
            f"{literal(CORRUPT)})) AS {_PARSED}"
        )
        others = [name for name in columns_of(schema) if name != self.column]
        described = {name: f"{prefix}{name}" for name in others}
        columns = [
            *(f"{_PARSED}.{quote(name)} AS {quote(name)}" for name in fields.fieldNames()),
            *(f"{quote(name)} AS {quote(new)}" for name, new in described.items()),
        ]
        _check_distinct([*fields.fieldNames(), *described.values()])
        return [
            Select(("*", text)),
            Select(("*", parsed)),
            Select((*columns, *self._judged(_unfit_reason(fields)))),
        ]

    def _judged(self, reason: str) -> list[str]:
        error = f"coalesce({ERROR}, {reason})"
        if self.unfit == "dead_letters":
            return [ORIGIN, f"{error} AS {ERROR}"]
        corrupt = f"CASE WHEN {error} IS NOT NULL THEN {quote(self.column)} END AS {quote(CORRUPT)}"
        return [corrupt, ORIGIN, ERROR]

    def describe(self) -> str:
        """Say what is parsed."""
        rest = "others keep it in _corrupt_record" if self.unfit == "keep" else "others are bad"
        return f"parse {self.column} as JSON objects ({' '.join(self.schema.split())}); {rest}"


def _unfit_reason(fields: StructType) -> str:
    """Return the SQL of the reason why a payload does not fit; null if it does."""
    # Spark's parser stops after the first value; within brackets anything more is an error.
    values = f"json_array_length(concat('[', {_TEXT}, ']'))"
    unfit = f"{_PARSED} IS NULL OR {_PARSED}.{quote(CORRUPT)} IS NOT NULL"
    cases = {
        f"{_TEXT} IS NULL": "the payload is not UTF-8",
        f"{values} IS NULL OR {values} != 1": "the payload is not one JSON value",
        unfit: "it does not fit the schema",
    }
    for field in fields.fields:
        if not field.nullable:
            missing = f"{_PARSED}.{quote(field.name)} IS NULL"
            cases[missing] = f"field {field.name} is missing"
    whens = " ".join(f"WHEN {test} THEN {literal(reason)}" for test, reason in cases.items())
    return f"CASE {whens} END"
