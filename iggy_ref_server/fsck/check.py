"""Checks a whole data directory: metadata, directory tree, and every partition.

The metadata are those of this server, or those of Apache Iggy 0.8 that are not imported yet.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from iggy_ref_server.fsck.context import (
    Finding,
    FsckContext,
    Quarantine,
    ReadProgress,
    quarantine_path,
)
from iggy_ref_server.fsck.partition import check_partition
from iggy_ref_server.metadata.errors import MetadataDamaged, MetadataError
from iggy_ref_server.metadata.importer import import_state
from iggy_ref_server.metadata.log import HEADER_SIZE, LOG_MAGIC, LOG_PATH, FrameCipher, check_header
from iggy_ref_server.metadata.recovery import (
    DAMAGED_SUFFIX,
    check_metadata,
    count_files,
    repair_metadata,
    salvage_log,
)
from iggy_ref_server.metadata.snapshot import SNAPSHOT_PATH, decode_snapshot
from iggy_ref_server.metadata.state import ROOT_USER_ID, Metadata, PartitionRecord, TopicRecord
from iggy_ref_server.metadata.upstream_log import UPSTREAM_LOG_PATH
from iggy_ref_server.partitions.generation import read_opened_generation
from iggy_ref_server.shard.stale_directories import directory_levels
from iggy_ref_server.storage.interface import Storage, StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from iggy_ref_server.config.schema import SystemConfig


async def check_state(context: FsckContext) -> tuple[Metadata | None, list[Finding]]:
    """Check the metadata.

    Returns:
        The metadata as far as they can be read, None if they cannot; and the findings.

    Raises:
        StorageError: a file cannot be read.
    """
    try:
        metadata, findings = await _check_own_log(context)
        if metadata.version:
            return metadata, [*findings, *_missing_root_user(metadata)]
        return await _check_upstream_log(context, findings)
    except MetadataError as error:
        problem = f"at byte {error.position}: {error.reason}"
        return None, [Finding(error.path, problem, _advice(error), is_fatal=True)]


def _missing_root_user(metadata: Metadata) -> list[Finding]:
    """Report a missing root user; a server creates it when it starts."""
    if metadata.users.find(ROOT_USER_ID) is not None:
        return []
    return [
        Finding(
            LOG_PATH,
            "the root user is missing, so no user has all permissions",
            "a server creates it when it starts: the name and the password come from"
            " IGGY_ROOT_USERNAME and IGGY_ROOT_PASSWORD, or the password is generated and printed",
        )
    ]


def _advice(error: MetadataError) -> str:
    if isinstance(error, MetadataDamaged):
        return "restore the directory `state` from a backup, or use the server that wrote it"
    return error.advice.removeprefix("nothing was changed. ")


async def _check_own_log(context: FsckContext) -> tuple[Metadata, list[Finding]]:
    frame_cipher = None if context.cipher is None else FrameCipher(context.cipher)
    snapshot = await context.storage.read_file(SNAPSHOT_PATH)
    metadata = Metadata.EMPTY if snapshot is None else decode_snapshot(snapshot, frame_cipher)
    log = await context.storage.read_file(LOG_PATH) or b""
    has_head = log.startswith(LOG_MAGIC) and len(log) >= HEADER_SIZE
    if has_head:
        check_header(log, LOG_MAGIC, LOG_PATH)  # a file of a newer server must not be repaired here
    metadata, lost = salvage_log(metadata, log, frame_cipher)
    problems = await check_metadata(context.storage, encryptor=context.cipher)
    if not problems:
        return metadata, []
    remedy = (
        "repair moves a copy to quarantine and drops them; a server drops them when it starts"
        if has_head and not lost
        else "a server does not start with it. repair moves a copy to quarantine and keeps every"
        " change that can be read; a backup may have more"
    )
    problem = "; ".join([*(text.partition("; nothing was changed")[0] for text in problems), *lost])
    return metadata, [Finding(LOG_PATH, problem, remedy, partial(_repair_state, context))]


async def _repair_state(context: FsckContext, quarantine: Quarantine) -> None:
    await repair_metadata(context.storage, context.clock, encryptor=context.cipher)
    if await context.storage.read_file(LOG_PATH + DAMAGED_SUFFIX) is not None:
        await quarantine.move(LOG_PATH + DAMAGED_SUFFIX)


async def _check_upstream_log(
    context: FsckContext, findings: list[Finding]
) -> tuple[Metadata, list[Finding]]:
    """Try to import the metadata of Apache Iggy."""
    data = await context.storage.read_file(UPSTREAM_LOG_PATH)
    if not data:
        return Metadata.EMPTY, findings
    imported = import_state(data, context.metadata_settings, context.cipher)
    note = Finding(
        UPSTREAM_LOG_PATH,
        f"it is the metadata log of Apache Iggy, with {len(imported.changes)} changes, not imported"
        " yet",
        "a server imports it when it starts, and does not change the file",
    )
    return imported.metadata, [*findings, note]


# Finds directories of streams, topics and partitions that are not in the metadata.


async def check_tree(storage: Storage, system: SystemConfig, metadata: Metadata) -> list[Finding]:
    """Compare the directory tree with the metadata.

    Raises:
        StorageError: a directory cannot be read.
    """
    findings: list[Finding] = []
    for level in directory_levels(system, metadata):
        for entry in await storage.entries(level.path):
            path = f"{level.path}/{entry.name}"
            if entry.is_directory and entry.name.isdecimal() and int(entry.name) in level.ids:
                continue
            # A server leaves empty directories of deleted streams, topics and partitions.
            if not entry.is_directory or (count := await count_files(storage, path)):
                findings.append(
                    _unknown_entry(path, level.kind, count if entry.is_directory else None)
                )
    return findings


def _unknown_entry(path: str, kind: str, files_count: int | None) -> Finding:
    if files_count is None:
        return Finding(path, "it is not a file of a server", "it is not changed")
    files = "1 file" if files_count == 1 else f"{files_count} files"
    return Finding(
        path,
        f"it has {files} of a {kind} that does not exist: it was deleted, or the metadata have"
        " lost it",
        "repair moves it to quarantine; a server removes it when it starts, if its generation"
        " proves that it was deleted",
        partial(quarantine_path, path),
    )


# Checks a whole data directory: metadata, directory tree, and every partition.
#
# Without metadata the owner of the messages is unknown, so the check stops.


class KnownPartition(NamedTuple):
    """A partition of the metadata."""

    topic: TopicRecord
    record: PartitionRecord


async def check_directory(context: FsckContext, on_finding: Callable[[Finding], None]) -> None:
    """Check everything and change nothing.

    Args:
        context: called with each finding at once.

    Raises:
        StorageError: a directory or the metadata cannot be read.
    """
    metadata, findings = await check_state(context)
    _report(findings, on_finding)
    if metadata is None:
        context.print_line("partitions are not checked, because the metadata cannot be read")
        return
    if not metadata.version and await count_files(
        context.storage, context.config.system.stream.path
    ):
        on_finding(_missing_metadata(context))
        return
    context.print_line(_summary(metadata))
    _report(await check_tree(context.storage, context.config.system, metadata), on_finding)
    known_partitions = list(_known_partitions(metadata))
    progress = ReadProgress(context.print_line, len(known_partitions))
    opened_generation = await read_opened_generation(context.storage)
    paths = {
        _partition_path(context, known_partition): known_partition
        for known_partition in known_partitions
    }
    for path, (topic, record) in paths.items():
        check = partial(
            check_partition,
            context.storage,
            path,
            record.generation,
            topic.groups.by_id,
            progress,
            was_opened=record.generation <= opened_generation,
            known=paths,
            is_loss_possible=not context.writes_survived,
        )
        _report(await _check_or_report(path, check), on_finding)


def _report(findings: list[Finding], on_finding: Callable[[Finding], None]) -> None:
    for finding in findings:
        on_finding(finding)


def _missing_metadata(context: FsckContext) -> Finding:
    return Finding(
        context.config.system.stream.path,
        "there are files of streams, but no metadata",
        "restore the directory `state` from a backup; no server starts without it. If there is no"
        " backup, repair moves all streams to quarantine, and the next start creates a new server",
        partial(quarantine_path, context.config.system.stream.path),
        is_fatal=True,
    )


def _summary(metadata: Metadata) -> str:
    topics = [topic for stream in metadata.streams for topic in stream.topics]
    return (
        f"metadata after {metadata.version} changes: {len(metadata.streams)} streams,"
        f" {len(topics)} topics, {sum(len(topic.partitions) for topic in topics)} partitions,"
        f" {len(metadata.users)} users"
    )


def _known_partitions(metadata: Metadata) -> Iterator[KnownPartition]:
    for stream in metadata.streams:
        for topic in stream.topics:
            for record in topic.partitions:
                yield KnownPartition(topic, record)


def _partition_path(context: FsckContext, known_partition: KnownPartition) -> str:
    topic, record = known_partition
    return context.config.system.partition_path(topic.stream_id, topic.id, record.id)


async def _check_or_report(
    path: str, check: Callable[[], Awaitable[list[Finding]]]
) -> list[Finding]:
    """Check a partition; an error of the disk is a finding too."""
    try:
        return await check()
    except StorageError as error:
        remedy = "replace or repair the disk first, then restore the file from a backup"
        return [Finding(path, str(error), remedy, is_fatal=True)]
