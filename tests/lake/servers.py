"""PostgreSQL and S3 for the tests: real servers on free ports, in folders that are thrown away."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

STARTS_MAX = 300
"""How often a server is asked whether it is there, five times a second."""


class Missing(Exception):
    """Something that the tests need cannot be had on this machine."""


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def run_s3() -> Iterator[str]:
    """Run moto's server with the bucket ``lake``.

    Raises:
        Missing: it is not installed.
    """
    program = shutil.which(os.environ.get("IGGY_MOTO", "moto_server"))
    if program is None:
        raise Missing("moto's server is not installed; make test-lake installs it")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [program, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            create_bucket(address, process)
            yield address
        finally:
            process.terminate()


def create_bucket(address: str, process: subprocess.Popen[bytes]) -> None:
    """Create the bucket as soon as the server is there."""
    request = urllib.request.Request(f"{address}/lake", method="PUT")
    patience = threading.Event()
    for _ in range(STARTS_MAX):
        try:
            with urllib.request.urlopen(request, timeout=10):
                return
        except OSError:
            if process.poll() is not None:
                break
            patience.wait(0.2)
    raise Missing(f"moto's server at {address} does not answer")


def objects_of(address: str, prefix: str) -> str:
    """List the objects whose names begin so, as XML."""
    with urllib.request.urlopen(f"{address}/lake?prefix={prefix}", timeout=30) as answer:
        text: bytes = answer.read()
    return text.decode()


@contextmanager
def run_postgres(folder: Path) -> Iterator[str]:
    """Run a PostgreSQL server as a user without rights; return the URL of a database.

    Raises:
        Missing: it is not installed, or this is root and there is no such user.
    """
    programs = _postgres_programs()
    become: list[str] = []
    if os.geteuid() == 0:
        become = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
        folder.chmod(0o755)
        _open_to_others(folder)
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    data, port = folder / "data", free_port()
    control = [*become, str(programs / "pg_ctl"), "-D", str(data), "-s"]
    initdb = [*become, str(programs / "initdb"), "-D", str(data), "-U", "lake", "-A", "trust"]
    subprocess.run([*initdb, "--no-sync"], check=True, stdout=subprocess.DEVNULL, cwd=folder)
    options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder}"
    start = [*control, "-w", "-l", str(folder / "log"), "-o", options, "start"]
    subprocess.run(start, check=True, cwd=folder)
    try:
        yield f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=lake"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, cwd=folder)


def _postgres_programs() -> Path:
    found = [
        *Path(sys.prefix).glob("bin/initdb"),
        *Path("/usr/lib/postgresql").glob("*/bin/initdb"),
    ]
    on_path = shutil.which("initdb")
    if on_path is not None:
        found.append(Path(on_path))
    if not found:
        raise Missing("PostgreSQL is not installed; Debian has it in the package postgresql")
    return found[-1].resolve().parent


def _open_to_others(folder: Path) -> None:
    """Let another user reach a folder of pytest, which only its owner can."""
    for parent in folder.parents:
        if parent.owner() != pwd.getpwuid(os.geteuid()).pw_name or parent == Path("/"):
            return
        parent.chmod(parent.stat().st_mode | 0o011)
