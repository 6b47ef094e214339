"""Findings for a partition whose files may belong to another generation or partition.

``partitions.ownership`` decides whose they are, for the server as well. A server quarantines a
partition in doubt. A repair was requested by the administrator, so it may do more; it deletes
nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from iggy_ref_server.doctor.finding import Finding
from iggy_ref_server.partitions import incarnation, reservation
from iggy_ref_server.partitions.incarnation import Generation, write_generation
from iggy_ref_server.partitions.opening import make_empty
from iggy_ref_server.partitions.ownership import Verdict
from iggy_ref_server.partitions.reservation import Reservation
from iggy_ref_server.segments.segment import Segment

if TYPE_CHECKING:
    from iggy_ref_server.doctor.quarantine import Quarantine
    from iggy_ref_server.partitions.ownership import Ownership

__all__ = ["judge_owner", "misplaced"]


def judge_owner(directory: str, owner: Ownership, life: int) -> tuple[Finding | None, bool]:
    """Check whose the files are.

    Args:
        owner: what ``partitions.ownership`` has decided.
        life: the current number, from the metadata.

    Returns:
        The finding, if there is one, and whether the segments are to be checked as well.
    """
    verdict = owner.verdict
    if verdict.is_opened or verdict is Verdict.NO_RESERVATION:
        return None, True
    if verdict is Verdict.NO_FILES:
        return _without_files(directory, owner), False
    if verdict is Verdict.NOTHING:
        remedy = (
            "repair begins it empty, as a server would; if it had messages, restore them from a"
            " backup first"
        )
        mend = partial(_begin_empty, directory, life)
        return Finding(directory, owner.reason, remedy, mend), False
    if verdict is Verdict.NO_LOGS:
        return _without_logs(directory, owner), False
    if verdict is Verdict.NO_NUMBER or _is_flipped(owner, life):
        return _without_number(directory, owner, life), True
    if owner.found is not None and owner.found.number > life:
        return _newer(directory, owner), False
    return _outdated(directory, owner, life), False


def _is_flipped(owner: Ownership, life: int) -> bool:
    """Return whether a number without a checksum differs from the right one in one bit."""
    if owner.verdict is not Verdict.CONTRADICTORY or owner.found is None:
        return False
    wrong, right = str(owner.found.number).encode(), str(life).encode()
    bits = sum((left ^ right_).bit_count() for left, right_ in zip(wrong, right, strict=False))
    return len(wrong) == len(right) and bits == 1


def misplaced(directory: str, home: str) -> Finding:
    """Return the finding for files of another partition."""
    return Finding(
        directory,
        f"a server does not serve the partition: the files are those of {home}",
        "move the directories back by hand, or restore them from a backup",
        is_fatal=True,
    )


def _without_files(directory: str, owner: Ownership) -> Finding:
    return Finding(
        directory,
        f"a server does not serve the partition: {owner.reason}",
        "restore the directory from a backup; without one, purge or delete the topic, because the"
        " assigned offsets are unknown",
        is_fatal=True,
    )


def _without_logs(directory: str, owner: Ownership) -> Finding:
    return Finding(
        directory,
        f"a server does not serve the partition: {owner.reason}",
        "restore them from a backup; without one, repair begins an empty log above all offsets"
        " that are known to be assigned",
        partial(_make_segment, directory),
    )


def _without_number(directory: str, owner: Ownership, life: int) -> Finding:
    return Finding(
        f"{directory}/{incarnation.NAME}",
        f"a server does not serve the partition: {owner.reason}",
        f"repair assigns the files to the current partition, generation {life}",
        partial(_set_number, directory, life),
    )


def _newer(directory: str, owner: Ownership) -> Finding:
    return Finding(
        directory,
        f"a server does not serve the partition: {owner.reason}",
        "restore the directory `state` from a backup that is as new as the messages; for an empty"
        " partition, move its directory away by hand",
        is_fatal=True,
    )


def _outdated(directory: str, owner: Ownership, life: int) -> Finding:
    server = "does not serve it" if owner.verdict.is_damage else "deletes them when it starts"
    return Finding(
        directory,
        owner.reason,
        f"repair moves them to quarantine and begins the partition empty; a server {server}",
        partial(_begin_anew, directory, life),
    )


async def _begin_empty(directory: str, life: int, quarantine: Quarantine) -> None:
    await make_empty(quarantine.storage, directory, life)


async def _begin_anew(directory: str, life: int, quarantine: Quarantine) -> None:
    await quarantine.take(directory)
    await make_empty(quarantine.storage, directory, life)


async def _make_segment(directory: str, quarantine: Quarantine) -> None:
    storage = quarantine.storage
    loaded = await Reservation.load(storage, directory)
    start = loaded.highest
    if start > loaded.removed_below:
        await loaded.note_gaps([(loaded.removed_below, start)])
    await Segment(directory, start).create(storage)


async def _set_number(directory: str, life: int, quarantine: Quarantine) -> None:
    storage = quarantine.storage
    await quarantine.take_copy(f"{directory}/{incarnation.NAME}")
    has_reservation = await storage.read_file(f"{directory}/{reservation.NAME}") is not None
    record = Generation(life, has_reservation=has_reservation)
    await write_generation(storage, directory, record)
