"""Sources that are topics: of Iggy, filled by anyone or over HTTP, and of Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from spark_jobs.errors import OptionError
from spark_jobs.jobs.command import SERVER_VARIABLE
from spark_jobs.jobs.terminal import FIRST_ROWS
from spark_jobs.jobs.topic_source import TopicSource
from spark_jobs.pipeline.connectors import ERROR, ORIGIN
from spark_jobs.pipeline.secrets import SecretOrText, SecretReference, reveal
from spark_jobs.tables.merge import PREFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.jobs.topic_source import PartitionSpan

MESSAGE_COLUMNS: Final = (
    "stream STRING, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "origin_timestamp TIMESTAMP, payload BINARY"
)
HEADER_COLUMN: Final = "headers ARRAY<STRUCT<key: STRING, kind: STRING, value: BINARY>>"
MESSAGE_NAMES: Final = tuple(part.split()[0] for part in MESSAGE_COLUMNS.split(", "))
SHOWN_NAMES: Final = MESSAGE_NAMES[1:]
"""The columns that rows show; the name of the stream is in their origin only."""

HTTP_PORT: Final = 3000
"""The usual port of a server's HTTP API."""

SERVER_OF_ENVIRONMENT: Final = SecretReference("env", SERVER_VARIABLE)


@dataclass(frozen=True)
class IggySource:
    """Topics of Iggy.

    Attributes:
        stream: name of the stream.
        topic: a topic, or several separated by commas.
        server: the connection string; by default that of the environment.
        starting_offsets: where a first run begins: ``earliest``, ``latest`` or JSON.
        starting_timestamp: instead, a time.
        consumer: the name under which offsets are stored on the server.
        fail_on_data_loss: whether the pipeline fails when messages were deleted unread.
        include_headers: whether there is a column ``headers``.
        min_partitions: how many tasks there shall be at least.
    """

    stream: str
    topic: str
    server: SecretOrText = SERVER_OF_ENVIRONMENT
    starting_offsets: str | None = None
    starting_timestamp: str | None = None
    consumer: str | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None

    prefix = PREFIX
    has_stable_places = False

    def topic_source(self, max_rows: int | None = None) -> TopicSource:
        """Return the topic with its options checked.

        Raises:
            OptionError: one is wrong.
        """
        starting = self.starting_offsets
        if starting is None and self.starting_timestamp is None:
            starting = "earliest"
        columns = MESSAGE_COLUMNS + (f", {HEADER_COLUMN}" if self.include_headers else "")
        shared = {
            "server": reveal(self.server),
            "stream": self.stream,
            "topic": self.topic,
            "startingOffsets": starting,
            "startingTimestamp": self.starting_timestamp,
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            "includeHeaders": str(self.include_headers).lower(),
            "minPartitions": self.min_partitions,
        }
        growing = {"maxOffsetsPerTrigger": max_rows, "consumer": self.consumer}
        return TopicSource.made(shared, growing, columns)

    def check(self) -> None:
        """Ask the server for the topic."""
        self.topic_source().spans()

    def load(self, spark: SparkSession, max_rows: int | None) -> DataFrame:
        """Return the topic as a stream."""
        return self.topic_source(max_rows).load_stream(spark)

    def label(self, rows: DataFrame) -> DataFrame:
        """Add the columns of the pipeline."""
        shown = [*SHOWN_NAMES, *(["headers"] if self.include_headers else [])]
        origin = f"struct({', '.join(MESSAGE_NAMES)}) AS {ORIGIN}"
        return rows.selectExpr(*shown, origin, f"CAST(NULL AS STRING) AS {ERROR}")

    def sample(self, spark: SparkSession) -> DataFrame:
        """Return the first messages of each partition."""
        return self.topic_source().sample(spark, FIRST_ROWS)

    def spans(self) -> list[PartitionSpan]:
        """Return the offsets of a first run."""
        return self.topic_source().spans()

    def describe(self) -> str:
        """Say in words what is read."""
        return f"stream {self.stream}, topic {self.topic}"


