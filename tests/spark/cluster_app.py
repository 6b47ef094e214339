"""What runs on the cluster: it reads a topic, copies it twice, and tells where its code came from.

usage: spark-submit cluster_app.py SERVER STREAM CHECKPOINT

It is submitted by ``cluster.py`` and imports nothing of the tests, which no worker has. Its last
line is JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs import register


def tell_origin(_: Any) -> tuple[str, str, str]:
    """Say in a task which Python runs, where the project is, and which batch code it uses."""
    import iggy_protocol

    return sys.executable, iggy_protocol.__file__, iggy_protocol.BATCH_IMPLEMENTATION


def main(server: str, stream: str, checkpoint: str) -> None:
    """Read, copy in a batch, copy in a stream."""
    spark = register(SparkSession.builder.getOrCreate())
    options = {"server": server, "stream": stream}
    source = {**options, "topic": "t"}
    read = spark.read.format("iggy").options(**source, minPartitions="4").load()
    rows_count = read.count()
    read.select("payload").write.format("iggy").mode("append").options(
        **options, topic="copy", createTopic="2"
    ).save()
    grown = spark.readStream.format("iggy").options(**source, startingOffsets="earliest").load()
    query = (
        grown.select("payload")
        .writeStream.format("iggy")
        .options(**options, topic="stream", createTopic="2", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    origins = spark.sparkContext.parallelize(range(8), 8).map(tell_origin).distinct().collect()
    spark.stop()
    sys.stdout.write(json.dumps({"rows_count": rows_count, "origins": sorted(origins)}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
