"""Which package of a table format works with which version of Spark, and what a session needs.

The table is what was tried with real writes, merges and reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from spark_jobs.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableFormat(NamedTuple):
    """A table format that comes in a package of its own.

    Attributes:
        needs: a Java class of the package, to detect it.
        packages: for each version of Spark the Maven coordinates that work with it, best first.
        settings: what a session needs for it.
    """

    needs: str
    packages: Mapping[str, tuple[str, ...]]
    settings: Mapping[str, str]


EXTENSIONS: Final = "spark.sql.extensions"

FORMATS: Final[Mapping[str, TableFormat]] = {
    "delta": TableFormat(
        "io.delta.sql.DeltaSparkSessionExtension",
        {
            "4.0": ("io.delta:delta-spark_4.0_2.13:4.4.0",),
            "4.1": ("io.delta:delta-spark_4.1_2.13:4.4.0",),
            "4.2": ("io.delta:delta-spark_4.2_2.13:4.4.0",),
        },
        {
            EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    ),
    "iceberg": TableFormat(
        "org.apache.iceberg.spark.SparkCatalog",
        {
            "4.0": ("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",),
            "4.1": (
                "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
                "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
            ),
        },
        {EXTENSIONS: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"},
    ),
}

# The Hadoop that comes with each Spark; a package of another version fails in odd ways.
_HADOOP: Final = {"4.0": "3.4.1", "4.1": "3.4.2", "4.2": "3.5.0", "4.3": "3.5.0"}

STORES: Final = {"s3a": "org.apache.hadoop:hadoop-aws"}
"""Where tables and checkpoints can be besides Hadoop's own file systems: schemes of paths."""

OWN_FORMATS: Final = ("parquet", "orc", "json", "csv")
"""Formats that come with Spark, to which rows can only be appended."""


def settings(*formats: str) -> Mapping[str, str]:
    """Return what a session needs for these formats; Spark's own need nothing.

    Raises:
        OptionError: there is no such format.
    """
    chosen: dict[str, str] = {}
    for name in formats:
        wanted = _find(name)
        for setting, value in ({} if wanted is None else wanted.settings).items():
            both = setting == EXTENSIONS and setting in chosen
            chosen[setting] = f"{chosen[setting]},{value}" if both else value
    return chosen


def packages(name: str, spark_version: str) -> tuple[str, ...]:
    """Return the Maven coordinates of a format for a version of Spark, such as ``4.1.4``.

    Raises:
        OptionError: there is no such format, or none for this version; the message names the
            versions that work.
    """
    wanted = _find(name)
    if wanted is None:
        return ()
    found = wanted.packages.get(_minor(spark_version))
    if found is None:
        raise OptionError(f"no package of {name} works with Spark {spark_version}; {_pairs(name)}")
    return found[:1]


def storage_packages(scheme: str, spark_version: str) -> tuple[str, ...]:
    """Return the Maven coordinates that paths of a scheme need, such as ``s3a``.

    Raises:
        OptionError: the scheme or the version of Spark is not known.
    """
    name, version = STORES.get(scheme), _HADOOP.get(_minor(spark_version))
    if name is None or version is None:
        raise OptionError(
            f"nothing is known of {scheme!r} with Spark {spark_version}; choose one of "
            f"{', '.join(STORES)}, and Spark {' or '.join(_HADOOP)}"
        )
    return (f"{name}:{version}",)


def check_format(spark: SparkSession, name: str) -> None:
    """Check that a session has the package of a format, and that it is made for this Spark.

    Raises:
        OptionError: it is missing or does not work; the message says what to add.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types

    wanted = _find(name)
    jvm = getattr(spark, "_jvm", None)
    # With Spark Connect Java is somewhere else, and the first write tells.
    if wanted is None or jvm is None:
        return
    try:
        found = jvm.org.apache.spark.util.Utils.classForName(wanted.needs, True, False)
    except Py4JJavaError:
        raise OptionError(
            f"Spark {spark.version} has no {name} here; {_advice(name, spark.version)}, or "
            "choose --format parquet"
        ) from None
    source = found.getProtectionDomain().getCodeSource()
    check_jar("" if source is None else source.getLocation().toString(), spark.version, name)


_MADE_FOR: Final = re.compile(r"(?:delta-spark|iceberg-spark-runtime)[-_](\d+\.\d+)_")


def check_jar(location: str, spark_version: str, name: str) -> None:
    """Check by its name that a jar of a format is made for a version of Spark.

    A jar with another name passes; what Java says of it is explained when it is used.

    Raises:
        OptionError: it is made for another one.
    """
    made_for = _MADE_FOR.search(location)
    works = " ".join(FORMATS[name].packages.get(_minor(spark_version), ()))
    fitting = {_minor(spark_version), *_MADE_FOR.findall(works)}
    if made_for is not None and made_for[1] not in fitting:
        raise OptionError(
            f"{location.rpartition('/')[2]} is made for Spark {made_for[1]}, and this is Spark "
            f"{spark_version}; {_pairs(name)}"
        )


def _find(name: str) -> TableFormat | None:
    if name not in FORMATS and name not in OWN_FORMATS:
        known = ", ".join((*FORMATS, *OWN_FORMATS))
        raise OptionError(f"there is no table format {name!r}; choose one of {known}")
    return FORMATS.get(name)


def _minor(spark_version: str) -> str:
    return ".".join(spark_version.split(".")[:2])


def _advice(name: str, spark_version: str) -> str:
    found = FORMATS[name].packages.get(_minor(spark_version))
    if found is None:
        return f"no package of it works with this version; {_pairs(name)}"
    return f"add --packages {found[0]} (or its jars with --conf spark.jars=FILES)"


def _pairs(name: str) -> str:
    """List the pairs that work."""
    pairs = (
        f"Spark {version} with {found[0]}" for version, found in FORMATS[name].packages.items()
    )
    return f"these work: {', '.join(pairs)}"


_LINKAGE: Final = re.compile(
    r"java\.lang\.(NoSuchMethodError|NoSuchFieldError|AbstractMethodError|NoClassDefFoundError"
    r"|ClassNotFoundException|IncompatibleClassChangeError|IllegalAccessError|VerifyError"
    r"|BootstrapMethodError)\b[^\n]*"
)
"""What Java says when a jar was compiled against another version of what it calls."""


_NO_STORE: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem not found"


def explain_incompatible(error: BaseException, spark_version: str, name: str) -> str | None:
    """Say in a sentence which jar is missing or made for another Spark; None if none is."""
    text = str(error)
    if _NO_STORE in text:
        needed = ",".join(storage_packages("s3a", spark_version))
        return f"Spark {spark_version} cannot read s3a:// here; add --packages {needed}"
    found = _LINKAGE.search(text)
    if found is None or name not in FORMATS:
        return None
    return (
        f"the package of {name} in this session is made for another Spark than {spark_version} "
        f"({found[0].strip()}); {_pairs(name)}"
    )
