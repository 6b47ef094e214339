"""The official configurations: what they read back, what they refuse, what they become here."""

from __future__ import annotations

from datetime import timedelta

import pytest

from iggy_sdk.compat import (
    AutoLogin,
    BackgroundProducerConfig,
    BackpressureMode,
    DirectProducerConfig,
    HttpConfig,
    IggyClient,
    PendingOperationsConfig,
    ProducerSharding,
    QuicConfig,
    QuicReconnectionConfig,
    TcpConfig,
    TcpReconnectionConfig,
    WebSocketConfig,
    WebSocketFramingConfig,
    WebSocketReconnectionConfig,
)
from iggy_sdk.compat.configs import QUIC_SIZES
from iggy_sdk.connection_string import Endpoint, PasswordLogin, TokenLogin
from iggy_sdk.errors import ConfigurationError
from iggy_sdk.options import Reconnect, TlsOptions
from iggy_sdk.producer import Backpressure
from iggy_sdk.transport.quic_settings import QuicSettings, parse_quic_settings

SECOND = timedelta(seconds=1)
SECRETS = ("p4ss", "t0ken")


def test_tcp_when_nothing_is_given_then_has_the_official_defaults():
    config = TcpConfig()
    options = config.options()

    assert (config.server_address, config.tls_enabled, config.nodelay) == (
        "127.0.0.1:8090",
        False,
        False,
    )
    assert config.tls_validate_certificate
    assert (config.reconnection.interval, config.heartbeat_interval) == (SECOND, 5 * SECOND)
    assert not config.auto_login.enabled
    assert options.endpoints == (Endpoint("127.0.0.1", 8090),)
    assert (options.tls, options.credentials, options.transport) == (None, None, "tcp")


def test_tcp_when_everything_is_given_then_becomes_our_options():
    options = TcpConfig(
        server_address="db:1",
        auto_login=AutoLogin.username_password("u", "p4ss"),
        pending_operations=PendingOperationsConfig(max_operations=7),
        reconnection=TcpReconnectionConfig(
            enabled=False, max_retries=2, interval=SECOND / 2, reestablish_after=SECOND
        ),
        heartbeat_interval=2 * SECOND,
        tls_enabled=True,
        tls_domain="example.org",
        tls_ca_file="ca.pem",
        nodelay=True,
    ).options()

    assert options.endpoints == (Endpoint("db", 1),)
    assert options.credentials == PasswordLogin("u", "p4ss")
    assert options.reconnect == Reconnect(
        enabled=False, retries=2, delay=0.5, max_delay=0.5, reestablish_after=1
    )
    assert options.tls == TlsOptions(ca_file="ca.pem", domain="example.org", validate=True)
    assert (options.heartbeat_interval, options.nodelay, options.max_outstanding) == (2.0, True, 7)


def test_tcp_when_no_certificate_is_checked_then_no_file_is_read():
    config = TcpConfig(tls_enabled=True, tls_validate_certificate=False, tls_ca_file="missing.pem")

    assert config.tls_ca_file == "missing.pem"
    assert config.options().tls == TlsOptions(ca_file=None, validate=False)


def test_websocket_when_framed_then_only_bounds_become_options():
    framing = WebSocketFramingConfig(read_buffer_size=1, max_message_size=None)
    config = WebSocketConfig(
        server_address="h",
        framing=framing,
        tls_enabled=True,
        reconnection=WebSocketReconnectionConfig(max_retries=0),
    )
    options = config.options()

    assert (framing.read_buffer_size, framing.write_buffer_size) == (1, 131072)
    assert framing.max_write_buffer_size == 2**64 - 1
    assert options.endpoints == (Endpoint("h", 8092),)
    assert dict(options.transport_settings) == {"max_frame_size": 16 << 20}
    assert options.tls == TlsOptions(domain=None, validate=True)
    assert options.reconnect.retries == 0


def test_quic_when_sizes_are_left_out_then_has_those_of_this_sdk():
    config, own = QuicConfig(), QuicSettings()

    assert {
        "response_buffer_size": own.response_bytes_max,
        "max_concurrent_bidi_streams": own.streams_max,
        "datagram_send_buffer_size": 100_000,
        "initial_mtu": 1_200,
        "send_window": own.send_window_bytes,
        "receive_window": own.receive_window_bytes,
    } == QUIC_SIZES
    assert {name: getattr(config, name) for name in QUIC_SIZES} == QUIC_SIZES
    assert parse_quic_settings(config.options().transport_settings) == own


def test_quic_when_everything_is_given_then_becomes_our_options():
    config = QuicConfig(
        server_address="[::1]:1",
        client_address="0.0.0.0:0",
        server_name="example.org",
        auto_login=AutoLogin.personal_access_token("t0ken"),
        reconnection=QuicReconnectionConfig(max_retries=1),
        initial_mtu=1400,
        send_window=5000,
        keep_alive_interval=timedelta(0),
        max_idle_timeout=timedelta(0),
        validate_certificate=False,
    )
    options = config.options()

    assert (options.transport, options.endpoints) == ("quic", (Endpoint("::1", 1),))
    assert options.credentials == TokenLogin("t0ken")
    assert options.tls == TlsOptions(domain="example.org", validate=False)
    assert dict(options.transport_settings) == {
        "initial_mtu": 1400,
        "send_window": 5000,
        "keep_alive_interval": 0,
        "max_idle_timeout": 30_000,
    }


