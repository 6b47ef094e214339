"""A simulated power loss: a seed decides which unsynced changes survive.

Disks write pages in any order, so any subset of the unsynced writes may survive, whole or torn at
any byte. The file system journals name changes in order, so a prefix of those survives.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from iggy_ref_server.storage.fault_plan import WHOLE_BYTES_MAX
from iggy_ref_server.storage.memory_content import Change, State

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

__all__ = ["PowerLoss", "Survival"]

# A write is torn in at most so many pieces.
TEARS_MAX = 3


class Survival(Enum):
    """How much of what was not synced is on the disk all the same."""

    NOTHING = "nothing"
    PREFIX = "prefix"
    SUBSET = "subset"
    EVERYTHING = "everything"


class PowerLoss:
    """One power failure.

    Args:
        chance: the random generator of all decisions.
        survival: the same for every file; random for each file by default.
    """

    def __init__(self, chance: random.Random, survival: Survival | None = None) -> None:
        self._chance = chance
        self._survival = survival

    def names_count(self, pending_count: int) -> int:
        """Return how many of the unsynced changes of names are there, the oldest first."""
        match self._survival_of_one():
            case Survival.NOTHING:
                return 0
            case Survival.EVERYTHING:
                return pending_count
            case _:
                return self._chance.randint(0, pending_count)

    def surviving(self, changes: list[Change]) -> Iterator[Change]:
        """Pick the changes of one file that are there, or parts of them."""
        survival = self._survival_of_one()
        at_risk_count = sum(change.state is not State.DURABLE for change in changes)
        whole_count = self._chance.randint(0, at_risk_count)
        for change in changes:
            if change.state is State.DURABLE or survival is Survival.EVERYTHING:
                yield change
            elif survival is Survival.SUBSET:
                yield from self._torn(change)
            elif survival is Survival.PREFIX:
                if whole_count > 0:
                    yield change
                elif whole_count == 0:
                    yield from self._cut(change)
                whole_count -= 1

    def _survival_of_one(self) -> Survival:
        return self._survival or self._chance.choice(list(Survival))

    def _cut(self, change: Change) -> Iterator[Change]:
        if change.data is not None and len(change.data) > WHOLE_BYTES_MAX:
            yield replace(change, data=change.data[: self._chance.randint(0, len(change.data))])

    def _torn(self, change: Change) -> Iterator[Change]:
        """Keep all, none or some pieces of a change, each as likely."""
        kept = self._chance.choice(["all", "none", "pieces"])
        if kept == "all":
            yield change
        elif kept == "pieces" and change.data is not None and len(change.data) > WHOLE_BYTES_MAX:
            size = len(change.data)
            tears = sorted(self._chance.randint(0, size) for _ in range(TEARS_MAX))
            for start, end in zip([0, *tears], [*tears, size], strict=True):
                if start < end and self._chance.random() < 0.5:
                    piece = change.data[start:end]
                    yield replace(change, position=change.position + start, data=piece)
