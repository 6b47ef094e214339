"""Stale directories: what a deletion or a creation left behind when the server was killed.

A deletion is logged first, and the files are removed afterwards. A server that is killed in between
leaves them. At a start shard 0 removes the directories that are provably deleted: their generation
number is intact, these metadata assigned it, and no repair has lost changes since. It also removes
directories without messages, which an unfinished creation leaves. It leaves all others where they
are and logs a warning.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from iggy_ref_server.metadata.reading import count_files
from iggy_ref_server.partitions import incarnation, reservation
from iggy_ref_server.partitions.incarnation import (
    IMPORTED,
    GenerationDamaged,
    read_generation,
    remove_files,
)
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_ref_server.config.schema_system import System
    from iggy_ref_server.metadata.state import Metadata
    from iggy_ref_server.storage.interface import Storage

__all__ = ["Level", "levels", "remove_leftovers"]

LOGGER = logging.getLogger(__name__)

# The files of a partition that never had a message.
OWN_NAMES = {incarnation.NAME, reservation.NAME}


class Level(NamedTuple):
    """A directory with one subdirectory per stream, topic or partition, and the known ids."""

    path: str
    kind: str
    ids: frozenset[int]


def levels(system: System, metadata: Metadata) -> Iterator[Level]:
    """List the directories that hold directories of streams, topics and partitions."""
    streams = system.stream.path
    yield Level(streams, "stream", frozenset(metadata.streams.by_id))
    for stream in metadata.streams:
        topics = f"{streams}/{stream.id}/{system.topic.path}"
        yield Level(topics, "topic", frozenset(stream.topics.by_id))
        for topic in stream.topics:
            ids = frozenset(record.id for record in topic.partitions)
            yield Level(f"{topics}/{topic.id}/{system.partition.path}", "partition", ids)


async def remove_leftovers(storage: Storage, system: System, metadata: Metadata) -> None:
    """Remove directories that are provably deleted; log those that are unknown and stay.

    An error of the disk does not prevent the start: the next one tries again.
    """
    for level in levels(system, metadata):
        try:
            await _look_through(storage, system, metadata, level)
        except StorageError as error:
            LOGGER.warning(
                "%s cannot be searched for deleted files; the next start tries again: %s",
                level.path,
                error,
            )


async def _look_through(storage: Storage, system: System, metadata: Metadata, level: Level) -> None:
    for entry in await storage.entries(level.path):
        if not entry.is_directory or not entry.name.isdecimal() or int(entry.name) in level.ids:
            continue
        path = f"{level.path}/{entry.name}"
        below = await _partitions(storage, system, path, level.kind)
        if all([await _is_over(storage, metadata, directory) for directory in below]):
            # Partition by partition, the file with the generation last: what a crash leaves can
            # then be told from the files of the next partition with these ids.
            for directory in below:
                await remove_files(storage, directory)
            await storage.remove_tree(path)
            LOGGER.info("%s is removed: the %s was deleted before the last stop", path, level.kind)
        else:
            LOGGER.warning(
                "%s belongs to no %s in the metadata, and nothing proves that it was deleted; it is"
                " not changed. `iggy-server repair` moves it to quarantine",
                path,
                level.kind,
            )


async def _partitions(storage: Storage, system: System, path: str, kind: str) -> list[str]:
    """Find the directories of partitions in the directory of a stream, topic or partition."""
    if kind == "partition":
        return [path]
    below = {"stream": (system.topic.path, "topic"), "topic": (system.partition.path, "partition")}
    name, kind_below = below[kind]
    found: list[str] = []
    for entry in await storage.entries(f"{path}/{name}"):
        if entry.is_directory:
            inner = f"{path}/{name}/{entry.name}"
            found += await _partitions(storage, system, inner, kind_below)
    return found


async def _is_blank(storage: Storage, directory: str) -> bool:
    """Return whether a partition is empty: no message, no stored offset, no unknown file."""
    for entry in await storage.entries(directory):
        if entry.is_directory:
            if await count_files(storage, f"{directory}/{entry.name}"):
                return False
        elif entry.size_bytes and entry.name not in OWN_NAMES:
            return False
    return True


async def _is_over(storage: Storage, metadata: Metadata, directory: str) -> bool:
    """Return whether a directory is provably deleted, or was never completed."""
    if await _is_blank(storage, directory):
        return True
    try:
        found = await read_generation(storage, directory)
    except GenerationDamaged:
        return False
    # Apache Iggy writes no generation, an earlier release wrote it without a checksum, and a later
    # generation belongs to other metadata.
    return (
        found is not None
        and found.is_checked
        and found.number != IMPORTED
        and metadata.doubtful_incarnation < found.number <= metadata.newest_generation
    )
