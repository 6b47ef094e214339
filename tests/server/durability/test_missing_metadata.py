"""Metadata that are missing or empty beside data: no start, no new life on top of the old one."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import trio

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    GetStreams,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
)
from iggy_ref_server.clock import SystemClock
from iggy_ref_server.fsck import check, repair
from iggy_ref_server.metadata.store import MetadataStore
from iggy_ref_server.storage.threads import ThreadStorage
from tests.server.running import RunningServer, ServerFailed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(120)


def fill(server: RunningServer) -> None:
    """Leave a topic with a message."""
    client = server.login()
    client.ask(CreateStream("s"))
    client.ask(CreateTopic("s", "t", 2))
    client.ask(SendMessages("s", "t", Partitioning.partition(0), [b"of the first life"]))


def content(server: RunningServer) -> dict[str, bytes]:
    """Read all files of streams and metadata."""
    found = [*(server.data / "streams").rglob("*"), *(server.data / "state").rglob("*")]
    return {str(path): path.read_bytes() for path in found if path.is_file()}


def lose_state(server: RunningServer) -> None:
    shutil.rmtree(server.data / "state")


def lose_log(server: RunningServer) -> None:
    (server.data / "state" / "metadata.log").unlink()


def empty_log(server: RunningServer) -> None:
    (server.data / "state" / "metadata.log").write_bytes(b"")


def leave_only_the_head(server: RunningServer) -> None:
    log = server.data / "state" / "metadata.log"
    log.write_bytes(log.read_bytes()[:16])


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("lose", [lose_state, lose_log, empty_log, leave_only_the_head])
def test_start_when_data_have_lost_their_metadata_then_is_refused_until_repaired(
    start_server, lose, shards
):
    server = start_server(shards=shards)
    fill(server)
    server.stop()
    lose(server)
    before = content(server)

    for _ in range(2):
        with pytest.raises(ServerFailed, match=r"(?s)ended with 1 .*iggy-server repair") as refusal:
            server.start()
        assert "Traceback" not in str(refusal.value)
    assert content(server) == before, "a refused start changes nothing"

    said: list[str] = []
    assert check(server.data, said.append) == 2, said
    assert content(server) == before, "a check changes nothing"
    assert repair(server.data, said.append) == 0, said
    server.start()
    client = server.login()
    assert client.ask(GetStreams()) == ()
    client.ask(CreateStream("s"))
    client.ask(CreateTopic("s", "t", 2))
    read = PollMessages(ConsumerIdentity.single(1), "s", "t", PollingStrategy.first(), 10, 0)
    assert len(client.ask(read).messages) == 0
    kept = [path.read_bytes() for path in (server.data / "quarantine").rglob("*.log")]
    assert any(b"of the first life" in data for data in kept)


def test_topic_when_data_come_back_beside_new_metadata_then_does_not_take_them_over(start_server):
    server = start_server()
    fill(server)
    server.stop()
    aside = server.data.parent / "aside"
    shutil.move(server.data / "streams", aside)
    lose_state(server)
    server.start()
    server.stop()
    shutil.move(aside, server.data / "streams")

    server.start()
    client = server.login()
    client.ask(CreateStream("s"))
    client.ask(CreateTopic("s", "t", 2))

    read = PollMessages(ConsumerIdentity.single(1), "s", "t", PollingStrategy.first(), 10, 0)
    assert len(client.ask(read).messages) == 0


async def compact(directory: Path) -> None:
    """Have a snapshot take the place of the log."""
    storage = ThreadStorage(directory)
    await (await MetadataStore.open(storage, SystemClock())).compact()
    await storage.aclose()


def test_start_when_the_log_is_missing_beside_a_snapshot_then_is_refused_until_repaired(
    start_server,
):
    server = start_server()
    server.login().ask(CreateStream("in the snapshot"))
    server.stop()
    trio.run(compact, server.data)
    server.start()
    server.login().ask(CreateStream("in the log"))
    server.stop()
    lose_log(server)

    with pytest.raises(ServerFailed, match=r"(?s)ended with 1 .*the file is missing.*repair"):
        server.start()

    said: list[str] = []
    assert check(server.data, said.append) == 1, said
    assert repair(server.data, said.append) == 0, said
    server.start()
    assert [stream.name for stream in server.login().ask(GetStreams())] == ["in the snapshot"]
