"""Examine the stored offsets of a partition: one small file for each consumer and group.

Owns what makes such a file believable. A server passes over files that are not, one by one.
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

MOVED_AWAY = "repair moves it to quarantine; until then a server passes over it"


@record(kw_only=True)
class GivenOffsets:
    """Which offsets a partition has given to messages.

    Attributes:
        last: its highest offset; None where there never was a message.
        highest: an offset behind all that are known to have been given.
        is_loss_possible: whether a power loss may have taken messages.
    """

    last: int | None
    highest: int
    is_loss_possible: bool


async def examine_offsets(
    storage: Storage, directory: str, given: GivenOffsets, group_ids: Container[int]
) -> list[Finding]:
    """Read all stored offsets of a partition.

    Args:
        storage: the data directory.
        directory: the partition's directory.
        given: which offsets it has given.
        group_ids: the consumer groups of the topic.

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
    """Find what is not as an orderly stop has noted it."""
    findings: list[Finding] = []
    for name, offset in noted.items():
        path = f"{folder}/{name}"
        if await storage.read_file(path) != OFFSET.pack(offset):
            findings.append(
                Finding(
                    path,
                    f"it is not what it was when the server stopped: {offset}",
                    "repair puts it right, and a server does so when it starts",
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
        problem = f"it says {stored}, but there never was a message"
        return Finding(path, problem, MOVED_AWAY, partial(_move_away, path))
    problem = f"it says {stored}, but the last message has the offset {last_offset}"
    if is_impossible(
        stored,
        last_offset,
        max(last_offset + 1, given.highest),
        is_loss_possible=given.is_loss_possible,
    ):
        remedy = "repair moves it to quarantine, and its consumer starts over, as with a server"
        return Finding(path, problem, remedy, partial(_move_away, path))
    if stored > last_offset:
        return Finding(
            path,
            problem,
            "repair lowers it to the last message, so that the next one is not missed",
            partial(_lower, path, last_offset),
        )
    return None


def shape_problem(entry: Entry) -> str:
    """Tell what is wrong with the name or the size; empty when nothing is."""
    is_number = entry.name.isascii() and entry.name.isdigit()
    if entry.is_directory or not is_number or str(int(entry.name)) != entry.name:
        return "its name is not the id of a consumer"
    if int(entry.name) > ID_MAX:
        return "no consumer has such a high id"
    if entry.size_bytes != OFFSET.size:
        return f"it has {entry.size_bytes} bytes instead of {OFFSET.size}"
    return ""


async def _move_away(path: str, quarantine: Quarantine) -> None:
    await quarantine.take(path)


async def _lower(path: str, offset: int, quarantine: Quarantine) -> None:
    await quarantine.take_copy(path)
    await quarantine.storage.replace(path, OFFSET.pack(offset))
