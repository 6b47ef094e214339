"""Checks a whole data directory: metadata, directory tree, and every partition.

The metadata are those of this server, or those of Apache Iggy 0.8 that are not imported yet.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from iggy_ref_server.doctor.finding import Finding
from iggy_ref_server.metadata.damage import MetadataDamaged, MetadataError
from iggy_ref_server.metadata.frame import HEAD_SIZE, Seal, check_head
from iggy_ref_server.metadata.importer import import_state
from iggy_ref_server.metadata.log import LOG_MAGIC, LOG_PATH
from iggy_ref_server.metadata.records import ROOT_USER_ID
from iggy_ref_server.metadata.repair import (
    DAMAGED_SUFFIX,
    check_metadata,
    repair_metadata,
    salvage,
)
from iggy_ref_server.metadata.snapshot import SNAPSHOT_PATH, decode_snapshot
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.metadata.upstream_log import UPSTREAM_LOG_PATH

if TYPE_CHECKING:
    from iggy_ref_server.doctor.case import Case
    from iggy_ref_server.doctor.quarantine import Quarantine

__all__ = ["examine_metadata"]


async def examine_metadata(case: Case) -> tuple[Metadata | None, list[Finding]]:
    """Check the metadata.

    Returns:
        The metadata as far as they can be read, None if they cannot; and the findings.

    Raises:
        StorageError: a file cannot be read.
    """
    try:
        metadata, findings = await _own(case)
        if metadata.version:
            return metadata, [*findings, *_without_root(metadata)]
        return await _upstream(case, findings)
    except MetadataError as error:
        problem = f"at byte {error.position}: {error.reason}"
        return None, [Finding(error.path, problem, _advice(error), is_fatal=True)]


def _without_root(metadata: Metadata) -> list[Finding]:
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


async def _own(case: Case) -> tuple[Metadata, list[Finding]]:
    seal = None if case.cipher is None else Seal(case.cipher)
    snapshot = await case.storage.read_file(SNAPSHOT_PATH)
    metadata = Metadata.EMPTY if snapshot is None else decode_snapshot(snapshot, seal)
    log = await case.storage.read_file(LOG_PATH) or b""
    has_head = log.startswith(LOG_MAGIC) and len(log) >= HEAD_SIZE
    if has_head:
        check_head(log, LOG_MAGIC, LOG_PATH)  # a file of a newer server must not be repaired here
    metadata, lost = salvage(metadata, log, seal)
    problems = await check_metadata(case.storage, encryptor=case.cipher)
    if not problems:
        return metadata, []
    remedy = (
        "repair moves a copy to quarantine and drops them; a server drops them when it starts"
        if has_head and not lost
        else "a server does not start with it. repair moves a copy to quarantine and keeps every"
        " change that can be read; a backup may have more"
    )
    problem = "; ".join([*(text.partition("; nothing was changed")[0] for text in problems), *lost])
    return metadata, [Finding(LOG_PATH, problem, remedy, partial(_mend, case))]


async def _mend(case: Case, quarantine: Quarantine) -> None:
    await repair_metadata(case.storage, case.clock, encryptor=case.cipher)
    if await case.storage.read_file(LOG_PATH + DAMAGED_SUFFIX) is not None:
        await quarantine.take(LOG_PATH + DAMAGED_SUFFIX)


async def _upstream(case: Case, findings: list[Finding]) -> tuple[Metadata, list[Finding]]:
    """Try to import the metadata of Apache Iggy."""
    data = await case.storage.read_file(UPSTREAM_LOG_PATH)
    if not data:
        return Metadata.EMPTY, findings
    imported = import_state(data, case.metadata_settings, case.cipher)
    note = Finding(
        UPSTREAM_LOG_PATH,
        f"it is the metadata log of Apache Iggy, with {len(imported.changes)} changes, not imported"
        " yet",
        "a server imports it when it starts, and does not change the file",
    )
    return imported.metadata, [*findings, note]
