"""Options of topics on a real server of two shards: what they do, and after a kill."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from iggy_protocol import CreatePartitions, GetTopic, Partitioning, SendMessages, UpdateTopic
from iggy_ref_server.fsck import check
from tests.server.net.ws_peer import listening_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.running import RunningServer
    from tests.server.wire_client import WireClient

MIB = 1 << 20
LOGIN = {"username": "iggy", "password": "iggy", "version": "0.12.0", "context": ""}


@contextmanager
def open_http(server: RunningServer) -> Iterator[httpx.Client]:
    """Log in over HTTP as a client of 0.10."""
    host, port = listening_address(server, "http")
    with httpx.Client(base_url=f"http://{host}:{port}", timeout=30) as client:
        token = client.post("/users/login", json=LOGIN).raise_for_status().json()["access_token"]
        client.headers["authorization"] = f"Bearer {token['token']}"
        yield client


def fill(root: WireClient, partition_id: int) -> None:
    """Send two messages of a mebibyte each."""
    for _ in range(2):
        where = Partitioning.partition(partition_id)
        root.ask(SendMessages("s", "t", where, [b"x" * MIB]))


def segments_of(root: WireClient) -> list[int]:
    """Return how many segments each partition of the topic has."""
    topic = root.ask(GetTopic("s", "t"))
    assert topic is not None
    return [partition.segments_count for partition in topic.partitions]


def test_options_when_set_over_http_then_hold_on_all_shards_and_after_a_kill(start_server):
    server = start_server(shards=2)
    options = {"segment_size": "1 MiB", "durability": "persisted", "preallocate_segments": True}
    topic: dict[str, Any] = {"name": "t", "partitions_count": 4, "options": options}
    with open_http(server) as client:
        client.post("/streams", json={"name": "s"}).raise_for_status()
        created = client.post("/streams/s/topics", json=topic).raise_for_status().json()
    root = server.login()
    root.ask(CreatePartitions("s", "t", 1))
    for partition_id in range(5):
        fill(root, partition_id)
    assert segments_of(root) == [2] * 5

    server.kill()
    server.start()

    root = server.login()
    for partition_id in range(5):
        fill(root, partition_id)
    assert segments_of(root) == [3] * 5
    root.ask(UpdateTopic("s", "t", "t"))
    with open_http(server) as client:
        shown = client.get("/streams/s/topics/t").raise_for_status().json()
    assert {key: shown["options"][key] for key in options} == {
        key: created["options"][key] for key in options
    }
    server.stop()
    printed: list[str] = []
    assert check(server.data, printed.append) == 0, printed


def test_changes_when_the_server_is_killed_then_a_follower_starts_over(start_server):
    server = start_server()
    with open_http(server) as client:
        client.post("/streams", json={"name": "s"}).raise_for_status()
        before = client.get("/metadata/changes").json()
        assert [change["kind"] for change in before["changes"]] == ["stream_created"]

    server.kill()
    server.start()

    with open_http(server) as client:
        after = client.get(f"/metadata/changes?after={before['next_cursor']}").json()
        state = client.get("/metadata/changes?from=current&groups=streams").json()
    assert (after["status"], after["changes"]) == ("reset", [])
    assert [item["body"]["name"] for item in state["items"]] == ["s"]
    assert state["head_op"] > before["head_op"]
