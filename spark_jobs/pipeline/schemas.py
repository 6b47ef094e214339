"""Schemas of payloads and files: as DDL, or in a file of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_jobs.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

SCHEMA_SUFFIXES: Final = (".json", ".ddl", ".sql", ".txt")


def read_schema_text(text: str) -> StructType:
    """Read a schema, or the file that holds one; a session has to run.

    Raises:
        OptionError: it is none.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    path = Path(text)
    try:
        if path.suffix in SCHEMA_SUFFIXES:
            text = path.read_text(encoding="utf-8")
        if text.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(text))
        schema = StructType.fromDDL(" ".join(text.split()))
        if not isinstance(schema, StructType):
            raise ValueError("it has no fields")
        return schema
    except (OSError, ValueError, KeyError, PySparkException) as error:
        reason = str(error).strip().partition("\n")[0]
        raise OptionError(
            f"the schema cannot be read ({reason}); give fields as 'id BIGINT, item STRING', or "
            "a file with such a text"
        ) from None


def write_ddl(schema: StructType) -> str:
    """Write the fields of a schema as DDL, with every name quoted."""
    return ", ".join(f"{_quoted(one.name)} {_kind(one.dataType)}" for one in schema.fields)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _kind(kind: DataType) -> str:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        inner = ", ".join(f"{_quoted(one.name)}: {_kind(one.dataType)}" for one in kind.fields)
        return f"STRUCT<{inner}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_kind(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{_kind(kind.keyType)}, {_kind(kind.valueType)}>"
    return kind.simpleString()
