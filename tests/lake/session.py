"""A session of Spark with packages from Maven, and catalogs of Iceberg in a folder and in S3."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from spark_jobs import prepare_java, tables
from tests.fix_spark import ROOT, SESSION_SETTINGS
from tests.lake.servers import Missing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_EXTENSIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def settings_of(folder: Path, formats: Sequence[str], s3: str | None) -> dict[str, str]:
    """Return the settings of a session."""
    chosen = {
        **SESSION_SETTINGS,
        **tables.settings(*formats),
        "spark.driver.extraJavaOptions": f"{_EXTENSIONS} -Dderby.system.home={folder}",
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    if "iceberg" in formats:
        chosen |= {
            "spark.sql.catalog.lake": _CATALOG,
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(folder / "iceberg"),
            "spark.sql.catalog.far": _CATALOG,
            "spark.sql.catalog.far.type": "hadoop",
            "spark.sql.catalog.far.warehouse": "s3a://lake/iceberg",
        }
    if s3 is not None:
        chosen |= {
            "spark.hadoop.fs.s3a.endpoint": s3,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "lake",
            "spark.hadoop.fs.s3a.secret.key": "lakelake",
        }
    return chosen


def lake_session(
    folder: Path, formats: Sequence[str], packages: Sequence[str], *, s3: str | None = None
) -> SparkSession:
    """Start a session.

    Raises:
        Missing: a package cannot be downloaded.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    prepare_java()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "protocol")])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("lake")
    for name, value in settings_of(folder, formats, s3).items():
        builder = builder.config(name, value)
    try:
        return builder.config("spark.jars.packages", ",".join(packages)).getOrCreate()
    except PySparkRuntimeError as error:
        raise Missing(
            f"Spark does not start with {', '.join(packages)}; see above which Maven has not"
        ) from error
