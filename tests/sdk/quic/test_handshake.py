"""Ways in which a QUIC handshake fails, and what each of them says; settings of the string."""

from __future__ import annotations

import datetime
import socket
import sys
from typing import Any

import anyio
import pytest
import trustme

from iggy_protocol import GetMe, Ping
from iggy_sdk.client import IggyClient
from iggy_sdk.errors import ConfigurationError, ConnectionFailedError
from iggy_sdk.options import Reconnect, TlsOptions, resolve_options
from iggy_sdk.transport.quic_settings import QuicSettings, parse_quic_settings
from tests.sdk.quic.test_client import session_of
from tests.server.running import RunningServer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

ONCE = Reconnect(retries=0)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def settings_with(folder: Any, issued: trustme.LeafCert) -> dict[str, str]:
    issued.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    return {
        "IGGY_QUIC_CERTIFICATE_SELF_SIGNED": "false",
        "IGGY_QUIC_CERTIFICATE_CERT_FILE": str(folder / "cert.pem"),
        "IGGY_QUIC_CERTIFICATE_KEY_FILE": str(folder / "key.pem"),
    }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA):
    """A server with a certificate of an authority, and the file of that authority."""
    folder = tmp_path_factory.mktemp("quic")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    settings = settings_with(folder, authority.issue_cert("127.0.0.1", "iggy.example"))
    with RunningServer(folder, settings=settings) as server:
        yield server, str(folder / "ca.pem")


@pytest.fixture(scope="module")
def expired(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA):
    """A server whose certificate has run out, and the file of its authority."""
    folder = tmp_path_factory.mktemp("expired")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    issued = authority.issue_cert("127.0.0.1", not_before=past, not_after=past)
    with RunningServer(folder, settings=settings_with(folder, issued)) as server:
        yield server, str(folder / "ca.pem")


def client_of(server: RunningServer, **tls: Any) -> IggyClient:
    config: Any = server.current_config()
    url = f"iggy+quic://iggy:iggy@{config['quic']['address']}"
    return IggyClient(url, tls=TlsOptions(**tls), reconnect=ONCE)


async def failure_of(client: IggyClient) -> ConnectionFailedError:
    with pytest.raises(ConnectionFailedError) as caught:
        await client.connect()
    return caught.value


# Certificates


async def test_handshake_when_the_authority_is_trusted_then_succeeds(secured):
    server, ca_file = secured
    async with client_of(server, ca_file=ca_file) as client:
        await client.request(Ping())
    async with client_of(server, ca_file=ca_file, domain="iggy.example") as client:
        await client.request(Ping())


async def test_handshake_when_the_authority_is_unknown_then_is_refused_by_default(secured):
    failure = await failure_of(client_of(secured[0]))

    assert "not accepted" in failure.message
    assert "tls_ca_file" in failure.advice
    assert not failure.retriable


async def test_handshake_when_the_name_is_another_then_says_so(secured):
    server, ca_file = secured
    failure = await failure_of(client_of(server, ca_file=ca_file, domain="other.example"))

    assert "other.example" in failure.message
    assert "tls_domain" in failure.advice
    assert not failure.retriable


async def test_handshake_when_the_certificate_has_run_out_then_says_so(expired):
    server, ca_file = expired
    failure = await failure_of(client_of(server, ca_file=ca_file))

    assert "no longer valid" in failure.message
    assert "Renew" in failure.advice


async def test_handshake_when_not_validated_then_any_certificate_will_do(expired):
    async with client_of(expired[0], validate=False) as client:
        await client.request(GetMe())


async def test_development_certificate_when_its_file_is_given_then_is_trusted(start_server):
    server = await anyio.to_thread.run_sync(start_server)
    ca_file = server.data / "certificates" / "development_cert.pem"
    async with client_of(server, ca_file=str(ca_file)) as client:
        await client.request(Ping())


@pytest.mark.parametrize("name", ["ca_file", "client_cert"])
async def test_file_when_it_cannot_be_read_then_the_configuration_is_at_fault(secured, name):
    with pytest.raises(ConfigurationError, match=r"missing\.pem"):
        await client_of(secured[0], **{name: "missing.pem"}).connect()


