"""Apache Iggy in Spark: ``format("iggy")`` to read and write topics, in batches and as they grow.

    from spark_jobs import register

    register(spark)
    df = spark.readStream.format("iggy").option("server", "iggy://user:password@host:8090") \
        .option("stream", "shop").option("topic", "orders").load()

It stands on ``iggy_sdk`` alone. Names are loaded when they are first used, so that commands can
show their help without Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.datasource import IggyDataSource, IggyPushdownDataSource, register
    from spark_jobs.errors import DataLossError, OptionError, SchemaError, StaleBatchError
    from spark_jobs.java import prepare_java
    from spark_jobs.query_metrics import QueryMetrics

__all__ = [
    "DataLossError",
    "IggyDataSource",
    "IggyPushdownDataSource",
    "OptionError",
    "QueryMetrics",
    "SchemaError",
    "StaleBatchError",
    "prepare_java",
    "register",
]

_HOMES = {
    "DataLossError": "errors",
    "IggyDataSource": "datasource",
    "IggyPushdownDataSource": "datasource",
    "OptionError": "errors",
    "QueryMetrics": "query_metrics",
    "SchemaError": "errors",
    "StaleBatchError": "errors",
    "prepare_java": "java",
    "register": "datasource",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
