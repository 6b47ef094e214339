"""The fault plan of simulated storage: which operations fail, by a seed or by the count.

    plan = FaultPlan(seed=7)
    plan.fail("sync", path="*.log", at=3)                       # the third sync of any log
    plan.fail("write", probability=0.01)                        # EIO after some of the bytes
    plan.delay("*", seconds=(0.001, 0.2), probability=0.1)      # on trio's clock
    plan.shorten(path="*.log", probability=0.2)                 # the kernel takes a part first
    plan.refuse(path="*.log", times=5)                          # write_nowait says no
    plan.chill(path="*.index")                                  # read_nowait and is_cached say no
    plan.capacity_bytes = 1 << 20                               # then the disk is full
    plan.heal()

Every rule counts the operations that match it from the moment it was added.
"""

from __future__ import annotations

import errno as errors
import random
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, TypedDict, Unpack, get_args

# So many bytes are written all or not at all, by every kernel and every disk.
ATOMIC_BYTES_MAX = 8

Verb = Literal[
    "*",
    "open",
    "read",
    "write",
    "sync",
    "truncate",
    "preallocate",
    "read_file",
    "replace",
    "rename",
    "remove",
    "remove_tree",
    "make_directories",
    "entries",
    "sync_directory",
    "free_bytes",
]
Effect = Literal["fail", "delay", "shorten", "refuse", "chill"]


class When(TypedDict, total=False):
    """Which operations a rule applies to.

    Attributes:
        path: a pattern of ``fnmatch``, whose ``*`` crosses ``/`` as well; all by default.
        at: which of the matching operations, counted from 1; each of them by default.
        probability: how often, of those; always by default.
        times: at most so often.
    """

    path: str
    at: int | Collection[int]
    probability: float
    times: int | None


@dataclass(slots=True, kw_only=True)
class FaultRule:
    """One thing that goes wrong.

    Attributes:
        effect: what happens.
        verb: which operation fails; ``*`` for all.
        path, at, probability, times: which of them, as in ``When``.
        errno: what a failed operation reports.
        seconds: the shortest and the longest delay.
        matched_count: how many operations matched.
        applied_count: how many of them failed.
    """

    effect: Effect
    verb: Verb
    path: str = "*"
    at: int | Collection[int] = ()
    probability: float = 1.0
    times: int | None = None
    errno: int = errors.EIO
    seconds: tuple[float, float] = (0.0, 0.0)
    matched_count: int = 0
    applied_count: int = 0

    def __post_init__(self) -> None:
        if self.verb not in get_args(Verb):
            raise ValueError(f"no such verb: {self.verb}")

    def applies(self, effect: Effect, verb: Verb, path: str, rng: random.Random) -> bool:
        """Count an operation, and tell whether the rule applies to it."""
        if effect != self.effect or self.verb not in {"*", verb}:
            return False
        if not fnmatchcase(path, self.path):
            return False
        self.matched_count += 1
        if not self._is_due():
            return False
        if self.times is not None and self.applied_count >= self.times:
            return False
        if self.probability < 1 and rng.random() >= self.probability:
            return False
        self.applied_count += 1
        return True

    def _is_due(self) -> bool:
        due = (self.at,) if isinstance(self.at, int) else self.at
        return not due or self.matched_count in due


class FaultPlan:
    """The rules of one storage.

    Args:
        seed: decides everything random, the outcome of a crash included.
        capacity_bytes: what fits on the disk; None for no limit.
    """

    def __init__(self, seed: int = 0, *, capacity_bytes: int | None = None) -> None:
        self.rng = random.Random(seed)
        self.capacity_bytes = capacity_bytes
        self.rules: list[FaultRule] = []

    def fail(self, verb: Verb, *, errno: int = errors.EIO, **when: Unpack[When]) -> FaultRule:
        """Make operations fail; a failed write leaves any part of its bytes."""
        return self._add(FaultRule(effect="fail", verb=verb, errno=errno, **when))

    def delay(
        self, verb: Verb, *, seconds: float | tuple[float, float], **when: Unpack[When]
    ) -> FaultRule:
        """Make operations that may wait take a time, or any time between two."""
        span = seconds if isinstance(seconds, tuple) else (seconds, seconds)
        return self._add(FaultRule(effect="delay", verb=verb, seconds=span, **when))

    def shorten(self, **when: Unpack[When]) -> FaultRule:
        """Make writes happen in parts, with a chance to fail, wait or be killed in between."""
        return self._add(FaultRule(effect="shorten", verb="write", **when))

    def refuse(self, **when: Unpack[When]) -> FaultRule:
        """Make ``write_nowait`` say that it would have to wait."""
        return self._add(FaultRule(effect="refuse", verb="write", **when))

    def uncache(self, **when: Unpack[When]) -> FaultRule:
        """Make ``read_nowait`` and ``is_cached`` say that a disk would have to be asked."""
        return self._add(FaultRule(effect="chill", verb="read", **when))

    def heal(self) -> None:
        """Remove all rules, and the limit of the disk."""
        self.rules.clear()
        self.capacity_bytes = None

    def error(self, verb: Verb, path: str) -> int | None:
        """Return the error number that an operation ends with, if it fails."""
        applied = self._applied("fail", verb, path)
        return applied[0].errno if applied else None

    def delay_s(self, verb: Verb, path: str) -> float:
        """Return how long an operation takes, all rules together."""
        applied = self._applied("delay", verb, path)
        return sum([self.rng.uniform(*rule.seconds) for rule in applied])

    def first_part(self, path: str, size: int) -> int:
        """Return how many bytes of a write are taken at first: all, unless it is shortened."""
        is_short = size > ATOMIC_BYTES_MAX and self._applied("shorten", "write", path)
        return self.rng.randrange(1, size) if is_short else size

    def is_refused(self, path: str) -> bool:
        """Tell whether this ``write_nowait`` has to say no."""
        return bool(self._applied("refuse", "write", path))

    def is_uncached(self, path: str) -> bool:
        """Tell whether this ``read_nowait`` or ``is_cached`` has to say no."""
        return bool(self._applied("chill", "read", path))

    def any_part(self, size: int) -> int:
        """Return a number of bytes from none to all, both ends likely."""
        any_size = self.rng.randint(0, size)
        return self.rng.choice([0, size, any_size if size > ATOMIC_BYTES_MAX else size])

    def _applied(self, effect: Effect, verb: Verb, path: str) -> list[FaultRule]:
        # Every rule counts, also those that come after one that strikes.
        return [rule for rule in self.rules if rule.applies(effect, verb, path, self.rng)]

    def _add(self, rule: FaultRule) -> FaultRule:
        self.rules.append(rule)
        return rule
