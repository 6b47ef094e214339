"""Checks the stored offsets of a partition: one small file for each consumer and group.

A server ignores files that are not plausible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from iggy_protocol import ConsumerKind, record
from iggy_ref_server.doctor.finding import Finding
from iggy_ref_server.partitions.offset_note import read_note
from iggy_ref_server.partitions.offsets import FOLDERS, ID_MAX, OFFSET, is_impossible

if TYPE_CHECKING:
    from collections.abc import Container

    from iggy_ref_server.doctor.quarantine import Quarantine
    from iggy_ref_server.storage.interface import Entry, Storage

__all__ = ["GivenOffsets", "examine_offsets"]

MOVED_AWAY = "repair moves it to quarantine; until then a server ignores it"


@record(kw_only=True)
class GivenOffsets:
    """The offsets that a partition has assigned to messages.

    Attributes:
        last: its highest offset; None where there never was a message.
        highest: an offset above all that are known to be assigned.
        is_loss_possible: whether a power loss may have lost messages.
    """

    last: int | None
    highest: int
    is_loss_possible: bool


async def examine_offsets(
    storage: Storage, directory: str, given: GivenOffsets, group_ids: Container[int]
) -> list[Finding]:
    """Check all stored offsets of a partition.

    Raises:
        StorageError: a file cannot be read.
    """
    findings: list[Finding] = []
    note = await read_note(storage, directory) or {}
    for kind, folder in FOLDERS.items():
        path = f"{directory}/offsets/{folder}"
        changed = await _changed(storage, path, note.get(folder, {}))
        if changed:
            findings += changed
            continue
        for entry in await storage.entries(path):
            known = group_ids if kind is ConsumerKind.GROUP else None
            finding = await _examine(storage, path, entry, given, known)
            if finding is not None:
                findings.append(finding)
    return findings


async def _changed(storage: Storage, folder: str, noted: dict[str, int]) -> list[Finding]:
    """Compare the files with the record that a regular stop has written."""
    findings: list[Finding] = []
    for name, offset in noted.items():
        path = f"{folder}/{name}"
        if await storage.read_file(path) != OFFSET.pack(offset):
            findings.append(
                Finding(
                    path,
                    f"it differs from the offset at the last stop of the server, {offset}",
                    "repair restores that offset, and a server does so when it starts",
                    partial(_lower, path, offset),
                )
            )
    return findings


async def _examine(
    storage: Storage,
    folder: str,
    entry: Entry,
    given: GivenOffsets,
    group_ids: Container[int] | None,
) -> Finding | None:
    path = f"{folder}/{entry.name}"
    problem = shape_problem(entry)
    if not problem and group_ids is not None and int(entry.name) not in group_ids:
        problem = "it is the offset of a consumer group that does not exist"
    if problem:
        return Finding(path, problem, MOVED_AWAY, partial(_move_away, path))
    content = await storage.read_file(path) or bytes(OFFSET.size)
    stored = OFFSET.unpack(content)[0]
    last_offset = given.last
    if last_offset is None:
        problem = f"it holds {stored}, but the partition never had a message"
        return Finding(path, problem, MOVED_AWAY, partial(_move_away, path))
    problem = f"it holds {stored}, but the last message has the offset {last_offset}"
    if is_impossible(
        stored,
        last_offset,
        max(last_offset + 1, given.highest),
        is_loss_possible=given.is_loss_possible,
    ):
        remedy = (
            "repair moves it to quarantine, and its consumer starts over; a server does the same"
        )
        return Finding(path, problem, remedy, partial(_move_away, path))
    if stored > last_offset:
        return Finding(
            path,
            problem,
            "repair lowers it to the last message, so that its consumer gets the next one",
            partial(_lower, path, last_offset),
        )
    return None


def shape_problem(entry: Entry) -> str:
    """Describe what is wrong with the name or the size; empty if nothing is."""
    is_number = entry.name.isascii() and entry.name.isdigit()
    if entry.is_directory or not is_number or str(int(entry.name)) != entry.name:
        return "its name is not a consumer id"
    if int(entry.name) > ID_MAX:
        return "its name is above the highest consumer id"
    if entry.size_bytes != OFFSET.size:
        return f"it has {entry.size_bytes} bytes instead of {OFFSET.size}"
    return ""


async def _move_away(path: str, quarantine: Quarantine) -> None:
    await quarantine.take(path)


async def _lower(path: str, offset: int, quarantine: Quarantine) -> None:
    await quarantine.take_copy(path)
    await quarantine.storage.replace(path, OFFSET.pack(offset))
