"""TLS: certificates are verified, and every failed handshake says what to do."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trustme

from iggy_protocol import GetStream, Partitioning, Ping, SendMessages
from iggy_sdk.client import IggyClient
from iggy_sdk.connection_string import Endpoint
from iggy_sdk.errors import ConfigurationError, ConnectionFailedError
from iggy_sdk.options import Reconnect, TlsOptions
from tests.sdk.net.socket_servers import socket_server
from tests.sdk.scripted_peer import options

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def server_context(authority: trustme.CA, *names: str, **details: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, **details).configure_cert(context)
    return context


def client_of(endpoint: Endpoint, **tls: Any) -> IggyClient:
    return IggyClient.from_options(
        options(
            endpoints=(endpoint,),
            tls=TlsOptions(**tls),
            connect_timeout=5.0,
            reconnect=Reconnect(retries=3, delay=0.001),
        )
    )


async def test_tls_when_the_certificate_is_trusted_then_the_client_talks(authority, ca_file):
    async with (
        socket_server(context=server_context(authority, "127.0.0.1")) as endpoint,
        client_of(endpoint, ca_file=ca_file) as client,
    ):
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(client.request, Ping())
        assert await client.request(GetStream("shop")) is None


async def test_tls_when_a_batch_is_large_then_all_of_it_arrives(authority, ca_file):
    batch = SendMessages("shop", "orders", Partitioning.partition(0), [bytes(500_000)] * 20)
    async with (
        socket_server(context=server_context(authority, "127.0.0.1")) as endpoint,
        client_of(endpoint, ca_file=ca_file) as client,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(3):
            tasks.start_soon(client.request, batch)
            tasks.start_soon(client.request, Ping())


async def test_tls_when_the_domain_is_given_then_that_name_is_checked(authority, ca_file):
    async with (
        socket_server(context=server_context(authority, "iggy.example")) as endpoint,
        client_of(endpoint, ca_file=ca_file, domain="iggy.example") as client,
    ):
        await client.ping()


async def test_tls_when_the_authority_is_unknown_then_says_so_and_does_not_try_again(authority):
    async with socket_server(context=server_context(authority, "127.0.0.1")) as endpoint:
        client = client_of(endpoint)
        with pytest.raises(ConnectionFailedError, match="tls_ca_file") as caught:
            await client.connect()

    assert not caught.value.retriable
    assert client.statistics().dials == 1


async def test_tls_when_the_name_is_another_then_says_so(authority, ca_file):
    async with socket_server(context=server_context(authority, "other.example")) as endpoint:
        with pytest.raises(ConnectionFailedError, match="tls_domain"):
            await client_of(endpoint, ca_file=ca_file, domain="iggy.example").connect()


async def test_tls_when_the_address_is_another_then_says_so(authority, ca_file):
    async with socket_server(context=server_context(authority, "other.example")) as endpoint:
        with pytest.raises(ConnectionFailedError, match="tls_domain"):
            await client_of(endpoint, ca_file=ca_file).connect()


async def test_tls_when_the_certificate_has_expired_then_says_so(authority, ca_file):
    context = server_context(
        authority, "127.0.0.1", not_after=datetime.now(UTC) - timedelta(days=1)
    )
    async with socket_server(context=context) as endpoint:
        with pytest.raises(ConnectionFailedError, match=r"expired.*Renew"):
            await client_of(endpoint, ca_file=ca_file).connect()


async def test_tls_when_checking_is_switched_off_then_any_server_is_trusted(authority):
    async with (
        socket_server(context=server_context(authority, "other.example")) as endpoint,
        client_of(endpoint, validate=False) as client,
    ):
        await client.ping()


async def test_tls_when_the_server_speaks_it_not_then_says_so(ca_file):
    async def other_protocol(stream) -> None:
        await stream.receive()
        await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with socket_server(other_protocol) as endpoint:
        with pytest.raises(ConnectionFailedError, match=r"TLS enabled on this port") as caught:
            await client_of(endpoint, ca_file=ca_file).connect()

    assert not caught.value.retriable


async def test_tls_when_the_server_waits_for_a_frame_instead_then_ends_in_time(ca_file):
    async def deaf(stream) -> None:
        await anyio.sleep_forever()

    async with socket_server(deaf) as endpoint:
        client = IggyClient.from_options(
            options(
                endpoints=(endpoint,),
                tls=TlsOptions(ca_file=ca_file),
                connect_timeout=0.2,
                reconnect=Reconnect(enabled=False),
            )
        )
        with pytest.raises(ConnectionFailedError, match="TLS handshake within"):
            await client.connect()


async def test_tls_when_the_server_hangs_up_in_the_handshake_then_says_so(ca_file):
    async def rude(stream) -> None:
        await stream.receive()

    async with socket_server(rude) as endpoint:
        with pytest.raises(ConnectionFailedError, match="ended the TLS handshake"):
            await client_of(endpoint, ca_file=ca_file).connect()


async def test_tls_when_a_client_certificate_is_asked_for_then_it_is_shown(
    authority: trustme.CA, ca_file: str, tmp_path: Path
):
    context = server_context(authority, "127.0.0.1")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    own = authority.issue_cert("client.example")
    certificate, key = tmp_path / "client.pem", tmp_path / "client.key"
    own.cert_chain_pems[0].write_to_path(str(certificate))
    own.private_key_pem.write_to_path(str(key))

    async with socket_server(context=context) as endpoint:
        shown = {"client_cert": str(certificate), "client_key": str(key)}
        async with client_of(endpoint, ca_file=ca_file, **shown) as client:
            await client.ping()
        with pytest.raises(ConnectionFailedError):
            await client_of(endpoint, ca_file=ca_file).connect()


@pytest.mark.parametrize("name", ["ca_file", "client_cert"])
async def test_tls_when_a_file_cannot_be_read_then_names_it(tmp_path, name):
    path = tmp_path / "no-such.pem"
    with pytest.raises(ConfigurationError, match=r"no-such\.pem"):
        await client_of(Endpoint("127.0.0.1", 1), **{name: str(path)}).connect()


async def test_tls_when_the_server_closes_then_the_client_comes_back(authority, ca_file):
    streams: list[Any] = []

    async def one_request_each(stream) -> None:
        streams.append(stream)
        await stream.receive()
        await stream.send(bytes(8))

    context = server_context(authority, "127.0.0.1")
    async with socket_server(one_request_each, context=context) as endpoint:
        client = IggyClient.from_options(
            options(endpoints=(endpoint,), tls=TlsOptions(ca_file=ca_file), credentials=None)
        )
        async with client:
            await client.ping()
            await client.ping()

    assert len(streams) == 2
