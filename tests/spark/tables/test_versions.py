"""Which package fits which Spark, and what is said when one does not."""

from __future__ import annotations

import pytest

from spark_jobs import OptionError, tables
from spark_jobs.tables.versions import check_jar

NO_METHOD = (
    "An error occurred while calling o62.append.\n: java.lang.NoSuchMethodError: 'void org.apache."
    "spark.sql.execution.LogicalRDD.<init>(scala.collection.immutable.Seq)'\n\tat x.y"
)
NO_INTERFACE = (
    "o55.sql.\n: java.lang.IncompatibleClassChangeError: class org.apache.iceberg.spark.source."
    "SparkView can not implement org.apache.spark.sql.connector.catalog.View\n"
)
NO_STORE = (
    "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
)


def test_packages_when_a_pair_works_then_its_coordinates_are_returned():
    assert tables.packages("delta", "4.0.5") == ("io.delta:delta-spark_4.0_2.13:4.4.0",)
    assert tables.packages("delta", "4.2.1") == ("io.delta:delta-spark_4.2_2.13:4.4.0",)
    assert tables.packages("iceberg", "4.1.4") == (
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    )
    assert tables.packages("parquet", "4.3.0") == ()


@pytest.mark.parametrize(("name", "version"), [("delta", "4.3.0"), ("iceberg", "4.2.1")])
def test_packages_when_no_pair_works_then_those_that_do_are_named(name, version):
    with pytest.raises(OptionError, match=rf"works with Spark {version}; these work: Spark 4.0"):
        tables.packages(name, version)


def test_packages_when_the_format_is_unknown_then_all_are_listed():
    with pytest.raises(OptionError, match="choose one of delta, iceberg, parquet, orc, json, csv"):
        tables.packages("hudi", "4.0.5")


def test_settings_when_a_session_needs_two_formats_then_it_gets_the_extensions_of_both():
    both = tables.settings("delta", "iceberg", "parquet")

    assert both["spark.sql.extensions"].split(",") == [
        tables.settings("delta")["spark.sql.extensions"],
        tables.settings("iceberg")["spark.sql.extensions"],
    ]
    assert tables.settings("parquet") == {}


def test_check_when_the_session_lacks_the_package_then_says_what_works(spark):
    with pytest.raises(OptionError, match=r"has no delta here; .*io\.delta:delta-spark_4\.\d"):
        tables.check_format(spark, "delta")
    tables.check_format(spark, "parquet")


DELTA_41 = "file:/jars/io.delta_delta-spark_4.1_2.13-4.4.0.jar"
ICEBERG_40 = "file:/jars/iceberg-spark-runtime-4.0_2.13-1.11.0.jar"


def test_jar_when_it_is_made_for_another_spark_then_it_is_refused_before_it_fails():
    with pytest.raises(OptionError, match=r"spark_4\.1_2\.13-4\.4\.0\.jar is made for"):
        check_jar(DELTA_41, "4.2.1", "delta")
    with pytest.raises(OptionError, match=r"made for Spark 4\.0, and this is Spark 4\.2\.1; these"):
        check_jar(ICEBERG_40, "4.2.1", "iceberg")


def test_jar_when_it_works_or_does_not_say_then_it_passes():
    check_jar(DELTA_41, "4.1.4", "delta")
    check_jar(ICEBERG_40, "4.1.4", "iceberg")
    check_jar("file:/jars/lake.jar", "4.3.0", "iceberg")


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("delta", NO_METHOD, "made for another Spark than 4.3.0 (java.lang.NoSuchMethodError"),
        ("iceberg", NO_INTERFACE, "(java.lang.IncompatibleClassChangeError: class org.apache.ice"),
    ],
)
def test_incompatible_package_when_java_says_so_then_the_pairs_that_work_are_named(
    name, text, found
):
    explained = tables.explain_incompatible(RuntimeError(text), "4.3.0", name)

    assert explained is not None
    assert found in explained
    assert "these work: Spark 4.0 with" in explained


def test_incompatible_package_when_something_else_is_wrong_then_nothing_is_said():
    assert tables.explain_incompatible(ValueError("no"), "4.3.0", "delta") is None
    assert tables.explain_incompatible(RuntimeError(NO_METHOD), "4.3.0", "parquet") is None


def test_storage_when_s3_is_missing_then_the_package_of_hadoop_is_named():
    explained = tables.explain_incompatible(RuntimeError(NO_STORE), "4.3.0", "delta")

    assert explained is not None
    assert "add --packages org.apache.hadoop:hadoop-aws:3.5.0" in explained
    assert tables.storage_packages("s3a", "4.0.5") == ("org.apache.hadoop:hadoop-aws:3.4.1",)
    with pytest.raises(OptionError, match="choose one of s3a"):
        tables.storage_packages("gs", "4.0.5")


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        ({"format": "parquet"}, "choose delta or iceberg"),
        ({"mode": "merge"}, "merge needs keys"),
        ({"keys": ("id",)}, "append takes none"),
        ({"mode": "upsert"}, "choose append or merge"),
        ({"name": ""}, "needs a name"),
    ],
)
def test_target_when_it_cannot_be_written_to_then_the_answer_helps(wrong, answer):
    with pytest.raises(OptionError, match=answer):
        tables.TableTarget(**{"name": "t", "format": "delta", **wrong})


def test_query_id_when_no_query_runs_then_says_where_to_call_it(spark):
    with pytest.raises(RuntimeError, match="within foreachBatch"):
        tables.query_id(spark.range(1))
