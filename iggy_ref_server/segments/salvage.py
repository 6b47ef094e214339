"""Keeps the intact messages behind a hole that a power loss left in a log.

A power loss may keep any part of the unsynced bytes: a hole, and whole messages behind it. These
messages move to new segments, and the damaged bytes are copied to quarantine. The steps can be
interrupted anywhere and repeated: copies come first, new segments appear whole and from the last
to the first, and the old log is truncated when nothing depends on its tail any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_ref_server.segments.names import log_path
from iggy_ref_server.storage.paths import parent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_ref_server.segments.intact import Run
    from iggy_ref_server.storage.interface import File, Storage

__all__ = ["KEPT_PATH", "copy_bytes", "split_log"]

PIECE_BYTES = 1 << 20
KEPT_PATH = "quarantine/at-start"


async def split_log(
    storage: Storage, directory: str, log: File, end: int, runs: Sequence[Run]
) -> None:
    """Give the messages behind the good part of a log segments of their own, and cut the log.

    Args:
        storage: the data directory.
        directory: the partition's directory.
        log: the open log.
        end: byte behind its last good message.
        runs: the intact messages behind that, in order.

    Raises:
        StorageError: it is not done; the next start goes on.
    """
    edges = [end, *(edge for run in runs for edge in (run.start, run.end)), log.size()]
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        if first < last:
            await _copy(storage, log, first, last, f"{KEPT_PATH}/{log.path}.bytes-{first}-{last}")
    for run in reversed(runs):
        prepared = f"{KEPT_PATH}/unfinished/{log_path(directory, run.first_offset)}"
        await _copy(storage, log, run.start, run.end, prepared)
        await storage.rename(prepared, log_path(directory, run.first_offset))
    await log.truncate(end)
    await log.sync()


async def _copy(storage: Storage, log: File, start: int, end: int, target: str) -> None:
    await storage.make_directories(parent(target))
    await storage.remove(target)
    await copy_bytes(log, start, end, await storage.open(target, create=True))
    await storage.sync_directory(parent(target))


async def copy_bytes(source: File, start: int, end: int, target: File) -> None:
    """Copy a stretch of a file to the beginning of another, and bring it to the disk.

    Raises:
        StorageError: any part of it was copied.
    """
    position = start
    while position < end:
        piece = await source.read(min(PIECE_BYTES, end - position), position)
        if not piece:
            break
        await target.write([piece], position - start)
        position += len(piece)
    await target.sync()
