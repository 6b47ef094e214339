"""What all clients together can make the server hold, on a real process with a small budget."""

from __future__ import annotations

import base64
import socket
from contextlib import ExitStack, suppress

import httpx

from iggy_protocol import ConsumerIdentity, Ping, PollingStrategy, PollMessages
from tests.server.features.test_unauthenticated import SEND_MESSAGES, head, resident_bytes
from tests.server.features.topic_calls import eventually, make_topic
from tests.server.net.ws_peer import listening_address

MIB = 1 << 20
KEY = base64.b64encode(bytes(32)).decode()
ENCRYPTED = {"IGGY_SYSTEM_ENCRYPTION_ENABLED": "true", "IGGY_SYSTEM_ENCRYPTION_KEY": KEY}
# What one poll needs while it is decrypted, and what the allocator keeps.
SLACK_BYTES = 160 * MIB


def test_replies_when_unread_then_the_budget_bounds_memory_and_others_are_served(
    start_server,
):
    """Without a budget these 25 clients cost more than a gigabyte."""
    server = start_server(settings={**ENCRYPTED, "IGGY_LIMITS_MEMORY_BUDGET": "64 MiB"})
    topic = make_topic(server.login())
    for _ in range(10):
        topic.send(*[bytes(500_000)] * 10)
    before = resident_bytes(server)
    poll = PollMessages(
        ConsumerIdentity.single(1), topic.stream, topic.topic, PollingStrategy.first(), 1000, 0
    )
    with ExitStack() as stack:
        for _ in range(25):
            lazy = stack.enter_context(server.login())
            lazy.send(*[poll] * 3)
        other = server.login()
        assert other.ask(Ping()) is None
        assert topic.seen_by(other).poll(count=1).messages_count == 1
        assert resident_bytes(server) - before < 64 * MIB + SLACK_BYTES


def test_large_requests_when_they_do_not_fit_together_then_wait_and_the_largest_holders_go(
    start_server,
):
    server = start_server(settings={"IGGY_LIMITS_MEMORY_BUDGET": "64 MiB"})
    before = resident_bytes(server)
    holders = [server.login() for _ in range(10)]
    for holder in holders:
        holder.socket.settimeout(0.2)
        holder.socket.sendall(head(SEND_MESSAGES, 30 * MIB))
        with suppress(TimeoutError):
            holder.socket.sendall(bytes(29 * MIB))
    other = make_topic(server.login())
    other.send(b"small")
    assert other.read() == ["small"]
    assert resident_bytes(server) - before < 64 * MIB + SLACK_BYTES

    # A client that sends gets space at the cost of those that stand still.
    other.send(bytes(20 * MIB))
    assert eventually(lambda: "limits.memory_budget" in server.output())


def test_http_polls_when_many_come_at_once_then_the_budget_bounds_memory(start_server):
    server = start_server(settings={"IGGY_LIMITS_MEMORY_BUDGET": "64 MiB"})
    topic = make_topic(server.login())
    for _ in range(4):
        topic.send(*[bytes(500_000)] * 10)
    host, port = listening_address(server, "http")
    url = f"http://{host}:{port}"
    with httpx.Client(base_url=url, timeout=30) as client, ExitStack() as stack:
        answer = client.post("/users/login", json={"username": "iggy", "password": "iggy"})
        token = answer.json()["access_token"]["token"]
        headers = {"Authorization": f"Bearer {token}"}
        before = resident_bytes(server)
        path = f"/streams/{topic.stream}/topics/{topic.topic}/messages"
        query = {"consumer_id": "1", "partition_id": "0", "kind": "first", "value": "0"}
        for _ in range(20):
            lazy = stack.enter_context(httpx.Client(base_url=url, timeout=30))
            stack.enter_context(
                lazy.stream("GET", path, params={**query, "count": "1000"}, headers=headers)
            )
        assert client.get("/ping").status_code == 200
        assert resident_bytes(server) - before < 64 * MIB + SLACK_BYTES


def test_http_bodies_when_many_come_at_once_then_the_budget_bounds_memory_and_others_are_served(
    start_server,
):
    """Without a budget these clients cost 600 MB, because 64 bodies may come at a time."""
    settings = {"IGGY_LIMITS_MEMORY_BUDGET": "64 MiB", "IGGY_HTTP_MAX_REQUEST_SIZE": "12 MB"}
    server = start_server(settings=settings)
    host, port = listening_address(server, "http")
    size = 10 * MIB
    with httpx.Client(base_url=f"http://{host}:{port}", timeout=30) as client, ExitStack() as stack:
        answer = client.post("/users/login", json={"username": "iggy", "password": "iggy"})
        headers = {"Authorization": f"Bearer {answer.json()['access_token']['token']}"}
        before = resident_bytes(server)
        for _ in range(50):
            lazy = stack.enter_context(socket.create_connection((host, port), timeout=0.05))
            head = [
                "POST /streams/1/topics/1/messages HTTP/1.1",
                "Host: x",
                "Content-Type: application/json",
                f"Authorization: {headers['Authorization']}",
                f"Content-Length: {size}",
            ]
            lazy.sendall("\r\n".join([*head, "", ""]).encode())
            with suppress(TimeoutError):
                lazy.sendall(bytes(size - 1))
        assert resident_bytes(server) - before < 64 * MIB + SLACK_BYTES
        assert client.post("/streams", json={"name": "s"}, headers=headers).status_code == 200
        topic = make_topic(server.login())
        topic.send(b"small")
        assert topic.read() == ["small"]

        # A client that sends gets space at the cost of those that stand still.
        path = f"/streams/{topic.stream}/topics/{topic.topic}/messages"
        payload = base64.b64encode(bytes(4 * MIB)).decode()
        partitioning = {"kind": "balanced", "value": ""}
        body = {"partitioning": partitioning, "messages": [{"payload": payload}]}
        assert client.post(path, json=body, headers=headers).status_code == 201
        assert "limits.memory_budget" in server.output()
