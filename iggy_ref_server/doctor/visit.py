"""The commands ``check`` and ``repair``: lock the directory, check it, repair it, print the result.

0    no problems, or all repaired
1    there are problems that ``repair`` repairs
2    something is not repairable, or the directory cannot be checked
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import trio

from iggy_ref_server.boot import writes_survived
from iggy_ref_server.clock import SystemClock
from iggy_ref_server.config import ConfigError, ServerConfig, StartFlags, load_config
from iggy_ref_server.doctor.case import Case
from iggy_ref_server.doctor.examination import examine
from iggy_ref_server.doctor.finding import Finding, Gravity
from iggy_ref_server.doctor.quarantine import Quarantine
from iggy_ref_server.guards import LOCK_NAME, AlreadyRunning, lock_data_directory
from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.threads import ThreadStorage

__all__ = ["check", "check_case", "repair", "repair_case"]

SOUND = 0
TO_MEND = 1
BEYOND = 2

Say: TypeAlias = Callable[[str], None]


def check(directory: Path, say: Say) -> int:
    """Check a data directory, and change nothing; return the exit status, 0, 1 or 2."""
    return _visit(directory, say, check_case, hold=_hold_if_locked)


def repair(directory: Path, say: Say) -> int:
    """Repair a data directory, and delete nothing; return the exit status, 0 or 2."""
    return _visit(directory, say, repair_case, hold=lock_data_directory)


def _visit(
    directory: Path,
    say: Say,
    treat: Callable[[Case], Awaitable[int]],
    *,
    hold: Callable[[Path], int | None],
) -> int:
    if not any((directory / name).is_dir() for name in ("state", "streams")):
        say(f"{directory} is not a data directory: it has neither `state` nor `streams`")
        return BEYOND
    try:
        config = load_config(StartFlags(), os.environ, Path.cwd()).config
        with _held(directory, hold):
            return trio.run(_treat, directory, config, say, treat)
    except (AlreadyRunning, ConfigError, StorageError) as error:
        say(str(error))
        return BEYOND


async def _treat(
    directory: Path, config: ServerConfig, say: Say, treat: Callable[[Case], Awaitable[int]]
) -> int:
    storage = ThreadStorage(directory)
    try:
        case = Case(
            storage=storage,
            clock=SystemClock(),
            config=config,
            say=say,
            writes_survived=writes_survived(directory),
        )
        return await treat(case)
    finally:
        await storage.aclose()


@contextmanager
def _held(directory: Path, hold: Callable[[Path], int | None]) -> Iterator[None]:
    """Hold the lock of the data directory during the block."""
    descriptor = hold(directory)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _hold_if_locked(directory: Path) -> int | None:
    """Lock without writing; a directory without a lock file was never used by this server."""
    path = directory / LOCK_NAME
    if not path.exists():
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        owner = path.read_text(errors="replace").strip() or "unknown"
        raise AlreadyRunning(
            f"the data directory {directory} is in use by the server with process id {owner};"
            " stop it first"
        ) from error
    return descriptor


async def check_case(case: Case) -> int:
    """Check and print; return the exit status."""
    findings = await _examine(case)
    status = _status(findings)
    if status == TO_MEND:
        case.say("run `iggy-server repair` while no server uses the directory")
    return status


async def repair_case(case: Case) -> int:
    """Check, repair, and check again; return the exit status."""
    findings = await _examine(case)
    quarantine = await Quarantine.begin(case.storage)
    for finding in findings:
        if finding.mend is not None:
            await _mend(case, finding, finding.mend, quarantine)
    for path in quarantine.kept:
        case.say(f"kept {path}")
    if all(finding.mend is None for finding in findings):
        return _status(findings)
    case.say("checking again")
    left = await _examine(replace(case, say=lambda line: None))
    rest = [finding for finding in left if finding.gravity is not Gravity.NOTE]
    for finding in rest:
        _tell(case.say, finding)
    case.say("some problems are not repaired" if rest else "all problems are repaired")
    return BEYOND if rest else SOUND


async def _mend(
    case: Case, finding: Finding, mend: Callable[[Quarantine], Awaitable[None]], place: Quarantine
) -> None:
    try:
        await mend(place)
        case.say(f"repaired {finding.path}")
    except StorageError as error:
        case.say(f"cannot repair {finding.path}: {error}")


async def _examine(case: Case) -> list[Finding]:
    findings: list[Finding] = []

    def found(finding: Finding) -> None:
        findings.append(finding)
        _tell(case.say, finding)

    await examine(case, found)
    counts = dict.fromkeys(Gravity, 0)
    for finding in findings:
        counts[finding.gravity] += 1
    case.say(
        "no problems found"
        if _status(findings) == SOUND
        else f"{counts[Gravity.MENDABLE]} repairable, {counts[Gravity.FATAL]} not repairable"
    )
    return findings


def _status(findings: list[Finding]) -> int:
    gravities = {finding.gravity for finding in findings}
    if Gravity.FATAL in gravities:
        return BEYOND
    return TO_MEND if Gravity.MENDABLE in gravities else SOUND


def _tell(say: Say, finding: Finding) -> None:
    say(f"{finding.gravity.value}: {finding.path}")
    say(f"    {finding.problem}")
    say(f"    {finding.remedy}")
