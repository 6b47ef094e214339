"""Jobs that run as they are: from a topic to files, to tables, to another topic, and back.

Each command (``iggy-spark-to-parquet`` and so on) is a module here, which ``spark-submit`` takes as
well. None of them loads Spark before it has understood its command line.
"""

from __future__ import annotations
