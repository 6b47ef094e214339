"""What the doctor finds: a problem, how grave it is, and the remedy.

Owns the words' frame. What is looked for, and how it is mended, is said where it is found.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeAlias

from iggy_protocol import record
from iggy_ref_server.doctor.quarantine import Quarantine

__all__ = ["Finding", "Gravity", "Mend"]

Mend: TypeAlias = Callable[[Quarantine], Awaitable[None]]


class Gravity(Enum):
    """What a finding means for the person who runs the server."""

    NOTE = "note"
    MENDABLE = "to mend"
    FATAL = "cannot be mended"


@record
class Finding:
    """One thing that is not as it should be.

    Attributes:
        path: the file or directory, relative to the data directory.
        problem: what is wrong with it.
        remedy: what ``repair`` does about it, or what a person can do.
        mend: does it; None where nothing is to be done, or nothing can be.
        is_fatal: whether the data directory is unusable, in part at least, and no repair brings
            back what is missing; where there is a ``mend`` it can be used again without that.
    """

    path: str
    problem: str
    remedy: str
    mend: Mend | None = None
    is_fatal: bool = False

    @property
    def gravity(self) -> Gravity:
        """How grave it is."""
        if self.is_fatal:
            return Gravity.FATAL
        return Gravity.NOTE if self.mend is None else Gravity.MENDABLE
