"""The servers that are compared: ours, the C store, and Apache Iggy where there is a binary of it.

Their processes and data directories, and the requests that prepare a measurement.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.machine import ROOT, SERVER_CORE, descendants
from iggy_protocol import (
    NEED_DATA,
    ClientConnection,
    CreateStream,
    CreateTopic,
    DeleteTopic,
    ErrorReceived,
    LoginUser,
    Ping,
    ResponseReceived,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from iggy_protocol import Command

__all__ = [
    "STREAM",
    "BenchFailed",
    "BenchServer",
    "ServerPlan",
    "Topic",
    "apache_server",
    "ours",
    "raw_store",
]

STREAM = "bench"
READY_S = 20.0
STOP_S = 20.0
RETRY_S = 0.002


class BenchFailed(Exception):
    """Something did not do what it is measured at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """How a server is started.

    Attributes:
        ack: what its acknowledgements promise.
        shards: how many it runs with.
        migrates: whether it may hand connections from shard to shard.
    """

    ack: str = "written"
    shards: int = 1
    migrates: bool = True


class Topic(NamedTuple):
    """A topic of the stream ``bench``; the numbers are 0 where a server does not tell them."""

    name: str
    stream_id: int
    topic_id: int


class BenchServer:
    """A server on an empty data directory.

    Args:
        name: as it stands in tables.
        command: starts it; ``{port}`` and ``{data}`` are filled in.
        folder: where its data and its output go.
        environment: what it is told.
        reports_port: whether it says in its runtime directory where it listens.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: dict[str, str],
        *,
        reports_port: bool,
    ) -> None:
        self.name = name
        self.folder = folder
        self.port = 0
        self.launched_at = 0.0
        self._command = command
        self._environment = environment
        self._reports_port = reports_port
        self._data = folder / "data"
        self._output = folder / "output.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._topics = 0

    def start(self) -> None:
        """Start the process, and wait until it answers.

        Raises:
            BenchFailed: it did not.
        """
        self._data.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._data / "runtime", ignore_errors=True)
        self.port = _free_port()
        command = [part.format(port=self.port, data=self._data) for part in self._command]
        told = {**self._environment, "IGGY_TCP_ADDRESS": f"127.0.0.1:{self.port}"}
        with self._output.open("ab") as output:
            self.launched_at = time.perf_counter()
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**told, "IGGY_SYSTEM_PATH": str(self._data)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.perf_counter() + READY_S
        while not (self._has_reported_port() and self._answers()):
            try:
                status = self._process.wait(RETRY_S)
            except subprocess.TimeoutExpired:
                status = None
            if status is not None or time.perf_counter() > deadline:
                self._kill()
                raise BenchFailed(f"{self.name} did not start:\n{self._output_tail()}")

    def _has_reported_port(self) -> bool:
        if not self._reports_port:
            return True
        try:
            text = (self._data / "runtime" / "current_config.toml").read_text()
            return int(tomllib.loads(text)["tcp"]["address"].rpartition(":")[2]) == self.port
        except (FileNotFoundError, tomllib.TOMLDecodeError, KeyError, ValueError):
            return False

    def _answers(self) -> bool:
        try:
            self.ask(Ping(), logs_in=False)
        except OSError:
            return False
        return True

    def time_to_first_answer(self) -> float:
        """Start the server; return the seconds until it has answered a first request."""
        told, self._reports_port = self._reports_port, False
        try:
            self.start()
            return time.perf_counter() - self.launched_at
        finally:
            self._reports_port = told

    def stop(self) -> None:
        """Stop the process in order, by force if need be."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            print(f"{self.name} did not stop in {STOP_S:.0f} s", file=sys.stderr)
        self._kill()

    def clear(self) -> None:
        """Remove the data."""
        shutil.rmtree(self._data, ignore_errors=True)

    def _kill(self) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def processes(self) -> list[int]:
        """List the processes of the server, the one that was started first."""
        assert self._process is not None, f"{self.name} is not running"
        return descendants(self._process.pid)

    def shards(self) -> list[int]:
        """List the processes that serve, in the order of their numbers."""
        first, *others = self.processes()
        return others or [first]

    # Requests

    def ask(self, *commands: Command[Any], logs_in: bool = True) -> memoryview:
        """Ask one thing after another on a connection of its own; return the last reply.

        Raises:
            BenchFailed: the server refused.
            OSError: there is no server.
        """
        reply = memoryview(b"")
        asked = [LoginUser("iggy", "iggy"), *commands] if logs_in else commands
        with socket.create_connection(("127.0.0.1", self.port), timeout=READY_S) as connected:
            connection = ClientConnection()
            for command in asked:
                for part in connection.send(command):
                    connected.sendall(part)
                while (event := connection.next_event()) is NEED_DATA:
                    connection.receive_data(connected.recv(65_536))
                if isinstance(event, ErrorReceived):
                    raise BenchFailed(f"{self.name} refused {command} with {event.status}")
                if not isinstance(event, ResponseReceived):
                    raise BenchFailed(f"{self.name} closed the connection after {command}")
                reply = event.payload
        return reply

    def create_topic(self, partitions_count: int) -> Topic:
        """Create an empty topic for one measurement."""
        name = f"topic-{self._topics}"
        create = CreateTopic(STREAM, name, partitions_count)
        commands = [create] if self._topics else [CreateStream(STREAM), create]
        reply = self.ask(*commands)
        self._topics += 1
        # The answer begins with the number of the topic; the C store has none.
        topic_id = int.from_bytes(reply[:4], "little")
        return Topic(name, 0, topic_id)

    def delete_topic(self, topic: Topic) -> None:
        """Remove a topic and its messages."""
        self.ask(DeleteTopic(STREAM, topic.name))

    def _output_tail(self) -> str:
        return self._output.read_text(errors="replace")[-4_000:]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _settings_of(plan: ServerPlan, folder: Path) -> dict[str, str]:
    """Write down what all servers are told."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("IGGY_")}
    # An installed server has its modules compiled; so has this one after its first start.
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "protocol")]),
        "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        "IGGY_ROOT_USERNAME": "iggy",
        "IGGY_ROOT_PASSWORD": "iggy",
        "IGGY_HTTP_ENABLED": "false",
        "IGGY_QUIC_ENABLED": "false",
        "IGGY_WEBSOCKET_ENABLED": "false",
        "IGGY_SYSTEM_SHARDING_CPU_ALLOCATION": str(plan.shards),
        "IGGY_TCP_SOCKET_MIGRATION": str(plan.migrates).lower(),
    }


def ours(plan: ServerPlan, folder: Path) -> BenchServer:
    """Describe the server of this repository."""
    environment = {**_settings_of(plan, folder), "IGGY_SYSTEM_PARTITION_ACK": plan.ack}
    command = [sys.executable, "-m", "iggy_ref_server"]
    return BenchServer("ours", command, folder / "ours", environment, reports_port=True)


def apache_server(binary: str, plan: ServerPlan, folder: Path) -> BenchServer:
    """Describe Apache Iggy, which acknowledges from memory unless it syncs."""
    environment = _settings_of(plan, folder)
    if plan.ack == "fsync":
        environment["IGGY_SYSTEM_PARTITION_ENFORCE_FSYNC"] = "true"
        environment["IGGY_SYSTEM_PARTITION_MESSAGES_REQUIRED_TO_SAVE"] = "1"
    return BenchServer("Apache", [binary], folder / "apache", environment, reports_port=False)


def raw_store(program: Path, plan: ServerPlan, folder: Path) -> BenchServer:
    """Describe the C store, which writes before it acknowledges and has one shard only."""
    command = [str(program), "{port}", "{data}", str(SERVER_CORE)]
    command += ["sync"] if plan.ack == "fsync" else []
    return BenchServer(
        "C store", command, folder / "raw_store", dict(os.environ), reports_port=False
    )
