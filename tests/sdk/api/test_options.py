"""What a client goes by: defaults, the connection string, and keywords above both."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest

from iggy_protocol import CLASSIC, V0_11, V0_12_0, V0_12_2
from iggy_sdk.connection_string import Endpoint, PasswordLogin, ServerProtocol, TokenLogin
from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import ConfigurationError
from iggy_sdk.hooks import Hook
from iggy_sdk.options import ClientOptions, Reconnect, Retry, TlsOptions, resolve_options


def test_resolve_options_when_nothing_is_said_then_takes_the_defaults():
    options = resolve_options()

    assert options == ClientOptions()
    assert options.endpoints == (Endpoint("127.0.0.1", 8090),)
    assert options.credentials is None
    assert options.tls is None
    assert (options.connect_timeout, options.request_timeout) == (10.0, 30.0)


def test_resolve_options_when_the_string_speaks_then_listens():
    options = resolve_options(
        "iggy+tcp://app:s%40fe@node-a:8090,node-b:8091?tls=true&tls_domain=iggy.example"
        "&tls_ca_file=ca.pem&tls_validate_certificate=false&nodelay=false&heartbeat_interval=7s"
        "&reconnection_retries=4&reconnection_interval=2s&reestablish_after=3s"
        "&request_timeout=4s&connect_timeout=5s&close_timeout=6s&max_outstanding=8"
    )

    assert options == ClientOptions(
        endpoints=(Endpoint("node-a", 8090), Endpoint("node-b", 8091)),
        credentials=PasswordLogin("app", "s@fe"),
        tls=TlsOptions(domain="iggy.example", ca_file="ca.pem", validate=False),
        nodelay=False,
        heartbeat_interval=7.0,
        reconnect=Reconnect(retries=4, delay=2.0, reestablish_after=3.0),
        request_timeout=4.0,
        connect_timeout=5.0,
        close_timeout=6.0,
        max_outstanding=8,
    )


def test_resolve_options_when_keywords_differ_from_the_string_then_keywords_win():
    hook = Hook()
    encryptor = Encryptor.aes256_gcm(bytes(32))
    options = resolve_options(
        "iggy://user:password@host:1?request_timeout=1s&tls=true&tls_domain=x",
        endpoints=["other:2", Endpoint("third", 3)],
        token="secret-token",
        request_timeout=timedelta(seconds=2),
        heartbeat_interval=0,
        tls=False,
        reconnect=False,
        hooks=[hook],
        encryptor=encryptor,
    )

    assert options.endpoints == (Endpoint("other", 2), Endpoint("third", 3))
    assert options.credentials == TokenLogin("secret-token")
    assert options.request_timeout == 2.0
    assert options.heartbeat_interval == 0.0
    assert options.tls is None
    assert options.reconnect == Reconnect(enabled=False)
    assert options.hooks == (hook,)
    assert options.encryptor is encryptor


def test_resolve_options_when_tls_is_switched_on_by_keyword_then_is_validated():
    assert resolve_options("host:1", tls=True).tls == TlsOptions(validate=True)
    assert resolve_options("iggy+wss://host").tls == TlsOptions()
    assert resolve_options("iggy+https://host?tls_ca_file=ca.pem").tls == TlsOptions(
        ca_file="ca.pem"
    )


def test_resolve_options_when_tls_details_come_without_tls_then_refuses_to_speak_openly():
    with pytest.raises(ConfigurationError, match="tls=true"):
        resolve_options("iggy://user:password@host:1?tls_ca_file=ca.pem")

    assert resolve_options("iggy://host:1?tls=false&tls_ca_file=ca.pem").tls is None


def test_resolve_options_when_the_interval_is_long_then_the_longest_wait_is_not_shorter():
    reconnect = resolve_options("iggy://host:1?reconnection_interval=2m").reconnect

    assert (reconnect.delay, reconnect.max_delay) == (120.0, 120.0)


def test_resolve_options_when_keys_belong_to_one_transport_then_passes_them_on():
    options = resolve_options("iggy+quic://host?initial_mtu=1300&retries=2")

    assert options.transport == "quic"
    assert dict(options.transport_settings) == {"initial_mtu": 1300, "retries": 2}


@pytest.mark.parametrize(
    ("text", "dialects"),
    [
        ("auto", (V0_12_2, V0_12_0, V0_11, CLASSIC)),
        ("0.8", (CLASSIC,)),
        ("0.9", (V0_11,)),
        ("0.10", (V0_12_2, V0_12_0)),
    ],
)
def test_resolve_options_when_a_protocol_is_named_then_the_newest_dialect_comes_first(
    text, dialects
):
    assert resolve_options(f"iggy://host:1?protocol={text}").protocol is ServerProtocol(text)
    assert resolve_options(protocol=text).protocol.dialects == dialects


def test_resolve_options_when_a_protocol_is_unknown_then_says_what_is_possible():
    with pytest.raises(ConfigurationError, match=r"protocol is '0\.11'") as caught:
        resolve_options("iggy://host:1?protocol=0.11")

    assert "auto, 0.8, 0.9, 0.10" in caught.value.advice


def test_resolve_options_when_a_keyword_is_misspelt_then_names_the_nearest():
    with pytest.raises(TypeError, match="'request_timout'; did you mean 'request_timeout'"):
        resolve_options(request_timout=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "settings",
    [
        {"request_timeout": 0},
        {"connect_timeout": -1},
        {"close_timeout": 0.0},
        {"heartbeat_interval": "5s"},
        {"max_outstanding": 0},
        {"endpoints": []},
        {"endpoints": ["host:x"]},
        {"username": "app"},
        {"password": "x"},
        {"username": "app", "password": "x", "token": "y"},
        {"token": "y", "credentials": TokenLogin("z")},
        {"protocol": "0.7"},
        {"url": "iggy+http://host:1?protocol=0.9"},
    ],
)
def test_resolve_options_when_a_value_is_unusable_then_refuses_it(settings):
    with pytest.raises(ConfigurationError):
        resolve_options(**settings)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Reconnect(retries=-1),
        lambda: Reconnect(delay=-1),
        lambda: Reconnect(jitter=2),
        lambda: Retry(attempts=-1),
        lambda: Retry(backoff=timedelta(seconds=-1)),
        lambda: Retry(jitter=-0.1),
    ],
)
def test_policies_when_a_value_is_unusable_then_refuse_it(make):
    with pytest.raises(ConfigurationError):
        make()


def test_policies_when_asked_for_a_schedule_then_give_their_own():
    assert list(
        zip(range(3), Reconnect(delay=1, max_delay=2, jitter=0).backoff.delays(float), strict=False)
    ) == [(0, 1.0), (1, 2.0), (2, 2.0)]
    assert Retry(backoff=timedelta(seconds=3), jitter=0).schedule.delay(0, float) == 3.0


def test_options_when_shown_then_hide_the_password():
    options = resolve_options(
        "iggy://app:hunter2@host:1", encryptor=Encryptor.aes256_gcm(b"k" * 32)
    )

    assert "hunter2" not in repr(options)
    assert "kkk" not in repr(options)


def test_credentials_when_pickled_then_stay_the_same():
    login = PasswordLogin("app", "hunter2")

    assert pickle.loads(pickle.dumps(login)) == login
