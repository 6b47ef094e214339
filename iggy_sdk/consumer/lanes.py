"""Jobs in order: of jobs with the same order key one runs at a time, in the order of arrival."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Lanes"]

J = TypeVar("J")


class Lanes(Generic[J]):
    """Jobs that wait or run, by order key."""

    def __init__(self) -> None:
        # A key is present as long as it has a job that waits or runs.
        self._waiting: dict[Hashable, deque[J]] = {}
        # Keys whose next job may run, in the order in which they became ready.
        self._ready: deque[Hashable] = deque()
        self._jobs_count = 0

    def __len__(self) -> int:
        """Count the jobs that wait or run."""
        return self._jobs_count

    def add(self, lane: Hashable, job: J) -> None:
        """Add a job behind the others of its key."""
        self._jobs_count += 1
        jobs = self._waiting.get(lane)
        if jobs is None:
            self._waiting[lane] = deque((job,))
            self._ready.append(lane)
        else:
            jobs.append(job)

    @property
    def count(self) -> int:
        """How many keys have jobs that wait or run."""
        return len(self._waiting)

    @property
    def has_ready(self) -> bool:
        """Whether ``take`` returns a job."""
        return bool(self._ready)

    def take(self) -> tuple[Hashable, J] | None:
        """Take the next job that may run; its key is blocked until ``finish``."""
        if not self._ready:
            return None
        lane = self._ready.popleft()
        return lane, self._waiting[lane].popleft()

    def finish(self, lane: Hashable) -> None:
        """Let the next job of a key run."""
        self._jobs_count -= 1
        if self._waiting[lane]:
            self._ready.append(lane)
        else:
            del self._waiting[lane]

    def drop_waiting(self) -> None:
        """Forget all jobs that do not run yet."""
        ready = set(self._ready)
        self._ready.clear()
        for lane, jobs in tuple(self._waiting.items()):
            self._jobs_count -= len(jobs)
            jobs.clear()
            if lane in ready:
                del self._waiting[lane]
