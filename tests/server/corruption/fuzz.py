"""Damage data directories at random, and see that nothing is lost or changed in silence.

    python -m tests.server.corruption.fuzz --cases 2000
    IGGY_DAMAGE_SEED=4711 python -m tests.server.corruption.fuzz      that one case again

Every case copies a specimen, lets something happen to a file, asks fsck, starts a server,
reads everything back, repairs, and starts again. What breaks a promise is told with its seed and
the damage in words.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.server.corruption.damage import Excused, Scene, inflict
from tests.server.corruption.examine import (
    Seen,
    Verdict,
    run_fsck,
    serve_here,
    serve_in_process,
    with_new_messages,
)
from tests.server.corruption.expectations import (
    SOUND,
    judge_fsck,
    judge_kept,
    judge_served,
    present_records,
)
from tests.server.corruption.sample_data import Specimen, Truth, make_specimens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SEED_VARIABLE = "IGGY_DAMAGE_SEED"
MEMORY_DISK = Path("/dev/shm")
TO_MEND = 1


@dataclass
class Case:
    """One damage and what came of it."""

    seed: int
    specimen: str
    damage: str
    broken: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        head = f"seed {self.seed} ({self.specimen}): {self.damage}"
        return "\n".join([head, *(f"    {sentence}" for sentence in self.broken)])


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a folder that is gone afterwards, in memory where there is such a disk."""
    home = MEMORY_DISK if os.access(MEMORY_DISK, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="iggy-damage-", dir=home) as folder:
        yield Path(folder)


class Trial:
    """One case.

    Args:
        specimens: what there is to damage.
        seed: decides everything.
        folder: where the copy is made.
        in_process: whether the server is a process of its own.
    """

    def __init__(
        self, specimens: list[Specimen], seed: int, folder: Path, *, in_process: bool = False
    ) -> None:
        self._chance = random.Random(seed)
        self._specimen = self._chance.choice(specimens)
        self._directory = folder / "data"
        self._in_process = in_process
        self._settings = dict(self._specimen.kind.settings)
        self._is_strict = self._chance.random() < 0.3
        if self._is_strict:
            self._settings["SYSTEM_PARTITION_VALIDATE_CHECKSUM"] = "true"
        self._shards = 1 if self._chance.random() < 0.8 else 2
        self._truth: Truth = self._specimen.truth
        self.case = Case(seed, self._specimen.kind.name, "")

    def run(self) -> Case:
        """Damage, check, serve, repair, serve."""
        shutil.copytree(self._specimen.directory, self._directory)
        damage = inflict(Scene(self._specimen, self._directory, self._chance))
        self.case.damage = damage.words + (", checksums validated" if self._is_strict else "")
        serves_first = self._chance.random() < 0.7
        verdict = self._run_fsck("check")
        if serves_first:
            self._serve(verdict, damage.excused)
            verdict = self._check_after_serving(verdict)
        self._repair(verdict, damage.excused)
        return self.case

    def _note(self, sentences: Iterable[str], when: str) -> None:
        self.case.broken += [f"[{when}] {sentence}" for sentence in sentences]

    def _run_fsck(self, what: str) -> Verdict:
        verdict = run_fsck(self._directory, self._settings, mends=what == "repair")
        self.case.said += [f"{what}: {line}" for line in verdict.said if line[0] != "["]
        self._note(judge_fsck(verdict, what), what)
        return verdict

    def _serve(self, verdict: Verdict, excused: Excused, *, is_repaired: bool = False) -> Seen:
        when = "served repaired" if is_repaired else "served damaged"
        before = present_records(self._directory, self._specimen)
        if self._in_process:
            seen = serve_in_process(self._directory, self._settings, self._truth)
        else:
            seen = serve_here(self._directory, self._settings, self._truth, shards=self._shards)
        judged = judge_served(seen, self._truth, verdict, excused, is_repaired=is_repaired)
        self._note(judged, when)
        after = present_records(self._directory, self._specimen)
        self._note(judge_kept(before, after, "the server"), when)
        self._truth = with_new_messages(self._truth, seen)
        return seen

    def _check_after_serving(self, before: Verdict) -> Verdict:
        """Ask again; what the server has mended is no finding any more, but lost stays lost."""
        after = self._run_fsck("check")
        after.add(before)
        return after

    def _repair(self, verdict: Verdict, excused: Excused) -> None:
        before = present_records(self._directory, self._specimen)
        repaired = self._run_fsck("repair")
        after = present_records(self._directory, self._specimen)
        self._note(judge_kept(before, after, "repair"), "repair")
        if repaired.status == TO_MEND:
            self._note(["mends: repair leaves something to mend"], "repair")
        if repaired.status != SOUND:
            if verdict.status == SOUND:
                self._note(
                    [f"mends: check says all is well, repair {repaired.said[-1:]}"], "repair"
                )
            return
        again = self._run_fsck("check")
        if again.status != SOUND:
            self._note([f"mends: check after repair says {again.said[-6:]}"], "check after repair")
        again.add(verdict)
        seen = self._serve(again, excused, is_repaired=True)
        for path, found in seen.partitions.items():
            if found.refused is not None:
                name = self._truth.partitions[path].name
                self._note([f"mends: {name} is refused with {found.refused}"], "served repaired")
        if not seen.is_started:
            self._note([f"mends: the server refuses: {seen.refusal[:300]}"], "served repaired")


def run_case(specimens: list[Specimen], seed: int, *, in_process: bool = False) -> Case:
    """Run the case of a seed."""
    with scratch() as folder:
        trial = Trial(specimens, seed, folder, in_process=in_process)
        try:
            return trial.run()
        except Exception as error:
            error.add_note(f"seed {seed}: {trial.case.damage}")
            raise


def run_cases(
    specimens: list[Specimen], seeds: Iterable[int], told: Callable[[Case], object]
) -> list[Case]:
    """Run many cases, and return those that broke a promise."""
    broken = []
    for seed in seeds:
        case = run_case(specimens, seed)
        if case.broken:
            broken.append(case)
            told(case)
    return broken


def seeds_from(first: int, count: int) -> Iterable[int]:
    """Choose the seeds, or the one that the environment names."""
    chosen = os.environ.get(SEED_VARIABLE)
    return [int(chosen)] if chosen else range(first, first + count)


def tell(say: Callable[[str], object], case: Case) -> None:
    """Say what a case broke; and all that fsck said, if it is looked at alone."""
    say(str(case))
    if SEED_VARIABLE in os.environ:
        say("\n".join(case.said))


def main(arguments: list[str]) -> int:
    """Run as many cases as asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args(arguments)
    say, began = partial(print, flush=True), time.monotonic()
    with scratch() as folder:
        specimens = make_specimens(folder)
        made = time.monotonic()
        seeds = seeds_from(asked.first, asked.cases)
        broken = run_cases(specimens, seeds, partial(tell, say))
    rules = Counter(
        sentence.partition("] ")[2].partition(":")[0] for case in broken for sentence in case.broken
    )
    say(
        f"{len(broken)} of {len(list(seeds))} cases broke a promise ({dict(rules)}); specimens took"
        f" {made - began:.1f} s, cases {time.monotonic() - made:.1f} s"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