def test_quic_when_no_name_is_given_then_the_certificate_has_the_host():
    assert QuicConfig(server_address="example.org:1").options().tls == TlsOptions(
        domain="example.org", validate=True
    )


@pytest.mark.parametrize(
    ("url", "endpoint", "tls"),
    [
        (None, Endpoint("127.0.0.1", 3000), None),
        ("http://h", Endpoint("h", 80), None),
        ("https://h/", Endpoint("h", 443), TlsOptions()),
        ("http://[::1]:5", Endpoint("::1", 5), None),
    ],
)
def test_http_when_given_a_url_then_knows_the_server(url, endpoint, tls):
    config = HttpConfig(api_url=url, retries=1, heartbeat_interval=2 * SECOND)
    options = config.options()

    assert (options.endpoints, options.tls, options.transport) == ((endpoint,), tls, "http")
    assert (config.retries, config.has_jwt, options.heartbeat_interval) == (1, False, 2.0)


def test_http_when_given_a_token_of_somebody_else_then_the_client_refuses_it():
    config = HttpConfig(jwt="t0ken")

    assert config.has_jwt
    with pytest.raises(ConfigurationError, match="jwt"):
        IggyClient(config)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TcpConfig(server_address="a:b"),
        lambda: TcpConfig(heartbeat_interval=timedelta(0)),
        lambda: TcpConfig(heartbeat_interval=-SECOND),
        lambda: TcpReconnectionConfig(interval=timedelta(0)),
        lambda: TcpReconnectionConfig(max_retries=-1),
        lambda: TcpReconnectionConfig(max_retries=2**32),
        lambda: TcpReconnectionConfig(reestablish_after=-SECOND),
        lambda: PendingOperationsConfig(max_operations=0),
        lambda: WebSocketFramingConfig(max_frame_size=-1),
        lambda: WebSocketFramingConfig(max_write_buffer_size=5),
        lambda: QuicConfig(client_address="127.0.0.1:5000"),
        lambda: QuicConfig(send_window=-1),
        lambda: QuicConfig(keep_alive_interval=timedelta(microseconds=5)),
        lambda: QuicConfig(max_idle_timeout=-SECOND),
        lambda: HttpConfig(api_url="x"),
        lambda: HttpConfig(api_url="http://u:p4ss@h"),
        lambda: HttpConfig(api_url="http://h/path"),
        lambda: HttpConfig(jwt=" "),
        lambda: HttpConfig(retries=-1),
        lambda: DirectProducerConfig(batch_length=-1),
        lambda: BackgroundProducerConfig(batch_size=-1),
        lambda: BackgroundProducerConfig(linger_time=-SECOND),
        lambda: BackpressureMode.block_with_timeout(-SECOND),
    ],
)
def test_config_when_a_value_cannot_be_used_then_says_so_at_once(make):
    with pytest.raises(ValueError) as refused:
        make()

    assert isinstance(refused.value, ConfigurationError)
    assert not any(secret in str(refused.value) for secret in SECRETS)


def test_config_when_shown_then_hides_secrets_and_compares_by_value():
    login = AutoLogin.username_password("u", "p4ss")
    config = TcpConfig(auto_login=login)

    assert "u" in repr(config)
    assert not any(secret in repr(config) for secret in SECRETS)
    assert "t0ken" not in repr(AutoLogin.personal_access_token("t0ken"))
    assert config == TcpConfig(auto_login=AutoLogin.username_password("u", "p4ss"))
    assert config != TcpConfig()
    assert hash(login) == hash(AutoLogin.username_password("u", "p4ss"))
    assert repr(AutoLogin.disabled()) == "AutoLogin.disabled()"


def test_producer_configs_when_given_then_become_our_modes():
    direct = DirectProducerConfig(batch_length=0, linger_time=SECOND)
    background = BackgroundProducerConfig(
        num_shards=3, max_buffer_size=0, failure_mode=BackpressureMode.fail_immediately()
    )

    assert (direct.mode().batch_length, direct.mode().linger_time) == (None, 1.0)
    assert background.mode().max_buffer_size is None
    assert background.mode().max_in_flight == 3
    assert background.mode().backpressure == Backpressure.fail()
    assert BackgroundProducerConfig(max_in_flight=0).mode().max_in_flight is None
    assert background.sharding is ProducerSharding.ORDERED
    assert BackgroundProducerConfig(failure_mode=Backpressure.fail()).failure_mode == (
        BackpressureMode.fail_immediately()
    )


@pytest.mark.parametrize(
    ("mode", "text", "timeout"),
    [
        (BackpressureMode.block(), "BackpressureMode.block()", None),
        (BackpressureMode.fail_immediately(), "BackpressureMode.fail_immediately()", None),
        (
            BackpressureMode.block_with_timeout(SECOND),
            "BackpressureMode.block_with_timeout(datetime.timedelta(seconds=1))",
            SECOND,
        ),
    ],
)
def test_backpressure_when_shown_then_reads_as_officially(mode, text, timeout):
    assert (repr(mode), mode.timeout) == (text, timeout)
    assert mode == mode.own
    assert hash(mode) == hash(mode.own)
