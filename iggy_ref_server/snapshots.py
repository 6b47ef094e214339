"""The diagnostic snapshot: text files about the server and the machine, in a ZIP archive.

The process reads everything itself and starts no other program. Secrets of the configuration are
redacted. Runs in a worker thread, because it walks directories.
"""

from __future__ import annotations

import logging
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from iggy_protocol import SnapshotCompression, SnapshotType
from iggy_ref_server.archives import pack
from iggy_ref_server.config import dump_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iggy_ref_server.config import ServerConfig

__all__ = ["make_snapshot"]

LOGGER = logging.getLogger(__name__)

FILES_LISTED_MAX = 10_000
LOG_TAIL_BYTES = 1 << 20
PROC = Path("/proc")


def _filesystem(config: ServerConfig) -> Iterator[str]:
    root = Path(config.system.path)
    listed = 0
    for directory, _, names in os.walk(root):
        for name in sorted(names):
            path = Path(directory) / name
            listed += 1
            if listed > FILES_LISTED_MAX:
                yield f"... more than {FILES_LISTED_MAX} files"
                return
            try:
                yield f"{path.stat().st_size:>14} {path.relative_to(root)}"
            except OSError:
                continue


def _processes(config: ServerConfig) -> Iterator[str]:
    for directory in sorted(PROC.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            name = (directory / "comm").read_text().strip()
            memory = int((directory / "statm").read_text().split()[1]) * resource.getpagesize()
        except OSError:
            continue
        yield f"{directory.name:>8} {memory:>14} {name}"


def _resources(config: ServerConfig) -> Iterator[str]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield f"user seconds       {usage.ru_utime:.3f}"
    yield f"system seconds     {usage.ru_stime:.3f}"
    yield f"resident KiB max   {usage.ru_maxrss}"
    yield f"load average       {os.getloadavg()}"
    for name in ("meminfo", "pressure/io", "pressure/memory", "pressure/cpu"):
        try:
            yield from (PROC / name).read_text().splitlines()
        except OSError:
            continue


def _test(config: ServerConfig) -> Iterator[str]:
    yield "test"


def _logs(config: ServerConfig) -> Iterator[str]:
    directory = Path(config.system.path) / config.system.logging.path
    for path in sorted(directory.glob("iggy-server.log*")):
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_TAIL_BYTES))
            yield from file.read().decode(errors="replace").splitlines()


def _config(config: ServerConfig) -> Iterator[str]:
    yield from dump_config(config, show_secrets=False).splitlines()


PARTS: dict[SnapshotType, tuple[str, Callable[[ServerConfig], Iterator[str]]]] = {
    SnapshotType.FILESYSTEM_OVERVIEW: ("filesystem_overview.txt", _filesystem),
    SnapshotType.PROCESS_LIST: ("process_list.txt", _processes),
    SnapshotType.RESOURCE_USAGE: ("resource_usage.txt", _resources),
    SnapshotType.TEST: ("test.txt", _test),
    SnapshotType.SERVER_LOGS: ("server_logs.txt", _logs),
    SnapshotType.SERVER_CONFIG: ("server_config.txt", _config),
}


def make_snapshot(
    config: ServerConfig, types: tuple[SnapshotType, ...], compression: SnapshotCompression
) -> bytes:
    """Pack the requested parts, each once and in this order; unreadable parts are left out.

    Raises:
        ServerFault: the compression is not available on this server.
    """
    chosen = tuple(PARTS) if SnapshotType.ALL in types else types
    files = []
    for part in dict.fromkeys(chosen):
        name, write = PARTS[part]
        try:
            files.append((name, "\n".join(write(config)).encode() + b"\n"))
        except OSError as error:
            LOGGER.warning("left %s out of the snapshot, it cannot be read: %s", name, error)
    return pack(files, compression)
