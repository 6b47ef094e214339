"""A finding: the problem, its severity, and the remedy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeAlias

from iggy_protocol import record
from iggy_ref_server.doctor.quarantine import Quarantine

__all__ = ["Finding", "Gravity", "Mend"]

Mend: TypeAlias = Callable[[Quarantine], Awaitable[None]]


class Gravity(Enum):
    """What a finding means for the administrator."""

    NOTE = "note"
    MENDABLE = "repairable"
    FATAL = "not repairable"


@record
class Finding:
    """A problem of the data directory.

    Attributes:
        path: the file or directory, relative to the data directory.
        problem: what is wrong with it.
        remedy: what ``repair`` does about it, or what the administrator can do.
        mend: does the repair; None where there is none.
        is_fatal: whether a part of the data directory is unusable and no repair restores the
            missing data; with a ``mend`` it becomes usable without them.
    """

    path: str
    problem: str
    remedy: str
    mend: Mend | None = None
    is_fatal: bool = False

    @property
    def gravity(self) -> Gravity:
        """The severity."""
        if self.is_fatal:
            return Gravity.FATAL
        return Gravity.NOTE if self.mend is None else Gravity.MENDABLE
