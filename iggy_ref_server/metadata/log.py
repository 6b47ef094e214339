"""The metadata log ``state/metadata.log``: every change is written and synced before it applies."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.frame import HEAD_SIZE, file_head
from iggy_ref_server.metadata.scan import LogScan
from iggy_ref_server.storage.interface import DiskFull, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_ref_server.storage.interface import File, Storage

__all__ = ["LOG_MAGIC", "LOG_PATH", "MetadataLog"]

logger = logging.getLogger("iggy_ref_server.metadata")

LOG_PATH = "state/metadata.log"
LOG_MAGIC = b"iggymeta"
# Thousands of deletes and purges; a few blocks of any disk.
RESERVE_BYTES = 256 << 10


def _status(error: Exception) -> StatusCode:
    if isinstance(error, DiskFull):
        return StatusCode.CANNOT_WRITE_TO_FILE
    if isinstance(error, StorageError) and error.action == "sync":
        return StatusCode.CANNOT_SYNC_FILE
    return StatusCode.CANNOT_APPEND_TO_FILE


class MetadataLog:
    """An open log.

    Attributes:
        entries_count: how many changes it holds.
        size_bytes: where the next one goes.
    """

    def __init__(self, file: File, size_bytes: int, entries_count: int) -> None:
        self._file = file
        self._distrust = ""
        self._is_dirty = False
        self._reserved_bytes = 0
        self.size_bytes = size_bytes
        self.entries_count = entries_count

    @classmethod
    async def open(cls, storage: Storage, scan: LogScan | None) -> MetadataLog:
        """Open the log, making one where there is none; a torn tail is cut off.

        Args:
            storage: the data directory.
            scan: what was found in the log; None where there is none.

        Raises:
            StorageError: it cannot be opened, or not be cut.
        """
        if scan is None:
            # All of it or none: a log without its whole head has lost what it held.
            await storage.replace(LOG_PATH, file_head(LOG_MAGIC))
            scan = LogScan((), HEAD_SIZE, 0)
        file = await storage.open(LOG_PATH)
        if scan.torn_size:
            logger.warning(
                "%s: truncated the last %d bytes: an incomplete change that was never acknowledged",
                LOG_PATH,
                scan.torn_size,
            )
            await file.truncate(scan.end)
        # A killed server may have left changes that are written but not synced. Clients see them
        # from now on, so they must not get lost any more.
        await file.sync()
        log = cls(file, scan.end, len(scan.frames))
        await log._reserve()
        return log

    async def _reserve(self) -> None:
        """Preallocate space, so that deletes can be logged when the disk is full."""
        if self._reserved_bytes - self.size_bytes >= RESERVE_BYTES // 2:
            return
        wanted = self.size_bytes + RESERVE_BYTES
        try:
            await self._file.preallocate(wanted)
        except Exception as error:
            # Preallocation is optional: the changes before are already made.
            logger.debug("no disk space was preallocated for %s: %s", LOG_PATH, error)
        else:
            self._reserved_bytes = wanted

    async def append(self, frames: Sequence[bytes]) -> None:
        """Write changes and bring them to the disk, all together.

        Raises:
            ServerFault: none is there; the log is as it was, or takes no more changes.
        """
        if self._is_dirty:
            await self._take_back()
        if self._distrust:
            raise ServerFault(StatusCode.CANNOT_APPEND_TO_FILE, self._distrust)
        try:
            await self._file.write(frames, self.size_bytes, sync=True)
        except Exception as error:
            # Not only disks fail: a process that is given no thread cannot write either.
            logger.error("%s: a metadata change was not written: %s", LOG_PATH, error)
            await self._take_back()
            raise ServerFault(_status(error), f"the change could not be saved: {error}") from error
        self.size_bytes += sum(map(len, frames))
        self.entries_count += len(frames)
        await self._reserve()

    async def _take_back(self) -> None:
        self._is_dirty, self._distrust = True, ""
        try:
            await self._file.truncate(self.size_bytes)
            self._reserved_bytes = 0
            await self._file.sync()
            self._is_dirty = False
        except Exception as error:
            # A sync that failed once may well succeed the next time, without having done anything.
            is_over = isinstance(error, StorageError) and error.action == "sync"
            self._is_dirty = not is_over
            until = "until the server is restarted" if is_over else "until that succeeds"
            self._distrust = (
                f"metadata changes are refused {until}: {LOG_PATH} could not be truncated after a"
                f" failed write: {error}"
            )
            logger.critical("%s", self._distrust)

    async def clear(self) -> None:
        """Start over, because a snapshot holds all that is in here.

        Raises:
            StorageError: some or all of it may still be there, which does no harm.
        """
        try:
            await self._file.truncate(HEAD_SIZE)
            self._reserved_bytes = 0
            await self._file.sync()
        finally:
            if self._file.size() == HEAD_SIZE:
                self.size_bytes = HEAD_SIZE
                self.entries_count = 0
