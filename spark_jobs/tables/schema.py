"""How the columns of rows fit those of a table: what is added, what is widened, what is refused.

Nothing here needs a session, except ``align``, which makes an expression of Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_jobs.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True)
class ColumnChange:
    """A change of a table.

    Attributes:
        path: the column, or the way to a field of it.
        type_text: its type from then on, as SQL writes it.
        is_new: whether it is added, or else widened.
    """

    path: tuple[str, ...]
    type_text: str
    is_new: bool

    def statement(self, table: str) -> str:
        """Write the statement that makes the change."""
        path = ".".join(map(quote, self.path))
        if self.is_new:
            return f"ALTER TABLE {table} ADD COLUMNS ({path} {self.type_text})"
        return f"ALTER TABLE {table} ALTER COLUMN {path} TYPE {self.type_text}"


@dataclass(frozen=True)
class SchemaRules:
    """What a table accepts.

    Attributes:
        table: its name, for errors.
        evolve: whether the table may change.
        widens: whether the table can take a wider type for a column that it has.
        widening_advice: how it is made to.
        is_case_sensitive: whether ``id`` and ``ID`` are two columns.
    """

    table: str
    evolve: bool
    widens: bool
    widening_advice: str
    is_case_sensitive: bool = False

    def same(self, name: str) -> str:
        """Return what two names of one column have in common."""
        return name if self.is_case_sensitive else name.lower()


def quote(name: str) -> str:
    """Write a name so that SQL takes any character in it."""
    return f"`{name.replace('`', '``')}`"


def type_text(kind: DataType) -> str:
    """Write a type as SQL does, with the names of fields quoted."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        fields = (f"{quote(one.name)}: {type_text(one.dataType)}" for one in kind.fields)
        return f"STRUCT<{', '.join(fields)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{type_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{type_text(kind.keyType)}, {type_text(kind.valueType)}>"
    return kind.simpleString().upper()


def is_void(kind: DataType) -> bool:
    """Tell whether a type holds nothing but null, which no table has."""
    return kind.typeName() == "void"


def check_names(columns: StructType, rules: SchemaRules) -> None:
    """Check that no two columns have the same name.

    Raises:
        SchemaError: two have.
    """
    seen: dict[str, str] = {}
    for name in columns.fieldNames():
        other = seen.setdefault(rules.same(name), name)
        if other is not name:
            raise SchemaError(
                f"the rows for {rules.table} have the columns {other!r} and {name!r}, which is one "
                "name; rename one of them"
            )


def plan_changes(table: StructType, rows: StructType, rules: SchemaRules) -> list[ColumnChange]:
    """Return what must change in the table before it can take the rows.

    Raises:
        SchemaError: the table cannot take them, or must not change; the message says what to do.
    """
    check_names(rows, rules)
    given = {rules.same(name) for name in rows.fieldNames()}
    for field in table.fields:
        if not field.nullable and rules.same(field.name) not in given:
            raise SchemaError(
                f"column {field.name} of table {rules.table} is NOT NULL, and the rows have no "
                f"such column; add it to the rows, or ALTER TABLE {rules.table} ALTER COLUMN "
                f"{quote(field.name)} DROP NOT NULL"
            )
    return list(_struct_changes(table, rows, (), rules))


def _struct_changes(
    table: StructType, rows: StructType, path: tuple[str, ...], rules: SchemaRules
) -> Iterator[ColumnChange]:
    present = {rules.same(field.name): field for field in table.fields}
    for field in rows.fields:
        if is_void(field.dataType):
            continue
        known = present.get(rules.same(field.name))
        if known is not None:
            yield from _type_changes(known.dataType, field.dataType, (*path, known.name), rules)
        elif rules.evolve:
            yield ColumnChange((*path, field.name), type_text(field.dataType), is_new=True)
        else:
            raise SchemaError(
                f"table {rules.table} has no column {'.'.join((*path, field.name))}; let the table "
                "take new columns (evolve_schema, --evolve-schema), or leave it out of the rows"
            )


