"""The client over WebSocket and the reference server: requests, load, cancellation, TLS."""

from __future__ import annotations

import ssl
from typing import Any

import anyio
import pytest
import trustme

from iggy_protocol import GetMe, GetStream, Ping, Transport
from iggy_sdk.client import IggyClient
from iggy_sdk.errors import ConnectionFailedError
from iggy_sdk.options import TlsOptions
from iggy_sdk.testing.server import in_test_protocol
from tests.certificates import Certificate
from tests.sdk.exchanges import batch_of, check_echo, last_of, make_topic
from tests.sdk.net.socket_servers import socket_server
from tests.sdk.net.websocket_servers import accept, dial
from tests.server.running import RunningServer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]


def url_of(server: RunningServer, *, scheme: str = "iggy+ws", query: str = "") -> str:
    config: Any = server.current_config()
    return in_test_protocol(f"{scheme}://iggy:iggy@{config['websocket']['address']}{query}")


# Against the real server


async def test_client_when_it_asks_by_websocket_then_the_server_says_so(server):
    async with IggyClient(url_of(server)) as client:
        me = await client.request(GetMe())

    assert me.transport is Transport.WEBSOCKET


@pytest.mark.parametrize("size_bytes", [1, 125, 126, 65_535, 65_536, 1_000_000])
async def test_batch_when_of_any_size_then_comes_back_as_it_went(server, size_bytes):
    async with IggyClient(url_of(server)) as client:
        await check_echo(client, size_bytes)


async def test_batch_when_larger_than_a_frame_may_be_then_all_of_it_goes_and_comes(server):
    async with IggyClient(url_of(server)) as client:
        await make_topic(client, "huge")
        await client.request(batch_of("huge", bytes(1_000_000), 20))
        polled = await client.request(last_of("huge", 20))

        assert len(polled.messages) == 20
        await client.request(Ping())


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.004, 0.016])
async def test_request_when_cancelled_then_the_client_goes_on(server, seconds):
    batch = batch_of("cut", bytes(1_000_000), 8)
    async with IggyClient(url_of(server)) as client:
        await make_topic(client, "cut")
        with anyio.move_on_after(seconds):
            await client.request(batch)
        await client.request(Ping())
        assert await client.request(GetStream("cut")) is not None


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA):
    """A server whose WebSocket listener speaks TLS, and the file of its authority."""
    folder = tmp_path_factory.mktemp("wss")
    certificate = Certificate.make(authority, folder, ("127.0.0.1", "iggy.example"))
    with RunningServer(folder, settings=certificate.settings("WEBSOCKET_TLS")) as server:
        yield server, certificate.ca_file


async def test_wss_when_the_authority_is_trusted_then_large_and_small_requests_go(secured):
    server, ca_file = secured
    batch = batch_of("safe", bytes(300_000), 10)
    url = url_of(server, scheme="iggy+wss", query=f"?tls_ca_file={ca_file}")
    async with IggyClient(url) as client:
        await make_topic(client, "safe")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(client.request, batch)
                tasks.start_soon(client.request, Ping())


async def test_wss_when_a_domain_is_given_then_that_name_is_checked(secured):
    server, ca_file = secured
    query = f"?tls_ca_file={ca_file}&tls_domain="
    async with IggyClient(
        url_of(server, scheme="iggy+wss", query=f"{query}iggy.example")
    ) as client:
        await client.request(Ping())
    with pytest.raises(ConnectionFailedError, match="tls_domain"):
        await IggyClient(url_of(server, scheme="iggy+wss", query=f"{query}other.example")).connect()


async def test_wss_when_the_authority_is_unknown_then_is_refused_by_default(secured):
    with pytest.raises(ConnectionFailedError, match="tls_ca_file") as caught:
        await IggyClient(url_of(secured[0], scheme="iggy+wss")).connect()

    assert not caught.value.retriable


async def test_ws_when_the_server_wants_tls_then_says_so(secured):
    with pytest.raises(ConnectionFailedError, match=r"iggy\+wss") as caught:
        await IggyClient(url_of(secured[0]), reconnect=False).connect()

    assert "127.0.0.1" in str(caught.value)


async def test_wss_when_the_server_speaks_no_tls_then_says_so(server, secured):
    query = f"?tls_ca_file={secured[1]}"
    with pytest.raises(ConnectionFailedError, match="TLS"):
        await IggyClient(url_of(server, scheme="iggy+wss", query=query), reconnect=False).connect()


async def test_wss_when_a_client_certificate_is_asked_for_then_it_is_shown(authority, tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    own = authority.issue_cert("client.example")
    own.cert_chain_pems[0].write_to_path(str(tmp_path / "own.pem"))
    own.private_key_pem.write_to_path(str(tmp_path / "own.key"))
    files: dict[str, Any] = {"ca_file": str(tmp_path / "ca.pem")}
    shown: dict[str, Any] = {
        "client_cert": str(tmp_path / "own.pem"),
        "client_key": str(tmp_path / "own.key"),
    }

    async with socket_server(accept, context=context) as endpoint:
        transport = await dial(endpoint, tls=TlsOptions(**files, **shown))
        await transport.aclose()
        with pytest.raises((ConnectionFailedError, OSError)):
            await dial(endpoint, tls=TlsOptions(**files))
