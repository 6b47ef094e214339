"""A streaming reader outside of Spark, and what tests ask it."""

from __future__ import annotations

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_jobs import IggyDataSource
from spark_jobs.offsets import read_offsets, write_offsets

EVERYTHING = ReadAllAvailable()


def make_reader(options, **more):
    given = {name: str(value) for name, value in {**options, **more}.items()}
    source = IggyDataSource(CaseInsensitiveDict(given))
    return source.streamReader(source.schema())


def plain(offset):
    """Leave the offsets alone of what Spark stores."""
    return write_offsets(read_offsets(offset))


def spans(reader, start, end):
    return [(one.partition, one.start, one.end) for one in reader.partitions(start, end)]


def send(client, options, partition, count, topic="t"):
    client.send_messages(options["stream"], topic, [b"x"] * count, partition_id=partition)
