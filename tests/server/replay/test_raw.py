"""Every conversation recorded with the real server, held with this one: the replies are equal.

What differs on purpose stands in ``tests/golden/deviations.toml``, and nothing else may.
"""

from __future__ import annotations

import pytest

from tests.server.free_ports import lasting_address
from tests.server.replay.deviations import listed_lines, verdict
from tests.server.replay.plausibility import now_us
from tests.server.replay.player import Player
from tests.server.replay.recording import RAW, read_recording
from tests.server.running import RunningServer


def replay(name, directory, shards):
    """Play a recording on a fresh server, and say what differs against the list."""
    recording = read_recording(name)
    started_us = now_us()
    file = f"raw/{name}.jsonl"
    settings = {**lasting_address(), **recording.settings}
    with RunningServer(directory, shards=shards, settings=settings) as server:
        found = Player(server, listed_lines(file), started_us).play(recording)
    return verdict({difference.line: str(difference) for difference in found}, file)


@pytest.mark.parametrize("name", RAW)
def test_recording_when_replayed_then_only_listed_lines_differ(name, tmp_path):
    surprises = replay(name, tmp_path, read_recording(name).shards)

    assert not surprises, surprises


@pytest.mark.slow
@pytest.mark.parametrize("name", RAW)
def test_recording_when_replayed_on_two_shards_then_replies_are_the_same(name, tmp_path):
    surprises = replay(name, tmp_path, 2)

    assert not surprises, surprises
