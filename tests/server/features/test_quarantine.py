"""Damage that a start must not answer with a deletion: the partition is set aside, loudly.

A real server is filled and killed, one file is damaged, and the server is started again.
"""

from __future__ import annotations

import shutil

import pytest

from iggy_protocol import PollingStrategy, PurgeTopic, StatusCode
from iggy_ref_server.fsck import check, repair
from tests.server.features.topic_calls import make_topic
from tests.server.running import RunningServer
from tests.server.wire_client import Refused

pytestmark = pytest.mark.timeout(120)

COUNT = 500
DAMAGED_OFFSET = 10
MESSAGE_BYTES = 64 + len("message 0010")


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def filled_and_killed(server):
    """Send many messages one by one to one topic, a few to another, and kill the server."""
    client = server.login()
    topic, other = make_topic(client), make_topic(client)
    for number in range(COUNT):
        topic.send(f"message {number:04}")
    other.send("untouched")
    server.kill()
    return topic, other


def assert_set_aside(server, topic, other):
    """The partition refuses with a status of its own, the other is served, the log says so."""
    client = server.login()
    for request in (topic.seen_by(client).poll, lambda: topic.seen_by(client).send("new")):
        with pytest.raises(Refused) as refusal:
            request()
        assert refusal.value.status == StatusCode.CANNOT_READ_PARTITIONS
    assert other.seen_by(client).read() == ["untouched"]
    assert "ERROR" in server.output()
    assert "is quarantined" in server.output()


def files_of(server, topic):
    directory = server.partition_directory(topic.stream_id, topic.topic_id, 0)
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@pytest.mark.parametrize("is_missing", [True, False], ids=["missing", "flipped"])
def test_record_of_the_generation_when_damaged_then_nothing_is_deleted(tmp_path, is_missing):
    with RunningServer(tmp_path) as server:
        topic, other = filled_and_killed(server)
        record = server.partition_directory(topic.stream_id, topic.topic_id, 0) / "incarnation"
        if is_missing:
            record.unlink()
        else:
            flip(record, 17)
        before = files_of(server, topic)

        server.start()
        assert_set_aside(server, topic, other)
        server.stop()

        assert files_of(server, topic) == before
        said: list[str] = []
        assert check(server.data, said.append) == 1, said
        assert repair(server.data, said.append) == 0, said
        server.start()
        assert len(topic.seen_by(server.login()).read()) == COUNT


@pytest.mark.parametrize("ack", ["written", "fsync"])
def test_bit_when_flipped_behind_the_index_then_no_message_is_cut(tmp_path, ack):
    settings = {"IGGY_SYSTEM_PARTITION_ACK": ack}
    with RunningServer(tmp_path, settings=settings) as server:
        topic, other = filled_and_killed(server)
        log = server.partition_directory(topic.stream_id, topic.topic_id, 0) / f"{0:020}.log"
        flip(log, DAMAGED_OFFSET * MESSAGE_BYTES + 70)
        log.with_suffix(".index").write_bytes(b"")
        before = files_of(server, topic)

        server.start()
        assert_set_aside(server, topic, other)
        server.stop()

        assert files_of(server, topic) == before
        said: list[str] = []
        assert check(server.data, said.append) == 1, said
        assert any(f"the messages {DAMAGED_OFFSET} are lost" in line for line in said), said
        assert repair(server.data, said.append) == 0, said
        server.start()
        topic = topic.seen_by(server.login())
        assert len(topic.read()) == COUNT - 1
        topic.send("new")
        assert topic.offsets()[-1] == COUNT


@pytest.mark.parametrize("kept_bytes", [0, 100 * MESSAGE_BYTES])
def test_log_when_emptied_behind_its_index_then_offsets_never_go_back(tmp_path, kept_bytes):
    settings = {"IGGY_SYSTEM_PARTITION_ACK": "fsync"}
    with RunningServer(tmp_path, settings=settings) as server:
        topic, other = filled_and_killed(server)
        log = server.partition_directory(topic.stream_id, topic.topic_id, 0) / f"{0:020}.log"
        log.write_bytes(log.read_bytes()[:kept_bytes])

        server.start()
        assert_set_aside(server, topic, other)
        server.stop()

        said: list[str] = []
        assert check(server.data, said.append) == 1, said
        assert repair(server.data, said.append) == 0, said
        server.start()
        topic = topic.seen_by(server.login())
        topic.send("new")
        assert topic.offsets() == [*range(kept_bytes // MESSAGE_BYTES), COUNT]


def test_length_when_flipped_in_the_middle_then_polls_are_served_around_it(tmp_path):
    with RunningServer(tmp_path) as server:
        topic = make_topic(server.login())
        for number in range(COUNT):
            topic.send(f"message {number:04}")
        server.stop()
        log = server.partition_directory(topic.stream_id, topic.topic_id, 0) / f"{0:020}.log"
        flip(log, DAMAGED_OFFSET * MESSAGE_BYTES + 53)

        server.start()
        topic = topic.seen_by(server.login())

        assert topic.offsets() == list(range(DAMAGED_OFFSET))
        with pytest.raises(Refused) as refusal:
            topic.poll(PollingStrategy.offset(DAMAGED_OFFSET))
        assert refusal.value.status == StatusCode.CANNOT_READ_MESSAGE
        behind = PollingStrategy.offset(DAMAGED_OFFSET + 1)
        assert topic.offsets(behind) == list(range(DAMAGED_OFFSET + 1, COUNT))
        assert f"poll from offset {DAMAGED_OFFSET + 1} to continue" in server.output()


def test_partition_when_its_directory_is_missing_then_a_purge_begins_it_anew(tmp_path):
    with RunningServer(tmp_path) as server:
        topic, other = filled_and_killed(server)
        # What was opened once is noted by then.
        server.start()
        server.stop()
        shutil.rmtree(server.partition_directory(topic.stream_id, topic.topic_id, 0))

        server.start()
        assert_set_aside(server, topic, other)
        client = server.login()
        client.ask(PurgeTopic(topic.stream, topic.topic))

        again = topic.seen_by(client)
        again.send("new")
        assert again.read() == ["new"]
        assert other.seen_by(client).read() == ["untouched"]
        server.kill()
        server.start()
        assert topic.seen_by(server.login()).read() == ["new"]
