"""The HTTP listener of a real server, as its users see it."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import statistics
import time
import tomllib
from typing import TYPE_CHECKING

import httpx
import pytest
import trustme

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    Ping,
    PollingStrategy,
    PollMessages,
)
from tests.server.running import RunningServer, ServerFailed
from tests.server.web.web_harness import ROOT, SECRET

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(60)

MESSAGES = "/streams/s/topics/t/messages"


def address_of(server: RunningServer) -> tuple[str, int]:
    """Read where the HTTP listener is."""
    written = tomllib.loads((server.data / "runtime" / "current_config.toml").read_text())
    host, _, port = written["http"]["address"].rpartition(":")
    assert int(port)
    return host, int(port)


def open_client(server: RunningServer, scheme: str = "http", **options) -> httpx.Client:
    host, port = address_of(server)
    return httpx.Client(base_url=f"{scheme}://{host}:{port}", **options)


def log_in(client: httpx.Client) -> str:
    token = client.post("/users/login", json=ROOT).json()["access_token"]["token"]
    client.headers["authorization"] = f"Bearer {token}"
    return token


def test_server_when_it_runs_then_http_and_tcp_show_the_same_data(tmp_path: Path):
    with RunningServer(tmp_path, shards=2) as server, open_client(server) as client:
        log_in(client)
        wire = server.login()
        wire.ask(CreateStream("s"))
        wire.ask(CreateTopic("s", "t", 4))
        for partition_id in range(4):
            value = base64.b64encode(partition_id.to_bytes(4, "little")).decode()
            body = {
                "partitioning": {"kind": "partition_id", "value": value},
                "messages": [{"payload": base64.b64encode(b"%d" % partition_id).decode()}],
            }
            assert client.post(MESSAGES, json=body).status_code == 201
            poll = PollMessages(
                ConsumerIdentity.single(1), "s", "t", PollingStrategy.first(), 9, partition_id
            )
            assert wire.ask(poll).messages.payloads() == [b"%d" % partition_id]
            polled = client.get(MESSAGES, params={"partition_id": partition_id}).json()
            assert polled["count"] == 1
        assert "\nmessages 4\n" in client.get("/metrics").text
        assert client.get("/stats").json()["clients_count"] == len(client.get("/clients").json())
        _, port = address_of(server)
        assert client.get("/cluster/metadata").json()["nodes"][0]["endpoints"]["http"] == port


def test_tokens_when_the_server_is_restarted_then_live_as_configured(tmp_path: Path):
    settings = {"IGGY_HTTP_JWT_ENCODING_SECRET": SECRET}
    server = RunningServer(tmp_path, settings=settings)
    with server, open_client(server) as client:
        ended, kept = log_in(client), log_in(client)
        headers = {"authorization": f"Bearer {ended}"}
        assert client.delete("/users/logout", headers=headers).status_code == 204
    with server, open_client(server) as client:
        statuses = [
            client.get("/streams", headers={"authorization": f"Bearer {token}"}).status_code
            for token in (ended, kept)
        ]
        assert statuses == [401, 200]


def test_token_when_revoked_and_the_server_killed_at_once_then_stays_revoked(tmp_path: Path):
    server = RunningServer(tmp_path, settings={"IGGY_HTTP_JWT_ENCODING_SECRET": SECRET})
    with server, open_client(server) as client:
        ended, kept = log_in(client), log_in(client)
        headers = {"authorization": f"Bearer {ended}"}
        assert client.delete("/users/logout", headers=headers).status_code == 204
        server.kill()
        server.start()
        with open_client(server) as again:
            statuses = [
                again.get("/streams", headers={"authorization": f"Bearer {token}"}).status_code
                for token in (ended, kept)
            ]
            assert statuses == [401, 200]


def test_https_when_configured_then_is_spoken_with_the_certificate_of_the_files(tmp_path: Path):
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    (tmp_path / "cert.pem").write_bytes(
        b"".join(part.bytes() for part in certificate.cert_chain_pems)
    )
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    settings = {
        "IGGY_HTTP_TLS_ENABLED": "true",
        "IGGY_HTTP_TLS_CERT_FILE": str(tmp_path / "cert.pem"),
        "IGGY_HTTP_TLS_KEY_FILE": str(tmp_path / "key.pem"),
    }
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    with (
        RunningServer(tmp_path, settings=settings) as server,
        open_client(server, "https", verify=trusting) as client,
    ):
        log_in(client)
        assert client.get("/streams").json() == []


def test_tcp_when_http_is_attacked_then_keeps_its_pace(tmp_path: Path):
    with RunningServer(tmp_path, shards=1) as server:
        wire = server.connect()
        attackers = [socket.create_connection(address_of(server)) for _ in range(200)]
        paces = []
        for number, attacker in enumerate(attackers):
            attacker.setblocking(False)
            with contextlib.suppress(OSError):
                attacker.send((b"GET /", b"rubbish\r\n\r\n", b"\0" * 50_000)[number % 3])
            before = time.monotonic()
            wire.ask(Ping())
            paces.append(time.monotonic() - before)
        for attacker in attackers:
            attacker.close()
        assert statistics.median(paces) < 0.05
        with open_client(server) as client:
            assert client.get("/ping").text == "pong"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"IGGY_HTTP_JWT_ALGORITHM": "RS256"}, "http.jwt.encoding_secret is not an RSA key"),
        ({"IGGY_HTTP_CORS_ALLOW_CREDENTIALS": "true"}, "http.cors.allow_credentials cannot"),
    ],
)
def test_server_when_its_http_listener_cannot_be_opened_then_does_not_start_and_says_why(
    settings, complaint, tmp_path: Path
):
    with pytest.raises(ServerFailed, match=complaint):
        RunningServer(tmp_path, settings=settings).start()
