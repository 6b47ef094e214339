"""The server as a process of its own, for tests that see it as its users do.

    with RunningServer(directory, settings={"IGGY_SYSTEM_SEGMENT_SIZE": "5 KiB"}) as server:
        client = server.connect()

It takes no fixed port: the server writes where it listens once it is ready. Whatever it printed is
part of the error when it does not start, dies, or does not stop as it should. A server whose loop
was busy for a second, so that all clients had to wait, has failed as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from iggy_ref_server.process.shard_process import BUSY
from tests.server.wire_client import WireClient

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence
    from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
USERNAME = PASSWORD = "iggy"

READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.01
OUTPUT_CHARACTERS_SHOWN = 6_000

# What every server under test is told, unless a test says otherwise.
DEFAULTS = {
    "IGGY_ROOT_USERNAME": USERNAME,
    "IGGY_ROOT_PASSWORD": PASSWORD,
    "IGGY_TCP_ADDRESS": "127.0.0.1:0",
    "IGGY_HTTP_ADDRESS": "127.0.0.1:0",
    "IGGY_QUIC_ADDRESS": "127.0.0.1:0",
    "IGGY_WEBSOCKET_ADDRESS": "127.0.0.1:0",
}


class ServerFailed(AssertionError):
    """The process did not do what a server does; the message ends with its output."""


class RunningServer:
    """A server on a data directory that outlives its processes.

    Args:
        directory: where its data and its output go; created when it is missing.
        shards: how many it runs with.
        settings: ``IGGY_*`` names that override those of the tests; an empty text removes one.
        arguments: its command line.
        prefix: a program that starts the server, with its arguments.
    """

    def __init__(
        self,
        directory: Path,
        *,
        shards: int = 1,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        self.prefix = tuple(prefix)
        self.data = directory / "data"
        self.shards = shards
        self.settings = dict(settings or {})
        self.arguments = tuple(arguments)
        self._output = directory / "output.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._address: tuple[str, int] | None = None
        self._clients: list[WireClient] = []

    def __enter__(self) -> RunningServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._process is not None and kind is None:
                self.stop()
        finally:
            self.close()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        assert self._address is not None, "the server is not running"
        return self._address

    @property
    def pid(self) -> int:
        """The process that was started, the supervisor of the shards."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process without waiting until it serves."""
        assert self._process is None, "the server is running already"
        self.data.parent.mkdir(parents=True, exist_ok=True)
        # A killed server leaves this file behind, and it names a port of the past.
        (self.data / "runtime" / "current_config.toml").unlink(missing_ok=True)
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "iggy_ref_server", *self.arguments],
                cwd=self.data.parent,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start(self) -> None:
        """Start the process and wait until it serves.

        Raises:
            ServerFailed: it died, or took too long.
        """
        self.launch()
        deadline = time.monotonic() + READY_SECONDS_MAX
        while (address := self._bound_address()) is None:
            if self._exited_within(POLL_SECONDS):
                raise self._failure(f"it ended with {self.wait()} instead of starting")
            if time.monotonic() > deadline:
                self.kill()
                raise self._failure(f"it was not ready after {READY_SECONDS_MAX} s")
        self._address = address

    def stop(self) -> None:
        """Ask the server to stop, as a service manager does.

        Raises:
            ServerFailed: it took too long, or its exit status is not 0.
        """
        self.signal(signal.SIGTERM)
        status = self.wait()
        if status != 0:
            raise self._failure(f"it was asked to stop and ended with {status}")

    def kill(self) -> None:
        """Kill the server and all its shards where they stand."""
        assert self._process is not None, "the server is not running"
        self._kill_group()
        self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process that was started, and to no other."""
        assert self._process is not None, "the server is not running"
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait until no process of the server is left, and return the exit status.

        Raises:
            ServerFailed: it took too long; what is left is killed.
        """
        process = self._process
        assert process is not None, "the server is not running"
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while not (self._exited_within(POLL_SECONDS) and self._group_is_gone()):
            if time.monotonic() > deadline:
                self._kill_group()
                process.wait()
                self._forget_process()
                raise self._failure(f"it was still there after {STOP_SECONDS_MAX} s")
        self._forget_process()
        return process.returncode

    def close(self) -> None:
        """End whatever is left of the server, and all connections that it was asked for."""
        if self._process is not None:
            self.kill()
        for client in self._clients:
            client.close()
        self._clients.clear()
        self.check_loops()

    def restart(self) -> None:
        """Stop the server and start it on the same data."""
        self.stop()
        self.start()

    def connect(self, *, tls: ssl.SSLContext | None = None, timeout_s: float = 10.0) -> WireClient:
        """Open a connection that has not logged in; it is closed with the server."""
        client = WireClient(self.address, tls=tls, timeout_s=timeout_s)
        self._clients.append(client)
        return client

    def login(self, username: str = USERNAME, password: str = PASSWORD) -> WireClient:
        """Open a connection and log it in."""
        client = self.connect()
        client.login(username, password)
        return client

    def output(self) -> str:
        """Return all that the processes of this server have printed."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def check_loops(self) -> None:
        """See that no shard kept its clients waiting.

        Raises:
            ServerFailed: a loop was busy for a second; an overloaded machine does not count.
        """
        output = self.output()
        at = output.find(BUSY)
        if at >= 0:
            raise ServerFailed(f"a shard did not serve: {output[at:].partition(chr(10))[0]}")

    def current_config(self) -> dict[str, object]:
        """Read the configuration that the server says it runs with."""
        return tomllib.loads((self.data / "runtime" / "current_config.toml").read_text())

    def partition_directory(self, stream_id: int, topic_id: int, partition_id: int) -> Path:
        """Name the directory with the files of a partition."""
        topic = self.data / "streams" / str(stream_id) / "topics" / str(topic_id)
        return topic / "partitions" / str(partition_id)

    def _environment(self) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("IGGY_")
        }
        path = os.pathsep.join([str(ROOT), str(ROOT / "protocol")])
        shards = {"IGGY_SYSTEM_SHARDING_CPU_ALLOCATION": str(self.shards)}
        told = {**DEFAULTS, **shards, "IGGY_SYSTEM_PATH": str(self.data), **self.settings}
        chosen = {name: value for name, value in told.items() if value}
        return {**inherited, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **chosen}

    def _bound_address(self) -> tuple[str, int] | None:
        """Read where the server listens, or None while it has not said so."""
        try:
            text = (self.data / "runtime" / "current_config.toml").read_text()
            host, _, port = tomllib.loads(text)["tcp"]["address"].rpartition(":")
        except (FileNotFoundError, tomllib.TOMLDecodeError, KeyError):
            return None
        return host.strip("[]"), int(port)

    def _exited_within(self, seconds: float) -> bool:
        assert self._process is not None
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _group_is_gone(self) -> bool:
        """Look for living processes of the server; dead ones may wait long to be buried."""
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, group = path.read_text().rpartition(")")[2].split()[:3]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(group) == self.pid and state not in "ZX":
                return False
        return True

    def _kill_group(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _forget_process(self) -> None:
        self._process, self._address = None, None

    def _failure(self, what: str) -> ServerFailed:
        return ServerFailed(f"{what}; it said:\n{self.output()[-OUTPUT_CHARACTERS_SHOWN:]}")
