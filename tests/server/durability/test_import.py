"""A data directory of a real server 0.8.0 opens in ours, with everything and everybody in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from iggy_protocol import (
    CommandCode,
    ConsumerIdentity,
    GetConsumerGroups,
    GetConsumerOffset,
    GetMe,
    GetTopic,
    LoginWithPersonalAccessToken,
    PollingStrategy,
    PollMessages,
    decode_reply,
)
from tests.server.features.topic_calls import TopicScene
from tests.server.running import RunningServer

pytestmark = pytest.mark.timeout(60)

DISK = Path(__file__).parents[2] / "golden" / "disk"
KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
HEAD_BYTES = 8
SEALED = {"IGGY_SYSTEM_ENCRYPTION_ENABLED": "true", "IGGY_SYSTEM_ENCRYPTION_KEY": KEY}


def recorded(sample, command):
    """Return the replies that the real server gave, without their heads."""
    lines = [json.loads(line) for line in (DISK / f"{sample}.jsonl").read_text().splitlines()]
    replies = [line["reply"] for line in lines if line.get("cmd") == command]
    return [bytes.fromhex(reply)[HEAD_BYTES:] for reply in replies]


def content(directory):
    """Return all files below a directory."""
    return {
        path.relative_to(directory): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(params=[("plain", 1, {}), ("plain", 2, {}), ("encrypted", 1, SEALED)])
def imported(request, tmp_path):
    """Start our server on a copy of what the real one left."""
    sample, shards, settings = request.param
    shutil.copytree(DISK / sample, tmp_path / "data")
    with RunningServer(tmp_path, shards=shards, settings=settings) as server:
        yield sample, server


def test_sample_when_opened_then_everything_of_the_real_server_is_there(imported):
    sample, server = imported
    state = content(DISK / sample / "state")
    for _ in range(2):  # the first start imports, the second one finds what that left
        client = server.login()
        server.login("alice", "secret2")
        token = decode_reply(
            CommandCode.CREATE_PERSONAL_ACCESS_TOKEN,
            recorded(sample, "create_personal_access_token")[0],
        ).token
        bearer = server.connect()
        bearer.ask(LoginWithPersonalAccessToken(token))
        assert bearer.ask(GetMe()).user_id == 0
        check_topic(client, sample)
        for name, file in state.items():
            assert (server.data / "state" / name).read_bytes() == file, "the original is kept"
        server.restart()


def check_topic(client, sample):
    """Compare with what the real server said last."""
    told = decode_reply(CommandCode.GET_TOPIC, recorded(sample, "get_topic")[0])
    topic = client.ask(GetTopic("stream", "t"))
    assert (topic.messages_count, topic.size_bytes) == (told.messages_count, told.size_bytes)
    assert len(topic.partitions) == len(told.partitions)
    for partition_id, reply in enumerate(recorded(sample, "poll_messages")):
        theirs = decode_reply(CommandCode.POLL_MESSAGES, reply)
        first = PollingStrategy.first()
        poll = PollMessages(ConsumerIdentity.single(9), "stream", "t", first, 100, partition_id)
        ours = client.ask(poll)
        assert ours.messages.payloads() == theirs.messages.payloads()
        for our_message, message in zip(ours.messages, theirs.messages, strict=True):
            assert our_message.offset == message.offset
            assert our_message.id == message.id
            assert our_message.timestamp_us == message.timestamp_us
    assert [(group.id, group.name) for group in client.ask(GetConsumerGroups("stream", "t"))] == [
        (1, "g")
    ]
    for consumer, offset in (
        (ConsumerIdentity.single(1), 3),
        (ConsumerIdentity.single("consumer-1"), 2),
        (ConsumerIdentity.group("g"), 4),
    ):
        stored = client.ask(GetConsumerOffset(consumer, "stream", "t", 0))
        assert stored.stored_offset == offset


def test_sample_when_segments_were_rolled_then_ours_goes_on_in_the_last_one(tmp_path):
    shutil.copytree(DISK / "segments", tmp_path / "data")
    with RunningServer(tmp_path) as server:
        client = server.login()
        topic = TopicScene(client, "s", "t", 0, 0)
        before = topic.offsets()
        assert before == list(range(17))

        topic.send("ours")
        server.kill()
        server.start()

        topic = topic.seen_by(server.login())
        assert topic.offsets() == [*before, 17]
        assert topic.read()[-1] == "ours"
