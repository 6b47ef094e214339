"""Some seconds of attacks over every transport in the gate, a million frames in the slow tests."""

from __future__ import annotations

import os
import random

import pytest

from tests.server.hostile.attack_run import SHARES, Plan, run_attack
from tests.server.hostile.attacker import (
    Attacker,
    Target,
    changed_in_step,
    chosen_frames,
    frames_in,
    in_step,
    recorded_frames,
)

SEED = int(os.environ.get("IGGY_HOSTILE_SEED", "13"))


def attacker(seed=SEED):
    target = Target("tcp", ("127.0.0.1", 1), (("nobody", "nobody-1"),), "protected")
    return Attacker(target, random.Random(seed))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("transports", [("tcp",), ("ws",), ("quic", "http"), ("tls",)], ids=str)
def test_server_when_attacked_for_seconds_then_other_clients_are_served(tmp_path, transports):
    plan = Plan(SEED, frames=60_000, seconds=3.0, transports=transports, say=lambda line: None)

    outcome = run_attack(plan, tmp_path)

    assert not outcome.findings, outcome.table()
    assert outcome.frames > 100, outcome.table()


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_server_when_attacked_with_a_million_frames_then_other_clients_are_served(tmp_path):
    plan = Plan(SEED, frames=1_000_000, seconds=3_600.0)

    outcome = run_attack(plan, tmp_path)

    assert not outcome.findings, outcome.table()
    assert outcome.frames >= 1_000_000, outcome.table()


def test_shares_when_added_then_are_everything():
    assert sum(SHARES.values()) == pytest.approx(1)


def test_recorded_frames_when_cut_then_are_whole():
    assert len(recorded_frames()) > 500
    assert all(list(frames_in(frame)) == [frame] for frame in recorded_frames())


def test_frames_when_changed_in_step_then_keep_a_right_length():
    chance = random.Random(SEED)
    changed = [changed_in_step(frame, chance) for frame in chosen_frames(chance, 300)]

    assert list(frames_in(b"".join(changed))) == changed


def test_attacks_when_made_from_one_seed_then_are_the_same():
    assert in_step(attacker()) == in_step(attacker())
