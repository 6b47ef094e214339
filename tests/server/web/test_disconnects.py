"""Clients that leave in the middle of an answer, at a real server: places are free at once."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from typing import TYPE_CHECKING

import h2.config
import h2.connection
import httpx
import pytest
import trustme

from iggy_protocol import CreateStream, CreateTopic, NewMessage, Partitioning, SendMessages
from tests.server.running import RunningServer
from tests.server.web.test_process import address_of, log_in, open_client

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(120)

PLACES = 4
LEAVERS = 12
MESSAGES_COUNT, MESSAGE_BYTES = 60, 100_000
POLL = f"/streams/s/topics/t/messages?partition_id=0&count={MESSAGES_COUNT}"
# Far above what a machine needs to notice, far below the two minutes of an idle connection.
NOTICED_S = 10.0
RESET = struct.pack("ii", 1, 0)


class HttpTarget:
    """A server with much to poll, and how to reach it over HTTP."""

    def __init__(self, server: RunningServer, scheme: str, trusting: ssl.SSLContext | None) -> None:
        self.server = server
        self.scheme = scheme
        self._trusting = trusting
        with self.client() as client:
            self.token = log_in(client)

    def client(self) -> httpx.Client:
        verify = self._trusting if self._trusting is not None else True
        return open_client(self.server, self.scheme, verify=verify)

    def connect(self, protocol: str) -> socket.socket:
        plain = socket.create_connection(address_of(self.server), timeout=10)
        if self._trusting is None:
            return plain
        self._trusting.set_alpn_protocols([protocol])
        return self._trusting.wrap_socket(plain, server_hostname="127.0.0.1")

    def count_served(self) -> int:
        """Hold as many connections as there are places, and count those that are answered."""
        with contextlib.ExitStack() as stack:
            answered = 0
            for _ in range(PLACES):
                client = stack.enter_context(self.client())
                with contextlib.suppress(httpx.TransportError):
                    answered += client.get("/ping").text == "pong"
            return answered


@pytest.fixture(scope="module", params=["http", "https"])
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HttpTarget]:
    directory = tmp_path_factory.mktemp("leaving")
    settings = {"IGGY_LIMITS_HTTP_MAX_CONNECTIONS": str(PLACES)}
    trusting = None
    if request.param == "https":
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        certificate.private_key_pem.write_to_path(directory / "key.pem")
        certificate.cert_chain_pems[0].write_to_path(directory / "cert.pem")
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        settings |= {
            "IGGY_HTTP_TLS_ENABLED": "true",
            "IGGY_HTTP_TLS_CERT_FILE": str(directory / "cert.pem"),
            "IGGY_HTTP_TLS_KEY_FILE": str(directory / "key.pem"),
        }
    with RunningServer(directory, settings=settings) as server:
        wire = server.login()
        wire.ask(CreateStream("s"))
        wire.ask(CreateTopic("s", "t", 1))
        for _ in range(MESSAGES_COUNT):
            message = NewMessage(bytes(MESSAGE_BYTES))
            wire.ask(SendMessages("s", "t", Partitioning.partition(0), [message]))
        yield HttpTarget(server, request.param, trusting)


def ask_over_http1(target: HttpTarget) -> socket.socket:
    """Ask for much."""
    connected = target.connect("http/1.1")
    head = f"GET {POLL} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.token}\r\n\r\n"
    connected.sendall(head.encode())
    return connected


def ask_ahead_over_http1(target: HttpTarget) -> socket.socket:
    """Ask for much, and for more before it has come."""
    connected = ask_over_http1(target)
    connected.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
    return connected


def ask_over_http2(target: HttpTarget) -> socket.socket:
    """Ask for much, and grant a window for all of it."""
    connected = target.connect("h2")
    client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    client.initiate_connection()
    client.increment_flow_control_window(1 << 25)
    head = [
        (":method", "GET"),
        (":path", POLL),
        (":scheme", target.scheme),
        (":authority", "x"),
        ("authorization", f"Bearer {target.token}"),
    ]
    client.send_headers(1, head, end_stream=True)
    client.increment_flow_control_window(1 << 25, 1)
    connected.sendall(client.data_to_send())
    return connected


ASKING = {
    "http1": ask_over_http1,
    "http1-pipelined": ask_ahead_over_http1,
    "http2": ask_over_http2,
}


@pytest.mark.parametrize("way", ["close", "reset"])
@pytest.mark.parametrize("moment", ["asked", "answering"])
@pytest.mark.parametrize("protocol", ASKING)
def test_place_when_its_client_leaves_in_the_middle_of_an_answer_then_is_free_at_once(
    target: HttpTarget, protocol: str, moment: str, way: str
):
    for _ in range(LEAVERS):
        with contextlib.suppress(ConnectionResetError, BrokenPipeError, ssl.SSLError):
            connected = ASKING[protocol](target)
            if moment == "answering":
                connected.recv(1 << 15)
            if way == "reset":
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connected.close()
    deadline = time.monotonic() + NOTICED_S
    while (served := target.count_served()) < PLACES and time.monotonic() < deadline:
        continue
    assert served == PLACES


def test_answers_when_clients_leave_then_no_traceback_is_printed(target: HttpTarget):
    for protocol in ASKING:
        for _ in range(LEAVERS):
            with (
                contextlib.suppress(ConnectionResetError, BrokenPipeError, ssl.SSLError),
                ASKING[protocol](target) as connected,
            ):
                connected.recv(1 << 15)
    assert "Traceback" not in target.server.output()
