"""The door of the Spark source, sink and jobs, still closed: this release has none yet.

They will stand on ``iggy_sdk`` alone, and nothing outside this package will need pyspark.
"""

from __future__ import annotations

__all__: list[str] = []
