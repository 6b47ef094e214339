"""Directories that the metadata do not know: what a deletion left when the process died.

A deletion is logged first, and its files go afterwards. A server that dies in between leaves them,
and nobody would ever look at them again. At a start shard 0 removes those that are provably
deleted: the number of the life that they belong to is intact, was given out by these metadata, and
no repair has lost changes since. So are those that hold no message, which a creation leaves that
was never completed. Everything else is left alone, with a line for the person who runs the server.

Owns that judgement. Partitions that exist are the directory's affair.
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

# What is in every partition, also in one without messages.
OWN_NAMES = {incarnation.NAME, reservation.NAME}


class Level(NamedTuple):
    """A directory, what it holds a directory of each of, and which of them are known."""

    path: str
    kind: str
    ids: frozenset[int]


def levels(system: System, metadata: Metadata) -> Iterator[Level]:
    """Name all directories in which directories of streams, topics and partitions stand."""
    streams = system.stream.path
    yield Level(streams, "stream", frozenset(metadata.streams.by_id))
    for stream in metadata.streams:
        topics = f"{streams}/{stream.id}/{system.topic.path}"
        yield Level(topics, "topic", frozenset(stream.topics.by_id))
        for topic in stream.topics:
            ids = frozenset(record.id for record in topic.partitions)
            yield Level(f"{topics}/{topic.id}/{system.partition.path}", "partition", ids)


async def remove_leftovers(storage: Storage, system: System, metadata: Metadata) -> None:
    """Remove what is provably deleted; name what is not known and stays.

    A disk that refuses is no reason not to start: the next start tries again.
    """
    for level in levels(system, metadata):
        try:
            await _look_through(storage, system, metadata, level)
        except StorageError as error:
            LOGGER.warning("%s was not searched for deleted files: %s", level.path, error)


async def _look_through(storage: Storage, system: System, metadata: Metadata, level: Level) -> None:
    for entry in await storage.entries(level.path):
        if not entry.is_directory or not entry.name.isdecimal() or int(entry.name) in level.ids:
            continue
        path = f"{level.path}/{entry.name}"
        below = await _partitions(storage, system, path, level.kind)
        if all([await _is_over(storage, metadata, directory) for directory in below]):
            # Partition by partition, the number last: what a crash leaves can then be told from
            # the files of the next partition with these ids.
            for directory in below:
                await remove_files(storage, directory)
            await storage.remove_tree(path)
            LOGGER.info("%s is removed: the %s was deleted before the stop", path, level.kind)
        else:
            LOGGER.warning(
                "%s belongs to no %s that the metadata know, and nothing proves that it was"
                " deleted; it is left as it is. `iggy-server repair` moves it to quarantine",
                path,
                level.kind,
            )


async def _partitions(storage: Storage, system: System, path: str, kind: str) -> list[str]:
    """Find the directories of partitions at or below a directory of some kind."""
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
    """Tell whether nothing is in a partition: no message, no stored offset, nothing unknown."""
    for entry in await storage.entries(directory):
        if entry.is_directory:
            if await count_files(storage, f"{directory}/{entry.name}"):
                return False
        elif entry.size_bytes and entry.name not in OWN_NAMES:
            return False
    return True


async def _is_over(storage: Storage, metadata: Metadata, directory: str) -> bool:
    """Tell whether the life that a directory belongs to has provably ended, or never began."""
    if await _is_blank(storage, directory):
        return True
    try:
        found = await read_generation(storage, directory)
    except GenerationDamaged:
        return False
    # What a real server made has no number, one of an earlier release has no checksum, and files of
    # later generations are of other metadata.
    return (
        found is not None
        and found.is_checked
        and found.number != IMPORTED
        and metadata.doubtful_incarnation < found.number <= metadata.newest_generation
    )
