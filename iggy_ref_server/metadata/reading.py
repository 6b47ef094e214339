"""Loads the state from snapshot and log, for the server and for ``iggy-server check``.

The log is created before anything else and replaced as a whole. So a log that is missing beside a
snapshot, or shorter than its header, was lost, and with it acknowledged changes. Continuing from
the snapshot alone would silently undo them, so this is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from iggy_ref_server.metadata.damage import MetadataDamaged, MetadataMissing
from iggy_ref_server.metadata.frame import check_head
from iggy_ref_server.metadata.log import LOG_MAGIC, LOG_PATH
from iggy_ref_server.metadata.replay import follow
from iggy_ref_server.metadata.scan import LogScan, scan_log
from iggy_ref_server.metadata.snapshot import SNAPSHOT_PATH, decode_snapshot
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.metadata.upstream_log import UPSTREAM_LOG_PATH

if TYPE_CHECKING:
    from iggy_ref_server.metadata.frame import Seal
    from iggy_ref_server.storage.interface import Storage

__all__ = ["StateRead", "count_files", "demand_metadata", "read_state"]


class StateRead(NamedTuple):
    """What two files amount to.

    Attributes:
        metadata: everything that exists.
        scan: what the log holds; None where there is no log, because nothing ever happened.
    """

    metadata: Metadata
    scan: LogScan | None


def read_state(snapshot: bytes | None, log: bytes | None, seal: Seal | None) -> StateRead:
    """Put a snapshot and a log together.

    Args:
        snapshot: the file; None where there is none.
        log: the file; None where there is none.
        seal: the key, where there is one.

    Raises:
        MetadataDamaged: one of them is damaged other than by a torn tail, or is not the other's.
        MetadataLocked: one is encrypted, and not with this key.
    """
    start = Metadata.EMPTY if snapshot is None else decode_snapshot(snapshot, seal)
    if log is None:
        if snapshot is None:
            return StateRead(start, None)
        raise MetadataDamaged(
            LOG_PATH,
            0,
            f"the file is missing, and with it every change behind number {start.version}, where"
            " the snapshot ends",
        )
    check_head(log, LOG_MAGIC, LOG_PATH)
    scan = scan_log(log, LOG_PATH, start.version)
    if scan.frames and scan.frames[-1].version < start.version:
        raise MetadataDamaged(
            LOG_PATH,
            scan.end,
            f"it ends with change {scan.frames[-1].version}, but the snapshot holds all up to"
            f" {start.version}: this log is older than the snapshot",
        )
    return StateRead(follow(start, scan.frames, seal), scan)


async def demand_metadata(storage: Storage, streams_path: str) -> None:
    """Refuse to begin as new beside data of streams.

    Without metadata the server does not know which topics the messages belong to, and new topics
    would reuse their directories.

    Args:
        storage: the data directory.
        streams_path: where the data of streams are.

    Raises:
        MetadataMissing: there are such data, and nothing that says what they are.
        StorageError: a file or a directory cannot be read.
    """
    if await storage.read_file(SNAPSHOT_PATH) is not None:
        return
    log = await storage.read_file(LOG_PATH)
    if log is not None and scan_log(log, LOG_PATH).frames:
        return
    if await storage.read_file(UPSTREAM_LOG_PATH):
        return
    files_count = await count_files(storage, streams_path)
    if files_count:
        raise MetadataMissing(streams_path, files_count)


async def count_files(storage: Storage, path: str) -> int:
    """Count the files in a directory and all those below it.

    Raises:
        StorageError: a directory cannot be read.
    """
    count = 0
    for entry in await storage.entries(path):
        count += await count_files(storage, f"{path}/{entry.name}") if entry.is_directory else 1
    return count
