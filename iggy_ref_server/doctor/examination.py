"""Examine a whole data directory: metadata, tree, and every partition.

Owns the order, and when to stop: without metadata nobody can tell whose messages these are.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from iggy_ref_server.doctor.case import Progress
from iggy_ref_server.doctor.finding import Finding
from iggy_ref_server.doctor.metadata import examine_metadata
from iggy_ref_server.doctor.partition import examine_partition
from iggy_ref_server.doctor.tree import examine_tree
from iggy_ref_server.metadata.reading import count_files
from iggy_ref_server.metadata.records import PartitionRecord, TopicRecord
from iggy_ref_server.partitions.opened import read_opened
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from iggy_ref_server.doctor.case import Case
    from iggy_ref_server.doctor.quarantine import Quarantine
    from iggy_ref_server.metadata.state import Metadata

__all__ = ["examine"]


class Address(NamedTuple):
    """A partition that the metadata know."""

    topic: TopicRecord
    record: PartitionRecord


async def examine(case: Case, found: Callable[[Finding], None]) -> None:
    """Look at everything and change nothing.

    Args:
        case: the data directory.
        found: is told every finding as soon as it is made.

    Raises:
        StorageError: a directory or the metadata cannot be read.
    """
    metadata, findings = await examine_metadata(case)
    _tell(findings, found)
    if metadata is None:
        case.say("the partitions are not looked at until the metadata can be read")
        return
    if not metadata.version and await count_files(case.storage, case.config.system.stream.path):
        found(_headless(case))
        return
    case.say(_inventory(metadata))
    _tell(await examine_tree(case.storage, case.config.system, metadata), found)
    addresses = list(_addresses(metadata))
    progress = Progress(case.say, len(addresses))
    opened_generation = await read_opened(case.storage)
    paths = {_path(case, address): address for address in addresses}
    for path, (topic, record) in paths.items():
        look = partial(
            examine_partition,
            case.storage,
            path,
            record.incarnation,
            topic.groups.by_id,
            progress,
            was_opened=record.incarnation <= opened_generation,
            known=paths,
            is_loss_possible=not case.writes_survived,
        )
        _tell(await _attempt(path, look), found)


def _tell(findings: list[Finding], found: Callable[[Finding], None]) -> None:
    for finding in findings:
        found(finding)


def _headless(case: Case) -> Finding:
    return Finding(
        case.config.system.stream.path,
        "there are files of streams, but no metadata that would say what they are",
        "restore the directory `state` from a backup; no server starts like this. Where there is"
        " no backup, repair moves all of it to quarantine, and the next start begins as new",
        partial(_move_away, case.config.system.stream.path),
        is_fatal=True,
    )


async def _move_away(path: str, quarantine: Quarantine) -> None:
    await quarantine.take(path)


def _inventory(metadata: Metadata) -> str:
    topics = [topic for stream in metadata.streams for topic in stream.topics]
    return (
        f"metadata after {metadata.version} changes: {len(metadata.streams)} streams,"
        f" {len(topics)} topics, {sum(len(topic.partitions) for topic in topics)} partitions,"
        f" {len(metadata.users)} users"
    )


def _addresses(metadata: Metadata) -> Iterator[Address]:
    for stream in metadata.streams:
        for topic in stream.topics:
            for record in topic.partitions:
                yield Address(topic, record)


def _path(case: Case, address: Address) -> str:
    topic, record = address
    return case.config.system.partition_path(topic.stream_id, topic.id, record.id)


async def _attempt(path: str, look: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
    """Look at a partition; a disk that refuses is a finding too."""
    try:
        return await look()
    except StorageError as error:
        remedy = "look after the disk first; then restore the file from a backup"
        return [Finding(path, str(error), remedy, is_fatal=True)]
