"""Lets Spark find ``format("iggy")`` by itself: it looks into every package named ``pyspark_*``.

``spark_jobs.register(spark)`` does the same explicitly.
"""

from __future__ import annotations

from spark_jobs import IggyDataSource as DefaultSource

__all__ = ["DefaultSource"]
