"""Run transforms on columns of Spark."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.jobs.transforms import MisfitError, read_step, run_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from spark_jobs.jobs.transforms import Transform

__all__ = ["changed"]

FACTS: Final = ("stream", "topic", "partition", "offset", "timestamp")
"""Columns that steps may copy from."""


def changed(messages: DataFrame, steps: list[Transform], *, is_strict: bool) -> DataFrame:
    """Replace payloads by the results of the steps, and add a column ``error``.

    A filter drops messages. A message that a step cannot process has a reason in ``error``, or
    fails the query if it is strict.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

    if not steps:
        return messages.withColumn("error", F.lit(None).cast("string"))
    changer: Any = Changer(steps, is_strict=is_strict)
    with warnings.catch_warnings():
        # Spark prefers type hints of the function, which a callable object does not have.
        warnings.filterwarnings("ignore", "It is preferred to specify type hints")
        change = arrow_udf(changer, "payload binary, error string", ArrowUDFType.SCALAR)
    result = change("payload", *FACTS)
    made = messages.withColumn("_iggy_result", result).where("_iggy_result IS NOT NULL")
    kept = [name for name in messages.columns if name != "payload"]
    return made.select(
        *kept,
        # A dead letter keeps its original payload.
        F.coalesce("_iggy_result.payload", "payload").alias("payload"),
        F.col("_iggy_result.error").alias("error"),
    )


class Changer:
    """Runs the steps in a task, on whole columns."""

    def __init__(self, steps: list[Transform], *, is_strict: bool) -> None:
        # Steps cannot be pickled, but their texts can.
        self._texts = [step.text for step in steps]
        self._is_strict = is_strict

    def __call__(self, payloads: Any, *facts: Any) -> Any:
        import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types

        steps = [read_step(*text.split(" ", 1)) for text in self._texts]
        columns = [_texts(column) for column in facts]
        rows = zip(payloads.to_pylist(), *columns, strict=True)
        results = [self._change(steps, payload, facts) for payload, *facts in rows]
        kind = pa.struct([("payload", pa.binary()), ("error", pa.string())])
        return pa.array(results, kind)

    def _change(
        self, steps: list[Transform], payload: bytes, facts: Sequence[Any]
    ) -> dict[str, Any] | None:
        known = dict(zip(FACTS, facts, strict=True))
        try:
            made = run_steps(steps, payload, known)
        except MisfitError as error:
            if not self._is_strict:
                return {"payload": None, "error": str(error)}
            place = f"topic {known['topic']!r} partition {known['partition']}"
            raise MisfitError(
                f"{place} offset {known['offset']}: {error}; send such messages elsewhere with "
                "--dead-letter-topic"
            ) from None
        return None if made is None else {"payload": made, "error": None}


def _texts(column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return [one.isoformat() if hasattr(one, "isoformat") else one for one in values]
