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

from iggy_ref_server.metadata.recovery import count_files
from iggy_ref_server.partitions import generation, reservation
from iggy_ref_server.partitions.generation import (
    IMPORTED_GENERATION,
    GenerationDamaged,
    read_generation,
    remove_partition_files,
)
from iggy_ref_server.storage.interface import Storage, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_ref_server.config.schema import SystemConfig
    from iggy_ref_server.metadata.state import Metadata


LOGGER = logging.getLogger(__name__)

# The files of a partition that never had a message.
NAMES_IN_EMPTY_PARTITION = {generation.GENERATION_FILE, reservation.RESERVATION_FILE}


class DirectoryLevel(NamedTuple):
    """A directory with one subdirectory per stream, topic or partition, and the known ids."""

    path: str
    kind: str
    ids: frozenset[int]


def directory_levels(system: SystemConfig, metadata: Metadata) -> Iterator[DirectoryLevel]:
    """List the directories that hold directories of streams, topics and partitions."""
    streams = system.stream.path
    yield DirectoryLevel(streams, "stream", frozenset(metadata.streams.by_id))
    for stream in metadata.streams:
        topics = f"{streams}/{stream.id}/{system.topic.path}"
        yield DirectoryLevel(topics, "topic", frozenset(stream.topics.by_id))
        for topic in stream.topics:
            ids = frozenset(record.id for record in topic.partitions)
            yield DirectoryLevel(f"{topics}/{topic.id}/{system.partition.path}", "partition", ids)


async def remove_stale_directories(
    storage: Storage, system: SystemConfig, metadata: Metadata
) -> None:
    """Remove directories that are provably deleted; log those that are unknown and stay.

    An error of the disk does not prevent the start: the next one tries again.
    """
    for level in directory_levels(system, metadata):
        try:
            await _clean_level(storage, system, metadata, level)
        except StorageError as error:
            LOGGER.warning(
                "%s cannot be searched for deleted files; the next start tries again: %s",
                level.path,
                error,
            )


async def _clean_level(
    storage: Storage, system: SystemConfig, metadata: Metadata, level: DirectoryLevel
) -> None:
    for entry in await storage.entries(level.path):
        if not entry.is_directory or not entry.name.isdecimal() or int(entry.name) in level.ids:
            continue
        path = f"{level.path}/{entry.name}"
        nested = await _partition_directories(storage, system, path, level.kind)
        # A file beside the partitions is not of this server, so it is not removed.
        inside = [await count_files(storage, directory) for directory in nested]
        is_ours = await count_files(storage, path) == sum(inside)
        if is_ours and all(
            [await _is_deleted(storage, metadata, directory) for directory in nested]
        ):
            # Partition by partition, the number last: what a crash leaves can then be told from
            # the files of the next partition with these ids.
            for directory in nested:
                await remove_partition_files(storage, directory)
            await storage.remove_tree(path)
            LOGGER.info("%s is removed: the %s was deleted before the last stop", path, level.kind)
        else:
            LOGGER.warning(
                "%s belongs to no %s in the metadata, and nothing proves that it was deleted; it is"
                " not changed. `iggy-server repair` moves it to quarantine",
                path,
                level.kind,
            )


async def _partition_directories(
    storage: Storage, system: SystemConfig, path: str, kind: str
) -> list[str]:
    """Find the directories of partitions in the directory of a stream, topic or partition."""
    if kind == "partition":
        return [path]
    nested = {"stream": (system.topic.path, "topic"), "topic": (system.partition.path, "partition")}
    name, kind_below = nested[kind]
    found: list[str] = []
    for entry in await storage.entries(f"{path}/{name}"):
        if entry.is_directory:
            inner = f"{path}/{name}/{entry.name}"
            found += await _partition_directories(storage, system, inner, kind_below)
    return found


async def _is_empty_partition(storage: Storage, directory: str) -> bool:
    """Return whether a partition is empty: no message, no stored offset, no unknown file."""
    for entry in await storage.entries(directory):
        if entry.is_directory:
            if await count_files(storage, f"{directory}/{entry.name}"):
                return False
        elif entry.size_bytes and entry.name not in NAMES_IN_EMPTY_PARTITION:
            return False
    return True


async def _is_deleted(storage: Storage, metadata: Metadata, directory: str) -> bool:
    """Return whether a directory is provably deleted, or was never completed."""
    if await _is_empty_partition(storage, directory):
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
        and found.number != IMPORTED_GENERATION
        and metadata.doubtful_generation < found.number <= metadata.newest_generation
    )
