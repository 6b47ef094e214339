"""The process of a server: started on a free port, awaited until it is ready, stopped or killed.

Its output is part of the error when it does not start or stop.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


# Finding a server to start: a command of this machine, never an import.
#
# Any executable named ``iggy-server`` will do, that of Apache Iggy as well.


EXECUTABLE = "iggy-server"
MODULE = "iggy_ref_server"

ADVICE = (
    "Install the reference server with: pip install 'iggy-python[server]'; or put an iggy-server "
    "executable on the PATH; or pass command= to RunningServer."
)


class ServerNotFoundError(RuntimeError):
    """There is no server to start; the message says what to install."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} {ADVICE}")


def server_command() -> tuple[str, ...]:
    """Return the command line that starts a server.

    Raises:
        ServerNotFoundError: there is none.
    """
    executable = shutil.which(EXECUTABLE)
    if executable is not None:
        return (executable,)
    if importlib.util.find_spec(MODULE) is not None:
        return (sys.executable, "-m", MODULE)
    raise ServerNotFoundError("There is no Iggy server on this machine.")


READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
"""Loaded CI machines are slow; a server alone needs less than one second."""

POLL_SECONDS = 0.01
OUTPUT_CHARACTERS_SHOWN = 6_000

DEFAULT_SETTINGS = {
    "IGGY_TCP_ADDRESS": "127.0.0.1:0",
    "IGGY_HTTP_ENABLED": "false",
    "IGGY_QUIC_ENABLED": "false",
    "IGGY_WEBSOCKET_ENABLED": "false",
    "IGGY_SYSTEM_SHARDING_CPU_ALLOCATION": "1",
}
"""The settings of a server under test, unless the test overrides them."""


class ServerFailedError(RuntimeError):
    """The server did not start, or did not stop as it should; the message ends with its output."""


class ServerProcess:
    """A server on a directory that outlives its processes.

    Args:
        directory: where its data and its output go; created when it is missing.
        command: what starts it.
        settings: ``IGGY_*`` names and others for its environment; an empty text removes one.
    """

    def __init__(
        self, directory: Path, *, command: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        self._data = directory / "data"
        self._output = directory / "output.txt"
        self._command = tuple(command)
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> tuple[str, int]:
        """Start the process, wait until it serves, and return where it listens.

        Raises:
            ServerFailedError: it died, or took too long.
            ServerNotFoundError: there is no such command, or it lacks a package.
        """
        self._launch()
        deadline = time.monotonic() + READY_SECONDS_MAX
        while (address := self._bound_address()) is None:
            if self._is_gone_within(POLL_SECONDS):
                raise self._start_failure()
            if time.monotonic() > deadline:
                self.kill()
                raise self._failure(f"The server was not ready after {READY_SECONDS_MAX} s")
        return address

    def stop(self) -> None:
        """Ask the server to stop and wait until it did.

        Raises:
            ServerFailedError: it took too long, or its exit status is not 0.
        """
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        is_late = not self._is_gone_within(STOP_SECONDS_MAX)
        self.kill()
        if is_late or process.returncode != 0:
            what = "took too long" if is_late else f"ended with {process.returncode}"
            raise self._failure(f"The server was asked to stop and {what}")

    def kill(self) -> None:
        """Kill the server and all processes that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        # The whole process group may have ended already.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def output(self) -> str:
        """Return all that the processes of this server have printed."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def _launch(self) -> None:
        assert self._process is None, "the server is running already"
        self._data.parent.mkdir(parents=True, exist_ok=True)
        # A killed server leaves this file behind, with the port of the last run.
        self._current_config.unlink(missing_ok=True)
        try:
            with self._output.open("ab") as output:
                self._process = subprocess.Popen(
                    self._command,
                    cwd=self._data.parent,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except FileNotFoundError as error:
            raise ServerNotFoundError(f"There is no command {self._command[0]!r}.") from error

    @property
    def _current_config(self) -> Path:
        return self._data / "runtime" / "current_config.toml"

    def _environment(self) -> dict[str, str]:
        inherited = {name: text for name, text in os.environ.items() if name[:5] != "IGGY_"}
        environment = {**DEFAULT_SETTINGS, "IGGY_SYSTEM_PATH": str(self._data), **self._settings}
        return {**inherited, **{name: text for name, text in environment.items() if text}}

    def _bound_address(self) -> tuple[str, int] | None:
        """Read where the server listens, or None while it has not said so."""
        try:
            text = self._current_config.read_text()
            host, _, port = tomllib.loads(text)["tcp"]["address"].rpartition(":")
        except (FileNotFoundError, tomllib.TOMLDecodeError, KeyError):
            return None
        return host.strip("[]"), int(port)

    def _is_gone_within(self, seconds: float) -> bool:
        assert self._process is not None
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _start_failure(self) -> RuntimeError:
        assert self._process is not None
        status = self._process.returncode
        self.kill()
        if "ModuleNotFoundError" in self.output():
            said = self.output().strip().rpartition("\n")[2]
            return ServerNotFoundError(f"The installed server lacks a package ({said}).")
        return self._failure(f"The server ended with {status} instead of starting")

    def _failure(self, what: str) -> ServerFailedError:
        return ServerFailedError(f"{what}; its output:\n{self.output()[-OUTPUT_CHARACTERS_SHOWN:]}")
