"""Columns that Python computes, row by row in tasks, without pandas.

From 4.1 on Spark hands whole columns of Arrow to Python; Spark 4.0 hands single rows, which is
slower and gives the same.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column


class ColumnFunction:
    """Calls a function for each row of some columns of Arrow.

    Args:
        function: takes a value of each column; it is pickled.
        returns: the type of the result, in Arrow's words; it makes the type in the task.
    """

    def __init__(self, function: Callable[..., Any], returns: Callable[[], Any]) -> None:
        self._function = function
        self._returns = returns

    def __call__(self, *columns: Any) -> Any:
        """Compute a column."""
        import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types

        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array([self._function(*values) for values in rows], self._returns())


def computed(
    function: Callable[..., Any], ddl: str, returns: Callable[[], Any], *columns: str | Column
) -> Column:
    """Return a column that Python computes.

    Args:
        function: takes a value of each column; it is pickled.
        ddl: the type of the result, as Spark writes it.
        returns: makes the same type of Arrow.
        columns: what the function takes.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas import functions as arrow

    made: Any
    if not hasattr(arrow, "arrow_udf"):
        made = F.udf(function, ddl)
        return made(*columns)  # type: ignore[no-any-return]  # it is a column
    whole: Any = ColumnFunction(function, returns)
    with warnings.catch_warnings():
        # Spark prefers type hints of the function, which a callable object does not have.
        warnings.filterwarnings("ignore", "It is preferred to specify type hints")
        made = arrow.arrow_udf(whole, ddl, arrow.ArrowUDFType.SCALAR)
    return made(*columns)  # type: ignore[no-any-return]  # it is a column
