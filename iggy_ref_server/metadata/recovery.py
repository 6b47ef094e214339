"""Loads the state from snapshot and log, for the server and for ``iggy-server check``.

The log is created before anything else and replaced as a whole. So a log that is missing beside a
snapshot, or shorter than its header, was lost, and with it acknowledged changes. Continuing from
the snapshot alone would silently undo them, so this is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.changes import Change, decode_change
from iggy_ref_server.metadata.errors import MetadataDamaged, MetadataError, MetadataMissing
from iggy_ref_server.metadata.log import (
    HEADER_SIZE,
    LOG_MAGIC,
    LOG_PATH,
    Frame,
    FrameCipher,
    MetadataLogScan,
    check_header,
    decrypt_payload,
    file_header,
    intact_frames,
    read_frame,
    scan_log,
)
from iggy_ref_server.metadata.snapshot import SNAPSHOT_PATH, decode_snapshot, encode_snapshot
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.metadata.upstream_log import UPSTREAM_LOG_PATH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_protocol import PayloadCipher
    from iggy_ref_server.clock import Clock
    from iggy_ref_server.storage.interface import Storage


class LoadedState(NamedTuple):
    """What two files amount to.

    Attributes:
        metadata: everything that exists.
        scan: what the log holds; None where there is no log, because nothing ever happened.
    """

    metadata: Metadata
    scan: MetadataLogScan | None


def load_state(
    snapshot: bytes | None, log: bytes | None, frame_cipher: FrameCipher | None
) -> LoadedState:
    """Put a snapshot and a log together.

    Args:
        snapshot: the file; None where there is none.
        log: the file; None where there is none.
        frame_cipher: the key, where there is one.

    Raises:
        MetadataDamaged: one of them is damaged other than by a torn tail, or is not the other's.
        MetadataLocked: one is encrypted, and not with this key.
    """
    start = Metadata.EMPTY if snapshot is None else decode_snapshot(snapshot, frame_cipher)
    if log is None:
        if snapshot is None:
            return LoadedState(start, None)
        raise MetadataDamaged(
            LOG_PATH,
            0,
            f"the file is missing, and with it every change behind number {start.version}, where"
            " the snapshot ends",
        )
    check_header(log, LOG_MAGIC, LOG_PATH)
    scan = scan_log(log, LOG_PATH, start.version)
    if scan.frames and scan.frames[-1].version < start.version:
        raise MetadataDamaged(
            LOG_PATH,
            scan.end,
            f"it ends with change {scan.frames[-1].version}, but the snapshot holds all up to"
            f" {start.version}: this log is older than the snapshot",
        )
    return LoadedState(apply_frames(start, scan.frames, frame_cipher), scan)


async def require_metadata(storage: Storage, streams_path: str) -> None:
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


# Replays logged changes: at the start of the server, and in replicas while it runs.
#
# No change may be missing.


def decode_frame_change(frame: Frame, frame_cipher: FrameCipher | None) -> Change:
    """Read the change in a frame of the log.

    Raises:
        MetadataDamaged: this version knows no such change.
        MetadataLocked: it is sealed with another key.
    """
    try:
        return decode_change(decrypt_payload(frame, frame_cipher, LOG_PATH))
    except msgspec.MsgspecError as error:
        raise MetadataDamaged(
            LOG_PATH, frame.position, f"the change is not known to this version: {error}"
        ) from error


def apply_frames(
    metadata: Metadata, frames: Iterable[Frame], frame_cipher: FrameCipher | None
) -> Metadata:
    """Apply the changes in frames of the log that are not yet part of the state.

    Raises:
        MetadataDamaged: one cannot be read, or one is missing.
        MetadataLocked: they are sealed with another key.
    """
    for frame in frames:
        if frame.version <= metadata.version:
            continue
        if frame.version != metadata.version + 1:
            raise MetadataDamaged(
                LOG_PATH,
                frame.position,
                f"change {metadata.version + 1} is missing, change {frame.version} follows",
            )
        metadata = apply(metadata, decode_frame_change(frame, frame_cipher))
    return metadata


def apply_entry(metadata: Metadata, entry: bytes) -> Metadata:
    """Return a replica's state after an entry that a listener was given.

    An entry that is part of the state already changes nothing.

    Raises:
        MetadataDamaged: these are not the bytes of an entry, or one before it was missed.
    """
    frame = read_frame(entry, 0)
    if frame is None:
        raise MetadataDamaged(LOG_PATH, 0, "a replica received bytes that are no change")
    return apply_frames(metadata, [frame], None)


# Checks and repairs ``state/metadata.*`` offline, for ``iggy-server check`` and ``repair``.
#
# A damaged file is copied before anything is written. The server must not be running.


DAMAGED_SUFFIX = ".damaged"


async def check_metadata(
    storage: Storage, *, encryptor: PayloadCipher | None = None
) -> tuple[str, ...]:
    """Read the metadata and change nothing.

    Returns:
        What is wrong, for people; empty where all is well. A torn tail is mentioned.
    """
    frame_cipher = None if encryptor is None else FrameCipher(encryptor)
    try:
        _, scan = load_state(
            await storage.read_file(SNAPSHOT_PATH), await storage.read_file(LOG_PATH), frame_cipher
        )
    except MetadataError as error:
        return (str(error),)
    if scan is not None and scan.torn_size:
        return (f"{LOG_PATH} ends in {scan.torn_size} bytes of a change that never took effect",)
    return ()


def salvage_log(
    metadata: Metadata, data: bytes, frame_cipher: FrameCipher | None
) -> tuple[Metadata, list[str]]:
    """Apply every change of a damaged log that can be read.

    Args:
        metadata: what the snapshot holds.
        data: the log.
        frame_cipher: the key, where there is one.

    Returns:
        The state they lead to, and which are lost, for people.

    Raises:
        MetadataLocked: another key is needed.
    """
    findings: list[str] = []
    for frame in intact_frames(data, HEADER_SIZE):
        if frame.version <= metadata.version:
            continue
        try:
            change = decode_frame_change(frame, frame_cipher)
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
    frame_cipher = None if encryptor is None else FrameCipher(encryptor)
    problems = await check_metadata(storage, encryptor=encryptor)
    if not problems:
        return ()
    snapshot = await storage.read_file(SNAPSHOT_PATH)
    start = Metadata.EMPTY if snapshot is None else decode_snapshot(snapshot, frame_cipher)
    data = await storage.read_file(LOG_PATH)
    metadata, lost = salvage_log(start, data or b"", frame_cipher)
    if data is not None:
        await storage.replace(LOG_PATH + DAMAGED_SUFFIX, data)
    if lost or data is None or len(data) < HEADER_SIZE:
        # Whatever the lost changes made is not known here, and was not deleted either.
        doubtful = metadata.next_generation(clock.now_us()) - 1
        metadata = replace(metadata, last_generation=doubtful, doubtful_generation=doubtful)
    await storage.replace(SNAPSHOT_PATH, encode_snapshot(metadata, clock.now_us(), frame_cipher))
    await storage.replace(LOG_PATH, file_header(LOG_MAGIC))
    kept = "" if data is None else f"; the damaged log is kept as {LOG_PATH}{DAMAGED_SUFFIX}"
    return (*problems, *lost, f"saved the metadata up to change {metadata.version}{kept}")
