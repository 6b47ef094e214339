"""Checks and repairs ``state/metadata.*`` offline, for ``iggy-server check`` and ``repair``.

A damaged file is copied before anything is written. The server must not be running.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.damage import MetadataDamaged, MetadataError
from iggy_ref_server.metadata.frame import HEAD_SIZE, Seal, file_head
from iggy_ref_server.metadata.log import LOG_MAGIC, LOG_PATH
from iggy_ref_server.metadata.reading import read_state
from iggy_ref_server.metadata.replay import change_in
from iggy_ref_server.metadata.scan import good_frames
from iggy_ref_server.metadata.snapshot import SNAPSHOT_PATH, decode_snapshot, encode_snapshot
from iggy_ref_server.metadata.state import Metadata

if TYPE_CHECKING:
    from iggy_protocol import PayloadCipher
    from iggy_ref_server.clock import Clock
    from iggy_ref_server.storage.interface import Storage

__all__ = ["DAMAGED_SUFFIX", "check_metadata", "repair_metadata", "salvage"]

DAMAGED_SUFFIX = ".damaged"


async def check_metadata(
    storage: Storage, *, encryptor: PayloadCipher | None = None
) -> tuple[str, ...]:
    """Read the metadata and change nothing.

    Returns:
        What is wrong, for people; empty where all is well. A torn tail is mentioned.
    """
    seal = None if encryptor is None else Seal(encryptor)
    try:
        _, scan = read_state(
            await storage.read_file(SNAPSHOT_PATH), await storage.read_file(LOG_PATH), seal
        )
    except MetadataError as error:
        return (str(error),)
    if scan is not None and scan.torn_size:
        return (f"{LOG_PATH} ends in {scan.torn_size} bytes of a change that never took effect",)
    return ()


def salvage(metadata: Metadata, data: bytes, seal: Seal | None) -> tuple[Metadata, list[str]]:
    """Apply every change of a damaged log that can be read.

    Args:
        metadata: what the snapshot holds.
        data: the log.
        seal: the key, where there is one.

    Returns:
        The state they lead to, and which are lost, for people.

    Raises:
        MetadataLocked: another key is needed.
    """
    findings: list[str] = []
    for frame in good_frames(data, HEAD_SIZE):
        if frame.version <= metadata.version:
            continue
        try:
            change = change_in(frame, seal)
        except MetadataDamaged as error:
            findings.append(error.reason)
            continue
        lost_count = frame.version - metadata.version - 1
        if lost_count:
            findings.append(
                f"{lost_count} changes are lost: numbers {metadata.version + 1}"
                f" to {frame.version - 1}"
            )
        metadata = replace(apply(metadata, change), version=frame.version)
    return metadata, findings


async def repair_metadata(
    storage: Storage, clock: Clock, *, encryptor: PayloadCipher | None = None
) -> tuple[str, ...]:
    """Save every change of a damaged log that can be read, and tell which are lost.

    The damaged log is kept under its name with ``.damaged`` behind it. Where all is well nothing
    is written.

    Returns:
        What was found and done, for people.

    Raises:
        MetadataDamaged: the snapshot itself is damaged; only a backup helps.
        MetadataLocked: another key is needed.
    """
    seal = None if encryptor is None else Seal(encryptor)
    problems = await check_metadata(storage, encryptor=encryptor)
    if not problems:
        return ()
    snapshot = await storage.read_file(SNAPSHOT_PATH)
    start = Metadata.EMPTY if snapshot is None else decode_snapshot(snapshot, seal)
    data = await storage.read_file(LOG_PATH)
    metadata, lost = salvage(start, data or b"", seal)
    if data is not None:
        await storage.replace(LOG_PATH + DAMAGED_SUFFIX, data)
    if lost or data is None or len(data) < HEAD_SIZE:
        # Whatever the lost changes made is not known here, and was not deleted either.
        doubtful = metadata.next_incarnation(clock.now_us()) - 1
        metadata = replace(metadata, last_incarnation=doubtful, doubtful_incarnation=doubtful)
    await storage.replace(SNAPSHOT_PATH, encode_snapshot(metadata, clock.now_us(), seal))
    await storage.replace(LOG_PATH, file_head(LOG_MAGIC))
    kept = "" if data is None else f"; the damaged log is kept as {LOG_PATH}{DAMAGED_SUFFIX}"
    return (*problems, *lost, f"saved the metadata up to change {metadata.version}{kept}")