async def test_client_certificate_when_the_server_asks_for_none_then_does_no_harm(
    secured, authority, tmp_path
):
    server, ca_file = secured
    issued = authority.issue_cert("client.example")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    files = {"client_cert": str(tmp_path / "cert.pem"), "client_key": str(tmp_path / "key.pem")}
    async with client_of(server, ca_file=ca_file, **files) as client:
        await client.request(Ping())


# Nobody there


async def test_connect_when_the_port_is_closed_then_says_so_at_once():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with anyio.fail_after(5):
        failure = await failure_of(IggyClient(f"iggy+quic://a:b@127.0.0.1:{port}", reconnect=ONCE))

    assert "refused" in failure.message
    assert "UDP" in failure.advice


async def test_connect_when_the_server_is_silent_then_gives_up_in_time():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
        mute.bind(("127.0.0.1", 0))
        port = mute.getsockname()[1]
        url = f"iggy+quic://a:b@127.0.0.1:{port}?connect_timeout=300ms"
        failure = await failure_of(IggyClient(url, reconnect=ONCE))

    assert "did not answer over UDP within 0.3 s" in failure.message
    assert failure.retriable


async def test_connect_when_the_server_has_connections_enough_then_says_so(start_server):
    settings = {"IGGY_LIMITS_QUIC_MAX_CONNECTIONS": "1"}
    server = await anyio.to_thread.run_sync(lambda: start_server(settings=settings))
    async with client_of(server, validate=False):
        failure = await failure_of(client_of(server, validate=False))

    assert "refuses" in failure.message
    assert failure.retriable


# Settings


async def test_settings_when_given_in_the_string_then_take_effect(secured):
    server, ca_file = secured
    config: Any = server.current_config()
    query = (
        f"tls_ca_file={ca_file}&initial_mtu=1300&receive_window=50000&max_idle_timeout=7000"
        "&keep_alive_interval=1500"
    )
    async with IggyClient(f"iggy+quic://iggy:iggy@{config['quic']['address']}?{query}") as client:
        await client.request(Ping())
        transport = session_of(client)._transport
        core = transport.core

        assert core._max_datagram_size == 1300
        assert core.configuration.max_data == 50_000
        assert core.configuration.idle_timeout == 7.0
        assert transport._keep_alive_seconds == 1.5


def test_settings_when_left_out_then_datagrams_suit_the_way():
    settings = QuicSettings()

    assert settings.datagram_bytes_to("127.0.0.1") == 8_000
    assert settings.datagram_bytes_to("::1") == 8_000
    assert settings.datagram_bytes_to("192.0.2.1") == 1_200
    assert QuicSettings(datagram_bytes=1_400).datagram_bytes_to("192.0.2.1") == 1_400


@pytest.mark.parametrize("pair", ["initial_mtu=1199", "initial_mtu=70000", "send_window=1"])
def test_setting_when_it_cannot_work_then_says_what_can(pair):
    options = resolve_options(f"iggy+quic://host?{pair}")
    with pytest.raises(ConfigurationError, match=pair.partition("=")[0]):
        parse_quic_settings(options.transport_settings)


async def test_library_when_it_is_missing_then_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "aioquic"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("iggy_sdk.session.quic", "iggy_sdk.transport.quic"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    with pytest.raises(ConfigurationError, match=r"iggy-python\[quic\]"):
        await IggyClient("iggy+quic://iggy:iggy@127.0.0.1:1").connect()


async def test_library_when_it_is_unsuitable_then_says_what_it_lacks(monkeypatch):
    monkeypatch.delattr("aioquic.quic.connection.QuicConnection._close_begin")
    for name in list(sys.modules):
        if name.startswith(("iggy_protocol.quic", "iggy_sdk.session.quic", "iggy_sdk.transport.q")):
            monkeypatch.delitem(sys.modules, name)

    with pytest.raises(ConfigurationError) as caught:
        await IggyClient("iggy+quic://iggy:iggy@127.0.0.1:1").connect()

    assert caught.value.message.startswith("iggy+quic:// cannot be used: aioquic ")
    assert "has no QuicConnection._close_begin" in caught.value.message
    assert caught.value.advice == "Run: pip install 'iggy-python[quic]'"
