"""What every version of PySpark has to do, run by the Python that has it; its last line is JSON.

usage: python version_scenario.py SERVER STREAM FOLDER

It imports nothing of the tests but lies in their folder, and needs the project on its path.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import __version__
from pyspark.sql import SparkSession

from iggy_sdk import ConsumerIdentity, Message
from iggy_sdk.blocking import IggyClient
from spark_jobs import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    Report = dict[str, Any]

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "OFF",
    # The sink has to get the moment, whatever the zone of the session.
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
CONSUMER = "version-scenario"
COPIED = "offset BIGINT, payload BINARY, id BINARY, origin_timestamp TIMESTAMP"
HEADERS = "headers ARRAY<STRUCT<key: STRING, kind: STRING, value: BINARY>>"


class Scenario:
    """One session, one stream, and what the server says of it afterwards.

    Args:
        spark: the session.
        client: asks the server.
        server: the connection string for Spark.
        stream: the stream, which is empty.
        folder: for checkpoints and files.
    """

    def __init__(
        self, spark: Any, client: IggyClient, server: str, stream: str, folder: Path
    ) -> None:
        self._spark = spark
        self._client = client
        self._stream = stream
        self._folder = folder
        self._login = {"url": server, "stream": stream}

    def run(self) -> Report:
        """Do everything once."""
        self._client.create_topic(self._stream, "t", 2)
        self.send(0, 30)
        self.send(1, 20)
        return {
            "version": __version__,
            "batch": self.read_batch(),
            "ids": self.write_twice(),
            "restart": self.stream_twice(),
            "lag": self.lag(),
            "limited": self.limited(),
            "copy": self.copy_with_headers(),
            "each": self.copy_each(),
            "job": self.run_job(),
            "error": self.mistake(),
        }

    def send(self, partition: int, count: int) -> None:
        messages = [Message(b"x", headers={"n": 7}) for _ in range(count)]
        self._client.send_messages(self._stream, "t", messages, partition_id=partition)

    def stored(self, topic: str) -> int:
        return self._client.get_topic(self._stream, topic, required=True).messages_count

    def options(self, topic: str = "t", **more: str) -> dict[str, str]:
        return {**self._login, "topic": topic, **more}

    def grown(
        self, columns: str = "partition INT, offset BIGINT, payload BINARY", **more: str
    ) -> Any:
        options = self.options(startingOffsets="earliest", **more)
        return self._spark.readStream.format("iggy").options(**options).schema(columns).load()

    def finished(self, writer: Any, name: str) -> list[int]:
        """Run a query until all that is there was read; return the sizes of its micro-batches."""
        writer = writer.option("checkpointLocation", f"{self._folder}/{name}")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]

    def read_batch(self) -> list[int]:
        df = self._spark.read.format("iggy").options(**self.options(minPartitions="4")).load()
        return [df.count(), df.rdd.getNumPartitions(), df.where("offset = 25").count()]

    def write_twice(self) -> int:
        df = self._spark.range(40, numPartitions=2).selectExpr("CAST(id AS STRING) AS payload")
        options = self.options("ids", createTopic="2", writerId="w")
        for _ in range(2):
            df.write.format("iggy").mode("append").options(**options).save()
        return self.stored("ids")

    def stream_twice(self) -> Report:
        def read() -> list[int]:
            writer = self.grown(consumer=CONSUMER).writeStream.format("parquet")
            return self.finished(writer.option("path", f"{self._folder}/files"), "files-checkpoint")

        first = read()
        self.send(1, 5)
        second = read()
        rows = self._spark.read.parquet(f"{self._folder}/files")
        distinct = rows.select("partition", "offset").distinct().count()
        return {"sizes": [first, second], "rows": rows.count(), "distinct": distinct}

    def lag(self) -> list[int | None]:
        identity = ConsumerIdentity.single(CONSUMER)
        found = [
            self._client.get_consumer_offset(
                self._stream, "t", consumer=identity, partition_id=number
            )
            for number in range(2)
        ]
        return [None if one is None else one.stored_offset for one in found]

    def limited(self) -> list[int]:
        writer = self.grown(maxOffsetsPerTrigger="20").writeStream.format("noop")
        query = writer.option("checkpointLocation", f"{self._folder}/limited").start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]

    def copy_with_headers(self) -> list[Any]:
        source = self.grown(f"{COPIED}, {HEADERS}", includeHeaders="true")
        writer = source.writeStream.format("iggy").options(**self.options("copy", createTopic="1"))
        self.finished(writer.queryName("copy"), "copy")
        whole = {
            name: self._spark.read.format("iggy")
            .options(**self.options(name, includeHeaders="true"))
            .schema(f"{COPIED}, {HEADERS}")
            .load()
            .selectExpr("id", "origin_timestamp", "headers[0].kind", "headers[0].value")
            for name in ("t", "copy")
        }
        return [whole["copy"].count(), whole["t"].exceptAll(whole["copy"]).count()]

    def copy_each(self) -> int:
        target = self.options("each", createTopic="1")

        def write(rows: DataFrame, _: int) -> None:
            rows.select("payload").write.format("iggy").mode("append").options(**target).save()

        self.finished(self.grown().writeStream.foreachBatch(write), "each")
        return self.stored("each")

    def run_job(self) -> list[int]:
        from spark_jobs.jobs import to_parquet

        place = ["--server", self._login["url"], "--stream", self._stream, "--topic", "t"]
        code = to_parquet.main([*place, "--path", f"{self._folder}/job", "--once"])
        return [code, self._spark.read.parquet(f"{self._folder}/job").count()]

    def mistake(self) -> str:
        reader = self._spark.read.format("iggy").options(**self.options("nowhere"))
        return _failure(lambda: reader.load().count())


def _failure(work: Callable[[], object]) -> str:
    try:
        work()
    except Exception as error:
        return str(error)
    return "none"


def main(server: str, stream: str, folder: str) -> None:
    """Run it, and report."""
    builder = SparkSession.builder.master("local[2]").appName("versions")
    place = Path(folder)
    for name, value in {**SETTINGS, "spark.sql.warehouse.dir": f"{place}/warehouse"}.items():
        builder = builder.config(name, value)
    spark = register(builder.getOrCreate())
    with IggyClient(server) as client:
        report = Scenario(spark, client, server, stream, place).run()
    sys.stdout.write(f"{json.dumps(report)}\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
