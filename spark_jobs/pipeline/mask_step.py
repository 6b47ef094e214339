"""Masks columns: hashes, parts, or nothing of a value remains."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from spark_jobs.errors import OptionError
from spark_jobs.pipeline.connectors import ERROR, ORIGIN
from spark_jobs.pipeline.python_columns import computed
from spark_jobs.pipeline.secrets import SecretReference
from spark_jobs.pipeline.sql_steps import Select, SqlStep, check_columns, columns_of, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

REDACTED: Final = "***"


@dataclass(frozen=True)
class MaskStep(SqlStep):
    """Replaces values by texts that reveal less.

    The payload of a row that becomes a dead letter later is not masked: it is what was read.

    Attributes:
        columns: the columns.
        how: ``hash`` (SHA-256), ``redact`` (three asterisks), or ``partial``.
        keep: how many characters at the end ``partial`` leaves; a value that has not twice as many
            is redacted.
        salt: the secret key of ``hash``, which then is HMAC-SHA-256: without one, values that
            can be guessed can be found by hashing all guesses.
    """

    columns: tuple[str, ...]
    how: Literal["hash", "redact", "partial"] = "redact"
    keep: int = 4
    salt: SecretReference | None = None

    def apply(self, rows: DataFrame, prefix: str) -> DataFrame:
        """Run it."""
        if self.salt is not None and self.how != "hash":
            raise OptionError('a salt is for how = "hash"; leave it out')
        masked = super().apply(rows, prefix)
        if self.salt is None:
            return masked
        # A key in an expression would be shown in plans; in a function it is not.
        keyed = KeyedHash(self.salt.reveal().encode())
        made = {name: computed(keyed, "string", _text_type, quote(name)) for name in self.columns}
        return masked.withColumns(made)

    def selects(self, schema: StructType, prefix: str) -> list[Select]:
        """Compile it."""
        check_columns(self.columns, schema)
        chosen = [
            f"{self._masked(f'CAST({quote(name)} AS STRING)')} AS {quote(name)}"
            if name in self.columns
            else quote(name)
            for name in columns_of(schema)
        ]
        return [Select((*chosen, ORIGIN, ERROR))]

    def _masked(self, text: str) -> str:
        if self.how == "redact":
            return f"CASE WHEN {text} IS NOT NULL THEN '{REDACTED}' END"
        if self.how == "hash":
            return text if self.salt is not None else f"sha2({text}, 256)"
        return (
            f"CASE WHEN length({text}) >= {2 * self.keep} THEN concat(repeat('*', length({text}) "
            f"- {self.keep}), right({text}, {self.keep})) "
            f"WHEN {text} IS NOT NULL THEN '{REDACTED}' END"
        )

    def describe(self) -> str:
        """Say what is masked."""
        key = f" with the key {self.salt}" if self.salt is not None else ""
        return f"mask {', '.join(self.columns)} ({self.how}{key})"


class KeyedHash:
    """Hashes texts with a key; it runs in tasks.

    Args:
        key: the secret.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __call__(self, value: str | None) -> str | None:
        """Hash a value."""
        if value is None:
            return None
        return hmac.new(self._key, value.encode(), hashlib.sha256).hexdigest()


def _text_type() -> Any:
    import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types

    return pa.string()
