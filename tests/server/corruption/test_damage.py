"""A hundred damaged data directories in the gate, thousands in the slow tests."""

from __future__ import annotations

import random
import shutil
from collections import Counter

import pytest

from tests.server.corruption.damage import Excused, Scene, inflict, kind_of
from tests.server.corruption.examine import run_fsck, serve_here
from tests.server.corruption.expectations import SOUND, judge_kept, judge_served, present_records
from tests.server.corruption.fuzz import run_case, run_cases, scratch, seeds_from
from tests.server.corruption.sample_data import make_specimens

CASES = 100
SLOW_CASES = 4_000
PROCESS_CASES = 5
PIECES = 5


@pytest.fixture(scope="module")
def folder():
    """Keep the specimens of this file in memory where there is such a disk."""
    with scratch() as made:
        yield made


@pytest.fixture(scope="module")
def specimens(folder):
    """Have real servers make a few data directories, once for all tests."""
    return make_specimens(folder)


def words(cases):
    return "\n" + "\n".join(map(str, cases))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("piece", range(PIECES))
def test_directory_when_damaged_then_nothing_is_lost_or_changed_in_silence(specimens, piece):
    count = CASES // PIECES

    broken = run_cases(specimens, seeds_from(piece * count, count), lambda case: None)

    assert not broken, words(broken)


@pytest.mark.timeout(240)
def test_directory_when_damaged_under_a_real_process_then_the_same_holds(specimens):
    seeds = seeds_from(1_000_000, PROCESS_CASES)

    cases = [run_case(specimens, seed, in_process=True) for seed in seeds]

    broken = [case for case in cases if case.broken]
    assert not broken, words(broken)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_directories_when_damaged_by_thousands_then_nothing_is_lost_or_changed_in_silence(
    specimens,
):
    broken = run_cases(specimens, seeds_from(10_000, SLOW_CASES), lambda case: None)

    assert not broken, words(broken)


# ---- the program itself


@pytest.mark.timeout(120)
def test_specimens_when_undamaged_then_fsck_and_server_find_everything(specimens, folder):
    for specimen in specimens:
        directory = folder / "undamaged"
        shutil.copytree(specimen.directory, directory)
        before = present_records(directory, specimen)

        verdict = run_fsck(directory, specimen.kind.settings, mends=False)
        seen = serve_here(directory, specimen.kind.settings, specimen.truth)

        # A killed server may have left indexes that lag behind.
        assert verdict.status == SOUND or specimen.kind.is_killed, verdict.said
        assert not any(map(verdict.concerns, specimen.truth.partitions)), verdict.said
        assert not verdict.concerns_metadata, verdict.said
        assert not list(judge_served(seen, specimen.truth, verdict, Excused()))
        assert len(before) == sum(map(len, specimen.records.values()))
        assert not list(judge_kept(before, present_records(directory, specimen), "the server"))
        shutil.rmtree(directory)


def scene_of(specimen, folder, seed=1):
    copy = folder / "scene"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(specimen.directory, copy)
    return Scene(specimen, copy, random.Random(seed))


@pytest.mark.timeout(120)
def test_damages_when_many_are_inflicted_then_reach_all_kinds_of_files(specimens, folder):
    kinds: Counter[str] = Counter()
    for seed in range(150):
        specimen = specimens[seed % len(specimens)]
        scene = scene_of(specimen, folder, seed)
        before = {
            path: path.read_bytes() for path in specimen.directory.rglob("*") if path.is_file()
        }

        inflict(scene)

        for path, content in before.items():
            name = path.relative_to(specimen.directory).as_posix()
            copy = scene.directory / name
            if not copy.is_file() or copy.read_bytes() != content:
                kinds[kind_of(name)] += 1

    wanted = {"metadata log", "metadata snapshot", "log", "index", "generation", "consumer offset"}
    assert wanted <= set(kinds)
