"""Lets Spark find ``format("iggy")`` by itself: it looks into every package named ``pyspark_*``.

``spark_jobs.register(spark)`` does the same explicitly, and more. PySpark 4.0 would refuse that
after it has found the source here, so it finds none.
"""

from __future__ import annotations

from spark_jobs.spark_api import REGISTERS_OVER_FOUND

if REGISTERS_OVER_FOUND:
    from spark_jobs import IggyDataSource as DefaultSource

    __all__ = ["DefaultSource"]