def _type_changes(
    table: DataType, rows: DataType, path: tuple[str, ...], rules: SchemaRules
) -> Iterator[ColumnChange]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(table, StructType) and isinstance(rows, StructType):
        yield from _struct_changes(table, rows, path, rules)
    elif isinstance(table, ArrayType) and isinstance(rows, ArrayType):
        yield from _type_changes(table.elementType, rows.elementType, (*path, "element"), rules)
    elif isinstance(table, MapType) and isinstance(rows, MapType):
        yield from _type_changes(table.keyType, rows.keyType, (*path, "key"), rules)
        yield from _type_changes(table.valueType, rows.valueType, (*path, "value"), rules)
    elif fits(rows, table):
        return
    elif can_become(table, rows) and rules.evolve and rules.widens:
        yield ColumnChange(path, type_text(rows), is_new=False)
    else:
        raise SchemaError(_refusal(table, rows, path, rules))


def _refusal(table: DataType, rows: DataType, path: tuple[str, ...], rules: SchemaRules) -> str:
    name, stored, come = ".".join(path), type_text(table), type_text(rows)
    advice = f"cast it to {stored} in the rows, or write to a new table"
    if can_become(table, rows):
        more = "let the table change (evolve_schema, --evolve-schema)"
        advice = f"{rules.widening_advice if rules.evolve else more}, or {advice}"
    return f"column {name} is {stored} in table {rules.table} and {come} in the rows; {advice}"


_WHOLE: Final = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Whole numbers from narrow to wide, with their digits."""

_WIDER: Final = {"float": ("double",)}


def fits(given: DataType, wanted: DataType) -> bool:
    """Tell whether every value of one type has the same value in another."""
    from pyspark.sql.types import DecimalType

    name, into = given.typeName(), wanted.typeName()
    if given == wanted or is_void(given) or {name, into} <= {"string", "varchar", "char"}:
        return True
    if isinstance(wanted, DecimalType):
        whole, scale = _WHOLE.get(name, -1), 0
        if isinstance(given, DecimalType):
            whole, scale = given.precision - given.scale, given.scale
        return 0 <= whole <= wanted.precision - wanted.scale and scale <= wanted.scale
    if name in _WHOLE:
        if into in _WHOLE:
            return _WHOLE[name] <= _WHOLE[into]
        return into == "double" and name != "long"
    return into in _WIDER.get(name, ())


def can_become(stored: DataType, wanted: DataType) -> bool:
    """Tell whether a table that allows it can change a column to a wider type."""
    from pyspark.sql.types import DecimalType

    if isinstance(stored, DecimalType) and isinstance(wanted, DecimalType):
        return stored.scale == wanted.scale and stored.precision < wanted.precision
    if stored.typeName() in _WHOLE and wanted.typeName() in _WHOLE:
        return fits(stored, wanted)
    return stored.typeName() == "float" and wanted.typeName() == "double"


def align(column: Column, given: DataType, wanted: DataType, rules: SchemaRules) -> Column:
    """Make an expression that gives a column the type of the table."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(given, StructType) and isinstance(wanted, StructType):
        if not _differs(given, wanted):
            return column
        known = {rules.same(field.name): field for field in given.fields}
        fields = []
        for field in wanted.fields:
            have = known.get(rules.same(field.name))
            made = (
                F.lit(None).cast(field.dataType)
                if have is None
                else align(column.getField(have.name), have.dataType, field.dataType, rules)
            )
            fields.append(made.alias(field.name))
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        kinds = given.elementType, wanted.elementType
        return (
            F.transform(column, lambda one: align(one, *kinds, rules))
            if _differs(*kinds)
            else column
        )
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        kinds = given.valueType, wanted.valueType
        if not _differs(*kinds) and not _differs(given.keyType, wanted.keyType):
            return column
        values = F.transform_values(column, lambda _, one: align(one, *kinds, rules))
        return values.cast(MapType(wanted.keyType, wanted.valueType))
    return column if given == wanted else column.cast(wanted)


def _differs(given: DataType, wanted: DataType) -> bool:
    return type_text(given) != type_text(wanted)
