"""What official clients said to the real server, said to this one: the answers mean the same."""

from __future__ import annotations

import pytest

from iggy_protocol import decode_reply, decode_request
from tests.server.free_ports import lasting_address
from tests.server.replay.client_player import ClientPlayer
from tests.server.replay.client_recording import CLIENTS, read_client_recording
from tests.server.replay.deviations import verdict
from tests.server.running import RunningServer


def replay(name, directory, shards):
    """Play a recording on a fresh server, and say what differs against the list."""
    with RunningServer(directory, shards=shards, settings=lasting_address()) as server:
        found = ClientPlayer(server.address, read_client_recording(name)).play()
    differing = {difference.line: str(difference) for difference in found}
    return verdict(differing, f"clients/{name}.jsonl")


@pytest.mark.parametrize("name", CLIENTS)
def test_client_when_its_recording_is_replayed_then_the_answers_mean_the_same(name, tmp_path):
    surprises = replay(name, tmp_path, 1)

    assert not surprises, surprises


@pytest.mark.slow
@pytest.mark.parametrize("name", CLIENTS)
def test_client_when_its_recording_is_replayed_on_two_shards_then_replies_are_the_same(
    name, tmp_path
):
    surprises = replay(name, tmp_path, 2)

    assert not surprises, surprises


def test_redirected_client_when_its_recording_is_read_then_two_nodes_are_described():
    steps = [step for step in read_client_recording("py08-redirect-follower") if not step.event]
    for step in steps:
        decode_request(step.code, step.request)

    assert steps[-1].reply is not None
    metadata = decode_reply(steps[-1].code, steps[-1].reply)

    assert len(metadata.nodes) == 2