@dataclass(frozen=True)
class WebhookSource:
    """A topic that programs fill by HTTP POST, without a client of Iggy.

    The server's own HTTP API takes the requests, so nothing is lost while no pipeline runs. The
    pipeline creates the topic, says where to post, and reads it as any other topic.

    Attributes:
        stream: name of the stream.
        topic: the topic.
        server: the connection string; by default that of the environment.
        http: the address of the server's HTTP API; by default the server is asked for its port.
        create_topic: how many partitions a missing topic gets.
        consumer: the name under which offsets are stored on the server.
    """

    stream: str
    topic: str
    server: SecretOrText = SERVER_OF_ENVIRONMENT
    http: str | None = None
    create_topic: int = 1
    consumer: str | None = None

    prefix = PREFIX
    has_stable_places = False

    def messages(self) -> IggySource:
        """Return the topic as a source."""
        return IggySource(self.stream, self.topic, self.server, consumer=self.consumer)

    def check(self) -> None:
        """Create what is missing."""
        from spark_jobs.topics import connection

        client = connection(reveal(self.server))
        if client.get_stream(self.stream) is None:
            client.create_stream(self.stream)
        if client.get_topic(self.stream, self.topic) is None:
            client.create_topic(self.stream, self.topic, self.create_topic)
        self.messages().check()

    def load(self, spark: SparkSession, max_rows: int | None) -> DataFrame:
        """Return the topic as a stream."""
        return self.messages().load(spark, max_rows)

    def label(self, rows: DataFrame) -> DataFrame:
        """Add the columns of the pipeline."""
        return self.messages().label(rows)

    def sample(self, spark: SparkSession) -> DataFrame:
        """Return the first messages."""
        return self.messages().sample(spark)

    def spans(self) -> list[PartitionSpan]:
        """Return the offsets of a first run."""
        return self.messages().spans()

    @property
    def url(self) -> str:
        """Where messages are posted."""
        root = self.http or self._http_address()
        return f"{root.rstrip('/')}/streams/{self.stream}/topics/{self.topic}/messages"

    def _http_address(self) -> str:
        """Ask the server for the address of its HTTP API; without an answer it is the usual one."""
        from iggy_sdk import IggyError
        from spark_jobs.topics import connection

        server = reveal(self.server)
        host = urlsplit(server).hostname or "127.0.0.1"
        try:
            (node, *_) = connection(server).get_cluster_metadata().nodes
            port = node.http_port or HTTP_PORT
        except (IggyError, OSError, ValueError):
            port = HTTP_PORT
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def describe(self) -> str:
        """Say where to post, and how."""
        return (
            f"what is posted to {self.url} with 'Authorization: Bearer TOKEN' (a personal access "
            'token, or that of POST /users/login) and {"partitioning": {"kind": "balanced", '
            '"value": ""}, "messages": [{"payload": "BASE64"}]}; '
            f"the server keeps it in stream {self.stream}, topic {self.topic}"
        )


KAFKA_CLASS: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
KAFKA_PACKAGE: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
KAFKA_NAMES: Final = ("topic", "partition", "offset", "timestamp", "key")


@dataclass(frozen=True)
class KafkaSource:
    """Topics of Kafka, with Spark's own connector.

    Attributes:
        servers: the brokers, as ``host:port,host:port``.
        topic: a topic, or several separated by commas.
        starting_offsets: where a first run begins: ``earliest``, ``latest`` or JSON.
        options: further options of Spark's Kafka source, such as ``kafka.security.protocol``.
    """

    servers: str
    topic: str
    starting_offsets: str = "earliest"
    options: Mapping[str, SecretOrText] = field(default_factory=dict)

    prefix = "kafka_"
    has_stable_places = False

    def check(self) -> None:
        """Leave the check to the connector, which is in Java."""

    def load(self, spark: SparkSession, max_rows: int | None) -> DataFrame:
        """Return the topic as a stream.

        Raises:
            OptionError: Spark has no connector.
        """
        reader = self._configured(spark, spark.readStream)
        if max_rows is not None:
            reader = reader.option("maxOffsetsPerTrigger", max_rows)
        rows: DataFrame = reader.load()
        return rows

    def _configured(self, spark: SparkSession, reader: Any) -> Any:
        check_class(spark, KAFKA_CLASS, f"{KAFKA_PACKAGE}:{spark.version}")
        given = {name: reveal(value) for name, value in self.options.items()}
        place = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.topic,
            "startingOffsets": self.starting_offsets,
        }
        return reader.format("kafka").options(**{**given, **place})

    def label(self, rows: DataFrame) -> DataFrame:
        """Add the columns of the pipeline."""
        place = ("topic", "partition", "offset", "timestamp", "timestamp AS origin_timestamp")
        origin = "named_struct({})".format(
            ", ".join(f"'{one.split()[-1]}', {one.split()[0]}" for one in place)
            + ", 'payload', value"
        )
        return rows.selectExpr(
            *KAFKA_NAMES,
            "value AS payload",
            f"{origin} AS {ORIGIN}",
            f"CAST(NULL AS STRING) AS {ERROR}",
        )

    def sample(self, spark: SparkSession) -> DataFrame:
        """Return the first messages."""
        rows: DataFrame = self._configured(spark, spark.read).load().limit(FIRST_ROWS)
        return rows

    def spans(self) -> None:
        """Return nothing: the offsets are in Java."""

    def describe(self) -> str:
        """Say in words what is read."""
        return f"Kafka topic {self.topic} of {self.servers}"


def check_class(spark: SparkSession, name: str, package: str) -> None:
    """Refuse what Spark has not.

    Raises:
        OptionError: the class is missing; the message names the package.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types

    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.util.Utils.classForName(name, True, False)
    except Py4JJavaError:
        raise OptionError(
            f"Spark {spark.version} has no {name.rpartition('.')[2]}; add --packages {package}"
        ) from None
