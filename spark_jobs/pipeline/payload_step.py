"""The transform of JSON payloads that need no schema: fields no step names stay as they are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.errors import OptionError
from spark_jobs.jobs.transforms import (
    METADATA_COLUMNS,
    PayloadMismatchError,
    Transform,
    read_step,
    run_steps,
)
from spark_jobs.pipeline.connectors import ERROR, ORIGIN
from spark_jobs.pipeline.python_columns import computed
from spark_jobs.pipeline.sql_steps import check_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PAYLOAD: Final = "payload"
_RESULT: Final = "_iggy_result"


@dataclass(frozen=True)
class PayloadStep:
    """Changes the fields of payloads that are JSON objects.

    Attributes:
        steps: what to do in this order: ``add F=V``, ``update F=V``, ``delete F,F``, ``keep F,F``
            or ``filter F>=10``.
    """

    steps: tuple[str, ...]

    is_stateful = False

    def check(self) -> None:
        """Read the steps.

        Raises:
            OptionError: one of them cannot be read.
        """
        read_steps(self.steps)

    def apply(self, rows: DataFrame, prefix: str) -> DataFrame:
        """Run the steps in Python; a row that a filter drops has no result."""
        from pyspark.sql import functions as F

        check_columns([PAYLOAD], rows.schema)
        origin: Any = rows.schema[ORIGIN].dataType
        known = [name for name in METADATA_COLUMNS if name in origin.fieldNames()]
        facts = [
            F.unix_micros(f"{ORIGIN}.{name}") if name == "timestamp" else F.col(f"{ORIGIN}.{name}")
            for name in known
        ]
        change = PayloadTransformer(self.steps, tuple(known))
        payload = F.col(PAYLOAD).cast("binary")
        result = computed(
            change, f"{PAYLOAD} binary, error string", _result_type, payload, ERROR, *facts
        )
        made = rows.withColumn(_RESULT, result).where(f"{_RESULT} IS NOT NULL")
        columns = {PAYLOAD: f"{_RESULT}.{PAYLOAD}", ERROR: f"{_RESULT}.error"}
        return made.select(
            *(F.col(columns.get(name, f"`{name}`")).alias(name) for name in rows.columns)
        )

    def sql(self, rows: DataFrame, prefix: str) -> None:
        """Return nothing: it is Python."""

    def describe(self) -> str:
        """Say what is done."""
        return "; ".join(self.steps)


def read_steps(texts: tuple[str, ...]) -> list[Transform]:
    """Read steps such as ``delete user.password``.

    Raises:
        OptionError: one of them cannot be read.
    """
    steps = []
    for text in texts:
        kind, _, rest = text.partition(" ")
        if kind not in ("add", "update", "delete", "keep", "filter") or not rest.strip():
            raise OptionError(
                f"{text!r} is no step; write add, update, delete, keep or filter, and what"
            )
        steps.append(read_step(kind, rest))
    return steps


class PayloadTransformer:
    """Runs the steps in a task.

    Args:
        texts: the steps as texts, because what they are read to cannot be pickled.
        names: what is known about a message, in the order of the arguments.
    """

    def __init__(self, texts: tuple[str, ...], names: tuple[str, ...]) -> None:
        self._texts = texts
        self._names = names
        self._steps: list[Transform] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the steps that were read."""
        return {**vars(self), "_steps": None}

    def __call__(
        self, payload: bytes | None, error: str | None, *facts: Any
    ) -> dict[str, Any] | None:
        """Transform a payload; None drops the row."""
        if error is not None:
            return {PAYLOAD: payload, "error": error}
        if self._steps is None:
            self._steps = read_steps(self._texts)
        known = dict.fromkeys(METADATA_COLUMNS) | dict(zip(self._names, facts, strict=True))
        if known["timestamp"] is not None:
            at = datetime.fromtimestamp(known["timestamp"] / 1_000_000, UTC)
            known["timestamp"] = at.isoformat()
        try:
            made = run_steps(self._steps, payload or b"", known)
        except PayloadMismatchError as mismatch:
            # A dead letter keeps its original payload.
            return {PAYLOAD: payload, "error": str(mismatch)}
        return None if made is None else {PAYLOAD: made, "error": None}


def _result_type() -> Any:
    import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types

    return pa.struct([(PAYLOAD, pa.binary()), ("error", pa.string())])
