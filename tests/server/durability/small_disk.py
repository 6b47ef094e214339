"""A disk of a few megabytes that only the server under test can see.

It is a tmpfs in a user and mount namespace of its own, which a process that does nothing holds open
while servers come and go. No rights are needed where the system lets everybody make namespaces;
where it does not, ``SmallDisk.missing()`` says why.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.server.running import RunningServer

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
HOLD = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec cat'


class SmallDisk:
    """A mounted disk.

    Args:
        place: where the server sees it; an ordinary directory for everybody else.
        size_bytes: how much fits.
    """

    def __init__(self, place: Path, size_bytes: int) -> None:
        place.mkdir(parents=True)
        self._holder = subprocess.Popen(
            [*NAMESPACE, "sh", "-c", HOLD, "sh", str(size_bytes), str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"mounted\n"
        self.entry = ["nsenter", "--user", "--preserve-credentials", "--mount"]
        self.entry += ["--target", str(self._holder.pid)]
        root = Path("/proc") / str(self._holder.pid) / "root"
        self.seen_from_outside = root / place.relative_to("/")

    def close(self) -> None:
        """Let go of it, and of all that is on it."""
        self._holder.communicate()

    @staticmethod
    @cache
    def missing() -> str:
        """Say why there is no such disk here; empty where there is."""
        for program in ("unshare", "nsenter", "mount"):
            if shutil.which(program) is None:
                return f"there is no program {program}"
        tried = subprocess.run(
            [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()],
            capture_output=True,
            check=False,
        )
        return tried.stderr.decode(errors="replace").strip() if tried.returncode else ""


class ServerOnSmallDisk(RunningServer):
    """A server whose data directory is a small disk.

    Args:
        directory: where its output goes.
        disk: where its data go, mounted at ``directory / "data"``.
        settings: as for every server under test.
    """

    def __init__(self, directory: Path, disk: SmallDisk, settings: Mapping[str, str]) -> None:
        super().__init__(
            directory, settings={**settings, "IGGY_SYSTEM_PATH": str(directory / "data")}
        )
        self.data = disk.seen_from_outside
        self._entry = disk.entry

    def launch(self) -> None:
        """Start the process inside the namespace."""
        assert self._process is None, "the server is running already"
        (self.data / "runtime" / "current_config.toml").unlink(missing_ok=True)
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._entry, sys.executable, "-m", "iggy_ref_server", *self.arguments],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
