"""What a start imports, reads and says: none of it grows with what is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from iggy_protocol import Partitioning, SendMessages
from tests.server.features.topic_calls import make_topic
from tests.server.running import RunningServer

pytestmark = pytest.mark.timeout(120)

# A start takes as long as its imports: with TCP alone, 610 modules were measured.
MODULES_MAX = 660
# What other listeners need is imported when one of them is on, or when its first client comes.
MODULES_OF_OTHER_LISTENERS = frozenset({"aioquic", "h11", "h2", "jwt", "starlette", "websockets"})
IMPORT_LINE = "import time:"

MESSAGES_FEW, MESSAGES_MANY = 2_000, 400_000
BATCH = 2_000
PAYLOAD = bytes(36)
# A start reads the part of the log behind the index, which is a mebibyte at most, twice.
READ_BYTES_MORE_MAX = 4 << 20
MEMORY_BYTES_MORE_MAX = 6 << 20


def shard_pid(server):
    """Find the only shard."""
    listed = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
    return int(listed)


def statistics(server):
    """Return what the shard has read, and what it holds in memory."""
    shard = Path(f"/proc/{shard_pid(server)}")
    counters = dict(line.split(": ") for line in (shard / "io").read_text().splitlines())
    status = (shard / "status").read_text()
    resident_kib = int(status.partition("RssAnon:")[2].split()[0])
    return int(counters["rchar"]), resident_kib * 1024


def test_empty_server_when_started_then_imports_what_it_serves_and_no_more(tmp_path):
    with RunningServer(tmp_path, settings={"PYTHONPROFILEIMPORTTIME": "1"}) as server:
        lines = server.output().splitlines()
    modules = {line.rpartition("|")[2].strip() for line in lines if line.startswith(IMPORT_LINE)}

    assert "iggy_ref_server.shard.assembly" in modules
    assert not MODULES_OF_OTHER_LISTENERS & modules
    assert len(modules) < MODULES_MAX


def filled_and_killed(directory, messages_count):
    """Fill a partition, kill the server, start it again; return the bytes it read and holds."""
    # Worker threads read with calls that the kernel counts, unlike a ring.
    settings = {"IGGY_SYSTEM_STORAGE_ENGINE": "threads"}
    with RunningServer(directory, settings=settings) as server:
        client = server.login()
        topic = make_topic(client)
        batch = SendMessages(
            topic.stream, topic.topic, Partitioning.partition(0), [PAYLOAD] * BATCH
        )
        for _ in range(messages_count // BATCH):
            client.ask(batch)
        server.kill()
        server.start()
        read_bytes, memory_bytes = statistics(server)
        topic = topic.seen_by(server.login())
        assert topic.details().messages_count == messages_count
        return read_bytes, memory_bytes


def test_start_when_many_messages_are_stored_then_costs_no_more_than_with_few(tmp_path):
    few_bytes, few_memory = filled_and_killed(tmp_path / "few", MESSAGES_FEW)
    many_bytes, many_memory = filled_and_killed(tmp_path / "many", MESSAGES_MANY)

    stored_bytes = MESSAGES_MANY * (64 + len(PAYLOAD))
    assert stored_bytes > 8 * READ_BYTES_MORE_MAX
    assert many_bytes - few_bytes < READ_BYTES_MORE_MAX
    assert many_memory - few_memory < MEMORY_BYTES_MORE_MAX


def test_listeners_when_enabled_then_each_says_where_it_is(start_server):
    settings = {f"IGGY_{listener}_ENABLED": "true" for listener in ("HTTP", "QUIC", "WEBSOCKET")}
    server = start_server(settings={**settings, "IGGY_QUIC_ADDRESS": "127.0.0.1:3457"})

    config, output = server.current_config(), server.output()
    for listener in ("http", "websocket"):
        port = int(config[listener]["address"].rpartition(":")[2])
        assert port > 0
        assert f"  {listener:<9} 127.0.0.1:{port}\n" in output
    assert config["quic"]["address"] == "127.0.0.1:3457"
    assert "  quic      127.0.0.1:3457 with TLS\n" in output


@pytest.mark.parametrize("engine", ["threads", "io_uring"])
def test_engine_when_chosen_then_is_named_at_the_start(start_server, engine):
    server = start_server(settings={"IGGY_SYSTEM_STORAGE_ENGINE": engine})

    name = {"threads": "worker threads", "io_uring": "io_uring"}[engine]
    assert f"storage   {name};" in server.output()


def test_engine_when_the_ring_cannot_be_had_then_threads_serve_and_say_why(start_server):
    server = start_server(settings={"IGGY_NO_EXTENSIONS": "1"})

    assert "storage   worker threads (no io_uring: " in server.output()
    topic = make_topic(server.login())
    topic.send("served")
    assert topic.read() == ["served"]
