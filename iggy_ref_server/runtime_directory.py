"""The runtime directory: cleared at a start, and written to even when the disk is full.

Programs read ``current_config.toml`` to learn that the server is ready, and its addresses. A spare
file keeps blocks allocated, so that the file can be written on a full disk.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from typing import TYPE_CHECKING

from iggy_ref_server.config import write_private
from iggy_ref_server.storage.posix_verbs import free_bytes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["clear_runtime", "space_lines", "write_runtime_file"]

LOGGER = logging.getLogger(__name__)

# With less than this the disk counts as full: a batch may not fit.
SPACE_BYTES_MIN = 1 << 20
SPARE_NAME = "spare"
SPARE_BYTES = 64 << 10


def clear_runtime(runtime: Path) -> None:
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
        _keep_room(spare)


def _keep_room(spare: Path) -> None:
    descriptor = os.open(spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size < SPARE_BYTES:
            os.posix_fallocate(descriptor, 0, SPARE_BYTES)
    finally:
        os.close(descriptor)


def space_lines(directory: Path) -> list[str]:
    """Return a warning if there is no space for messages."""
    free, _ = free_bytes(str(directory))
    if free >= SPACE_BYTES_MIN:
        return []
    state = f"the disk of {directory} is full ({free} bytes free): the server is read-only."
    advice = "Polls, deletes and purges work; sends fail with status 10006 until there is space"
    return [f"{state} {advice}"]
