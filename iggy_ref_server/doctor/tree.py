"""Finds directories of streams, topics and partitions that are not in the metadata."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from iggy_ref_server.doctor.finding import Finding
from iggy_ref_server.metadata.reading import count_files
from iggy_ref_server.shard.leftovers import levels

if TYPE_CHECKING:
    from iggy_ref_server.config.schema_system import System
    from iggy_ref_server.doctor.quarantine import Quarantine
    from iggy_ref_server.metadata.state import Metadata
    from iggy_ref_server.storage.interface import Storage

__all__ = ["examine_tree"]


async def examine_tree(storage: Storage, system: System, metadata: Metadata) -> list[Finding]:
    """Compare the directory tree with the metadata.

    Raises:
        StorageError: a directory cannot be read.
    """
    findings: list[Finding] = []
    for level in levels(system, metadata):
        for entry in await storage.entries(level.path):
            path = f"{level.path}/{entry.name}"
            if entry.is_directory and entry.name.isdecimal() and int(entry.name) in level.ids:
                continue
            # A server leaves empty directories of deleted streams, topics and partitions.
            if not entry.is_directory or (count := await count_files(storage, path)):
                findings.append(_stranger(path, level.kind, count if entry.is_directory else None))
    return findings


def _stranger(path: str, kind: str, files_count: int | None) -> Finding:
    if files_count is None:
        return Finding(path, "it is not a file of a server", "it is not changed")
    files = "1 file" if files_count == 1 else f"{files_count} files"
    return Finding(
        path,
        f"it has {files} of a {kind} that does not exist: it was deleted, or the metadata have"
        " lost it",
        "repair moves it to quarantine; a server removes it when it starts, if its generation"
        " proves that it was deleted",
        partial(_move_away, path),
    )


async def _move_away(path: str, quarantine: Quarantine) -> None:
    await quarantine.take(path)
