"""What each pipeline of a driver does, in small files that any program can read meanwhile.

A file is replaced as a whole. Beside it is a lock, which the driver holds while it lives: so a
second driver with the same pipeline is refused, and a driver that is gone is told from a quiet one.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.errors import OptionError
from spark_jobs.jobs.terminal import format_table
from spark_jobs.pipeline.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

STATE_FOLDER: Final = ".iggy-spark"
"""Where status files are unless ``--state`` says otherwise."""

FILES_MAX: Final = 1000
ERROR_CHARACTERS_MAX: Final = 1000
LOST: Final = "lost"
"""The state of a pipeline whose driver ended without saying so."""

ENDED: Final = ("done", "stopped", "failed", LOST)
HEADS: Final = (
    "pipeline",
    "state",
    "batch",
    "rows",
    "rows/s",
    "behind",
    "bad",
    "restarts",
    "error",
)


@dataclass(frozen=True)
class PipelineStatus:
    """What one pipeline does.

    Attributes:
        name: the pipeline.
        state: ``waiting``, ``running``, ``done``, ``stopped``, ``failed`` or ``lost``.
        pid: the process of the driver.
        started_at: when the driver started it.
        updated_at: when this was written.
        batch_id: the last micro-batch that is done.
        rows_count: rows read since the start.
        rows_per_second: of the last micro-batch.
        lag: messages that the topics hold beyond the last micro-batch.
        dead_letters_count: rows that could not be processed.
        late_rows_count: rows that came too late for a window, or to be compared with others.
        restarts_count: how often it was started again.
        last_error: why it failed last.
        last_error_at: when.
    """

    name: str
    state: str
    pid: int
    started_at: str
    updated_at: str
    batch_id: int | None = None
    rows_count: int = 0
    rows_per_second: float | None = None
    lag: int | None = None
    dead_letters_count: int = 0
    late_rows_count: int = 0
    restarts_count: int = 0
    last_error: str | None = None
    last_error_at: str | None = None


def now_text() -> str:
    """Return this moment as text."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class StatusFile:
    """The status file of one pipeline, which its driver writes.

    Args:
        folder: where it is.
        name: the pipeline.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"{name}.json"
        self._status = PipelineStatus(name, "waiting", os.getpid(), now_text(), now_text())

    def put(self, *, error: str | None, **known: Any) -> None:
        """Write what has changed, if something has."""
        changed = replace(self._status, **known)
        if error is not None:
            text = redact(error)[:ERROR_CHARACTERS_MAX]
            if text != self._status.last_error or known.get("restarts_count") != (
                self._status.restarts_count
            ):
                changed = replace(changed, last_error=text, last_error_at=now_text())
        if changed == self._status and self._path.exists():
            return
        self._status = replace(changed, updated_at=now_text())
        partial = self._path.with_suffix(".tmp")
        partial.write_text(json.dumps(asdict(self._status), indent=1), encoding="utf-8")
        partial.replace(self._path)


@contextmanager
def held_locks(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """Hold the locks of some pipelines.

    Raises:
        OptionError: another driver runs one of them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for name in names:
            file = stack.enter_context((folder / f"{name}.lock").open("a"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise OptionError(
                    f"another driver runs the pipeline {name} ({folder / name}.lock is locked); "
                    "stop it, or choose another --state"
                ) from None
        yield


def _is_locked(path: Path) -> bool:
    try:
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def read_statuses(folder: Path) -> list[PipelineStatus]:
    """Read the status of all pipelines of a folder.

    Raises:
        OptionError: there is no such folder, or a file is none of ours.
    """
    if not folder.is_dir():
        raise OptionError(
            f"there is no folder {folder}; name the one that iggy-spark run has as --state"
        )
    paths = sorted(folder.glob("*.json"))[:FILES_MAX]
    return [_read_status(path) for path in paths]


def _read_status(path: Path) -> PipelineStatus:
    names = {one.name for one in fields(PipelineStatus)}
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        status = PipelineStatus(**{name: known[name] for name in known if name in names})
    except (OSError, ValueError, TypeError) as error:
        raise OptionError(f"{path} is no status of a pipeline ({error}); remove it") from None
    if status.state in ENDED or _is_locked(path.with_suffix(".lock")):
        return status
    return replace(status, state=LOST)


def format_statuses(statuses: Sequence[PipelineStatus]) -> str:
    """Write statuses as a table for people."""
    rows = [
        (
            one.name,
            one.state,
            one.batch_id,
            one.rows_count,
            one.rows_per_second,
            one.lag,
            one.dead_letters_count,
            one.restarts_count,
            one.last_error,
        )
        for one in statuses
    ]
    return format_table(HEADS, rows)


def write_statuses(statuses: Sequence[PipelineStatus]) -> str:
    """Write statuses for programs."""
    return json.dumps([asdict(one) for one in statuses], indent=1)
