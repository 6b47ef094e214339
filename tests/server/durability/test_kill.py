"""``kill -9`` at any moment under load: what was acknowledged stays, once and in place."""

from __future__ import annotations

import os
import random
from contextlib import closing

import pytest

from tests.fix_seeds import RUN_SEED
from tests.server.durability.history import play
from tests.server.running import RunningServer

# A few lives for the gate, many for `make slow`, where another seed each time finds other moments.
ROUNDS = 3
MANY_ROUNDS = int(os.environ.get("IGGY_TEST_KILLS", "40"))

LEVELS = pytest.mark.parametrize("ack", ["written", "fsync"])


def kill_often(directory, shards, ack, rounds, engine="auto"):
    """Play with segments that are rolled all the time, and indexes that lag behind."""
    settings = {
        "IGGY_SYSTEM_PARTITION_ACK": ack,
        "IGGY_SYSTEM_STORAGE_ENGINE": engine,
        "IGGY_SYSTEM_SEGMENT_SIZE": "64 KiB",
        "IGGY_SYSTEM_PARTITION_MESSAGES_REQUIRED_TO_SAVE": "64",
    }
    with closing(RunningServer(directory, shards=shards, settings=settings)) as server:
        try:
            return play(server, random.Random(RUN_SEED), rounds=rounds)
        except AssertionError as error:
            error.add_note(f"IGGY_SIM_SEED={RUN_SEED} sends the same again")
            raise


@LEVELS
@pytest.mark.parametrize(("shards", "engine"), [(1, "threads"), (2, "auto")])
@pytest.mark.timeout(120)
def test_what_was_acknowledged_survives_kills_under_load(tmp_path, ack, shards, engine):
    history = kill_often(tmp_path, shards, ack, ROUNDS, engine)

    assert all(row.acknowledged for row in history.rows)


@pytest.mark.slow
@LEVELS
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.timeout(1200)
def test_history_when_killed_very_often_then_holds(tmp_path, ack, shards):
    kill_often(tmp_path, shards, ack, MANY_ROUNDS)


@pytest.mark.timeout(120)
def test_history_when_acknowledged_from_memory_then_a_kill_breaks_it(tmp_path):
    """The judge is judged: what may be lost on purpose must be noticed."""
    with pytest.raises(AssertionError, match=r"is lost|is gone"):
        kill_often(tmp_path, 1, "memory", 5)
