"""Look for directories of streams, topics and partitions that the metadata do not know.

Owns the comparison of the tree with the metadata. Opens no file.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from iggy_ref_server.doctor.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_ref_server.config.schema_system import System
    from iggy_ref_server.doctor.quarantine import Quarantine
    from iggy_ref_server.metadata.state import Metadata
    from iggy_ref_server.storage.interface import Storage

__all__ = ["count_files", "examine_tree"]


class Level(NamedTuple):
    """A directory, and what in it is known."""

    path: str
    kind: str
    ids: frozenset[int]


async def examine_tree(storage: Storage, system: System, metadata: Metadata) -> list[Finding]:
    """Find what belongs to nothing that exists.

    Raises:
        StorageError: a directory cannot be read.
    """
    findings: list[Finding] = []
    for level in _levels(system, metadata):
        for entry in await storage.entries(level.path):
            path = f"{level.path}/{entry.name}"
            if entry.is_directory and entry.name.isdecimal() and int(entry.name) in level.ids:
                continue
            # A server leaves the empty directories of what was deleted.
            if not entry.is_directory or (count := await count_files(storage, path)):
                findings.append(_stranger(path, level.kind, count if entry.is_directory else None))
    return findings


def _levels(system: System, metadata: Metadata) -> Iterable[Level]:
    streams = system.stream.path
    yield Level(streams, "stream", frozenset(metadata.streams.by_id))
    for stream in metadata.streams:
        topics = f"{streams}/{stream.id}/{system.topic.path}"
        yield Level(topics, "topic", frozenset(stream.topics.by_id))
        for topic in stream.topics:
            ids = frozenset(record.id for record in topic.partitions)
            yield Level(f"{topics}/{topic.id}/{system.partition.path}", "partition", ids)


async def count_files(storage: Storage, path: str) -> int:
    """Count the files in a directory and all those below it.

    Raises:
        StorageError: a directory cannot be read.
    """
    count = 0
    for entry in await storage.entries(path):
        count += await count_files(storage, f"{path}/{entry.name}") if entry.is_directory else 1
    return count


def _stranger(path: str, kind: str, files_count: int | None) -> Finding:
    if files_count is None:
        return Finding(path, "no server made it", "it is left where it is")
    files = "1 file" if files_count == 1 else f"{files_count} files"
    return Finding(
        path,
        f"it holds {files} of a {kind} that does not exist: it was deleted, or the metadata have"
        " lost it",
        f"repair moves it to quarantine; a server would delete it when a new {kind} gets that id",
        partial(_move_away, path),
    )


async def _move_away(path: str, quarantine: Quarantine) -> None:
    await quarantine.take(path)
