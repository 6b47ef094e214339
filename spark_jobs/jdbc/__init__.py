"""Tables of databases by JDBC: a micro-batch is written once, however often it is repeated.

Tasks of Spark commit on their own, so they fill a staging table first. One transaction then moves
its rows to the table and advances the marker of the writer, in the table ``iggy_batches``. After a
crash the staging table is made anew, and a replay finds the marker and changes nothing.
"""

from __future__ import annotations

from spark_jobs.jdbc.batches import write_batch
from spark_jobs.jdbc.target import JdbcTarget, packages

__all__ = ["JdbcTarget", "packages", "write_batch"]
