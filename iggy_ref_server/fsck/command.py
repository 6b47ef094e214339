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
from typing import TYPE_CHECKING, TypeAlias

import trio

from iggy_ref_server.cli import StartFlags
from iggy_ref_server.clock import SystemClock
from iggy_ref_server.config.load import load_config
from iggy_ref_server.config.tree import ConfigError
from iggy_ref_server.fsck.check import check_directory
from iggy_ref_server.fsck.context import Finding, FsckContext, Quarantine, Severity
from iggy_ref_server.process.locks import (
    LOCK_NAME,
    AlreadyRunning,
    lock_data_directory,
    writes_survived,
)
from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.threads import ThreadStorage

if TYPE_CHECKING:
    from iggy_ref_server.config.schema import ServerConfig

EXIT_CLEAN = 0
EXIT_REPAIRABLE = 1
EXIT_UNREPAIRABLE = 2

PrintLine: TypeAlias = Callable[[str], None]


def check(directory: Path, print_line: PrintLine) -> int:
    """Check a data directory, and change nothing; return the exit status, 0, 1 or 2."""
    return _run_locked(directory, print_line, check_context, lock=_lock_if_present)


def repair(directory: Path, print_line: PrintLine) -> int:
    """Repair a data directory, and delete nothing; return the exit status, 0 or 2."""
    return _run_locked(directory, print_line, repair_context, lock=lock_data_directory)


def _run_locked(
    directory: Path,
    print_line: PrintLine,
    action: Callable[[FsckContext], Awaitable[int]],
    *,
    lock: Callable[[Path], int | None],
) -> int:
    if not any((directory / name).is_dir() for name in ("state", "streams")):
        print_line(f"{directory} is not a data directory: it has neither `state` nor `streams`")
        return EXIT_UNREPAIRABLE
    try:
        config = load_config(StartFlags(), os.environ, Path.cwd()).config
        with _locked(directory, lock):
            return trio.run(_run_on_storage, directory, config, print_line, action)
    except (AlreadyRunning, ConfigError, StorageError) as error:
        print_line(str(error))
        return EXIT_UNREPAIRABLE


async def _run_on_storage(
    directory: Path,
    config: ServerConfig,
    print_line: PrintLine,
    action: Callable[[FsckContext], Awaitable[int]],
) -> int:
    storage = ThreadStorage(directory)
    try:
        context = FsckContext(
            storage=storage,
            clock=SystemClock(),
            config=config,
            print_line=print_line,
            writes_survived=writes_survived(directory),
        )
        return await action(context)
    finally:
        await storage.aclose()


@contextmanager
def _locked(directory: Path, lock: Callable[[Path], int | None]) -> Iterator[None]:
    """Hold the lock of the data directory during the block."""
    descriptor = lock(directory)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock_if_present(directory: Path) -> int | None:
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


async def check_context(context: FsckContext) -> int:
    """Check and print; return the exit status."""
    findings = await _check_and_print(context)
    status = _status(findings)
    if status == EXIT_REPAIRABLE:
        context.print_line("run `iggy-server repair` while no server uses the directory")
    return status


async def repair_context(context: FsckContext) -> int:
    """Check, repair, and check again; return the exit status."""
    findings = await _check_and_print(context)
    quarantine = await Quarantine.begin(context.storage)
    for finding in findings:
        if finding.repair_action is not None:
            await _repair_finding(context, finding, finding.repair_action, quarantine)
    for path in quarantine.kept:
        context.print_line(f"kept {path}")
    if all(finding.repair_action is None for finding in findings):
        return _status(findings)
    context.print_line("checking again")
    second_pass = await _check_and_print(replace(context, print_line=lambda line: None))
    remaining = [finding for finding in second_pass if finding.severity is not Severity.NOTE]
    for finding in remaining:
        _print_finding(context.print_line, finding)
    context.print_line(
        "some problems are not repaired" if remaining else "all problems are repaired"
    )
    return EXIT_UNREPAIRABLE if remaining else EXIT_CLEAN


async def _repair_finding(
    context: FsckContext,
    finding: Finding,
    repair_action: Callable[[Quarantine], Awaitable[None]],
    quarantine: Quarantine,
) -> None:
    try:
        await repair_action(quarantine)
        context.print_line(f"repaired {finding.path}")
    except StorageError as error:
        context.print_line(f"cannot repair {finding.path}: {error}")


async def _check_and_print(context: FsckContext) -> list[Finding]:
    findings: list[Finding] = []

    def on_finding(finding: Finding) -> None:
        findings.append(finding)
        _print_finding(context.print_line, finding)

    await check_directory(context, on_finding)
    counts = dict.fromkeys(Severity, 0)
    for finding in findings:
        counts[finding.severity] += 1
    context.print_line(
        "no problems found"
        if _status(findings) == EXIT_CLEAN
        else f"{counts[Severity.REPAIRABLE]} repairable, {counts[Severity.FATAL]} not repairable"
    )
    return findings


def _status(findings: list[Finding]) -> int:
    severities = {finding.severity for finding in findings}
    if Severity.FATAL in severities:
        return EXIT_UNREPAIRABLE
    return EXIT_REPAIRABLE if Severity.REPAIRABLE in severities else EXIT_CLEAN


def _print_finding(print_line: PrintLine, finding: Finding) -> None:
    print_line(f"{finding.severity.value}: {finding.path}")
    print_line(f"    {finding.problem}")
    print_line(f"    {finding.remedy}")
