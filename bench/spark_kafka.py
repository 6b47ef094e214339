"""Kafka from Maven: Spark's connector to it, and a broker of one process.

Maven keeps the jars in its own repository, where they stay for the next run. Measures nothing.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.sax.saxutils import escape

from pyspark import __version__ as spark_version

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import SparkSession

__all__ = ["Broker", "KafkaJars", "KafkaMissing", "TopicAdmin", "find_jars"]

BROKER_VERSION = "4.1.1"
SCALA = "2.13"
CONNECTORS = ("4.0.2", "4.1.1", "4.2.0")
"""The connectors that Maven Central has. That of 4.2 works with PySpark 4.3, which has none."""

TOKEN_PROVIDER_VERSION = "4.0.0"
"""The only one of Spark 4 that Maven Central has; without delegation tokens it hardly matters."""

CLIENTS_VERSION, POOL_VERSION = "3.9.2", "2.13.1"
"""Those of the pom of the newest connector."""

BROKER_HEAP = "1g"
RESOLVE_S, READY_S, STOP_S = 180.0, 60.0, 20.0
LOOK_AGAIN_S = 0.05


class KafkaMissing(Exception):
    """Kafka cannot be had on this machine; the message says why."""


class KafkaJars(NamedTuple):
    """What Maven found.

    Attributes:
        connector_version: of the connector.
        connector: the class path of the connector, without what Spark has itself.
        broker: the class path of the broker.
    """

    connector_version: str
    connector: str
    broker: str


class Artifact(NamedTuple):
    """A jar by its coordinates, with or without what it depends on."""

    group: str
    name: str
    version: str
    is_alone: bool = True


def find_jars(folder: Path) -> KafkaJars:
    """Ask Maven for the connector that fits this Spark, and for the broker.

    Raises:
        KafkaMissing: there is no Maven, or it cannot reach its repository.
    """
    version = _connector_version()
    connector = [
        Artifact("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA}", version),
        Artifact(
            "org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA}", TOKEN_PROVIDER_VERSION
        ),
        Artifact("org.apache.kafka", "kafka-clients", CLIENTS_VERSION),
        Artifact("org.apache.commons", "commons-pool2", POOL_VERSION),
    ]
    broker = [Artifact("org.apache.kafka", f"kafka_{SCALA}", BROKER_VERSION, is_alone=False)]
    return KafkaJars(
        version,
        _class_path(connector, folder / "connector"),
        _class_path(broker, folder / "broker"),
    )


def _connector_version() -> str:
    mine = _numbers(spark_version)[:2]
    fitting = [version for version in CONNECTORS if _numbers(version)[:2] <= mine]
    if not fitting:
        raise KafkaMissing(f"there is no connector for Spark {spark_version}")
    return fitting[-1]


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


def _class_path(artifacts: list[Artifact], folder: Path) -> str:
    """Have Maven resolve some artifacts with their checksums; return where the jars are."""
    if shutil.which("mvn") is None:
        raise KafkaMissing("Maven is not installed")
    folder.mkdir(parents=True)
    (folder / "pom.xml").write_text(_pom(artifacts), encoding="utf-8")
    command = ["mvn", "--quiet", "--batch-mode", "--strict-checksums"]
    command += ["dependency:build-classpath", "-Dmdep.outputFile=classpath.txt"]
    command += ["-Dmdep.includeScope=runtime"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=RESOLVE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise KafkaMissing(f"Maven did not answer in {RESOLVE_S:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
        raise KafkaMissing(f"Maven failed: {' '.join(lines[:1])[:200]}")
    return (folder / "classpath.txt").read_text(encoding="utf-8").strip()


def _pom(artifacts: list[Artifact]) -> str:
    alone = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        "</exclusions>"
    )
    dependencies = "".join(
        f"<dependency><groupId>{escape(one.group)}</groupId>"
        f"<artifactId>{escape(one.name)}</artifactId><version>{escape(one.version)}</version>"
        f"{alone if one.is_alone else ''}</dependency>"
        for one in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


class Broker:
    """A single Kafka process, broker and controller, on an empty directory and free ports.

    It acknowledges when a record is in the page cache, as our server does, and keeps its defaults
    but for the delay after which files of a deleted topic go.
    """

    def __init__(self, class_path: str, folder: Path) -> None:
        self._java = [_java(), "-cp", class_path]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def __enter__(self) -> Broker:
        self._folder.mkdir(parents=True)
        ports = _free_ports()
        self.address = f"127.0.0.1:{ports[0]}"
        settings = self._folder / "server.properties"
        settings.write_text(_properties(self._folder / "data", *ports), encoding="utf-8")
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)).wait()
        heap = [f"-Xms{BROKER_HEAP}", f"-Xmx{BROKER_HEAP}"]
        self._process = self._run("kafka.Kafka", str(settings), options=heap)
        try:
            self._wait_until_ready(ports[0])
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def process_id(self) -> int:
        """The process to measure."""
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    def _run(
        self, main: str, *arguments: str, options: list[str] | None = None
    ) -> subprocess.Popen[bytes]:
        with (self._folder / "output.txt").open("ab") as output:
            return subprocess.Popen(
                [*self._java, *(options or []), main, *arguments],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_until_ready(self, port: int) -> None:
        assert self._process is not None
        deadline = time.perf_counter() + READY_S
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LOOK_AGAIN_S)
                deadline = 0.0
            if time.perf_counter() > deadline:
                output = (self._folder / "output.txt").read_text(errors="replace")
                raise KafkaMissing(f"the broker did not start:\n{output[-2000:]}")

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _free_ports() -> tuple[int, int]:
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.1", 0)) as second,
    ):
        return first.getsockname()[1], second.getsockname()[1]


def _properties(data: Path, port: int, controller_port: int) -> str:
    broker, controller = f"127.0.0.1:{port}", f"127.0.0.1:{controller_port}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{broker}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "log.segment.delete.delay.ms": "0",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


class TopicAdmin:
    """Creates and deletes topics with the Java client that the connector brings."""

    def __init__(self, spark: SparkSession, address: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        properties = jvm.java.util.Properties()
        properties.setProperty("bootstrap.servers", address)
        self._admin: Any = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        self._partitions: dict[str, int] = {}

    def create(self, topic: str, partitions_count: int) -> None:
        """Create an empty topic."""
        new = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, partitions_count, 1)
        self._admin.createTopics(self._jvm.java.util.List.of(new)).all().get()
        self._partitions[topic] = partitions_count

    def messages_count(self, topic: str) -> int:
        """Count what was written to a topic of ours."""
        latest = self._jvm.org.apache.kafka.clients.admin.OffsetSpec.latest()
        total = 0
        for number in range(self._partitions[topic]):
            place = self._jvm.org.apache.kafka.common.TopicPartition(topic, number)
            asked = self._jvm.java.util.Map.of(place, latest)
            total += self._admin.listOffsets(asked).partitionResult(place).get().offset()
        return total

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._admin.deleteTopics(self._jvm.java.util.List.of(topic)).all().get()

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()
