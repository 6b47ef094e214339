"""Chooses the storage engine: io_uring where it is available, worker threads elsewhere.

Only this module handles a missing C extension.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, Literal

from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.threads import ThreadStorage

if TYPE_CHECKING:
    from iggy_ref_server.storage.interface import Storage
    from iggy_ref_server.storage.uring import UringStorage
    from iggy_ref_server.storage.writeback_limit import WritebackLimit


Engine = Literal["auto", "io_uring", "threads"]

LOGGER = logging.getLogger("iggy_ref_server.storage")


class FallbackStorage(ThreadStorage):
    """Worker threads in the place of a ring that could not be had."""

    def __init__(
        self, root: str | os.PathLike[str], reason: str, *, writeback_limit: WritebackLimit | None
    ) -> None:
        super().__init__(root, writeback_limit=writeback_limit)
        self._reason = reason

    @property
    def engine(self) -> str:
        """What serves the files, and why it is not something else."""
        return f"{super().engine} (no io_uring: {self._reason})"


async def open_storage(
    root: str | os.PathLike[str],
    engine: Engine = "auto",
    *,
    writeback_limit: WritebackLimit | None = None,
) -> Storage:
    """Open a data directory, making it where there is none.

    Call it in the trio run that is to use the storage, and in the process: a ring does not survive
    a fork.

    Args:
        root: the data directory.
        engine: ``auto`` takes io_uring, or worker threads if that cannot be had.
        writeback_limit: says when to write inline; one of its own by default.

    Returns:
        A storage whose ``engine`` tells what serves it and, after a fall back, why.

    Raises:
        StorageError: the directory cannot be made, or io_uring was asked for and is not there.
    """
    storage = choose_engine(root, engine, writeback_limit)
    try:
        await storage.make_directories("")
    except BaseException:
        await storage.aclose()
        raise
    return storage


def choose_engine(
    root: str | os.PathLike[str], engine: Engine, writeback_limit: WritebackLimit | None
) -> ThreadStorage | UringStorage:
    """Make a storage of the engine asked for."""
    if engine == "threads":
        return ThreadStorage(root, writeback_limit=writeback_limit)
    try:
        return make_uring_storage(root, writeback_limit)
    except ImportError as error:
        reason = str(error)
    except OSError as error:
        reason = f"cannot {error.filename}: {error.strerror}"
    if engine == "io_uring":
        raise StorageError("open", os.fspath(root), f"no io_uring: {reason}", errno=errno.ENOSYS)
    LOGGER.warning("io_uring is not available, worker threads serve the files: %s", reason)
    return FallbackStorage(root, reason, writeback_limit=writeback_limit)


def make_uring_storage(
    root: str | os.PathLike[str], writeback_limit: WritebackLimit | None
) -> UringStorage:
    """Make a storage on a ring.

    Raises:
        ImportError: the extension was not built, or is switched off.
        OSError: the kernel has no io_uring, or not for us.
    """
    if os.environ.get("IGGY_NO_EXTENSIONS") == "1":
        raise ImportError("IGGY_NO_EXTENSIONS is set")
    from iggy_ref_server.storage.uring import UringStorage

    return UringStorage(root, writeback_limit=writeback_limit)
