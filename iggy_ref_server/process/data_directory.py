"""Files of the data directory that belong to a run: the boot id, and the runtime directory.

The boot id tells whether the machine has rebooted since a server last used the data directory.
Without a reboot, everything that a server has written is in its files, even if the server was
killed: the page cache holds what is not on the disk yet. Only a reboot or a power loss can lose it.
So a hole in a file is damage in the first case and may be a lost write in the second.

The number of the machine's present run is noted in the file ``.boot`` of the data directory when
all shards have opened their partitions. Where that is not known, and where the disk has refused one
of them, a loss of power is assumed.

Owns that file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from iggy_ref_server.config import write_private
from iggy_ref_server.storage.posix import free_bytes

LOGGER = logging.getLogger(__name__)


GROUP_AND_OTHER_BITS = 0o077
BOOT_ID_NAME = ".boot"
BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


def writes_survived(directory: Path, boot_id_path: Path = BOOT_ID_PATH) -> bool:
    """Return whether the machine has run without a reboot since the last server was ready."""
    try:
        noted = (directory / BOOT_ID_NAME).read_text().strip()
        return bool(noted) and noted == boot_id_path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return False


def record_boot_id(directory: Path, boot_id_path: Path = BOOT_ID_PATH) -> None:
    """Write the kernel's boot id to the data directory."""
    # A full disk must not prevent a start; the next one then assumes a power loss.
    with suppress(OSError):
        (directory / BOOT_ID_NAME).write_text(boot_id_path.read_text())


# The runtime directory: cleared at a start, and written to even when the disk is full.
#
# Programs read ``current_config.toml`` to learn that the server is ready, and its addresses. A
# spare file keeps blocks allocated, so that the file can be written on a full disk.


# With less than this the disk counts as full: a batch may not fit.
FREE_BYTES_MIN = 1 << 20
SPARE_NAME = "spare"
SPARE_BYTES = 64 << 10


def clear_runtime_directory(runtime: Path) -> None:
    """Remove the files of the last run, but not the spare file, whose blocks are needed."""
    runtime.mkdir(parents=True, exist_ok=True)
    for path in runtime.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != SPARE_NAME:
            path.unlink(missing_ok=True)


def write_runtime_file(path: Path, text: str) -> None:
    """Write a file of the runtime directory; on a full disk, use the blocks of the spare file."""
    spare = path.with_name(SPARE_NAME)
    try:
        write_private(path, text)
    except OSError:
        spare.unlink(missing_ok=True)
        try:
            write_private(path, text)
        except OSError as error:
            LOGGER.warning("%s cannot be written; the server runs without it: %s", path, error)
    with contextlib.suppress(OSError):
        _reserve_spare(spare)


def _reserve_spare(spare: Path) -> None:
    descriptor = os.open(spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size < SPARE_BYTES:
            os.posix_fallocate(descriptor, 0, SPARE_BYTES)
    finally:
        os.close(descriptor)


def full_disk_warnings(directory: Path) -> list[str]:
    """Return a warning if there is no space for messages."""
    free, _ = free_bytes(str(directory))
    if free >= FREE_BYTES_MIN:
        return []
    state = f"the disk of {directory} is full ({free} bytes free): the server is read-only."
    advice = "Polls, deletes and purges work; sends fail with status 10006 until there is space"
    return [f"{state} {advice}"]


def permission_warnings(directory: Path) -> list[str]:
    """Return a warning if other users may read the data directory."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    if not mode & GROUP_AND_OTHER_BITS:
        return []
    return [
        (
            f"other users may enter the data directory {directory} (mode {mode:o}); "
            f"run `chmod -R go= {directory}` to keep messages and metadata private"
        )
    ]


def clear_data_directory(directory: Path) -> None:
    """Remove everything but the lock file."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != ".lock":
            path.unlink()
