"""Checks a whole data directory: metadata, directory tree, and every partition.

Without metadata the owner of the messages is unknown, so the check stops.
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
    """A partition of the metadata."""

    topic: TopicRecord
    record: PartitionRecord


async def examine(case: Case, found: Callable[[Finding], None]) -> None:
    """Check everything and change nothing.

    Args:
        found: called with each finding at once.

    Raises:
        StorageError: a directory or the metadata cannot be read.
    """
    metadata, findings = await examine_metadata(case)
    _tell(findings, found)
    if metadata is None:
        case.say("partitions are not checked, because the metadata cannot be read")
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
        "there are files of streams, but no metadata",
        "restore the directory `state` from a backup; no server starts without it. If there is no"
        " backup, repair moves all streams to quarantine, and the next start creates a new server",
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
    """Check a partition; an error of the disk is a finding too."""
    try:
        return await look()
    except StorageError as error:
        remedy = "replace or repair the disk first, then restore the file from a backup"
        return [Finding(path, str(error), remedy, is_fatal=True)]
