"""Start a server of your own from Python, ask it where it listens, and stop it in order.

That is all a test needs: a data directory that is removed afterwards, a port that is free
(port 0 lets the system choose), and a way to know when the server is ready. It prints a few lines
when it is; the one that begins with ``Connect with`` is the last of them.

Run it from the root of the repository with ``python -m examples.server.start_a_server``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

SETTINGS = {
    "IGGY_ROOT_USERNAME": "iggy",
    "IGGY_ROOT_PASSWORD": "iggy",
    "IGGY_TCP_ADDRESS": "127.0.0.1:0",
    "IGGY_HTTP_ENABLED": "false",
    "IGGY_QUIC_ENABLED": "false",
    "IGGY_WEBSOCKET_ENABLED": "false",
    # The pipe is not read while the server runs, so the server must not log much.
    "RUST_LOG": "error",
}
READY = "Connect with "


def usable_shards(wanted: int) -> int:
    """Return how many shards this machine has cores for."""
    return min(wanted, len(os.sched_getaffinity(0)))


class ExampleServer:
    """A server that belongs to this program; its data stay when it ends.

    Args:
        directory: where its data go.
        shards: how many processes serve, each on a core of its own.
    """

    def __init__(self, directory: Path, *, shards: int = 1) -> None:
        inherited = {name: text for name, text in os.environ.items() if name[:5] != "IGGY_"}
        self._environment = {
            **inherited,
            **SETTINGS,
            "IGGY_SYSTEM_PATH": str(directory),
            "IGGY_SYSTEM_SHARDING_CPU_ALLOCATION": str(shards),
        }
        self._process: subprocess.Popen[str] | None = None
        self.address = ("", 0)

    def __enter__(self) -> ExampleServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()

    def start(self) -> list[str]:
        """Start it, wait until it is ready, and return what it printed."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "iggy_ref_server"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        lines: list[str] = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            lines.append(line.rstrip())
            if line.startswith(READY):
                host, _, port = lines[-1].rpartition("@")[2].rpartition(":")
                self.address = (host, int(port))
                return lines
        raise RuntimeError("\n".join(["the server did not start:", *lines]))

    def stop(self) -> int:
        """Ask it to stop, as a service manager does, and return its exit code; 0 is a good one."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill all of its processes where they stand, as ``kill -9`` does."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None, "the server is not running"
        if how is signal.SIGKILL:
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        # The pipe ends when the last process of the server is gone, and `with` waits for the first.
        with process:
            assert process.stdout is not None
            process.stdout.read()
        return process.returncode


def main() -> None:
    """Start a server, show what it says, and stop it."""
    with tempfile.TemporaryDirectory() as folder, ExampleServer(Path(folder) / "data") as server:
        print("$ iggy-server")
        print("\n".join(server.start()))
        print()
        print(f"ready for clients: {server.address[1] > 0}")
        print(f"asked to stop, it ended with exit code {server.stop()}")


if __name__ == "__main__":
    main()
