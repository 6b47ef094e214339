"""The columns of a topic, as a source offers them and as a sink takes them.

A reader makes only the columns that the schema names, so a short schema is the way to read less.
Names, types and error messages of the columns.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_jobs.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import DataType


HEADERS: Final = "headers"
_HEADER_LIST: Final = "array<struct<key:string,kind:string,value:binary>>"

# The types in which each column may be asked for; the first is the usual one.
_READ: Final[Mapping[str, tuple[str, ...]]] = {
    "stream": ("string",),
    "topic": ("string",),
    "partition": ("int",),
    "offset": ("bigint",),
    "timestamp": ("timestamp", "bigint"),
    "origin_timestamp": ("timestamp", "bigint"),
    "id": ("binary",),
    "checksum": ("bigint",),
    "payload": ("binary", "string"),
    HEADERS: ("map<string,binary>", "map<string,string>", _HEADER_LIST),
}

# The types in which a sink takes each column.
_WRITE: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "payload": ("binary", "string"),
    "key": ("string", "binary"),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "id": ("binary", "string"),
    "origin_timestamp": ("timestamp", "bigint"),
    HEADERS: (
        *_READ[HEADERS],
        "map<string,bigint>",
        "map<string,int>",
        "map<string,double>",
        "map<string,boolean>",
    ),
}
# What a source makes and a sink has no use for: it belongs to the topic that was read.
_IGNORED: Final = frozenset(_READ) - frozenset(_WRITE)


def read_schema(*, include_headers: bool) -> StructType:
    """Return the columns that a read has unless the user names others."""
    fields: list[tuple[str, DataType]] = [
        ("stream", StringType()),
        ("topic", StringType()),
        ("partition", IntegerType()),
        ("offset", LongType()),
        ("timestamp", TimestampType()),
        ("origin_timestamp", TimestampType()),
        ("id", BinaryType()),
        ("payload", BinaryType()),
    ]
    columns = [StructField(name, kind, nullable=False) for name, kind in fields]
    if include_headers:
        columns.append(StructField(HEADERS, MapType(StringType(), BinaryType())))
    return StructType(columns)


def check_read_schema(schema: StructType) -> None:
    """Refuse columns that a topic has not.

    Raises:
        SchemaError: there is one, or one has a type in which it cannot be had.
    """
    for field in schema.fields:
        if field.name not in _READ:
            raise SchemaError(f"a topic has no column {field.name!r}; {_hint(field.name, _READ)}")
        _check_type(field, _READ)


def check_write_schema(schema: StructType) -> None:
    """Refuse rows that cannot become messages.

    Raises:
        SchemaError: there is no payload, or a column without a meaning.
    """
    names = set(schema.fieldNames())
    if "payload" not in names:
        raise SchemaError(
            "there is no column payload (binary or string); make one, for example with "
            'df.selectExpr("to_json(struct(*)) AS payload"), or rename what you have'
        )
    for field in schema.fields:
        if field.name in _IGNORED:
            continue
        if field.name not in _WRITE:
            raise SchemaError(
                f"a message has no column {field.name!r}; {_hint(field.name, _WRITE)}, "
                "or drop it before the write"
            )
        _check_type(field, _WRITE)


def _check_type(field: StructField, table: Mapping[str, tuple[str, ...]]) -> None:
    kinds = table[field.name]
    if _nullable(field.dataType) not in kinds:
        raise SchemaError(
            f"column {field.name} is {field.dataType.simpleString()}; "
            f"cast it to {' or '.join(kinds[:3])}"
        )


def _nullable(kind: DataType) -> str:
    """Name a type; whether elements may be missing is of no matter."""
    if isinstance(kind, ArrayType | MapType | StructType):
        return kind.simpleString()
    return StringType().simpleString() if isinstance(kind, StringType) else kind.simpleString()


def _hint(name: str, known: Mapping[str, object]) -> str:
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.65)
    return f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
