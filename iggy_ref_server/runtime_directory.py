"""The runtime directory, on any disk: what the last run left goes, and what this one says fits.

Programs learn from ``current_config.toml`` that the server is ready, and where. So that it can be
written when the disk is full, a spare file keeps room for it.

Owns the files of the runtime directory, and the words about a disk that is full at a start.
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

# With less than this the disk counts as full: one batch may not fit any more.
SPACE_BYTES_MIN = 1 << 20
SPARE_NAME = "spare"
SPARE_BYTES = 64 << 10


def clear_runtime(runtime: Path) -> None:
    """Remove what the last run left, but for the directory and the spare file: they take room."""
    runtime.mkdir(parents=True, exist_ok=True)
    for path in runtime.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != SPARE_NAME:
            path.unlink(missing_ok=True)


def write_runtime_file(path: Path, text: str) -> None:
    """Write a file of the runtime directory, in the room of the spare one if there is no other."""
    spare = path.with_name(SPARE_NAME)
    try:
        write_private(path, text)
    except OSError:
        spare.unlink(missing_ok=True)
        try:
            write_private(path, text)
        except OSError as error:
            LOGGER.warning("%s is not written, the server runs all the same: %s", path, error)
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
    """Say so if there is no space for messages."""
    free, _ = free_bytes(str(directory))
    if free >= SPACE_BYTES_MIN:
        return []
    state = f"the disk of {directory} is full ({free} bytes are free): the server is read-only."
    advice = "Polls, deletes and purges work; sends are refused (10006) until there is space"
    return [f"{state} {advice}"]
